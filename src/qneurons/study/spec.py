"""Reads studies, which are grids of runs, from TOML files; selects parts of them."""

import dataclasses
import itertools
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from qneurons.activations import resolve, rows
from qneurons.study.data import DATASETS, parse_augmentation
from qneurons.study.errors import StudyError, unknown
from qneurons.study.networks import NETWORKS, Layer
from qneurons.study.runs import (
    LARGEST,
    PACKAGED,
    Run,
    Setting,
    Study,
    packable,
    parse_setting,
    study_names,
)

MOST_RUNS = 100_000  # so that a typo such as seeds = 1000000000 does not fill the memory


def load_study(name_or_file: str | Path) -> Study:
    """Reads a study: one that comes with the package by its name, or a ``.toml`` file."""
    return _load(str(name_or_file), Path(), (), {})


def select(
    study: Study,
    *,
    only: str | Sequence[str] | None = None,
    seeds: str | None = None,
    epochs: int | None = None,
) -> Study:
    """A part of a study, or its runs with other seeds or another number of epochs.

    ``only`` names values to keep, as in ``"network=mnist-mlp,setting=base|c0.1"``; the part has the
    runs of each, if there are several. ``seeds`` are written ``"0-9"`` or ``"0,3,5-7"``.
    """
    runs: Iterable[Run] = study.runs
    only = [only] if isinstance(only, str) else only
    if only:
        chosen = {run for text in only for run in _filtered(study, text)}
        runs = [run for run in runs if run in chosen]
    if seeds is not None:
        alike = dict.fromkeys(dataclasses.replace(run, seed=0) for run in runs)
        numbers = _parse_seeds(seeds, most=MOST_RUNS // len(alike))
        runs = [dataclasses.replace(run, seed=seed) for run in alike for seed in numbers]
    if epochs is not None:
        epochs = _read("epochs", epochs, _count)
    return dataclasses.replace(study, runs=tuple(runs), epochs=epochs or study.epochs)


def _is(kind: type, rule: str, allowed: Callable[[Any], bool]) -> Callable[[Any], Any]:
    """A function that returns a value if it is allowed, and else raises ValueError."""

    def read(value: Any) -> Any:
        if type(value) is int and kind is float:  # 1 is accepted for 1.0
            value = float(str(value))  # inf where float(value) would raise
        if type(value) is not kind or not allowed(value):  # not isinstance: True is an int
            raise ValueError(f"must be {rule}, got {value!r}")
        return value

    return read


_text = _is(str, "a text that is not empty", bool)


def _known(what: str, value: Any, known: Iterable[str]) -> str:
    if _text(value) not in known:
        raise unknown(what, value, known)
    return value


_count = _is(int, "an integer from 1 to 2**31 - 1", lambda n: 1 <= n < 2**31)
_num_seeds = _is(
    int, "their number, from 1 to 2**31 - 1, or a list such as [0, 1]", lambda n: 1 <= n < 2**31
)
_seed = _is(int, "an integer from 0 to 2**63 - 1", lambda n: 0 <= n < 2**63)


def activation_name(text: str) -> str:
    try:
        return resolve(text).name
    except ValueError:
        raise unknown("activation", text, (row.name for row in rows())) from None


def _setting(value: Any) -> Setting:
    setting = parse_setting(_text(value))
    setting.lam(2)  # refuses a schedule without its number of epochs
    return setting


# The keys of [[grid]]. Each may have a list of values.
_KEYS: dict[str, Callable[[Any], Any]] = {
    "dataset": lambda value: _known("dataset", value, DATASETS),
    "network": lambda value: _known("network", value, NETWORKS),
    "dropout": _is(bool, "true or false", lambda _: True),
    "activation": lambda value: activation_name(_text(value)),
    "setting": lambda value: str(_setting(value)),
    "batch_size": _count,
    "learning_rate": _is(float, "a finite number above 0", lambda x: 0 < x < math.inf),
    "learning_rate_decay": _is(float, "a number from 0 to below 1", lambda x: 0 <= x < 1),
    "phi": _is(float, f"a number from 0 to {LARGEST:g}", lambda x: 0 <= x <= LARGEST),
    "momentum": _is(float, "a number from 0 to below 1", lambda x: 0 <= x < 1),
    "augment": lambda value: str(
        parse_augmentation(value if isinstance(value, dict) else _text(value))
    ),
    "held_out": _is(int, "an integer from 0 to 2**31 - 1", lambda n: 0 <= n < 2**31),
}
_OPTIONAL = ["dropout", *(key for key in _KEYS if hasattr(Run, key))]


def _read(where: str, value: Any, read: Callable[[Any], Any]) -> Any:
    try:
        return read(value)
    except StudyError as error:
        raise error.at(where) from None
    except ValueError as error:
        raise StudyError(f"{where}: {error}") from None


def _read_list(where: str, value: Any, read: Callable[[Any], Any]) -> list[Any]:
    values = value if isinstance(value, list) else [value]
    if not values:
        raise StudyError(f"{where}: the list is empty", "give at least one value")
    return [_read(where, value, read) for value in values]


def _check_keys(
    where: str, table: Mapping[str, Any], known: Iterable[str], optional: Iterable[str]
) -> None:
    for key in table:
        if key not in known:
            raise unknown("key", key, known).at(where)
    for key in known:
        if key not in table and key not in optional:
            raise StudyError(f"{where}: the key {key!r} is missing", "add it")


def _load(name: str, beside: Path, including: tuple[str, ...], included: dict[str, Study]) -> Study:
    """Reads a study. A relative path starts at the folder ``beside``.

    What was ``included`` before is not read again: n files can include each other in 2^n ways.
    """
    packaged = name in study_names()
    path = beside / (f"{name}.toml" if packaged else name)
    label = path.name if packaged else str(path)
    if path.suffix != ".toml" or "\0" in name:  # which no path may hold
        raise unknown("study", name, study_names(), "or give a .toml file")
    place = name if packaged else os.path.realpath(path)  # Path.resolve raises in a loop
    if place in included:
        return included[place]
    if not packaged and place in including:
        raise StudyError(f"{including[-1]}: include: {name!r} includes this file", "remove it")
    try:
        file = PACKAGED / path.name if packaged else path
        table = tomllib.loads(file.read_text(encoding="utf-8-sig"))  # some editors write a BOM
    except OSError as error:
        raise StudyError(
            f"cannot read the study {label}: {error.strerror}",
            f"give a .toml file, or one of {', '.join(study_names())}",
        ) from None
    except UnicodeDecodeError as error:
        raise StudyError(f"{label}: it is not UTF-8 ({error})", "save it as UTF-8") from None
    except (ValueError, RecursionError) as error:  # not TOML; the error names the line
        raise StudyError(f"{label}: {error}") from None
    optional = ["title", "grid", "include", *(["seeds"] if "grid" not in table else [])]
    _check_keys(label, table, ["title", "epochs", "seeds", "grid", "include"], optional)
    runs: dict[Run, None] = {}

    def add(new: Iterable[Run]) -> None:
        runs.update(dict.fromkeys(new))
        if len(runs) > MOST_RUNS:
            raise StudyError(f"{label}: more than {MOST_RUNS:,} runs", "give fewer values or seeds")

    if "include" in table:
        for other in _read_list(f"{label}: include", table["include"], _text):
            add(_load(other, path.parent, (*including, place), included).runs)
    if "grid" in table:
        grids = _read_list(f"{label}: grid", table["grid"], _is(dict, "a [[grid]] table", bool))
        if isinstance(table["seeds"], list):
            seeds: Sequence[int] = _read_list(f"{label}: seeds", table["seeds"], _seed)
        else:
            seeds = range(_read(f"{label}: seeds", table["seeds"], _num_seeds))
        for number, grid in enumerate(grids, start=1):
            add(_runs(f"{label}: grid {number}", grid, seeds))
    elif "seeds" in table:
        raise StudyError(f"{label}: seeds: has no effect without a [[grid]]", "remove it")
    if not runs:
        raise StudyError(f"{label}: no runs", "add a [[grid]] or include = ['paper-mnist-mlp']")
    included[place] = Study(
        name=path.stem,
        title=_read(f"{label}: title", table.get("title", path.stem), _text),
        epochs=_read(f"{label}: epochs", table["epochs"], _count),
        runs=tuple(runs),
    )
    return included[place]


def _runs(where: str, grid: dict[str, Any], seeds: Sequence[int]) -> list[Run]:
    _check_keys(where, grid, _KEYS, _OPTIONAL)
    grid = {"dropout": False} | grid
    axes: dict[str, Sequence[Any]] = {
        key: _read_list(f"{where}: {key}", grid[key], read)
        for key, read in _KEYS.items()
        if key in grid
    }
    axes["seed"] = seeds
    if math.prod(map(len, axes.values())) > MOST_RUNS:
        raise StudyError(f"{where}: more than {MOST_RUNS:,} runs", "give fewer values or seeds")
    combinations = itertools.product(*axes.values())
    runs = [Run(**dict(zip(axes, values, strict=True))) for values in combinations]
    for run in {packable(run): run for run in runs}.values():
        num = DATASETS[run.dataset].num_train - run.held_out
        if num < 1:
            raise StudyError(
                f"{where}: held_out {run.held_out} leaves no image of {run.dataset} to train on",
                f"give less than {DATASETS[run.dataset].num_train}",
            )
        has_single = 1 in (run.batch_size, num % run.batch_size)
        if has_single and Layer("batch-norm") in NETWORKS[run.network]:
            raise StudyError(
                f"{where}: batch_size {run.batch_size} leaves a batch of one of the {num} images "
                f"of {run.dataset}, which {run.network} cannot normalise",
                "give another batch_size",
            )
    return runs


def _written(run: Run, key: str) -> str:
    """The value of a key as it is written in ``only``."""
    value = getattr(run, key)
    return str(value).lower() if isinstance(value, bool) else str(value).removesuffix(".0")


def _filtered(study: Study, only: str) -> list[Run]:
    """The runs with the values that are named. Raises for values that do not occur in the study."""
    kept: dict[str, list[str]] = {}
    for condition in only.split(","):
        key, equals, values = (part.strip() for part in condition.partition("="))
        if not equals:
            raise StudyError(
                f"only {only!r}: cannot read {condition!r}",
                "write key=value,key=value|value, for example "
                "'network=mnist-mlp,setting=base|c0.1'",
            )
        if key not in _KEYS:
            raise unknown("key", key, _KEYS).at(f"only {only!r}")
        if key in kept:
            raise StudyError(f"only {only!r}: {key} is given twice", f"write {key}=one|other")
        there = list(dict.fromkeys(_written(run, key) for run in study.runs))
        kept[key] = [value.strip() for value in values.split("|")]
        if key in ("setting", "augment"):  # they have several notations
            kept[key] = _read_list(f"only {only!r}", kept[key], _KEYS[key])
        if lost := [value for value in kept[key] if value not in there]:
            raise unknown(f"{key} of {study.name}", lost[0], there).at(f"only {only!r}")
    runs = [run for run in study.runs if all(_written(run, key) in kept[key] for key in kept)]
    if not runs:
        raise StudyError(f"only {only!r} leaves no run of {study.name}", "give fewer conditions")
    return runs


def _parse_seeds(text: str, most: int) -> list[int]:
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,19})(?:-([0-9]{1,19}))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < 2**63:
            raise StudyError(
                f"seeds {text!r}: cannot read {part!r}",
                "write '0-9' or '0,3,5-7', with seeds up to 2**63 - 1",
            )
        if len(seeds) + last - first >= most:
            raise StudyError(f"seeds {text!r}: more than {MOST_RUNS:,} runs", "give fewer seeds")
        seeds += range(first, last + 1)
    return list(dict.fromkeys(seeds))
