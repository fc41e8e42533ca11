"""The paper's experiment as one program: what is trained, on which data, how, and what is kept."""

from qneurons.study.errors import StudyError

__all__ = ["StudyError"]
