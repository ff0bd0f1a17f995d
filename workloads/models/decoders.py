# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Causal language models of transformers as chains: embeddings, blocks, final norm and head.

Masks, positions and rotary embeddings of each block are those with which the network's own
`forward` calls it: they are recorded once for the length of the sequences, so sliding windows and
types of layers are transformers' own. Attention uses the implementation `eager`: it computes all
products of a sequence, masked or not, as they are counted, and supports all features of the
families, such as soft-capping.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.utils import logging

from testbed.core.errors import InputError
from workloads.models.chain import Chain, Step, Tokens
from workloads.models.config import ModelConfig

LENGTH = 128
"""Largest default length of a sequence in tokens."""


@dataclass(frozen=True)
class Names:
    """Names of the pieces in the network of a family."""

    blocks: str = "layers"
    norm: str = "norm"
    embedding: str = "embed_tokens"
    positions: str | None = None
    """Embedding of positions that is added to that of tokens."""


NAMES: Mapping[str, Names] = {
    "gpt2": Names("h", "ln_f", "wte", "wpe"),
    "phi": Names(norm="final_layernorm"),
}
"""Names by `model_type`; other families have the default ones, as Llama."""


def network(config: ModelConfig) -> Any:
    """The network of transformers with its own initial values, in float32.

    Raises:
        InputError: A value of its configuration is not possible.
    """
    values = dict(config.parameters["config"])
    kind = values.pop("model_type")
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # Special tokens outside of the vocabulary do not matter here.
    try:
        made = CONFIG_MAPPING[kind].from_dict(values)
        made.use_cache = False
        net = AutoModelForCausalLM.from_config(
            made,
            dtype=torch.float32,
            attn_implementation="eager",
            trust_remote_code=False,
        )
    except Exception as error:  # Configurations and networks raise any type.
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(
            f"workload.model: transformers cannot create {config.model}: {why}"
        ) from None
    finally:
        logging.set_verbosity(verbosity)
    return net.eval()


def check_parameters(config: ModelConfig) -> None:
    """Refuse parameters of a family that its configuration does not have.

    transformers would accept them without effect. Files of configurations may have such values.

    Raises:
        InputError: The parameters contain such a name.
    """
    if "folder" in config.parameters:
        return
    kind = config.parameters["config"]["model_type"]
    known = {*CONFIG_MAPPING[kind]().to_dict(), *CONFIG_MAPPING[kind].attribute_map, "rope_theta"}
    for name in config.parameters["config"]:
        if name not in known:
            raise InputError(f"workload.parameters: {kind} of transformers has no {name!r}")


def decoder_chain(config: ModelConfig, net: Any) -> Chain:
    """The chain of a network of `network`; its parameters may be on the meta device.

    Raises:
        InputError: Sequences are longer than the network allows.
    """
    names = NAMES.get(net.config.model_type, Names())
    body = net.base_model
    longest = int(net.config.max_position_embeddings)
    length = int(config.parameters.get("length") or min(LENGTH, longest))
    if length > longest:
        raise InputError(
            f"workload.sequence_length: {config.model} has at most {longest} positions, "
            f"not {length}"
        )
    context = _Context(body, names, length)

    def embed(tokens: Tensor) -> Tensor:
        x: Tensor = getattr(body, names.embedding)(tokens)
        if names.positions is not None:
            x = x + getattr(body, names.positions)(torch.arange(length, device=tokens.device))
        return x

    def block(index: int, x: Tensor) -> Tensor:
        args, kwargs = context.of(index, x.device)
        out = getattr(body, names.blocks)[index](x, *args, **kwargs)
        return out[0] if isinstance(out, tuple) else out  # type: ignore[no-any-return]

    limit = getattr(net.config, "final_logit_softcapping", None)
    head = next(n for n, module in net.named_modules() if module is net.get_output_embeddings())
    parts: list[Step] = [partial(block, i) for i in range(len(getattr(body, names.blocks)))]
    return Chain(
        net,
        Tokens(length, net.config.vocab_size),
        embed,
        parts,
        lambda x: getattr(body, names.norm)(x),
        head,
        logits=None if limit is None else lambda x: torch.tanh(x / limit) * limit,
    )


class _Context:
    """Arguments that the network's own `forward` passes to each block in addition to the hidden
    state."""

    def __init__(self, body: Any, names: Names, length: int) -> None:
        blocks = getattr(body, names.blocks)
        recorders = nn.ModuleList(_Recorder() for _ in blocks)
        # Parameters outside of the blocks do not matter for it: zeros without memory are enough.
        values = {
            name: torch.zeros(()).expand(parameter.shape)
            for name, parameter in body.named_parameters()
            if not name.startswith(f"{names.blocks}.")
        }
        body._modules[names.blocks] = recorders
        try:
            with torch.no_grad():
                tokens = torch.zeros(1, length, dtype=torch.int64)
                torch.func.functional_call(
                    body, values, (), {"input_ids": tokens, "use_cache": False}
                )
        finally:
            body._modules[names.blocks] = blocks
        self._by_device = {torch.device("cpu"): [each.seen for each in recorders]}

    def of(self, index: int, device: torch.device) -> Any:
        """Positional and named arguments of a block, on a device."""
        if device not in self._by_device:
            own = self._by_device[torch.device("cpu")]
            self._by_device[device] = tree_map_only(Tensor, lambda t: t.to(device), own)
        return self._by_device[device][index]


class _Recorder(nn.Module):
    """A block that passes its input on, and keeps all other arguments."""

    seen: tuple[Sequence[Any], Mapping[str, Any]]

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        self.seen = args, kwargs
        return x


def norm_values(net: Any) -> dict[str, Tensor]:
    """The initial values of all layers that only have vectors as parameters, such as norms.

    They differ from family to family: Gemma's begin with zeros, because it adds 1 to them.

    Args:
        net: A network of `network` with parameters on the meta device, which is changed.
    """
    found: dict[str, Tensor] = {}
    for name, module in net.named_modules():
        own = dict(module.named_parameters(recurse=False))
        if own and all(parameter.ndim == 1 for parameter in own.values()):
            module.to_empty(device="cpu", recurse=False)
            net._init_weights(module)
            found |= {f"{name}.{key}": p.detach() for key, p in module.named_parameters()}
    return found
