"""The pages: drawings that are up to date, files that exist, links that lead somewhere."""

import importlib.util
import re
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path

import pytest

from qneurons import __version__, convert

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "RESULTS.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGE = ROOT / "docs" / "architecture.md"


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def drawing():
    return script("draw_architecture")


def test_the_drawing_of_the_rooms_is_up_to_date(drawing):
    assert PAGE.read_text() == drawing.drawn(PAGE.read_text()), "run docs/draw_architecture.py"


def test_every_room_is_drawn_and_in_the_table(drawing):
    table = re.findall(r"^\| `([\w.]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert sorted(table) == sorted(drawing.graph())


def test_what_follows_from_other_imports_is_not_drawn(drawing):
    edges = drawing.graph()
    assert "study.store" in edges["study.execution"]
    assert "study.store" not in edges["cli"]


def test_the_walks_lead_through_files_that_exist():
    files = re.findall(r"`([\w/]+\.(?:py|c))`", PAGE.read_text().partition("## Three walks")[2])
    assert len(files) > 30
    for file in files:
        assert (ROOT / "src" / "qneurons" / file).exists(), file


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_line_of_a_paragraph_begins_a_list(page):
    """As "1. Then" or "- b" do if a paragraph is broken before them."""
    markdown = pytest.importorskip("markdown_it").MarkdownIt()
    text = page.read_text()
    lines, tokens = text.splitlines(), markdown.parse(text)
    for before, token in pairwise(tokens):
        if before.type == "paragraph_close" and token.type.endswith("_list_open"):
            first = token.map[0]
            assert token.level or not lines[first - 1], f"line {first + 1}: {lines[first]}"


def coordinates(svg):
    """The numbers of the lines and draws that have a name, by name."""
    groups = {group.get("id"): group for group in ET.fromstring(svg).iter() if group.get("id")}
    named = {name: groups[name] for name in ("f", "limit", "mean", "draws")}
    paths = {
        name: " ".join(e.get(key, "") for e in group.iter() for key in ("d", "x", "y"))
        for name, group in named.items()
    }
    return {name: [*map(float, re.findall(r"-?[\d.]+", text))] for name, text in paths.items()}


def test_the_picture_of_a_q_activation_is_up_to_date_and_the_readme_shows_it_light_and_dark():
    pytest.importorskip("matplotlib")
    pytest.importorskip("polars")
    figures = pytest.importorskip("qneurons.report.figures")
    files = figures.theme_svgs(script("draw_q_activation").draw(), "q-activation")
    for name, content in files.items():
        published = (ROOT / "docs" / name).read_bytes()
        assert len(published) < 150_000
        drawn, found = coordinates(content), coordinates(published)
        for line, numbers in drawn.items():
            assert len(numbers) > 50
            assert found[line] == pytest.approx(numbers, abs=0.15), "run docs/draw_q_activation.py"
    light, dark = (content.decode() for content in files.values())
    for colour in (figures.INK, figures.F_COLOUR, figures.LIMIT_COLOUR):
        assert colour in light
        assert colour not in dark
        assert figures.ON_DARK[colour] in dark
    picture = re.search(r"<picture>.*?</picture>", (ROOT / "README.md").read_text(), re.DOTALL)[0]
    assert re.findall(r'(?:src|srcset)="docs/(.*?)"', picture) == [*files][::-1]
    assert '(prefers-color-scheme: dark)" srcset="docs/q-activation-dark.svg"' in picture


def anchors(page: Path) -> set[str]:
    text = page.read_text()
    titles = re.findall(r"^#+ (.*)", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
    return slugs | set(re.findall(r'<a id="(.*?)">', text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        name, _, anchor = target.partition("#")
        if "://" in target:
            continue
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_figure_is_for_light_and_for_dark_pages(page):
    text = page.read_text()
    for picture in re.findall(r"<picture>.*?</picture>", text, re.DOTALL):
        dark, light = re.findall(r' src(?:set)?="(.*?)\.svg"', picture)
        assert dark == f"{light}-dark"
        assert all((page.parent / f"{stem}.svg").exists() for stem in (dark, light))
    for image in re.findall(r"!\[.*?\]\((.*?)\)", text):
        assert image.startswith("screenshot-"), f"{image}: write <picture> with a dark file"


def test_every_page_is_in_the_contents_of_the_site():
    contents = (ROOT / "docs" / "index.md").read_text().partition("{toctree}")[2]
    listed = re.findall(r"^[\w-]+$", contents, re.MULTILINE)
    pages = {path.stem for path in (ROOT / "docs").iterdir() if path.suffix in (".md", ".rst")}
    assert sorted(listed) == sorted(pages - {"index"})


def test_the_version_to_cite_is_the_version_of_the_package():
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"version = {{{__version__}}}" in (ROOT / "docs" / "citing.md").read_text()


def test_the_numbers_on_pretrained_weights_are_those_that_were_measured():
    measured = (ROOT / "benchmarks" / "results" / "pretrained.md").read_text()
    page = (ROOT / "docs" / "training-and-evaluation.md").read_text()
    assert f"<!-- pretrained -->\n{measured}<!-- /pretrained -->" in page
    ((before, after),) = re.findall(r"fell from ([\d.]+) to ([\d.]+) %", convert.__doc__)
    plain, converted = re.findall(r"^\| softplus \| .*? \| ([\d.]+) ", measured, re.MULTILINE)[:2]
    assert (before, after) == (plain, converted)


def test_the_glossary_is_in_alphabetical_order_and_every_term_has_an_anchor():
    text = (ROOT / "docs" / "glossary.md").read_text()
    terms = re.findall(r'^<a id=".*?"></a>\n\*\*(.*?)[.,]', text, re.MULTILINE)
    assert len(terms) == len(re.findall(r"^\*\*", text, re.MULTILINE)) > 20
    greek = {"δ": "delta", "λ": "lambda", "φ": "phi"}
    spoken = [greek.get(term[0], term).lower() for term in terms]
    assert spoken == sorted(spoken)
