# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Settle by `FLOWER_SEED` what Flower and the app leave to chance, without a change in either.

Python imports this file by itself where its folder is in `PYTHONPATH`. Every task then starts from
a seed of its own, whichever process it runs in, and replies are added up in an order that does not
depend on which came first: a deployment and a simulation come to the same bits.
"""

import os
import sys
import zlib
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


def _seed(*parts: object) -> None:
    import torch

    torch.set_num_threads(1)
    words = " ".join(map(str, (os.environ.get("FLOWER_SEED", 0), *parts)))
    torch.manual_seed(zlib.crc32(words.encode()))


def _client_app(module: ModuleType) -> None:
    call = module.ClientApp.__call__

    def seeded(self: Any, message: Any, context: Any) -> Any:
        about = message.metadata
        _seed(context.node_config["partition-id"], about.group_id, about.message_type)
        return call(self, message, context)

    module.ClientApp.__call__ = seeded


def _server_app(module: ModuleType) -> None:
    call = module.ServerApp.__call__

    def seeded(self: Any, *args: Any, **kwargs: Any) -> Any:
        _seed("server")
        return call(self, *args, **kwargs)

    module.ServerApp.__call__ = seeded


def _strategy(module: ModuleType) -> None:
    def settled(name: str) -> None:
        aggregate = getattr(module.FedAvg, name)

        def sorted_first(self: Any, server_round: int, replies: Any) -> Any:
            return aggregate(self, server_round, sorted(replies, key=_metrics))

        setattr(module.FedAvg, name, sorted_first)

    for name in ("aggregate_train", "aggregate_evaluate"):
        settled(name)


def _metrics(reply: Any) -> str:
    if reply.has_error():
        return ""
    return repr([sorted(record.items()) for record in reply.content.metric_records.values()])


PATCHES = {
    "flwr.client.client_app": _client_app,  # 1.22
    "flwr.clientapp.client_app": _client_app,
    "flwr.server.server_app": _server_app,  # 1.22
    "flwr.serverapp.server_app": _server_app,
    "flwr.serverapp.strategy.fedavg": _strategy,
}


class _Finder:
    """Finds those modules as ever, and patches them once they are there."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in PATCHES:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def patched(module: ModuleType) -> None:
            execute(module)
            PATCHES[name](module)

        spec.loader.exec_module = patched  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _Finder)
