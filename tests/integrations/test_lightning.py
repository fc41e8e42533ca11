"""λ in trainings of Lightning."""

import pytest
import torch
from torch import nn

import qneurons as qn

pl = pytest.importorskip("lightning.pytorch")

from qneurons.integrations.lightning import LambdaCallback

pytestmark = pytest.mark.filterwarnings("default")  # of Lightning


class Small(pl.LightningModule):
    """Trains 4 steps an epoch and keeps the λ of every step."""

    def __init__(self, schedule=None, interval="epoch"):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 4), qn.QELU(lam=0.5), nn.Linear(4, 1))
        self.schedule, self.interval, self.lams = schedule, interval, []

    def training_step(self, batch, batch_idx):
        self.lams.append(self.net[1].lam)
        return self.net(batch).square().mean()

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.01)
        if self.schedule is None:
            return optimizer
        scheduler = qn.LambdaScheduler(self, self.schedule, optimizer=optimizer)
        config = {"scheduler": scheduler, "interval": self.interval}
        return {"optimizer": optimizer, "lr_scheduler": config}


def fit(model, folder, epochs, callbacks=(), resume=None, data=None, **options):
    """Trains and gives the trainer, whose checkpoint is in the folder."""
    trainer = pl.Trainer(
        default_root_dir=folder,
        callbacks=[*callbacks],
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **{"max_epochs": epochs} | options,
    )
    data = torch.randn(8, 3) if data is None else data
    loader = torch.utils.data.DataLoader(data, batch_size=2)
    trainer.fit(model, loader, ckpt_path=resume)
    trainer.save_checkpoint(folder / "last.ckpt")
    return trainer


CASES = [
    ("lin4-2/3", "epoch", [4] * 4 + [3] * 4 + [2] * 4),
    ("lin11/12", "step", range(11, -1, -1)),
]


@pytest.mark.parametrize(("schedule", "interval", "expected"), CASES)
def test_a_scheduler_from_configure_optimizers(schedule, interval, expected, tmp_path):
    model = Small(schedule, interval)
    fit(model, tmp_path, epochs=2)
    resumed = Small(schedule, interval)
    fit(resumed, tmp_path, epochs=3, resume=tmp_path / "last.ckpt")
    assert model.lams + resumed.lams == pytest.approx(list(expected))


def test_a_scheduler_beside_one_of_the_learning_rate(tmp_path):
    class Both(Small):
        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), lr=0.01)
            halving = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
            return [optimizer], [halving, qn.LambdaScheduler(self, "lin4-2/3", optimizer=optimizer)]

    model = Both()
    trainer = fit(model, tmp_path, epochs=3)
    assert model.lams == pytest.approx([4] * 4 + [3] * 4 + [2] * 4)
    assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.01 / 8)


@pytest.mark.parametrize(("schedule", "interval", "expected"), CASES)
def test_the_callback(schedule, interval, expected, tmp_path):
    model = Small()
    fit(model, tmp_path, 2, [LambdaCallback(schedule, interval)])
    resumed = Small()
    trainer = fit(
        resumed, tmp_path, 3, [LambdaCallback(schedule, interval)], tmp_path / "last.ckpt"
    )
    assert model.lams + resumed.lams == pytest.approx(list(expected))
    assert trainer.callback_metrics["lam"].item() == pytest.approx(expected[-1])


@pytest.mark.parametrize("interval", ["epoch", "step"])
def test_the_callback_knows_the_length_of_the_training(interval, tmp_path):
    model = Small()
    fit(model, tmp_path, 3, [LambdaCallback("lin1", interval)])
    assert (model.lams[0], model.lams[-1]) == (1.0, 0.0)


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(torch.randn(8, 3))


@pytest.mark.parametrize("max_epochs", [-1, 100])
def test_the_steps_may_end_a_training(max_epochs, tmp_path):
    early = {"max_epochs": max_epochs, "max_steps": 6}
    model = Small()
    fit(model, tmp_path, 0, [LambdaCallback("lin5", "step")], **early)
    assert model.lams == pytest.approx([5, 4, 3, 2, 1, 0])
    model = Small()
    fit(model, tmp_path, 0, [LambdaCallback("lin1")], **early)  # 4 steps an epoch
    assert model.lams == pytest.approx([1] * 4 + [0] * 2)


def test_a_training_without_an_end_needs_the_length(tmp_path):
    endless = {"max_epochs": -1, "max_steps": 6, "data": Stream()}
    with pytest.raises(ValueError, match="'lin1' has no number of epochs"):
        fit(Small(), tmp_path, 0, [LambdaCallback("lin1")], **endless)
    model = Small()
    fit(model, tmp_path, 0, [LambdaCallback("lin1")], max_epochs=2, data=Stream())
    assert model.lams == pytest.approx([1] * 4 + [0] * 4)


def test_a_training_that_a_callback_stops_has_no_length(tmp_path):
    class Stop(pl.Callback):
        def on_train_epoch_end(self, trainer, module):
            trainer.should_stop = trainer.current_epoch == 1

    model = Small()
    fit(model, tmp_path, -1, [LambdaCallback("a1"), Stop()])  # with the paper's γ
    assert model.lams == pytest.approx([1] * 4 + [1 / 1.5] * 4)


@pytest.mark.parametrize(
    ("interval", "expected"), [("step", [7, 6, 5, 4, 3, 2, 1, 0]), ("epoch", [7] * 4 + [0] * 4)]
)
def test_two_optimizers_by_hand(interval, expected, tmp_path):
    class ByHand(Small):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch, batch_idx):
            for optimizer in self.optimizers():
                optimizer.zero_grad()
                self.manual_backward(super().training_step(batch, batch_idx))
                optimizer.step()

        def configure_optimizers(self):
            return [torch.optim.SGD(part.parameters(), lr=0.01) for part in (self.net[0], self.net)]

    model = ByHand()
    fit(model, tmp_path, 2, [LambdaCallback("lin7", interval)])
    assert model.lams[::2] == pytest.approx(expected)
