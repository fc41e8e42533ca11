"""The report: whole, self-contained, honest about what is missing."""

import itertools
import os
import re
from collections import Counter
from html import unescape
from html.parser import HTMLParser

import pytest

pl = pytest.importorskip("polars")
pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")
pytest.importorskip("scipy")


from qneurons.report import final_values, page, rendering, sections, tables
from qneurons.report.claims import paper
from qneurons.report.figures import neurons
from qneurons.report.gains import gains_table
from qneurons.report.headline import answer
from qneurons.report.page import write_report
from qneurons.report.rendering import number_text
from qneurons.report.results import Results
from qneurons.study.errors import StudyError
from qneurons.study.runs import Run, Study

SMALL = {"seeds": 3, "epochs": 3, "settings": ("base", "limit", "c0.1", "a1")}


@pytest.fixture(scope="module")
def frame(make_frame):
    cells = [("mnist", "mnist-mlp", False, name) for name in ("elu", "tanh")]
    return make_frame(**SMALL, cells=cells, gain=0.004, loss_gain=0.01)


@pytest.fixture(scope="module")
def report(frame, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        fine = neurons.neuron_law
        patch.setattr(neurons, "neuron_law", lambda *args: fine(*args, columns=13))
        return folder, write_report(frame, folder)


@pytest.fixture
def quick(monkeypatch):
    """Leaves out what does not hang on the data, and the files that the page does not show."""
    monkeypatch.setattr(sections, "draw_neurons", lambda results: [])
    monkeypatch.setattr(
        page,
        "figure_files",
        lambda figure, name, formats: {f"{name}.svg": b"", f"{name}-dark.svg": b""},
    )


@pytest.fixture(scope="module")
def html(report):
    return (report[0] / "report.html").read_text(encoding="utf-8")


class Page(HTMLParser):
    """Collects what a browser would fetch, text, headings, tables and whether tags match."""

    VOID = frozenset({"meta", "link", "br", "img", "path", "use", "image", "rect"})

    def __init__(self, html):
        super().__init__()
        self.addresses, self.words, self.headings, self.ids, self.open = [], [], [], [], []
        self.tables, self.cells, self.regions, self.alts = [], [], [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.addresses += [(tag, attrs[k]) for k in ("src", "href", "srcset", "data") if k in attrs]
        self.ids += [attrs["id"]] if "id" in attrs else []
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("th", "td"):
            self.tables[-1][-1].append("")
            self.cells.append((len(self.tables) - 1, tag, attrs))
        if attrs.get("role") == "img":
            self.alts.append(attrs["aria-label"])
        if "scroll" in attrs.get("class", "").split():
            self.regions.append(attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)
        if self.open[-1:] in (["th"], ["td"]):
            self.tables[-1][-1][-1] += data

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.words))


def squeezed(text):
    return re.sub(r"\s+", " ", text).strip()


def test_the_files_are_there_and_the_page_comes_last(report):
    folder, paths = report
    assert {path.name for path in folder.iterdir()} == {path.name for path in paths}
    assert paths[-1].name == "report.html"
    names = {path.name for path in paths}
    stems = ("gains", "curves-mnist-mlp-mnist", "law-of-q", "density")
    assert names == {"report.html", "report.md"} | {
        f"{s}{end}" for s in stems for end in (".svg", "-dark.svg", ".png", ".pdf")
    }


def test_nothing_is_fetched(html):
    found = Page(html)
    assert found.open == []
    assert found.addresses
    for tag, address in found.addresses:
        assert address.startswith("#") or tag == "a", (tag, address[:80])
    assert not re.search(r"@import|url\((?!#)|<script|<link|<iframe", html)
    assert not re.search(r"""(src|href|srcset)=["']?\s*(https?:)?//""", html)


@pytest.fixture
def no_figures(monkeypatch):
    for name in ("draw_gains_over_base", "draw_learning_curves", "draw_neurons"):
        monkeypatch.setattr(sections, name, lambda *args: [])


def linked_files(folder):
    found = Page((folder / "report.html").read_text(encoding="utf-8"))
    markdown = (folder / "report.md").read_text(encoding="utf-8")
    links = {address for _, address in found.addresses if not address.startswith("#")}
    return links | {*re.findall(r' (?:src|srcset)="(.+?)"', markdown)}


def test_links_are_to_files_that_exist(frame, report, tmp_path, quick, monkeypatch):
    folder, paths = report
    reports = {"report.html", "report.md"}
    assert linked_files(folder) == {path.name for path in paths} - reports
    monkeypatch.setattr(page, "to_svg", lambda figure, name: "")
    paths = write_report(frame, tmp_path, formats=())
    assert linked_files(tmp_path) == {path.name for path in paths} - reports


def test_the_answer_is_the_first_sentence(frame, report, html):
    sentence = answer(Results(frame))
    assert sentence.startswith(
        "a1 helps most: it beats base in 2 of 2 cells, by +0.40 to +0.42 points"
    )
    text = Page(html[html.index("<header>") : html.index("</header>")]).text
    assert text.index(squeezed(sentence)) < text.index("runs 24")
    markdown = (report[0] / "report.md").read_text(encoding="utf-8")
    assert markdown.splitlines()[2] == f"**{sentence}**"


def test_the_legend_names_only_settings_that_are_there(
    make_frame, digits_cells, tmp_path, no_figures
):
    for settings, is_evaluated in ((("base", "limit"), False), (("base", "c0.3", "a2@0.25"), True)):
        write_report(
            make_frame(**SMALL | {"settings": settings, "cells": digits_cells[:1]}), tmp_path
        )
        html = (tmp_path / "report.html").read_text(encoding="utf-8")
        header = Page(html[html.index("<header>") : html.index("</header>")]).text
        told, _, evaluation = header.partition("compared:")[2].partition(
            " q-activations are evaluated"
        )
        candidates = (*SMALL["settings"], "c0.3", "a2@0.25", "m1", "n0.001")
        assert {name for name in candidates if re.search(rf"\b{name}\b", told)} == {*settings}
        assert bool(evaluation) == is_evaluated


def test_every_figure_says_what_it_shows(frame, report, html):
    gains, curves, law, density = Page(html).alts
    results = Results(frame)
    assert gains.startswith(
        "Gains over base of limit, c0.1 and a1 in 2 cells: 4 better, 0 worse and 2"
    )
    high = max(
        row.gain.mean for row in results.contrasts["test_accuracy"] if row.reference == "base"
    )
    assert f"to {100 * high:+.2f} (" in gains
    tops = [
        max((results.final(cell, s) for s in results.settings(cell)), key=lambda f: f.estimate.mean)
        for cell in results.cells
    ]
    for top in tops:
        told = f"{top.cell.activation} without dropout: {top.setting} at"
        assert f"{told} {100 * top.estimate.mean:.2f} % and lowest" in curves
    assert "λ = 0.1 and 1" in law
    assert "q-elu and q-tanh" in density
    markdown = (report[0] / "report.md").read_text(encoding="utf-8")
    assert f'<img src="gains.svg" alt="{gains}">' in markdown


def test_rows_have_names_and_numbers_are_on_the_right(frame, html):
    found = Page(html)
    made = Results(frame)
    table = gains_table(made)
    (index,) = (i for i, rows in enumerate(found.tables) if rows[0] == list(table.columns))
    cells = [(tag, attrs) for i, tag, attrs in found.cells if i == index]
    head, row = cells[: len(table.columns)], cells[len(table.columns) : 2 * len(table.columns)]
    assert [attrs["scope"] for _, attrs in head] == ["col"] * len(head)
    assert [(tag, attrs.get("scope")) for tag, attrs in row] == [
        ("th", "row"),
        *[("td", None)] * (len(row) - 1),
    ]
    for line in (head, row):
        is_right = ["number" in attrs.get("class", "").split() for _, attrs in line]
        assert is_right == [False, *[True] * (len(row) - 1)]
    for i, rows in enumerate(found.tables):
        assert [attrs.get("scope") for k, _, attrs in found.cells if k == i].count("row") >= len(
            rows
        ) - 1


def test_claims_that_are_not_decided_are_folded_with_a_bar(
    make_frame, paper_cells, tmp_path, no_figures
):
    frame = make_frame(epochs=100, every=50, cells=paper_cells[:8], gain=-0.01, loss_gain=-0.02)
    write_report(frame, tmp_path)
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    verdicts = {v.claim.statement: v for v in paper.judge(Results(frame))}
    shown = re.findall(
        r'<details class="verdict \w+"( open)?>\s*<summary><h3>(.*?)</h3>(.*?)</summary>',
        html,
        re.DOTALL,
    )
    assert len(shown) == len(verdicts)
    states = []
    for is_open, statement, rest in shown:
        verdict = verdicts[unescape(statement)]
        states.append(bool(is_open))
        assert bool(is_open) == (not verdict.is_undecided)
        for cases in verdict.cases.values():
            bar = "".join(f'<i class="{name}" style="flex: {n}"></i>' for name, n in cases.items())
            assert bar in rest
            assert all(f"{n} {name}" in rest for name, n in cases.items())
        assert verdict.cases or not verdict.is_undecided or verdict.claim.id == "noise-or-limit"
    assert states[:-1] == sorted(states[:-1], reverse=True)  # decided claims come first
    assert {*states[:-1]} == {True, False}


def test_ids_are_unique_and_the_contents_point_at_them(html):
    found = Page(html)
    assert len(set(found.ids)) == len(found.ids)
    inner = {address[1:] for _, address in found.addresses if address.startswith("#")}
    assert inner <= set(found.ids)
    assert {
        "verdicts",
        "noise-or-limit",
        "gains",
        "learning-curves",
        "tables",
        "provenance",
    } <= inner


def test_headings_go_down_one_level_at_a_time(html):
    levels = Page(html).headings
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_every_verdict_is_in_the_page_and_in_the_markdown(frame, report, html):
    text = Page(html).text
    markdown = (report[0] / "report.md").read_text(encoding="utf-8")
    verdicts = paper.judge(Results(frame))
    assert len(verdicts) >= 9
    for verdict in verdicts:
        for part in (verdict.claim.statement, verdict.answer, *verdict.graded, verdict.reason):
            assert squeezed(part) in text
            assert part in markdown
        for number in verdict.numbers:
            assert squeezed(number_text(number)) in text
            assert number_text(number) in markdown
    assert html.count('class="verdict ') == len(verdicts)


def test_every_table_is_in_the_page_and_in_the_markdown(frame, report, html):
    markdown = (report[0] / "report.md").read_text(encoding="utf-8")
    made = Results(frame)
    found = [*sections.main_tables(made), gains_table(made)]
    found += [tables.attribution_table(made), tables.decomposition_table(made)]
    counts = tables.count_runs(made.states)
    found.append(tables.accounting_table(counts, made.finals["test_accuracy"]))
    for table in found:
        assert table.rows
        assert [list(row) for row in (table.columns, *table.rows)] in Page(html).tables
        assert rendering.to_markdown(table) in markdown
        assert table.title in Page(html).text


def test_both_schemes_and_narrow_screens_are_provided_for(html):
    assert "prefers-color-scheme: dark" in html
    assert 'name="viewport"' in html
    found = Page(html)
    assert len(found.regions) == len(found.tables) + len(found.alts)
    assert all(region["tabindex"] == "0" and region["aria-label"] for region in found.regions)
    assert "max-width: 600px" in html
    parts = html[html.index('class="scroll figure parts"') :]
    assert parts[: parts.index("</figure>")].count("<svg") == 2  # a column of its own for each
    defined = set(re.findall(r"(--[\w-]+):", html))
    assert set(re.findall(r"var\((--[\w-]+)\)", html)) <= defined


def test_provenance_is_told(html):
    for word in ("fp32", "2.13.0", "0123abcd", "cpu"):
        assert word in Page(html).text


def study_of(frame, learning_rate=0.05, **changes):
    keys = ("dataset", "network", "dropout", "activation", "setting", "seed")
    runs = [
        Run(**row, batch_size=64, learning_rate=learning_rate)
        for row in frame.select(keys).unique(maintain_order=True).iter_rows(named=True)
    ]
    return Study(
        **{"name": "mine", "title": "My <study>", "epochs": 3, "runs": tuple(runs)} | changes
    )


def with_ids(frame, study):
    keys = ("dataset", "network", "dropout", "activation", "setting", "seed")
    ids = {tuple(getattr(run, key) for key in keys): run.id for run in study.runs}
    return frame.with_columns(run=pl.Series([ids[row] for row in frame.select(keys).iter_rows()]))


def test_a_study_says_what_is_expected_and_what_is_missing(frame, tmp_path, quick):
    study = study_of(frame)
    begun = with_ids(frame, study).filter(pl.col("seed") != 2)
    write_report(begun, tmp_path, study=study)
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "My &lt;study&gt;" in html
    assert "My <study>" not in html
    assert "runs 24 compared at epoch 3 16 not begun 8 " in Page(html).text


def test_an_unfinished_study_is_told_of_at_one_epoch_throughout(frame, tmp_path, quick):
    study = study_of(frame, epochs=100)
    write_report(with_ids(frame, study), tmp_path, study=study)
    text = Page((tmp_path / "report.html").read_text(encoding="utf-8")).text
    assert "runs 24 compared at epoch 3 of 100 24" in text
    assert "Test accuracy (%) at epoch 3" in text
    assert "Settings are compared at epoch 3;" in text
    assert "finished" not in text


def test_two_protocols_are_named_and_a_study_chooses_between_them(frame, tmp_path, quick):
    studies = [study_of(frame), study_of(frame, learning_rate=0.1)]
    other = frame.with_columns(pl.col("test_accuracy") - 0.5, protocol=pl.lit("learning rate 0.1"))
    both = pl.concat([with_ids(frame, studies[0]), with_ids(other, studies[1])])
    write_report(both, tmp_path)
    for name in ("report.html", "report.md"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert "learning rate 0.1" in text
        assert "98." in text
        assert "48." in text
    assert {path.name for path in tmp_path.glob("curves-*-dark.svg")} == {
        "curves-mnist-mlp-mnist-dark.svg",
        "curves-mnist-mlp-mnist-learning-rate-0.1-dark.svg",
    }
    for study, start in zip(studies, ("98.", "48."), strict=True):
        write_report(both, tmp_path, study=study)
        assert f'<td class="number">{start}' in (tmp_path / "report.html").read_text(
            encoding="utf-8"
        )


def test_every_statistic_is_computed_once(frame, tmp_path, quick, monkeypatch):
    calls = []

    def count(module, name):
        compute = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *args, **options: calls.append(name) or compute(*args, **options)
        )

    for name in ("run_states", "compared_rows", "curves", "finals"):
        count(final_values, name)
    count(sections, "judge")
    write_report(frame, tmp_path)
    by_metric = dict.fromkeys(("compared_rows", "curves", "finals"), len(final_values.METRICS))
    by_metric["curves"] += 1  # of the gains
    assert Counter(calls) == {"run_states": 1, **by_metric, "judge": 1}


def test_a_study_that_is_not_the_papers_does_not_list_its_claims(make_frame, tmp_path, quick):
    write_report(make_frame(**SMALL), tmp_path)
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert 'id="noise-or-limit"' in html
    assert 'id="verdicts"' not in html
    assert "claims of the paper" not in html + (tmp_path / "report.md").read_text(encoding="utf-8")


def test_the_page_names_the_mode_of_evaluation(html):
    assert html.count("eval_mode “sample”") >= 3  # at the top, and below tables


def test_the_order_is_answer_claims_curves_tables_provenance(report, html):
    order = ["gains", "verdicts", "noise-or-limit", "learning-curves", "tables", "q-activations"]
    assert re.findall(r'<section id="([\w-]+)">', html) == [*order, "provenance"]
    titles = re.findall("^## (.*)", (report[0] / "report.md").read_text("utf-8"), re.MULTILINE)
    assert titles[:4] == ["Gains", "The paper's claims", "Noise or limit?", "Learning curves"]


def test_a_study_reports_its_own_runs_only(frame, tmp_path, quick):
    study = study_of(frame.filter(pl.col("activation") == "elu"))
    mixed = with_ids(frame.filter(pl.col("activation") == "elu"), study)
    mixed = pl.concat([mixed, frame.filter(pl.col("activation") == "tanh")])
    write_report(mixed, tmp_path, study=study)
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "elu, without dropout" in html
    assert "tanh, without dropout" not in html


def test_names_are_escaped(make_frame, tmp_path, quick):
    cells = (("<b>set", "net/<i>work", False, "<script>x</script>"),)
    write_report(make_frame(cells=cells, **SMALL), tmp_path)
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    for tag in ("<b>", "<i>", "<script"):
        assert tag not in html
    assert "&lt;script&gt;" in html
    assert not any("/" in path.name or "<" in path.name for path in tmp_path.iterdir())


@pytest.mark.parametrize(
    "odd",
    [
        {"seeds": 1},
        {"epochs": 1},
        {"seeds": 1, "epochs": 1, "settings": ("base",)},
        {"settings": ("c0.1",)},
        {"settings": ("base", "c0.3", "a2@0.25", "n0.001")},
        {"diverged": {("a1", 0): 2}},
        {"diverged": {("a1", s): 1 for s in range(3)}},
        {"diverged": {(k, s): 1 for k in SMALL["settings"] for s in range(3)}},
        {"incomplete": {("base", 1): 1, ("c0.1", 0): 2}},
    ],
    ids=str,
)
def test_odd_data_make_a_report(make_frame, digits_cells, tmp_path, quick, odd):
    write_report(make_frame(**SMALL | {"cells": digits_cells[:1]} | odd), tmp_path)
    found = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert found.open == []
    assert not re.search(r"\bnan\b", found.text)


def test_without_a_study_nothing_is_expected(frame):
    counts = page.summary(tables.count_runs(Results(frame).states), "at epoch 3")
    assert counts == [("runs", 24), ("compared at epoch 3", 24)]


def test_without_a_finished_run_the_page_says_so(make_frame, digits_cells, tmp_path, quick):
    dead = {(setting, seed): 1 for setting in SMALL["settings"] for seed in range(3)}
    write_report(make_frame(**SMALL, cells=digits_cells[:1], diverged=dead), tmp_path)
    text = Page((tmp_path / "report.html").read_text(encoding="utf-8")).text
    assert "No run reached" in text
    assert "diverged 12" in text


def test_an_empty_store_is_one_line(frame, tmp_path):
    with pytest.raises(StudyError, match=r"nothing to report.*run the study"):
        write_report(frame.clear(), tmp_path / "new")
    with pytest.raises(StudyError, match=r"study 'mine'.*run the study"):
        write_report(frame, tmp_path / "new", study=study_of(frame))
    assert not (tmp_path / "new").exists()


def test_a_failing_disk_leaves_no_half_page(frame, tmp_path, quick, monkeypatch):
    replace, written = os.replace, []

    def fail_late(source, target):
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        written.append(target)
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail_late)
    with pytest.raises(StudyError, match="No space left"):
        write_report(frame, tmp_path)
    assert len(written) == 2
    assert not list(tmp_path.glob("report.*"))


def test_text_from_outside_is_shown_and_not_obeyed(make_frame, tmp_path, quick):
    name = "<script>x</script> [y](http://z) ![](http://z) &lt;"
    bad = f"{name}\x1b[2J\u202e"
    frame = make_frame(**SMALL, cells=[(name, name, False, "elu")])
    frame = frame.with_columns(command=pl.lit(bad + "\n\n# spoof"))
    study = study_of(frame, title=f"\n{bad}\n")
    write_report(with_ids(frame, study), tmp_path, study=study)
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    shown = "&lt;script>x&lt;/script> [y]&#40;http://z) ![]&#40;http://z) &amp;lt;"
    assert markdown.startswith(f"# {shown} [2J\n")
    assert markdown.count(shown) > 5
    pictures = r'<picture>\s+<source media="[^"<>]+" srcset="[\w.-]+">\s+'
    pictures += r'<img src="[\w.-]+" alt="[^"<>]+">\s+</picture>'
    markdown, count = re.subn(pictures, "", markdown)
    assert count == 2
    assert not re.search(r"<\w|</|\]\(http|\x1b|\u202e|^# spoof", markdown, flags=re.MULTILINE)
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script" not in html
    assert name in Page(html).text
