"""The error of a study, and the one for an unknown name."""

import difflib
from collections.abc import Iterable


class StudyError(Exception):
    """A mistake that the user can fix: ``"value and rule; remedy"``.

    The command line shows what follows the first semicolon as a hint.
    """


def unknown(what: str, name: object, known: Iterable[str]) -> StudyError:
    """The error for a name that is not known; suggests the closest known one."""
    known = list(known)
    near = difflib.get_close_matches(str(name).lower(), known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return StudyError(f"unknown {what} {name!r}; {hint}the known ones: {', '.join(known)}")
