# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Convolutional networks: adapters are those of peft, and split training is training in one
piece."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import timm
import torch
from timm.layers import Conv2dSame
from timm.models.resnet import ResNet
from torch import Tensor, nn
from torch.nn import functional

from testbed.core.errors import InputError
from workloads.aggregation.rules import Update, rule_of
from workloads.learning.backbone import load_model
from workloads.learning.cached import backbone_file
from workloads.learning.export import export_peft
from workloads.learning.learner import ClientLearner, ServerLearner
from workloads.learning.model import Dropout, LoraConv, SplitModel, initial_trainables
from workloads.learning.settings import ModelConfig, TrainingConfig
from workloads.models.families import OWN_MODELS

RANK = 8
TRAINING = TrainingConfig(learning_rate=0.01, optimiser="sgd")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("backbone")


LAYERS: dict[str, Callable[[], nn.Conv2d]] = {
    "plain": lambda: nn.Conv2d(6, 10, 3, stride=2, padding=1),
    "pointwise": lambda: nn.Conv2d(6, 10, 1, bias=False),
    "oblong": lambda: nn.Conv2d(6, 10, (1, 5), stride=(2, 1), padding=(0, 2)),
    "grouped": lambda: nn.Conv2d(8, 12, 3, padding=1, groups=4),
    "depthwise": lambda: nn.Conv2d(8, 8, 5, stride=2, padding=2, groups=8, bias=False),
    "same": lambda: Conv2dSame(6, 10, 3, stride=2),
}


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_an_adapted_convolution_is_pefts(kind: str, rate: float) -> None:
    peft = pytest.importorskip("peft")
    torch.manual_seed(1)
    conv = LAYERS[kind]().requires_grad_(False)
    theirs = peft.inject_adapter_in_model(
        peft.LoraConfig(r=RANK, lora_alpha=12, target_modules=["conv"]),
        nn.ModuleDict({"conv": copy.deepcopy(conv)}),
    )["conv"]
    a, b = theirs.lora_A["default"].weight, theirs.lora_B["default"].weight
    nn.init.normal_(b)
    dropout = Dropout(rate, 3)
    dropout.batches = ["one", "two"]
    ours = LoraConv(conv, 12 / RANK, "conv", dropout)
    adapter = tuple(each.detach().clone().requires_grad_() for each in (a, b))
    ours.adapter = (adapter[0], adapter[1])
    x = torch.randn(4, conv.in_channels, 9, 9)

    class Drawn(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            noise = dropout.noise("conv", x)
            return x if noise is None else x * noise

    theirs.lora_dropout["default"] = Drawn()
    results = []
    for layer, parameters in ((theirs, (a, b)), (ours, adapter)):
        given = x.clone().requires_grad_()
        out = layer(given)
        results.append([out, *torch.autograd.grad(out.square().sum(), (given, *parameters))])
    for expected, found in zip(*results, strict=True):
        assert expected.shape == found.shape
        assert (expected - found).abs().max() <= 1e-6 * expected.abs().max()


def timms(config: ModelConfig) -> nn.Module:
    if config.model in OWN_MODELS:
        return ResNet(**OWN_MODELS[config.model], num_classes=config.classes)
    return timm.create_model(config.model, num_classes=config.classes)


def split_model(config: ModelConfig, cache: Path) -> SplitModel:
    return load_model(config, backbone_file(config, cache))


def batches(size: int) -> list[tuple[Tensor, Tensor]]:
    random = torch.Generator().manual_seed(5)
    return [
        (torch.randn(4, 3, size, size, generator=random), torch.randint(10, (4,), generator=random))
        for _ in range(3)
    ]


def train_split(model: SplitModel, split: int) -> tuple[list[float], dict[str, Tensor]]:
    client, server = ClientLearner(model, TRAINING), ServerLearner(model, [1], TRAINING)
    client.begin_round(split, server.begin_round(split))
    losses = []
    for index, (images, labels) in enumerate(batches(model.input.size)):
        smashed = client.forward(images, str(index))
        step = server.forward_backward(1, smashed, labels, str(index))
        client.backward(step.gradient)
        losses.append(step.loss)
    server.aggregate({1: client.adapters()}, {1: 1})
    return losses, server.state()


def train_whole(net: nn.Module, size: int) -> list[float]:
    trained = [p for p in net.parameters() if p.requires_grad]
    optimiser = torch.optim.SGD(trained, TRAINING.learning_rate, momentum=TRAINING.momentum)
    losses = []
    for images, labels in batches(size):
        optimiser.zero_grad()
        loss = functional.cross_entropy(net(images), labels)
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses


def assert_close(state: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert state.keys() == expected.keys()
    for name, tensor in expected.items():
        limit = 1e-6 * max(1.0, float(tensor.abs().max()))
        assert (state[name] - tensor).abs().max() <= limit, name


@pytest.mark.parametrize(
    ("name", "splits"),
    [
        ("mobilenetv3_small_050", (1, 6)),
        pytest.param("mobilenetv2_050", (3,), marks=pytest.mark.full),
        pytest.param("vgg11_bn", (1, 5), marks=pytest.mark.full),
        ("convnext_atto", (1, 4)),
        # Statistics of four pixels would magnify the rounding of products, which depends on where
        # their operands begin.
        pytest.param("efficientnet_b0 frozen", (2, 7), marks=pytest.mark.full),
        pytest.param("regnety_002 frozen", (2,), marks=pytest.mark.full),
    ],
)
def test_networks_of_timm_train_as_a_whole(
    name: str, splits: tuple[int, ...], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Full training of the split network is that of the whole one, statistics included."""
    if name.startswith("vgg"):  # Its last layers would have a hundred million parameters.
        create = timm.create_model
        monkeypatch.setattr(timm, "create_model", lambda *a, **k: create(*a, mlp_ratio=0.01, **k))
    name, _, frozen = name.partition(" ")
    norm: Any = frozen or "averaged"
    config = ModelConfig(name, 10, image_size=32, adapters="full", batch_norm=norm)
    model = split_model(config, cache)
    net = timms(config)
    net.load_state_dict(safetensors.torch.load_file(backbone_file(config, cache)), strict=False)
    start = ServerLearner(model, [1], TRAINING).state()
    net.load_state_dict({key: start[key] for key in model.head_shapes}, strict=False)
    net.train(not frozen)
    for module in net.modules():
        if isinstance(module, nn.Dropout):
            module.eval()
    losses = train_whole(net, 32)
    expected = {key: tensor for key, tensor in net.state_dict().items() if key in start}
    assert frozen or len(expected) == len(start)
    for split in splits:
        ours, state = train_split(model, split)
        assert ours == pytest.approx(losses, rel=1e-6, abs=1e-6)
        assert_close(state, expected)


@pytest.fixture
def own_resnets(monkeypatch: pytest.MonkeyPatch) -> None:
    from timm.models.resnet import Bottleneck

    grouped = {
        "block": Bottleneck,
        "layers": (1, 1, 1, 1),
        "channels": (16, 32, 64, 128),
        "cardinality": 4,
        "base_width": 16,
    }
    monkeypatch.setitem(OWN_MODELS, "resnet_grouped_32", grouped)


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("resnet_nano_32", {1}),
        ("resnet_grouped_32", {1, 4}),
        pytest.param("tf_efficientnet_lite0", {1, 32}, marks=pytest.mark.full),
    ],
)
@pytest.mark.parametrize("rate", [0.0, 0.2])
def test_adapters_of_convolutions_train_as_pefts(
    name: str, groups: set[int], rate: float, cache: Path, own_resnets: None, tmp_path: Path
) -> None:
    peft = pytest.importorskip("peft")
    norm: Any = "averaged" if name == "resnet_nano_32" else "frozen"
    size = 128 if norm == "averaged" else 32
    rank = 32 if 32 in groups else RANK
    config = ModelConfig(
        name, 10, rank=rank, alpha=16.0, image_size=size, dropout=rate, batch_norm=norm
    )
    model = split_model(config, cache)
    net = timms(config)
    found = {net.get_submodule(layer).groups for layer in model.loras}
    assert groups <= found
    file = backbone_file(config, cache)
    net.load_state_dict(safetensors.torch.load_file(file), strict=False)
    head = model.head_name
    adapted = peft.get_peft_model(
        net,
        peft.LoraConfig(
            r=rank, lora_alpha=16, target_modules=list(model.loras), modules_to_save=[head]
        ),
    ).train(norm == "averaged")
    inner = adapted.base_model.model

    class Drawn(nn.Module):
        def __init__(self, layer: str) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor) -> Tensor:
            noise = model.dropout.noise(self.layer, x)
            return x if noise is None else x * noise

    for layer in model.loras:
        inner.get_submodule(layer).lora_dropout["default"] = Drawn(layer)
    start = ServerLearner(model, [1], TRAINING).state()

    def trained() -> dict[str, Tensor]:
        named = {}
        for key, tensor in inner.state_dict().items():
            own = key.replace(".modules_to_save", "").replace(".default", "")
            own = own.removesuffix(".weight") if ".lora_" in own else own
            if own in start and "original_module" not in key:
                named[own] = tensor
        return named

    assert trained().keys() == start.keys()
    for key, tensor in trained().items():
        tensor.copy_(start[key])
    optimiser = torch.optim.SGD(
        [p for p in inner.parameters() if p.requires_grad], TRAINING.learning_rate, momentum=0.9
    )
    losses = []
    for index, (images, labels) in enumerate(batches(size)):
        model.dropout.batches = [str(index)]
        optimiser.zero_grad()
        loss = functional.cross_entropy(inner(images), labels)
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    expected = {key: tensor.detach().clone() for key, tensor in trained().items()}
    for split in (1, model.splits):
        ours, state = train_split(model, split)
        assert ours == pytest.approx(losses, rel=1e-6, abs=1e-6)
        assert_close(state, expected)
    # peft loads the exported folder, statistics included, and computes the same.
    export_peft(state, tmp_path / "exported", config, file)
    again = timms(config)
    again.load_state_dict(safetensors.torch.load_file(file), strict=False)
    loaded = peft.PeftModel.from_pretrained(again, tmp_path / "exported").eval()
    images = batches(size)[0][0]
    model.dropout.batches = []
    with torch.no_grad():
        difference = (loaded(images) - adapted.eval()(images)).abs().max()
    assert difference <= 1e-5


def test_full_training_is_exported_by_the_networks_own_names(cache: Path, tmp_path: Path) -> None:
    config = ModelConfig("resnet_nano_32", 10, adapters="full")
    model = split_model(config, cache)
    _, state = train_split(model, 2)
    export_peft(state | {"aggregation.first": torch.zeros(3)}, tmp_path, config)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    net = timms(config)
    missing, unknown = net.load_state_dict(
        safetensors.torch.load_file(tmp_path / "model.safetensors"), strict=False
    )
    assert not unknown
    assert all(name.endswith("num_batches_tracked") for name in missing)
    model.attach(model.layout.views(model.layout.vector(state)))
    images = batches(32)[0][0]
    with torch.no_grad():
        ours = model.server(model.client(images, 1), 1)
        assert torch.equal(net.eval()(images), ours)


def test_which_layers_have_adapters(cache: Path) -> None:
    """Of networks with linear layers: these; of others: convolutions whose groups divide the rank;
    with an expression: both."""

    def adapted(name: str, **options: Any) -> set[str]:
        return set(SplitModel(ModelConfig(name, 10, **options)).loras)

    assert not [name for name in adapted("swin_nano_patch4_window4_64") if "patch_embed" in name]
    nano = adapted("convnext_nano_64")
    assert all(".mlp.fc" in name for name in nano)
    some = adapted("convnext_nano_64", targets="downsample|fc1", rank=4)
    assert {"stages.1.downsample.1", "stages.0.blocks.0.mlp.fc1"} <= some
    assert "patch_embed.proj" not in adapted("vit_nano_patch8_64", targets="proj")
    named = adapted("vit_nano_patch8_64", targets=r"patch_embed\.proj|attn\.proj")
    assert {"patch_embed.proj", "blocks.5.attn.proj"} <= named
    assert "conv1" in adapted("resnet_nano_32")
    assert adapted("resnet_nano_32", targets=r"layer1.*conv1") == {"layer1.0.conv1"}
    model = SplitModel(ModelConfig("mobilenetv2_050", 10, image_size=32))
    assert "blocks.0.0.conv_dw" in model.frozen_layers
    assert "blocks.0.0.conv_dw" not in model.loras
    with pytest.raises(InputError, match=r"^workload\.lora_rank: 8 is no multiple of the groups"):
        SplitModel(ModelConfig("mobilenetv2_050", 10, image_size=32, targets="conv_dw"))
    with pytest.raises(InputError, match=r"^workload\.adapters: 'dora' is for linear layers"):
        SplitModel(ModelConfig("resnet_nano_32", 10, adapters="dora"))


def test_the_mean_of_products_is_that_of_each_group() -> None:
    """Of a grouped convolution, the product is one matrix per group."""
    random = torch.Generator().manual_seed(2)
    shapes = {"c.lora_A": (4, 3, 1, 1), "c.lora_B": (6, 2, 1, 1)}

    def views(vector: Tensor) -> dict[str, Tensor]:
        a, b = vector.split([12, 12])
        return {"c.lora_A": a.view(shapes["c.lora_A"]), "c.lora_B": b.view(shapes["c.lora_B"])}

    def product(vector: Tensor) -> Tensor:
        a, b = (tensor.flatten(1) for tensor in views(vector).values())
        return torch.cat([b[:3] @ a[:2], b[3:] @ a[2:]])

    # One client alone: what is cut to the rank loses nothing.
    client = torch.randn(24, generator=random).double()
    update = Update(torch.zeros(24).double(), lambda: iter([(1.0, client)]), views, {})
    mean = rule_of("svd", {})(update)
    np.testing.assert_allclose(product(mean), product(client), atol=1e-9)
    assert not torch.allclose(mean, client)


def test_initial_adapters_of_convolutions_are_those_of_peft() -> None:
    """Uniform in ±1/sqrt(fan-in), as torch draws a convolution's weights."""
    layout = SplitModel(replace(ModelConfig("resnet_nano_32", 10), rank=8)).layout
    start = layout.views(initial_trainables(layout, 1))
    a = start["layer1.0.conv1.lora_A"]
    bound = (64 * 9) ** -0.5
    assert 0.95 * bound < a.abs().max() <= bound
    assert not start["layer1.0.conv1.lora_B"].any()
