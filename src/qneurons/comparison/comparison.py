"""``qneurons.compare``: does it help my model, and what should I set?"""

import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qneurons.study.errors import StudyError, install

if TYPE_CHECKING:
    from qneurons.comparison.trial import Trial
    from qneurons.report.rendering import Table

# Two without noise, noise that stays, and noise that fades over the epochs that base reports. In
# the study λ annealed from 5 gained more than from 1 (RESULTS.md).
DEFAULT_SETTINGS = ("base", "limit", "c0.1", "a5")


def _say(text: str) -> None:
    """Prints a line live, also into a file, with "?" for letters that its encoding lacks."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(text.encode(encoding, "replace").decode(encoding), flush=True)


@dataclass(frozen=True)
class Comparison:
    """The result of :func:`qneurons.compare`. ``print(comparison)`` shows table and answer.

    Attributes:
        answer: which settings help, in a sentence, and what to set.
        table: the gain of every setting.
        page: the page that was written.
        failed: why a trial failed, by its name.
    """

    answer: str
    table: "Table" = field(repr=False)
    page: Path
    failed: Mapping[str, str]

    def __str__(self) -> str:
        from qneurons.comparison.text import table_text

        table = table_text(self.table, shutil.get_terminal_size((160, 24)).columns)
        return f"{table}\n{self.answer}\nThe page with tables and figures: {self.page}"


def compare(
    train: "Callable[[Trial], object]",
    settings: str | Iterable[str] = DEFAULT_SETTINGS,
    seeds: int | Iterable[int] = 10,
    store: str | Path = "qneurons-compare",
    *,
    params: Mapping[str, Iterable[Any]] | None = None,
    metric: str | None = None,
    choose_by: str | None = None,
    smaller: str | Iterable[str] = (),
    larger: str | Iterable[str] = (),
    keep: bool = False,
    processes: int | None = None,
    executor: str = "local",
    address: str | None = None,
    cpus_per_trial: float | None = None,
    gpus_per_trial: float | None = None,
    say: Callable[[str], None] = _say,
) -> Comparison:
    r"""Trains a model of yours with several activations, and says which of them helps.

    ``train`` is called with a :class:`Trial` for every setting and seed, seed by seed. It puts the
    setting into its model by ``trial.convert(model)``, and calls ``trial.report(...)`` with its
    metrics after every epoch. Finished trials are kept in ``store``: after a crash, Ctrl-C or a
    kill the same call goes on. It writes a page to ``store/report``.

    Args:
        train: your training.
        settings: ``"base"`` (the model as it is), ``"limit"``, ``"c0.1"`` (constant λ), ``"a5"`` (λ
            annealed from 5 over the epochs of the training), ``"a5@0.5"``, ``"a5/20"``, ``"cos5"``
            (to 0 along a cosine), or a plain activation such as ``"silu"``. ``base`` is always
            trained.
        seeds: their number, or the seeds themselves. Fix it before you look at results.
        store: the folder of this comparison.
        params: a grid that the training reads, as in ``trial.params["lr"]``: a list of values for
            each name. Every setting is compared at its own best values, and at those of base.
        metric: the metric that decides. Default: the first that begins with ``test``; else, unless
            it chooses ``params``, the first that begins with ``val``; else the first that does not
            begin with ``train``; else the first.
        choose_by: the metric by which the values of ``params`` are chosen, of a validation set.
            Default: the first that begins with ``val``.
        smaller: metrics of which smaller is better, beside those that have a word such as ``loss``
            or ``error`` in their names.
        larger: metrics of which larger is better, whatever their names say.
        keep: keep trials that were made by other code of ``train``.
        processes: how many worker processes run trials; each has a GPU of its own where there are
            several. 0: trials run in this process. Default: one for each GPU if there are several,
            else 0.
        executor: ``"local"``, or ``"ray"`` for a Ray cluster.
        address: of the cluster, ``"host:port"`` or ``"ray://host:port"``. Default: ``"auto"``.
        cpus_per_trial: on a cluster, also the number of threads. Default: 1.
        gpus_per_trial: on a cluster, such as 0.5; 0 for the CPU. Default: 1 if a node has a GPU.
        say: shows a line of text.

    Returns:
        the answer, the table and the path of the page.
    """
    check_installed()
    from qneurons.comparison.arms import parse_arms, parse_names
    from qneurons.comparison.fingerprint import fingerprint
    from qneurons.comparison.metrics import Metrics
    from qneurons.comparison.page import gain_table, summary_lines, write_comparison
    from qneurons.comparison.placement import place
    from qneurons.comparison.results import (
        ONE_TRAINING,
        USE_THE_SEED,
        Results,
        answer,
        other_lengths,
    )
    from qneurons.comparison.session import Session, make_grid, make_specs
    from qneurons.comparison.store import TrialStore
    from qneurons.comparison.trial import only_imports

    if only_imports.get():
        raise StudyError(
            "the file calls qn.compare when it is imported",
            "put the call under if __name__ == '__main__':",
        )
    if not callable(train):
        raise StudyError(f"train must be a function of a trial, got {train!r}")
    try:
        folder = Path(store)
    except TypeError:
        raise StudyError(f"store is {store!r}", "give a folder, as in store='my-model'") from None
    arms, grid = parse_arms(settings), make_grid(params or {})
    specs = make_specs(arms, check_seeds(seeds), grid)
    metrics = Metrics(
        metric, choose_by, parse_names("smaller", smaller), parse_names("larger", larger)
    )
    placed = place(
        train,
        processes=processes,
        executor=executor,
        address=address,
        cpus_per_trial=cpus_per_trial,
        gpus_per_trial=gpus_per_trial,
        say=say,
    )
    code = fingerprint(train)
    name = getattr(train, "__qualname__", type(train).__name__)
    opened = TrialStore.open(folder / "store", create=True)
    opened.begin_training(name, code, keep=keep)

    is_decision_said = False

    def check_names(names: Sequence[str]) -> None:
        nonlocal is_decision_said
        decision = metrics.decision(names, has_grid=len(grid) > 1)
        known = opened.metric_names()
        if known and {*known} != {*names}:
            raise StudyError(
                f"this training reports {', '.join(names)}, and the trials in {folder} reported "
                f"{', '.join(known)}",
                "report the same names, or give another store",
            )
        if not is_decision_said:
            is_decision_said = True
            for line in decision:
                say(line)

    if names := opened.metric_names():
        check_names(names)

    def results() -> Results | None:
        done = [opened.finished[spec.id] for spec in specs if spec.id in opened.finished]
        any_reported = any(trial.measured.metrics for trial in done)
        return Results(done, arms, grid, metrics) if any_reported else None

    def on_seed() -> None:
        if (so_far := results()) is not None:
            warning = [f"warning: {ONE_TRAINING} {USE_THE_SEED}"]
            for line in warning if so_far.is_one_training else summary_lines(so_far):
                say(line)

    by_name = {arm.name: arm for arm in arms}
    failures: dict[str, str] = {}
    num_done = sum(spec.id in opened.finished for spec in specs)
    if num_done:
        say(f"{num_done} of {len(specs)} trials are in {folder} already")
    if num_done < len(specs):
        try:
            with placed as runner:
                session = Session(runner, opened, by_name, code, say, check_names)
                session.run(specs, on_seed)
        except KeyboardInterrupt:
            num_done = sum(spec.id in opened.finished for spec in specs)
            say(
                f"stopped: {num_done} of {len(specs)} trials are in {folder}; the same call goes on"
            )
            raise
        failures = session.failed
    found = results()
    if found is None:
        raise StudyError(
            f"all of the {len(specs)} trials failed or diverged in their first epoch, see above",
            "correct the training, and give another store",
        )
    failed = {str(spec): failures[spec.id] for spec in specs if spec.id in failures}
    origins = list(opened.records.provenance.values())
    title = folder.resolve().name
    page = write_comparison(folder / "report", title, found, origins, failed, len(specs))
    verdict = answer(found)
    if failed:
        say(f"{len(failed)} of {len(specs)} trials failed; the same call tries them again")
    if warning := other_lengths(found.trials, arms):
        say(warning)
    text = f"{verdict.sentence} {verdict.advice}"
    comparison = Comparison(text, gain_table(found.at_best()), page, failed)
    say(str(comparison))
    return comparison


def check_installed() -> None:
    """Raises before anything is trained if a package of the extra ``study`` is missing."""
    try:
        import cloudpickle  # type: ignore[import-untyped]  # noqa: F401
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
        import polars  # noqa: F401
        import rich  # noqa: F401
        import scipy  # type: ignore[import-untyped]  # noqa: F401
    except ModuleNotFoundError as missing:
        raise StudyError(
            f"compare needs {missing.name}, which is not installed", install()
        ) from None


def check_seeds(seeds: int | Iterable[int]) -> list[int]:
    try:
        found = list(range(seeds)) if isinstance(seeds, int) else list(dict.fromkeys(seeds))
    except TypeError:  # neither a number nor a list, or a list of lists
        found = []
    if not found or not all(isinstance(seed, int) and 0 <= seed < 2**63 for seed in found):
        raise StudyError(
            f"seeds is {seeds!r}",
            "give their number, at least 1, or a list such as [0, 1, 2], with seeds from 0 to "
            "2**63 - 1",
        )
    return found
