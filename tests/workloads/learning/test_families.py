# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Each family of networks, cut anywhere, computes and learns what timm's own network does."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import safetensors.torch
import timm
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from testbed.core.errors import InputError
from workloads.learning.backbone import load_model
from workloads.learning.cached import backbone_file
from workloads.learning.export import export_peft
from workloads.learning.learner import ClientLearner, ServerLearner
from workloads.learning.model import Dropout, LoraLinear, SplitModel, initial_trainables
from workloads.learning.settings import ModelConfig, TrainingConfig
from workloads.models.chain import Images
from workloads.models.families import OWN_MODELS, PREFIXES, chain_of

TRAINING = TrainingConfig(learning_rate=3e-3)
SPLITS = {
    "swin_nano_patch4_window4_64": 4,
    "swinv2_nano_patch4_window4_64": 4,
    "vit_nano_patch8_64": 6,
    "beit_nano_patch8_64": 4,
    "eva_nano_patch8_64": 4,
    "convnext_nano_64": 4,
}
DEIT = "deit_tiny_patch16_224"
"""timm's own, on small pictures: the smallest of its family."""
EVERY_SPLIT = [
    (name, split) for name, last in (SPLITS | {DEIT: 12}).items() for split in range(1, last + 1)
]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def config(name: str, **options: Any) -> ModelConfig:
    size = 64 if name == DEIT else None
    return ModelConfig(name, 10, rank=4, **{"image_size": size} | options)


@cache
def backbone(name: str) -> Path:
    return backbone_file(config(name), Path(mkdtemp()))


@cache
def model(name: str) -> SplitModel:
    return load_model(config(name), backbone(name))


def timms(name: str) -> nn.Module:
    """timm's own network over the same weights."""
    if name in OWN_MODELS:
        net = PREFIXES[name.partition("_")[0]](**OWN_MODELS[name], num_classes=10).eval()
    else:
        size = {"img_size": 64} if name == DEIT else {}
        net = timm.create_model(name, num_classes=10, **size).eval()
    net.load_state_dict(safetensors.torch.load_file(backbone(name)), strict=False)
    return net.requires_grad_(False)


class Filled(TorchDispatchMode):
    """Notes which operations fill tensors without memory."""

    def __init__(self) -> None:
        super().__init__()
        self.by: set[str] = set()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = function.overloadpacket.__name__
        if name.endswith("_") and isinstance(args[0], Tensor) and args[0].is_meta:
            self.by.add(name)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", SPLITS)
def test_nothing_is_drawn_for_parameters_without_memory(name: str) -> None:
    with Filled() as filled:
        chain_of(config(name))
    assert filled.by <= {"copy_"}, "of buffers, which are made again"


def batches(size: int = 64) -> list[tuple[Tensor, Tensor]]:
    random = torch.Generator().manual_seed(5)
    return [
        (torch.randn(3, 3, size, size, generator=random), torch.randint(10, (3,), generator=random))
        for _ in range(2)
    ]


class OurLora(nn.Module):
    """The split model's layer with parameters of its own."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.layer = LoraLinear(linear, scale=8 / 4)
        self.lora_A = nn.Parameter(torch.zeros(4, linear.in_features))
        self.lora_B = nn.Parameter(torch.zeros(linear.out_features, 4))

    def forward(self, x: Tensor) -> Tensor:
        self.layer.adapter = (self.lora_A, self.lora_B)
        return self.layer(x)  # type: ignore[no-any-return]


@cache
def trained_unsplit(name: str) -> dict[str, Tensor]:
    """timm's network, adapted where the split model is, after a step for each batch."""
    net, split_model = timms(name), model(name)
    for layer in split_model.loras:
        linear = net.get_submodule(layer)
        assert isinstance(linear, nn.Linear)
        net.set_submodule(layer, OurLora(linear))
    net.get_submodule(split_model.head_name).requires_grad_(True)
    trained = {n: p for n, p in net.named_parameters() if p.requires_grad}
    start = split_model.layout.views(initial_trainables(split_model.layout, 1))
    assert trained.keys() == start.keys()
    for key, parameter in trained.items():
        parameter.data.copy_(start[key])
    optimiser = torch.optim.AdamW(trained.values(), TRAINING.learning_rate, weight_decay=0)
    for images, labels in batches():
        optimiser.zero_grad()
        functional.cross_entropy(net(images), labels).backward()
        optimiser.step()
    return {key: parameter.detach() for key, parameter in trained.items()}


def trained_split(
    split_model: SplitModel, split: int, training: TrainingConfig = TRAINING
) -> dict[str, Tensor]:
    client, server = ClientLearner(split_model, training), ServerLearner(split_model, [1], training)
    client.begin_round(split, server.begin_round(split))
    for index, (images, labels) in enumerate(batches(split_model.input.size)):
        smashed = client.forward(images, str(index))
        client.backward(server.forward_backward(1, smashed, labels, str(index)).gradient)
    server.aggregate({1: client.adapters()}, {1: 1})
    return server.state()


class Drawn(nn.Module):
    """What a split model drops, in the place of peft's own dropout."""

    def __init__(self, dropout: Dropout, layer: str) -> None:
        super().__init__()
        self.dropout, self.layer = dropout, layer

    def forward(self, x: Tensor) -> Tensor:
        noise = self.dropout.noise(self.layer, x)
        return x if noise is None else x * noise


def trained_by_peft(split_model: SplitModel, training: TrainingConfig) -> dict[str, Tensor]:
    """What peft makes of timm's network with its own layers, in one piece, from the same start."""
    peft = pytest.importorskip("peft")
    made, head = split_model.config, split_model.head_name
    adapted = peft.get_peft_model(
        timms(made.model),
        peft.LoraConfig(
            r=made.rank,
            lora_alpha=int(made.alpha),
            target_modules=list(split_model.loras),
            modules_to_save=[head],
            use_dora=made.adapters == "dora",
        ),
    ).eval()
    inner = adapted.base_model.model
    for layer in split_model.loras:
        inner.get_submodule(layer).lora_dropout["default"] = Drawn(split_model.dropout, layer)
    layout = split_model.layout
    start = layout.views(initial_trainables(layout, made.seed, split_model.loras))
    trained: dict[str, Tensor] = {}
    for name, parameter in inner.named_parameters():
        if parameter.requires_grad:
            own = name.replace(".modules_to_save", "").replace(".default", "")
            trained[own.removesuffix(".weight") if ".lora_" in own else own] = parameter
    assert trained.keys() == start.keys()
    for own, parameter in trained.items():
        parameter.data.copy_(start[own])
    optimiser = torch.optim.SGD(
        trained.values(), training.learning_rate, momentum=training.momentum
    )
    for index, (images, labels) in enumerate(batches(split_model.input.size)):
        split_model.dropout.batches = [str(index)]
        optimiser.zero_grad()
        functional.cross_entropy(inner(images), labels).backward()
        optimiser.step()
    return {own: parameter.detach() for own, parameter in trained.items()}


KINDS: dict[str, dict[str, Any]] = {
    "lora": {},
    "dropout": {"dropout": 0.2},
    "dora": {"adapters": "dora"},
}


def assert_trains_as_peft_does(made: ModelConfig, splits: tuple[int, ...]) -> None:
    """The same from every split, bit for bit, and peft's up to rounding."""
    training = TrainingConfig(learning_rate=0.05, optimiser="sgd")
    split_model = load_model(made, backbone(made.model))
    layout = split_model.layout
    start = layout.views(initial_trainables(layout, made.seed, split_model.loras))
    state, *others = (trained_split(split_model, split, training) for split in splits)
    for name, theirs in trained_by_peft(split_model, training).items():
        assert all(torch.equal(state[name], other[name]) for other in others), name
        moved = (theirs - start[name]).norm()
        assert moved > 0, name
        assert (state[name] - theirs).norm() < 1e-3 * moved, name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SPLITS)
def test_split_training_does_what_pefts_own_layers_do(name: str, kind: str) -> None:
    assert_trains_as_peft_does(config(name, **KINDS[kind]), (1, SPLITS[name]))


@pytest.mark.full
@pytest.mark.parametrize(("name", "split"), [("vit_base_patch16_224", 6), ("convnext_base", 2)])
def test_large_models_train_as_peft_trains_them(name: str, split: int) -> None:
    assert_trains_as_peft_does(config(name), (split,))


@pytest.mark.parametrize("kind", ["dropout", "dora"])
def test_adapters_of_every_kind_are_recomputed_and_stacked_alike(kind: str) -> None:
    name = "vit_nano_patch8_64"
    split_model = load_model(config(name, **KINDS[kind]), backbone(name))
    training = TrainingConfig(learning_rate=0.05, optimiser="sgd")
    kept = trained_split(split_model, 3, training)
    again = trained_split(split_model, 3, replace(training, recompute=True))
    assert all(torch.equal(kept[n], again[n]) for n in kept)
    servers = [ServerLearner(split_model, [1, 2], training) for _ in range(2)]
    client = ClientLearner(split_model, training)
    for server in servers:
        client.begin_round(1, server.begin_round(1))
    names = {1: "one", 2: "two"}
    waiting = {k: (client.forward(x), y) for k, (x, y) in enumerate(batches(), start=1)}
    for _ in range(2):
        together = servers[0].forward_backward_together(waiting, names)
        for k, (smashed, labels) in waiting.items():
            alone = servers[1].forward_backward(k, smashed, labels, names[k])
            assert together[k].loss == pytest.approx(alone.loss, rel=1e-5)
            torch.testing.assert_close(together[k].gradient, alone.gradient, rtol=1e-4, atol=1e-7)


def test_nothing_is_dropped_where_nothing_trains() -> None:
    name = "vit_nano_patch8_64"
    plain = model(name)
    dropping = load_model(config(name, dropout=0.5), backbone(name))
    images, labels = batches()[0]
    losses = []
    for split_model in (plain, dropping):
        server = ServerLearner(split_model, [1], TRAINING)
        server.load_state(trained_split(plain, 2))
        losses.append(server.evaluate(images, labels))
    assert losses[0] == losses[1]


def test_as_much_is_dropped_as_was_asked_for() -> None:
    dropout = Dropout(0.2, seed=1)
    x = torch.ones(2, 100, 100)
    assert dropout.noise("a", x) is None, "no batch trains"
    dropout.batches = ["1", "2"]
    noise = dropout.noise("a", x)
    assert noise is not None
    assert set(noise.unique().tolist()) == {0.0, 1.25}
    assert float((noise == 0).float().mean()) == pytest.approx(0.2, abs=0.01)
    assert not torch.equal(noise[0], noise[1]), "each batch has its own"
    again, other = dropout.noise("a", x), dropout.noise("b", x)
    assert again is not None
    assert other is not None
    assert torch.equal(noise, again)
    assert not torch.equal(noise, other)


@pytest.mark.parametrize(("name", "split"), EVERY_SPLIT)
def test_split_training_equals_unsplit_bit_for_bit(name: str, split: int) -> None:
    state, reference = trained_split(model(name), split), trained_unsplit(name)
    start = model(name).layout.views(initial_trainables(model(name).layout, 1))
    assert state.keys() == reference.keys()
    for key, tensor in reference.items():
        assert torch.equal(state[key], tensor), key
        assert not torch.equal(start[key], tensor), f"{key} never learned"


@pytest.mark.parametrize("name", SPLITS)
def test_every_own_model_is_known_with_its_splits(name: str) -> None:
    assert set(SPLITS) | {"resnet_nano_32"} == set(OWN_MODELS)
    split_model = model(name)
    assert split_model.splits == SPLITS[name]
    images = batches()[0][0]
    for split, shape in enumerate(split_model.feature_shapes, start=1):
        split_model.attach(split_model.layout.views(initial_trainables(split_model.layout, 1)))
        assert split_model.client(images, split).shape == (3, *shape)


@pytest.mark.parametrize("name", SPLITS)
def test_many_clients_in_one_pass_equal_one_by_one(name: str) -> None:
    training = TrainingConfig(learning_rate=0.05, optimiser="sgd")
    servers = [ServerLearner(model(name), [1, 2], training) for _ in range(2)]
    client = ClientLearner(model(name), training)
    for server in servers:
        client.begin_round(1, server.begin_round(1))
    waiting = {k: (client.forward(x), y) for k, (x, y) in enumerate(batches(), start=1)}
    together = servers[0].forward_backward_together(waiting)
    for k, (smashed, labels) in waiting.items():
        alone = servers[1].forward_backward(k, smashed, labels)
        assert together[k].loss == pytest.approx(alone.loss, rel=1e-5)
        torch.testing.assert_close(together[k].gradient, alone.gradient, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("kind", ["lora", "dora"])
@pytest.mark.parametrize("name", SPLITS)
def test_peft_loads_what_was_trained(name: str, kind: str, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    made = config(name, **KINDS[kind])
    split_model = load_model(made, backbone(name))
    state = trained_split(split_model, 2)
    export_peft(state, tmp_path, made)
    adapted = peft.PeftModel.from_pretrained(timms(name), tmp_path).eval()
    images = batches()[0][0]
    split_model.attach(state)
    with torch.no_grad():
        ours = split_model.server(split_model.client(images, 1), 1)
        assert (adapted(images) - ours).abs().max() < 1e-5
        with adapted.disable_adapter():
            assert (adapted(images) - ours).abs().max() > 1e-4


def test_adapters_stand_where_a_pattern_says() -> None:
    some = SplitModel(config("vit_nano_patch8_64", targets=r"attn\.(qkv|proj)$"))
    assert set(some.loras) == {f"blocks.{b}.attn.{n}" for b in range(6) for n in ("qkv", "proj")}
    with pytest.raises(InputError, match=r"^workload\.lora_targets: .*first part"):
        SplitModel(config("vit_nano_patch8_64", targets=r"blocks\.5"))


def test_layers_that_are_not_called_carry_no_adapter() -> None:
    """BEiT multiplies by qkv's weight itself; and peft could not adapt it either."""
    assert not [name for name in model("beit_nano_patch8_64").loras if name.endswith("qkv")]
    assert not [name for name in model("swinv2_nano_patch4_window4_64").loras if "cpb" in name]


@pytest.mark.parametrize(
    ("name", "size", "splits", "shape"),
    [
        ("deit_tiny_patch16_224", 32, 12, (5, 192)),
        ("eva02_tiny_patch14_224", 28, 12, (5, 192)),
        ("convnext_tiny", 64, 4, (96, 16, 16)),
        ("vit_small_patch16_dinov3", 32, 12, (9, 384)),
    ],
)
def test_models_of_timms_list(name: str, size: int, splits: int, shape: tuple[int, ...]) -> None:
    split_model = SplitModel(config(name, image_size=size))
    assert split_model.splits == splits
    assert split_model.feature_shapes[0] == shape


def test_pictures_are_scaled_as_the_models_weights_were_trained() -> None:
    half = (0.5, 0.5, 0.5)
    assert chain_of(config("vit_tiny_patch16_224")).input == Images(224, half, half)


@pytest.mark.parametrize("name", ["densenet121", "inception_v3", "mixer_b16_224"])
def test_what_is_no_chain_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(InputError, match=r"^workload\.model: ") as refusal:
        SplitModel(config(name))
    assert "\n" not in str(refusal.value)


def test_an_image_size_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match=r"^workload\.image_size: "):
        SplitModel(config("vit_tiny_patch16_224", image_size=10))
