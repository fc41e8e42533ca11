"""A figure as files and as part of a page."""

import re
import xml.etree.ElementTree as ET
from itertools import combinations

import numpy as np
import pytest

for package in ("matplotlib", "polars", "scipy"):
    pytest.importorskip(package)

from qneurons.report.figures.artwork import (
    INK,
    ON_DARK,
    PALE,
    compact_path,
    css_name,
    figure_files,
    setting_styles,
    share_styles,
    to_svg,
    write_file,
)
from qneurons.report.figures.gains import COLOURS, STRONGEST
from qneurons.report.figures.neurons import F_COLOUR, LIMIT_COLOUR
from qneurons.study.errors import StudyError

SETTINGS = ("base", "limit", "c0.02", "c0.1", "a1", "a5", "a9", "m5", "n0.001")


@pytest.fixture(scope="module")
def figure():
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3, 2), layout="constrained")
    ax = figure.subplots()
    ax.plot([1, 2, 3], [1, 4, 2], color="#0064a4", marker="o", clip_on=True)
    ax.imshow([[0.0, 1.0]], extent=(1, 3, 1, 4), aspect="auto")
    ax.set_title("a < b & c = 0.12345")
    return figure


def test_files_are_for_a_light_and_a_dark_page_and_for_print_and_the_same_twice(figure):
    files = figure_files(figure, "plot")
    assert list(files) == ["plot.png", "plot.pdf", "plot.svg", "plot-dark.svg"]
    assert files["plot.png"].startswith(b"\x89PNG")
    assert files["plot.pdf"].startswith(b"%PDF")
    light, dark = (files[name].decode() for name in ("plot.svg", "plot-dark.svg"))
    ET.fromstring(dark)
    assert "#0064a4" in light
    assert ON_DARK["#0064a4"] in dark
    assert not any(colour in dark for colour in ON_DARK)
    assert not re.search(r' d="[^"]*\d\.\d{3}', dark)  # short coordinates
    assert re.search(r' d="[^"]*Q[^"]* L ', light)  # a line after a curve stays a line
    assert files == figure_files(figure, "plot")


def test_svg_is_well_formed_and_free_of_addresses(figure):
    svg = to_svg(figure, "plot")
    root = ET.fromstring(svg)
    assert "a < b & c = 0.12345" in "".join(root.itertext())
    assert "http" not in svg
    assert "data:image/png;base64," in svg


def test_svg_takes_the_pages_colours(figure):
    svg = to_svg(figure, "plot")
    assert f"var({css_name('#0064a4')})" in svg
    assert not any(colour in svg for colour in ON_DARK)


def test_svg_ids_are_the_figures_own_and_every_reference_resolves(figure):
    one, two = to_svg(figure, "one"), to_svg(figure, "two")
    ids = [set(re.findall(r'\bid="([^"]*)"', svg)) for svg in (one, two)]
    assert ids[0]
    assert not ids[0] & ids[1]
    assert set(re.findall(r'(?:url\(#|href="#)([^")]*)', one)) <= ids[0]


def test_a_page_has_each_style_once(figure):
    svgs = [to_svg(figure, name) for name in ("one", "two")]
    page = "<style>\n</style>" + "".join(svgs) + '<i style="flex: 3"></i>'
    shared = share_styles(page)
    rules = dict(re.findall(r"^\.(s\d+) \{(.*)\}$", shared, flags=re.MULTILINE))
    assert len({*rules.values()}) == len(rules)
    assert shared.count('<i style="flex: 3">') == 1
    back = re.sub(r' class="(s\d+)"', lambda found: f' style="{rules[found[1]]}"', shared)
    assert back.endswith(page.removeprefix("<style>\n</style>"))
    assert len(shared) < len(page)


def test_lines_of_a_path_are_written_short(figure):
    paths = re.findall(r' d="([^"]*)"', to_svg(figure, "plot"))
    assert paths
    assert not re.search(r"L|\n|\d\d\.\d\d", "".join(paths))


def test_a_path_of_lines_has_steps_and_one_with_curves_keeps_its_points():
    lines = "M 10.5 20.0 \nL 11 19.5 \nL 12 123456.7 \nz\nM 0.25 -3 \nL 1 1 \n"
    assert compact_path(lines) == "m10.5 20 .5-.5 1 123437.2 z m-10.25-23 .75 4 "
    assert compact_path("M 1 2\nL 3 4\nQ 5 6 7 8\n") == "M 1 2 L 3 4 Q 5 6 7 8 "


PAGES = {"light": "#ffffff", "dark": "#15171b"}
# Linear RGB as people see it who lack one kind of cones (Machado et al. 2009, severity 1).
SIGHTS = {
    "normal": np.eye(3),
    "protan": np.array(
        [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    ),
    "deutan": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    "tritan": np.array([[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]]),
}


def linear(colour):
    from matplotlib.colors import to_rgb

    rgb = np.array(to_rgb(colour))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    """The ratio of WCAG 2, from 1 to 21."""
    low, high = sorted(linear(colour) @ (0.2126, 0.7152, 0.0722) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def lab(colour, sight):
    """CIE L*a*b*, in which a distance of 2 or 3 can just be seen."""
    to_xyz = [[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]]
    xyz = to_xyz @ (SIGHTS[sight] @ linear(colour)).clip(0, 1) / (0.9505, 1, 1.0888)
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize(
    "light", [colour for colour in ON_DARK if colour != PALE]
)  # the grid is to be faint
def test_lines_stand_out_on_a_light_and_on_a_dark_page(light):
    assert contrast(light, PAGES["light"]) > 3
    assert contrast(ON_DARK[light], PAGES["dark"]) > 3


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("page", PAGES)
def test_the_papers_settings_differ_for_colour_blind_readers(page, sight):
    colours = [style.colour for style in setting_styles(SETTINGS[:7]).values()]
    seen = [lab(ON_DARK[c] if page == "dark" else c, sight) for c in colours]
    assert min(np.linalg.norm(a - b) for a, b in combinations(seen, 2)) > 15


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("page", PAGES)
def test_better_and_worse_and_f_and_its_limit_differ_for_colour_blind_readers(page, sight):
    for pair in (COLOURS.values(), (F_COLOUR, LIMIT_COLOUR)):
        one, other = (lab(ON_DARK[c] if page == "dark" else c, sight) for c in pair)
        assert np.linalg.norm(one - other) > 15


@pytest.mark.parametrize("outcome", COLOURS)
def test_words_can_be_read_on_a_tile(outcome):
    from matplotlib.colors import to_rgb

    colour = COLOURS[outcome]
    for tile, page, ink in (
        (colour, PAGES["light"], INK),
        (ON_DARK[colour], PAGES["dark"], ON_DARK[INK]),
    ):
        mixed = STRONGEST * np.array(to_rgb(tile)) + (1 - STRONGEST) * np.array(to_rgb(page))
        assert contrast(mixed, ink) > 4.5


def test_writing_makes_the_folder_and_leaves_one_file(tmp_path):
    path = write_file(tmp_path / "new" / "page.html", b"whole")
    assert path.read_bytes() == b"whole"
    assert [p.name for p in path.parent.iterdir()] == ["page.html"]


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StudyError, match=r"cannot write .*page\.html") as error:
        write_file(tmp_path / "file" / "page.html", b"")
    assert "\n" not in str(error.value)


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = write_file(tmp_path / "page.html", b"old")

    def fail(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(StudyError, match="No space left"):
        write_file(path, b"new")
    assert path.read_bytes() == b"old"


def test_svg_numbers_are_short(figure):
    assert not any(
        re.search(r"\d\.\d{3}", tag) for tag in re.findall(r"<[^>]*>", to_svg(figure, "plot"))
    )


def test_every_setting_has_a_look_of_its_own_that_does_not_hang_on_the_others():
    styles = setting_styles(SETTINGS)
    assert len(set(styles.values())) == len(SETTINGS)
    assert setting_styles(["base", "c0.02", "a1"])["a1"] == styles["a1"]
    assert setting_styles(["c1", "cos5/20"])["cos5/20"] == setting_styles(["a5"])["a5"]
    many = setting_styles([f"c{k}" for k in range(12)])
    assert len({(style.colour, style.dash) for style in many.values()}) == 12


def test_settings_differ_in_grey_by_lightness_or_marker():
    from matplotlib.colors import to_rgb

    def grey(style):
        return np.dot(to_rgb(style.colour), (0.299, 0.587, 0.114))

    styles = list(setting_styles(SETTINGS).values())
    assert len({style.marker for style in styles}) == len(styles)
    for family in ("c", "a", "n"):
        lightness = [grey(s) for s in setting_styles([f"{family}{k}" for k in range(3)]).values()]
        assert (np.diff(lightness) < -0.08).all()  # a larger λ is darker
