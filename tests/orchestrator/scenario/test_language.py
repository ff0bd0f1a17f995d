# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The keys of language models: vocabulary, weights, head and tokenizer follow from their folder."""

import json
import subprocess
import sys
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from small_scenario import TREE

from orchestrator.campaigning.spec import named_files
from orchestrator.scenario.loading import put, validate
from orchestrator.scenario.profiles import data_of, model_of, profile_of
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError

CONFIG = {"model_type": "llama", "vocab_size": 300, "hidden_size": 16, "num_attention_heads": 2}


def scenario(model: str, **keys: Any) -> Scenario:
    tree = deepcopy(TREE)
    tree["workload"] = {"model": model, "split": 1}
    for key, value in keys.items():
        put(tree, key.replace("__", "."), value, "test")
    return validate(tree, "test")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def test_the_vocabulary_is_that_of_the_folder(folder: Path) -> None:
    found = scenario(f"hf:{folder}")
    assert found.workload.classes == 300
    model = model_of(found)
    assert (model.classes, model.weights, model.train_head) == (300, None, False)
    assert model.parameters == {"config": CONFIG, "length": None, "folder": str(folder)}
    again = Scenario.model_validate_json(found.model_dump_json())
    assert again == found
    with pytest.raises(InputError, match=r"workload\.classes: must be 300, the vocabulary of hf:"):
        model_of(scenario(f"hf:{folder}", workload__classes=299))
    assert named_files(found, None) == [str(folder)]


def test_what_was_stored_is_read_without_the_folder(folder: Path) -> None:
    stored = scenario(f"hf:{folder}").model_dump_json()
    (folder / "config.json").unlink()
    assert Scenario.model_validate_json(stored).workload.classes == 300


def test_a_family_takes_its_vocabulary_or_the_classes() -> None:
    sizes = {"hidden_size": 16}
    assert scenario("hf:qwen2", workload__parameters=sizes).workload.classes == 256
    given = scenario("hf:qwen2", workload__parameters=sizes | {"vocab_size": 99})
    assert given.workload.classes == 99
    classes = scenario("hf:qwen2", workload__parameters=sizes, workload__classes=50)
    assert model_of(classes).parameters["config"] == sizes | {
        "vocab_size": 50,
        "model_type": "qwen2",
    }
    both = sizes | {"vocab_size": 99}
    with pytest.raises(InputError, match=r"workload\.classes: must be 99"):
        model_of(scenario("hf:qwen2", workload__parameters=both, workload__classes=50))


def test_weights_and_tokenizer_of_the_folder_are_the_default(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"")
    (folder / "tokenizer.json").write_text("{}")
    found = scenario(f"hf:{folder}", workload__sequence_length=16)
    assert model_of(found).weights == str(folder)
    assert model_of(found).parameters["length"] == 16
    assert data_of(found).tokenizer == str(folder)
    others = scenario(f"hf:{folder}", workload__weights="other", workload__data__tokenizer="bytes")
    assert (model_of(others).weights, data_of(others).tokenizer) == ("other", "bytes")
    assert model_of(scenario(f"hf:{folder}", workload__train_head=True)).train_head


def test_pickled_weights_are_refused(folder: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(InputError, match=r"pytorch_model\.bin is a pickle"):
        model_of(scenario(f"hf:{folder}"))


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("", r"config\.json: is not JSON"),
        ("[]", r"config\.json: must be an object"),
        ('{"model_type": "bert", "vocab_size": 3}', r"model_type: .*bert"),
        ('{"model_type": "llama"}', r"vocab_size: must be a whole number from 2, not None"),
        ('{"model_type": "llama", "vocab_size": 3, "quantization_config": {}}', r"quantised"),
        (None, r"config\.json: No such file"),
    ],
)
def test_folders_without_a_fitting_configuration_are_refused(
    content: str | None, line: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(InputError, match=line) as refused:
        scenario(f"hf:{tmp_path}")
    assert "\n" not in str(refused.value)
    assert "workload.model" in str(refused.value)


@pytest.mark.parametrize(
    ("model", "keys", "line"),
    [
        ("hf:none", {}, r"workload\.model: 'none' is neither a folder .* 'pretrained'"),
        ("hf:", {}, r"workload\.model"),
        ("hf:llama", {"workload.image_size": 32}, r"image_size: belongs to timm's models"),
        ("hf:llama", {"workload.head": "new"}, r"head: must not be 'new' where the head is"),
        ("hf:llama", {"workload.data.label_column": "a"}, r"data\.label_column: belongs to"),
        ("hf:llama", {"workload.sequence_length": 1}, r"sequence_length"),
        ("vit_nano_patch8_64", {"workload.sequence_length": 8}, r"sequence_length: belongs to hf:"),
        ("vit_nano_patch8_64", {"workload.data.tokenizer": "bytes"}, r"data\.tokenizer: belongs"),
        ("vit_nano_patch8_64", {"workload.data.text_column": "a"}, r"data\.text_column: belongs"),
    ],
)
def test_keys_that_do_not_fit_the_model_are_refused(
    model: str, keys: dict[str, Any], line: str
) -> None:
    with pytest.raises(InputError, match=line) as refused:
        scenario(model, **{key.replace(".", "__"): value for key, value in keys.items()})
    assert "\n" not in str(refused.value)


def test_full_training_includes_the_head_unless_it_is_frozen() -> None:
    full = {"workload__adapters": "full"}
    assert scenario("hf:llama", **full).workload.trains_head
    assert not scenario("hf:llama", **full, workload__train_head=False).workload.trains_head
    assert not scenario("hf:llama").workload.trains_head


def test_a_folder_has_no_parameters_and_no_head_without_weights(folder: Path) -> None:
    with pytest.raises(InputError, match=r"workload\.parameters: hf:.* has none"):
        scenario(f"hf:{folder}", workload__parameters={"hidden_size": 8})
    with pytest.raises(InputError, match=r"workload\.head: 'file' needs weights"):
        model_of(scenario(f"hf:{folder}", workload__head="file"))


def test_the_hub_is_asked_only_on_demand(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    asked: list[tuple[str, bool]] = []

    def snapshot_download(name: str, local_files_only: bool = False, **_: Any) -> str:
        asked.append((name, local_files_only))
        if local_files_only and len(asked) == 1:
            raise OSError("not in the cache")
        return str(folder)

    monkeypatch.setattr(hub, "snapshot_download", snapshot_download)
    (folder / "model.safetensors").write_bytes(b"")
    found = scenario("hf:some/model", workload__weights="pretrained")
    assert asked == [("some/model", True), ("some/model", False)]
    assert found.workload.classes == 300
    assert model_of(found).weights == str(folder)
    with pytest.raises(InputError, match=r"is no name of the Hugging Face hub"):
        scenario("hf:a/b/c", workload__weights="pretrained")
    monkeypatch.setattr(hub, "snapshot_download", _unreachable)
    with pytest.raises(InputError, match=r"hf|some/model cannot be downloaded"):
        scenario("hf:some/model", workload__weights="pretrained")


def _unreachable(*_: Any, **__: Any) -> str:
    raise OSError("no network\nat all")


def fresh(code: str) -> Sequence[str]:
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_costs_that_are_known_need_neither_torch_nor_transformers(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    keys = {"intermediate_size": 8, "num_hidden_layers": 1, "max_position_embeddings": 8}
    (folder / "config.json").write_text(json.dumps(CONFIG | keys))
    found = scenario(f"hf:{folder}")
    assert profile_of(found).labels == 8
    file = tmp_path / "scenario.json"
    file.write_text(found.model_dump_json())
    loaded = fresh(
        "import sys; from pathlib import Path; from orchestrator.scenario.loading import load; "
        "from orchestrator.scenario.profiles import profile_of; "
        f"profile_of(load(Path({str(file)!r}))); print(*sys.modules)"
    )
    assert not {"torch", "transformers", "tokenizers", "huggingface_hub"} & {*loaded}


def test_a_missing_extra_is_said_in_one_line(folder: Path) -> None:
    found = scenario(f"hf:{folder}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "transformers", None)
        for name in [name for name in sys.modules if name == "workloads.models.decoders"]:
            patch.delitem(sys.modules, name)
        with pytest.raises(ModuleNotFoundError) as missing:
            profile_of(found)
    assert missing.value.name == "transformers"
