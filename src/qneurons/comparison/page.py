"""The tables, figures and page of a comparison."""

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qneurons.comparison.arms import BASE, Arm, rivals
from qneurons.comparison.metrics import direction
from qneurons.comparison.results import (
    MOST_SEEDS,
    Answer,
    Results,
    Row,
    answer,
    final_values,
    more_seeds,
    prospect,
)
from qneurons.comparison.store import params_texts
from qneurons.provenance import versions
from qneurons.report.claims import Claim, Verdict
from qneurons.report.contrasts import Contrast
from qneurons.report.figures import (
    INK,
    LOOK,
    PALE,
    Curve,
    Style,
    draw_panel,
    label_ends,
    new_figure,
    setting_styles,
)
from qneurons.report.final_values import Metric
from qneurons.report.inference import estimate
from qneurons.report.legend import Meaning, legend, meaning
from qneurons.report.page import Head, write_page
from qneurons.report.rendering import (
    NONE,
    Table,
    difference_texts,
    estimate_text,
    listed,
    p_text,
)
from qneurons.report.sections import Drawing, Section
from qneurons.study.runs import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FAR = 10  # times what the middle arm spans, of two the steadier one
EVALUATION = (
    "q-activations are evaluated in the limit, unless the training converts with another eval_mode."
)
RULE = (
    "Settings are compared with base seed by seed. The value of a trial is its mean over the last "
    "tenth of its epochs. A setting helps if p ≤ 0.05 in the exact sign-flip test (in the paired t "
    "test with very few or many seeds) after Holm's correction over all settings, and no more of "
    "its trials diverge. If one of a pair of trials diverged, p is of the sign test, in which that "
    "trial loses. p holds for the number of seeds that was fixed before anybody looked."
)


def gain_table(rows: Sequence[Row], when: str = "") -> Table:
    """Every arm: its value, its gain over base with interval and p, its costs."""
    base, family = rows[0], len(rows) - 1
    metric = base.final.metric
    better = direction(metric).capitalize()
    unit = " in %, gains in points" if metric.percent else ""
    has_params = any(row.params for row in rows)
    has_peaks = any(row.peak_bytes for row in rows)
    columns = ("setting", *(("parameters",) * has_params), "seeds", metric.title, "difference")
    columns += ("95 % interval", "p", "p (Holm)", "verdict", "more seeds", "s per epoch")
    columns += ("peak memory",) * has_peaks
    body = []
    for row in rows:
        contrast = row.contrast
        diverged = f" ({len(row.final.diverged)} diverged)" if row.final.diverged else ""
        texts = (row.arm.name, *((row.params,) * has_params), str(row.final.estimate.n))
        texts += (estimate_text(row.final.estimate, metric) + diverged,)
        if contrast is None:
            texts += (NONE,) * 6
        else:
            texts += (*difference_texts(contrast.difference, metric), p_text(contrast.p))
            texts += (p_text(contrast.p_holm), contrast.outcome, _more_text(contrast, family))
        texts += (_cost(row.seconds, base.seconds, "{:.3g}"),)
        if has_peaks:
            peak, base_peak = ((r.peak_bytes or 0) / 2**20 for r in (row, base))
            texts += (_cost(peak, base_peak, "{:.0f} MiB"),)
        body.append(texts)
    note = (
        f"{better} is better. Mean ± half of the 95 % t-interval over seeds; "
        "differences from base are paired by seed. More seeds: so many more would show a "
        "difference of this size in four of five repetitions. In parentheses: cost against base."
    )
    return Table(f"{metric.title.capitalize()}{unit}{when}", columns, tuple(body), note)


def _more_text(contrast: Contrast, family: int) -> str:
    if contrast.outcome != "unclear" or not any(contrast.by_seed.values()) or contrast.gain.n < 2:
        return NONE
    more = more_seeds(contrast, family)
    return f"> {MOST_SEEDS:,}" if more is None else str(more)


def _cost(value: float, base: float, form: str) -> str:
    if not value > 0:
        return NONE
    ratio = f" (×{value / base:.2f})" if base > 0 else ""
    return form.format(value) + ratio


def grid_table(results: Results) -> Table:
    """Every arm at every point of the grid: the metric, and the one that chooses."""
    metric, chooser = results.metric, results.chooser
    assert chooser is not None
    body = []
    for arm in results.arms:
        for point, params in enumerate(results.grid):
            trials = results.trials_of(arm, point)
            values = [final_values(arm.name, trials, m).estimate for m in (chooser, metric)]
            texts = map(estimate_text, values, (chooser, metric))
            is_best = "best" * (point == results.best[arm])
            body.append((arm.name, ", ".join(params_texts(params)), *texts, is_best))
    columns = ("setting", "parameters", chooser.title, metric.title, f"by {chooser.title}")
    note = (
        f"The best is chosen by the mean of {chooser.title} over seeds ({direction(chooser)} is "
        f"better), never by {metric.title} ({direction(metric)} is better). "
        "Where settings are compared at their own best parameters, every seed takes those that are "
        f"best in its own {chooser.title}, so that the seeds stay independent."
    )
    return Table("All parameters", columns, tuple(body), note, num_heads=2)


def summary_lines(results: Results) -> list[str]:
    """The results so far, a line for each arm."""
    base, *rows = results.at_best()
    metric = base.final.metric
    value = estimate_text(base.final.estimate, metric)
    lines = [f"so far, {metric.title}: base {value} ({counted(base.final.estimate.n, 'seed')})"]
    for row in rows:
        if row.contrast is not None:
            texts = " ".join(difference_texts(row.contrast.difference, metric))
            gain = texts.removesuffix(f" {NONE}")  # one seed has no interval
            lines.append(f"  {row.arm.name}: {gain}, {prospect(row, len(rows))}")
    return lines


def far_below(rows: Sequence[Row]) -> list[str]:
    """Arms that would flatten all others in a figure, such as one that learns nothing."""
    contrasts = {row.arm.name: row.contrast for row in rows if row.contrast is not None}
    spans = [max(map(abs, c.gains_by_seed.values()), default=0.0) for c in contrasts.values()]
    most = FAR * statistics.median_low(spans or [0.0])
    return [name for name, c in contrasts.items() if -c.gain.mean > most > 0]


def gains_caption(rows: Sequence[Row], base: str = "base") -> str:
    text = f"Gain over {base}: mean over seeds with 95 % t-interval, and a dot for every seed."
    if far := far_below(rows):
        text += f" The loss of {listed(far)} is a number at the border, far below the others."
    return text


def draw_gains(rows: Sequence[Row], styles: Mapping[str, Style]) -> "Figure":
    """The gain of every arm over base, with its interval, and a dot for every seed."""
    import matplotlib

    rows = [row for row in rows if row.contrast is not None]
    metric = rows[0].final.metric
    scale = 100 if metric.percent else 1
    far = far_below(rows)
    with matplotlib.rc_context(LOOK):
        figure = new_figure(max(0.8 * len(rows) + 1.6, 3.8), 2.8)
        ax = figure.subplots()
        ax.axhline(0, color=INK, lw=0.8)
        ax.grid(axis="y", color=PALE, lw=0.5)
        ax.set_axisbelow(True)
        for x, row in enumerate(rows):
            assert row.contrast is not None
            gain, style = row.contrast.gain, styles[row.arm.name]
            if row.arm.name in far:
                text, at_border = f"−{-scale * gain.mean:.3g}", ax.get_xaxis_transform()
                ax.text(x, 0.03, text, transform=at_border, ha="center", color=style.colour)
                continue
            dots = [scale * value for value in row.contrast.gains_by_seed.values()]
            ax.plot([x + 0.15] * len(dots), dots, ".", ms=4, alpha=0.4, color=style.colour)
            half = scale * (gain.high - gain.mean) if gain.n > 1 else 0
            if gain.n:
                ax.errorbar(x, scale * gain.mean, half, fmt="o", ms=4, lw=1.4, color=style.colour)
        ax.set_xticks(range(len(rows)), [row.arm.name for row in rows], rotation=30)
        ax.set_xlim(-0.5, len(rows) - 0.5)
        ax.set_ylabel("gain over base" + ", points" * metric.percent)
        ax.set_title(metric.title)
    return figure


def curves_of(rows: Sequence[Row], metric: Metric) -> list[Curve]:
    """The mean over seeds by epoch, up to the last epoch that all trials of an arm have."""
    found = []
    for row in rows:
        runs = [
            trial.measured.metrics[metric.name]
            for trial in row.trials
            if not trial.measured.diverged
        ]
        means = [estimate(values) for values in zip(*runs, strict=False)]
        if means:
            numbers = ([getattr(mean, part) for mean in means] for part in ("mean", "low", "high"))
            epochs = range(1, len(means) + 1)
            found.append(Curve("", False, row.arm.name, metric.name, epochs, *numbers))
    return found


def draw_curves(
    rows: Sequence[Row], metrics: Sequence[Metric], styles: Mapping[str, Style]
) -> "Figure":
    """The learning curves of every metric, each in a panel."""
    import matplotlib
    from matplotlib.ticker import MaxNLocator

    with matplotlib.rc_context(LOOK):
        figure = new_figure(7.6, 2.4 * math.ceil(len(metrics) / 2) + 0.6)
        axes = list(figure.subplots(math.ceil(len(metrics) / 2), 2, squeeze=False).flat)
        for ax, metric in zip(axes, metrics, strict=False):
            curves, scale = curves_of(rows, metric), 100 if metric.percent else 1
            draw_panel(ax, curves, styles, scale)
            # The axis is fitted to the means without the worst tenth: the first epochs are far off.
            means = sorted((y for c in curves for y in c.middle), reverse=not metric.higher)
            if means:
                low, high = sorted((scale * means[len(means) // 10], scale * means[-1]))
                margin = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
                ax.set_ylim(low - margin, high + margin)
            label_ends(ax, curves, styles, scale)
            ax.set_title(metric.title + ", %" * metric.percent)
            ax.set_xlabel("epoch")
            ax.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
        for ax in axes[len(metrics) :]:
            ax.set_axis_off()
    return figure


def make_sections(
    results: Results,
    verdict: Answer,
    provenance: Sequence[Mapping[str, Any]],
    failed: Mapping[str, str],
) -> list[Section]:
    rows, common = results.at_best(), results.at_common()
    styles = setting_styles([arm.name for arm in results.arms])
    claim = Claim("answer", "Does it help this training?", RULE)
    has_grid = len(results.grid) > 1
    tables = [gain_table(rows, ", each setting at its own best parameters" * has_grid)]
    if has_grid:
        shared = ", ".join(params_texts(results.grid[results.best[results.arms[0]]]))
        tables += [gain_table(common, f", all settings at {shared}"), grid_table(results)]
    gains = Drawing("gains", gains_alt(rows), gains_caption(rows), draw_gains(rows, styles))
    caption = (
        "Means over seeds, smoothed over a tenth of the epochs (raw values are faint). The "
        "settings that end highest and lowest have their 95 % t-interval."
    )
    figure = draw_curves(rows, results.metrics, styles)
    titles = listed([metric.title for metric in results.metrics])
    arms = listed([arm.name for arm in results.arms])
    curves = Drawing("curves", f"Learning curves of {titles}, of {arms}.", caption, figure)
    settings = sorted({(t.spec.arm, t.setting) for t in results.trials if t.setting != t.spec.arm})
    facts: list[tuple[str, list[str]]] = [
        (f"{arm} is", [f'qn.convert(model, "{setting}")']) for arm, setting in settings
    ]
    for name in ("device", "torch", "python", "qneurons", "commit", "command"):
        facts.append((name, sorted({str(content.get(name, "")) for content in provenance})))
    codes = Counter(trial.code for trial in results.trials)
    facts.append(
        ("code of the training", [f"{code} ({counted(n, 'trial')})" for code, n in codes.items()])
    )
    facts.append(("failed trials", [*failed.values()] or ["none"]))
    made = ", ".join(f"{k} {v}" for k, v in versions().items() if k != "triton")
    others = [gain_table(results.at_best(metric)) for metric in results.metrics[1:]]
    return [
        Section("gains", "Gains", figures=[gains], tables=tables),
        Section(
            "answer", "The answer", verdicts=[Verdict(claim, verdict.word, (), verdict.advice)]
        ),
        Section("learning-curves", "Learning curves", figures=[curves]),
        *([Section("metrics", "Other metrics", tables=others)] if others else []),
        Section("provenance", "Provenance", facts=[*facts, ("report made with", [made])]),
    ]


def write_comparison(
    folder: Path,
    name: str,
    results: Results,
    provenance: Sequence[Mapping[str, Any]],
    failed: Mapping[str, str],
    num_planned: int,
) -> Path:
    """Writes report.html, report.md and the figures; returns the path of the page."""
    diverged = sum(trial.measured.diverged for trial in results.trials)
    counts = [("trials", num_planned), ("finished", len(results.trials))]
    counts += [(w, n) for w, n in (("diverged", diverged), ("failed", len(failed))) if n]
    verdict = answer(results)
    legend_text = f"{legend({arm.name: meaning_of(arm) for arm in results.arms})}. {EVALUATION}"
    finished = f"{len(results.trials):,} of {num_planned:,} trials are finished."
    head = Head(
        f"{name}: q-activations against {BASE}",
        f"{verdict.sentence} {finished}",
        counts,
        f"{legend_text[0].upper()}{legend_text[1:]}",
    )
    *_, page = write_page(folder, head, make_sections(results, verdict, provenance, failed))
    return page


def meaning_of(arm: Arm) -> Meaning:
    """What the setting does to the model."""
    if arm.name == BASE:
        return "the model as it is, with its own activation f", ""
    if arm.name in rivals():
        return "the model with the plain activation of that name", ""
    words, filling = meaning(arm.name)
    if arm.unfitted is not None:
        words += " over the epochs of the training"
    return f"the model with {words}", filling


def gains_alt(rows: Sequence[Row]) -> str:
    """What the figure of the gains shows, in words."""
    compared = [row.contrast for row in rows if row.contrast is not None]
    metric = compared[0].metric
    gains = (f"{c.setting} {' '.join(difference_texts(c.gain, metric))}" for c in compared)
    unit = ", in points" * metric.percent
    return f"Gain in {metric.title} over base with its 95 % interval{unit}: {'; '.join(gains)}."
