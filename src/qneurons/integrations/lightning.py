"""For Lightning: a callback that anneals λ.

Without it, return a :class:`~qneurons.LambdaScheduler` from ``configure_optimizers``, as
``{"optimizer": optimizer, "lr_scheduler": LambdaScheduler(self, "a1", optimizer=optimizer)}``.
"""

import math
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from qneurons.integrations.annealing import Annealing, log_entries
from qneurons.scheduler import LambdaScheduler


class LambdaCallback(Annealing, Callback):
    """Sets λ on the q-activations of the model that a ``Trainer`` trains, and logs it.

    λ is computed from the state of the trainer, so it continues where a checkpoint resumes.

    Args:
        schedule: as in :class:`~qneurons.LambdaScheduler`. If the length of the training is known,
            ``"cos1"`` goes to 0 over the whole training, and ``"a1"`` is fitted to it.
        interval: ``"epoch"`` to set λ once for every epoch, ``"step"`` for every step of the
            optimizer, or for every batch if the optimization is manual.
    """

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        length = trainer.estimated_stepping_batches
        if self.interval == "epoch":
            batches = trainer.num_training_batches
            if batches == math.inf:
                length = trainer.max_epochs or 0
            elif length < math.inf:  # max_steps may end it before max_epochs
                length = math.ceil(length / math.ceil(batches / trainer.accumulate_grad_batches))
        is_known = 0 < length < math.inf  # -1 is Lightning's infinity
        epochs = int(length) if is_known else None
        self._scheduler = LambdaScheduler(pl_module, self.schedule, epochs=epochs)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        assert self._scheduler is not None, "on_train_start comes first"
        done = trainer.current_epoch
        if self.interval == "step":
            is_manual = not pl_module.automatic_optimization
            # By hand every optimizer adds to global_step, and not to the estimated length.
            done = trainer.fit_loop.total_batch_idx if is_manual else trainer.global_step
        if done + 1 != self._scheduler.epoch:
            self._scheduler.set_epoch(done + 1)
        self.log_dict(log_entries(self._scheduler))
