# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Split training is the same mathematics as training in one piece."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from timm.models.swin_transformer import SwinTransformer
from torch import Tensor, nn
from torch.nn import functional

from workloads.data.samples import ClientData, client_data, open_data
from workloads.learning.backbone import load_model
from workloads.learning.cached import backbone_file
from workloads.learning.export import export_peft
from workloads.learning.learner import ClientLearner, ServerLearner, ServerStep, Trainees
from workloads.learning.model import LoraLinear, SplitModel, initial_trainables
from workloads.learning.settings import DataConfig, ModelConfig, TrainingConfig
from workloads.learning.stopwatch import Stopwatch
from workloads.models.chain import Images
from workloads.models.families import OWN_MODELS

CONFIG = ModelConfig("swin_nano_patch4_window4_64", classes=10, rank=4, alpha=8.0)
DATA = DataConfig(samples=120, partition="dirichlet", concentration=2.0)
BATCH, ITERATIONS, ROUNDS = 4, 3, 2
TRAINING = TrainingConfig(learning_rate=3e-3)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return backbone_file(CONFIG, tmp_path_factory.mktemp("backbone"))


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def model(file: Path) -> SplitModel:
    return load_model(CONFIG, file)


def shares(clients: int, data: DataConfig = DATA) -> list[ClientData]:
    return client_data(open_data(data, CONFIG.classes, Images(64)), data, clients, BATCH)


def train_split(
    model: SplitModel,
    data: Sequence[ClientData],
    splits: Sequence[int],
    training: TrainingConfig = TRAINING,
    backwards_on: Sequence[int] = (),
) -> dict[str, Tensor]:
    """Rounds of split training; the server serves clients in reverse in those iterations."""
    clients = {share.client: ClientLearner(model, training) for share in data}
    server = ServerLearner(model, list(clients), training)
    for index, split in enumerate(splits):
        broadcast = server.begin_round(split)
        for client in clients.values():
            client.begin_round(split, broadcast)
        for iteration in range(1, ITERATIONS + 1):
            order = list(reversed(data)) if iteration in backwards_on else list(data)
            smashed, labels = {}, {}
            for share in data:
                images, labels[share.client] = share.batch(index, iteration)
                smashed[share.client] = clients[share.client].forward(images)
            for share in order:
                k = share.client
                gradient = server.forward_backward(k, smashed[k], labels[k]).gradient
                clients[k].backward(gradient)
        server.aggregate(
            {k: client.adapters() for k, client in clients.items()},
            {share.client: len(share.indices) for share in data},
        )
    return server.state()


class PlainLora(nn.Module):
    """LoRA as its paper writes it, with autograd's own gradients."""

    def __init__(self, linear: nn.Linear, scale: float) -> None:
        super().__init__()
        self.linear, self.scale = linear, scale
        self.lora_A = nn.Parameter(torch.zeros(CONFIG.rank, linear.in_features))
        self.lora_B = nn.Parameter(torch.zeros(linear.out_features, CONFIG.rank))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + self.scale * functional.linear(
            functional.linear(x, self.lora_A), self.lora_B
        )


class OurLora(PlainLora):
    """The same parameters through the layer that the split model uses."""

    def forward(self, x: Tensor) -> Tensor:
        layer = LoraLinear(self.linear, self.scale)
        layer.adapter = (self.lora_A, self.lora_B)
        return layer(x)


def monolith(file: Path, lora: type[PlainLora]) -> SwinTransformer:
    """timm's unsplit network with LoRA on every linear layer but the head, and the same start."""
    net = SwinTransformer(
        **OWN_MODELS[CONFIG.model], num_classes=CONFIG.classes, drop_path_rate=0.0
    ).eval()
    net.load_state_dict(safetensors.torch.load_file(file), strict=False)
    net.requires_grad_(False)
    for name, module in list(net.named_modules()):
        if isinstance(module, nn.Linear) and name != "head.fc":
            net.set_submodule(name, lora(module, CONFIG.alpha / CONFIG.rank))
    net.head.fc.requires_grad_(True)
    layout = SplitModel(CONFIG).layout
    start = layout.views(initial_trainables(layout, CONFIG.seed))
    load_trainables(net, start)
    return net


def load_trainables(net: SwinTransformer, state: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if parameter.requires_grad:
                parameter.copy_(state[name])


def trainables(net: SwinTransformer) -> dict[str, Tensor]:
    return {n: p.detach().clone() for n, p in net.named_parameters() if p.requires_grad}


def train_monolith(
    net: SwinTransformer, share: ClientData, index: int, training: TrainingConfig
) -> None:
    """One round of plain training by one client."""
    parameters = [p for p in net.parameters() if p.requires_grad]
    if training.optimiser == "adamw":
        optimiser: torch.optim.Optimizer = torch.optim.AdamW(
            parameters, lr=training.learning_rate, weight_decay=0
        )
    else:
        optimiser = torch.optim.SGD(parameters, lr=training.learning_rate, momentum=0.9)
    for iteration in range(1, ITERATIONS + 1):
        images, labels = share.batch(index, iteration)
        optimiser.zero_grad()
        functional.cross_entropy(net(images), labels).backward()
        optimiser.step()


def federated_reference(file: Path, data: Sequence[ClientData], rounds: int) -> dict[str, Tensor]:
    """Federated averaging in one process with one whole model, no split anywhere."""
    net = monolith(file, OurLora)
    total = sum(len(share.indices) for share in data)
    for index in range(rounds):
        start, ends = trainables(net), []
        for share in data:
            load_trainables(net, start)
            train_monolith(net, share, index, TRAINING)
            ends.append(trainables(net))
        load_trainables(
            net,
            {
                name: sum(
                    end[name].double() * (len(share.indices) / total)
                    for end, share in zip(ends, data, strict=True)
                ).float()
                for name in start
            },
        )
    return trainables(net)


def assert_same(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    assert left.keys() == right.keys()
    for name in left:
        assert torch.equal(left[name], right[name]), name


@pytest.mark.parametrize("split", [1, 2, 3, 4])
def test_split_equals_monolithic_bit_for_bit(file: Path, model: SplitModel, split: int) -> None:
    [share] = shares(1)
    net = monolith(file, OurLora)
    start = trainables(net)
    for index in range(ROUNDS):
        train_monolith(net, share, index, TRAINING)
    state = train_split(model, [share], [split] * ROUNDS)
    assert_same(state, trainables(net))
    assert all(not torch.equal(state[name], start[name]) for name in state if "lora" in name)


def test_equals_lora_as_its_paper_writes_it(file: Path, model: SplitModel) -> None:
    [share] = shares(1)
    training = TrainingConfig(learning_rate=0.05, optimiser="sgd")
    net = monolith(file, PlainLora)
    start = trainables(net)
    for index in range(ROUNDS):
        train_monolith(net, share, index, training)
    state = train_split(model, [share], [2, 2], training)
    for name, end in trainables(net).items():
        moved = (end - start[name]).norm()
        assert moved > 0
        assert (state[name] - end).norm() < 1e-4 * moved, name


def test_four_clients_equal_a_federated_reference(file: Path, model: SplitModel) -> None:
    data = shares(4)
    assert len({len(share.indices) for share in data}) > 1, "weights must matter"
    assert_same(train_split(model, data, [2, 2]), federated_reference(file, data, 2))


def test_the_order_of_service_changes_nothing(model: SplitModel) -> None:
    data = shares(3)
    assert_same(
        train_split(model, data, [1, 3]), train_split(model, data, [1, 3], backwards_on=(1, 3))
    )


def test_changing_the_split_changes_sides_and_nothing_else(file: Path, model: SplitModel) -> None:
    data = shares(2)
    assert_same(train_split(model, data, [3, 1]), train_split(model, data, [2, 4]))


def test_client_part_is_the_first_stages_by_name(model: SplitModel) -> None:
    server = ServerLearner(model, [1], TRAINING)
    state = server.state()
    for split in (1, 2, 3, 4):
        part = model.layout.views(server.begin_round(split))
        assert all(torch.equal(part[name], state[name]) for name in part)
        assert set(part) == {
            n for n in state if n.startswith(tuple(f"layers.{s}." for s in range(split)))
        }


def test_recomputing_gives_the_same_numbers(model: SplitModel) -> None:
    data = shares(2)
    recompute = TrainingConfig(learning_rate=3e-3, recompute=True)
    assert_same(train_split(model, data, [3]), train_split(model, data, [3], recompute))


def test_recomputing_keeps_less(model: SplitModel) -> None:
    kept = {}
    images, _ = shares(1)[0].batch(0, 1)
    for recompute in (False, True):
        client = ClientLearner(model, TrainingConfig(recompute=recompute))
        client.begin_round(4, initial_trainables(model.layout, 1)[: model.layout.cuts[4]])
        memory: dict[int, int] = {}

        def pack(tensor: Tensor, memory: dict[int, int] = memory) -> Tensor:
            memory[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        frozen = sum(p.untyped_storage().nbytes() for p in model.parameters())
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            client.forward(images)
        kept[recompute] = sum(memory.values())
        assert frozen > 0
    assert kept[True] < 0.5 * kept[False]


def test_shared_server_adapters_are_one_set(model: SplitModel) -> None:
    data = shares(2)
    training = TrainingConfig(server_adapters="shared")
    shared = train_split(model, data, [2], training)
    reverse = train_split(model, data, [2], training, backwards_on=(1, 2, 3))
    assert any(not torch.equal(shared[name], reverse[name]) for name in shared)


def test_many_clients_in_one_pass_equal_one_by_one(model: SplitModel) -> None:
    data = shares(3)
    training = TrainingConfig(learning_rate=0.05, optimiser="sgd")
    servers = [ServerLearner(model, [1, 2, 3], training) for _ in range(2)]
    client = ClientLearner(model, training)
    for server in servers:
        client.begin_round(2, server.begin_round(2))
    start = servers[0].state()["head.fc.weight"].clone()
    for iteration in (1, 2):
        waiting = {}
        for share in data:
            images, labels = share.batch(0, iteration)
            waiting[share.client] = client.forward(images), labels
        together = servers[0].forward_backward_together(waiting)
        for k, (smashed, labels) in waiting.items():
            alone = servers[1].forward_backward(k, smashed, labels)
            difference = (together[k].gradient - alone.gradient).norm()
            assert difference < 1e-5 * alone.gradient.norm()
            assert together[k].loss == pytest.approx(alone.loss, rel=1e-5)
            assert together[k].accuracy == alone.accuracy
            assert together[k].gradient.is_contiguous()
    for server in servers:
        server.aggregate({k: client.adapters() for k in (1, 2, 3)}, {1: 5, 2: 2, 3: 1})
    left, right = (server.state() for server in servers)
    assert (left["head.fc.weight"] - start).norm() > 0
    for name in left:
        torch.testing.assert_close(left[name], right[name], rtol=1e-4, atol=1e-6)


def test_whether_one_pass_pays_is_measured(
    model: SplitModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ServerLearner(model, [1, 2, 3], TRAINING)
    server.begin_round(3)
    alone = server.forward_backward
    times = server.pass_times(2, 2, (4, 4, 128))
    assert times.clients == 2
    assert 0 < times.seconds(1) == pytest.approx(times.one_by_one_s / 2)
    assert times.seconds(2) == pytest.approx(times.together_s)

    def slow(*arguments: Any) -> ServerStep:
        time.sleep(0.2)
        return alone(*arguments)

    monkeypatch.setattr(server, "forward_backward", slow)
    assert server.pass_times(3, 2, (4, 4, 128)).pays
    monkeypatch.undo()
    together = server.forward_backward_together

    def slow_together(batches: Any) -> dict[int, ServerStep]:
        time.sleep(0.5)
        return together(batches)

    monkeypatch.setattr(server, "forward_backward_together", slow_together)
    assert not server.pass_times(3, 2, (4, 4, 128)).pays


def test_stopwatch_times_the_body() -> None:
    with Stopwatch(torch.device("cpu")) as watch:
        time.sleep(0.05)
    assert 0.05 <= watch.seconds < 1


def test_a_shared_set_refuses_one_pass_for_many(model: SplitModel) -> None:
    server = ServerLearner(model, [1, 2], TrainingConfig(server_adapters="shared"))
    server.begin_round(2)
    with pytest.raises(ValueError, match="one batch after the other"):
        server.forward_backward_together({})


def test_smashed_data_are_used_where_they_lie(model: SplitModel) -> None:
    [share] = shares(1)
    client, server = ClientLearner(model, TRAINING), ServerLearner(model, [1], TRAINING)
    client.begin_round(2, server.begin_round(2))
    images, labels = share.batch(0, 1)
    smashed = client.forward(images)
    assert smashed.is_contiguous()
    assert smashed.shape == (BATCH, 8, 8, 64)
    buffer = bytearray(smashed.numpy().tobytes())
    before = bytes(buffer)
    received = torch.frombuffer(buffer, dtype=torch.float32).view(smashed.shape)
    step = server.forward_backward(1, received, labels)
    assert bytes(buffer) == before
    assert step.gradient.is_contiguous()
    assert step.gradient.shape == smashed.shape
    assert step.gradient.abs().sum() > 0


def test_state_goes_on_where_it_was_left(model: SplitModel) -> None:
    server = ServerLearner(model, [1], TRAINING)
    state = {name: tensor + 1 for name, tensor in server.state().items()}
    again = ServerLearner(model, [1], TRAINING)
    again.load_state(state)
    assert_same(again.state(), state)


def test_loss_falls_and_accuracy_rises(file: Path, model: SplitModel) -> None:
    """On held-out images; and adapters, not the head alone, bring it."""
    data = DataConfig(samples=2000)
    test = open_data(data, CONFIG.classes, Images(64), train=False)
    held_out = test.batch(np.arange(100))
    clients = [
        ClientData(share.dataset, share.indices, share.client, 8, share.seed)
        for share in shares(2, data)
    ]
    server = ServerLearner(model, [1, 2], TRAINING)
    learners = {share.client: ClientLearner(model, TRAINING) for share in clients}
    curve = [server.evaluate(*held_out)]
    for index in range(10):
        broadcast = server.begin_round(2)
        for share in clients:
            learner = learners[share.client]
            learner.begin_round(2, broadcast)
            for iteration in range(1, 4):
                images, labels = share.batch(index, iteration)
                smashed = learner.forward(images)
                step = server.forward_backward(share.client, smashed, labels)
                learner.backward(step.gradient)
        server.aggregate(
            {k: learner.adapters() for k, learner in learners.items()},
            {share.client: len(share.indices) for share in clients},
        )
        curve.append(server.evaluate(*held_out))
    losses, accuracies = zip(*curve, strict=True)
    assert losses[-1] < 0.65 * losses[0], curve
    assert accuracies[-1] > accuracies[0] + 0.3, curve
    trained = server.state()
    start = model.layout.views(initial_trainables(model.layout, CONFIG.seed))
    server.load_state(
        {name: trained[name] if name.startswith("head") else start[name] for name in trained}
    )
    assert server.evaluate(*held_out)[0] > losses[-1] + 0.3


@pytest.mark.parametrize("split", [1, 4])
def test_bfloat16_split_equals_bfloat16_unsplit(tmp_path: Path, split: int) -> None:
    """Values are float32 wherever a cut may be, so a cut changes nothing in bfloat16 either."""
    config = replace(CONFIG, dtype="bfloat16")
    model = load_model(config, backbone_file(config, tmp_path))
    assert model.net.layers[0].blocks[0].mlp.fc1.weight.dtype == torch.bfloat16
    [share] = shares(1)
    client, server = ClientLearner(model, TRAINING), ServerLearner(model, [1], TRAINING)
    client.begin_round(split, server.begin_round(split))
    images, labels = share.batch(0, 1)
    step = server.forward_backward(1, client.forward(images), labels)
    client.backward(step.gradient)
    server.aggregate({1: client.adapters()}, {1: 1})

    vector = initial_trainables(model.layout, CONFIG.seed)
    whole = Trainees(model.layout, 0, vector, TRAINING)
    model.attach(whole.tensors)
    loss = functional.cross_entropy(model.server(model.client(images, 2), 2), labels)
    loss.backward()
    whole.step()
    assert_same(server.state(), model.layout.views(vector))
    exact = load_model(CONFIG, backbone_file(CONFIG, tmp_path))
    reference = ServerLearner(exact, [1], TRAINING)
    other = ClientLearner(exact, TRAINING)
    other.begin_round(split, reference.begin_round(split))
    full = reference.forward_backward(1, other.forward(images), labels)
    assert step.loss == pytest.approx(full.loss, rel=0.02)
    assert step.loss != full.loss


def test_peft_loads_what_was_trained(model: SplitModel, file: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    state = train_split(model, shares(1), [2])
    export_peft(state, tmp_path / "peft", CONFIG)
    net = SwinTransformer(**OWN_MODELS[CONFIG.model], num_classes=CONFIG.classes).eval()
    net.load_state_dict(safetensors.torch.load_file(file), strict=False)
    images, _ = shares(1)[0].batch(1, 1)
    adapted = peft.PeftModel.from_pretrained(net, tmp_path / "peft").eval()
    model.attach(state)
    with torch.no_grad():
        ours = model.server(model.client(images, 2), 2)
        assert (adapted(images) - ours).abs().max() < 1e-5
        with adapted.disable_adapter():
            assert (adapted(images) - ours).abs().max() > 1e-3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_computes_the_same(file: Path, model: SplitModel) -> None:
    training = TrainingConfig(learning_rate=0.05, optimiser="sgd")
    cpu = train_split(model, shares(2), [2, 3], training)
    cuda = train_split(load_model(CONFIG, file, "cuda:0"), shares(2), [2, 3], training)
    for name, tensor in cpu.items():
        torch.testing.assert_close(cuda[name], tensor, rtol=1e-3, atol=1e-4)
    with Stopwatch(torch.device("cuda:0")) as watch:
        torch.randn(4096, 4096, device="cuda:0") @ torch.randn(4096, 4096, device="cuda:0")
    assert watch.seconds > 0


def test_clients_cut_at_different_points_equal_a_federated_reference(
    file: Path, model: SplitModel
) -> None:
    data, points = shares(4), {1: 1, 2: 4, 3: 2, 4: 3}
    clients = {share.client: ClientLearner(model, TRAINING) for share in data}
    server = ServerLearner(model, list(clients), TRAINING)
    for index in range(2):
        broadcast = server.begin_round(points)
        assert len(broadcast) == model.layout.cuts[4]
        for k, client in clients.items():
            client.begin_round(points[k], broadcast[: model.layout.cuts[points[k]]])
        for iteration in range(1, ITERATIONS + 1):
            for share in data:
                images, labels = share.batch(index, iteration)
                smashed = clients[share.client].forward(images)
                step = server.forward_backward(share.client, smashed, labels)
                clients[share.client].backward(step.gradient)
        server.aggregate(
            {k: client.adapters() for k, client in clients.items()},
            {share.client: len(share.indices) for share in data},
        )
    assert_same(server.state(), federated_reference(file, data, 2))


def test_one_pass_and_a_shared_set_have_one_split_point(model: SplitModel) -> None:
    server = ServerLearner(model, [1, 2], TRAINING)
    server.begin_round({1: 1, 2: 2})
    batch = torch.zeros(1, 16, 16, 32), torch.zeros(1, dtype=torch.int64)
    with pytest.raises(ValueError, match="one split point"):
        server.forward_backward_together({1: batch, 2: batch})
    shared = ServerLearner(model, [1, 2], TrainingConfig(server_adapters="shared"))
    with pytest.raises(ValueError, match="one split point"):
        shared.begin_round({1: 1, 2: 2})


def test_fedprox_adds_its_pull_to_every_gradient(model: SplitModel) -> None:
    """With plain gradient descent, a step is lr (g + mu (w - w_global)), on both sides."""
    [share] = shares(1)
    mu, rate = 5.0, 0.05
    sgd = TrainingConfig(learning_rate=rate, optimiser="sgd", momentum=0.0)
    near = replace(sgd, aggregation="fedprox", aggregation_parameters={"mu": mu})
    states = {}
    for training in (sgd, near):
        client, server = ClientLearner(model, training), ServerLearner(model, [1], training)
        client.begin_round(2, server.begin_round(2))
        start = torch.cat([t.flatten() for t in server.state().values()])
        after = []
        for _ in range(2):
            images, labels = share.batch(0, 1)
            client.backward(server.forward_backward(1, client.forward(images), labels).gradient)
            server_side = server._trainees[1].values.detach()
            after.append(torch.cat([client.adapters(), server_side]).clone())
        states[training is near] = after
    plain, held = states[False], states[True]
    assert torch.equal(plain[0], held[0]), "at the global model nothing pulls"
    pull = rate * mu * (held[0] - start)
    torch.testing.assert_close(held[1], plain[1] - pull, rtol=1e-4, atol=1e-6)
    assert pull.abs().max() > 1e-4


def test_a_rule_finds_the_layers_in_what_clients_have_become(model: SplitModel) -> None:
    """`svd` asks for tensors by name: each layer gets the mean of its products B A, cut to rank."""
    server = ServerLearner(model, [1, 2], replace(TRAINING, aggregation="svd"))
    cut = len(server.begin_round(2))
    random = torch.Generator().manual_seed(4)
    parts = {k: torch.randn(cut, generator=random) for k in (1, 2)}
    server.aggregate(parts, {1: 1, 2: 3})
    state = server.state()
    one, other = (model.layout.views(part) for part in parts.values())
    names = [name.removesuffix(".lora_A") for name in one if name.endswith(".lora_A")]
    assert names
    for name in names:
        a, b = f"{name}.lora_A", f"{name}.lora_B"
        left, values, right = torch.linalg.svd(0.25 * one[b] @ one[a] + 0.75 * other[b] @ other[a])
        rank = len(one[a])
        best = left[:, :rank] * values[:rank] @ right[:rank]
        torch.testing.assert_close(state[b] @ state[a], best, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rule", ["fedavg", "fedadam", "svd"])
def test_clients_that_diverged_are_named_and_end_nothing(model: SplitModel, rule: str) -> None:
    training = replace(TRAINING, aggregation=rule)
    server = ServerLearner(model, [1, 2], training)
    good = server.begin_round(2).clone()
    server.aggregate({1: good, 2: good}, {1: 1, 2: 1})
    assert server.diverged == []
    server.begin_round(2)
    bad = good.clone()
    bad[5] = torch.nan
    server.aggregate({1: good, 2: bad}, {1: 1, 2: 1})
    assert server.diverged == [2]
    name = model.layout.entries[0].name
    assert int(server.state()[name].isnan().sum()) == 1
    server.begin_round(2)
    assert server.diverged == []
    server.mix(1, bad, 0)
    assert server.diverged == [1]


def test_what_a_rule_remembers_goes_on_with_the_state(model: SplitModel, tmp_path: Path) -> None:
    training = replace(TRAINING, aggregation="fedavgm")
    data = shares(1)
    whole = train_split(model, data, [2, 2, 2], training)
    assert "aggregation.velocity" in whole

    def resumed(state: dict[str, Tensor], index: int) -> dict[str, Tensor]:
        client, server = ClientLearner(model, training), ServerLearner(model, [1], training)
        server.load_state(state)
        client.begin_round(2, server.begin_round(2))
        for iteration in range(1, ITERATIONS + 1):
            images, labels = data[0].batch(index, iteration)
            client.backward(server.forward_backward(1, client.forward(images), labels).gradient)
        server.aggregate({1: client.adapters()}, {1: 1})
        return server.state()

    assert_same(resumed(train_split(model, data, [2, 2], training), 2), whole)
    export_peft(whole, tmp_path, CONFIG)
    assert not [
        n
        for n in safetensors.torch.load_file(tmp_path / "adapter_model.safetensors")
        if "velocity" in n
    ]
