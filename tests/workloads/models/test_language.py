# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Language models of transformers: cut at every place, they train as transformers and peft do."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor
from torch.nn import functional

from testbed.core.errors import InputError
from workloads.costs.counting import count
from workloads.costs.lookup import counted
from workloads.learning.backbone import load_model, write_backbone
from workloads.learning.cached import backbone_file
from workloads.learning.export import export_peft
from workloads.learning.learner import ClientLearner, ServerLearner
from workloads.learning.model import SplitModel, initial_trainables
from workloads.learning.settings import ModelConfig, TrainingConfig
from workloads.models.language import FAMILIES, language_model

transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

LENGTH, VOCABULARY, WINDOW = 24, 64, 7
ROUNDS, ITERATIONS, BATCH, CLIENTS = 3, 3, 3, {1: 3, 2: 1}
"""By client: the number of its samples."""
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": None,
}
OF_HEADS = {"head_dim": 8}
OWN: Mapping[str, Mapping[str, Any]] = {
    "gemma": OF_HEADS,
    "gemma2": OF_HEADS | {"sliding_window": WINDOW, "final_logit_softcapping": 3.0},
    "gemma3_text": OF_HEADS | {"sliding_window": WINDOW, "_sliding_window_pattern": 2},
    "mistral": {"sliding_window": WINDOW},
    "qwen2": {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
    "qwen3": OF_HEADS,
}
GPT2 = {
    **{"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 32},
    **{"bos_token_id": 0, "eos_token_id": 1},
}


def configuration(kind: str, **different: Any) -> Any:
    values = GPT2 if kind == "gpt2" else {**SIZES, **OWN.get(kind, {})}
    return transformers.AutoConfig.for_model(kind, **{**values, **different})


def saved(kind: str, folder: Path, **different: Any) -> ModelConfig:
    """A random model as transformers saves it, and our configuration of it."""
    torch.manual_seed(3)
    net = transformers.AutoModelForCausalLM.from_config(configuration(kind, **different))
    with torch.no_grad():
        for parameter in net.parameters():
            deviation = 0.1 if parameter.ndim == 1 else parameter.shape[-1] ** -0.5
            parameter.add_(deviation * torch.randn_like(parameter))
    net.save_pretrained(folder)
    return config_of(folder)


def config_of(folder: Path, **different: Any) -> ModelConfig:
    language = language_model(f"hf:{folder}", {}, None)
    values: dict[str, Any] = {
        "rank": 4,
        "weights": language.weights,
        "parameters": {
            **{"config": dict(language.configuration), "length": LENGTH},
            "folder": str(language.folder),
        },
        "train_head": False,
    }
    return ModelConfig(f"hf:{folder}", language.vocabulary, **values | different)


def loaded(config: ModelConfig, folder: Path) -> SplitModel:
    torch.set_num_threads(1)
    file = folder / "backbone.safetensors"
    file.unlink(missing_ok=True)
    write_backbone(config, file)
    return load_model(config, file)


def original(folder: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def batch(client: int, round_: int, iteration: int) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(100 * client + 10 * round_ + iteration)
    sequence = torch.randint(VOCABULARY, (BATCH, LENGTH + 1), generator=random)
    return sequence[:, :-1], sequence[:, 1:]


Trained = tuple[list[float], dict[str, Tensor]]


def trained_here(model: SplitModel, split: int, training: TrainingConfig) -> Trained:
    server = ServerLearner(model, [*CLIENTS], training)
    clients = {k: ClientLearner(model, training) for k in CLIENTS}
    losses = []
    for round_ in range(ROUNDS):
        sent = server.begin_round(split)
        for k, client in clients.items():
            client.begin_round(split, sent)
            for iteration in range(ITERATIONS):
                tokens, following = batch(k, round_, iteration)
                step = server.forward_backward(k, client.forward(tokens), following)
                client.backward(step.gradient)
                losses.append(step.loss)
        server.aggregate({k: client.adapters() for k, client in clients.items()}, CLIENTS)
    return losses, server.state()


def trained_by_peft(
    net: Any, start: Mapping[str, Tensor], training: TrainingConfig, **settings: Any
) -> Trained:
    """Federated averaging of the unsplit network of transformers with the adapters of peft."""
    adapted = peft.get_peft_model(
        net,
        peft.LoraConfig(
            r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM", **settings
        ),
    ).eval()

    def ours(name: str) -> str:
        name = name.removeprefix("base_model.model.").replace(".modules_to_save.default", "")
        return name.replace(".default.weight", "").replace(".default", "")

    own = {ours(n): p for n, p in adapted.named_parameters() if p.requires_grad}
    assert own.keys() == start.keys()
    losses, state = [], {name: tensor.clone() for name, tensor in start.items()}
    for round_ in range(ROUNDS):
        mean = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
        for k, samples in CLIENTS.items():
            with torch.no_grad():
                for name, parameter in own.items():
                    parameter.copy_(state[name])
            optimiser: torch.optim.Optimizer
            if training.optimiser == "sgd":
                optimiser = torch.optim.SGD(own.values(), training.learning_rate, momentum=0.9)
            else:
                rate = training.learning_rate
                optimiser = torch.optim.AdamW(own.values(), rate, weight_decay=0)
            for iteration in range(ITERATIONS):
                tokens, following = batch(k, round_, iteration)
                logits = adapted(tokens).logits.flatten(0, 1)
                loss = functional.cross_entropy(logits, following.flatten())
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                losses.append(float(loss.detach()))
            for name, parameter in own.items():
                mean[name] += parameter.detach() * samples / sum(CLIENTS.values())
        state = mean
    return losses, state


def assert_same(here: Trained, there: Trained) -> None:
    assert here[0] == pytest.approx(there[0], rel=1e-6)
    assert here[1].keys() == there[1].keys()
    for name, tensor in there[1].items():
        assert (here[1][name] - tensor).abs().max() < 1e-6, name


QUICK = ("llama", "gpt2", "qwen2", "gemma2")
"""Families of the quick tests: Gemma 2 has sliding windows, too."""
SGD = TrainingConfig(learning_rate=0.1, optimiser="sgd")


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.full] * (kind not in QUICK), id=kind)
        for kind in FAMILIES
    ],
)
def test_every_family_trains_as_in_transformers_with_peft(kind: str, tmp_path: Path) -> None:
    """The same from every split, bit for bit, and peft's up to rounding."""
    config = saved(kind, tmp_path)
    model = loaded(config, tmp_path)
    assert model.splits == 3
    start = model.layout.views(initial_trainables(model.layout, config.seed))
    start = {name: tensor.clone() for name, tensor in start.items()}
    here = trained_here(model, 1, SGD)
    for split in (2, 3):
        again = trained_here(model, split, SGD)
        assert again[0] == here[0]
        assert all(torch.equal(again[1][name], tensor) for name, tensor in here[1].items())
    there = trained_by_peft(original(tmp_path), start, SGD)
    assert_same(here, there)
    for name, tensor in start.items():  # Some adapters move by a few millionths only.
        moved = (there[1][name] - tensor).norm()
        assert (here[1][name] - there[1][name]).norm() < 0.05 * moved, name
    assert max(float((there[1][n] - s).abs().max()) for n, s in start.items()) > 1e-2


@pytest.mark.parametrize("kind", ["llama", "gpt2", "qwen2"])
def test_a_trained_head_is_untied_and_trains_as_in_peft(kind: str, tmp_path: Path) -> None:
    saved(kind, tmp_path, tie_word_embeddings=True)
    assert not any(name.startswith("lm_head") for name in in_file(tmp_path))
    config = config_of(tmp_path, train_head=True)
    model = loaded(config, tmp_path)
    vector = initial_trainables(model.layout, config.seed, model.loras, model.given_head)
    start = {name: tensor.clone() for name, tensor in model.layout.views(vector).items()}
    net = original(tmp_path)
    embeddings = net.get_input_embeddings().weight.detach().clone()
    assert torch.equal(start["lm_head.weight"], embeddings)
    training = TrainingConfig(learning_rate=1e-3)
    here = trained_here(model, 2, training)
    there = trained_by_peft(net, start, training, modules_to_save=["lm_head"])
    assert here[0] == pytest.approx(there[0], rel=1e-6)
    # AdamW divides by the size of the gradient, so rounding counts where it is almost zero.
    for name, tensor in there[1].items():
        far = (here[1][name] - tensor).norm() / (tensor - start[name]).norm()
        assert far < 1e-3, name
    assert (here[1]["lm_head.weight"] - embeddings).abs().max() > 1e-3
    own = dict(model.net.named_parameters())
    assert torch.equal(own[next(n for n in own if "embed" in n or "wte" in n)], embeddings)


def in_file(folder: Path) -> dict[str, Tensor]:
    return safetensors.torch.load_file(folder / "model.safetensors")


@pytest.mark.parametrize("kind", ["gpt2", "llama", "gemma2"])
@pytest.mark.parametrize("adapters", ["lora", "dora"])
def test_peft_loads_what_was_trained(kind: str, adapters: str, tmp_path: Path) -> None:
    saved(kind, tmp_path / "model")
    config = config_of(tmp_path / "model", adapters=adapters, targets="attn")
    model = loaded(config, tmp_path)
    assert all("attn" in name for name in model.loras)
    state = trained_here(model, 1, TrainingConfig(learning_rate=1e-2))[1]
    export_peft(state, tmp_path / "adapters", config)
    adapted = peft.PeftModel.from_pretrained(original(tmp_path / "model"), tmp_path / "adapters")
    model.attach(state)
    tokens, _ = batch(1, 0, 0)
    with torch.no_grad():
        here = model.server(model.client(tokens, 2), 2)
        there = adapted.eval()(tokens).logits
        before = original(tmp_path / "model")(tokens).logits
    assert (here - there).abs().max() < 1e-5
    assert (here - before).abs().max() > 1e-3
    assert json.loads((tmp_path / "adapters" / "adapter_config.json").read_text())[
        "base_model_name_or_path"
    ] == str(tmp_path / "model")


def test_sharded_files_and_bfloat16_are_read(tmp_path: Path) -> None:
    saved("llama", tmp_path)
    net = original(tmp_path).to(torch.bfloat16)
    (tmp_path / "model.safetensors").unlink()
    net.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    model = loaded(config_of(tmp_path), tmp_path)
    model.attach(model.layout.views(initial_trainables(model.layout, 1)))
    tokens, _ = batch(1, 0, 0)
    with torch.no_grad():
        assert torch.allclose(
            model.server(model.client(tokens, 1), 1), original(tmp_path)(tokens).logits, atol=1e-5
        )
    next(iter(sorted(tmp_path.glob("model-*.safetensors")))).unlink()
    with pytest.raises(InputError, match=r"model\.safetensors\.index\.json names model-00001"):
        loaded(config_of(tmp_path), tmp_path)


def test_a_file_of_the_body_alone_is_read(tmp_path: Path) -> None:
    """As GPT-2 is on the hub: without the prefix `transformer.`, and with its masks."""
    config = saved("gpt2", tmp_path)
    whole = in_file(tmp_path)
    body = {name.removeprefix("transformer."): tensor for name, tensor in whole.items()}
    body["h.0.attn.bias"] = torch.ones(1, 1, 32, 32)
    safetensors.torch.save_file(body, tmp_path / "model.safetensors")
    model = loaded(config, tmp_path)
    own = dict(model.net.named_parameters())
    assert all(torch.equal(own[name], tensor) for name, tensor in whole.items())


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"lm_head.weight": None}, r"needs lm_head\.weight of shape \(64, 32\)"),
        (
            {"lm_head.weight": (3, 32)},
            r"has lm_head\.weight of shape \(3, 32\).*; the head",
        ),
        ({"model.norm.weight": None}, r"needs model\.norm\.weight"),
        ({"strange": (2,)}, r"belongs to another model"),
    ],
)
def test_weights_that_do_not_fit_are_refused(
    change: dict[str, tuple[int, ...] | None], line: str, tmp_path: Path
) -> None:
    config = saved("llama", tmp_path, tie_word_embeddings=False)
    tensors = in_file(tmp_path)
    for name, shape in change.items():
        if shape is None:
            del tensors[name]
        else:
            tensors[name] = torch.zeros(shape)
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=line) as refused:
        loaded(config, tmp_path)
    assert "\n" not in str(refused.value)


def test_tied_weights_with_two_values_are_refused(tmp_path: Path) -> None:
    config = saved("llama", tmp_path, tie_word_embeddings=True)
    tensors = in_file(tmp_path) | {"lm_head.weight": torch.zeros(VOCABULARY, 32)}
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=r"are one tensor of the model"):
        loaded(config, tmp_path)


def by_seed(kind: str, **different: Any) -> ModelConfig:
    values = GPT2 if kind == "gpt2" else {**SIZES, **OWN.get(kind, {})}
    content = {**values, **different, "model_type": kind}
    parameters = {"config": content, "length": LENGTH}
    return ModelConfig(f"hf:{kind}", VOCABULARY, parameters=parameters, train_head=False)


def test_values_by_seed_fit_the_family(tmp_path: Path) -> None:
    own = {kind: loaded(by_seed(kind), tmp_path) for kind in ("llama", "gemma2", "gpt2")}
    norms = {kind: dict(model.net.named_parameters()) for kind, model in own.items()}
    assert (norms["llama"]["model.norm.weight"] == 1).all()
    assert (norms["gemma2"]["model.norm.weight"] == 0).all(), "Gemma adds 1 to it"
    assert (norms["gpt2"]["transformer.ln_f.weight"] == 1).all()
    # GPT-2's layers have their weights transposed: [in, out].
    inner = norms["gpt2"]["transformer.h.0.mlp.c_fc.weight"]
    assert inner.shape == (32, 128)
    assert float(inner.std()) == pytest.approx(32**-0.5, rel=0.05)
    again = loaded(by_seed("gpt2"), tmp_path)
    assert torch.equal(dict(again.net.named_parameters())["transformer.wte.weight"], again.head[0])


@pytest.mark.parametrize("kind", ["mistral", "gemma2"])
def test_a_chain_without_the_window_is_refused(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workloads.models import decoders

    recorded = decoders._Context.of

    def without_window(self: Any, index: int, device: torch.device) -> Any:
        args, kwargs = recorded(self, index, device)
        full = torch.full((LENGTH, LENGTH), torch.finfo(torch.float32).min, device=device)
        return args, {**kwargs, "attention_mask": full.triu(1)[None, None]}

    loaded(by_seed(kind), tmp_path)
    monkeypatch.setattr(decoders._Context, "of", without_window)
    with pytest.raises(InputError, match="the parts of its chain compute something else"):
        loaded(by_seed(kind), tmp_path)


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma2"])
def test_in_bfloat16_parts_and_whole_agree(kind: str, tmp_path: Path) -> None:
    config = replace(saved(kind, tmp_path), dtype="bfloat16", train_head=True)
    model = loaded(config, tmp_path)
    assert {lora.weight.dtype for lora in model.loras.values()} == {torch.bfloat16}
    losses, state = trained_here(model, 2, SGD)
    assert torch.isfinite(torch.tensor(losses)).all()
    assert state["lm_head.weight"].dtype == torch.float32


def test_a_file_may_have_values_that_the_family_does_not_know(tmp_path: Path) -> None:
    config = saved("gpt2", tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"n_ctx": 1024, "other": 1}))
    assert loaded(config_of(tmp_path), tmp_path).layout == SplitModel(config).layout


@pytest.mark.parametrize(
    ("different", "length", "line"),
    [
        ({"num_layers": 3, "no_such_thing": 1}, 8, r"llama of transformers has no 'no_such_thing'"),
        ({"num_attention_heads": 5}, 8, r"workload\.model: transformers cannot create hf:llama"),
        ({}, 33, r"workload\.sequence_length: hf:llama has at most 32 positions, not 33"),
    ],
)
def test_impossible_configurations_are_refused(
    different: dict[str, Any], length: int, line: str
) -> None:
    if "no_such_thing" in different:
        different = {"no_such_thing": 1}
    config = by_seed("llama", **different)
    config.parameters["length"] = length  # type: ignore[index]
    with pytest.raises(InputError, match=line):
        SplitModel(config)


def test_the_costs_of_a_llama_are_those_by_hand() -> None:
    """Products with 2 FLOPs per multiply-add: of linear layers, attention, adapters, and head."""
    tokens, width, keys, inner, rank = LENGTH, 32, 16, 48, 4
    layers = [(width, width), (width, keys), (width, keys), (width, width)]
    layers += [(width, inner), (width, inner), (inner, width)]
    linear = sum(2 * tokens * i * o for i, o in layers)
    adapters = sum(2 * tokens * rank * (i + o) for i, o in layers)
    attention = 2 * (2 * tokens * tokens * width)
    head = 2 * tokens * width * VOCABULARY
    block = linear + adapters + attention
    # Gradients of inputs, and of both adapters; of both factors of attention's two products.
    back = linear + 2 * adapters + 2 * attention
    # Embeddings are frozen, so the first three layers need no gradient of their input.
    spared = sum(2 * tokens * (i * o + rank * i) for i, o in layers[:3])
    profile = count(replace(by_seed("llama"), rank=rank))
    assert profile.client_forward_flops == (block, 2 * block, 3 * block)
    assert profile.server_forward_flops == (2 * block + head, block + head, head)
    assert profile.client_backward_flops == tuple(n * back - spared for n in (1, 2, 3))
    assert profile.server_backward_flops == tuple(n * back + head for n in (2, 1, 0))
    assert profile.smashed_bytes == (4 * tokens * width,) * 3
    each = 4 * rank * sum(i + o for i, o in layers)
    assert profile.adapter_bytes == (each, 2 * each, 3 * each)
    assert profile.labels == tokens
    trained = count(replace(by_seed("llama"), rank=rank, train_head=True))
    assert trained.server_backward_flops[2] == 2 * head, "the gradient of its weight as well"


def test_costs_are_kept_by_configuration_length_and_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = by_seed("llama")
    longer = replace(first, parameters={**first.parameters, "length": 2 * LENGTH // 3})
    deeper = by_seed("llama", num_hidden_layers=2)
    found = [counted(each) for each in (first, longer, deeper, replace(first, train_head=True))]
    assert len({profile.server_backward_flops for profile in found}) == 4
    assert counted(first) == found[0]
    files = {backbone_file(each, tmp_path) for each in (first, deeper)}
    assert len(files) == 2
