"""What a run draws."""

import torch

from qneurons.study.packs.randomness import orders, stream, uniforms, words


class TestStreams:
    def test_a_use_of_its_own_for_every_name(self):
        uses = [(0, "order", 1), (0, "order", 2), (1, "order", 1), (0, "weights"), (11,), (1, 1)]
        assert len({stream(*use) for use in uses}) == len(uses)
        assert all(0 <= stream(*use) < 2**63 for use in uses)

    def test_the_same_for_good(self):
        assert stream(0, "order", 1) == 125578804223736978

    def test_words_are_spread_over_63_bits(self):
        drawn = words(torch.tensor([[1], [2]]), torch.arange(4096))
        assert drawn.unique().numel() == drawn.numel()
        assert drawn.min() >= 0
        bits = (drawn.flatten()[:, None] >> torch.arange(63)) & 1
        assert ((bits.double().mean(0) - 0.5).abs() < 5 * 0.5 / 8192**0.5).all()

    def test_every_counter_counts(self):
        zero, one = torch.tensor(0), torch.tensor(1)
        drawn = [words(one, *c) for c in [(zero, zero), (one, zero), (zero, one)]]
        assert len({int(d) for d in drawn}) == 3

    def test_uniforms(self):
        drawn = uniforms(1, 3000, 2, torch.device("cpu"))
        assert drawn.dtype == torch.float64
        assert 0 <= drawn.min() < 0.002 < 0.998 < drawn.max() < 1
        assert ((drawn.mean(0) - 0.5).abs() < 5 * (1 / 12 / 3000) ** 0.5).all()
        assert not torch.equal(drawn[:, 0], drawn[:, 1])
        assert torch.equal(drawn[:10], uniforms(1, 10, 2, torch.device("cpu")))

    def test_orders_are_permutations(self):
        order = orders(torch.tensor([1, 2]), 1000)
        assert torch.equal(order.sort(1).values, torch.arange(1000).expand(2, -1))
        assert not torch.equal(order[0], order[1])
        assert torch.equal(order[:1], orders(torch.tensor([1]), 1000))
