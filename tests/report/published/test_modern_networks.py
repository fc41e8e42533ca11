"""Modern networks: their tables and sentences follow from the published stores."""

import re
import sys

import pytest
import torch
from torch import nn

from qneurons.report.contrasts import paired
from qneurons.report.inference import estimate
from tests.report.published.pages import ROOT, between, check, check_section


def nats(gain, digits):
    return f"{gain.mean:.{digits}f} [{gain.low:.{digits}f}, {gain.high:.{digits}f}]"


@pytest.fixture
def of_small_gpt(small_gpt, modern):
    """What RESULTS and README say of the small GPT, after a look at the outcomes."""
    annealed, finals = small_gpt.task.annealed, small_gpt.finals
    gains = {cell: row for cell, row in small_gpt.over_base.items() if row}
    outcomes = {cell: row.outcome for cell, row in gains.items()}
    assert outcomes == {
        **{(f, setting): "better" for f in ("gelu", "silu") for setting in ("limit", "c0.1")},
        **{("gelu", annealed): "worse", ("relu", annealed): "worse", ("silu", annealed): "unclear"},
        **{("relu", "relu2"): "better", ("relu", "rrelu"): "worse"},
    }
    common = small_gpt.over_base_common
    assert {cell: row.outcome for cell, row in common.items() if row} == outcomes | {
        **{("relu", setting): "unclear" for setting in (annealed, "relu2")},
        **{("gelu", annealed): "unclear", ("silu", annealed): "better"},
    }
    (rate,) = {small_gpt.chosen["gelu", s][1] for s in ("base", "limit", "c0.1")}
    assert rate == small_gpt.task.middle_rate
    for f in ("gelu", "silu"):
        noise, large = (
            estimate(
                paired(small_gpt.finals_common[f, s], small_gpt.finals_common[f, "limit"]).values()
            )
            for s in ("c0.1", annealed)
        )
        assert noise.low < 0 < noise.high
        assert large.low > 0
    ends = {cell: final.estimate.mean for cell, final in small_gpt.finals_common.items()}
    assert min(ends, key=ends.get) == ("gelu", "limit")
    means = {cell: final.estimate.mean for cell, final in finals.items()}
    rivals = {cell: mean for cell, mean in means.items() if cell[1] in modern[0].RIVALS}
    assert min(means, key=means.get) == ("gelu", "limit")
    assert min(rivals, key=rivals.get) == ("relu", "relu2")
    assert small_gpt.best_plain == ("gelu", "base")
    assert small_gpt.over_best["relu", "relu2"].outcome == "unclear"
    unsteady = {cell for cell, (_, rate) in small_gpt.chosen.items() if rate == 0.02}
    assert unsteady == {("gelu", annealed), *(("silu", s) for s in ("base", "limit", annealed))}
    spreads = {cell: final.estimate.sd for cell, final in finals.items()}
    steady = max(sd for cell, sd in spreads.items() if cell not in unsteady)
    assert min(spreads[cell] for cell in unsteady) > 4 * steady
    (limit_s, _), (base_s, _) = (small_gpt.costs(("gelu", s)) for s in ("limit", "base"))
    best, rival, plain = (
        f"{means[cell]:.4f}" for cell in (("gelu", "limit"), ("relu", "relu2"), ("gelu", "base"))
    )
    gpt = modern[0].modern.gpt
    network = gpt.GPT(gpt.SIZES[small_gpt.task.size], nn.GELU)
    return {
        "README.md": [
            f"lowers GELU's test loss from {plain} to {best} nats per byte, a gain of "
            f"{nats(gains['gelu', 'limit'].gain, 4)}. None of the {len(means)} settings",
        ],
        "RESULTS.md": [
            f"a GPT of {sum(part.numel() for part in network.parameters()):,} parameters",
            f"by the limit {nats(gains['gelu', 'limit'].gain, 4)} nats, and by "
            f"{nats(gains['gelu', 'c0.1'].gain, 4)} nats",
            f"by the limit {nats(common['silu', 'limit'].gain, 4)} nats at the common rate, and "
            f"{nats(gains['silu', 'limit'].gain, 3)} nats at the rates",
            f"{nats(common['silu', 'c0.1'].gain, 4)} and "
            f"{nats(gains['silu', 'c0.1'].gain, 3)} nats",
            f"lowest mean of all {len(means)} settings**, a loss of {best}, at the common rate",
            f"The best rival, ReLU², the square of ReLU, has {rival} at its own rate",
            f"plain GELU, which has {plain}",
            f"takes {limit_s / base_s:.2f} times as long as",
            "chose the rate 0.02 for",
            f"there the limit has the rate {small_gpt.chosen['silu', 'limit'][1]}, and the common",
        ],
    }


@pytest.fixture
def of_small_resnet(publish, small_resnet, modern):
    """What RESULTS and README say of the small ResNet, after a look at the outcomes."""
    task, annealed = small_resnet.task, small_resnet.task.annealed
    gains = {cell: row for cell, row in small_resnet.over_base.items() if row}
    outcomes = {cell: row.outcome for cell, row in gains.items()}
    assert outcomes == {
        **{("gelu", setting): "worse" for setting in ("limit", "c0.1", annealed)},
        **{("silu", "limit"): "unclear", ("silu", "c0.1"): "unclear", ("silu", annealed): "worse"},
        **{("relu", annealed): "unclear", ("relu", "rrelu"): "worse", ("relu", "relu2"): "worse"},
    }
    means = {cell: final.estimate.mean for cell, final in small_resnet.finals.items()}
    assert max(means, key=means.get) == ("gelu", "base")
    chosen = {cell: rate for cell, (_, rate) in small_resnet.chosen.items()}
    smaller, small, equal, large, larger = task.rates
    assert {chosen[cell] for cell in (("silu", "base"), ("silu", "limit"))} == {large}
    assert larger not in chosen.values()
    assert small_resnet.best_plain == ("silu", "base")
    assert small_resnet.over_best["gelu", "base"].outcome == "unclear"
    assert not small_resnet.has_common

    def searched(*cell):
        """By rate, the validation accuracy in the one seed of the search, in %."""
        finished = small_resnet.store.finished
        trials = (modern[0].modern.searched(task, cell, rate, finished) for rate in task.rates)
        return [100 * trial.metrics[task.validation][-1] for (trial,) in trials]

    assert max(searched("relu", "relu2")) < 15  # guessing has 10
    ahead, of_gelu = (
        [q - f for q, f in zip(searched(name, "limit"), searched(name, "base"), strict=True)]
        for name in ("silu", "gelu")
    )
    assert abs(ahead[2]) < 0.3
    assert of_gelu[0] < 0
    assert max(of_gelu) < 0.6
    resnet = modern[0].modern.cifar_resnet
    network = resnet.ResNet(resnet.SIZES[task.size].widths, nn.GELU, torch.zeros(24, 3, 2, 2))
    num_parameters = sum(part.numel() for part in network.parameters() if part.requires_grad)

    def of(activation, setting):
        return publish.interval(gains[activation, setting].gain, form="+.2f")

    return {
        "README.md": ["CIFAR-10", f"the limit loses, {of('gelu', 'limit')} points"],
        "RESULTS.md": [
            f"a ResNet of {num_parameters:,} parameters",
            f"with the limit {of('gelu', 'limit')}, with {of('gelu', 'c0.1')}, and with "
            f"{of('gelu', annealed)}",
            f"The limit is at {of('silu', 'limit')} and at {of('silu', 'c0.1')}, which is not",
            f"loses {of('silu', annealed)}",
            f"is at {of('relu', annealed)}, not significant after the correction. "
            f"RReLU loses {of('relu', 'rrelu')}",
            f"highest mean**, {100 * means['gelu', 'base']:.2f} %, not significantly ahead of "
            f"plain SiLU with {100 * means['silu', 'base']:.2f} %",
            f"the last one added, {larger:g}, was chosen for no setting",
            f"at the rates {smaller} and {small} the limit of SiLU is ahead of SiLU, by "
            f"{ahead[0]:.1f} and {ahead[1]:.1f} points. At {equal:g} they are about equal, and at "
            f"{large:g} and {larger:g} it is behind, by {-ahead[3]:.1f} and {-ahead[4]:.1f}. Both "
            f"are best at {large:g}",
        ],
    }


@pytest.fixture
def of_long_gpt(small_gpt, long_gpt):
    """What RESULTS says of the longer training of the small GPT."""
    outcomes = {cell: row.outcome for cell, row in long_gpt.over_base.items() if row}
    limits = {(f, "limit"): "better" for f in ("gelu", "silu")}
    assert outcomes == {**limits, ("relu", "relu2"): "unclear"}
    gelu, silu = (long_gpt.over_base[cell].gain for cell in limits)
    assert 0.5 < gelu.mean / small_gpt.over_base["gelu", "limit"].gain.mean < 0.6
    means = {cell: final.estimate.mean for cell, final in long_gpt.finals.items()}
    cells = ("gelu", "limit"), ("gelu", "base"), ("relu", "relu2")
    best, plain, rival = (f"{means[cell]:.4f}" for cell in cells)
    assert min(means, key=means.get) == ("gelu", "limit")
    task = long_gpt.task
    assert {cell[0] for cell, (_, rate) in long_gpt.chosen.items() if rate == max(task.rates)} == {
        "gelu"
    }
    plain_rate, limit_rate = (long_gpt.chosen["silu", s][1] for s in ("base", "limit"))
    assert not long_gpt.has_common
    assert (task.epochs, len(task.rates)) == (3 * small_gpt.task.epochs, 4)
    return [
        f"SiLU {nats(silu, 4)} nats, and GELU {nats(gelu, 4)} nats",
        f"the lowest mean of the {len(means)} settings, a loss of {best}. Plain GELU has {plain}, "
        f"and ReLU², which is not significantly ahead of ReLU, has {rival}.",
        f"SiLU has the rate {plain_rate}, and its limit {limit_rate}.",
    ]


def test_the_numbers_on_modern_networks(
    publish, digits, of_small_gpt, of_long_gpt, of_small_resnet
):
    gains = {cell: row for cell, row in digits.over_base.items() if row and cell[1] != "rrelu"}
    better, worse = (
        {cell for cell, row in gains.items() if row.outcome == outcome}
        for outcome in ("better", "worse")
    )
    annealed = digits.task.annealed
    assert better == {*(("elu", s) for s in ("limit", "c0.1", annealed)), ("tanh", "c0.1")}
    assert worse == {("mish", annealed)}
    ends = {cell: final.estimate.mean for cell, final in digits.finals.items()}
    top, mean = max(ends.items(), key=lambda item: item[1])
    assert top == ("gelu", "base")
    elu, tanh = (digits.over_base_common[f, "limit"].gain for f in ("elu", "tanh"))
    own_tanh = publish.interval(gains["tanh", "limit"].gain)
    second, mean_of_second = sorted(ends.items(), key=lambda item: item[1])[-2]
    assert second == ("silu", "c0.1")
    check_section(
        "Modern networks",
        [
            "CIFAR-10",
            *of_small_gpt["RESULTS.md"],
            *of_long_gpt,
            *of_small_resnet["RESULTS.md"],
            f"by the limit {publish.interval(elu)} points at the common rate, and "
            f"{publish.interval(gains['elu', 'limit'].gain)} points at the rates",
            f"by the limit {publish.interval(tanh)} points.",
            f"significantly, {publish.interval(gains['tanh', 'c0.1'].gain)} points",
            f"loses {publish.interval(gains['mish', annealed].gain)} points.",
            f"the limit gains {own_tanh} points",
            f"highest mean**, {100 * mean:.2f} %; of SiLU has {100 * mean_of_second:.2f} %",
            f"The {len(digits.task.final_seeds)} test sets are drawn from the same 1,797 rows",
        ],
    )
    of_readme = [
        *of_small_gpt["README.md"],
        *of_small_resnet["README.md"],
        f"the limit gains {publish.interval(elu)} points with ELU and "
        f"{publish.interval(tanh)} with tanh, at one learning rate",
        f"Plain GELU has the highest mean, {100 * mean:.2f} %",
    ]
    check(between("README.md", "results").partition("**Networks of today.**")[2], of_readme)


def test_modern_networks_at_one_rate(digits):
    common = digits.over_base_common
    gains = {cell: row for cell, row in common.items() if row and cell[1] != "rrelu"}
    better = {cell for cell, row in gains.items() if row.outcome == "better"}
    settings = "limit", "c0.1", digits.task.annealed
    assert better == {(f, setting) for f in ("elu", "tanh") for setting in settings}
    assert not [cell for cell, row in gains.items() if row.outcome == "worse"]
    ends = [final.estimate.mean for final in digits.finals_common.values()]
    assert max(ends) == digits.finals["gelu", "base"].estimate.mean
    lowest = sorted(digits.finals_common, key=lambda c: digits.finals_common[c].estimate.mean)[:2]
    assert set(lowest) == {("elu", "base"), ("tanh", "base")}
    for activation in ("silu", "mish"):
        of_it = [f.estimate.mean for c, f in digits.finals_common.items() if c[0] == activation]
        assert max(ends) - max(of_it) < 0.001
    unlucky = {
        cell
        for cell, final in digits.finals.items()
        if final.estimate.mean < digits.finals_common[cell].estimate.mean
    }
    annealed = digits.task.annealed
    of_tanh = {("tanh", setting) for setting in ("limit", "c0.1", annealed)}
    assert unlucky == {("elu", "base"), ("mish", annealed)} | of_tanh
    largest = {cell for cell, (_, r) in digits.chosen.items() if r == max(digits.task.rates)}
    assert {cell for cell in largest if cell[1] == "base"} == {("elu", "base"), ("tanh", "base")}


def test_tables_of_modern_networks_follow_from_the_published_stores(modern, tmp_path, monkeypatch):
    publish_modern, stores = modern
    page = tmp_path / "RESULTS.md"
    page.write_text("<!-- modern -->\n<!-- /modern -->\n")
    monkeypatch.setattr(publish_modern, "ROOT", tmp_path)
    monkeypatch.setattr(publish_modern, "MODERN", tmp_path / "made")
    monkeypatch.setattr(sys, "argv", ["publish_modern.py", str(stores)])
    publish_modern.main()
    assert page.read_text() in (ROOT / "RESULTS.md").read_text()
    folders = tmp_path / "made", ROOT / "results" / "modern"
    made, published = (
        {
            path.parent.name: re.sub(r"- report made with: .*", "", path.read_text())
            for path in folder.glob("*/report.md")
        }
        for folder in folders
    )
    assert made == published
    assert set(made) == {path.name for path in stores.iterdir()}
