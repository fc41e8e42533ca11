"""The paper's experiment as one program: spec, data, networks, packs of runs, store, runner."""


class StudyError(Exception):
    """What a user can mend: the message says what was received, what is allowed, and the remedy."""
