# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Gradients that the base station averages over its clients, against a loop without nodes."""

from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
from small_learning import BATCH, ITERATIONS, sizes_of, small_settings

from workloads.data.samples import client_data, open_data
from workloads.learning.learner import ClientLearner, ServerLearner
from workloads.learning.real import RealClient, RealServer, Settings, batch_name

SPLIT = 2


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    given = small_settings(tmp_path_factory.mktemp("backbone"))
    data = replace(given.data, partition="quantity", concentration=1.0)
    # AdamW would magnify rounding differences, which depend on the processor.
    training = replace(given.training, optimiser="sgd", learning_rate=0.05)
    return replace(given, data=data, training=training)


def by_nodes(settings: Settings) -> bytes:
    """The state after a round in which nodes exchange bytes."""
    server = RealServer(settings)
    clients = {k: RealClient(settings, k) for k in range(1, settings.clients + 1)}
    sizes = sizes_of(server, SPLIT)
    server.begin_round(0, [SPLIT] * len(clients), [sizes] * len(clients))
    for k, client in clients.items():
        client.begin_round(0, SPLIT, sizes)
        client.adapters_buffer()[:] = server.broadcast(k)
        client.load_adapters()
    for iteration in range(1, ITERATIONS + 1):
        for k, client in clients.items():
            client.forward(iteration)
            server.smashed_buffer(k)[:], server.labels_buffer(k)[:] = client.smashed()
        for k in reversed(clients):
            server.forward_backward([k])
        shared = server.shared_gradient(list(clients)) if settings.shared_samples else b""
        for k, client in clients.items():
            client.shared_gradient_buffer()[:] = shared
            client.gradient_buffer()[:] = server.served(k)[0]
            client.backward()
    for k, client in clients.items():
        server.adapters_buffer(k)[:] = client.adapters()
    server.aggregate(clients)
    return server.state()


def by_loop(settings: Settings) -> dict[str, torch.Tensor]:
    """The state after the same round in one process, with whole gradients."""
    model = settings.open_model()
    clients = {k: ClientLearner(model, settings.training) for k in range(1, settings.clients + 1)}
    server = ServerLearner(model, list(clients), settings.training)
    data = open_data(settings.data, settings.model.classes, model.input)
    shares = client_data(data, settings.data, settings.clients, settings.batch_size)
    samples = {share.client: len(share.indices) for share in shares}
    assert len(set(samples.values())) > 1
    sent = server.begin_round(SPLIT)
    for client in clients.values():
        client.begin_round(SPLIT, sent)
    for iteration in range(1, ITERATIONS + 1):
        gradients = {}
        for share in shares:
            images, labels = share.batch(0, iteration)
            name = batch_name(share.client, 0, iteration)
            smashed = clients[share.client].forward(images, name)
            step = server.forward_backward(share.client, smashed, labels, name)
            gradients[share.client] = step.gradient
        stack = torch.stack([gradients[k] for k in clients]).double()
        weights = torch.tensor([float(samples[k]) for k in clients], dtype=torch.float64)
        mean = torch.tensordot(weights / weights.sum(), stack, 1).float()
        for k, client in clients.items():
            gradients[k][: settings.shared_samples] = mean[: settings.shared_samples]
            client.backward(gradients[k])
    server.aggregate({k: client.adapters() for k, client in clients.items()}, samples)
    return server.state()


@pytest.mark.parametrize("shared", [0, 1, 3, BATCH])
def test_the_first_samples_have_the_mean_gradient_of_all_clients(
    settings: Settings, shared: int, tmp_path: Path
) -> None:
    aggregating = replace(settings, shared_samples=shared)
    nodes, loop = safetensors.torch.load(by_nodes(aggregating)), by_loop(aggregating)
    for name in loop:
        torch.testing.assert_close(nodes[name], loop[name], rtol=0, atol=1e-6)
    plain = by_loop(settings)
    assert (shared == 0) == all(torch.equal(plain[name], loop[name]) for name in plain)
