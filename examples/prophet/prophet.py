# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A causal transformer and plug-ins of training: see docs/plugins.md."""

import numpy as np
import torch
from torch import nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from orchestrator import Algorithm, Chain, LocalStep, Tokens


class Block(nn.Module):
    """Causal attention, then a perceptron."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(seen.transpose(1, 2).flatten(2))
        return x + self.down(gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, vocabulary, length, width, depth, heads):
        super().__init__()
        self.token, self.norm = nn.Embedding(vocabulary, width), nn.LayerNorm(width)
        self.place = nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.head = nn.Linear(width, vocabulary)

    def embed(self, tokens):
        return self.token(tokens) + self.place

    def finish(self, x):
        return self.head(self.norm(x))

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.finish(x)


def prophet(classes, length=32, width=64, depth=4, heads=4):
    """`classes` is the size of the vocabulary."""
    if width % heads:
        raise ValueError("width must be a multiple of heads")
    net = Transformer(classes, length, width, depth, heads)
    return Chain(net, Tokens(length, classes), net.embed, net.blocks, net.finish, head="head")


def midway(share=0.5):
    """A rule of aggregation: the global model moves part of the way to the clients' mean."""
    return lambda update: update.before + share * (update.mean() - update.before)


class Drag(LocalStep):
    """A local step: each client is drawn to the place where it ended its last round."""

    remembers = True

    def __init__(self, strength=0.1):
        self.strength = strength

    def gradient(self, part):
        if "end" in part.state:
            part.gradient.add_(part.values - part.state["end"], alpha=self.strength)

    def finish(self, part):
        part.state["end"] = part.values.clone()


def lively():
    """A rule of aggregation: clients whose loss falls from round to round count twice."""

    def rule(update):
        after, total = 0 * update.before, 0.0
        for sender, (weight, model) in zip(update.senders, update.clients(), strict=True):
            state = update.states[sender.client]
            if sender.loss < float(state.get("loss", 0)):
                weight = 2 * weight
            state["loss"] = sender.loss
            after, total = after + weight * model, total + weight
        return after / total

    return Algorithm(rule, needs_clients=True)


class Signs:
    """A codec: the signs and one magnitude, with error feedback in gradients."""

    def size(self, values):
        return 4 + -(-values // 8)

    def encode(self, values, stream):
        values = values + stream.memory.get("lost", 0)
        magnitude = values.abs().mean()
        if stream.kind == "gradient":
            stream.memory["lost"] = values - magnitude * torch.where(values < 0, -1, 1)
        return magnitude.numpy().tobytes() + np.packbits(values.numpy() >= 0).tobytes()

    def decode(self, data, values, stream):
        magnitude = np.frombuffer(data[:4], "<f4")
        signs = np.unpackbits(np.frombuffer(data[4:], np.uint8), count=values)
        return torch.from_numpy(np.where(signs, magnitude, -magnitude))
