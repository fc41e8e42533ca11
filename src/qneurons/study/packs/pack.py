"""Trains a pack of runs, one epoch after another, by the paper's protocol."""

import contextlib
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from qneurons.noise import seeded_delta
from qneurons.study.data import ARRAYS, NUM_DRAWS, Dataset, move, parse_augmentation
from qneurons.study.packs.means import MeanTables
from qneurons.study.packs.network import PackedNetwork, evaluation_batch_size
from qneurons.study.packs.randomness import initial_states, orders, stream, uniforms, words
from qneurons.study.packs.segments import Segment
from qneurons.study.runs import Epoch, Run, packable, parse_setting

PRECISIONS = ("fp32", "tf32", "bf16", "fp64")
GRADIENT_NOISE_DECAY = 0.55  # of the variance, as in Neelakantan et al. (2015)
_RECORDED = {  # from which images, in which mode; 0 is the loss, 1 the accuracy
    "train_loss": ("train", "sample", 0),
    "train_loss_limit": ("train", "limit", 0),
    "test_loss": ("test", "sample", 0),
    "test_accuracy": ("test", "sample", 1),
    "test_loss_limit": ("test", "limit", 0),
    "test_accuracy_limit": ("test", "limit", 1),
    "test_loss_mean": ("test", "mean", 0),
    "test_accuracy_mean": ("test", "mean", 1),
}
_FULL_EVERY = 5  # epochs: to evaluate everything would take a third of each
_FULL_LAST = 10  # epochs, or the last tenth if that is more: their mean is a run's final value
_MEANS_AHEAD = 16  # epochs whose means are computed together on CUDA, as fast as one
_STEPS_AHEAD = 64  # the host queues at most so many before it asks whether to stop


class Pack:
    """Runs that are trained together on one device.

    Everything random is a function of a run's seed, the epoch and the step. So a run can continue
    from its tensors after an epoch, alone or in any pack, and runs with the same seed share their
    initial weights, the order and the moves of their data, and their draws.

    Args:
        runs: with equal :func:`packable`. Runs with the same activation and kind of setting should
            be neighbours, for speed.
        device: where to train. On CUDA a step is one CUDA graph.
        precision: one of ``PRECISIONS``; ``"bf16"`` is for activations, by autocast.
        num_epochs: how many are planned. Everything is evaluated after the first epoch, every fifth
            one, and the last ten (or the last tenth, if that is more); after the others only the
            test set in a draw.
        state: what :meth:`state` returned for the same runs after ``epoch`` epochs.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        dataset: Dataset,
        *,
        device: torch.device,
        precision: str,
        num_epochs: int = 0,
        state: dict[str, Tensor] | None = None,
        epoch: int = 0,
    ) -> None:
        assert len({packable(run) for run in runs}) == 1, "these runs cannot share a pack"
        assert precision in PRECISIONS, precision
        self.runs, self.epoch, self.precision, self.device = tuple(runs), epoch, precision, device
        self.num_epochs = num_epochs
        self.settings = [parse_setting(run.setting) for run in runs]
        self.dtype = torch.float64 if precision == "fp64" else torch.float32
        first, shape = runs[0], dataset.x_train.shape[1:]
        dataset = dataset.holding_out(first.held_out)
        if state is None:
            state = initial_states(runs, shape)
        tensors = {name: value.to(device, self.dtype, copy=True) for name, value in state.items()}
        self.network = PackedNetwork(runs, shape, tensors)
        self.parameters = [value.requires_grad_() for value in self.network.parameters()]
        self.updated = self.network.velocities() if first.momentum else self.parameters
        self.data = [getattr(dataset, name).to(device) for name in ARRAYS]
        self.lam = [0.0] * len(runs)  # until an epoch begins
        self.means = self.trained_means = MeanTables(first.phi, self.network.lam)
        self.chunk = evaluation_batch_size(first.network, shape)
        self.batch_size = first.batch_size
        self.num_steps = -(-len(dataset.x_train) // self.batch_size)
        noisy = [i for i, setting in enumerate(self.settings) if setting.eta]
        self.noisy = torch.tensor(noisy, dtype=torch.int64, device=device)
        self._allocate(len(dataset.x_train))
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}

    def _allocate(self, num_images: int) -> None:
        """What a step reads. Every epoch refills it in place, because CUDA graphs need that."""
        seeds = list(dict.fromkeys(run.seed for run in self.runs))
        num_draws = self.network.num_draws + (len(self.parameters) if len(self.noisy) else 0)
        integers: dict[str, Any] = {"dtype": torch.int64, "device": self.device}
        floats: dict[str, Any] = {"dtype": self.dtype, "device": self.device}
        self.distinct_seeds = seeds
        self.which_order = torch.tensor([seeds.index(run.seed) for run in self.runs], **integers)
        self.order = torch.empty(len(seeds), num_images, **integers)
        moved = [(run.seed, run.augment) for run in self.runs if run.augment != "none"]
        self.distinct_moves = list(dict.fromkeys(moved))
        which = [self.distinct_moves.index(pair) for pair in moved]
        self.which_moves = torch.tensor(which, **integers)
        self.moves = torch.empty(len(self.distinct_moves), num_images, 2, 3, **floats)
        self.seeds = torch.empty(self.num_steps, num_draws, len(self.runs), **integers)
        self.rates = torch.empty(self.num_steps, len(self.runs), **floats)
        self.deviations = torch.empty(self.num_steps, len(self.noisy), **floats)
        self.step = torch.zeros(1, **integers)

    # --- one epoch --------------------------------------------------------------------------------

    def train_epoch(self, stop: Callable[[], bool] = lambda: False) -> list[Epoch] | None:
        """Trains and evaluates one epoch; None if stopped within it, then discard the pack."""
        start = time.perf_counter()
        with computing(self.precision, self.device):
            self._begin(self.epoch + 1)
            for step in range(self.num_steps):
                if stop():
                    return None
                left = self.order.shape[1] - step * self.batch_size
                self._train(min(self.batch_size, left))
                if self.device.type == "cuda" and step % _STEPS_AHEAD == 0:
                    torch.cuda.synchronize(self.device)
            self.epoch += 1
            return self._record(start, stop)

    def state(self) -> dict[str, Tensor]:
        """Copies of all tensors on the CPU; the first dimension is the run."""
        return {k: v.detach().to("cpu", copy=True) for k, v in self.network.tensors.items()}

    def _begin(self, epoch: int) -> None:
        """Draws order and moves of images and the seeds of steps; sets λ, means and rates."""
        self.lam = [setting.lam(epoch) for setting in self.settings]
        self.network.set_lam(self.lam)
        # Computed anew, because tables that are computed together with others may be rounded
        # otherwise, and a resumed run would not be the same.
        self.trained_means = MeanTables(self.means.phi, self.network.lam)
        self.network.set_means(self.trained_means, self.lam, "mean")
        streams = [stream(seed, "order", epoch) for seed in self.distinct_seeds]
        self.order.copy_(orders(torch.tensor(streams, device=self.device), self.order.shape[1]))
        for moves, (seed, augment) in zip(self.moves, self.distinct_moves, strict=True):
            of_epoch = stream(seed, "augmentation", epoch)
            draws = uniforms(of_epoch, len(moves), NUM_DRAWS, self.device)
            moves.copy_(parse_augmentation(augment).matrices(draws))
        self.seeds.copy_(self._seeds("training", epoch, *self.seeds.shape[:2]))
        first = (epoch - 1) * self.num_steps
        steps = torch.arange(first, first + self.num_steps, dtype=torch.float64)
        rates, decays = (
            torch.tensor([getattr(run, name) for run in self.runs], dtype=torch.float64)
            for name in ("learning_rate", "learning_rate_decay")
        )
        self.rates.copy_(rates * (1 - decays) ** steps[:, None])
        etas = torch.tensor([s.eta for s in self.settings if s.eta], dtype=torch.float64)
        self.deviations.copy_((etas / (1 + steps[:, None]) ** GRADIENT_NOISE_DECAY).sqrt())
        self.step.zero_()

    def _seeds(self, use: str, epoch: int, num_steps: int, num_draws: int) -> Tensor:
        """Seeds of step × draw × run."""
        streams = torch.tensor([stream(r.seed, use, epoch) for r in self.runs], device=self.device)
        steps, draws = (torch.arange(num, device=self.device) for num in (num_steps, num_draws))
        return words(streams, steps[:, None, None], draws[:, None])

    def _train(self, batch_size: int) -> None:
        if self.device.type != "cuda":
            self._train_eagerly(batch_size)
            return
        if batch_size not in self._graphs:
            self._capture(batch_size)
        self._graphs[batch_size].replay()

    def _train_eagerly(self, batch_size: int) -> None:
        """One step of every run, as a deterministic function of tensors."""
        x_train, y_train, *_ = self.data
        batch = torch.arange(batch_size, device=self.device) + self.step * self.batch_size
        picked = self.order.index_select(1, batch).index_select(0, self.which_order)
        seeds = self.seeds.index_select(0, self.step).squeeze(0)
        # Copies whole images; on the CPU x_train[picked] would copy pixel by pixel.
        batch_images = x_train.index_select(0, picked.flatten()).unflatten(0, picked.shape)
        images = _scaled(batch_images, self.dtype)
        if self.distinct_moves:
            moves = self.moves.index_select(1, batch).index_select(0, self.which_moves)
            images = move(images.flatten(0, 1), moves.flatten(0, 1)).view(images.shape)
        drawing = seeds[: self.network.num_draws]
        logits = self.network(images.transpose(1, 2), drawing, training=True)
        losses = F.cross_entropy(logits, y_train[picked], reduction="none").mean(1)
        self._change_parameters(losses, seeds[self.network.num_draws :])
        self.step += 1

    @torch.no_grad()
    def _change_parameters(self, losses: Tensor, noise_seeds: Tensor) -> None:
        """A step of SGD: the changes are the gradients of -rate × loss.

        With momentum, as in Keras, velocity = momentum × velocity + change, and the velocity is
        added to the parameter.
        """
        momentum = self.runs[0].momentum
        rates = self.rates.index_select(0, self.step).squeeze(0)
        changes = torch.autograd.grad(losses, self.parameters, -rates, allow_unused=True)
        # The change is None for the weights of dense layers: backward has updated them already.
        pairs = zip(self.updated, changes, strict=True)
        left = {updated: change for updated, change in pairs if change is not None}
        if momentum:
            torch._foreach_mul_(list(left), momentum)
        torch._foreach_add_(list(left), list(left.values()))
        if len(self.noisy):
            self._add_noise(rates, noise_seeds)
        if momentum:
            torch._foreach_add_(self.parameters, self.updated)

    def _add_noise(self, rates: Tensor, noise_seeds: Tensor) -> None:
        deviation = rates[self.noisy] * self.deviations.index_select(0, self.step).squeeze(0)
        noise_seeds = noise_seeds.index_select(1, self.noisy)
        zero = torch.zeros_like(deviation[:1])
        for updated, seed in zip(self.updated, noise_seeds, strict=True):
            # Normal noise is δ with φ = 0 and λ its standard deviation.
            shape, size = (len(seed), *updated.shape[1:]), updated[0].numel()
            noise = seeded_delta(shape, seed, deviation, zero, size, dtype=updated.dtype)
            updated.index_add_(0, self.noisy, noise, alpha=-1)

    def _capture(self, batch_size: int) -> None:
        """Captures a step as a CUDA graph, and restores what the warm-up has changed."""
        changed = [*self.network.tensors.values(), self.step]
        kept = [tensor.detach().clone() for tensor in changed]
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for _ in range(2):  # libraries choose kernels, Triton compiles
                self.step.zero_()  # the capture may come at the last step
                self._train_eagerly(batch_size)
        torch.cuda.current_stream(self.device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._train_eagerly(batch_size)
        with torch.no_grad():
            for tensor, value in zip(changed, kept, strict=True):
                tensor.copy_(value)
        self._graphs[batch_size] = graph

    # --- evaluation -------------------------------------------------------------------------------

    def _is_full(self, epoch: int) -> bool:
        """True if everything is evaluated after an epoch, not only the test set in a draw."""
        num_last = max(_FULL_LAST, self.num_epochs // 10)
        return epoch == 1 or epoch % _FULL_EVERY == 0 or epoch > self.num_epochs - num_last

    def _record(self, start: float, stop: Callable[[], bool]) -> list[Epoch] | None:
        sets = {"train": self.data[:2], "test": self.data[2:]}
        noisy = [segment for segment in self.network.segments if segment.kind == "q"]
        everyone = slice(0, len(self.runs))
        # For the others all modes are the same.
        drawing = slice(noisy[0].runs.start, noisy[-1].runs.stop) if noisy else slice(0, 0)
        plan, losses = [("test", "sample")], ["test_loss"]
        if self._is_full(self.epoch):
            self._add_means(noisy)
            plan += [("train", "sample"), ("test", "limit"), ("test", "mean")]
            losses.append("train_loss")
        if self.epoch % 10 == 0:
            plan.append(("train", "limit"))
        missing = torch.full((2, len(self.runs)), math.nan, dtype=torch.float64, device=self.device)
        results: defaultdict[tuple[str, str], Tensor] = defaultdict(lambda: missing)
        for which, mode in plan:
            images, labels = sets[which]
            runs = everyone if mode == "sample" else drawing
            found = results[which, "sample"].clone()
            if self.runs[runs]:
                totals = self._evaluate(runs, images, labels, mode, stop)
                if totals is None:
                    return None
                found[:, runs] = totals
            results[which, mode] = found
        columns = [results[which, mode][i] for which, mode, i in _RECORDED.values()]
        rows = torch.stack(columns).T.tolist()
        seconds = (time.perf_counter() - start) / len(self.runs)
        epochs = []
        for run, lam, row in zip(self.runs, self.lam, rows, strict=True):
            values = dict(zip(_RECORDED, row, strict=True))
            diverged = not all(math.isfinite(values[name]) for name in losses)
            about = run.id, self.epoch, lam
            epochs.append(Epoch(*about, diverged=diverged, seconds=seconds, **values))
        return epochs

    def _add_means(self, noisy: Sequence[Segment]) -> None:
        for segment in noisy:
            settings = self.settings[segment.runs]
            now = {(segment.activation.name, setting.lam(self.epoch)) for setting in settings}
            if not now <= self.means.known.keys():
                ahead = _MEANS_AHEAD if self.device.type == "cuda" else 1
                epochs = filter(self._is_full, range(self.epoch, self.epoch + ahead))
                lams = (setting.lam(epoch) for epoch in epochs for setting in settings)
                self.means.add(segment.activation, lams)

    @torch.no_grad()
    def _evaluate(
        self, runs: slice, images: Tensor, labels: Tensor, mode: str, stop: Callable[[], bool]
    ) -> Tensor | None:
        """Mean loss and accuracy of some runs over a whole set, as 2 × run."""
        network, num_runs = self.network.frozen(runs), len(self.runs[runs])
        network.set_means(self.trained_means, self.lam[runs], "mean")
        if mode == "mean":
            network.set_means(self.means, self.lam[runs], "q")
        totals = torch.zeros(2, num_runs, dtype=torch.float64, device=self.device)
        chunks = list(zip(images.split(self.chunk), labels.split(self.chunk), strict=True))
        seeds = self._seeds("evaluation", self.epoch, len(chunks), self.network.num_draws)
        for (x, y), seed in zip(chunks, seeds, strict=True):
            if stop():
                return None
            shared = _scaled(x, self.dtype).transpose(0, 1)
            x = shared.expand(num_runs, *shared.shape)
            logits = network(x, seed[:, runs], training=False, mode=mode)
            targets = y.expand(num_runs, -1)
            losses = F.cross_entropy(logits, targets, reduction="none")
            totals[0] += losses.sum(1, dtype=torch.float64)
            totals[1] += (logits.argmax(1) == targets).sum(1)
        return totals / len(images)


def _scaled(images: Tensor, dtype: torch.dtype) -> Tensor:
    return images.to(dtype).div_(255)


@contextlib.contextmanager
def computing(precision: str, device: torch.device) -> Iterator[None]:
    """Sets the precision of products and the device of Triton and CUDA graphs, for a while."""
    place = torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    is_tf32 = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = is_tf32
    try:
        bf16 = torch.autocast(device.type, torch.bfloat16, precision == "bf16", cache_enabled=False)
        with place, bf16:
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
