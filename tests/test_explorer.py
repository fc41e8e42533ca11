"""The explorer: its formulas against qn.moments, and its controls, in a headless Chromium."""

import itertools
import json
import re
from pathlib import Path

import pytest
import torch

import qneurons as qn
from qneurons import moments
from qneurons.activations import rows
from qneurons.schedules import parse_schedule
from tests.chromium import Browser, find_browser

pl = pytest.importorskip("polars")
for package in ("scipy", "matplotlib"):
    pytest.importorskip(package)

from qneurons.report.figures import BANDS, neuron_law
from qneurons.report.gains import gains_table
from qneurons.report.results import Results
from tests.test_docs import script

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "explorer.html"
NAMES = [row.name for row in rows()]
LAMS, PHIS, XS = (0.001, 0.1, 1.0, 10.0), (1e-3, 0.0, 0.3), (-4.0, -1.0, 0.0, 0.5, 1.0, 3.7)


@pytest.fixture(scope="module")
def drawing():
    return script("draw_explorer")


@pytest.fixture(scope="module")
def frame(drawing):
    return pl.read_parquet(drawing.ROWS)


@pytest.fixture(scope="module")
def results(frame):
    return Results(frame)


def test_the_page_is_up_to_date_small_and_needs_no_other_file(drawing, frame):
    text = PAGE.read_text()
    assert text == drawing.page(frame), "run python docs/draw_explorer.py"
    assert len(text.encode()) < 600_000
    assert set(re.findall(r"\w+://[^\"]*", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.findall(r"innerHTML|insertAdjacentHTML|document\.write|<script src|<link", text)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if find_browser() is None:
        pytest.skip("no Chromium or Chrome is installed")
    browser = Browser(tmp_path_factory.mktemp("profile"))
    browser.resize(1280)
    browser.open(PAGE.as_uri())
    yield browser
    browser.close()


@pytest.fixture
def formulas(browser):
    """Calls functions of the page, whatever it shows."""
    return browser.run


@pytest.fixture
def page(browser):
    """Calls scripts in the page as it is at the start, or with an address."""

    def run(expression, address=None):
        if address is not None:
            browser.open(PAGE.as_uri() + address)
        return browser.run(expression)

    run("0", "")
    yield run
    problems, browser.problems = browser.problems, []
    assert problems == []


def call(page, body, **values):
    """The value of a function body, in which the names stand for the values."""
    return page(f"(({', '.join(values)}) => {body})({', '.join(map(json.dumps, values.values()))})")


def test_the_page_has_every_activation_of_the_table(formulas):
    assert formulas("Object.keys(ACTIVATIONS)") == NAMES
    x = torch.linspace(-9, 9, 181, dtype=torch.float64)
    body = "names.map((n) => xs.flatMap((x) => [ACTIVATIONS[n].f(x), limitAt(ACTIVATIONS[n], x)]))"
    for name, found in zip(NAMES, call(formulas, body, names=NAMES, xs=x.tolist()), strict=True):
        f, limit = torch.tensor(found, dtype=torch.float64).view(-1, 2).unbind(-1)
        torch.testing.assert_close(f, qn.resolve(name)(x), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(limit, qn.q_limit(x, name), rtol=1e-12, atol=1e-12)


def test_mean_variance_and_atoms_are_those_of_the_library(formulas):
    body = """cases.map(([name, phi]) => lams.map((lam) => xs.map((x) => {
        const law = [ACTIVATIONS[name], x, lam, phi];
        const atoms = [...atomsAt(...law), { value: 0, mass: 0 }, { value: 0, mass: 0 }];
        const [one, two] = atoms;
        return [meanAt(...law), varianceAt(...law), one.value, one.mass, two.value, two.mass];
    })))"""
    cases = [(name, PHIS[k % len(PHIS)]) for k, name in enumerate(NAMES)]
    x = torch.tensor(XS, dtype=torch.float64)
    lam = torch.tensor(LAMS, dtype=torch.float64)[:, None]
    found = call(formulas, body, cases=cases, lams=LAMS, xs=XS)
    for (name, phi), numbers in zip(cases, torch.tensor(found, dtype=torch.float64), strict=True):
        mean, variance = (f(x, name, lam, phi) for f in (moments.mean, moments.variance))
        torch.testing.assert_close(numbers[..., 0], mean, rtol=1e-7, atol=1e-8)
        torch.testing.assert_close(numbers[..., 1], variance, rtol=1e-7, atol=1e-8)
        if name != "sin":  # whose atoms the library does not look for
            values, masses = moments.atoms(x, name, lam, phi)
            torch.testing.assert_close(numbers[..., [3, 5]], masses, rtol=1e-9, atol=1e-12)
            share = (numbers[..., [2, 4]] * numbers[..., [3, 5]]).sum(-1)  # two may be as likely
            torch.testing.assert_close(share, (values * masses).sum(-1))


@pytest.mark.parametrize(("name", "lam"), [("tanh", 1.0), ("relu", 5.0), ("gelu", 0.02)])
def test_bands_are_those_of_the_figures(formulas, name, lam):
    law = neuron_law(name, lam, reach=4.0)
    body = "neuronLaw(ACTIVATIONS[name], lam, DATA.phi, COLUMNS)"
    found = call(formulas, body, name=name, lam=lam)
    assert formulas("DATA.bands") == [*BANDS]
    for line in ("x", "f", "limit", "mean", "low", "high"):
        numbers = torch.tensor(found[line], dtype=torch.float64)
        torch.testing.assert_close(numbers, getattr(law, line), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("name", "lam", "x"),
    [("tanh", 1.0, 1.5), ("elu", 1.0, 2.0), ("silu", 0.1, 2.4), ("hardtanh", 5.0, 1.0)],
)
def test_the_bins_have_the_probabilities_of_the_library(formulas, name, lam, x):
    law = call(formulas, "lawAt(ACTIVATIONS[name], x, lam, DATA.phi)", name=name, lam=lam, x=x)
    bins, atoms = torch.tensor([*law["bins"].values()], dtype=torch.float64), law["atoms"]
    assert bins.sum().item() + sum(atom["mass"] for atom in atoms) == pytest.approx(1)
    edges = torch.linspace(law["low"], law["high"], len(bins) + 1, dtype=torch.float64)[1:-1]
    below = bins.cumsum(0)[:-1]
    for atom in atoms:
        below += atom["mass"] * (edges >= atom["value"])
    torch.testing.assert_close(below, moments.cdf(edges, x, name, lam), rtol=0, atol=1e-3)


def test_the_law_of_q_and_the_schedules_are_those_of_the_library(formulas):
    at = torch.tensor([0.0, 1.5], dtype=torch.float64)
    for lam, phi in itertools.product(LAMS[1:], PHIS):
        law = qn.QLaw(torch.tensor(lam, dtype=torch.float64), phi)
        body = "[chanceOfNegativeQ(lam, phi), densityOfQ(1.5, lam, phi)]"
        expected = [law.cdf(at[0]).item(), law.log_prob(at[1]).exp().item()]
        assert call(formulas, body, lam=lam, phi=phi) == pytest.approx(expected, rel=1e-9)
    assert formulas("SCHEDULES") == ["c0.02", "c0.1", "a1", "a5", "a9"]
    for name in formulas("SCHEDULES"):
        lams = call(formulas, "settingOf(name).lams", name=name)
        schedule = parse_schedule(name)
        assert lams == pytest.approx([schedule(1 + k) for k in range(100)], rel=1e-5)


def test_draws_follow_the_normal_law(formulas):
    draws = torch.tensor(formulas("normalDraws(7, 20000)"), dtype=torch.float64).sort().values
    ranks = (torch.arange(20_000) + 0.5) / 20_000
    assert (torch.special.ndtr(draws) - ranks).abs().max() < 0.01


def centre(page, selector):
    """Left and right end of an element, and the height of its middle, once it is in sight."""
    return call(
        page,
        """(() => {
            const element = document.querySelector(selector);
            element.scrollIntoView({ block: "center" });
            const { left, right, top, bottom } = element.getBoundingClientRect();
            return [left, right, (top + bottom) / 2];
        })()""",
        selector=selector,
    )


def rest(page):
    """Waits until the address and the words for screen readers have followed."""
    page("new Promise((done) => setTimeout(done, REST_MS + 50))")


def text(page, id):
    return page(f"byId('{id}').textContent")


def number(shown):
    return float(shown.replace("−", "-"))


def drawn(page, chart, line):
    """The values of a line as it is drawn, read off the axis at two ticks, and those of a pixel."""
    ticks, path = call(
        page,
        """(() => {
            const lines = [...byId(chart).querySelectorAll(":scope > .grid")];
            const level = lines.filter((e) => e.getAttribute("y1") === e.getAttribute("y2"));
            const ticks = level.map((e) => [e.getAttribute("y1"), e.nextSibling.textContent]);
            return [ticks, byId(chart).querySelector(`[data-line="${line}"]`).getAttribute("d")];
        })()""",
        chart=chart,
        line=line,
    )
    (bottom, low), *_, (top, high) = [map(number, tick) for tick in ticks]
    pixel = (high - low) / (top - bottom)
    heights = [float(y) for y in re.findall(r",([-.\d]+)", path)]
    return low + (torch.tensor(heights, dtype=torch.float64) - bottom) * pixel, abs(pixel)


def test_dragging_lam_draws_the_mean_of_the_new_law_and_cuts_nothing_off(page, browser):
    before, _ = drawn(page, "neuron-chart", "mean")
    left, right, y = centre(page, "#lam")
    width = right - left
    browser.drag((left + 0.75 * width, y), (left + 0.8 * width, y), (right - 1, y))
    lam = page("state.lam")
    assert lam > 8
    assert page("byId('lam').getAttribute('aria-valuetext')") == f"{lam:g}"
    assert text(page, "lam-value") == f"{lam:g}"
    after, pixel = drawn(page, "neuron-chart", "mean")
    x = torch.linspace(-4, 4, 121, dtype=torch.float64)
    torch.testing.assert_close(after, moments.mean(x, "tanh", lam), rtol=0, atol=0.1 * pixel)
    assert (after - before).abs().max() > 0.1
    outside = """[...document.querySelectorAll("#neuron-chart svg > *")].filter((element) => {
        const box = element.getBBox(), view = element.ownerSVGElement.viewBox.baseVal;
        return box.y < view.y - 0.1 || box.y + box.height > view.y + view.height + 0.1;
    }).length"""
    assert page(outside) == 0
    rest(page)
    assert page("location.hash") == f"#lam={lam:g}"
    assert f"λ {lam:g}" in text(page, "status")


def test_x_is_dragged_or_moved_by_keys_and_the_secant_passes_through_x_and_qx(page, browser):
    left, right, y = centre(page, "#neuron-chart")
    browser.drag((left + 300, y), (left + 350, y), ((left + right) / 2 + 100, y))
    x = page("state.x")
    assert 0.4 < x < 1
    page("byId('x').focus()")
    browser.press("ArrowRight")
    assert page("state.x") == pytest.approx(x + 0.01)
    line, *points = page("""(() => {
        const line = document.querySelector("#secant-chart [data-line=secant]").getAttribute("d");
        const points = ["x", "qx"].map((name) => {
            const point = document.querySelector(`#secant-chart [data-point=${name}]`);
            return ["cx", "cy"].map((key) => Number(point.getAttribute(key)));
        });
        return [line.match(/[-.0-9]+/g).map(Number), ...points];
    })()""")
    slope = (line[3] - line[1]) / (line[2] - line[0])
    for left, top in points:
        assert top == pytest.approx(line[1] + slope * (left - line[0]), abs=0.3)
    delta = page("toDelta(state.eps, state.lam, state.phi)")
    numbers = dict(
        page("""[...byId("neuron-numbers").children].map(({ children }) =>
            [...children].map(({ textContent }) => textContent))""")
    )
    g = qn.q_difference(torch.tensor(x + 0.01, dtype=torch.float64), delta, "tanh").item()
    assert number(numbers["g_q(x) with this q"]) == pytest.approx(g, rel=5e-3)
    assert number(numbers["this q"]) == pytest.approx(1 + delta, rel=5e-3)
    assert numbers["P(q < 0)"] == "15.9 %"


def test_draw_again_draws_new_points_and_the_address_brings_them_back(page):
    points = """[...document.querySelectorAll("#neuron-chart .draw")].map((e) =>
        e.getAttribute("cy"))"""
    first = page(points)
    page("byId('draw').click()")
    second = page(points)
    assert len(first) == len(second) == 81
    assert first != second
    rest(page)
    assert page(points, page("location.hash")) == second
    assert page(points, "") == first


def test_a_schedule_moves_lam_and_lam_leaves_the_schedule(page, browser):
    assert page("state.lam", "#schedule=a5&epoch=9") == 1
    page("byId('epoch').focus()")
    browser.press("ArrowRight")
    assert page("state.lam") == pytest.approx(5 / 5.5, rel=1e-5)
    rest(page)
    assert page("location.hash") == "#schedule=a5&epoch=10"
    page("byId('lam').focus()")
    browser.press("ArrowLeft")
    assert page("[state.schedule, byId('epoch').disabled]") == ["none", True]


def test_an_address_with_wrong_values_says_what_is_allowed(page):
    assert page("state.x", "#f=tan&lam=50&epoch=1.5&colour=red&pins=a9,a9&x=-2") == -2
    for words in (
        "f must be one of sigmoid, tanh, relu",
        "lam must be a number from 0.001 to 10, and the address has 50. The page shows 1.",
        "epoch must be a whole number from 1 to 100",
        "colour in the address means nothing",
        "pins must be two of base, limit",
    ):
        assert words in text(page, "problems")


def test_the_lines_of_python_run_and_give_the_numbers_of_the_page(page):
    page("0", "#f=elu&lam=2&x=-1.5&phi=0.01")
    names = {}
    exec(text(page, "neuron-python"), names)
    layer = "QActivation(elu, alpha=1, lam=2, phi=0.01, eval_mode='limit')"
    assert repr(names["layer"]) == layer
    mean = page("meanAt(ACTIVATIONS.elu, state.x, state.lam, state.phi)")
    assert names["mean"].item() == pytest.approx(mean)
    page("0", "#schedule=a5&epoch=3&pins=a9,limit")
    for section, lam in (("neuron", 5), ("results", 9)):
        names = {"model": torch.nn.Sequential(torch.nn.ELU())}
        exec(
            text(page, f"{section}-python").replace("results/paper", f"{ROOT}/results/paper"), names
        )
        assert names["scheduler"].get_last_lam() == lam
    assert set(names["rows"]["network"]) == {page("CELLS.get(state.cell).network")}


def test_copy_selects_the_code_and_says_what_happened(page):
    page("byId('copy-neuron-python').click()")
    rest(page)
    assert page("String(getSelection()).trim()") == text(page, "neuron-python")
    assert text(page, "status") in ("Copied.", "Selected; copy it with Ctrl+C.")
    assert text(page, "copy-neuron-python") == text(page, "status")


def test_the_matrix_is_the_table_of_the_report(page, results):
    table = gains_table(results)
    shown = page("""[...byId("matrix").tBodies[0].rows].filter((row) => row.cells.length > 1)
        .map((row) => [...row.cells].slice(1).map(({ firstElementChild, textContent }) =>
            firstElementChild?.firstChild.textContent ?? textContent))""")
    first = table.columns.index("base, %")
    published = [
        [re.sub(r"\*| \([-+.\d*]+\)$", "", text).replace("-", "−") for text in row[first:]]
        for row in table.rows
    ]
    assert shown == published


def test_a_tile_shows_its_cell_and_two_pins_their_difference_by_seed(page, browser, results):
    key = "mnist-mlp/tanh/plain"
    page(f"document.querySelector('[data-cell=\"{key}\"][data-setting=a5]').focus()")
    browser.press("ArrowRight")
    browser.press("Enter")
    assert page("[state.cell, state.pins]") == [key, ["a9", "base"]]
    cell = next(cell for cell in results.cells if cell[1:4] == ("mnist-mlp", False, "tanh"))
    for one, other in (("a9", "base"), ("limit", "a9")):
        page(f"document.querySelector('[data-pin={one}]').click()")
        values = page("""[...document.querySelectorAll("#seeds-chart circle")].map((e) =>
            Number(e.dataset.value))""")
        expected = results.differences(cell, one, other, "test_accuracy").values()
        assert values == pytest.approx([100 * value for value in expected], abs=1e-9)
        assert text(page, "seeds-words").startswith(f"{one} minus {other} at epochs 91 to 100: ")


def test_the_curves_are_those_of_the_report_and_hovering_gives_their_values(page, browser, results):
    cell = next(cell for cell in results.cells if cell.dataset == "cifar10")
    frames = {"gain": results.gain_curves, "accuracy": results.curves["test_accuracy"]}
    for view, frame in frames.items():
        page(f"byId('view-{view}').click()")
        found = page("curveOf(CELLS.get(state.cell), 'a9', state.view)")
        rows = frame.filter(**cell._asdict(), setting="a9")
        for name in ("mean", "low", "high"):
            expected = (100 * rows[name]).to_list()
            assert [point[name] for point in found] == pytest.approx(expected, abs=1e-6)
    left, right, y = centre(page, "#curves-chart")
    browser.send("Input.dispatchMouseEvent", type="mouseMoved", x=(left + right) / 2, y=y)
    epoch = page("state.at")
    assert 45 < epoch < 60
    assert text(page, "at-value") == str(epoch)
    row = page("document.querySelector('[data-pin=a9]').closest('tr').textContent")
    assert f"{found[epoch - 1]['mean']:.2f}" in row
    line, pixel = drawn(page, "curves-chart", "a9")
    near = [point["mean"] for point in found[epoch - 6 : epoch + 5]]
    assert line[epoch - 1].item() == pytest.approx(sum(near) / 11, abs=pixel)


def test_a_missing_accuracy_stays_missing(formulas, drawing):
    encoded = drawing.encode([0.1, None, 0.9876, float("nan"), 1.0, 0.0])
    assert call(formulas, "decode(text)", text=encoded) == [10, None, 98.76, None, 100, 0]


BACKGROUNDS_OF_SCROLLED = """
    [...document.querySelectorAll(".scroll, pre")]
        .filter((element) => element.scrollWidth > element.clientWidth)
        .map((element) => getComputedStyle(element).backgroundImage)
"""


@pytest.mark.parametrize("width", [1280, 768, 390])
def test_every_width_fits_in_light_and_dark(page, browser, width):
    colours = set()
    for scheme in ("light", "dark"):
        browser.resize(width, scheme=scheme)
        page("0", "#f=relu")
        assert page("document.documentElement.scrollWidth") <= width
        assert page("byId('neuron-chart').getBoundingClientRect().width") > 0.8 * width
        backgrounds = page(BACKGROUNDS_OF_SCROLLED)
        assert len(backgrounds) >= 2 * (width == 390)
        assert all("gradient" in background for background in backgrounds)
        colours.add(page("getComputedStyle(document.body).backgroundColor"))
        colours.add(page("getComputedStyle(document.querySelector('#neuron-chart .mean')).stroke"))
    browser.resize(1280)
    assert len(colours) == 4


def test_the_switch_of_the_site_from_light_to_dark_counts(page):
    background = "getComputedStyle(document.body).backgroundColor"
    light = page(background)
    page("localStorage.setItem('theme', 'dark')")
    dark = page(background, "")
    page("localStorage.clear()")
    assert dark != light == page(background, "")


def test_every_control_and_picture_has_a_name_for_screen_readers(page, browser):
    names = {}
    for node in browser.send("Accessibility.getFullAXTree")["nodes"]:
        if not node["ignored"]:
            role, name = (node.get(key, {}).get("value", "") for key in ("role", "name"))
            names.setdefault(role, []).append(name)
    for role, count in {"slider": 6, "combobox": 2, "image": 7, "radio": 2, "table": 2}.items():
        assert len(names[role]) == count, role
    for role in ("slider", "combobox", "image", "radio", "table", "button", "region"):
        assert all(names[role]), role
    tile = "a9, cifar-cnn on cifar10, elu, with dropout: "
    assert any(name.startswith(tile) for name in names["button"])
