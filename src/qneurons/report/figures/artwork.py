"""A figure as files and as part of a page, in one look; every file is whole or not there."""

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qneurons.study.files import explained, make_folder, replace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, PALE, LIMIT_GREY = "#222222", "#dddddd", "#808080"
# What each colour becomes on a dark page; a page carries both and needs no second drawing.
ON_DARK = {
    INK: "#e6e6e6",
    PALE: "#444444",
    LIMIT_GREY: "#a0a0a0",
    **{"#56b4e9": "#b5e0ff", "#0072b2": "#4fb0f0", "#003a70": "#2f78cc"},
    **{"#f0a800": "#ffd77a", "#d55e00": "#ff8f3f", "#7a2404": "#d9512c"},
    **{"#5fc9a4": "#b0f0d8", "#009e73": "#35cfa0", "#00523c": "#159a70"},
}
LOOK: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "svg.fonttype": "none",
    "svg.hashsalt": "qneurons",
    "pdf.fonttype": 42,
}


def figure_files(figure: "Figure", name: str) -> dict[str, bytes]:
    """The figure as name.png and name.pdf; the same numbers give the same bytes."""
    import matplotlib

    files = {}
    for suffix, metadata in (("png", {"Software": None}), ("pdf", {"CreationDate": None})):
        buffer = io.BytesIO()
        with matplotlib.rc_context(LOOK):
            figure.savefig(buffer, format=suffix, dpi=160, metadata=metadata)
        files[f"{name}.{suffix}"] = buffer.getvalue()
    return files


def to_svg(figure: "Figure", name: str) -> str:
    """The figure as an element of a page: it takes the page's fonts and its two colour schemes."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context(LOOK):
        figure.savefig(buffer, format="svg", dpi=160, transparent=True, metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    width = 72 * figure.get_figwidth()
    # On a narrow screen a figure scrolls before its text becomes too small to read.
    size = f'style="max-width: {1.2 * width:.0f}pt; min-width: {0.7 * width:.0f}pt"'
    svg = re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', size, svg, count=1)
    svg = svg.replace("base64,\n", "base64,")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r" xmlns(:\w+)?=\"[^\"]*\"", "", svg)  # HTML knows them
    svg = svg.replace("xlink:href", "href")
    # Ids are the page's: two figures must not share them, and groups need none.
    svg = re.sub(r"<g id=\"[^\"]*\"", "<g", svg)
    svg = re.sub(r"(\bid=\"|url\(#|href=\"#)", rf"\g<1>{name}-", svg)
    # Coordinates are short, but what is written in the figure stays as it is.
    svg = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\d\.\d\d)\d+", r"\1", tag[0]), svg)
    svg = re.sub(r"\s*\n\s*", "\n", svg)
    for colour in ON_DARK:
        svg = svg.replace(colour, f"var({css_name(colour)})")
    return svg


def css_name(colour: str) -> str:
    return f"--{colour.removeprefix('#')}"


def write_file(path: Path, content: bytes) -> Path:
    """Writes a file that is whole or not there, also when the disk is full."""
    with explained(f"cannot write {path}"):
        make_folder(path.parent)
        replace(path, content)
    return path
