# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a split costs: the paper's table II from the model itself."""

import subprocess
import sys
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest
import timm.layers
import torch
from timm.models.swin_transformer import SwinTransformer
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from testbed.core.errors import InputError
from workloads.costs import lookup
from workloads.costs.counting import count
from workloads.costs.lookup import counted, profile_for
from workloads.costs.profile import PAPER, PAPER_CLASSES, PAPER_MODEL, PAPER_RANK
from workloads.learning.settings import ModelConfig
from workloads.models.families import OWN_MODELS

NANO = "swin_nano_patch4_window4_64"


def config(rank: int) -> ModelConfig:
    return ModelConfig(NANO, 10, rank=rank)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_the_papers_table_comes_out_of_the_model() -> None:
    swin = count(ModelConfig(PAPER_MODEL, PAPER_CLASSES, rank=PAPER_RANK))
    assert swin.adapter_bytes == PAPER.adapter_bytes
    assert swin.smashed_bytes == PAPER.smashed_bytes
    assert swin.adapter_header_bytes == PAPER.adapter_header_bytes
    assert [f"{flops / 1e9:.2f}" for flops in swin.client_forward_flops] == [
        f"{flops / 1e9:.2f}" for flops in PAPER.client_forward_flops
    ]
    assert [f"{flops / 1e9:.2f}" for flops in swin.server_forward_flops[:3]] == [
        f"{flops / 1e9:.2f}" for flops in PAPER.server_forward_flops[:3]
    ]
    assert f"{swin.server_forward_flops[3] / 1e9:.3f}" == "0.001"
    ratios = [
        back / forward
        for back, forward in zip(swin.client_backward_flops, swin.client_forward_flops, strict=True)
    ]
    assert all(0.95 < ratio < 1.03 for ratio in ratios), "frozen weights: about 1, not 2"


def test_fvcore_counts_the_same() -> None:
    fvcore = pytest.importorskip("fvcore.nn")

    class Lora(nn.Module):
        def __init__(self, linear: nn.Linear) -> None:
            super().__init__()
            self.linear = linear
            self.a = nn.Linear(linear.in_features, 8, bias=False)
            self.b = nn.Linear(8, linear.out_features, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x) + self.b(self.a(x))

    timm.layers.set_fused_attn(False)
    net = SwinTransformer(**OWN_MODELS[NANO], num_classes=100, drop_path_rate=0.0).eval()
    for name, module in list(net.named_modules()):
        if isinstance(module, nn.Linear) and name != "head.fc":
            net.set_submodule(name, Lora(module))
    analysis = fvcore.FlopCountAnalysis(net, torch.zeros(1, 3, 64, 64))
    modules = analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).by_module()
    ours = count(ModelConfig(NANO, 100))
    client = modules["patch_embed"]
    for split in range(4):
        client += modules[f"layers.{split}"]
        assert ours.client_forward_flops[split] == 2 * client
    # fvcore also charges the pooling's mean nothing; the rest is norm and head.
    assert ours.server_forward_flops[3] == 2 * (modules["norm"] + modules["head.fc"])


def layer_norm_flops(x: tuple[int, ...], *_: Any, **__: Any) -> int:
    return 10 * prod(x)


def layer_norm_backward_flops(_: Any, x: tuple[int, ...], *__: Any, **___: Any) -> int:
    return 10 * prod(x)


@pytest.mark.parametrize(
    ("name", "embed", "parts", "head"),
    [
        ("vit_tiny_patch16_224", "patch_embed", "blocks", "head"),
        ("convnext_tiny", "stem", "stages", "head.fc"),
    ],
)
def test_others_count_the_same_on_pefts_model(
    name: str, embed: str, parts: str, head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forward fvcore, backward torch's own counter, bytes peft's parameters: not one apart."""
    fvcore, peft = pytest.importorskip("fvcore.nn"), pytest.importorskip("peft")
    monkeypatch.setattr(timm.layers.config, "_USE_FUSED_ATTN", 0)
    ours = count(ModelConfig(name, 100))
    with torch.device("meta"):
        net = timm.create_model(name, num_classes=100)
    linear = [n for n, module in net.named_modules() if isinstance(module, nn.Linear)]
    adapted = peft.get_peft_model(
        net,
        peft.LoraConfig(
            r=8, target_modules=[n for n in linear if n != head], modules_to_save=[head]
        ),
    ).eval()
    inner = adapted.base_model.model
    smashed: list[int] = []
    for part in inner.get_submodule(parts):
        part.register_forward_hook(lambda _, __, out: smashed.append(4 * out.numel()))
    logits = inner(torch.empty(1, 3, 224, 224, device="meta"))
    backward = FlopCounterMode(
        display=False,
        custom_mapping={
            torch.ops.aten.native_layer_norm: layer_norm_flops,
            torch.ops.aten.native_layer_norm_backward: layer_norm_backward_flops,
        },
    )
    with backward:
        torch.autograd.backward(logits, torch.empty_like(logits))
    assert ours.smashed_bytes == tuple(smashed)

    inner = inner.to_empty(device="cpu")
    analysis = fvcore.FlopCountAnalysis(inner, torch.zeros(1, 3, 224, 224))
    modules = analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).by_module()
    trained = {n: 4 * p.numel() for n, p in inner.named_parameters() if p.requires_grad}
    client, adapters = modules[embed], 0
    for split in range(len(ours.smashed_bytes)):
        part_name = f"{parts}.{split}"
        client += modules[part_name]
        adapters += sum(size for n, size in trained.items() if n.startswith(f"{part_name}."))
        assert ours.adapter_bytes[split] == adapters
        assert ours.client_forward_flops[split] == 2 * client
        # fvcore also charges the pooling's mean; we do not.
        whole = modules[""] - modules.get("head.global_pool", 0)
        assert ours.server_forward_flops[split] == 2 * (whole - client)
        both = ours.client_backward_flops[split] + ours.server_backward_flops[split]
        assert both == backward.get_total_flops()


def test_the_papers_own_numbers_need_no_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "counted", lambda *_: pytest.fail("counted"))
    assert profile_for(ModelConfig(PAPER_MODEL, PAPER_CLASSES, rank=PAPER_RANK)) is PAPER


def test_the_quick_starts_are_known_where_there_is_no_torch_and_are_what_its_model_counts_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for other in (replace(config(8), classes=11), replace(config(8), image_size=128)):
        assert profile_for(other) == count(other) != count(config(8))
    monkeypatch.setattr(lookup, "counted", lambda *_: pytest.fail("counted"))
    assert profile_for(config(8)) == count(config(8))


def test_another_rank_is_counted() -> None:
    assert profile_for(config(4)) != profile_for(config(8))
    twice = profile_for(config(8)).adapter_bytes
    assert [2 * size for size in profile_for(config(4)).adapter_bytes] == list(twice)


def test_counting_is_remembered_and_then_needs_no_torch(own_cache: Path) -> None:
    first = counted(config(4))
    [file] = (own_cache / "uav-sfl-testbed" / "profiles").iterdir()
    program = (
        "import sys; from workloads.costs.lookup import counted; "
        "from workloads.learning.settings import ModelConfig; "
        f"print(counted(ModelConfig({NANO!r}, 10, rank=4))); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == repr(first)
    file.write_text("{")
    assert counted(config(4)) == first


def test_a_cache_that_cannot_be_written_only_costs_time(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own_cache / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(own_cache / "file"))
    assert counted(config(4)).smashed_bytes[0] == 16 * 16 * 32 * 4


def test_unknown_models_are_refused() -> None:
    with pytest.raises(InputError, match=r"^workload\.model: "):
        counted(ModelConfig("swin_nonsense", 10))
