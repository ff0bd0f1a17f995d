# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The causal transformer of examples/prophet: installed, counted, cut, trained and predicted."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from packages import importable, write_package
from torch.nn import functional

import orchestrator as tb
from testbed.core.errors import InputError
from workloads.data.samples import client_data, open_data
from workloads.learning.backbone import load_model
from workloads.learning.cached import backbone_file
from workloads.learning.learner import ClientLearner, ServerLearner, Trainees
from workloads.learning.model import initial_trainables
from workloads.learning.settings import DataConfig, ModelConfig, TrainingConfig
from workloads.learning.streams import Receiver, Sender

ROOT = Path(__file__).resolve().parents[3]
CONFIG = ModelConfig("prophet", 50, rank=4, parameters={"length": 16, "width": 32})
TRAINING = TrainingConfig(learning_rate=2e-2)
ENTRIES = "[testbed.models]\nprophet = prophet:prophet\n"
RULES = "[testbed.aggregators]\nmidway = prophet:midway\nlively = prophet:lively\n"
STEPS = "[testbed.local_steps]\ndrag = prophet:Drag\n"
CODECS = "[testbed.codecs]\nsigns = prophet:Signs\n"


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The example's package as an installer leaves it, and a cache folder of its own."""
    code = (ROOT / "examples" / "prophet" / "prophet.py").read_text(encoding="utf-8")
    folder = tmp_path / "packages"
    write_package(folder, "prophet", code, f"{ENTRIES}\n{RULES}\n{STEPS}\n{CODECS}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    torch.set_num_threads(1)
    with importable(folder, "prophet", monkeypatch):
        yield folder


def test_split_training_on_tokens_equals_unsplit_and_learns(tmp_path: Path) -> None:
    model = load_model(CONFIG, backbone_file(CONFIG, tmp_path))
    data = DataConfig(samples=400)
    [share] = client_data(open_data(data, 50, model.input), data, 1, batch_size=16)
    states, losses = [], []
    for split in (1, 3):
        client, server = ClientLearner(model, TRAINING), ServerLearner(model, [1], TRAINING)
        client.begin_round(split, server.begin_round(split))
        for iteration in range(1, 31):
            tokens, following = share.batch(0, iteration)
            smashed = client.forward(tokens)
            assert smashed.shape == (16, *model.feature_shapes[split - 1]) == (16, 16, 32)
            step = server.forward_backward(1, smashed, following)
            losses.append(step.loss)
            client.backward(step.gradient)
        server.aggregate({1: client.adapters()}, {1: 1})
        states.append(server.state())
    vector = initial_trainables(model.layout, CONFIG.seed)
    whole = Trainees(model.layout, 0, vector, TRAINING)
    for iteration in range(1, 31):
        tokens, following = share.batch(0, iteration)
        model.attach(whole.tensors)
        logits = model.server(model.client(tokens, 4), 4)
        assert logits.shape == (16, 16, 50)
        functional.cross_entropy(logits.flatten(0, 1), following.flatten()).backward()
        whole.step()
    for state in states:
        for name, tensor in model.layout.views(vector).items():
            assert torch.equal(state[name], tensor), name
    assert losses[29] < 0.95 * losses[0], "it learns what follows what"


def test_it_looks_back_alone(tmp_path: Path) -> None:
    model = load_model(CONFIG, backbone_file(CONFIG, tmp_path))
    model.attach(model.layout.views(initial_trainables(model.layout, 1)))
    tokens = torch.arange(16)[None]
    other = tokens.clone()
    other[0, 10] = 40
    one, two = (model.server(model.client(t, 2), 2)[0] for t in (tokens, other))
    assert torch.equal(one[:10], two[:10])
    assert not torch.equal(one[10:], two[10:])


def scenario(**more: object) -> tb.Scenario:
    keys = {"workload.model": "prophet", "workload.classes": 50, "rounds": 1}
    return tb.load("quickstart", keys | {k.replace("__", "."): v for k, v in more.items()})


def a_trace() -> dict[str, object]:
    return {"gain": np.full((scenario().uavs.count, 20_000), 1e-10), "slot_s": 0.1}


def test_it_is_predicted_with_what_it_counts_to() -> None:
    trace = a_trace()
    made = scenario(workload__split=6, workload__parameters={"depth": 6})
    round_ = tb.predict(made, trace=trace)[0]
    sizes = {s["step"]: s["bytes"] for s in round_.to_json()["steps"]}
    assert sizes["CA"] == 4 * made.workload.batch_size * 32 * 64, "float32 of [B, length, width]"
    rank = made.workload.lora_rank
    assert sizes["SM"] == 4 * 6 * rank * (64 + 3 * 64 + 64 + 64 + 64 + 4 * 64 + 4 * 64 + 64)
    with pytest.raises(InputError, match=r"workload\.split: must be 1 to 4 for prophet, not 6"):
        tb.predict(scenario(workload__split=6), trace=trace)


def test_wrong_parameters_are_refused_in_one_line() -> None:
    for parameters, says in (
        ({"colour": 1}, r"workload\.parameters\.colour: 'prophet' has no such parameter"),
        ({"width": 30}, r"workload\.parameters: width must be a multiple of heads"),
    ):
        with pytest.raises(InputError, match=says) as refusal:
            tb.predict(scenario(workload__parameters=parameters), trace=a_trace())
        assert "\n" not in str(refusal.value)
    with pytest.raises(InputError, match=r"workload\.image_size: belongs to timm's models"):
        scenario(workload__image_size=64)


def test_its_rule_of_aggregation(tmp_path: Path) -> None:
    made = scenario(
        workload__aggregation="midway", workload__aggregation_parameters={"share": 0.25}
    )
    assert made.workload.aggregation == "midway"
    with pytest.raises(InputError, match=r"workload\.aggregation_parameters\.x: 'midway'"):
        scenario(workload__aggregation="midway", workload__aggregation_parameters={"x": 1})
    with pytest.raises(InputError, match=r"workload\.aggregation: 'midwy'"):
        scenario(workload__aggregation="midwy")
    model = load_model(CONFIG, backbone_file(CONFIG, tmp_path))
    training = TrainingConfig(aggregation="midway", aggregation_parameters={"share": 0.25})
    server = ServerLearner(model, [1], training)
    before = server.begin_round(4).clone()
    server.aggregate({1: before + 1}, {1: 3})
    torch.testing.assert_close(server.begin_round(4), before + 0.25)


def test_its_rule_and_local_step_with_state(tmp_path: Path) -> None:
    """Clients whose loss falls count twice; each side keeps where it ended."""
    made = scenario(workload__aggregation="lively", workload__local_step="drag")
    assert made.workload.travelling.stays
    assert not made.workload.travelling.is_sent
    with pytest.raises(InputError, match=r"local_step_parameters\.x: 'drag' has no such"):
        scenario(workload__local_step="drag", workload__local_step_parameters={"x": 1})
    model = load_model(CONFIG, backbone_file(CONFIG, tmp_path))
    server = ServerLearner(model, [1, 2], TrainingConfig(aggregation="lively", local_step="drag"))
    for losses, share in (({1: [1.0], 2: [2.0]}, 0.5), ({1: [1.5], 2: [0.5]}, 1 / 3)):
        before = server.begin_round(4, 0).clone()
        server._losses = losses
        server.aggregate({1: before + 1, 2: before}, {1: 3, 2: 3})
        torch.testing.assert_close(server.begin_round(4), before + share)
        saved = server.state()
        for k, own in losses.items():
            assert float(saved[f"aggregation.@{k}.loss"]) == own[0]
            assert len(saved[f"clients.{k}.@bs.end"]) == model.layout.size - model.layout.cuts[4]


def test_its_codec() -> None:
    made = scenario(workload__wire_dtype="signs")
    values = made.workload.batch_size * 32 * 64
    steps = tb.predict(made, trace=a_trace())[0].to_json()["steps"]
    sizes = {step["step"]: step["bytes"] for step in steps}
    assert sizes["CA"] == sizes["SG"] == 4 + values // 8
    with pytest.raises(InputError, match=r"workload\.wire_parameters: 'signs'"):
        scenario(workload__wire_dtype="signs", workload__wire_parameters={"x": 1})
    with pytest.raises(InputError, match=r"workload\.wire_dtype: 'sings' .* did you mean 'signs'"):
        scenario(workload__wire_dtype="sings")
    codec = made.workload.codec
    sender, receiver = Sender(codec, "gradient"), Receiver(codec, "gradient")
    random = torch.Generator().manual_seed(1)
    due = sent = torch.zeros(5, 5)
    for _ in range(200):
        batch = torch.randn(5, 5, generator=random) + torch.arange(5)
        due = due + batch
        sent = sent + receiver.decode(memoryview(bytearray(sender.encode(batch))), (5, 5))
    torch.testing.assert_close(sent / 200, due / 200, atol=0.3, rtol=0)
    assert not torch.allclose(sent / 200, due.abs().mean() / 200 * due.sign(), atol=0.3, rtol=0)
