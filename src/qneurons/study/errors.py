"""The errors of a study."""

import difflib
from collections.abc import Iterable


class StudyError(Exception):
    """What a user can mend: the message says what was received, what is allowed, and the remedy."""


def unknown(what: str, name: object, known: Iterable[str]) -> StudyError:
    """The error for a name that is none of the known ones, with the nearest of them."""
    known = list(known)
    near = difflib.get_close_matches(str(name).lower(), known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return StudyError(f"unknown {what} {name!r}; {hint}the known ones: {', '.join(known)}")
