"""Names of q-activations in timm."""

import pytest
import torch

import qneurons as qn

timm = pytest.importorskip("timm")

from qneurons.integrations.timm import NAMES


def test_every_row_has_names():
    for name in NAMES:
        layer = timm.layers.create_act_layer(name, inplace=True)
        assert isinstance(layer, qn.QActivation if name[0] == "q" else qn.QLimit)
        assert layer.activation.name == name.partition("_")[2]


@pytest.mark.parametrize(("name", "kind"), [("q_gelu", qn.QGELU), ("limit_gelu", qn.QLimit)])
def test_a_model_is_made_with_a_name(name, kind):
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, depth=2, embed_dim=12, act_layer=name, num_classes=3
    )
    assert sum(isinstance(module, kind) for module in model.modules()) == 2
    assert model(torch.randn(1, 3, 32, 32)).shape == (1, 3)
