"""Publishes what modern.py trained: results/modern, and the tables of RESULTS.md.

    python benchmarks/publish_modern.py STORE

It may be run at any time. The store is published too: ``tar xf results/modern/store.tar.xz`` makes
the folder modern, with which modern.py goes on (with ``--keep`` if the code of a training has
changed since). Settings are compared by the seeds with which all of them are trained, and there is
no verdict before all seeds are. Sentences are written by hand, around the markers in RESULTS.md.
"""

import argparse
import dataclasses
import math
import statistics
from collections import Counter
from pathlib import Path

import modern
import polars as pl
from archives import pack_stores, without_folders
from modern import BASE, RIVALS, best_rate, missing, plan, searched
from pages import bare_markdown, write_between

from qneurons.comparison.arms import Arm
from qneurons.comparison.page import draw_gains, gain_table, gains_alt, gains_caption, meaning_of
from qneurons.comparison.results import Row, final_values
from qneurons.comparison.store import TrialStore
from qneurons.provenance import versions
from qneurons.report.contrasts import contrasts
from qneurons.report.figures import setting_styles
from qneurons.report.final_values import Metric
from qneurons.report.inference import estimate
from qneurons.report.legend import legend
from qneurons.report.page import Head, write_page
from qneurons.report.rendering import (
    NONE,
    Table,
    difference_texts,
    estimate_text,
    p_text,
)
from qneurons.report.sections import Drawing, Section
from qneurons.study.errors import StudyError

ROOT = Path(__file__).parents[1]
MODERN = ROOT / "results" / "modern"
PROTOCOL = (
    "q-activations are evaluated in the limit. Every setting has its own learning rate, the best "
    "on validation data, with other seeds. Differences are paired by seed. p (Holm) is corrected "
    "over all settings of the task."
)


def finished_of(store, specs):
    return [store.finished[spec.id] for spec in specs if spec.id in store.finished]


def tidy(store, stages):
    """One row for every epoch of every trial."""
    # The trials of cost are also of the search.
    stage_of = {spec: stage for stage in reversed(stages) for spec in stages[stage]}
    rows = []
    for trial in finished_of(store, stage_of):
        spec = trial.spec
        fields = {"stage": stage_of[spec], **dict(spec.params)}
        fields |= {"setting": spec.arm, "seed": spec.seed, "diverged": trial.measured.diverged}
        fields |= {"peak_bytes": trial.measured.peak_bytes}
        fields |= store.records.provenance[trial.provenance]
        by_epoch = {"seconds": trial.measured.seconds, **trial.measured.metrics}
        for epoch, values in enumerate(zip(*by_epoch.values(), strict=True), 1):
            rows.append(fields | {"epoch": epoch, **dict(zip(by_epoch, values, strict=True))})
    return pl.DataFrame(rows, infer_schema_length=None)


def named(cell):
    return " ".join(cell)


def reference(cell):
    """What a setting is compared with: its own plain activation."""
    return cell[0], BASE


class Outcome:
    """The numbers of a task."""

    def __init__(self, task, store):
        self.task, self.store = task, store
        words = task.metric.replace("_", " ")
        percent = "accuracy" in words
        self.metric = Metric(task.metric, words, higher=task.higher, percent=percent)
        self.stages = {stage: plan(task, stage, store.finished) for stage in ("cost", "search")}
        self.chosen, self.seeds = {}, []
        if all(spec.id in store.finished for spec in self.stages["search"]):
            self._compare()

    def _compare(self):
        task, finished = self.task, self.store.finished
        self.stages["final"] = plan(task, "final", finished)
        self.chosen = {cell: best_rate(task, cell, finished) for cell in task.cells}
        plain = [cell for cell in task.cells if cell[1] in (BASE, *RIVALS)]
        self.best_plain = max(plain, key=self.chosen.get)  # by validation, in the search
        lacking = {spec.seed for spec in missing(task, "final", finished)}
        self.seeds = [seed for seed in task.final_seeds if seed not in lacking]
        self.finals = self._finals("final")
        self.over_base = self._contrasts(self.finals, reference)
        self.over_best = self._contrasts(self.finals, lambda cell: self.best_plain)
        self.has_common = self.is_complete and not missing(task, "common", finished)
        if self.has_common:
            self.stages["common"] = plan(task, "common", finished)
            self.finals_common = self._finals("common")
            self.over_base_common = self._contrasts(self.finals_common, reference)

    def _finals(self, stage):
        return {
            cell: final_values(named(cell), self.trials(stage, cell), self.metric)
            for cell in self.task.cells
        }

    @property
    def is_complete(self):
        return len(self.seeds) == len(self.task.final_seeds)

    def trials(self, stage, cell):
        specs = [
            spec
            for spec in self.stages[stage]
            if (dict(spec.params)["activation"], spec.arm) == cell
            and (stage != "final" or spec.seed in self.seeds)
        ]
        return finished_of(self.store, specs)

    def progress(self):
        """How much is trained, in a sentence."""
        num_cells = len(self.task.cells)
        if not self.chosen:
            specs = self.stages["search"]
            num_done = len(finished_of(self.store, specs))
            return (
                f"The search for rates has done {num_done} of {len(specs)} trainings of "
                f"{num_cells} settings. Nothing is compared yet."
            )
        seeds = f"{len(self.seeds)} of {len(self.task.final_seeds)} seeds"
        text = f"All {num_cells} settings are trained with {seeds}."
        return text if self.is_complete else f"{text} There is no verdict yet."

    def costs(self, cell):
        """The median time of an epoch and the peak of memory."""
        (trial,) = self.trials("cost", cell)
        return statistics.median(trial.measured.seconds or [0.0]), trial.measured.peak_bytes

    @staticmethod
    def _contrasts(finals, of):
        """Every cell against another one, with Holm's correction over all of them."""
        pairs = [(named(cell), named(of(cell))) for cell in finals if of(cell) != cell]
        found = {row.setting: row for row in contrasts(finals.values(), lambda _: pairs)}
        return {cell: found.get(named(cell)) for cell in finals}

    def rows(self, activation):
        """The settings of an activation as ``compare`` has them."""
        found = []
        for setting in self.task.settings(activation):
            cell = activation, setting
            rate = f"lr={self.chosen[cell][1]:g}"
            numbers = self.trials("final", cell), self.finals[cell], self.over_base[cell]
            found.append(Row(Arm(setting), setting, rate, *numbers, *self.costs(cell)))
        return found


def with_diverged(value, metric, num_diverged):
    diverged = f" ({num_diverged} diverged)" if num_diverged else ""
    return estimate_text(value, metric) + diverged


def value_text(final):
    return with_diverged(final.estimate, final.metric, len(final.diverged))


def summary_table(outcome, finals, over_base, rates):
    """One line for each activation: base, and the differences of the settings from it."""
    task, metric = outcome.task, outcome.metric
    names = ("limit", "c0.1", task.annealed)
    settings = [name for name in names if name in (task.only or names)]
    body = []
    for activation in task.activations:
        texts = [activation, value_text(finals[activation, BASE])]
        for setting in settings:
            contrast = over_base.get((activation, setting))
            if contrast is None:
                texts.append("is base")
                continue
            text = " ".join(difference_texts(contrast.difference, metric))
            is_shown = outcome.is_complete and contrast.outcome != "unclear"
            texts.append(f"**{text}**" if is_shown else text)
        body.append(tuple(texts))
    better = "Larger" if metric.higher else "Smaller"
    unit = " in %, differences in points" if metric.percent else ", nats per byte"
    note = (
        f"{better} is better. Mean ± half of the 95 % t-interval over {len(outcome.seeds)} "
        "seeds; differences from base are paired by seed, with their 95 % intervals, and bold if "
        "p ≤ 0.05 with Holm's correction over all settings of the task."
    )
    title = f"{task.title}, {rates}: {metric.title}{unit}"
    return Table(title, ("activation", "base", *settings), tuple(body), note)


def ranking_table(outcome):
    """All of them in the order of their means, against the best plain activation."""
    metric, best = outcome.metric, named(outcome.best_plain)

    def quality(cell):
        mean = outcome.finals[cell].estimate.mean  # NaN if all trials diverged
        return -math.inf if math.isnan(mean) else mean if metric.higher else -mean

    body = []
    for cell in sorted(outcome.finals, key=quality, reverse=True):
        final, contrast = outcome.finals[cell], outcome.over_best[cell]
        texts = [*cell, f"{outcome.chosen[cell][1]:g}", value_text(final)]
        if contrast is None:
            texts += ["the best plain one", NONE, NONE, NONE]
        else:
            verdict = [p_text(contrast.p_holm), contrast.outcome]
            texts += difference_texts(contrast.difference, metric)
            texts += verdict if outcome.is_complete else [NONE, NONE]
        costs = zip(outcome.costs(cell), outcome.costs(reference(cell)), strict=True)
        texts += [f"×{cost / base:.2f}" if cost and base else NONE for cost, base in costs]
        body.append(tuple(texts))
    columns = ("activation", "setting", "rate", metric.title, f"difference from {best}")
    columns += ("95 % interval", "p (Holm)", "verdict", "time", "memory")
    note = (
        f"{best} is the best plain activation on the validation data of the search. Time of an "
        "epoch with its evaluation, and peak memory, are against base of the same activation, "
        f"measured {outcome.task.timed}."
    )
    return Table(f"{outcome.task.title}: all settings in their order", columns, tuple(body), note)


def search_table(outcome):
    """The validation metric at every rate, after the last epoch."""
    task = outcome.task
    title = task.validation.replace("_", " ")
    metric = dataclasses.replace(outcome.metric, name=task.validation, title=title)
    body = []
    for cell in task.cells:
        texts = []
        for rate in task.rates:
            trials = searched(task, cell, rate, outcome.store.finished)
            learnt = [trial.metrics[task.validation][-1] for trial in trials if not trial.diverged]
            is_chosen = bool(outcome.chosen) and rate == outcome.chosen[cell][1]
            text = with_diverged(estimate(learnt), metric, len(trials) - len(learnt))
            texts.append(text + " *" * is_chosen if trials else NONE)
        body.append((*cell, *texts))
    columns = ("activation", "setting", *(f"lr={rate:g}" for rate in task.rates))
    ends = sum(rate in (task.rates[0], task.rates[-1]) for _, rate in outcome.chosen.values())
    note = "After the last epoch, mean over the seeds of the search."
    if outcome.chosen:
        note += (
            f" * is the rate that was chosen. {ends} of the {len(body)} chosen rates are at an end "
            "of the range."
        )
    return Table(f"The search: {metric.title}", columns, tuple(body), note)


def draw(outcome):
    """The gains of all settings over their plain activations."""
    rows = [
        dataclasses.replace(row, arm=Arm(named((f, row.arm.name))))
        for f in outcome.task.activations
        for row in outcome.rows(f)
    ]
    styles = {}
    for f in outcome.task.activations:
        settings = outcome.task.settings(f)
        styles |= {named((f, s)): style for s, style in setting_styles(settings).items()}
    caption = gains_caption(rows, "the plain activation")
    return Drawing("gains", gains_alt(rows), caption, draw_gains(rows, styles))


def make_head(outcome):
    task = outcome.task
    settings = dict.fromkeys(setting for f in task.activations for setting in task.settings(f))
    if outcome.is_complete:
        rows = [row for (_, s), row in outcome.over_base.items() if row and s not in RIVALS]
        verdicts = Counter(row.outcome for row in rows)
        answer = (
            f"q-activations and limits beat their plain activation in {verdicts['better']} of "
            f"{len(rows)} comparisons of {outcome.metric.title} and lose in {verdicts['worse']}."
        )
    else:
        answer = outcome.progress()
    counts = [
        (f"trials of {stage}", len(finished_of(outcome.store, specs)))
        for stage, specs in outcome.stages.items()
    ]
    meanings = legend({setting: meaning_of(Arm(setting)) for setting in settings})
    return Head(task.title, answer, counts, f"{meanings}. {PROTOCOL}")


def facts(store):
    contents = store.records.provenance.values()
    names = ("device", "torch", "triton", "python", "qneurons", "commit", "command")
    found = [(name, sorted({str(content.get(name, "")) for content in contents})) for name in names]
    made = ", ".join(f"{key} {value}" for key, value in versions().items() if key != "triton")
    return [*found, ("report made with", [made])]


def publish(name, task, store):
    """Writes rows and page of a task; returns its tables for RESULTS.md."""
    if store is None:
        return f"**{task.title}.** Nothing is trained yet."
    outcome = Outcome(task, store)
    sections, summaries = [], []
    if outcome.seeds:
        own = outcome.finals, outcome.over_base, "each at the rate that the search chose"
        summaries.append(summary_table(outcome, *own))
        if outcome.has_common:
            same = f"all at the rate {task.middle_rate:g}"
            common = outcome.finals_common, outcome.over_base_common, same
            summaries.append(summary_table(outcome, *common))
        figures, tables = [draw(outcome)], [*summaries, ranking_table(outcome)]
        sections.append(Section("answer", "All activations", figures=figures, tables=tables))
    if outcome.is_complete:
        each = [
            gain_table(outcome.rows(activation), f", {activation}, each at its chosen rate")
            for activation in task.activations
        ]
        sections.append(Section("activations", "Activation by activation", tables=each))
    search = Section("search", "How the rates were chosen", tables=[search_table(outcome)])
    sections += [search, Section("provenance", "Provenance", facts=facts(store))]
    write_page(MODERN / name, make_head(outcome), sections, formats=())
    tidy(store, outcome.stages).write_parquet(MODERN / name / "rows.parquet")
    texts = [f"**{task.title}.** {outcome.progress()}"]
    for table in summaries:
        caption = table.title.removeprefix(f"{task.title}, ")
        texts += [f"{caption[0].upper()}{caption[1:]}.", bare_markdown(table)]
    if summaries:
        page = f"results/modern/{name}/report.md"
        texts.append(
            f"{summaries[0].note} [All settings in their order]({page}), also the rivals of ReLU, "
            "with time and memory."
        )
    return "\n\n".join(texts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("store", type=Path)
    folder = parser.parse_args().store
    folders = {name: folder / name / "store" for name in modern.TASKS}
    try:
        stores = {n: TrialStore.open(f, readonly=True) for n, f in folders.items() if f.is_dir()}
    except StudyError as error:
        parser.error(str(error))
    stores = {name: store for name, store in stores.items() if store.finished}
    if not stores:
        parser.error(f"{folder} has no trials; give the --store of modern.py")
    if lacking := [n for n in modern.TASKS if (MODERN / n).exists() and n not in stores]:
        parser.error(
            f"{folder} has no trials of {', '.join(lacking)}, which is published; unpack "
            "results/modern/store.tar.xz there, or give another store"
        )
    for store in stores.values():
        for content in store.records.provenance.values():
            content["command"] = without_folders(content["command"])
    texts = [publish(name, task, stores.get(name)) for name, task in modern.TASKS.items()]
    pack_stores(MODERN / "store.tar.xz", {f"modern/{n}/store": folders[n] for n in stores})
    write_between(ROOT / "RESULTS.md", "modern", "\n\n".join(texts))


if __name__ == "__main__":
    main()
