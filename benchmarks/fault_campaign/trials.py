"""Injects a fault, runs the command, applies the remedy, and runs the command again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fault_campaign.processes import Command, Process, finish
from fault_campaign.verdict import Results, judge


@dataclass
class Fault:
    """How often a fault was injected, and what happened."""

    name: str
    injected: int = 0
    refused: int = 0  # stopped with a line that says what is wrong, and a hint
    harmless: int = 0  # it had no effect
    resumed: int = 0  # after the remedy, with the result of the undisturbed study
    tried: int = 0
    wrong: list[str] = field(default_factory=list)  # descriptions of all other outcomes

    def count(self, outcome: str | None, *, refused: bool) -> None:
        """``outcome``: what was wrong, None if nothing was."""
        self.injected += 1
        if outcome is not None:
            self.wrong.append(outcome)
        elif refused:
            self.refused += 1
        else:
            self.harmless += 1


@dataclass(frozen=True)
class Bench:
    """The study for the faults, its results, and a store whose process was killed half-way."""

    command: Command
    results: Results
    half: Path
    reported: Mapping[str, int]  # what the half-way store's process said that it had saved

    def try_out(
        self,
        fault: Fault,
        store: Path,
        process: Process,
        *,
        mend: Callable[[str], object],
        remedy: str = "",
        keeps: bool = True,
    ) -> None:
        """Judges a process that met the fault, applies the remedy of its message, and continues.

        ``remedy`` must be in the message.
        ``keeps``: if True, everything saved must still be there; else only the end must be right.
        """
        said = {**self.reported, **process.reported} if keeps else {}
        problems = []
        if process.code != 0 and (process.error is None or remedy not in process.error):
            problems.append(f"exit code {process.code}: {process.said}")
        if keeps and (verdict := judge(store, self.results, reported=said)):
            problems.append(str(verdict))
        fault.count("; ".join(problems) or None, refused=process.code == 1)
        mend(process.error or "")
        again = finish(self.command, store)
        fault.tried += 1
        verdict = judge(store, self.results, reported=said, finished=True, again=not keeps)
        if again.code == 0 and not verdict:
            fault.resumed += 1
        else:
            fault.wrong.append(f"afterwards: {again.code} {again.said} {verdict}")
