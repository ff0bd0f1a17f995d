# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Learning that takes milliseconds, and how large what its nodes exchange is."""

from pathlib import Path
from typing import Any

import torch

from testbed.transport.wire import RoundSizes
from workloads.codecs.codec import Direction
from workloads.learning.cached import backbone_file
from workloads.learning.real import RealServer, Settings
from workloads.learning.settings import DataConfig, ModelConfig, TrainingConfig

MODEL = ModelConfig("swin_nano_patch4_window4_64", classes=5, rank=4)
BATCH, ITERATIONS = 4, 2


def small_settings(folder: Path, **different: Any) -> Settings:
    """Its settings, with the backbone's file in a folder."""
    of_all: dict[str, Any] = {
        "model": MODEL,
        "training": TrainingConfig(learning_rate=3e-3),
        "data": DataConfig(samples=60),
        "batch_size": BATCH,
        "clients": 3,
        "backbone": str(backbone_file(MODEL, folder)),
        "wire_dtype": "float32",
        "wire_parameters": {},
        "wire_error": False,
        "clients_per_pass": 1,
        "evaluate_samples": 50,
        "device": "cpu",
        "threads": 1,
    }
    return Settings(**of_all | different)


def sizes_of(
    server: RealServer, split: int, client: int = 1, iterations: int = ITERATIONS
) -> RoundSizes:
    """What a client of that split exchanges with such a base station in a round."""
    settings, layout = server._settings, server._learner.layout_of(client)
    batch, shared = settings.batch_of(client), settings.shared_samples
    values = torch.Size(server._feature_shapes[split - 1]).numel()

    def encoded(direction: Direction, values: int) -> int:
        codec = settings.codec_for(direction)
        return 4 * values if codec is None else codec.size(values)

    return RoundSizes(
        adapters=encoded("adapters_down", layout.cuts[split]),
        adapters_header=len(layout.header(split)),
        smashed=encoded("smashed", batch * values),
        labels=batch,
        batches=iterations,
        encoded_up=encoded("adapters_up", layout.cuts[split]),
        encoded_gradient=encoded("gradient", (batch - shared) * values) if batch > shared else 0,
        shared_gradient=encoded("gradient", shared * values) if shared else 0,
    )
