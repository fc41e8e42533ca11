"""The plan of a store: the runs that its studies want."""

import dataclasses

import pytest

from qneurons.study.errors import StudyError
from qneurons.study.store import Store, merge
from qneurons.study.store.journal import encode
from tests.study import pretend
from tests.study.store.test_store import GOLDEN

RUNS = pretend.runs(4)


@pytest.fixture
def store(tmp_path):
    return Store.open(tmp_path / "a", create=True)


def test_plans_add_up(store):
    assert store.plan() == {}
    store.add_plan(dict.fromkeys(RUNS[:3], 5))
    store.add_plan({RUNS[2]: 9, RUNS[3]: 2})
    store.add_plan({RUNS[0]: 1})
    wanted = {RUNS[0]: 5, RUNS[1]: 5, RUNS[2]: 9, RUNS[3]: 2}
    assert list(store.plan().items()) == list(wanted.items())
    assert Store.open(store.folder, readonly=True).plan() == wanted


def test_a_run_of_another_protocol_is_planned_as_it_is(store):
    other = dataclasses.replace(RUNS[0], momentum=0.5)
    store.add_plan({other: 1})
    (found,) = store.plan()
    assert (found, found.id) == (other, other.id)


def test_a_plan_that_is_known_is_not_written_again(store):
    store.add_plan({RUNS[0]: 5})
    path = store.folder / "plan.json"
    path.chmod(0o444)
    before = path.stat().st_mtime_ns, path.stat().st_ino
    store.add_plan({RUNS[0]: 4})
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before


def test_merging_joins_plans(store, tmp_path):
    other = Store.open(tmp_path / "b", create=True)
    store.add_plan({RUNS[0]: 5})
    other.add_plan({RUNS[1]: 3})
    merge([store.folder, other.folder], tmp_path / "c")
    assert Store.open(tmp_path / "c", readonly=True).plan() == {RUNS[0]: 5, RUNS[1]: 3}


def test_stores_are_older_than_plans():
    assert Store.open(GOLDEN, readonly=True).plan() == {}


def test_a_damaged_plan_is_refused_with_the_remedy(store):
    store.add_plan({RUNS[0]: 5})
    path = store.folder / "plan.json"
    whole = path.read_bytes()
    for place in range(len(whole)):
        for damaged in (whole[:place], whole[:place] + b"7" + whole[place + 1 :]):
            path.write_bytes(damaged)
            if damaged not in (whole, whole[:-1]):
                with pytest.raises(StudyError, match=r"plan\.json was changed .*; delete it"):
                    store.plan()


def test_a_plan_of_another_version_is_refused_too(store):
    line, _ = encode({"plan": [[{"a new field": 1}, 5]]}, 0)
    (store.folder / "plan.json").write_bytes(line)
    with pytest.raises(StudyError, match=r"another version of qneurons .*a new field.*; delete it"):
        store.plan()
