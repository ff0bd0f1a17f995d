# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Costs of convolutional networks, of full training, and of a client that trains nothing."""

from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from workloads.costs.counting import count
from workloads.costs.lookup import _file_name, counted
from workloads.learning.settings import ModelConfig

NAME, PIXELS, SAMPLES = "resnet18", 64, 2
FULL = ModelConfig(NAME, 10, image_size=PIXELS, adapters="full")
PARTS = (("conv1", "bn1", "layer1"), ("layer2",), ("layer3",), ("layer4",), ("fc",))


def timms() -> nn.Module:
    return timm.create_model(NAME, num_classes=10)  # type: ignore[no-any-return]


def of_batch_norm(flops: int) -> dict[Any, Any]:
    """Counts of torch's counter, which has none of its own."""

    def forward(x: tuple[int, ...], *_: Any, **__: Any) -> int:
        return flops * prod(x)

    def backward(_: Any, x: tuple[int, ...], *__: Any, **___: Any) -> int:
        return flops * prod(x)

    aten = torch.ops.aten
    return {
        aten.native_batch_norm: forward,
        aten.native_batch_norm.default: forward,
        aten.native_batch_norm_backward: backward,
        aten.native_batch_norm_backward.default: backward,
    }


@pytest.mark.parametrize(("choice", "flops"), [("averaged", 10), ("frozen", 4)])
def test_full_training_costs_what_fvcore_and_torch_count(choice: Any, flops: int) -> None:
    fvcore = pytest.importorskip("fvcore.nn")
    ours = count(replace(FULL, batch_norm=choice))
    net = timms().train(choice == "averaged")
    analysis = fvcore.FlopCountAnalysis(net, torch.zeros(SAMPLES, 3, PIXELS, PIXELS))
    modules = analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).by_module()
    parts = [sum(modules[name] for name in names) for names in PARTS]
    assert analysis.by_operator()["batch_norm"] % (SAMPLES * flops // 2) == 0
    for split in range(1, 5):
        assert ours.client_forward_flops[split - 1] == 2 * sum(parts[:split]) / SAMPLES
        assert ours.server_forward_flops[split - 1] == 2 * sum(parts[split:]) / SAMPLES
    counter = FlopCounterMode(display=False, custom_mapping=of_batch_norm(flops))
    net = timms().to("meta").eval()
    logits = net(torch.empty(1, 3, PIXELS, PIXELS, device="meta"))
    with counter:
        torch.autograd.backward(logits, torch.empty_like(logits))
    for split in range(4):
        both = ours.client_backward_flops[split] + ours.server_backward_flops[split]
        assert both == counter.get_total_flops()


@pytest.mark.parametrize(
    ("choice", "own"),
    [
        ("averaged", ("weight", "bias", "running_mean", "running_var")),
        ("frozen", ("weight", "bias")),
        ("per-client", ("weight", "bias")),
        ("local", ()),
    ],
)
def test_bytes_are_those_of_what_travels(choice: Any, own: tuple[str, ...]) -> None:
    ours, net, size = count(replace(FULL, batch_norm=choice)), timms(), 0
    norms = {name for name, module in net.named_modules() if isinstance(module, nn.BatchNorm2d)}
    for split, names in enumerate(PARTS[:4]):
        for key, tensor in net.state_dict().items():
            layer, _, name = key.rpartition(".")
            if key.startswith(names) and (layer not in norms or name in own):
                size += 4 * tensor.numel()
        assert ours.adapter_bytes[split] == size


def test_adapters_of_convolutions_cost_what_fvcore_counts_of_pefts() -> None:
    fvcore, peft = pytest.importorskip("fvcore.nn"), pytest.importorskip("peft")
    config = replace(FULL, adapters="lora", batch_norm="frozen")
    ours, net = count(config), timms()
    convolutions = [name for name, module in net.named_modules() if isinstance(module, nn.Conv2d)]
    adapted = peft.get_peft_model(
        net, peft.LoraConfig(r=8, target_modules=convolutions, modules_to_save=["fc"])
    ).eval()
    inner = adapted.base_model.model
    analysis = fvcore.FlopCountAnalysis(inner, torch.zeros(1, 3, PIXELS, PIXELS))
    modules = analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).by_module()
    parts = [sum(modules[name] for name in names) for names in PARTS]
    trained = {n: 4 * p.numel() for n, p in inner.named_parameters() if p.requires_grad}
    size = 0
    for split in range(1, 5):
        assert ours.client_forward_flops[split - 1] == 2 * sum(parts[:split])
        assert ours.server_forward_flops[split - 1] == 2 * sum(parts[split:])
        size += sum(each for n, each in trained.items() if n.startswith(PARTS[split - 1]))
        assert ours.adapter_bytes[split - 1] == size


def test_a_depthwise_convolution_by_hand() -> None:
    """MobileNet's first block: a depthwise and a pointwise convolution, behind the stem."""
    config = ModelConfig("mobilenetv2_100", 10, image_size=32, adapters="full")
    ours = count(replace(config, batch_norm="frozen"))
    pixels = 16 * 16
    stem, depthwise, pointwise = 32 * 27 * pixels, 32 * 9 * pixels, 32 * 16 * pixels
    norms = 4 * pixels * (32 + 32 + 16)
    assert ours.client_forward_flops[0] == 2 * (stem + depthwise + pointwise) + norms
    # Gradients of weights cost as much as the forward pass, those of activations too, but for the
    # stem, whose input needs none.
    products = 2 * (stem + 2 * depthwise + 2 * pointwise)
    assert ours.client_backward_flops[0] == products + norms
    values = 32 * 27 + 32 * 9 + 32 * 16 + 2 * (32 + 32 + 16)
    assert ours.adapter_bytes[0] == 4 * values


def test_a_client_that_trains_nothing_has_no_backward_pass_and_sends_nothing() -> None:
    none = count(ModelConfig("vit_nano_patch8_64", 10, adapters="none"))
    assert set(none.client_backward_flops) == {0}
    assert set(none.adapter_bytes) == {0}
    assert set(none.adapter_header_bytes) == {16}
    lora = count(ModelConfig("vit_nano_patch8_64", 10))
    for split in range(5):
        assert none.client_forward_flops[split] < lora.client_forward_flops[split]
        assert 0 < none.server_backward_flops[split] < lora.server_backward_flops[split]


def test_what_costs_depend_on_is_in_the_name_of_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    configs = [
        replace(FULL, adapters=adapters, batch_norm=choice)
        for adapters in ("lora", "full", "none")
        for choice in ("averaged", "frozen", "local", "per-client")
    ]
    assert len({_file_name(config) for config in configs}) == len(configs)
    first = counted(configs[5])
    assert counted(configs[5]) == first != counted(configs[4])


def test_outputs_are_those_of_one_sample() -> None:
    """Counted on one sample, which batch normalisation could not normalise in training."""
    ours = count(replace(FULL, image_size=32))
    assert ours.smashed_bytes[3] == 4 * 512
    assert isinstance(ours.smashed_bytes[0], int)
