"""All of RESULTS.md: its tables are made from the rows, and every section has a test."""

import re
import tarfile
from collections import Counter
from pathlib import Path

import polars as pl

from qneurons.study.spec import load_study
from qneurons.study.store import Store
from tests.report.published.pages import (
    NAMES,
    OPENING,
    ROOT,
    check_section,
    plain,
    results_sections,
)
from tests.study import pretend


def test_every_table_is_computed_from_the_rows(publish, questions, frame, study):
    page = (ROOT / "RESULTS.md").read_text()
    tables = publish.generated(frame, study) | questions.generated()
    for mark, text in tables.items():
        part = page.partition(f"<!-- {mark} -->\n")[2].partition(f"\n<!-- /{mark} -->")[0]
        if mark == "provenance":  # its last line is of the machine that wrote it
            part, text = (lines.rpartition("\n")[0] for lines in (part, text))
        assert part == text, mark


def test_every_section_is_held_against_the_rows():
    sources = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    tested = {*re.findall(r'check_section\(\s*"([^"]+)"', sources), OPENING}
    with_numbers = {title for title, text in results_sections().items() if re.search(r"\d", text)}
    assert with_numbers <= tested


def test_the_numbers_on_what_was_trained(results, study):
    settings, seeds = ({getattr(run, name) for run in study.runs} for name in ("setting", "seed"))
    cells = Counter(network for _, network, *_ in {run.cell for run in study.runs})
    there = Counter(cell.network for cell in results.cells)
    check_section(
        "What was trained",
        [
            f"trained in {len(settings)} settings with {len(seeds)} seeds, for {study.epochs} "
            "epochs",
            *(f"{network}: {there[network]} of {total} cells" for network, total in cells.items()),
        ],
    )
    check_section("Claim by claim", ["with 95 % intervals over seeds and over cells"])
    check_section("Time on the device", ["CIFAR-10"])
    check_section("Provenance", ["6eb0707-dirty", "4209449", "7a503e6"])


def test_the_whole_cells_are_those_that_the_page_names(results):
    text = results_sections()["What was trained"]
    for network in ("mnist-cnn", "cifar-cnn"):
        names = {dropout: [] for dropout in (False, True)}
        for cell in results.cells:
            if cell.network == network:
                names[cell.dropout].append(NAMES.get(cell.activation, cell.activation))
        free, dropped = (f"{', '.join(others)} and {last}" for *others, last in names.values())
        assert f"cells ({free} without dropout; {dropped} with dropout)" in text


def test_an_archive_has_the_store_without_the_folders_of_its_commands(publish, tmp_path):
    commands = ["qneurons study run x --store /a/b --data-dir=../c/d", "qneurons study run x"]
    store = Store.open(tmp_path / "own", create=True)
    origins = [store.begin({**pretend.ORIGIN, "command": command}) for command in commands]
    for seed, origin in enumerate(origins):
        runs = pretend.runs(1, seed=seed)
        store.commit(runs, pretend.epochs(runs, 1, 2), provenance=origin, state=None, epoch=2)
    publish.pack_stores(tmp_path / "packed.tar.xz", {"packed": tmp_path / "own"})
    with tarfile.open(tmp_path / "packed.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    packed = Store.open(tmp_path / "packed", readonly=True)
    assert packed.frame().drop("command").equals(store.frame().drop("command"))
    short = "qneurons study run x --store b --data-dir=d"
    assert [packed.origin(id)["command"] for id in packed.runs()] == [short, commands[1]]


def test_only_cells_in_which_every_run_has_ended_are_published(publish):
    study = load_study("paper-mnist-mlp")
    whole, short, missing = list(dict.fromkeys(run.cell for run in study.runs))[:3]
    ids = {cell: [r.id for r in study.runs if r.cell == cell] for cell in (whole, short, missing)}
    stopped, gone = ids[short][-1], ids[missing][0]
    rows = [
        {"run": run, "epoch": epoch, "diverged": False}
        for runs in ids.values()
        for run in runs
        for epoch in (1, 50, study.epochs)
        if run != gone and (run, epoch) != (stopped, study.epochs)
    ]
    found = publish.whole_cells(pl.DataFrame(rows), study)
    assert set(found["run"]) == set(ids[whole])
    assert len(found) == 3 * len(ids[whole])
    diverged = [{**row, "diverged": (row["run"], row["epoch"]) == (stopped, 50)} for row in rows]
    found = publish.whole_cells(pl.DataFrame(diverged), study)
    assert set(found["run"]) == {*ids[whole], *ids[short]}


def test_settings_share_the_spikes_that_the_page_on_the_study_names(frame):
    page = plain((ROOT / "docs" / "study.md").read_text())
    times = int(re.search(r"jumps to at least (\d+) times its level", page)[1])
    relu = frame.filter(dataset="mnist", activation="relu", dropout=False)
    places = [map(int, found) for found in re.findall(r"epoch (\d+) with seed (\d+)", page)]
    assert len(places) == 2
    for epoch, seed in places:
        late = relu.filter(pl.col("epoch") > 80, pl.col("train_loss").is_not_nan(), seed=seed)
        level = pl.col("train_loss").median().over("network", "setting")
        spikes = late.with_columns(pl.col("train_loss") / level).filter(epoch=epoch)
        assert spikes["setting"].n_unique() == 7
        assert spikes["train_loss"].min() >= times
