"""What the callbacks of several libraries share."""

import pytest
from torch import nn

from qneurons import LambdaScheduler, convert
from qneurons.integrations.annealing import Annealing, log_entries


def test_another_interval_is_refused():
    assert Annealing(interval="step").interval == "step"
    with pytest.raises(ValueError, match="interval must be one of epoch, step, got 'batch'"):
        Annealing(interval="batch")


def test_layers_with_schedules_of_their_own_are_logged_apart():
    model = nn.Sequential(nn.ELU(), nn.ELU())
    assert log_entries(LambdaScheduler(convert(model, "a9", include="0"))) == {"lam": 9.0}
    assert log_entries(LambdaScheduler(convert(model, "a5"))) == {"lam/a9": 9.0, "lam/a5": 5.0}
