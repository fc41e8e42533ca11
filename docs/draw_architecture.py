"""Draws which room imports which, from the sources, into docs/architecture.md.

    python docs/draw_architecture.py

A room is a module or a package of qneurons; `study` is drawn by its own rooms. An import that
follows from others (a imports b, b imports c, so a may import c) is left out.
"""

import ast
import graphlib
from pathlib import Path

PAGE = Path(__file__).parent / "architecture.md"
SOURCE = PAGE.parent.parent / "src" / "qneurons"
BEGIN, END = "<!-- rooms -->\n", "<!-- /rooms -->"
DOOR = "qneurons"  # the package itself: what `import qneurons` gives
BEHIND_THE_DOOR = {"comparison"}  # the package imports it only when one of its names is used


def rooms() -> dict[str, list[Path]]:
    """The files of every room."""
    paths = {path.stem: path for path in sorted(SOURCE.iterdir())}
    paths |= {f"study.{path.stem}": path for path in sorted((SOURCE / "study").iterdir())}
    found = {
        name: [path] if path.suffix == ".py" else sorted(path.rglob("*.py"))
        for name, path in paths.items()
        if not name.endswith("__") and name != "study"
    }
    return {DOOR: [SOURCE / "__init__.py"]} | {
        name: files for name, files in found.items() if files
    }


def imported(path: Path, known: dict[str, list[Path]]) -> set[str]:
    """The rooms that a file imports, inside of functions too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    ours = {name.removeprefix("qneurons.") for name in names if f"{name}.".startswith("qneurons.")}
    return {next((r for r in known if f"{name}.".startswith(f"{r}.")), DOOR) for name in ours}


def graph() -> dict[str, set[str]]:
    """What every room imports, without what follows from other imports."""
    known = rooms()
    edges = {room: set.union(*(imported(p, known) for p in known[room])) - {room} for room in known}
    edges[DOOR] -= BEHIND_THE_DOOR
    below: dict[str, set[str]] = {}  # everything that can be reached
    for room in graphlib.TopologicalSorter(edges).static_order():
        below[room] = edges[room].union(*(below[other] for other in edges[room]))
    return {
        room: {a for a in edges[room] if not any(a in below[b] for b in edges[room])}
        for room in edges
    }


def mermaid() -> str:
    """The graph as GitHub draws it; an arrow points from a room to what it imports."""
    edges = graph()
    lines = ["flowchart TD"]
    lines += [f"  {room}" for room in edges if "." not in room]
    lines += ["  subgraph study"]
    lines += [f"    {room}[{room.partition('.')[2]}]" for room in edges if "." in room]
    lines += ["  end"]
    lines += [f"  {room} --> {other}" for room in edges for other in sorted(edges[room])]
    lines = [line.replace("study.", "study_") for line in lines]
    return "```mermaid\n" + "\n".join(lines) + "\n```\n"


def drawn(text: str) -> str:
    """The text of the page with the graph as it is now."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + mermaid() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text()))
