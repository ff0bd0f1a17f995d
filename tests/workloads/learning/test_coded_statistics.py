# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Variances of batch normalisation are not negative after a codec has decoded them."""

from pathlib import Path

import pytest
import torch
from small_learning import sizes_of, small_settings

from workloads.learning.cached import backbone_file
from workloads.learning.real import RealClient, RealServer
from workloads.learning.settings import ModelConfig


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> RealServer:
    folder: Path = tmp_path_factory.mktemp("coded")
    model = ModelConfig("resnet_nano_32", 5, adapters="full")
    backbone = str(backbone_file(model, folder))
    codecs = {"adapters_up": ("int4", {}), "adapters_down": ("int4", {})}
    return RealServer(
        small_settings(folder, clients=1, model=model, backbone=backbone, codecs=codecs)
    )


def test_neither_side_gets_negative_variances(server: RealServer) -> None:
    state = server._learner.state()
    names = [name for name in state if name.endswith(".running_var")]
    for name in names:  # One large value makes the codec's steps larger than the others.
        state[name].copy_(torch.linspace(0.01, 100, state[name].numel()))
    server._learner.load_state(state)
    sizes = sizes_of(server, 2)
    client = RealClient(server._settings, 1)
    server.begin_round(0, [2], [sizes])
    client.begin_round(0, 2, sizes)
    client.adapters_buffer()[:] = server.broadcast(1)
    client.load_adapters()
    assert torch.equal(client._received, server._starts[1])
    # An update that takes all variances below 0.
    update = -2 * client._received
    server.adapters_buffer(1)[:] = client._uploads.encode(
        client._received + update, client._received
    )
    trained = server._layout.views(server._trained(1))
    here = [name for name in names if name in trained]
    assert here
    assert all((trained[name] >= 0).all() for name in here)
    assert any((trained[name] == 0).any() for name in here)
    client.close()
