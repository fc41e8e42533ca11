"""What is published, and the scripts that publish it."""

import tarfile

import pytest

pl = pytest.importorskip("polars")
for package in ("scipy", "matplotlib"):
    pytest.importorskip(package)

from qneurons.comparison.store import TrialStore
from qneurons.report.results import Results
from qneurons.study.spec import load_study
from tests.report.published.pages import PAPER, ROOT


@pytest.fixture
def publish(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import publish

    return publish


@pytest.fixture
def questions(publish):
    import publish_questions

    return publish_questions


@pytest.fixture
def modern(monkeypatch, tmp_path):
    """The module that publishes modern networks, and a folder with their published stores."""
    for folder in ("benchmarks", "examples"):
        monkeypatch.syspath_prepend(ROOT / folder)
    import publish_modern

    with tarfile.open(ROOT / "results" / "modern" / "store.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return publish_modern, tmp_path / "modern"


def outcome_of(modern, name):
    publish_modern, stores = modern
    store = TrialStore.open(stores / name / "store", readonly=True)
    return publish_modern.Outcome(publish_modern.modern.TASKS[name], store)


@pytest.fixture
def digits(modern):
    """The outcome of the residual MLP."""
    return outcome_of(modern, "digits")


@pytest.fixture
def small_gpt(modern):
    return outcome_of(modern, "gpt-small")


@pytest.fixture
def small_resnet(modern):
    return outcome_of(modern, "cifar-small")


@pytest.fixture
def long_gpt(modern):
    return outcome_of(modern, "gpt-long")


@pytest.fixture(scope="session")
def study():
    return load_study("paper")


@pytest.fixture(scope="session")
def frame():
    return pl.read_parquet(PAPER / "rows.parquet")


@pytest.fixture
def more(publish, frame):
    """The rows of the MLP with all of its seeds."""
    return publish.with_more_seeds(frame)


@pytest.fixture(scope="session")
def results(frame):
    return Results(frame)
