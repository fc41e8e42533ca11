"""``qneurons study status``: how much of its studies a store holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from qneurons.cli.terminal import Debug, StoreFolder, console, one_line_errors
from qneurons.study.runs import Run, counted, study_names


def status(
    store: StoreFolder,
    study: Annotated[
        str | None,
        typer.Option(
            metavar="NAME_OR_FILE",
            help="Count what is done of this study; else of all that was run on the store.",
            autocompletion=study_names,
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Show what is done in a store, and of how much."""
    with one_line_errors(debug):
        from qneurons.cli.display import percentages
        from qneurons.study.execution import setting_means
        from qneurons.study.spec import load_study
        from qneurons.study.store import Store

        chosen = load_study(study) if study else None
        opened = Store.open(store, readonly=True)
        plan = dict.fromkeys(chosen.runs, chosen.epochs) if chosen else opened.plan()
        counts = Counts(plan, opened.progress(), opened.diverged())
        accuracies = opened.accuracies()
        unplanned = [run for run in opened.runs().values() if run not in plan]
        runs = [*plan, *(() if chosen else unplanned)]
        screen = console()
        screen.print(f"{store}: {counts.text(runs)}")
        if chosen and unplanned:
            screen.print(f"it also has {counted(len(unplanned), 'run')} outside of {chosen.name}")
        elif not plan:
            screen.print("plan unknown: the store has recorded none; name a study with --study")
        kinds: dict[str, dict[str, list[Run]]] = {}
        for run in runs:
            kinds.setdefault(run.kind, {}).setdefault(run.activation, []).append(run)
        for kind, cells in kinds.items():
            origins = [opened.origin(run.id) for cell in cells.values() for run in cell]
            places = {
                f"{origin.get('device_type', '?')} in {origin.get('precision', '?')}"
                for origin in origins
                if origin
            }
            trained = f", trained on {' and '.join(sorted(places))}" if places else ""
            screen.print(f"\n{kind}{trained}")
            for activation, cell in cells.items():
                screen.print(f"  {activation}: {counts.text(cell)}")
                if means := setting_means(cell, accuracies):
                    screen.print(f"    test accuracy in %: {percentages(means)}")


@dataclass(frozen=True)
class Counts:
    """What is done of a plan. A diverged run counts as done."""

    plan: dict[Run, int]  # epochs
    progress: dict[str, int]
    diverged: set[str]

    def text(self, runs: Sequence[Run]) -> str:
        wanted = {run: self.plan[run] for run in runs if run in self.plan}
        done = {
            run: epochs if run.id in self.diverged else min(self.progress.get(run.id, 0), epochs)
            for run, epochs in wanted.items()
        }
        others = [self.progress[run.id] for run in runs if run not in wanted]
        num_diverged = sum(run.id in self.diverged for run in runs)
        parts = []
        if wanted:
            num_done = sum(done[run] == wanted[run] for run in wanted)
            parts.append(f"{num_done:,} of {counted(len(wanted), 'run')}")
            parts.append(f"{sum(done.values()):,} of {counted(sum(wanted.values()), 'epoch')}")
        if others or not wanted:
            parts.append(f"{counted(len(others), 'run')}{' outside the plan' if self.plan else ''}")
            parts.append(counted(sum(others), "epoch"))
        if num_diverged:
            parts.append(f"{num_diverged} diverged")
        return ", ".join(parts)
