"""The error of a study, the one for an unknown name, and how to install what is missing."""

import difflib
from collections.abc import Iterable


class StudyError(Exception):
    """A mistake that the user can fix: what is wrong, and the remedy, if there is more to say.

    The command line shows the remedy as a hint.
    """

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what, remedy)  # both, because unpickling calls __init__ with them
        self.what, self.remedy = what, remedy

    def __str__(self) -> str:
        return f"{self.what}; {self.remedy}" if self.remedy else self.what

    def at(self, where: object) -> "StudyError":
        """The same error, with the place of the mistake before it."""
        return StudyError(f"{where}: {self.what}", self.remedy)


def unknown(what: str, name: object, known: Iterable[str], otherwise: str = "") -> StudyError:
    """The error for a name that is not known; suggests the closest known one."""
    known = list(known)
    remedy = f"{did_you_mean(name, known)}the known ones: {', '.join(known)}"
    return StudyError(f"unknown {what} {name!r}", remedy + (otherwise and f"; {otherwise}"))


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """The closest known name as a question; empty if none is close."""
    near = difflib.get_close_matches(str(name).lower(), list(known), n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}? " if near else ""


def install(extra: str = "study") -> str:
    """How to add an extra to this package, which may come from an index or from a checkout.

    pip finds it installed, and installs only what the extra adds.
    """
    return f"pip install 'qneurons[{extra}]'"
