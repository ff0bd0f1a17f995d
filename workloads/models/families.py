# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Networks that can be split: model families of timm, language models of transformers, and models
of other packages."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode

from workloads.models.uncompiled import timm, without_compiler

# isort: split
from timm.models.beit import Beit
from timm.models.convnext import ConvNeXt
from timm.models.efficientnet import EfficientNet
from timm.models.eva import Eva
from timm.models.mobilenetv3 import MobileNetV3
from timm.models.regnet import RegNet
from timm.models.resnet import BasicBlock, ResNet
from timm.models.swin_transformer import SwinTransformer
from timm.models.swin_transformer_v2 import SwinTransformerV2
from timm.models.vgg import VGG
from timm.models.vision_transformer import VisionTransformer

from testbed.core.errors import InputError
from testbed.core.registry import MODELS
from testbed.core.words import not_one_of
from workloads.models.chain import Chain, Images, Step
from workloads.models.config import ModelConfig
from workloads.models.language import is_language

PREFIXES: dict[str, type[nn.Module]] = {
    "swin": SwinTransformer,
    "swinv2": SwinTransformerV2,
    "vit": VisionTransformer,
    "beit": Beit,
    "eva": Eva,
    "convnext": ConvNeXt,
    "resnet": ResNet,
}
"""Classes of this project's own models, by the first word of their names."""

OWN_MODELS: dict[str, dict[str, Any]] = {
    "swin_nano_patch4_window4_64": {
        "img_size": 64,
        "patch_size": 4,
        "window_size": 4,
        "embed_dim": 32,
        "depths": (2, 2, 2, 2),
        "num_heads": (1, 2, 4, 8),
    },
    "swinv2_nano_patch4_window4_64": {
        "img_size": 64,
        "patch_size": 4,
        "window_size": 4,
        "embed_dim": 32,
        "depths": (2, 2, 2, 2),
        "num_heads": (1, 2, 4, 8),
    },
    "vit_nano_patch8_64": {
        "img_size": 64,
        "patch_size": 8,
        "embed_dim": 64,
        "depth": 6,
        "num_heads": 4,
    },
    "beit_nano_patch8_64": {
        "img_size": 64,
        "patch_size": 8,
        "embed_dim": 64,
        "depth": 4,
        "num_heads": 4,
        "use_abs_pos_emb": False,
        "use_rel_pos_bias": True,
        "init_values": 0.1,
    },
    "eva_nano_patch8_64": {
        "img_size": 64,
        "patch_size": 8,
        "embed_dim": 64,
        "depth": 4,
        "num_heads": 4,
        "qkv_fused": False,
        "swiglu_mlp": True,
        "use_rot_pos_emb": True,
        "ref_feat_shape": (8, 8),
    },
    "convnext_nano_64": {"depths": (2, 2, 2, 2), "dims": (32, 64, 128, 256)},
    "resnet_nano_32": {
        "block": BasicBlock,
        "layers": (1, 1, 1, 1),
        "channels": (16, 32, 64, 128),
    },
}
"""Small models that timm does not have, for tests and the quick start."""

TIMM_BASES = {
    "swin": "swin_tiny_patch4_window7_224",
    "swinv2": "swinv2_tiny_window8_256",
    "vit": "vit_tiny_patch16_224",
    "beit": "beit_base_patch16_224",
    "eva": "eva02_tiny_patch14_224",
    "convnext": "convnext_tiny",
    "resnet": "resnet18",
}
"""Models of timm that are a model of `OWN_MODELS` with its arguments, by the first word."""


def chain_of(config: ModelConfig) -> Chain:
    """Create the network with parameters on the meta device, which need no memory, and real
    buffers.

    Raises:
        InputError: The model is unknown, cannot be split, or does not support the image size.
    """
    if config.model in MODELS.plugins:
        return _of_plugin(config)
    if is_language(config.model):
        from workloads.models.decoders import check_parameters, decoder_chain

        check_parameters(config)
        return decoder_chain(config, _language_network(config))
    if config.model not in OWN_MODELS and not timm.is_model(config.model):
        known = [*OWN_MODELS, *timm.list_models(), *MODELS.plugins]
        raise InputError(f"workload.model: {not_one_of(config.model, known)}")
    try:
        with uncompiled(config):
            net = _without_memory(_own if config.model in OWN_MODELS else timm_model, config)
    except Exception as error:  # Networks raise any type for sizes that do not fit.
        why = " ".join(str(error).split())[:200] or type(error).__name__
        if config.image_size is None:
            raise InputError(f"workload.model: timm cannot create {config.model}: {why}") from None
        raise InputError(
            f"workload.image_size: timm cannot create {config.model} for {config.image_size} x "
            f"{config.image_size} pixels: {why}"
        ) from None
    make = CHAINS.get(type(net))
    if make is None:
        raise InputError(
            f"workload.model: {config.model!r} ({type(net).__name__}) cannot be split; models of "
            f"these classes of timm can be: {', '.join(kind.__name__ for kind in CHAINS)}"
        )
    return make(net, _images(net, config))


def uncompiled(config: ModelConfig) -> AbstractContextManager[None]:
    """`without_compiler` for networks of timm; others may need the compiler."""
    own = config.model not in MODELS.plugins and not is_language(config.model)
    return without_compiler() if own else nullcontext()


# --- creation of networks ------------------------------------------------------------------------


def _without_memory(make: Callable[[ModelConfig], nn.Module], config: ModelConfig) -> nn.Module:
    """A network whose parameters are on the meta device, with real buffers if possible."""
    try:
        with _parameters_on_meta():
            return make(config)
    except (NotImplementedError, RuntimeError) as error:
        # Some networks compute with their parameters at creation. Swin V2 creates buffers on the
        # device of its parameters; `load_model` recreates them.
        if not isinstance(error, NotImplementedError) and "meta" not in str(error):
            raise
    with torch.device("meta"), _NothingToDraw():
        return make(config)


@contextmanager
def _parameters_on_meta() -> Iterator[None]:
    """Modules created within the context have parameters on the meta device and real buffers."""

    def to_meta(module: nn.Module, name: str, parameter: nn.Parameter | None) -> Any:
        # One that is registered again under another name stays the same: the names are tied.
        if parameter is None or parameter.is_meta:
            return None
        return nn.Parameter(parameter.to("meta"), False)

    hook = register_module_parameter_registration_hook(to_meta)
    try:
        with _NothingToDraw():
            yield
    finally:
        hook.remove()


_OPERATIONS = {"add_", "clamp_", "div_", "erfinv_", "fill_", "mul_", "normal_", "uniform_", "zero_"}
_OF_TORCHS_INIT = {
    "constant_",
    "kaiming_uniform_",
    "ones_",
    "trunc_normal_",
    "xavier_uniform_",
    "zeros_",
}
_FILLING = _OPERATIONS | _OF_TORCHS_INIT


class _NothingToDraw(TorchFunctionMode):
    """Skips random initialisation of tensors on the meta device, which would dominate the time."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if function.__name__ in _FILLING:
            filled = args[0] if args else kwargs.get("tensor")
            if isinstance(filled, Tensor) and filled.is_meta:
                return filled
        return function(*args, **kwargs)


def _own(config: ModelConfig) -> nn.Module:
    kind, options = PREFIXES[config.model.partition("_")[0]], _options(config)
    if kind in (ConvNeXt, ResNet):
        options.pop("img_size", None)
    return kind(**OWN_MODELS[config.model] | options)


def _options(config: ModelConfig) -> dict[str, Any]:
    options: dict[str, Any] = {"num_classes": config.classes}
    if config.image_size is not None:
        options["img_size"] = config.image_size
    return options


def timm_model(config: ModelConfig, pretrained: bool = False) -> nn.Module:
    """timm's model of that name, classes and image size."""
    options = _options(config) | {"pretrained": pretrained}
    try:
        net: nn.Module = timm.create_model(config.model, **options)
    except TypeError:
        # Convolutional networks accept images of any size and have no such option.
        options.pop("img_size", None)
        net = timm.create_model(config.model, **options)
    return net


def timm_description(config: ModelConfig, images: Images) -> dict[str, Any]:
    """The `config.json` with which `timm.create_model("local-dir:FOLDER")` makes the network."""
    options = _options(config)
    classes = options.pop("num_classes")
    architecture = config.model
    if config.model in OWN_MODELS:
        prefix = config.model.partition("_")[0]
        architecture = TIMM_BASES[prefix]
        # The base of EVA has another ratio.
        given = {"mlp_ratio": 4.0} if prefix == "eva" else {}
        options = given | OWN_MODELS[config.model] | options
        options.pop("block", None)  # A class; the base has the same one.
    if not hasattr(chain_of(config).net, "patch_embed"):
        options.pop("img_size", None)
    return {
        "architecture": architecture,
        "num_classes": classes,
        "model_args": options,
        "pretrained_cfg": {
            "input_size": [3, images.size, images.size],
            "mean": images.mean,
            "std": images.deviation,
            "num_classes": classes,
        },
    }


def _images(net: nn.Module, config: ModelConfig) -> Images:
    """Input format of the network, with the normalisation of its training."""
    known = getattr(net, "pretrained_cfg", None) or {}
    embed = getattr(net, "patch_embed", None)
    if embed is not None:
        size, width = (int(side) for side in embed.img_size)
        if size != width:
            raise InputError(
                f"workload.model: {config.model} takes images of {size} x {width} pixels, and all "
                "images here are square; give workload.image_size"
            )
    else:
        own = int(config.model.rpartition("_")[2]) if config.model in OWN_MODELS else None
        size = config.image_size or own or int(known["input_size"][-1])
    scaling = {name: tuple(known[key]) for name, key in _SCALING.items() if known.get(key)}
    return Images(size, **scaling)


_SCALING = {"mean": "mean", "deviation": "std"}


def _language_network(config: ModelConfig) -> nn.Module:
    """The network of a language model with parameters on the meta device."""
    from workloads.models.decoders import network

    with _parameters_on_meta():
        net: nn.Module = network(config)
    return net


def _of_plugin(config: ModelConfig) -> Chain:
    if config.model in OWN_MODELS or timm.is_model(config.model):
        raise MODELS.unfit(config.model, "has a name that is taken")
    MODELS.check(config.model, config.parameters)  # Loads it, with its own tensors in memory.
    with _parameters_on_meta():
        chain = MODELS.make(config.model, config.parameters, config.classes)
    if not isinstance(chain, Chain):
        raise MODELS.unfit(config.model, f"must answer with a Chain, not {chain!r}")
    return chain


def initial_values(config: ModelConfig) -> dict[str, Tensor]:
    """The initial values that a package's or a language model gives to its own parameters, as far
    as they matter.

    Left to the testbed's own initialisation are tensors of several dimensions that are random or
    zero, and random biases. The network is created twice, to see which values are random.
    Only the norms of a language model, which may be large, have such values.
    """
    if is_language(config.model):
        from workloads.models.decoders import norm_values

        return norm_values(_language_network(config))
    if config.model not in MODELS.plugins:
        return {}
    digests: dict[str, bytes] = {}
    for fixed in (False, True):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed + fixed)
            made = MODELS.make(config.model, config.parameters, config.classes)
        parameters = {
            name: parameter.detach()
            for name, parameter in made.net.named_parameters(remove_duplicate=False)
            if parameter.is_floating_point() and not parameter.is_meta
        }
        if not fixed:
            digests = {name: _digest(tensor) for name, tensor in parameters.items()}
            vectors = {name: tensor for name, tensor in parameters.items() if tensor.ndim < 2}
            del made, parameters
    same = {name: t for name, t in parameters.items() if digests[name] == _digest(t)}
    kept = {name: tensor for name, tensor in same.items() if tensor.ndim < 2 or tensor.any()}
    drawn = {name: t for name, t in vectors.items() if name.rpartition(".")[2] != "bias"}
    return {name: tensor.float().clone() for name, tensor in (drawn | kept).items()}


def _digest(tensor: Tensor) -> bytes:
    return hashlib.sha256(tensor.contiguous().view(-1).view(torch.uint8).numpy().data).digest()


# --- split points --------------------------------------------------------------------------------


def _swin(net: Any, images: Images) -> Chain:
    parts = [(stage.downsample, *stage.blocks) for stage in net.layers]
    return Chain(net, images, net.patch_embed, parts, lambda x: net.head(net.norm(x)), "head.fc")


def _convnext(net: Any, images: Images) -> Chain:
    parts = [(stage.downsample, *stage.blocks) for stage in net.stages]
    return Chain(net, images, net.stem, parts, lambda x: net.head(net.norm_pre(x)), "head.fc")


def _vit(net: Any, images: Images) -> Chain:
    def embed(x: Tensor) -> Tensor:
        return net.norm_pre(net.patch_drop(net._pos_embed(net.patch_embed(x))))  # type: ignore[no-any-return]

    return Chain(
        net, images, embed, list(net.blocks), lambda x: net.forward_head(net.norm(x)), "head"
    )


def _beit(net: Any, images: Images) -> Chain:
    def embed(x: Tensor) -> Tensor:
        x = net.patch_embed(x)
        x = torch.cat((net.cls_token.expand(x.shape[0], -1, -1), x), dim=1)
        return x if net.pos_embed is None else x + net.pos_embed

    def block(module: nn.Module, x: Tensor) -> Tensor:
        shared = None if net.rel_pos_bias is None else net.rel_pos_bias()
        return module(x, shared_rel_pos_bias=shared)  # type: ignore[no-any-return]

    parts: list[Step] = [partial(block, module) for module in net.blocks]
    return Chain(net, images, embed, parts, lambda x: net.forward_head(net.norm(x)), "head")


def _eva(net: Any, images: Images) -> Chain:
    def embed(x: Tensor) -> Tensor:
        return net.norm_pre(net._pos_embed(net.patch_embed(x))[0])  # type: ignore[no-any-return]

    def block(index: int, x: Tensor) -> Tensor:
        # Each side computes the rotary embedding itself: it depends only on the grid of patches.
        rope = None
        if net.rope is not None:
            cached = hasattr(net.rope, "feat_shape") and not net.dynamic_img_size
            grid = {} if cached else {"shape": list(net.patch_embed.grid_size)}
            rope = net.rope.get_embed(**grid)
            rope = rope[index] if getattr(net, "rope_mixed", False) else rope
        return net.blocks[index](x, rope=rope)  # type: ignore[no-any-return]

    parts: list[Step] = [partial(block, index) for index in range(len(net.blocks))]
    return Chain(net, images, embed, parts, lambda x: net.forward_head(net.norm(x)), "head")


def _resnet(net: Any, images: Images) -> Chain:
    def embed(x: Tensor) -> Tensor:
        return net.maxpool(net.act1(net.bn1(net.conv1(x))))  # type: ignore[no-any-return]

    parts = [net.layer1, net.layer2, net.layer3, net.layer4]
    return Chain(net, images, embed, parts, net.forward_head, "fc")


def _efficientnet(net: Any, images: Images) -> Chain:
    def embed(x: Tensor) -> Tensor:
        return net.bn1(net.conv_stem(x))  # type: ignore[no-any-return]

    def finish(x: Tensor) -> Tensor:
        if isinstance(net, EfficientNet):  # MobileNetV3 has this convolution behind the pooling.
            x = net.bn2(net.conv_head(x))
        return net.forward_head(x)  # type: ignore[no-any-return]

    return Chain(net, images, embed, list(net.blocks), finish, "classifier")


def _vgg(net: Any, images: Images) -> Chain:
    # A stage ends with its pooling, which is the layer behind the one that timm notes.
    ends = [0, *(end + 2 for end in net.feature_ends[:-1])]

    def stage(start: int, stop: int, x: Tensor) -> Tensor:
        return net.features[start:stop](x)  # type: ignore[no-any-return]

    parts: list[Step] = [partial(stage, *ends[u : u + 2]) for u in range(len(ends) - 1)]
    return Chain(net, images, lambda x: x, parts, net.forward_head, "head.fc")


def _regnet(net: Any, images: Images) -> Chain:
    def finish(x: Tensor) -> Tensor:
        return net.forward_head(net.final_conv(x))  # type: ignore[no-any-return]

    return Chain(net, images, net.stem, [net.s1, net.s2, net.s3, net.s4], finish, "head.fc")


CHAINS: Mapping[type[nn.Module], Callable[[Any, Images], Chain]] = {
    SwinTransformer: _swin,
    SwinTransformerV2: _swin,
    VisionTransformer: _vit,
    Beit: _beit,
    Eva: _eva,
    ConvNeXt: _convnext,
    ResNet: _resnet,
    EfficientNet: _efficientnet,
    MobileNetV3: _efficientnet,
    VGG: _vgg,
    RegNet: _regnet,
}
"""Functions that split each of timm's classes, after stages or after blocks."""
