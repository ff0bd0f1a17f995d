# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What nodes compute, through the bytes they exchange, and in the station's program."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from play_programs import play as play_programs
from small_learning import BATCH, ITERATIONS, MODEL, sizes_of, small_settings

from testbed.core.paradigm import paradigm
from workloads.data.samples import client_data, open_data
from workloads.learning.cached import backbone_file
from workloads.learning.learner import PassTimes
from workloads.learning.real import Opened, RealClient, RealServer, Settings
from workloads.learning.settings import DataConfig, ModelConfig
from workloads.learning.work import ZeroServer
from workloads.models.chain import Images


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return small_settings(tmp_path_factory.mktemp("backbone"))


def copy(source: memoryview, target: memoryview) -> None:
    target[:] = source


class Network:
    """Client and server works that exchange bytes at once."""

    def __init__(self, settings: Settings, opened: Opened | None = None):
        self.server = RealServer(settings)
        self.clients = {k: RealClient(settings, k, opened) for k in range(1, settings.clients + 1)}

    def begin(self, round_: int, split: int) -> None:
        sizes = sizes_of(self.server, split)
        self.server.begin_round(round_, [split] * len(self.clients), [sizes] * len(self.clients))
        for k, client in self.clients.items():
            client.begin_round(round_, split, sizes)
            copy(self.server.broadcast(k), client.adapters_buffer())
            client.load_adapters()

    def upload(self, iteration: int) -> None:
        for k, client in self.clients.items():
            client.forward(iteration)
            smashed, labels = client.smashed()
            copy(smashed, self.server.smashed_buffer(k))
            copy(labels, self.server.labels_buffer(k))

    def serve(self, clients: Sequence[int]) -> None:
        """One pass for these clients, and its gradients."""
        self.server.forward_backward(clients)
        for k in clients:
            copy(self.server.served(k)[0], self.clients[k].gradient_buffer())
            self.clients[k].backward()

    def end(self) -> None:
        for k, client in self.clients.items():
            copy(client.adapters(), self.server.adapters_buffer(k))
        self.server.aggregate(self.clients)


def play(
    settings: Settings,
    together: bool,
    rounds: int = 1,
    split: int = 2,
    opened: Opened | None = None,
) -> Network:
    network = Network(settings, opened)
    everyone = list(network.clients)
    for round_ in range(rounds):
        network.begin(round_, split)
        for iteration in range(1, ITERATIONS + 1):
            network.upload(iteration)
            if together:
                network.serve(everyone)
            else:
                for k in everyone:
                    network.serve([k])
        network.end()
    return network


def test_one_pass_for_all_is_one_after_the_other(settings: Settings) -> None:
    training = replace(settings.training, optimiser="sgd", learning_rate=0.05)
    settings = replace(settings, training=training)
    apart, joined = (play(settings, together) for together in (False, True))
    left, right = (safetensors.torch.load(network.server.state()) for network in (apart, joined))
    for name in left:
        torch.testing.assert_close(left[name], right[name], rtol=1e-4, atol=1e-6)
    assert apart.server.notes()["passes"] == [1] * 6
    assert joined.server.notes()["passes"] == [3] * 2


@pytest.mark.parametrize(
    ("model", "training"),
    [
        (replace(MODEL, dropout=0.3), {"recompute": True}),
        (replace(MODEL, adapters="dora"), {}),
        (ModelConfig("resnet_nano_32", 5, adapters="full", batch_norm="local"), {}),
        (ModelConfig("resnet_nano_32", 5, adapters="full", batch_norm="per-client"), {}),
    ],
    ids=["dropout", "dora", "local", "per-client"],
)
def test_clients_that_share_a_model_learn_as_with_one_each(
    model: ModelConfig, training: dict[str, Any], tmp_path: Path
) -> None:
    base = small_settings(tmp_path)
    settings = replace(
        base,
        model=model,
        backbone=str(backbone_file(model, tmp_path)),
        training=replace(base.training, **training),
    )
    apart = play(settings, together=False, rounds=2)
    shared = play(settings, together=False, rounds=2, opened=Opened.of(settings))
    assert shared.server.state() == apart.server.state()
    states = [{k: client.state() for k, client in n.clients.items()} for n in (shared, apart)]
    assert states[0] == states[1]


def test_dropout_is_the_same_on_either_side_of_a_cut_and_another_in_each_batch(
    settings: Settings,
) -> None:
    dropping = replace(settings, model=replace(MODEL, dropout=0.3))
    one, other = (play(dropping, together=False, rounds=2, split=u) for u in (1, 4))
    assert one.server.state() == other.server.state()
    assert one.server.state() != play(settings, together=False, rounds=2).server.state()
    names = [one.clients[k]._name(i) for k in one.clients for i in range(1, ITERATIONS + 1)]
    assert len(set(names)) == len(names)


def test_a_restored_server_goes_on_with_the_same_bytes(settings: Settings) -> None:
    whole = play(settings, together=False, rounds=2)
    first = play(settings, together=False, rounds=1)
    second = Network(settings)
    second.server.restore(first.server.state())
    second.begin(1, 2)
    for iteration in range(1, ITERATIONS + 1):
        second.upload(iteration)
        for k in second.clients:
            second.serve([k])
    second.end()
    assert second.server.state() == whole.server.state()


def test_evaluation_is_of_the_whole_held_out_set_however_it_is_cut(settings: Settings) -> None:
    server = play(settings, together=False, rounds=3).server
    found = server.evaluate()
    assert found.samples == 50
    assert found == server.evaluate()
    other = RealServer(replace(settings, batch_size=16))
    assert other.evaluate() != found, "it has not learned"
    other.restore(server.state())
    assert other.evaluate().loss == pytest.approx(found.loss, rel=1e-4)
    assert other.evaluate().accuracy == pytest.approx(found.accuracy, abs=0.021)
    few = RealServer(replace(settings, evaluate_samples=7))
    assert few.evaluate().samples == 7


@pytest.mark.parametrize(
    ("wire", "most"),
    [("float32", 0.0), ("bfloat16", 0.01), ("int8", 0.05), ("int4", 0.2), ("top-k", 1.0)],
)
def test_what_the_wire_changes_is_noted(settings: Settings, wire: str, most: float) -> None:
    network = play(replace(settings, wire_dtype=wire, wire_error=True), together=False)
    noted = [network.clients[1].notes()["wire_errors"], network.server.notes()["wire_errors"][1]]
    for errors in noted:
        assert len(errors) == ITERATIONS
        assert all(error <= most for error in errors)
        assert all(error > 0 for error in errors) or wire == "float32"
    assert play(settings, together=False).clients[1].notes()["wire_errors"] == []


def test_a_pass_is_as_large_as_it_may_be_in_time(settings: Settings) -> None:
    server = RealServer(settings)
    assert server.pass_size(3, float("inf")) == 1, "nothing was measured"
    server._times = PassTimes(3, one_by_one_s=3.0, together_s=2.0)
    assert server.pass_size(3, float("inf")) == 3
    assert server.pass_size(2, float("inf")) == 2
    assert server.pass_size(9, 1.6) == 2
    assert server.pass_size(9, 1.2) == 1
    assert server.pass_size(9, 0.1) == 3, "late in any case: the most work done"
    server._times = PassTimes(3, one_by_one_s=3.0, together_s=3.1)
    assert server.pass_size(3, float("inf")) == 1


def test_measuring_passes_leaves_no_trace(settings: Settings) -> None:
    plain, measured = (
        play(replace(settings, clients_per_pass=most), together=False) for most in (1, 3)
    )
    assert measured.server.notes()["pass_times"]["clients"] == 3
    assert plain.server.notes()["pass_times"] is None
    assert measured.server.state() == plain.server.state()


class SlowServer(ZeroServer):
    """A pass takes a while, however many it serves; whoever waits is served together."""

    def __init__(self, work_s: float, most: int):
        self.work_s, self.most = work_s, most
        self.passes: list[list[int]] = []
        self.began_s: list[float] = []

    def pass_size(self, waiting: int, rest_s: float) -> int:
        return min(waiting, self.most)

    def forward_backward(self, clients: Sequence[int]) -> None:
        self.began_s.append(time.monotonic())
        self.passes.append(list(clients))
        time.sleep(self.work_s)


def test_who_waits_is_served_in_one_pass_and_each_ends_on_its_own_time() -> None:
    server = SlowServer(0.1, most=3)
    (spans,) = play_programs(paradigm("cpsfl"), compute_s=0.5, server=server)
    assert sorted(k for clients in server.passes for k in clients) == [1, 1, 2, 2, 3, 3]
    assert len(server.passes) < 6, "those that came while a pass ran went together"
    for span in spans:
        if span[2] == "S":
            assert span[4] - span[3] == pytest.approx(0.5, abs=0.05)


def test_sequential_computing_works_ahead_of_its_modelled_turns() -> None:
    """Three passes of 0.15 s; modelled turns of 0.3 s follow each other and none overruns."""
    server = SlowServer(0.15, most=1)
    (spans,) = play_programs(paradigm("pipesfl"), compute_s=0.3, server=server)
    turns = sorted((span[3], span[4]) for span in spans if span[2] == "S")[:3]
    assert [end - start for start, end in turns] == pytest.approx([0.3] * 3, abs=0.02)
    assert turns[1][0] == pytest.approx(turns[0][1], abs=1e-6)
    assert turns[2][0] == pytest.approx(turns[1][1], abs=1e-6)
    assert server.began_s[2] - server.began_s[0] < 0.5, "it waited for the modelled turn"


def test_shared_adapters_are_trained_in_the_order_of_turns() -> None:
    server = SlowServer(0.05, most=1)
    server.in_turn = True
    (spans,) = play_programs(paradigm("pipesfl"), compute_s=0.2, server=server)
    turns = [span[0] for span in sorted((s for s in spans if s[2] == "S"), key=lambda s: s[3])]
    assert [clients[0] for clients in server.passes] == turns
    assert min(b - a for a, b in zip(server.began_s, server.began_s[1:], strict=False)) > 0.1


def trained(settings: Settings, round_: int = 0) -> tuple[Network, dict[int, torch.Tensor]]:
    """A network that has played a round up to its aggregation, and what each client trained."""
    network = Network(settings)
    network.begin(round_, 2)
    for iteration in range(1, ITERATIONS + 1):
        network.upload(iteration)
        everyone = list(network.clients)
        network.serve(everyone)
    found = {}
    for k, client in network.clients.items():
        copy(client.adapters(), network.server.adapters_buffer(k))
        found[k] = torch.frombuffer(bytearray(client.adapters()), dtype=torch.float32)
    return network, found


def test_clients_weigh_by_their_samples_in_whatever_order_they_came(settings: Settings) -> None:
    uneven = replace(
        settings, data=DataConfig(samples=60, partition="dirichlet", concentration=0.5)
    )
    dataset = open_data(uneven.data, MODEL.classes, Images(64))
    shares = [len(share.indices) for share in client_data(dataset, uneven.data, 3, BATCH)]
    assert len(set(shares)) > 1
    states = []
    for order in ([1, 2, 3], [3, 1, 2]):
        network, adapters = trained(uneven)
        network.server.aggregate(order)
        states.append(network.server.state())
    assert states[0] == states[1], "sums run in the clients' order"
    network.begin(1, 2)
    mean = torch.frombuffer(bytearray(network.server.broadcast(1)), dtype=torch.float32)
    weighted = sum(n / sum(shares) * adapters[k].double() for k, n in enumerate(shares, 1))
    torch.testing.assert_close(mean, weighted.float())
    equal = sum(adapter.double() for adapter in adapters.values()) / 3
    assert not torch.allclose(mean, equal.float(), rtol=1e-5, atol=1e-7)


def test_who_has_what_is_told_once(settings: Settings) -> None:
    network = Network(settings)
    network.begin(0, 2)
    told = network.server.notes()["partition"]
    dataset = open_data(settings.data, MODEL.classes, Images(64))
    for share, row in zip(client_data(dataset, settings.data, 3, BATCH), told, strict=True):
        counts = np.bincount(dataset.labels[share.indices], minlength=MODEL.classes)
        assert dict(row) == {k: n for k, n in enumerate(counts.tolist()) if n}
    assert network.server.notes()["partition"] == []


def test_who_was_lost_does_not_count(settings: Settings) -> None:
    network, adapters = trained(settings)
    network.server.aggregate([2])
    network.begin(1, 2)
    mean = torch.frombuffer(bytearray(network.server.broadcast(1)), dtype=torch.float32)
    torch.testing.assert_close(mean, adapters[2])


def test_each_client_trains_on_batches_of_its_own_and_of_its_round(settings: Settings) -> None:
    dataset = open_data(settings.data, MODEL.classes, Images(64))
    shares = client_data(dataset, settings.data, settings.clients, BATCH)
    network = Network(settings)
    sent = {}
    for round_ in (0, 1):
        network.begin(round_, 2)
        for iteration in range(1, ITERATIONS + 1):
            for k, client in network.clients.items():
                client.forward(iteration)
                smashed, labels = client.smashed()
                _, due = shares[k - 1].batch(round_, iteration)
                assert bytes(labels) == due.numpy().astype("<u4").tobytes()
                sent[k, round_, iteration] = bytes(smashed)
    assert len(set(sent.values())) == 3 * 2 * ITERATIONS, "no two batches are the same"


def test_the_global_state_is_evaluated_on_images_held_out(settings: Settings) -> None:
    network, _ = trained(settings)
    network.server.aggregate([1, 2, 3])
    found = network.server.evaluate()
    losses = {}
    for train in (True, False):
        data = open_data(settings.data, MODEL.classes, Images(64), train=train)
        order = np.random.default_rng(settings.data.seed).permutation(len(data.labels))
        chosen = order[: settings.evaluate_samples]
        labels = torch.from_numpy(data.labels)[chosen]
        losses[train] = network.server._learner.evaluate(data.images(chosen), labels)[0]
    assert found.loss == pytest.approx(losses[False], rel=1e-5)
    assert found.loss != pytest.approx(losses[True], rel=1e-3)


def test_updates_are_mixed_in_as_they_come(settings: Settings) -> None:
    """Two clients begin from one model; the second's update is stale when it comes."""
    mixing = {"mixing": 0.8, "staleness": "polynomial", "exponent": 1.0, "hinge": 4}
    training = replace(settings.training, asynchronous=mixing)
    network = Network(replace(settings, training=training))
    network.begin(0, 2)
    server, layout = network.server, network.server._layout

    def vector() -> torch.Tensor:
        return layout.vector(safetensors.torch.load(server.state())).double()

    def begin(k: int) -> None:
        server.begin_update(k)
        copy(server.broadcast(k), network.clients[k].adapters_buffer())
        network.clients[k].load_adapters()

    def train(k: int) -> torch.Tensor:
        """One iteration of a client; its whole model."""
        network.clients[k].forward(1)
        smashed, labels = network.clients[k].smashed()
        copy(smashed, server.smashed_buffer(k))
        copy(labels, server.labels_buffer(k))
        network.serve([k])
        copy(network.clients[k].adapters(), server.adapters_buffer(k))
        own = torch.frombuffer(bytearray(network.clients[k].adapters()), dtype=torch.float32)
        behind = server._learner._trainees[k].values.detach()
        return torch.cat([own, behind]).double()

    first = vector()
    begin(1)
    begin(2)
    models = {k: train(k) for k in (1, 2)}
    server.mix(1, 0)
    due = 0.2 * first + 0.8 * models[1]
    torch.testing.assert_close(vector(), due, rtol=0, atol=1e-6)
    sent = torch.frombuffer(bytearray(server.broadcast(2)), dtype=torch.float32)
    torch.testing.assert_close(sent.double(), first[: len(sent)], msg="it was sent the old model")
    server.mix(2, 1)
    due = 0.6 * due + 0.4 * models[2]
    torch.testing.assert_close(vector(), due, rtol=0, atol=1e-6)
    begin(1)
    sent = torch.frombuffer(bytearray(server.broadcast(1)), dtype=torch.float32)
    torch.testing.assert_close(sent.double(), due[: len(sent)], rtol=0, atol=1e-6)
    assert not torch.allclose(due.float(), first.float())


def test_buffered_updates_change_the_model_together(settings: Settings) -> None:
    """FedBuff against a few lines of numpy: differences from what each client was sent, weighed by
    their staleness, their mean times the server's learning rate; and states that are kept."""
    staleness = {"mixing": 0.1, "staleness": "polynomial", "exponent": 0.5, "hinge": 4}
    training = replace(
        settings.training, asynchronous=staleness, buffer=2, server_learning_rate=0.7
    )
    network = Network(replace(settings, training=training))
    network.begin(0, 2)
    server, layout, clients = network.server, network.server._layout, network.clients

    def vector() -> np.ndarray:
        return layout.vector(safetensors.torch.load(server.state())).double().numpy()

    def update(k: int) -> np.ndarray:
        """A client's update from the model that it was sent; its difference."""
        sent = vector()
        server.begin_update(k)
        copy(server.broadcast(k), clients[k].adapters_buffer())
        clients[k].load_adapters()
        clients[k].forward(1)
        smashed, labels = clients[k].smashed()
        copy(smashed, server.smashed_buffer(k))
        copy(labels, server.labels_buffer(k))
        network.serve([k])
        copy(clients[k].adapters(), server.adapters_buffer(k))
        own = np.frombuffer(bytes(clients[k].adapters()), np.float32)
        behind = server._learner._trainees[k].values.detach().numpy()
        return np.concatenate([own, behind]).astype(float) - sent

    first = vector()
    deltas = {k: update(k) for k in (1, 2)}
    server.mix(2, 0)
    server.keep()
    np.testing.assert_array_equal(vector(), first)  # half a buffer changes nothing
    server.mix(1, 3)
    server.apply_buffer()
    due = first + 0.7 * (deltas[2] + deltas[1] / np.sqrt(4)) / 2
    np.testing.assert_allclose(vector(), due, rtol=0, atol=1e-6)
    assert np.abs(due - first).max() > 1e-4
    begun = vector()
    delta = update(1)
    server.mix(1, 0)
    server.mix(1, 8)
    server.apply_buffer()
    due = begun + 0.7 * (delta + delta / 3) / 2
    np.testing.assert_allclose(vector(), due, rtol=0, atol=1e-6)
    now = vector()
    kept, current = server.evaluate(0), server.evaluate()
    assert kept.loss != current.loss
    np.testing.assert_array_equal(vector(), now)  # evaluating a kept state changes nothing
    server.mix(2, 0)
    server.restore(safetensors.torch.save(layout.views(torch.from_numpy(first).float())))
    assert server.evaluate().loss == kept.loss
    network.begin(1, 2)
    assert not server._learner._buffer, "a run begins with an empty buffer"
