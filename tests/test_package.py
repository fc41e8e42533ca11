"""The house itself: which way imports point, what they pull in, what is exported."""

import ast
import graphlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import qneurons

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "qneurons"
# From the maths down to the command line: a room imports only from those before it.
ROOMS = [
    "quadrature",
    "calculus",
    "differences",
    "activations",
    "noise",
    "reference",
    "kernels",
    "differentiation",
    "functional",
    "surgery",
    "modules",
    "schedules",
    "moments",
    "__init__",
    "provenance",
    "study",
    "bench",
    "report",
    "cli",
    "__main__",
]


def imported_names(path: Path) -> set[str]:
    """What a file imports; of ``from a import b`` both a and a.b, which may be a module."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} has a relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def imported_rooms(path: Path) -> set[str]:
    matches = (re.match(r"qneurons\.(\w+)", name) for name in imported_names(path))
    return {match[1] for match in matches if match} & set(ROOMS)


def files(room: str) -> list[Path]:
    return sorted((SOURCE / room).glob("*.py")) or [SOURCE / f"{room}.py"]


def test_every_file_is_a_room():
    assert set(SOURCE.rglob("*.py")) == {path for room in ROOMS for path in files(room)}


@pytest.mark.parametrize("room", ROOMS)
def test_imports_point_one_way(room):
    allowed = set(ROOMS[: ROOMS.index(room)])
    for path in files(room):
        own = {room} if path.parent.name == room else set()
        assert imported_rooms(path) <= allowed | own, path


@pytest.mark.parametrize("room", ["study", "report", "cli"])
def test_inside_a_room_imports_point_one_way_too(room):
    paths = {f"qneurons.{room}.{path.stem}": path for path in files(room)}
    del paths[f"qneurons.{room}.__init__"]
    graph = {name: imported_names(path) & set(paths) for name, path in paths.items()}
    graphlib.TopologicalSorter(graph).prepare()  # raises where there is a circle


def test_every_file_has_its_test_file():
    for path in SOURCE.rglob("*.py"):
        if not path.stem.startswith("__"):
            folder = ROOT / "tests" / path.parent.relative_to(SOURCE)
            assert (folder / f"test_{path.name}").exists(), path


def test_importing_pulls_in_nothing_beyond_torch_and_leaves_the_random_state_alone():
    script = """
import sys
import torch, torch.distributions
before, state = set(sys.modules), torch.get_rng_state()
import qneurons
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(new - {"qneurons", "torch"} - set(sys.stdlib_module_names)))
assert torch.equal(state, torch.get_rng_state())
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_everything_exported_exists():
    assert len(set(qneurons.__all__)) == len(qneurons.__all__)
    for name in qneurons.__all__:
        assert hasattr(qneurons, name)


def test_versions_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == qneurons.__version__
    assert f"## {qneurons.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_core_depends_on_torch_alone():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [re.match(r"\w+", name)[0] for name in project["dependencies"]] == ["torch"]
    assert {"study", "ray", "test", "docs"} <= set(project["optional-dependencies"])
