"""docs/reading-the-paper.md: its best numbers, the protocol, and which studies are trained."""

import re

from qneurons.report.claims import judge
from qneurons.report.final_values import is_q
from qneurons.schedules import Annealed
from qneurons.study.networks import EPS, MOMENTUM
from qneurons.study.runs import PAPER_PROTOCOL, study_names
from qneurons.study.spec import load_study
from tests.report.published.pages import ROOT, between, check, plain

PAPER_STUDIES = {f"paper-{network}" for network in PAPER_PROTOCOL}


def test_every_number_of_the_headline_is_computed_from_the_rows(
    publish, questions, results, frame, study
):
    cells = {run.cell for run in study.runs if run.network == "mnist-cnn"}
    finals = [f for f in results.finals["test_accuracy"] if f.cell.network == "mnist-cnn"]
    ranked = sorted(finals, key=lambda final: final.best.estimate.mean, reverse=True)
    best = {}
    for final in ranked:
        best.setdefault((final.cell.activation, is_q(final.setting)), final)

    def peak(activation):
        mean = best[activation, True].best.estimate
        return publish.interval(mean, form=".2f") + " %"

    of_cifar = [f for f in results.finals["test_accuracy"] if f.cell.network == "cifar-cnn"]
    top = max(of_cifar, key=lambda final: final.best.estimate.mean)
    assert (top.cell.activation, top.setting, top.cell.dropout) == ("elu", "a9", True)
    plain_cifar = max(
        (f for f in of_cifar if f.setting == "base"), key=lambda final: final.best.estimate.mean
    )
    assert plain_cifar.cell.activation == "elu"
    rows_of_cifar = frame.filter(network="cifar-cnn")
    elu, tanh = best["elu", True], best["tanh", True]
    assert ranked[0] is best["softplus", True]
    second = next(f for f in ranked if f.cell.activation != "softplus")
    assert second is best["relu", True]
    assert (elu.setting, elu.cell.dropout) == (tanh.setting, tanh.cell.dropout) == ("a5", True)
    plain_elu = max(
        f.best.estimate.mean for f in finals if (f.cell.activation, f.setting) == ("elu", "base")
    )
    rows = frame.filter(network="mnist-cnn")
    lost = {cell: found for cell in results.cells if (found := results.untrained(cell))}
    runs = study.runs
    failing = sum(r.setting in lost.get(r.cell, ()) for r in runs)
    rates = questions.read("tanh-normalisation")
    table = questions.normalisation_table(rates)
    after = {
        (network, at): dict(zip(table.columns[2:], accuracies, strict=True))
        for network, at, *accuracies in table.rows
    }
    (rate,) = {run.learning_rate for run in runs if run.network == "mnist-cnn"}
    free = after["mnist-cnn-no-norm", str(rate)]
    slower, slowest = (after["mnist-cnn", at]["limit"] for at in ("0.02", "0.01"))
    printed = {v.claim.id: v.claim.level for v in judge(results)[-3:-1]}
    table = questions.moved_images_table(questions.read_moved()).rows
    moved = {
        (*cell.split(", ")[1:], setting): (float(best), float(highest))
        for cell, moves, setting, *_, best, highest in table
        if moves != "none" and cell.startswith("mnist") and best
    }
    cifar = {
        (moves, setting): float(best)
        for cell, moves, setting, *_, best, _ in table
        if cell == "cifar-cnn, elu, dropout"
    }
    shifted, mirrored, all_moves = list(dict.fromkeys(m for m, _ in cifar))[1:]
    assert (shifted, mirrored) == ("shift=0.1", "shift=0.1 flip=horizontal")
    assert all(cifar[m, "a9"] > cifar[m, "base"] for m in (shifted, mirrored, all_moves))
    assert max(cifar[all_moves, s] for s in ("base", "a9")) < 82.9 < cifar[shifted, "base"]
    of_elu = {key[1:]: numbers for key, numbers in moved.items() if key[0] == "elu"}
    plain, limit, a5 = (
        [of_elu[dropout, setting] for dropout in ("dropout", "no dropout")]
        for setting in ("base", "limit", "a5")
    )
    assert all(round(h - 100 * printed["mnist-best"], 2) >= 0 for _, h in plain)
    assert max(best for best, _ in moved.values()) < 100 * printed["mnist-best"]
    (peak_of_tanh,) = {moved["tanh", dropout, "base"][0] for dropout in ("dropout", "no dropout")}
    assert all(moved["tanh", d, "a5"][0] <= peak_of_tanh for d in ("dropout", "no dropout"))
    assert plain[0][0] == plain[1][0]
    check(
        between("docs/reading-the-paper.md", "headline"),
        [
            f"Of the CNN's {len(cells)} cells {len({f.cell for f in of_cifar})} are trained, ELU",
            f"best mean is {publish.interval(top.best.estimate, form='.2f')} %, of q-ELU at in "
            f"epoch {top.best.epoch}",
            f"is {100 * rows_of_cifar['test_accuracy'].max():.2f} %. Plain ELU peaks at "
            f"{100 * plain_cifar.best.estimate.mean:.2f} %",
            f"has {plain[0][0]} % in its best epoch, with dropout and without. With dropout its "
            f"limit has {limit[0][0]} % and {a5[0][0]:.2f} %, without it {limit[1][0]} % and "
            f"{a5[1][0]} %",
            f"and with {questions.read_moved()['seed'].n_unique()} seeds plain ELU",
            f"also with plain ELU ({questions.read_moved()['seed'].n_unique()} seeds)",
            "passes 82.9 %",
            f"plain ELU has {cifar[shifted, 'base']} % in its best epoch and "
            f"{cifar[shifted, 'a9']} %; with shifts and mirroring {cifar[mirrored, 'base']} % and "
            f"{cifar[mirrored, 'a9']:.2f} %",
            f"it is less, {cifar[all_moves, 'base']} % and {cifar[all_moves, 'a9']} %",
            f"up to {max(h for _, h in of_elu.values()):.2f} % (plain ELU up to "
            f"{max(h for _, h in plain):.2f} %)",
            f"it has {peak_of_tanh} % in its best epoch",
            *("CIFAR-10", f"MNIST, {100 * printed['mnist-best']:.2f} %"),
            f"{100 * printed['cifar-best']:.1f} %",
            f"Of the CNN's {len(cells)} cells {len({f.cell for f in finals})} are trained",
            f"q-ELU is {peak('elu')}, at with dropout in epoch {elu.best.epoch}",
            f"With q-tanh it is {peak('tanh')}, at with dropout",
            f"a q-softplus, {peak('softplus')}, and a q-ReLU, {peak('relu')}",
            f"is {100 * rows['test_accuracy'].max():.2f} %, of {len(rows):,} that were recorded",
            f"Plain ELU peaks at {100 * plain_elu:.2f} %",
            f"nearly reaches {100 * printed['mnist-best']:.2f} %",
            f"learning rate of {rate}",
            f"({sum(sum(counts.values()) for counts in lost.values())} of {failing} runs)",
            f"with {rates['seed'].n_unique()} seeds): after {rates['epoch'].max()} epochs at "
            f"{rate} the limit has {free['limit']} %",
            f"and tanh itself {free['base']} %",
            f"it has {slower} % at 0.02 and {slowest} % at 0.01",
            f"fails at {rate} in the same way",
        ],
    )


def test_the_protocol_of_the_page_is_that_of_the_study(study):
    page = plain((ROOT / "docs" / "reading-the-paper.md").read_text())
    (mnist, rate), (cifar, low) = (PAPER_PROTOCOL[name] for name in ("mnist-cnn", "cifar-cnn"))
    run = study.runs[0]
    for phrase in (
        f"batches of {mnist} (MNIST) or {cifar} (CIFAR)",
        f"a learning rate of {rate} (MNIST) or {low} (CIFAR)",
        f"always with φ = {run.phi}",
        f"{study.epochs} epochs",
        f"the mean of {len({run.seed for run in study.runs})} runs",
        f"ε = {EPS}, momentum {1 - MOMENTUM}",
        f"annealed from 1, 5 or 9 with γ = {Annealed.gamma}",
    ):
        assert phrase in page, phrase


def test_studies_without_rows_are_said_to_be_untrained(questions):
    page = (ROOT / "docs" / "reading-the-paper.md").read_text()
    untrained = re.findall(r"`([\w-]+)` \|.*not trained yet \|", page)
    for name in questions.STUDIES:
        runs, rows = {run.id for run in load_study(name).runs}, questions.read(name)
        assert (name in untrained) == (rows is None)
        assert rows is None or set(rows["run"]) <= runs
    assert set(study_names()) - set(questions.STUDIES) == {"paper", "quickstart", *PAPER_STUDIES}
