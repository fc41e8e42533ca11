"""SIGKILL and other blows at random moments. The study must end as if there had been none."""

import itertools
import os
import random
import resource
import select
import signal
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fault_campaign.processes import PHASES, Command, Process, start
from fault_campaign.verdict import Results, Verdict, judge

LIFE = 3  # savings that a process lives to see, at most
KILL = "SIGKILL"
OTHERS = TERM, STOP, LIMIT = "SIGTERM", "SIGSTOP and SIGCONT", "file-size limit"
STOPPED_S = 0.5
STOPPED_CODES = (130, 143)  # saved as on Ctrl-C; before or after training, by the default handler
LARGEST = 2**21  # bytes: a checkpoint has about as many


@dataclass
class Killing:
    """What happened to the processes of one or more studies."""

    at_once: int  # processes on one store
    studies: int = 0
    kills: int = 0
    others: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OTHERS, 0))
    phases: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PHASES, 0))
    saved: int = 0  # epochs that were reported as saved
    failures: list[str] = field(default_factory=list)  # of processes that were not killed
    verdict: Verdict = field(default_factory=Verdict)


@dataclass
class Pace:
    """How long a process and its saves take, estimated from the processes so far."""

    start_s: list[float] = field(default_factory=lambda: [1.0])  # until the first saving
    epoch_s: list[float] = field(default_factory=lambda: [0.2])
    saving_s: list[float] = field(default_factory=lambda: [0.01])

    def learn(self, process: Process) -> None:
        moments = process.savings
        self.start_s += [moment - process.started for moment in moments[:1]]
        self.epoch_s += [b - a for a, b in itertools.pairwise(moments)]
        self.saving_s += process.saving_s


class Fate:
    """What hits a process, and when: at a random moment, or about when it saves.

    A process that was stopped and goes on is hit again.
    """

    def __init__(
        self, ways: Sequence[str], draw: random.Random, pace: Pace, process: Process
    ) -> None:
        self._ways, self._draw, self._pace = ways, draw, pace
        self.num_stops, self.is_over = 0, False
        self._choose(process)

    def _choose(self, process: Process) -> None:
        self.way, self._is_stopped = self._draw.choice(self._ways), False
        savings, pace = len(process.savings), self._pace
        self._saving = savings + self._draw.randint(1, LIFE) if self._draw.random() < 0.5 else None
        if self._saving is None:
            start_s, epoch_s = map(statistics.median, (pace.start_s, pace.epoch_s))
            life_s = LIFE * epoch_s + (0.0 if savings else start_s)
            self._moment = time.monotonic() + self._draw.uniform(0, life_s)
        else:
            self._delay_s = self._draw.uniform(0, 1.2 * statistics.median(pace.saving_s))

    def moment(self, process: Process) -> float | None:
        if self.is_over:
            return None
        if self._saving is None:
            return self._moment
        if len(process.savings) < self._saving:
            return None
        return process.savings[self._saving - 1] + self._delay_s

    def strike(self, process: Process) -> None:
        if self._is_stopped:
            os.kill(process.pid, signal.SIGCONT)
            self.num_stops += 1
            self._choose(process)
            return
        if self.way == STOP:
            os.kill(process.pid, signal.SIGSTOP)
            self._is_stopped, self._saving = True, None
            self._moment = time.monotonic() + STOPPED_S
            return
        if self.way == KILL:
            process.kill()
        elif self.way == TERM:
            os.kill(process.pid, signal.SIGTERM)
        else:
            limits = self._draw.randrange(LARGEST), resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, limits)
        self.is_over = True


class Killer:
    """Runs a command in one or more processes at once on a store, and kills them."""

    def __init__(
        self,
        command: Command,
        folder: Path,
        undisturbed: Results,
        *,
        at_once: int,
        seed: int,
        ways: Sequence[str] = (KILL,),
    ) -> None:
        self._ways = ways
        self._command, self._folder, self._undisturbed = command, folder, undisturbed
        self._draw, self._pace = random.Random(seed), Pace()
        self.found = Killing(at_once)

    def run(self, kills: int, until: float) -> Killing:
        """Starts another study if one is finished before there were ``kills`` kills.

        After ``until`` killing stops, but not before the first kill; then the study is finished.
        """

        def wanted() -> bool:
            return self.found.kills < (kills if time.monotonic() < until else 1)

        while not self.found.failures and (not self.found.studies or wanted()):
            self._study(wanted)
        return self.found

    def _study(self, wanted: Callable[[], bool]) -> None:
        store = self._folder / f"{self.found.at_once}-at-once-{self.found.studies}"
        living: list[tuple[Process, Fate | None]] = []
        reported: dict[str, int] = {}
        finished = False
        while living or not finished:
            while len(living) < self.found.at_once and not finished:
                living.append(self._start(store, is_hit=wanted()))
            moments = [fate.moment(process) for process, fate in living if fate]
            soonest = min((each for each in moments if each is not None), default=float("inf"))
            patience = min(60.0, max(0.0, soonest - time.monotonic()))
            select.select([process.pipe for process, _ in living], [], [], patience)
            ended = []
            for process, fate in tuple(living):
                process.listen(0.0)
                moment = fate.moment(process) if fate else None
                if process.code is None and moment is not None and time.monotonic() >= moment:
                    fate.strike(process)
                if process.code is not None:
                    living.remove((process, fate))
                    ended.append(self._account(process, fate, store, reported))
            finished = all(ended) if ended else finished  # who is killed last does not tidy up
        self.found.saved += sum(reported.values())
        self.found.verdict += judge(store, self._undisturbed, reported=reported, finished=True)
        self.found.studies += 1

    def _start(self, store: Path, *, is_hit: bool) -> tuple[Process, Fate | None]:
        process = start(self._command, store)
        fate = Fate(self._ways, self._draw, self._pace, process) if is_hit else None
        return process, fate

    def _account(
        self, process: Process, fate: Fate | None, store: Path, reported: dict[str, int]
    ) -> bool:
        """True if the study is finished."""
        self._pace.learn(process)
        reported |= {run: max(n, reported.get(run, 0)) for run, n in process.reported.items()}
        way = fate.way if fate and fate.is_over else KILL
        survived = {
            KILL: process.killed,
            TERM: process.code in STOPPED_CODES,
            LIMIT: "free some space" in (process.error or ""),
        }[way]
        if process.killed:
            self.found.kills += 1
            self.found.phases[process.phase] += 1
        elif survived:
            self.found.others[way] += 1
        elif process.code != 0:
            self.found.failures.append(f"{way}, exit code {process.code}: {process.said}")
            return True
        self.found.others[STOP] += fate.num_stops if fate else 0
        self.found.verdict += judge(store, self._undisturbed, reported=reported)
        return process.code == 0


def rows(found: list[Killing]) -> list[tuple[str, ...]]:
    """The lines of a table, one column for each."""

    def line(name: str, value) -> tuple[str, ...]:
        return (name, *(str(value(each)) for each in found))

    return [
        line("kills survived", lambda each: f"{each.kills - len(each.failures)} of {each.kills}"),
        *(
            line(f"- while {phase}", lambda each, phase=phase: each.phases[phase])
            for phase in PHASES
        ),
        *(line(f"{way} survived", lambda each, way=way: each.others[way]) for way in OTHERS),
        line("studies finished", lambda each: each.studies - len(each.failures)),
        line("epochs reported as saved", lambda each: each.saved),
        line("- and lost", lambda each: each.verdict.lost),
        line("epochs recorded twice", lambda each: each.verdict.twice),
        line("epochs missing at the end", lambda each: each.verdict.missing),
        line("epochs that differ from the undisturbed study", lambda each: each.verdict.different),
        line("files left over", lambda each: each.verdict.left_over),
    ]
