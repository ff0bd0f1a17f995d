# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Chains of packages: compared with their whole network, initialised as they initialise themselves,
and with tied weights."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from packages import importable, write_package
from torch.nn import functional

from testbed.core.errors import InputError
from workloads.costs.counting import count
from workloads.learning.backbone import load_model
from workloads.learning.cached import backbone_file
from workloads.learning.learner import ServerLearner
from workloads.learning.model import SplitModel
from workloads.learning.settings import ModelConfig, TrainingConfig

CODE = """
import torch
from torch import nn
from orchestrator import Chain, Images, Tokens


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, width)
        self.scale = nn.Parameter(torch.ones(width))
        self.gamma_3d = nn.Parameter(torch.full((1, 1, width), 0.5))
        self.start = nn.Parameter(torch.zeros(width, width))
        self.offset = nn.Parameter(torch.zeros(width))
        self.decay = nn.Parameter(0.5 + torch.rand(width))
        self.order = nn.Parameter(torch.arange(width, dtype=torch.float32))

    def forward(self, x):
        mixed = self.up(self.norm(x)) @ (self.start + torch.eye(len(self.scale)).to(x.device))
        return x + self.gamma_3d * self.scale * torch.tanh(mixed * self.decay) + self.offset


class Net(nn.Module):
    def __init__(self, classes, width, tied):
        super().__init__()
        self.token = nn.Embedding(classes, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes, bias=not tied)
        self.register_buffer("shift", torch.full((width,), 0.25))
        if tied:
            self.head.weight = self.token.weight

    def forward(self, tokens):
        x = self.token(tokens) + self.shift
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def net(classes, fault="", tied=False):
    net, whole = Net(classes, 8, tied), None
    embed, parts = lambda t: net.token(t) + net.shift, list(net.blocks)
    finish = lambda x: net.head(net.norm(x))
    if fault == "norm":
        finish = lambda x: net.head(x)
    elif fault == "order":
        parts = [net.blocks[1], net.blocks[0]]
    elif fault == "part":
        parts = [net.blocks[0], lambda x: net.blocks[1](x) if len(x) == 101 else x]
    elif fault == "kept head":
        head = net.head
        finish = lambda x: head(net.norm(x))
    elif fault == "kept layer":
        up = net.blocks[0].up
        parts[0] = lambda x: x + up(x)
    elif fault == "whole":
        whole = lambda t: 2 * net(t)
    elif fault == "broken whole":
        whole = lambda t: net(t)[:, 0]
    elif fault == "other forward":
        Net.forward = lambda self, tokens, mask: None
    elif fault == "object":
        class Answer:
            logits = None
        def whole(t):
            answer = Answer()
            answer.logits = net(t)
            return answer
    elif fault == "meta buffer":
        net.shift = torch.zeros(8, device="meta")
    return Chain(net, Tokens(6, classes), embed, parts, finish, head="head", whole=whole)
"""
CONFIG = ModelConfig("net", 20, rank=2)


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    write_package(tmp_path / "packages", "netting", CODE, "[testbed.models]\nnet = netting:net\n")
    torch.set_num_threads(1)
    with importable(tmp_path / "packages", "netting", monkeypatch):
        yield


def made(cache: Path, **parameters: Any) -> SplitModel:
    config = replace(CONFIG, parameters=parameters)
    return load_model(config, backbone_file(config, cache))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("fault", ["", "object"])
def test_a_chain_that_computes_its_network_is_accepted(
    tmp_path: Path, fault: str, dtype: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        config = replace(CONFIG, dtype=dtype, parameters={"fault": fault})
        load_model(config, backbone_file(config, tmp_path))
    assert not caplog.messages


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("fault", ["norm", "order", "part", "whole"])
def test_a_chain_that_computes_something_else_is_refused(
    tmp_path: Path, fault: str, dtype: Any
) -> None:
    config = replace(CONFIG, dtype=dtype, parameters={"fault": fault})
    says = r"^workload\.model: net: the parts of its chain compute something else than the whole"
    with pytest.raises(InputError, match=says) as refusal:
        backbone_file(config, tmp_path)
    assert "\n" not in str(refusal.value)
    assert not [*tmp_path.glob("backbone*")]


@pytest.mark.parametrize(("fault", "layer"), [("kept head", "head"), ("kept layer", "blocks.0.up")])
def test_a_chain_must_find_layers_in_its_network(fault: str, layer: str) -> None:
    says = rf"^workload\.model: net: the chain has kept the layer '{layer}'"
    with pytest.raises(InputError, match=says):
        count(replace(CONFIG, parameters={"fault": fault}))


def test_a_whole_network_that_fails_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"`whole` of its chain fails: .*\(2, 20\), not \(2, 6, 20"
    ):
        made(tmp_path, fault="broken whole")


def test_a_forward_that_needs_more_than_samples_is_not_compared(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        made(tmp_path, fault="other forward")
    [line] = caplog.messages
    assert "its chain is not compared with its forward (TypeError" in line


def test_buffers_without_values_are_refused() -> None:
    with pytest.raises(InputError, match=r"^workload\.model: net: its buffer shift is on the meta"):
        SplitModel(replace(CONFIG, parameters={"fault": "meta buffer"}))


def test_a_package_initialises_its_own_vectors_and_constants(tmp_path: Path) -> None:
    block = made(tmp_path).net.blocks[1]
    other_seed = replace(CONFIG, seed=2)
    other = load_model(other_seed, backbone_file(other_seed, tmp_path)).net.blocks[1]
    assert torch.equal(block.scale, torch.ones(8))
    assert torch.equal(block.gamma_3d, torch.full((1, 1, 8), 0.5))
    assert torch.equal(block.order, torch.arange(8.0))
    assert torch.equal(block.norm.weight, torch.ones(8))
    for zero in (block.offset, block.norm.bias, block.up.bias):
        assert not zero.any()
    assert ((block.decay >= 0.5) & (block.decay < 1.5)).all()
    assert not torch.equal(block.decay, other.decay)
    assert float(block.start.std()) == pytest.approx(0.02, rel=0.5), "drawn, as it was zero"
    assert float(block.up.weight.std()) == pytest.approx(8**-0.5, rel=0.4)
    again = made(tmp_path / "again").net.blocks[1]
    assert torch.equal(block.decay, again.decay)


@pytest.mark.parametrize("given", ["both", "token"])
def test_tied_weights_are_found_under_either_name(tmp_path: Path, given: str) -> None:
    backbone = backbone_file(replace(CONFIG, parameters={"tied": True}), tmp_path)
    tensors = safetensors.torch.load_file(backbone)
    tensors["token.weight"] = torch.randn(20, 8, generator=torch.Generator().manual_seed(3))
    if given == "both":
        tensors["head.weight"] = tensors["token.weight"].clone()
    file = tmp_path / "given.safetensors"
    safetensors.torch.save_file(tensors, file)
    config = replace(CONFIG, weights=str(file), head="file", parameters={"tied": True})
    model = load_model(config, backbone_file(config, tmp_path))
    state = ServerLearner(model, [1], TrainingConfig()).state()
    assert torch.equal(state["head.weight"], tensors["token.weight"])
    assert torch.equal(model.net.token.weight, tensors["token.weight"])
    model.attach(state)
    tokens = torch.arange(12).view(2, 6)
    x = functional.embedding(tokens, tensors["token.weight"]) + 0.25
    for block in model.net.blocks:
        x = block(x)
    want = model.net.norm(x) @ tensors["token.weight"].T
    torch.testing.assert_close(model.server(model.client(tokens, 1), 1), want)


def test_a_saved_buffer_with_other_values_is_refused(tmp_path: Path) -> None:
    tensors = safetensors.torch.load_file(backbone_file(CONFIG, tmp_path))
    for value, fits in ((0.25, True), (0.5, False)):
        file = tmp_path / f"{value}.safetensors"
        safetensors.torch.save_file(tensors | {"shift": torch.full((8,), value)}, file)
        config = replace(CONFIG, weights=str(file))
        if fits:
            backbone_file(config, tmp_path)
            continue
        with pytest.raises(
            InputError, match=r"^workload\.weights: .* other values of shift, a buf"
        ):
            backbone_file(config, tmp_path)
