"""The study: what is trained, on which data, how, and what is recorded."""

from qneurons.study.errors import StudyError as StudyError
