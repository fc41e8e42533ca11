"""The law of the noise that each backend draws, from many draws: distance, moments, tails."""

import os

import torch

from qneurons.kernels import dispatch

# Raised by hand for the full test: 1e9 takes a minute and a half on two cores.
NUM_DRAWS = int(float(os.environ.get("QNEURONS_LAW_DRAWS", "0")))
TAILS = [1.0, 2.0, 3.0, 4.0, 4.5, 4.8]


def normal_tail(z: torch.Tensor) -> torch.Tensor:
    return 0.5 * torch.special.erfc(z * 0.5**0.5)


def test_the_draws_are_normal(backend):
    device = backend.device
    is_interpreted = backend.__name__ == dispatch.BACKENDS["cuda"].module and device == "cpu"
    num = 40_000 if is_interpreted else NUM_DRAWS or (10**9 if device == "cuda" else 10**7)
    size = min(num, 10**7)
    num_chunks = num // size
    bins = 2**16
    counts = torch.zeros(bins, dtype=torch.float64, device=device)
    moments = torch.zeros(6, dtype=torch.float64, device=device)
    tails = torch.zeros(len(TAILS), dtype=torch.float64, device=device)
    lagged = 0.0
    for chunk in range(num_chunks):
        eps = backend.normals(torch.tensor([chunk], device=device), size)[0]
        uniform = normal_tail(-eps.double()).float()
        counts += torch.histc(uniform, bins, 0, 1).double()
        power = torch.ones_like(eps, dtype=torch.float64)
        for order in range(6):
            power *= eps
            moments[order] += power.sum()
        magnitude = eps.abs()
        tails += torch.stack([(magnitude > z).sum() for z in TAILS])
        lagged += (eps[1:].double() * eps[:-1]).mean().item() / num_chunks
    cdf = (counts.cumsum(0) / num).cpu()
    distance = (cdf - torch.arange(1, bins + 1) / bins).abs().max().item()
    assert distance < max(1e-4, 1.95 / num**0.5)  # the second is chance's, one time in a thousand
    want = torch.tensor([0.0, 1, 0, 3, 0, 15], dtype=torch.float64)
    deviations = torch.tensor([1.0, 2, 15, 96, 945, 10170]).sqrt()
    errors = ((moments.cpu() / num - want) / deviations * num**0.5).abs()
    assert (errors < 6).all(), errors
    expected = 2 * num * normal_tail(torch.tensor(TAILS, dtype=torch.float64))
    tail_errors = (tails.cpu() - expected) / expected.clamp(min=1).sqrt()
    assert (tail_errors.abs() < 6).all(), tail_errors
    assert abs(lagged) < 6 / num**0.5
    print(
        f"\n{backend.__name__}: {num:.0e} draws, KS {distance:.1e}, moments off by "
        f"{[f'{e:.1f}' for e in errors.tolist()]} standard errors, tails at {TAILS} by "
        f"{[f'{e:.1f}' for e in tail_errors.tolist()]}"
    )


def test_neighbouring_seeds_are_independent(backend):
    num = 8192 if backend.device == "cpu" else 10**6
    seeds = torch.arange(-2, 3, device=backend.device)
    draws = backend.normals(seeds, num).double()
    correlation = draws @ draws.T / num
    off = correlation - torch.eye(5, device=backend.device)
    assert off.abs().max() < 6 * (2 / num) ** 0.5


def test_the_eight_normals_of_a_call_are_independent(backend):
    num = 4096 * (5 if backend.device == "cpu" else 250)
    draws = backend.normals(torch.tensor([1], device=backend.device), num)[0].double()
    slots = draws.reshape(-1, 8, 512).transpose(0, 1).flatten(1)
    for values in (slots, slots.square() - 1):
        correlation = values @ values.T / slots.shape[1]
        off = correlation - correlation.diag().diag()
        assert off.abs().max() < 6 * 2 / slots.shape[1] ** 0.5
