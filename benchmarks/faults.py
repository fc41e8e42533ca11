"""A fault campaign: a study must lose nothing that was saved, whatever goes wrong.

    python benchmarks/faults.py --kills 1150 --docs   # and puts the tables into docs/reliability.md
    python benchmarks/faults.py --seconds 60          # a short one

Processes of `qneurons study run` that train real packs are killed at random moments: alone, two on
one store, and four on one store, of which some are stopped for a while, terminated or limited in
the size of their files. Stores are merged while they are trained, clocks jump, disks are full,
folders are read-only or another user's, files of a store are truncated, changed and zeroed, nodes
of a Ray cluster are killed. Afterwards the study must give the same results, bit for bit, as one
that was not interrupted. Exits with 1 otherwise. The tests of full disks need the right to mount a
disk.
"""

import argparse
import dataclasses
import json
import random
import shlex
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import torch
from fault_campaign import clocks, damage, disks, kills, merges, nodes
from fault_campaign.processes import Command, kill_the_living, start, undisturbed
from fault_campaign.trials import Bench, Fault
from fault_campaign.verdict import Results, results
from pages import write_between

from qneurons.provenance import provenance
from qneurons.study.store import Store

ROOT = Path(__file__).parent.parent
EPOCHS = 60  # of eight packs: a study for some hundred kills, whose store is read quickly
RESULTS = ROOT / "benchmarks" / "results" / "faults.json"


def reference(command: Command, store: Path) -> Results:
    undisturbed(command, store)
    return results(Store.open(store, readonly=True))


def half_way(command: Command, folder: Path, expected: Results) -> Bench:
    """A store with a finished pack, one in the middle, and the reservation of a killed process."""
    store = folder / "half"
    process = start(command, store)
    while len(process.saving_s) < 4:
        process.listen(60.0)
    process.kill()
    return Bench(command, expected, store, process.reported)


def campaign(options, folder: Path) -> tuple[list[kills.Killing], list[Fault]]:
    began = time.monotonic()
    draw = random.Random(options.seed)
    short = Command.write(folder / "short.toml", epochs=3, seeds=4, activations=["elu"])
    expected = reference(short, folder / "short")
    bench = half_way(short, folder, expected)
    if options.seconds:
        shares = [began + options.seconds * share for share in (0.2, 0.35, 0.6)]
        wanted, long = [10**6] * 3, short
        most, trials = 60, 1
    else:
        shares = [float("inf")] * 3
        wanted = [options.kills, options.kills // 2, options.kills // 4]
        activations = ["elu", "tanh", "softplus", "sigmoid"]
        long = Command.write(folder / "long.toml", epochs=EPOCHS, seeds=4, activations=activations)
        expected = reference(long, folder / "long")
        most, trials = options.damages, options.trials
    killing = []
    for at_once, enough, until in zip((1, 2, 4), wanted, shares, strict=True):
        # SIGKILL twice as often as each of the others
        ways = (kills.KILL, kills.KILL, *(kills.OTHERS if at_once == 4 else ()))
        killer = kills.Killer(
            long, folder, expected, at_once=at_once, seed=options.seed + at_once, ways=ways
        )
        killing.append(killer.run(enough, until))
        print(f"{killing[-1].kills} kills, {at_once} at once: {killing[-1].verdict}", flush=True)
    faults = [
        disks.file_size_limit(bench, folder, 2 * trials, draw),
        disks.full_disk(bench, folder, 2 * trials, draw),
        disks.readonly_disk(bench, folder, min(trials, 3)),
        disks.readonly_folder(bench, folder, min(trials, 3)),
        disks.foreign_folder(bench, folder, min(trials, 3)),
        disks.becoming_readonly(bench, folder, trials, draw),
        merges.merges(bench, folder, min(trials, 3), draw),
        clocks.jumping_clocks(bench, folder, trials, draw),
        *damage.damages(bench, folder, most, draw),
        damage.mended(bench, folder, 4 * trials, draw),
    ]
    if not options.seconds:  # starting a cluster alone takes half a minute
        num_nodes = max(1, options.kills // 40)
        faults.append(nodes.killed_nodes(long, expected, folder, num_nodes, draw))
    return killing, faults


def broken(killing: list[kills.Killing], faults: list[Fault]) -> list[str]:
    """Descriptions of everything that went wrong."""
    found = [text for each in killing for text in each.failures]
    found += [f"{each.at_once} at once: {each.verdict}" for each in killing if each.verdict]
    return found + [f"{fault.name}: {text}" for fault in faults for text in fault.wrong]


def tables(killing: list[kills.Killing], faults: list[Fault], origin: dict) -> str:
    versions = f"torch {origin['torch']}, Python {origin['python']}, commit {origin['commit']}"
    lines = [
        f"`{origin['command']}` (seed {origin['seed']}; {origin['device']}, {versions}, "
        f"{origin['date'][:10]}, {origin['minutes']} min).",
        "",
        "| SIGKILL at random moments | one process | two on one store "
        "| four on one store, with other blows |",
        "| --- | ---: | ---: | ---: |",
        *(f"| {' | '.join(row)} |" for row in kills.rows(killing)),
        "",
        "| fault | injected | stopped with error and hint | no effect | unnoticed or lost "
        "| went on to the same result |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for fault in faults:
        again = f"{fault.resumed} of {fault.tried}" if fault.tried else ""
        numbers = (fault.injected, fault.refused, fault.harmless, len(fault.wrong), again)
        lines.append(f"| {fault.name} | {' | '.join(map(str, numbers))} |")
    return "\n".join(lines) + "\n"


def write_docs(text: str, killing, faults, origin) -> None:
    """Writes the tables, and the raw numbers behind them."""
    write_between(ROOT / "docs" / "reliability.md", "faults", text)
    raw = {
        "origin": origin,
        "kills": [dataclasses.asdict(each) for each in killing],
        "faults": [dataclasses.asdict(fault) for fault in faults],
    }
    RESULTS.write_text(json.dumps(raw, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--kills",
        type=int,
        default=200,
        help="of one process; half as many of two, a quarter of four",
    )
    parser.add_argument("--trials", type=int, default=10, help="of each fault of a disk")
    parser.add_argument("--damages", type=int, default=5000, help="of each kind in each file")
    parser.add_argument("--seconds", type=float, help="instead of all these: about so long in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where stores are made; else a temporary one")
    parser.add_argument("--docs", action="store_true", help="write the tables and their numbers")
    options = parser.parse_args()
    torch.set_num_threads(1)  # else a fork would lack the others
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # and clean up
    began = time.monotonic()
    origin = provenance(torch.device("cpu"), shlex.join(["python", *sys.argv]))
    folder = Path(tempfile.mkdtemp(dir=options.folder))
    try:
        killing, faults = campaign(options, folder)
    finally:
        kill_the_living()
        shutil.rmtree(folder)
    minutes = round((time.monotonic() - began) / 60, 1)
    origin |= {"seed": options.seed, "minutes": minutes}
    text = tables(killing, faults, origin)
    print(text)
    if options.docs:
        write_docs(text, killing, faults, origin)
    problems = broken(killing, faults)
    for problem in problems[:20]:
        print(f"must not be: {problem}", file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
