"""For transformers: names of q-activations in configurations, and a callback that anneals λ.

Importing this file makes the names known, so that ``config.hidden_act = "q_gelu"`` works and a
converted model that was saved by ``save_pretrained`` can be loaded.
"""

import sys
from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.activations import ACT2FN

from qneurons.activations import rows
from qneurons.conversion import from_name
from qneurons.integrations.annealing import Annealing, log_entries
from qneurons.scheduler import LambdaScheduler


class _Activations(type(ACT2FN)):  # type: ignore[misc]
    """The table of transformers, which also reads names with options, as ``"q_gelu(a1)"``."""

    def __missing__(self, name: object) -> tuple[Callable[..., Any], dict[str, object]]:
        if name not in self:
            raise KeyError(name)
        return from_name, {"name": name}

    def __contains__(self, name: object) -> bool:
        is_ours = isinstance(name, str) and name.endswith(")") and name.partition("(")[0] in NAMES
        return is_ours or super().__contains__(name)


NAMES = [f"{kind}_{row.name}" for kind in ("q", "limit") for row in rows()]
ACT2FN.update({name: (from_name, {"name": name}) for name in NAMES})
ACT2FN.__class__ = _Activations


class LambdaCallback(Annealing, TrainerCallback):
    """Sets λ on the q-activations of the model that a ``Trainer`` trains, and logs it.

    λ is computed from the state of the trainer, so it continues where a checkpoint resumes.

    Args:
        schedule: as in :class:`~qneurons.LambdaScheduler`. The length of the training is known, so
            ``"cos1"`` goes to 0 over the whole training, and ``"a1"`` is fitted to it.
        interval: ``"epoch"`` to set λ once for every epoch, ``"step"`` for every step.
    """

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        length = state.num_train_epochs if self.interval == "epoch" else state.max_steps
        if length == sys.maxsize:  # so transformers writes that a dataset has no length
            raise ValueError(
                "the epochs of this training are not known, because its dataset has no length; "
                "let λ follow its steps: LambdaCallback(schedule, interval='step')"
            )
        self._scheduler = LambdaScheduler(kwargs["model"], self.schedule, epochs=length)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        done = int(state.epoch or 0) if self.interval == "epoch" else state.global_step
        if self._scheduler is not None and done + 1 != self._scheduler.epoch:
            self._scheduler.set_epoch(done + 1)

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._scheduler is not None:  # None in an evaluation before any training
            kwargs["logs"].update(log_entries(self._scheduler))
            state.log_history[-1].update(log_entries(self._scheduler))  # a copy of the logs
