"""Draws the explorer: the page in docs/explorer with the published rows, as one file.

    python docs/draw_explorer.py

The page needs no server and no other file, so a browser can open it from a folder.
"""

import json
import math
import re
from pathlib import Path

import polars as pl
from scipy import special

from qneurons.quadrature import GAUSS_LEGENDRE
from qneurons.report.figures import (
    BANDS,
    F_COLOUR,
    INK,
    LIMIT_COLOUR,
    ON_DARK,
    PALE,
    setting_styles,
)
from qneurons.report.figures.densities import PHI
from qneurons.report.figures.gains import COLOURS
from qneurons.report.final_values import setting_order
from qneurons.report.gains import gains_over
from qneurons.report.inference import ALPHA
from qneurons.report.rendering import NONE
from qneurons.report.results import Results
from qneurons.report.tables import EVALUATION, learns_nothing
from qneurons.schedules import Constant, parse_schedule
from qneurons.study.spec import load_study

DOCS = Path(__file__).parent
PAGE, SOURCE = DOCS / "explorer.html", DOCS / "explorer"
ROWS = DOCS.parent / "results" / "paper" / "rows.parquet"
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
WITHOUT_SCHEDULE = {"base": "the plain activation f", "limit": "f'(x)x, without noise"}
NOW = "#007a58"  # the reader's x and q; no setting of the paper has this colour


def encode(accuracies):
    """The accuracies of a run as text: their steps in base64 VLQ, the format of source maps.

    An accuracy is its number of hundredths of a percent plus 1, and a missing one is 0.
    """
    text, last = "", 0
    for accuracy in accuracies:
        value = 0 if accuracy is None or math.isnan(accuracy) else round(1e4 * accuracy) + 1
        step, last = value - last, value
        bits = 2 * abs(step) + (step < 0)  # the lowest bit is the sign
        while bits >= 32:
            text += DIGITS[32 + bits % 32]
            bits //= 32
        text += DIGITS[bits]
    return text


def gain_data(results, cell, contrast, most):
    """A tile of the matrix: its text, and how strong its colour is."""
    gain = contrast.gain
    half = 100 * (gain.high - gain.mean)
    return {
        "text": NONE if math.isnan(gain.mean) else f"{100 * gain.mean:+.2f}".replace("-", "−"),
        "half": f"±{half:.2f}" if math.isfinite(half) else "",
        "size": round(min(1, abs(gain.mean) / most), 3) if most else 1,  # 1 if the gain is NaN
        "outcome": contrast.outcome,
        "idle": learns_nothing(results, cell, contrast.setting),
    }


def cell_data(results, cell, epochs):
    """The gains of a cell, and the test accuracy of every run in every epoch."""
    gains, base = gains_over(results, "base"), results.final(cell, "base")
    learned = (
        abs(row.gain.mean)
        for (other, setting), row in gains.items()
        if other.where == cell.where and results.learns(other, setting)
    )
    most = max(filter(math.isfinite, learned), default=0)
    rows = results.frame.filter(**cell._asdict())
    seeds = sorted(rows["seed"].unique())
    columns = rows.select("setting", "seed", "epoch", "test_accuracy")
    accuracy = {tuple(key): value for *key, value in columns.iter_rows()}

    def run(setting, seed):
        return encode(accuracy.get((setting, seed, 1 + k)) for k in range(epochs))

    settings = results.settings(cell)
    return cell._asdict() | {
        "first": base.first,
        "last": base.epoch,
        "base": f"{100 * base.estimate.mean:.2f}" if base.values else NONE,
        "seeds": seeds,
        "gains": {
            setting: gain_data(results, cell, gains[cell, setting], most)
            for setting in settings
            if setting != "base"
        },
        "runs": {setting: [run(setting, seed) for seed in seeds] for setting in settings},
    }


def setting_data(setting, style, epochs):
    """The name of a setting, what it means, its dash, and its λ by epoch, if it has one."""
    found = {"name": setting, "dash": style.dash}
    if setting in WITHOUT_SCHEDULE:
        return found | {"words": WITHOUT_SCHEDULE[setting]}
    schedule = parse_schedule(setting)
    kind = "constant" if isinstance(schedule, Constant) else "annealed from"
    lams = [float(f"{schedule(1 + k):.6g}") for k in range(epochs)]
    return found | {"words": f"{kind} λ = {lams[0]:g}", "lams": lams}


def data(frame, styles):
    """Everything that the page does not compute itself."""
    results = Results(frame)
    epochs, num_seeds = frame["epoch"].max(), frame["seed"].n_unique()
    cells = [cell_data(results, cell, epochs) for cell in results.cells]
    num_cells = len({run.cell for run in load_study("paper").runs})
    quantiles = special.stdtrit(range(1, num_seeds), 1 - ALPHA / 2)
    return {
        "gaussLegendre": GAUSS_LEGENDRE,
        "bands": BANDS,
        "phi": PHI,
        "epochs": epochs,
        "t": [None, None, *(round(t, 9) for t in quantiles)],  # by the number of seeds
        "settings": [setting_data(name, style, epochs) for name, style in styles.items()],
        "about": (
            f"{len(cells)} of the paper's {num_cells} cells are trained so far. A cell is a "
            "network with an activation f, with or without dropout. It is trained with every "
            f"setting and {num_seeds} seeds for {epochs} epochs. The final value of a run is its "
            f"mean over epochs {cells[0]['first']} to {cells[0]['last']}. {EVALUATION} The "
            "settings are:"
        ),
        "cells": cells,
    }


def colours(styles):
    """The colours of the figures by their role, on a light and on a dark page."""
    roles = {"ink": INK, "pale": PALE, "f": F_COLOUR, "limit": LIMIT_COLOUR, "now": NOW} | COLOURS
    roles |= {f"setting-{k}": style.colour for k, style in enumerate(styles.values())}
    lines = (f"  --{role}: light-dark({c}, {ON_DARK[c]});\n" for role, c in roles.items())
    return f":root {{\n{''.join(lines)}}}\n"


def page(frame):
    """The page with its styles, its scripts and its data."""
    styles = setting_styles(sorted(frame["setting"].unique(), key=setting_order))
    text = json.dumps(data(frame, styles), separators=(",", ":"), ensure_ascii=False)
    text = text.replace("<", r"\u003c").replace('{"dataset"', '\n{"dataset"')
    files = {path.name: path.read_text() for path in SOURCE.iterdir()}
    files |= {"data.js": f"const DATA = {text};\n", "colours.css": colours(styles)}
    html = files["index.html"]
    for pattern, tag in (
        (r'<link rel="stylesheet" href="(.+?)">', "style"),
        (r'<script src="(.+?)"></script>', "script"),
    ):
        html = re.sub(pattern, lambda found, tag=tag: f"<{tag}>\n{files[found[1]]}</{tag}>", html)
    return html


if __name__ == "__main__":
    PAGE.write_text(page(pl.read_parquet(ROWS)), encoding="utf-8")
