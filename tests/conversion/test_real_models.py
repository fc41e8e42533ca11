"""Twenty architectures of timm, torchvision and transformers, small and with random weights.

They are converted, trained for a step, compiled, saved and loaded. Nothing is downloaded. This is a
job of its own, because it needs the libraries: docs/training-and-evaluation.md has the command.
"""

import io
from collections import Counter

import pytest
import torch

import qneurons as qn

timm = pytest.importorskip("timm")
torchvision = pytest.importorskip("torchvision")
transformers = pytest.importorskip("transformers")

SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 4}
WORDS = {"vocab_size": 100, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
HEADS = {"num_key_value_heads": 2}
PATCHES = {"image_size": 64, "patch_size": 16}
T5_SIZES = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
T5_SIZES |= {"feed_forward_proj": "gated-gelu", "decoder_start_token_id": 0}


def of_timm(name, **options):
    return lambda: timm.create_model(name, num_classes=3, **options)


def of_torchvision(name):
    return lambda: getattr(torchvision.models, name)(weights=None, num_classes=3)


def of_transformers(model, config, **options):
    return lambda: getattr(transformers, model)(getattr(transformers, config)(**options))


# How to make each, how many activations of which row are replaced, and how many are left.
MODELS = {
    "resnet18": (of_timm("resnet18"), {"relu": 17}, {}),
    "efficientnet_b0": (of_timm("efficientnet_b0"), {"silu": 49}, {"sigmoid": 16}),
    "mobilenetv3_small_050": (
        of_timm("mobilenetv3_small_050"),
        {"hardswish": 19, "relu": 14},
        {"hardsigmoid": 9},
    ),
    "convnext_atto": (of_timm("convnext_atto"), {"gelu": 12}, {}),
    "efficientformerv2_s0": (of_timm("efficientformerv2_s0", img_size=64), {"gelu": 35}, {}),
    "dm_nfnet_f0": (of_timm("dm_nfnet_f0"), {"gelu": 52, "relu": 12}, {"sigmoid": 12}),
    "maxvit_rmlp_pico_rw_256": (
        of_timm("maxvit_rmlp_pico_rw_256", img_size=64),
        {"silu": 34, "gelu": 22, "relu": 22},
        {"sigmoid": 11},
    ),
    "regnety_002": (of_timm("regnety_002"), {"relu": 53}, {"sigmoid": 13}),
    "mixer_s32_224": (of_timm("mixer_s32_224", img_size=64), {"gelu": 16}, {}),
    "vit_tiny_patch16_224": (
        of_timm("vit_tiny_patch16_224", img_size=64, depth=2),
        {"gelu": 2},
        {},
    ),
    "vit_base_patch32_clip_quickgelu_224": (
        of_timm("vit_base_patch32_clip_quickgelu_224", img_size=64, depth=2),
        {"quick_gelu": 2},
        {},
    ),
    "torchvision's efficientnet_b0": (
        of_torchvision("efficientnet_b0"),
        {"silu": 49},
        {"sigmoid": 16},
    ),
    "torchvision's mobilenet_v2": (of_torchvision("mobilenet_v2"), {"relu6": 35}, {}),
    "Llama": (
        of_transformers("LlamaForCausalLM", "LlamaConfig", **SIZES, **HEADS, **WORDS),
        {"silu": 2},
        {},
    ),
    "Mistral": (
        of_transformers("MistralForCausalLM", "MistralConfig", **SIZES, **HEADS, **WORDS),
        {"silu": 2},
        {},
    ),
    "Qwen2": (
        of_transformers("Qwen2ForCausalLM", "Qwen2Config", **SIZES, **HEADS, **WORDS),
        {"silu": 2},
        {},
    ),
    "GPT-2": (
        of_transformers("GPT2LMHeadModel", "GPT2Config", n_embd=32, n_layer=2, n_head=4, **WORDS),
        {"gelu_tanh": 2},
        {},
    ),
    "BERT": (
        of_transformers("BertForSequenceClassification", "BertConfig", **SIZES, **WORDS),
        {"gelu": 2},
        {"tanh": 1},
    ),
    "T5": (
        of_transformers("T5ForConditionalGeneration", "T5Config", **T5_SIZES, **WORDS),
        {"gelu_tanh": 4},
        {},
    ),
    "CLIP": (
        of_transformers("CLIPVisionModel", "CLIPVisionConfig", **SIZES, **PATCHES),
        {"quick_gelu": 2},
        {},
    ),
}


def inputs_of(model):
    torch.manual_seed(1)
    name = getattr(model, "main_input_name", "x")  # of transformers
    if name in ("x", "pixel_values"):
        images = torch.randn(2, 3, 64, 64)
        return {"pixel_values": images} if name == "pixel_values" else {"x": images}
    words = torch.randint(3, 100, (2, 7))
    return {"input_ids": words} | ({"labels": words} if model.config.is_encoder_decoder else {})


def output_of(model, inputs):
    """The logits of a model, or what comes nearest."""
    result = model(**inputs)
    if isinstance(result, torch.Tensor):
        return result
    return result.logits if "logits" in result else result.pooler_output


@pytest.fixture(params=MODELS)
def case(request):
    make, replaced, left = MODELS[request.param]
    torch.manual_seed(0)
    return make(), make, replaced, left


@pytest.mark.filterwarnings("default")  # of the libraries
def test_a_real_model(case):
    plain, make, replaced, left = case
    inputs = inputs_of(plain)
    plan = qn.conversion_plan(plain)
    assert Counter(place.row.name for place in plan.replaced) == replaced
    assert Counter(one.what for one in plan.left) == left

    for module in plain.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0  # so that one step is enough for evaluation
    kept = repr(plain)
    model = qn.convert(plain, lam=0.1)
    parameters = list(model.parameters())
    before = [parameter.detach().clone() for parameter in parameters]
    optimizer = torch.optim.Adam(parameters, lr=1e-4)  # of which no step is large
    compiled = torch.compile(model.train(), backend="aot_eager")
    output_of(compiled, inputs).sum().backward()
    optimizer.step()
    assert all(parameter.isfinite().all() for parameter in parameters)
    assert any(not torch.equal(*pair) for pair in zip(parameters, before, strict=True))

    model.eval()
    with torch.no_grad():
        expected = output_of(model, inputs)
        torch.testing.assert_close(output_of(compiled, inputs), expected, rtol=1e-3, atol=1e-4)
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        loaded = make()
        loaded.load_state_dict(torch.load(file), strict=True)
        assert torch.equal(output_of(qn.convert(loaded, lam=0.1).eval(), inputs), expected)
    assert repr(qn.revert(model)) == kept


def test_a_feature_extractor_of_a_converted_model():
    extract = torchvision.models.feature_extraction.create_feature_extractor
    model = qn.convert(torchvision.models.resnet18(weights=None))
    features = extract(model, {"layer1.0.relu": "first", "layer2": "second"})
    shapes = {name: tuple(y.shape) for name, y in features(torch.randn(1, 3, 64, 64)).items()}
    assert shapes == {"first": (1, 64, 16, 16), "second": (1, 128, 8, 8)}
