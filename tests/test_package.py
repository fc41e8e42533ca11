"""The house itself: which way imports point, what they pull in, what is exported."""

import ast
import graphlib
import os
import pydoc
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import qneurons

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "qneurons"
# From the maths down to the command line: a room imports only from rooms above it in this list.
# A room is a package, or a module beside packages.
ROOMS = [
    "torch_internals",
    "arguments",
    "containers",
    "precision",
    "quadrature",
    "calculus",
    "schedules",
    "closed_forms",
    "limits",
    "activations",
    "noise",
    "given_delta",
    "kernels",
    "functional",
    "mean_table",
    "modules",
    "conversion",
    "scheduler",
    "integrations",
    "output_law",
    "moments",
    "__init__",
    "provenance",
    "study.errors",
    "study.__init__",
    "study.files",
    "study.runs",
    "study.data",
    "study.networks",
    "study.spec",
    "study.store",
    "study.packs",
    "study.execution",
    "measuring",
    "bench",
    "report.inference",
    "report.final_values",
    "report.contrasts",
    "report.results",
    "report.rendering",
    "report.claims",
    "report.tables",
    "report.gains",
    "report.headline",
    "report.legend",
    "report.figures",
    "report.sections",
    "report.page",
    "report.__init__",
    "comparison",
    "cli",
    "__main__",
]
BEHIND_THE_DOOR = {"comparison"}  # __init__ imports it only when one of its names is used
PACKAGES = sorted({path.parent for path in SOURCE.rglob("__init__.py")} - {SOURCE})


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


def files(room: str) -> list[Path]:
    folder = SOURCE / room.replace(".", "/")
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]


def imported_rooms(path: Path) -> set[str]:
    names = {name.removeprefix("qneurons.") for name in imported_names(path)}
    return {room for room in ROOMS for name in names if f"{name}.".startswith(f"{room}.")}


def test_every_file_is_in_one_room():
    found = [path for room in ROOMS for path in files(room)]
    assert sorted(found) == sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_imports_point_one_way(room):
    allowed = {*ROOMS[: ROOMS.index(room)], room}
    if room == "__init__":
        allowed |= BEHIND_THE_DOOR
    for path in files(room):
        assert imported_rooms(path) <= allowed, path


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_inside_a_package_imports_point_one_way_too(package):
    prefix = ".".join(("qneurons", *package.relative_to(SOURCE).parts))
    paths = {f"{prefix}.{path.stem}": path for path in package.glob("*.py")}
    del paths[f"{prefix}.__init__"]
    graph = {name: imported_names(path) & set(paths) for name, path in paths.items()}
    graphlib.TopologicalSorter(graph).prepare()  # raises where there is a cycle


def test_neighbours_use_the_door_of_a_room():
    """What needs Ray has no door: it is imported by whoever wants Ray."""
    rooms = [".".join(("qneurons", *path.relative_to(SOURCE).parts)) for path in PACKAGES]
    rooms = [room for room in rooms if room not in ("qneurons.study", "qneurons.report")]
    for path in SOURCE.rglob("*.py"):
        own = ".".join(("qneurons", *path.relative_to(SOURCE).with_suffix("").parts))
        for node in ast.walk(ast.parse(path.read_text())):
            module = getattr(node, "module", None) or ""
            if module.startswith("qneurons") and ".ray_" not in module:
                assert not any(
                    module.startswith(f"{room}.") and not own.startswith(f"{room}.")
                    for room in rooms
                ), f"{own} imports {module}"
                assert not any(alias.name.startswith("_") for alias in node.names), own


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_every_package_says_what_it_is_for(package):
    assert ast.get_docstring(ast.parse((package / "__init__.py").read_text()))


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
from qneurons import *
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(new - {"qneurons", "torch"} - set(sys.stdlib_module_names)))
assert torch.equal(state, torch.get_rng_state())
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_torch_is_imported_when_a_name_needs_it():
    script = """
import sys
import qneurons, qneurons.schedules
from qneurons import Annealed
assert qneurons.__version__ and qneurons.parse_schedule("a5") == Annealed(5.0)
assert "QELU" in dir(qneurons) and not hasattr(qneurons, "no_such_thing")
assert "torch" not in sys.modules
assert qneurons.QELU is qneurons.modules.QELU and "torch" in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_type_checkers_and_python_see_the_same_names():
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    for_checkers = {
        (node.module, alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(name for _, name in for_checkers) == sorted(qneurons.__all__)
    for module, name in for_checkers:
        assert getattr(qneurons, name) is getattr(sys.modules[module], name)


def test_every_row_of_the_table_is_exported():
    for row in qneurons.activations.rows():
        exported = {qneurons.modules.CLASSES[row.name].__name__, f"q_{row.name}"}
        assert exported <= set(qneurons.__all__)


def test_help_shows_classes_and_functions_with_their_parameters():
    page = pydoc.render_doc(qneurons, renderer=pydoc.plaintext)
    assert "class QELU(" in page
    for name in ("QELU", "q_elu"):
        assert re.search(rf"\b{name}\(.*lam: float.*alpha: float = 1\.0", page)


def test_versions_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == qneurons.__version__
    assert f"## {qneurons.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_core_depends_on_torch_alone():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [re.match(r"\w+", name)[0] for name in project["dependencies"]] == ["torch"]
    extras = set(project["optional-dependencies"])
    assert {"study", "ray", "test", "docs", "huggingface", "timm", "lightning"} <= extras


def test_the_package_is_built_without_a_compiler(tmp_path):
    command = [sys.executable, "setup.py", "-q", "build_ext"]
    folders = ["--build-lib", str(tmp_path / "lib"), "--build-temp", str(tmp_path / "temp")]
    environment = os.environ | {"CC": str(tmp_path / "no-compiler")}
    subprocess.run([*command, *folders], cwd=ROOT, env=environment, check=True, capture_output=True)
    assert not list(tmp_path.rglob("_native_*"))


def test_an_integration_is_imported_only_by_whoever_wants_it():
    for path in SOURCE.rglob("*.py"):
        if path.parent.name != "integrations":
            assert "qneurons.integrations" not in " ".join(imported_names(path)), path
