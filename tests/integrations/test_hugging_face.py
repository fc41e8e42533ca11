"""q-activations in models and trainers of transformers."""

import json

import pytest
import torch

import qneurons as qn

transformers = pytest.importorskip("transformers")

from transformers.activations import ACT2FN, get_activation

from qneurons.integrations.hugging_face import NAMES, LambdaCallback

pytestmark = pytest.mark.filterwarnings("default")  # of transformers

SIZES = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 2}
WORDS = {"vocab_size": 50, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
T5_SIZES = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
T5_SIZES |= {"feed_forward_proj": "gated-gelu", "decoder_start_token_id": 0}
GPT2_SIZES = {"n_embd": 16, "n_layer": 1, "n_head": 2}


def q_activations(model):
    kinds = qn.QActivation | qn.QLimit
    return {name: repr(part) for name, part in model.named_modules() if isinstance(part, kinds)}


def acts(model):
    return {field: value for field, value in vars(model.config).items() if "act" in field}


def test_every_row_has_names():
    assert {"q_gelu", "q_silu", "limit_gelu", "q_relu2"} <= set(NAMES)
    for name in NAMES:
        assert isinstance(ACT2FN[name], qn.QActivation if name[0] == "q" else qn.QLimit)
        assert isinstance(get_activation(name), torch.nn.Module)


def test_names_have_options_and_others_are_unknown_as_before():
    assert get_activation("q_elu(c0.5, alpha=2)").lam == 0.5
    assert type(get_activation("gelu_new")).__name__ == "NewGELUActivation"
    for name in ("gelux", "q_gelux", "q_gelux(a1)"):
        assert name not in ACT2FN
        with pytest.raises(KeyError, match="gelux"):
            ACT2FN[name]


@pytest.mark.parametrize("name", ["q_gelu", "limit_gelu", "q_silu(a1, eval_mode=mean)"])
def test_a_name_in_a_configuration_is_saved_and_loaded(name, tmp_path):
    config = transformers.BertConfig(**SIZES, **WORDS, hidden_act=name)
    model = transformers.BertModel(config)
    assert len(q_activations(model)) == 2
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["hidden_act"] == name
    loaded = transformers.BertModel.from_pretrained(tmp_path)
    assert q_activations(loaded) == q_activations(model)


MODELS = {
    "BERT": ("BertModel", "BertConfig", SIZES | WORDS),
    "Llama": ("LlamaForCausalLM", "LlamaConfig", SIZES | WORDS | {"num_key_value_heads": 2}),
    "GPT-2": ("GPT2LMHeadModel", "GPT2Config", GPT2_SIZES | WORDS),
    "T5": ("T5ForConditionalGeneration", "T5Config", T5_SIZES | WORDS),
    "CLIP": (
        "CLIPVisionModel",
        "CLIPVisionConfig",
        SIZES | {"image_size": 32, "patch_size": 16},
    ),
}


@pytest.mark.parametrize("setting", ["c0.1", "a5", "limit"])
@pytest.mark.parametrize(("model", "config", "sizes"), MODELS.values(), ids=MODELS)
def test_a_converted_model_is_loaded_as_it_was_saved(model, config, sizes, setting, tmp_path):
    kind = getattr(transformers, model)
    plain = kind(getattr(transformers, config)(**sizes))
    before = acts(plain)
    converted = qn.convert(plain, setting, phi=0.01)
    converted.save_pretrained(tmp_path)
    loaded = kind.from_pretrained(tmp_path)
    assert q_activations(loaded) == q_activations(converted)
    assert len(q_activations(loaded)) > 0
    assert acts(converted) != before == acts(qn.revert(converted))


def test_the_parts_of_a_composite_model_are_named(tmp_path):
    part = SIZES | {"projection_dim": 16}
    config = transformers.CLIPConfig(
        text_config=part | WORDS, vision_config=part | {"image_size": 32, "patch_size": 16}
    )
    converted = qn.convert(transformers.CLIPModel(config), "a5")
    assert converted.config.vision_config.hidden_act == "q_quick_gelu(a5)"
    converted.save_pretrained(tmp_path)
    loaded = transformers.CLIPModel.from_pretrained(tmp_path)
    assert q_activations(loaded) == q_activations(converted)


def test_a_model_that_is_converted_in_part_warns_and_keeps_its_configuration():
    model = transformers.BertModel(transformers.BertConfig(**SIZES, **WORDS))
    with pytest.warns(UserWarning, match=r"BertModel cannot name 1 .*encoder\.layer\.0.*again"):
        qn.convert(model, include="encoder.layer.0.*")
    assert model.config.hidden_act == "gelu"


@pytest.mark.filterwarnings("ignore:.*cannot name 1")
def test_a_second_conversion_to_something_else_keeps_the_configuration():
    model = transformers.BertModel(transformers.BertConfig(**SIZES, **WORDS))
    qn.convert(model, "a5", include="encoder.layer.0.*")
    with pytest.warns(UserWarning, match=r"cannot name .*convert again after loading"):
        qn.convert(model, "limit", include="encoder.*")
    assert model.config.hidden_act == "gelu"


def test_what_is_called_by_its_name_is_left():
    sizes = {"hidden_size": 16, "state_size": 4, "num_hidden_layers": 2, "vocab_size": 50}
    model = transformers.MambaModel(transformers.MambaConfig(**sizes))
    with pytest.raises(ValueError, match=r"looks up activation='silu'.*hidden_act='limit_silu'"):
        qn.convert(model)
    assert model.config.hidden_act == "silu"
    torch.manual_seed(0)
    plain = transformers.MambaModel(transformers.MambaConfig(**sizes))
    torch.manual_seed(0)
    limit = transformers.MambaModel(transformers.MambaConfig(**sizes, hidden_act="limit_silu"))
    words = torch.arange(6)[None]
    with torch.no_grad():
        plain, limit = (made.eval()(words).last_hidden_state for made in (plain, limit))
    assert not torch.allclose(plain, limit, atol=1e-3)


# --- the callback ---------------------------------------------------------------------------------


class Words(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        words = (torch.arange(5) * (index + 1)) % 40 + 3
        return {"input_ids": words, "labels": words}


def train(folder, callback, resume=None, data=None, **options):
    """Trains 3 epochs of 4 steps, and gives the model and the λ of every log."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(**GPT2_SIZES, **WORDS, activation_function="q_gelu_tanh")
    arguments = transformers.TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=2,
        logging_steps=1,
        save_steps=6,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        **{"num_train_epochs": 3} | options,
    )
    trainer = transformers.Trainer(
        transformers.GPT2LMHeadModel(config),
        arguments,
        train_dataset=data or Words(),
        callbacks=[callback],
    )
    trainer.train(resume_from_checkpoint=resume)
    history = [entry["lam"] for entry in trainer.state.log_history if "loss" in entry]
    return trainer.model, history


@pytest.mark.parametrize(
    ("schedule", "interval", "expected"),
    [
        ("lin4-2", "epoch", [4, 4, 4, 4, 3, 3, 3, 3, 2, 2, 2, 2]),
        ("lin11", "step", range(11, -1, -1)),
    ],
)
def test_lam_is_annealed_logged_and_resumed(schedule, interval, expected, tmp_path):
    model, history = train(tmp_path, LambdaCallback(schedule, interval))
    assert history == pytest.approx(list(expected))
    assert model.transformer.h[0].mlp.act.lam == pytest.approx(history[-1])
    resumed, again = train(
        tmp_path / "again", LambdaCallback(schedule, interval), tmp_path / "checkpoint-6"
    )
    assert again == history
    assert resumed.transformer.h[0].mlp.act.lam == pytest.approx(history[-1])


def test_the_length_of_a_training_may_be_given_in_steps(tmp_path):
    _, history = train(tmp_path, LambdaCallback("lin4", "step"), max_steps=5)
    assert history == pytest.approx([4, 3, 2, 1, 0])


def test_a_dataset_without_a_length_has_steps_and_no_epochs(tmp_path):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return (Words()[index] for index in range(8))

    with pytest.raises(ValueError, match=r"no length; let λ follow.*interval='step'"):
        train(tmp_path, LambdaCallback("cos1"), max_steps=5, data=Stream())
    _, history = train(tmp_path, LambdaCallback("lin4", "step"), max_steps=5, data=Stream())
    assert history == pytest.approx([4, 3, 2, 1, 0])


def test_an_evaluation_before_any_training_has_no_lam():
    callback, logs = LambdaCallback("a1"), {"eval_loss": 1.0}
    state = transformers.TrainerState(log_history=[dict(logs)])
    callback.on_log(None, state, None, logs=logs)
    assert logs == state.log_history[0] == {"eval_loss": 1.0}


def test_another_interval_is_refused():
    with pytest.raises(ValueError, match="interval must be one of"):
        LambdaCallback("a1", "batch")
