"""What all figures share: their look, the style of each setting, and how they become files."""

import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qneurons.study.files import explained, make_folder, replace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, PALE, LIMIT_GREY = "#222222", "#dddddd", "#808080"
# The colours on a dark page. A page carries both, so each figure is drawn only once. All but PALE
# have a contrast of 3 to their page, and the paper's settings differ for colour-blind readers.
ON_DARK = {
    INK: "#e6e6e6",
    PALE: "#444444",
    LIMIT_GREY: "#a0a0a0",
    **{"#3a9bdc": "#a8dcff", "#0064a4": "#4fb0f0", "#00325f": "#2f78cc"},
    **{"#c98300": "#ffd77a", "#b34400": "#ff8f3f", "#5a1600": "#d9512c"},
    **{"#c471a4": "#f5cfe6", "#a03a82": "#e08cc6", "#5c1a4d": "#b85aa0"},
    **{"#2f9e78": "#b0f0d8", "#007a58": "#35cfa0", "#004a36": "#159a70"},
    "#d55e00": "#ff8f3f",
}
LOOK: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor"), INK),
    **dict.fromkeys(("xtick.color", "ytick.color"), INK),
    "svg.fonttype": "none",
    "svg.hashsalt": "qneurons",
    "pdf.fonttype": 42,
}
FORMATS = ("png", "pdf")  # beside SVG
_UNDATED = {"png": {"Software": None}, "pdf": {"CreationDate": None}}


FAMILIES = {  # by the first letter of a setting; a smaller λ is lighter, also in grey
    "c": (("#3a9bdc", "#0064a4", "#00325f"), "osD"),
    "a": (("#c98300", "#b34400", "#5a1600"), "^vP"),  # also of lin5 and cos5
    "m": (("#c471a4", "#a03a82", "#5c1a4d"), "dhH"),
    "n": (("#2f9e78", "#007a58", "#004a36"), "<>X"),  # also of plain activations
}
NEUTRAL = {"base": (INK, "-", "."), "limit": (LIMIT_GREY, "--", "x")}


@dataclass(frozen=True)
class Style:
    """How a setting looks in every figure of a report."""

    colour: str
    dash: str
    marker: str


def setting_styles(settings: Iterable[str]) -> dict[str, Style]:
    """The style of each setting; the settings come in the order of the legend."""
    styles = {}
    used = Counter[str]()
    for setting in settings:
        if setting in NEUTRAL:
            styles[setting] = Style(*NEUTRAL[setting])
        else:
            family = setting[0] if setting[1:2].isdigit() else "n"
            if setting.startswith(("lin", "cos")):
                family = "a"
            colours, markers = FAMILIES[family]
            k = used[family]
            styles[setting] = Style(*line_style(colours, k), markers[k % len(markers)])
            used[family] += 1
    return styles


def line_style(colours: Sequence[str], k: int) -> tuple[str, str]:
    """The k-th colour and dash: the dash changes when the colours are used up."""
    dashes = ("-", "--", ":", "-.")
    return colours[k % len(colours)], dashes[k // len(colours) % len(dashes)]


def new_figure(width: float, height: float) -> "Figure":
    """A figure without pyplot and its global state."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def figure_files(figure: "Figure", name: str, formats: Iterable[str] = FORMATS) -> dict[str, bytes]:
    """The figure in the formats and as SVG, light and dark. Equal figures give equal bytes."""
    import matplotlib

    files = {}
    for suffix in formats:
        buffer = io.BytesIO()
        with matplotlib.rc_context(LOOK):
            figure.savefig(buffer, format=suffix, dpi=160, metadata=_UNDATED[suffix])
        files[f"{name}.{suffix}"] = buffer.getvalue()
    return files | theme_svgs(figure, name)


def theme_svgs(figure: "Figure", name: str) -> dict[str, bytes]:
    """The figure as name.svg and name-dark.svg, which look the same without our fonts."""
    light = share_styles(_short_svg(figure, "i", {"svg.fonttype": "path"}))
    dark = re.sub("|".join(ON_DARK), lambda colour: ON_DARK[colour[0]], light)
    return {f"{name}.svg": light.encode(), f"{name}-dark.svg": dark.encode()}


def to_svg(figure: "Figure", name: str) -> str:
    """The figure as an element of a page, with the page's fonts and its two colour schemes."""
    svg = _short_svg(figure, f"{name}-", {})
    width = 72 * figure.get_figwidth()
    # On a narrow screen a figure scrolls, so that its text stays readable.
    size = f'style="max-width: {1.2 * width:.0f}pt; min-width: {0.65 * width:.0f}pt"'
    svg = re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', size, svg, count=1)
    svg = re.sub(r' xmlns="[^"]*"', "", svg)  # HTML implies it
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # another figure may have the same names
    for colour in ON_DARK:
        svg = svg.replace(colour, f"var({css_name(colour)})")
    return svg


def _short_svg(figure: "Figure", prefix: str, look: dict[Any, Any]) -> str:
    """The figure as an SVG element, written short. Its ids have the prefix."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context(LOOK | look):
        figure.savefig(buffer, format="svg", dpi=160, transparent=True, metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = svg.replace("base64,\n", "base64,")
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r' xmlns:xlink="[^"]*"', "", svg.replace("xlink:href", "href"))
    svg = re.sub(r'<g id="[^"]*_\d+"', "<g", svg)  # only the names that we gave stay
    own_id = r'(?<!<g )\bid="'
    ids = {id: f"{prefix}{k}" for k, id in enumerate(re.findall(own_id + '([^"]*)', svg))}
    references = rf'({own_id}|url\(#|href="#)([^")]*)'
    svg = re.sub(references, lambda found: found[1] + ids[found[2]], svg)
    # Numbers in the text of a figure are kept.
    svg = re.sub(r"<[^>]*>", lambda tag: _rounded(tag[0]), svg)
    svg = re.sub(r'(<use[^>]*) transform="translate\((\S+) 0\)"', r'\1 x="\2"', svg)
    svg = re.sub(r'(?<= d=")[^"]*', lambda path: compact_path(path[0]), svg)
    return re.sub(r"\s*\n\s*", "\n", svg)


def share_styles(page: str) -> str:
    """The page with each style of its figures written once, as a class."""
    classes: dict[str, str] = {}
    page = re.sub(
        r'(<(?:g|path|use|text|tspan|image)\b[^>]*) style="([^"]*)"',
        lambda tag: f'{tag[1]} class="{classes.setdefault(tag[2], f"s{len(classes)}")}"',
        page,
    )
    rules = "\n".join(f".{name} {{{style}}}" for style, name in classes.items())
    return page.replace("</style>", f"{rules}\n</style>", 1)


def _rounded(text: str) -> str:
    """Numbers with about three digits, but the scale of letters as it is."""
    return re.sub(r"scale\(.*?\)|(\d\d\.\d|\d\.\d\d)\d+", lambda x: x[1] or x[0], text)


def compact_path(path: str) -> str:
    """A path in one line. One without curves has the steps between its points."""
    path = re.sub(r"\s+", " ", path)
    if re.search("[CQ]", path):
        return path
    start = last = (0, 0)

    def step(found: re.Match[str]) -> str:
        nonlocal start, last
        if found[0] == "z":  # back to where the line began
            last = start
            return "z"
        move, *point = found.groups()
        x, y = (round(100 * float(number)) for number in point)  # whole, so no error adds up
        text = f"{(x - last[0]) / 100:.10g} {(y - last[1]) / 100:.10g}"
        last = x, y
        if move == "M":
            start, text = last, f"m{text}"
        return text

    path = re.sub(r"(?:([ML]) )?(-?[\d.]+) (-?[\d.]+)|z", step, path)
    return re.sub(r"\b0\.", ".", path).replace(" -", "-")


def css_name(colour: str) -> str:
    return f"--{colour.removeprefix('#')}"


def write_file(path: Path, content: bytes) -> Path:
    """Writes a whole file or none, also when the disk is full."""
    with explained(f"cannot write {path}"):
        make_folder(path.parent)
        replace(path, content)
    return path
