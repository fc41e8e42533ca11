"""The fault campaign would find what it looks for; CI runs a minute of it."""

import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("sklearn")
pytest.importorskip("typer")
BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.append(str(BENCHMARKS))

import faults
from fault_campaign import damage, kills, nodes
from fault_campaign.processes import Command, Process
from fault_campaign.trials import Bench, Fault
from fault_campaign.verdict import Verdict, judge, results

from qneurons.study.store import Store, checkpoints
from tests.study import pretend

RUNS = pretend.runs(2)


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    store = Store.open(tmp_path / "store", create=True)
    store.add_plan(dict.fromkeys(RUNS, 2))
    save(store, 1, 2)
    return store


def save(store, first, last, *, keep=True, **changes):
    origin = store.begin(pretend.ORIGIN)
    epochs = [pretend.epoch(run, n, **changes) for n in range(first, last + 1) for run in RUNS]
    state = pretend.state(RUNS, last) if keep else None
    store.commit(RUNS, epochs, provenance=origin, state=state, epoch=last)


def test_an_undisturbed_store_has_nothing_wrong(store):
    save(store, 3, 3, keep=False)
    reported = {run.id: 3 for run in RUNS}
    assert not judge(store.folder, results(store), reported=reported, finished=True)


def test_what_is_lost_missing_or_left_over_is_counted(store):
    undisturbed = results(store)
    undisturbed[RUNS[0].id].append("a third epoch")
    reported = {RUNS[0].id: 2, RUNS[1].id: 4}
    found = judge(store.folder, undisturbed, reported=reported, finished=True)
    assert found == Verdict(lost=2, missing=1, left_over=1)  # a checkpoint
    assert judge(store.folder, undisturbed) == Verdict()
    nowhere = store.folder / "nowhere"
    assert judge(nowhere, undisturbed, reported=reported, finished=True) == Verdict(6, missing=1)


def test_what_differs_or_came_twice_is_counted(store):
    undisturbed = results(store)
    next((store.folder / "checkpoints").iterdir()).unlink()
    save(store, 1, 1)
    save(store, 2, 2, test_loss=0.7)
    found = judge(store.folder, undisturbed, finished=True)
    assert (found.different, found.twice) == (2, 4)
    assert judge(store.folder, undisturbed, finished=True, again=True).twice == 0
    undisturbed[RUNS[0].id] = []
    assert judge(store.folder, undisturbed).different == 3


@pytest.mark.parametrize("blind", [False, True])
def test_damage_that_goes_unnoticed_is_found(store, tmp_path, monkeypatch, blind):
    if blind:
        monkeypatch.setattr(checkpoints, "verify", lambda path, sha256: None)
    bench = Bench(Command(tmp_path / "no.toml"), results(store), store.folder, {})
    found = {fault.name: fault for fault in damage.damages(bench, tmp_path, 40, random.Random(0))}
    names = ("journal.jsonl: cut short", "plan.json: a byte changed", "checkpoint: a byte changed")
    assert found.keys() >= {*names}
    for name, fault in found.items():
        assert fault.injected == fault.refused + fault.harmless + len(fault.wrong)
        assert bool(fault.wrong) == (blind and name.startswith("checkpoint")), name
    assert found["journal.jsonl: cut short"].refused == 40


SPACE = "error: File too large\nhint: free some space\n"


def test_only_a_line_and_its_hint_are_an_error_as_it_should_be():
    def error(code, said):
        return Process(0, 0, 0, 0.0, code=code, said=said).error

    assert error(1, f"a notice\n{SPACE}") == SPACE
    assert error(1, f"Traceback\n{SPACE}") is None
    assert error(1, f"{SPACE}{SPACE}") is None
    assert error(1, "error: no hint\n") is None
    assert error(1, "error: unexpected KeyError: 3\nhint: --debug shows where\n") is None
    assert error(0, SPACE) is None
    assert error(70, "") is None


@pytest.mark.parametrize(
    ("way", "code", "said", "survived", "fails"),
    [
        (kills.KILL, -9, "", None, False),
        (kills.KILL, 1, SPACE, None, True),
        (kills.TERM, 130, "", kills.TERM, False),
        (kills.TERM, 0, "", None, False),  # it had finished before
        (kills.TERM, 70, "Traceback", None, True),
        (kills.LIMIT, 1, SPACE, kills.LIMIT, False),
        (kills.LIMIT, 1, "error: no hint\n", None, True),
    ],
)
def test_only_the_right_end_survives_a_blow(store, tmp_path, way, code, said, survived, fails):
    killer = kills.Killer(Command(tmp_path), tmp_path, results(store), at_once=4, seed=0)
    reported = {RUNS[0].id: 3}  # one more than is there
    process = Process(0, 0, 0, 0.0, code=code, said=said, reported=reported)
    fate = kills.Fate([way], random.Random(0), kills.Pace(), process)
    fate.is_over, fate.num_stops = True, 2
    killer._account(process, fate, store.folder, {})
    assert bool(killer.found.failures) == fails
    others = {kills.STOP: 0 if fails else 2, **({survived: 1} if survived else {})}
    assert killer.found.others == dict.fromkeys(kills.OTHERS, 0) | others
    assert killer.found.kills == (code == -9)
    assert killer.found.verdict.lost == (not fails)


def test_a_blow_stops_and_continues_and_the_next_one_follows():
    with subprocess.Popen(["sleep", "60"]) as child:
        process = Process(child.pid, 0, 0, 0.0)

        def wait_for(stopped):
            stat = Path(f"/proc/{child.pid}/stat")
            while (stat.read_text().rpartition(")")[2].split()[0] == "T") != stopped:
                time.sleep(0.001)

        fate = kills.Fate([kills.STOP], random.Random(0), kills.Pace(), process)
        for num_stops in range(2):
            assert fate.num_stops == num_stops
            fate.strike(process)
            wait_for(True)
            assert fate.moment(process) > time.monotonic()
            fate.strike(process)
            wait_for(False)
            assert not fate.is_over
        limiting = kills.Fate([kills.LIMIT], random.Random(0), kills.Pace(), process)
        limiting.strike(process)
        assert resource.prlimit(child.pid, resource.RLIMIT_FSIZE)[0] < kills.LARGEST
        ending = kills.Fate([kills.TERM], random.Random(0), kills.Pace(), process)
        ending.strike(process)
        assert child.wait() == -signal.SIGTERM
        assert limiting.moment(process) is ending.moment(process) is None


def test_everything_that_must_not_be_is_named():
    killing, fault = kills.Killing(1), Fault("a fault")
    assert faults.broken([killing], [fault]) == []
    killing.failures.append("ended badly")
    killing.verdict.lost = 1
    fault.wrong.append("believed")
    first, second, third = faults.broken([killing], [fault])
    assert first == "ended badly"
    assert "lost=1" in second
    assert third == "a fault: believed"


def test_the_tables_go_between_their_marks_with_the_raw_numbers_beside(tmp_path, monkeypatch):
    monkeypatch.setattr(faults, "ROOT", tmp_path)
    monkeypatch.setattr(faults, "RESULTS", tmp_path / "faults.json")
    page = tmp_path / "docs" / "reliability.md"
    page.parent.mkdir()
    page.write_text("Before\n<!-- faults -->\nold\n<!-- /faults -->\nafter\n")
    origin = dict.fromkeys(("device", "commit", "torch", "python", "command", "date"), "x")
    origin |= {"seed": 3, "minutes": 4.5}
    fault = Fault("a fault", injected=7, refused=5, harmless=2, resumed=1, tried=1)
    killing = [kills.Killing(1, kills=9), kills.Killing(2, kills=8), kills.Killing(4, kills=7)]
    killing[2].others[kills.TERM] = 6
    faults.write_docs(faults.tables(killing, [fault], origin), killing, [fault], origin)
    text = page.read_text()
    assert text.startswith("Before\n<!-- faults -->\n")
    assert text.endswith("<!-- /faults -->\nafter\n")
    assert "old" not in text
    assert "| kills survived | 9 of 9 | 8 of 8 | 7 of 7 |" in text
    assert "| SIGTERM survived | 0 | 0 | 6 |" in text
    assert "| a fault | 7 | 5 | 2 | 0 | 1 of 1 |" in text
    raw = json.loads((tmp_path / "faults.json").read_text())
    assert raw["origin"] == origin
    assert [each["kills"] for each in raw["kills"]] == [9, 8, 7]


@pytest.mark.parametrize(("code", "lost"), [(0, 0), (0, 1), (70, 0)])
def test_a_killed_node_must_lose_nothing_and_let_the_study_end(
    store, tmp_path, monkeypatch, code, lost
):
    pytest.importorskip("ray")
    save(store, 3, 3, keep=False)
    process = Process(0, 0, 0, 0.0, reported={RUNS[0].id: 3 + lost})
    killed = []

    def moments(process, draw):
        yield from range(3)
        process.code = code

    cluster = nodes.Nodes({}, "127.0.0.1:6379", None)
    monkeypatch.setattr(nodes.Nodes, "kill", lambda self, number: killed.append(number))
    monkeypatch.setattr(nodes, "cluster", lambda: contextlib.nullcontext(cluster))
    monkeypatch.setattr(nodes, "start", lambda command, folder, first: process)
    monkeypatch.setattr(nodes, "moments", moments)
    store.folder.rename(tmp_path / "cluster-0")
    expected = results(Store.open(tmp_path / "cluster-0", readonly=True))
    fault = nodes.killed_nodes(Command(tmp_path), expected, tmp_path, 2, random.Random(0))
    assert fault.injected == len(killed) == 2
    assert bool(fault.wrong) == bool(code or lost)
    assert (fault.resumed, fault.tried) == (not lost, 1)
