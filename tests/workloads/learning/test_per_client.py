# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Clients that differ, averages after each iteration, and codecs by direction: what the nodes'
works learn against a plain loop of torch over the unsplit network."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import safetensors.torch
import torch
from small_learning import MODEL, sizes_of, small_settings
from torch import Tensor
from torch.nn import functional

from workloads.codecs.codec import Direction, Stream
from workloads.codecs.registry import codec_of
from workloads.data.samples import client_data, open_data
from workloads.learning.model import Layout, initial_trainables
from workloads.learning.ranks import ranked
from workloads.learning.real import RealClient, RealServer, Settings
from workloads.learning.streams import AdapterUploads
from workloads.models.chain import Images

SPLIT, ROUNDS = 2, 3
ITERATIONS = (2, 2, 2)
NARROW = {"lora_A": 0, "lora_B": 1}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return small_settings(tmp_path_factory.mktemp("backbone"))


def learned(
    settings: Settings, iterations: Sequence[int], order: Sequence[int] = (1, 2, 3)
) -> dict[str, Tensor]:
    """The global state after some rounds of the nodes' works, which exchange bytes."""
    server = RealServer(settings)
    clients = {k: RealClient(settings, k) for k in order}
    sizes = {k: sizes_of(server, SPLIT, k, iterations[k - 1]) for k in order}
    for round_ in range(ROUNDS):
        server.begin_round(round_, [SPLIT] * 3, [sizes[k] for k in (1, 2, 3)])
        for k, client in clients.items():
            client.begin_round(round_, SPLIT, sizes[k])
            assert client.adapters_header() == server.adapters_header(k)
            assert len(client.adapters_header()) == sizes[k].adapters_header
            client.adapters_buffer()[:] = server.broadcast(k)
            client.load_adapters()
        for iteration in range(1, max(iterations) + 1):
            here = [k for k in order if iteration <= iterations[k - 1]]
            for k in here:
                clients[k].forward(iteration)
                server.smashed_buffer(k)[:], server.labels_buffer(k)[:] = clients[k].smashed()
                server.forward_backward([k])
            for k in here:
                clients[k].gradient_buffer()[:] = server.served(k)[0]
                clients[k].backward()
        for k, client in clients.items():
            server.adapters_buffer(k)[:] = client.adapters()
        server.aggregate(list(order))
    return safetensors.torch.load(server.state())


@dataclass
class Plain:
    """A client of the plain loop: parameters of its rank, and one optimiser for all of them."""

    values: dict[str, Tensor]
    received: dict[str, Tensor]
    optimiser: torch.optim.Optimizer


def plain(settings: Settings, iterations: Sequence[int]) -> dict[str, Tensor]:
    """The same rounds without nodes, layouts of ranks, or learners."""
    model, training = settings.open_model(), settings.training
    layout, data_config = model.layout, settings.data
    batches = settings.batch_sizes or [settings.batch_size] * 3
    shares = client_data(open_data(data_config, MODEL.classes, Images(64)), data_config, 3, batches)
    samples = {share.client: len(share.indices) for share in shares}
    state = layout.views(initial_trainables(layout, MODEL.seed, model.loras))
    own_names = [entry.name for entry in layout.entries if entry.stop <= layout.cuts[SPLIT]]
    left_out: dict[int, Tensor] = {}

    def through(direction: Direction, values: Tensor) -> Tensor:
        """A tensor as it comes out at the other end."""
        if direction not in settings.codecs:
            return values
        codec = codec_of(*settings.codecs[direction])
        stream = Stream("adapters" if "adapters" in direction else "gradient")
        data = memoryview(bytearray(codec.encode(values.flatten(), stream)))
        return codec.decode(data, values.numel(), stream).view(values.shape)

    def flat(tensors: dict[str, Tensor]) -> Tensor:
        return torch.cat([tensors[name].flatten() for name in own_names])

    def unflat(vector: Tensor, like: dict[str, Tensor]) -> dict[str, Tensor]:
        parts = vector.split([like[name].numel() for name in own_names])
        return {n: p.view(like[n].shape) for n, p in zip(own_names, parts, strict=True)}

    def narrowed(name: str, tensor: Tensor, k: int) -> Tensor:
        axis = NARROW.get(name.rpartition(".")[2])
        if axis is None or not training.ranks:
            return tensor.clone()
        return tensor.narrow(axis, 0, training.ranks[k - 1]).clone()

    for round_ in range(ROUNDS):
        clients: dict[int, Plain] = {}
        for k in samples:
            own = {name: narrowed(name, tensor, k) for name, tensor in state.items()}
            received = unflat(through("adapters_down", flat(own)), own)
            values = {
                name: received.get(name, tensor).clone().requires_grad_()
                for name, tensor in own.items()
            }
            rate = (training.learning_rates or [training.learning_rate] * 3)[k - 1]
            optimiser = torch.optim.AdamW(values.values(), lr=rate, weight_decay=0)
            clients[k] = Plain(values, received, optimiser)
        for iteration in range(1, max(iterations) + 1):
            here = [k for k in samples if iteration <= iterations[k - 1]]
            for k in here:
                images, labels = shares[k - 1].batch(round_, iteration)
                model.attach(clients[k].values, ["training"])
                smashed = model.client(images, SPLIT)
                arrived = through("smashed", smashed.detach()).clone().requires_grad_()
                logits = model.server(arrived, SPLIT)
                functional.cross_entropy(logits, labels).backward()
                assert arrived.grad is not None
                smashed.backward(through("gradient", arrived.grad))
                clients[k].optimiser.step()
                clients[k].optimiser.zero_grad()
            if training.server_adapters == "averaged":
                total = sum(samples[k] for k in here)
                for name in state.keys() - set(own_names):
                    mean = sum(
                        samples[k] / total * clients[k].values[name].detach().double() for k in here
                    )
                    for client in clients.values():
                        client.values[name].data.copy_(mean)
        after = {
            name: torch.zeros_like(tensor, dtype=torch.float64) for name, tensor in state.items()
        }
        for k, client in clients.items():
            model_of = {name: tensor.detach() for name, tensor in client.values.items()}
            if "adapters_up" in settings.codecs:
                change = flat(model_of) - flat(client.received) + left_out.get(k, 0)
                sent = through("adapters_up", change)
                if settings.error_feedback:
                    left_out[k] = change - sent
                model_of |= unflat(flat(client.received) + sent, model_of)
            for name, tensor in model_of.items():
                at = tuple(slice(n) for n in tensor.shape)
                after[name][at] += samples[k] / sum(samples.values()) * tensor.double()
        state = {name: tensor.float() for name, tensor in after.items()}
    return state


UP = {"adapters_up": ("top-k", {"share": 0.2})}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[int, ...]]] = {
    "iterations": ({}, {}, (1, 3, 2)),
    "batches": ({}, {"batch_sizes": (2, 4, 7), "batch_size": 7}, ITERATIONS),
    "rates": ({"learning_rates": (1e-3, 3e-3, 1e-2)}, {}, ITERATIONS),
    "ranks": ({"ranks": (1, 4, 2)}, {}, ITERATIONS),
    "averaged": ({"server_adapters": "averaged"}, {}, ITERATIONS),
    "averaged, some longer": ({"server_adapters": "averaged"}, {}, (1, 3, 2)),
    "gradients": ({}, {"codecs": {"gradient": ("int4", {})}}, ITERATIONS),
    "smashed data": ({}, {"codecs": {"smashed": ("int8", {"block": 64})}}, ITERATIONS),
    "adapters down": ({}, {"codecs": {"adapters_down": ("int8", {})}}, ITERATIONS),
    "adapters up": ({}, {"codecs": UP}, ITERATIONS),
    "no feedback": ({}, {"codecs": UP, "error_feedback": False}, ITERATIONS),
    "all": (
        {"ranks": (4, 2, 3), "learning_rates": (3e-3, 1e-3, 2e-3)},
        {
            "batch_sizes": (2, 4, 3),
            "codecs": {"adapters_up": ("int8", {}), "adapters_down": ("float16", {})},
        },
        (3, 1, 2),
    ),
}


QUICK = ("ranks", "averaged, some longer", "adapters up", "all")


def marked(names: Iterable[str]) -> list[Any]:
    return [pytest.param(n, marks=[pytest.mark.full] * (n not in QUICK)) for n in names]


@pytest.fixture(scope="module")
def common(settings: Settings) -> dict[str, Tensor]:
    """What is learned if clients do not differ."""
    return learned(settings, ITERATIONS)


def of_case(settings: Settings, name: str) -> tuple[Settings, tuple[int, ...]]:
    training, others, iterations = CASES[name]
    training = replace(settings.training, **training)
    return replace(settings, training=training, **others), iterations


@pytest.mark.parametrize("name", marked(CASES))
def test_works_learn_what_a_plain_loop_does(
    settings: Settings, common: dict[str, Tensor], name: str
) -> None:
    own, iterations = of_case(settings, name)
    state, due = learned(own, iterations), plain(own, iterations)
    assert state.keys() == due.keys()
    for tensor in state:
        torch.testing.assert_close(state[tensor], due[tensor], rtol=0, atol=1e-6, msg=tensor)
    # Without it, another result: the case is no matter of course.
    assert any((state[name] - common[name]).abs().max() > 1e-4 for name in state)


@pytest.mark.parametrize("name", marked(["averaged", "averaged, some longer"]))
def test_an_average_after_each_iteration_does_not_depend_on_the_order(
    settings: Settings, name: str
) -> None:
    own, iterations = of_case(settings, name)
    one, other = (learned(own, iterations, order) for order in ((1, 2, 3), (3, 1, 2)))
    for tensor in one:
        assert torch.equal(one[tensor], other[tensor]), tensor


def test_equal_values_given_one_by_one_are_one_value(
    settings: Settings, common: dict[str, Tensor]
) -> None:
    training = replace(settings.training, ranks=(4, 4, 4), learning_rates=(3e-3,) * 3)
    same = replace(settings, training=training, batch_sizes=(4, 4, 4))
    other = learned(same, ITERATIONS)
    for tensor in common:
        assert torch.equal(common[tensor], other[tensor]), tensor


def test_singular_values_of_padded_products_are_kept(settings: Settings) -> None:
    """The mean of the products of all ranks, whose rank is at most that of the model."""
    training = replace(settings.training, ranks=(1, 1, 2), aggregation="svd")
    server = RealServer(replace(settings, training=training))
    learner, layout = server._learner, server._layout
    learner.begin_round(SPLIT)
    state = layout.views(learner._vector)
    models = {}
    for k in (1, 2, 3):
        own = learner.layout_of(k)
        whole = torch.randn(own.size, generator=torch.Generator().manual_seed(k))
        models[k] = own.views(whole)
        learner._trainees[k].values.detach().copy_(whole[own.cuts[SPLIT] :])
        models[k] |= {"": whole[: own.cuts[SPLIT]]}
    weights = {1: 1, 2: 1, 3: 2}
    learner.aggregate({k: model[""] for k, model in models.items()}, weights)
    after = learner.state()
    for name in (n.removesuffix(".lora_A") for n in state if n.endswith(".lora_A")):
        due = sum(
            weights[k] / 4 * models[k][f"{name}.lora_B"] @ models[k][f"{name}.lora_A"]
            for k in models
        )
        found = after[f"{name}.lora_B"] @ after[f"{name}.lora_A"]
        torch.testing.assert_close(found, due, rtol=1e-4, atol=1e-4)


def test_an_update_of_smaller_rank_leaves_the_rest_of_the_model(settings: Settings) -> None:
    mixing = {"mixing": 0.5, "staleness": "constant", "exponent": 0.5, "hinge": 4}
    training = replace(settings.training, ranks=(1, 4, 4), asynchronous=mixing)
    server = RealServer(replace(settings, training=training))
    server.begin_round(0, [SPLIT] * 3, [sizes_of(server, SPLIT, k) for k in (1, 2, 3)])
    before = {name: tensor.clone() for name, tensor in server._learner.state().items()}
    server.begin_update(1)
    server.adapters_buffer(1)[:] = bytes(len(server.adapters_buffer(1)))
    server.mix(1, 0)
    for name, tensor in server._learner.state().items():
        if name.endswith(".lora_A"):
            assert torch.equal(tensor[1:], before[name][1:]), name
    first = next(name for name in before if name.endswith(".lora_A"))
    torch.testing.assert_close(server._learner.state()[first][0], before[first][0] / 2)


@pytest.mark.parametrize("codec", [("top-k", {"share": 0.1}), ("int4", {})])
def test_what_was_sent_and_what_is_kept_are_all_updates(codec: tuple[str, dict[str, Any]]) -> None:
    made = codec_of(*codec)
    up = AdapterUploads(made, feeds_back=True)
    random = torch.Generator().manual_seed(1)
    whole, sent = torch.zeros(1000), torch.zeros(1000)
    for count in (1000, 1000, 400, 1000, 700, 1000):  # the split point moves
        received, change = torch.randn(2, count, generator=random)
        data = memoryview(bytearray(up.encode(received + change, received)))
        assert len(data) == made.size(count)
        whole[:count] += change
        sent[:count] += made.decode(data, count, Stream("adapters"))
    assert up.left_out is not None
    torch.testing.assert_close(sent + up.left_out, whole, rtol=0, atol=1e-5)
    assert float(up.left_out.norm()) > 0.1


def test_a_part_of_a_rank_has_the_first_rows_and_columns(settings: Settings) -> None:
    layout = settings.open_model().layout
    assert ranked(layout, None).layout is layout
    assert ranked(layout, MODEL.rank).layout is layout
    own = ranked(layout, 1)
    vector = torch.arange(layout.size, dtype=torch.float32)
    whole, cut = layout.views(vector), own.layout.views(own.part(vector))
    for name, tensor in whole.items():
        axis = NARROW.get(name.rpartition(".")[2])
        assert torch.equal(cut[name], tensor if axis is None else tensor.narrow(axis, 0, 1)), name
    for split in range(1, 5):
        names = own.layout.views(own.part(vector, 0, own.layout.cuts[split])).keys()
        assert names == layout.views(vector[: layout.cuts[split]]).keys()
    assert torch.equal(own.within(own.part(vector), vector), vector)
    assert isinstance(own.layout, Layout)
