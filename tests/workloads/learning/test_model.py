# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The split LoRA Swin, and its one shared backbone."""

import json
import re
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import timm
import torch
from torch import nn
from torch.nn import functional

from testbed.core.errors import InputError
from workloads.learning.backbone import ALIGNMENT, load_model
from workloads.learning.cached import backbone_file
from workloads.learning.learner import ServerLearner
from workloads.learning.model import (
    LoraLinear,
    SplitModel,
    initial_trainables,
)
from workloads.learning.remarks import remarks_on
from workloads.learning.settings import ModelConfig, TrainingConfig
from workloads.models.chain import Images
from workloads.models.families import chain_of

NANO = ModelConfig("swin_nano_patch4_window4_64", classes=10, rank=4)
SWIN_L = ModelConfig("swin_large_patch4_window7_224", classes=100)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def test_swin_large_has_the_papers_adapters() -> None:
    layout = SplitModel(SWIN_L).layout
    assert [4 * cut / 1024 for cut in layout.cuts] == [0, 192, 612, 7596, 9276]
    assert "layers.2.blocks.0.attn.qkv.lora_A" in {entry.name for entry in layout.entries}
    assert [entry.name for entry in layout.entries if "lora" not in entry.name] == [
        "head.fc.weight",
        "head.fc.bias",
    ]


def test_a_stage_begins_with_its_downsample() -> None:
    layout = SplitModel(NANO).layout
    second = [e.name for e in layout.entries if layout.cuts[1] <= e.start < layout.cuts[2]]
    assert second[0] == "layers.1.downsample.reduction.lora_A"
    assert all(name.startswith("layers.1.") for name in second)


@pytest.mark.parametrize("name", ["swin_s3_tiny_224", "swin_tiny_patch4_window7_224"])
def test_any_swin_of_timm_can_be_split(name: str) -> None:
    model = SplitModel(ModelConfig(name, classes=7))
    linear = [n for n, m in chain_of(model.config).net.named_modules() if isinstance(m, nn.Linear)]
    adapted = {e.name.rsplit(".lora_", 1)[0] for e in model.layout.entries if "lora" in e.name}
    assert adapted == set(linear) - {"head.fc"}


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("swin_nonsense", None),
        ("../x", None),
        ("deit_tiny_distilled_patch16_224", None),
    ],
)
def test_other_models_are_refused_by_name(name: str, size: int | None) -> None:
    with pytest.raises(InputError, match=r"^workload\.model: ") as refusal:
        SplitModel(ModelConfig(name, classes=10, image_size=size))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("densenet121", r"^workload\.model: 'densenet121' \(DenseNet\) cannot be split"),
        ("repvit_m1", r"^workload\.model: 'repvit_m1' \(RepVit\) cannot be split"),
        (
            "vit_base_patch16_sapiens2",
            r"1024 x 768 pixels, and all images here are",
        ),
    ],
)
def test_a_refusal_names_the_true_cause(name: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as refusal:
        SplitModel(ModelConfig(name, classes=10))
    assert "\n" not in str(refusal.value)
    assert "drop_path" not in str(refusal.value)


def test_networks_that_compute_at_their_creation_can_be_split(tmp_path: Path) -> None:
    """A hybrid of convolutions and blocks; its chain is compared with timm's own network."""
    config = ModelConfig("vit_tiny_r_s16_p8_224", 10)
    model = load_model(config, backbone_file(config, tmp_path))
    assert model.splits == 12
    assert model.whole is not None


def test_what_a_network_raises_is_part_of_the_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> torch.Tensor:
        raise ValueError("no\n  such  thing")

    monkeypatch.setattr(SplitModel, "between", broken)
    line = r"^workload\.model: swin_nano.* cannot be traced .*\(ValueError: no such thing\)"
    with pytest.raises(InputError, match=line):
        SplitModel(NANO)


def test_image_size_is_an_option() -> None:
    assert chain_of(NANO).input == Images(64)
    assert chain_of(replace(NANO, image_size=96)).input == Images(96)


def test_initial_adapters_depend_on_seed_and_name_only() -> None:
    small, large = SplitModel(NANO).layout, SplitModel(replace(NANO, classes=20)).layout
    one = small.views(initial_trainables(small, 1))
    same = large.views(initial_trainables(large, 1))
    other = small.views(initial_trainables(small, 2))
    for name, tensor in one.items():
        if name.endswith("lora_A"):
            assert torch.equal(tensor, same[name])
            assert not torch.equal(tensor, other[name])
            assert tensor.abs().max() <= tensor.shape[1] ** -0.5
        elif name.endswith("lora_B"):
            assert not tensor.any()
    weight = large.views(initial_trainables(large, 1))["head.fc.weight"]
    assert float(weight.std()) == pytest.approx(0.02, rel=0.1)
    assert float(weight.mean()) == pytest.approx(0, abs=0.002)


def test_what_networks_do_in_training_alone_is_left_out() -> None:
    """Dropout and dropped paths would make what is computed twice differ."""
    model = SplitModel(NANO)
    ours = (LoraLinear, nn.Identity)
    left = [module for module in model.net.modules() if not isinstance(module, ours)]
    assert any(isinstance(module, nn.Dropout) for module in left)
    assert not [module for module in left if module.training]


@pytest.mark.parametrize("clients", [None, 3])
def test_lora_gradients_are_those_of_autograd(clients: int | None) -> None:
    torch.manual_seed(0)
    group = () if clients is None else (clients,)
    layer = LoraLinear(nn.Linear(6, 5).double().requires_grad_(False), scale=0.7)
    x = torch.randn(3, 2, 6, dtype=torch.float64, requires_grad=True)
    a = torch.randn(*group, 4, 6, dtype=torch.float64, requires_grad=True)
    b = torch.randn(*group, 5, 4, dtype=torch.float64, requires_grad=True)

    def apply(*tensors: torch.Tensor) -> torch.Tensor:
        layer.adapter = tensors[1], tensors[2]
        out: torch.Tensor = layer(tensors[0])
        return out

    assert torch.autograd.gradcheck(apply, (x, a, b))
    plain = functional.linear(x, layer.weight, layer.bias) + 0.7 * (x @ a.mT @ b.mT)
    torch.testing.assert_close(apply(x, a, b), plain)


@pytest.mark.parametrize("bias", [True, False])
def test_dora_scales_rows_and_leaves_the_bias(bias: bool) -> None:
    """Equation (5) of Liu et al., DoRA (2024)."""
    torch.manual_seed(0)
    layer = LoraLinear(nn.Linear(6, 5, bias).requires_grad_(False), scale=0.7)
    x, a, b = torch.randn(3, 2, 6), torch.randn(4, 6), torch.randn(5, 4)
    layer.adapter, layer.magnitude = (a, b), torch.rand(5)
    direction = layer.weight + 0.7 * b @ a
    norms = torch.linalg.vector_norm(direction, dim=-1, keepdim=True)
    expected = functional.linear(x, layer.magnitude[:, None] * direction / norms, layer.bias)
    torch.testing.assert_close(layer(x), expected)


def test_weights_in_half_precision_are_multiplied_in_it_and_trained_in_full() -> None:
    layer = LoraLinear(nn.Linear(6, 5).bfloat16().requires_grad_(False), scale=0.7)
    adapter = torch.randn(4, 6).requires_grad_(), torch.randn(5, 4).requires_grad_()
    layer.adapter = adapter
    out = layer(torch.randn(3, 2, 6))
    assert out.dtype == torch.bfloat16
    gradients = torch.autograd.grad(out.sum(), adapter)
    assert [each.dtype for each in gradients] == [torch.float32] * 2


def test_backbone_is_built_once_and_by_seed(cache: Path) -> None:
    first = backbone_file(NANO, cache)
    stamp = first.stat().st_mtime_ns
    assert backbone_file(replace(NANO, rank=8, classes=3), cache) == first
    assert first.stat().st_mtime_ns == stamp
    other = backbone_file(replace(NANO, seed=2), cache)
    assert other.read_bytes() != first.read_bytes()
    again = backbone_file(NANO, cache / "elsewhere")
    assert again.read_bytes() == first.read_bytes()
    assert not list(cache.glob("*.part"))


def test_backbone_is_aligned_safetensors_with_timms_names(cache: Path) -> None:
    file = backbone_file(NANO, cache)
    tensors = safetensors.torch.load_file(file)
    net = chain_of(NANO).net
    assert set(tensors) == {n for n, _ in net.named_parameters() if not n.startswith("head.")}
    with file.open("rb") as raw:
        [size] = struct.unpack("<Q", raw.read(8))
        header = json.loads(raw.read(size))
    for name, entry in header.items():
        if name.endswith(("qkv.weight", "fc1.weight", "reduction.weight")):
            assert (8 + size + entry["data_offsets"][0]) % ALIGNMENT == 0, name


def test_processes_share_the_backbones_memory(cache: Path) -> None:
    """A process that has computed with the model holds no private copy of its weights."""
    file = backbone_file(NANO, cache)
    program = """
import sys, torch
from pathlib import Path
from workloads.learning.backbone import load_model
from workloads.learning.model import initial_trainables
from workloads.learning.settings import ModelConfig
torch.set_num_threads(1)
model = load_model(ModelConfig("swin_nano_patch4_window4_64", 10), Path(sys.argv[1]))
model.attach(model.layout.views(initial_trainables(model.layout, 1)))
with torch.no_grad():
    model.server(model.client(torch.zeros(1, 3, 64, 64), 2), 2)
inside, dirty, resident = False, 0, 0
for line in open("/proc/self/smaps"):
    first = line.split()[0]
    if not first.endswith(":"):
        inside = sys.argv[1] in line
    elif inside and first == "Anonymous:":
        dirty += int(line.split()[1])
    elif inside and first == "Rss:":
        resident += int(line.split()[1])
print(dirty, resident)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(file)], capture_output=True, text=True, check=True
    )
    anonymous_kib, resident_kib = map(int, done.stdout.split())
    assert anonymous_kib == 0
    assert resident_kib > 0.9 * file.stat().st_size / 1024


def test_given_weights_are_used(cache: Path, tmp_path: Path) -> None:
    tensors = safetensors.torch.load_file(backbone_file(NANO, cache))
    tensors["norm.weight"] = torch.full_like(tensors["norm.weight"], 1.5)
    tensors["head.fc.weight"] = torch.zeros(1000, 256)
    given = tmp_path / "given.safetensors"
    safetensors.torch.save_file(tensors, given)
    config = replace(NANO, weights=str(given))
    model = load_model(config, backbone_file(config, cache))
    assert torch.equal(model.net.norm.weight, tensors["norm.weight"])


def test_weights_that_do_not_fit_are_refused(cache: Path, tmp_path: Path) -> None:
    tensors = safetensors.torch.load_file(backbone_file(NANO, cache))
    del tensors["norm.weight"]
    given = tmp_path / "given.safetensors"
    safetensors.torch.save_file(tensors, given)
    with pytest.raises(InputError, match=r"^workload\.weights: .* needs norm\.weight"):
        backbone_file(replace(NANO, weights=str(given)), cache)
    torch.save(tensors, tmp_path / "pickled.pth")
    with pytest.raises(InputError, match="pickled weights are not supported"):
        backbone_file(replace(NANO, weights=str(tmp_path / "pickled.pth")), cache)
    with pytest.raises(InputError, match=r"^workload\.weights: .* cannot be read"):
        backbone_file(replace(NANO, weights=str(tmp_path / "none")), cache)
    assert not list(cache.glob("*.part"))


def saved(folder: Path, tensors: dict[str, torch.Tensor]) -> ModelConfig:
    """The configuration with these tensors as its weights."""
    file = folder / "given.safetensors"
    safetensors.torch.save_file({name: t.contiguous() for name, t in tensors.items()}, file)
    return replace(NANO, weights=str(file))


def whole_file(cache: Path) -> dict[str, torch.Tensor]:
    """A backbone with a head of its own, as timm saves a network."""
    random = torch.Generator().manual_seed(4)
    return safetensors.torch.load_file(backbone_file(NANO, cache)) | {
        "head.fc.weight": torch.randn(10, 256, generator=random),
        "head.fc.bias": torch.randn(10, generator=random),
    }


def first_head(config: ModelConfig, cache: Path) -> torch.Tensor:
    """The weight of the head with which the server begins."""
    model = load_model(config, backbone_file(config, cache))
    server = ServerLearner(model, [1], TrainingConfig())
    return server.state()["head.fc.weight"]


def test_the_head_of_the_weights_is_used_where_it_fits(cache: Path, tmp_path: Path) -> None:
    tensors = whole_file(cache)
    config = saved(tmp_path, tensors)
    drawn = first_head(NANO, cache)
    for head in (None, "file"):
        made = replace(config, head=head)
        model = load_model(made, backbone_file(made, cache))
        state = ServerLearner(model, [1], TrainingConfig()).state()
        for name in ("head.fc.weight", "head.fc.bias"):
            assert torch.equal(state[name], tensors[name])
        assert remarks_on(made, backbone_file(made, cache)) == []
    new = replace(config, head="new")
    assert torch.equal(first_head(new, cache), drawn)
    assert remarks_on(new, backbone_file(new, cache)) == []


@pytest.mark.parametrize(
    ("head", "says"),
    [
        ({"head.fc.weight": (7, 256), "head.fc.bias": (7,)}, r"weight of shape \(7, 256\), .*\(10"),
        ({"head.fc.weight": (10, 256)}, r"head\.fc\.bias of shape none, .* \(10,\)"),
        ({"head.fc.weight": (10, 256), "head.fc.bias": (10,), "head.fc.more": (1,)}, "none"),
        ({}, r"has no head head\.fc"),
    ],
)
def test_a_head_that_does_not_fit_is_said_or_refused(
    cache: Path, tmp_path: Path, head: dict[str, tuple[int, ...]], says: str
) -> None:
    backbone = safetensors.torch.load_file(backbone_file(NANO, cache))
    made = saved(tmp_path, backbone | {name: torch.ones(shape) for name, shape in head.items()})
    assert torch.equal(first_head(made, cache), first_head(NANO, cache))
    [line] = remarks_on(made, backbone_file(made, cache))
    assert re.search(rf"^workload\.weights: .*{says}.*; a new head is drawn by seed$", line)
    with pytest.raises(InputError, match=rf"^workload\.head: is 'file', but .*{says}"):
        backbone_file(replace(made, head="file"), cache)


def test_a_pretrained_head_of_other_classes_is_not_the_one_that_timm_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, create = "swin_tiny_patch4_window7_224", timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda *a, pretrained=False, **k: create(*a, **k))
    made = ModelConfig(name, 10, weights="pretrained")
    [line] = remarks_on(made, backbone_file(made, tmp_path))
    assert "pretrained has a head of 1000 classes, and workload.classes is 10; a new head" in line
    with pytest.raises(InputError, match=r"^workload\.head: .* a head of 1000 classes"):
        backbone_file(replace(made, head="file"), tmp_path)


def test_tensors_of_another_model_are_refused_by_name(cache: Path, tmp_path: Path) -> None:
    tensors = whole_file(cache)
    for more, says in (
        ({"layers.3.blocks.2.norm1.weight": torch.ones(256)}, r"does not have: .*blocks\.2\.norm1"),
        ({"norm.weight": torch.full((256,), torch.nan)}, r"norm\.weight of .* not finite"),
        ({"norm.weight": torch.full((256,), 1e300, dtype=torch.float64)}, "not finite"),
        ({"head.fc.bias": torch.full((10,), torch.inf)}, r"head\.fc\.bias of .* not finite"),
        ({"norm.weight": torch.ones(256, dtype=torch.int8)}, r"norm\.weight of .*torch\.int8"),
        ({"norm.weight": torch.ones(255)}, r"norm\.weight of shape \(256,\); .*\(255,\)"),
    ):
        with pytest.raises(InputError, match=rf"^workload\.weights: .*{says}") as refusal:
            backbone_file(saved(tmp_path, tensors | more), cache)
        assert "\n" not in str(refusal.value)
    assert not list(cache.glob("*.part"))


@pytest.mark.parametrize("kind", [torch.float64, torch.float16, torch.bfloat16])
def test_weights_of_any_precision_are_read_as_their_values(
    cache: Path, tmp_path: Path, kind: torch.dtype
) -> None:
    tensors = {name: tensor.to(kind) for name, tensor in whole_file(cache).items()}
    made = saved(tmp_path, tensors)
    model = load_model(made, backbone_file(made, cache))
    read = dict(model.net.named_parameters()) | model.given
    assert read.keys() == tensors.keys()
    for name, tensor in read.items():
        assert torch.equal(tensor, tensors[name].float())


def test_names_may_have_a_common_prefix(cache: Path, tmp_path: Path) -> None:
    tensors = whole_file(cache)
    for prefix in ("model.", "state_dict.module."):
        made = saved(tmp_path, {prefix + name: tensor for name, tensor in tensors.items()})
        assert torch.equal(first_head(made, cache), tensors["head.fc.weight"])
        model = load_model(made, backbone_file(made, cache))
        assert torch.equal(model.net.norm.weight, tensors["norm.weight"])
    twice = {f"{p}.{name}": t.clone() for p in ("ema", "model") for name, t in tensors.items()}
    with pytest.raises(InputError, match=r"2 times, under ema\. and model\."):
        backbone_file(saved(tmp_path, twice), cache)
    more = {f"model.{name}": t for name, t in tensors.items()} | {"epoch": torch.ones(1)}
    with pytest.raises(InputError, match="does not have: epoch"):
        backbone_file(saved(tmp_path, more), cache)


def test_pretrained_without_a_hub_is_one_clear_error(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = timm.create_model

    def offline(*args: object, pretrained: bool, **options: object) -> object:
        if pretrained:
            raise OSError("no route to the hub\nand a second line")
        return create(*args, pretrained=False, **options)

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(InputError, match=r"^workload\.weights: pretrained .*OSError") as refusal:
        backbone_file(ModelConfig("swin_tiny_patch4_window7_224", 10, weights="pretrained"), cache)
    assert "\n" not in str(refusal.value)


def test_a_missing_device_is_refused(cache: Path) -> None:
    with pytest.raises(InputError, match=r"^device: cuda:99"):
        load_model(NANO, backbone_file(NANO, cache), "cuda:99")


def test_a_vector_of_another_model_is_refused() -> None:
    layout, other = SplitModel(NANO).layout, SplitModel(replace(NANO, rank=2)).layout
    state = other.views(torch.zeros(other.size))
    with pytest.raises(InputError, match=r"^adapters: layers\.0\.blocks\.0\.attn\.qkv\.lora_A"):
        layout.vector(state)


def test_header_and_vector_make_a_safetensors_file() -> None:
    layout = SplitModel(NANO).layout
    vector = initial_trainables(layout, 1)
    part = vector[: layout.cuts[2]]
    read = safetensors.torch.load(layout.header(2) + part.numpy().tobytes())
    expected = layout.views(part)
    assert read.keys() == expected.keys()
    saved = len(safetensors.torch.save(expected)) - 4 * len(part)
    assert len(layout.header(2)) == pytest.approx(saved, abs=16), "offsets have other digits"
    assert all(torch.equal(read[name], expected[name]) for name in expected)
