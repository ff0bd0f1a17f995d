# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Split training with the rules that have state equals loops in float64 that are written here from
the papers' equations, for a network in one piece."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from testbed.core.errors import InputError
from workloads.aggregation.local import LocalStep
from workloads.aggregation.rules import algorithm_of
from workloads.learning import model as models
from workloads.learning.backbone import load_model
from workloads.learning.cached import backbone_file
from workloads.learning.learner import ClientLearner, ServerLearner
from workloads.learning.model import SplitModel, initial_trainables
from workloads.learning.settings import ModelConfig, TrainingConfig
from workloads.models.chain import Chain, Images

CLIENTS, ROUNDS, BATCH = 4, 10, 6
SAMPLES = {1: 30, 2: 10, 3: 20, 4: 20}
STEPS = {1: 4, 2: 2, 3: 3, 4: 5}
SGD = TrainingConfig(learning_rate=0.1, optimiser="sgd", momentum=0.0)
CONFIG = ModelConfig("small", 4, adapters="full", seed=3)


class Small(nn.Module):
    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm
        self.one, self.two, self.head = nn.Linear(48, 8), nn.Linear(8, 6), nn.Linear(6, 4)

    def first(self, x: Tensor) -> Tensor:
        return torch.tanh(self.norm(self.one(x.flatten(1))))

    def second(self, x: Tensor) -> Tensor:
        return torch.tanh(self.two(x))


Load = Callable[..., SplitModel]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Load:
    """Makes the small network, with or without batch normalisation."""
    torch.set_num_threads(1)

    def made(config: ModelConfig = CONFIG, norm: Callable[[], nn.Module] = nn.Identity) -> Any:
        def chain(config: ModelConfig) -> Chain:
            net = Small(norm())
            parts = [(net.first,), (net.second,)]
            return Chain(net, Images(4), lambda x: x, parts, lambda x: net.head(x), head="head")

        monkeypatch.setattr(models, "chain_of", chain)
        return load_model(config, backbone_file(config, tmp_path))

    return made


@pytest.fixture
def model(load: Load) -> SplitModel:
    return load()


def batches(client: int, round_: int) -> list[tuple[Tensor, Tensor]]:
    """The client's batches of a round, of labels that differ between clients."""
    random = torch.Generator().manual_seed(100 * client + round_)
    found = []
    for _ in range(STEPS[client]):
        labels = (torch.randint(2, (BATCH,), generator=random) + client) % 4
        noise = torch.randn(BATCH, 3, 4, 4, generator=random)
        found.append((noise + labels.view(-1, 1, 1, 1) / 2, labels))
    return found


def chosen(round_: int) -> list[int]:
    """The clients of a round: not always all, and not always the same."""
    return [k for k in range(1, CLIENTS + 1) if (k + round_) % 3]


def start(model: SplitModel) -> Tensor:
    vector = initial_trainables(model.layout, CONFIG.seed, given=model.given)
    return vector + 0.3 * torch.randn(len(vector), generator=torch.Generator().manual_seed(9))


def split_training(
    model: SplitModel, training: TrainingConfig, split: int, restarts: bool = False
) -> Tensor:
    """The global model after the rounds; with `restarts`, every round begins in new learners that
    have only what was saved."""
    clients: dict[int, ClientLearner] = {}
    server: Any = None
    names = training.travelling
    for round_ in range(ROUNDS):
        state = None if server is None else server.state()
        if server is None or restarts:
            server = ServerLearner(model, list(SAMPLES), training)
            clients = {k: ClientLearner(model, training, k) for k in SAMPLES}
            if state is None:
                server._vector = start(model)
            else:
                server.load_state(state)
                prefix = "clients.{}."
                for k, client in clients.items():
                    own = {
                        name.removeprefix(prefix.format(k)): tensor
                        for name, tensor in state.items()
                        if name.startswith(prefix.format(k))
                    }
                    client.load_own(own)
        server.begin_round(split, round_)
        adapters, sent = {}, {}
        for k in chosen(round_):
            received = dict(zip(names.down, server.accompanying(k), strict=True))
            clients[k].begin_round(split, server.part(k), round_, received)
            for images, labels in batches(k, round_):
                smashed = clients[k].forward(images)
                clients[k].backward(server.forward_backward(k, smashed, labels).gradient)
            sent[k] = clients[k].end_round()
            adapters[k] = clients[k].adapters()
        server.aggregate(adapters, SAMPLES, sent)
        for k in adapters:
            server.load_own(k, clients[k].own())
    vector: Tensor = server._vector
    return vector.double()


Gradient = Callable[[Tensor, Tensor, Tensor], tuple[float, Tensor]]


def whole_gradient(model: SplitModel) -> Gradient:
    """The loss and gradient of the network in one piece at a vector, in float64."""

    def loss_and_gradient(w: Tensor, images: Tensor, labels: Tensor) -> tuple[float, Tensor]:
        w = w.clone().requires_grad_()
        of = model.layout.views(w)
        x = images.double().flatten(1)
        for name in ("one", "two"):
            x = torch.tanh(x @ of[f"{name}.weight"].T + of[f"{name}.bias"])
        loss = functional.cross_entropy(x @ of["head.weight"].T + of["head.bias"], labels)
        loss.backward()
        assert w.grad is not None
        return float(loss.detach()), w.grad

    return loss_and_gradient


RATE = 0.1
TOTAL = sum(SAMPLES.values())


def weights(clients: Sequence[int]) -> dict[int, float]:
    total = sum(SAMPLES[k] for k in clients)
    return {k: SAMPLES[k] / total for k in clients}


def scaffold(x: Tensor, gradient: Gradient, rate: float = 0.7) -> Tensor:
    """Karimireddy et al., algorithm 1, option II."""
    c, own = torch.zeros_like(x), {k: torch.zeros_like(x) for k in SAMPLES}
    for round_ in range(ROUNDS):
        here = weights(chosen(round_))
        moved, control = torch.zeros_like(x), torch.zeros_like(x)
        for k, share in here.items():
            y = x.clone()
            for batch in batches(k, round_):
                y = y - RATE * (gradient(y, *batch)[1] - own[k] + c)
            new = own[k] - c + (x - y) / (STEPS[k] * RATE)
            moved += share * (y - x)
            control += SAMPLES[k] / TOTAL * (new - own[k])
            own[k] = new
        x, c = x + rate * moved, c + control
    return x


def feddyn(x: Tensor, gradient: Gradient, alpha: float = 0.2) -> Tensor:
    """Acar et al., algorithm 1."""
    h, own = torch.zeros_like(x), {k: torch.zeros_like(x) for k in SAMPLES}
    for round_ in range(ROUNDS):
        ends = {}
        for k in chosen(round_):
            w = x.clone()
            for batch in batches(k, round_):
                w = w - RATE * (gradient(w, *batch)[1] - own[k] + alpha * (w - x))
            own[k] = own[k] - alpha * (w - x)
            ends[k] = w
        h = h - alpha * sum(SAMPLES[k] / TOTAL * (w - x) for k, w in ends.items())
        here = weights(chosen(round_))
        x = sum(here[k] * w for k, w in ends.items()) - h / alpha
    return x


def fednova(x: Tensor, gradient: Gradient, momentum: float = 0.0) -> Tensor:
    """Wang et al., eqs. 3 and 4; the weights a of gradients are summed up one by one."""
    for round_ in range(ROUNDS):
        here = weights(chosen(round_))
        normalised, lengths = torch.zeros_like(x), 0.0
        for k, share in here.items():
            w, v = x.clone(), torch.zeros_like(x)
            for batch in batches(k, round_):
                v = momentum * v + gradient(w, *batch)[1]
                w = w - RATE * v
            steps = STEPS[k]
            length = sum(sum(momentum**j for j in range(steps - i)) for i in range(steps))
            normalised += share * (x - w) / (RATE * length)
            lengths += share * length
        x = x - lengths * RATE * normalised
    return x


def q_fedavg(x: Tensor, gradient: Gradient, q: float = 0.5) -> Tensor:
    """Li et al., algorithm 2."""
    for round_ in range(ROUNDS):
        here, deltas, h = weights(chosen(round_)), torch.zeros_like(x), 0.0
        for k, share in here.items():
            w, losses = x.clone(), []
            for batch in batches(k, round_):
                loss, slope = gradient(w, *batch)
                losses.append(loss)
                w = w - RATE * slope
            change = (x - w) / RATE
            deltas += share * losses[0] ** q * change
            h += share * (q * losses[0] ** (q - 1) * float(change @ change) + losses[0] ** q / RATE)
        x = x - deltas / h
    return x


CASES: dict[str, tuple[str, dict[str, Any], TrainingConfig, Callable[..., Tensor]]] = {
    "scaffold": ("scaffold", {"learning_rate": 0.7}, SGD, scaffold),
    "feddyn": ("feddyn", {"alpha": 0.2}, SGD, feddyn),
    "fednova": ("fednova", {}, SGD, fednova),
    "fednova-momentum": (
        *("fednova", {}, replace(SGD, momentum=0.8)),
        lambda x, gradient: fednova(x, gradient, 0.8),
    ),
    "q-fedavg": ("q-fedavg", {"q": 0.5}, SGD, q_fedavg),
}


@pytest.mark.parametrize("split", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_ten_rounds_equal_the_papers_equations(model: SplitModel, name: str, split: int) -> None:
    rule, parameters, training, equations = CASES[name]
    training = replace(training, aggregation=rule, aggregation_parameters=parameters)
    due = equations(start(model).double(), whole_gradient(model))
    found = split_training(model, training, split)
    assert (found - due).abs().max() < 1e-5
    plain = split_training(
        model, replace(training, aggregation="fedavg", aggregation_parameters={}), 1
    )
    assert (found - plain).abs().max() > 1e-3, "the rule makes a difference"


@pytest.mark.parametrize("name", ["scaffold", "feddyn"])
def test_states_that_were_saved_continue_with_the_same_bits(model: SplitModel, name: str) -> None:
    rule, parameters, training, _ = CASES[name]
    training = replace(training, aggregation=rule, aggregation_parameters=parameters)
    at_once = split_training(model, training, 1)
    assert torch.equal(at_once, split_training(model, training, 1, restarts=True))


def test_only_scaffold_doubles_what_travels() -> None:
    for name in ("scaffold", "feddyn", "fednova", "q-fedavg", "fedprox", "krum"):
        step = algorithm_of(name, {}).local_step or LocalStep()
        assert len(step.receives) == len(step.sends) == (name == "scaffold")


@pytest.mark.parametrize("rule", ["scaffold", "feddyn"])
@pytest.mark.parametrize(
    ("config", "norm", "ranks"),
    [
        (CONFIG, lambda: nn.BatchNorm1d(8), ()),
        (replace(CONFIG, adapters="lora", rank=4), nn.Identity, (2,)),
    ],
)
def test_statistics_and_smaller_ranks_have_no_part_in_it(
    load: Load, rule: str, config: ModelConfig, norm: Any, ranks: tuple[int, ...]
) -> None:
    """The control variate of a single client is that of the server, so SCAFFOLD changes nothing."""
    model = load(config, norm)
    found = {}
    for name in ("fedavg", rule):
        training = replace(SGD, aggregation=name, ranks=ranks)
        client, server = ClientLearner(model, training, 1), ServerLearner(model, [1], training)
        down = training.travelling.down
        for round_ in range(3):
            server.begin_round(1, round_)
            received = dict(zip(down, server.accompanying(1), strict=True))
            assert all(len(vector) == client.layout.cuts[1] for vector in received.values())
            client.begin_round(1, server.part(1), round_, received)
            for images, labels in batches(1, round_):
                smashed = client.forward(images)
                client.backward(server.forward_backward(1, smashed, labels).gradient)
            sent = client.end_round()
            server.aggregate({1: client.adapters()}, {1: 5}, {1: sent})
        found[name] = server._vector.clone()
    if rule == "scaffold":
        torch.testing.assert_close(found[rule], found["fedavg"], rtol=0, atol=1e-5)
    assert torch.isfinite(found[rule]).all()
    parameters = sum(
        entry.stop - entry.start for entry in model.layout.entries if not entry.is_statistic
    )
    vectors = [tensor for n, tensor in server.state().items() if n.startswith("aggregation.")]
    assert [len(vector) for vector in vectors] == [parameters]
    assert (parameters < model.layout.size) == (norm is not nn.Identity)


def test_personal_tensors_stay_with_their_client(model: SplitModel) -> None:
    """A client continues with its own head, whatever the global one is."""
    training = replace(SGD, local_step="personal", learning_rate=0.0)
    server = ServerLearner(model, [1, 2], training)
    heads: dict[int, list[Tensor]] = {1: [], 2: []}
    for round_ in range(2):
        server.begin_round(1, round_)
        adapters = {}
        for k in heads:
            client = ClientLearner(model, training, k)
            client.begin_round(1, server.part(k), round_)
            head = server._trainees[k].tensors["head.bias"]
            heads[k].append(head.detach().clone())
            with torch.no_grad():
                head += k
            client.end_round()
            adapters[k] = client.adapters()
        server.aggregate(adapters, {1: 1, 2: 1})
    torch.testing.assert_close(heads[1][1], heads[1][0] + 1)
    torch.testing.assert_close(heads[2][1], heads[2][0] + 2)
    with pytest.raises(InputError, match=r"'personal': tensors: '\^body' matches none of the 6 "):
        ServerLearner(model, [1], replace(training, local_step_parameters={"tensors": "^body"}))
