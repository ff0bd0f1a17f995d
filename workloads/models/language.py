# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The language model of `workload.model: hf:…`: its configuration, its files and its vocabulary.
Without torch and transformers."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.core.errors import InputError
from testbed.core.words import not_one_of
from testbed.system.files import check_regular, json_value

PREFIX = "hf:"
FAMILIES = (
    *("gemma", "gemma2", "gemma3_text", "gpt2", "llama", "mistral", "olmo2", "phi", "phi3"),
    *("qwen2", "qwen3"),
)
"""Values of `model_type` in the configurations of transformers that can be split."""
BYTES = 256
"""Vocabulary of tokens that are bytes."""
CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")
"""Files of which a folder with a tokenizer has at least one."""
FIELD = "workload.model"
TOKENIZER = "workload.data.tokenizer"
MOST_LAYERS = 10_000
"""Largest number of blocks."""
OWN_CODE = {"auto_map", "custom_pipelines"}
"""Entries of configurations that name modules, which transformers would import."""
NAMING_CODE = (CONFIG, "tokenizer_config.json", "processor_config.json")
"""Files of a folder with a tokenizer that may have such entries."""


@dataclass(frozen=True)
class LanguageModel:
    """A causal language model of transformers."""

    configuration: Mapping[str, Any]
    """Content of its `config.json`, with `model_type`."""
    vocabulary: int
    """Number of tokens in its vocabulary."""
    folder: Path | None
    """Folder of its files; None: it is a family with parameters."""

    @property
    def weights(self) -> str | None:
        """The folder, if it has weights in safetensors format; None: it has no weights.

        Raises:
            InputError: The folder has pickled weights only.
        """
        if self.folder is None:
            return None
        if any((self.folder / name).is_file() for name in (WEIGHTS, INDEX)):
            return str(self.folder)
        if pickled := sorted(self.folder.glob("pytorch_model*.bin")):
            raise InputError(
                f"workload.weights: {pickled[0]} is a pickle, which can run code when it is read; "
                f"save the model as {WEIGHTS}"
            )
        return None

    @property
    def tokenizer(self) -> str | None:
        """The model's folder, if it contains a tokenizer."""
        has_one = self.folder and any((self.folder / name).is_file() for name in TOKENIZERS)
        return str(self.folder) if has_one else None


def is_language(model: str) -> bool:
    """Whether a model's name denotes a language model of transformers."""
    return model.startswith(PREFIX)


def model_folder(model: str) -> str | None:
    """The folder that a name of a model names; None: it names none."""
    path = Path(model.removeprefix(PREFIX)).expanduser()
    return str(path) if is_language(model) and path.is_dir() else None


def language_model(
    model: str, parameters: Mapping[str, Any], weights: str | None, classes: int | None = None
) -> LanguageModel:
    """The language model of a name.

    Args:
        model: `hf:` and a folder with `config.json`, or a family of `FAMILIES`; with
            `weights: pretrained` a name of the Hugging Face hub, whose files are downloaded into
            the cache of its client unless they are there.
        parameters: For a family: values of its configuration, by name.
        weights: `workload.weights`.
        classes: The vocabulary of a family whose parameters have no `vocab_size`; None: 256.

    Raises:
        InputError: There is no such model, or it cannot be split; the message is one line.
    """
    name = model.removeprefix(PREFIX)
    folder = Path(name).expanduser()
    if weights == "pretrained":
        folder = _from_hub(name)
    elif not folder.is_dir() and name in FAMILIES:
        given = dict(parameters)
        _check_layers(given, "workload.parameters")
        vocabulary = given.setdefault("vocab_size", classes or BYTES)
        return LanguageModel(given | {"model_type": name}, _size(vocabulary, FIELD), None)
    elif not folder.is_dir():
        raise InputError(
            f"{FIELD}: {name!r} is neither a folder with {CONFIG} nor one of the families "
            f"{', '.join(FAMILIES)}; models of the Hugging Face hub are downloaded only with "
            "workload.weights 'pretrained'"
        )
    if parameters:
        raise InputError(f"workload.parameters: {model} has none; its {CONFIG} has all values")
    configuration = _read(folder / CONFIG)
    kind = configuration.get("model_type")
    if kind not in FAMILIES:
        raise InputError(
            f"{FIELD}: {folder / CONFIG}: model_type: {not_one_of(str(kind), FAMILIES)}"
        )
    _check_layers(configuration, f"{FIELD}: {folder / CONFIG}")
    if "quantization_config" in configuration:
        raise InputError(f"{FIELD}: {folder} has quantised weights, which cannot be trained here")
    vocabulary = _size(configuration.get("vocab_size"), f"{FIELD}: {folder / CONFIG}")
    return LanguageModel(configuration, vocabulary, folder.absolute())


def weight_files(path: Path, field: str) -> list[Path]:
    """The safetensors files of weights: a single file, or those of a model's folder.

    Raises:
        InputError: A folder has no such files, or its index names files that it does not have.
    """
    if not path.is_dir():
        return [path]
    index = path / INDEX
    if (path / WEIGHTS).is_file():
        return [path / WEIGHTS]
    if not index.is_file():
        raise InputError(f"{field}: {path} has neither {WEIGHTS} nor {INDEX}")
    named = _read(index, field).get("weight_map")
    if not isinstance(named, dict) or not all(isinstance(name, str) for name in named.values()):
        raise InputError(f"{field}: {index} has no weight_map with names of files")
    files = [path / name for name in sorted(set(named.values()))]
    for file in files:
        if file.parent != path or not file.is_file():
            raise InputError(f"{field}: {index} names {file.name}, which is not in its folder")
    return files


def tokenizer_files(folder: Path) -> list[Path]:
    """The files of a folder on which its tokenizer may depend.

    Raises:
        InputError: The model has no tokenizer.
    """
    if not any((folder / name).is_file() for name in TOKENIZERS):
        raise InputError(f"{TOKENIZER}: {folder} is neither 'bytes' nor a folder with a tokenizer")
    # transformers opens files of other names, too, and in folders.
    for file in (*folder.iterdir(), *folder.glob("*/*.jinja")):
        try:
            if not file.is_dir():
                check_regular(file)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise InputError(f"{TOKENIZER}: {file}: {why}") from None
    for name in NAMING_CODE:
        if (folder / name).is_file():
            _read(folder / name, TOKENIZER)
    return sorted(
        file for ending in ("json", "model", "txt") for file in folder.glob(f"*.{ending}")
    )


def _read(file: Path, field: str = FIELD) -> dict[str, Any]:
    try:
        tree = json_value(file)
    except OSError as error:
        raise InputError(f"{field}: {file}: {error.strerror}") from None
    except ValueError as error:
        why = "is not JSON" if isinstance(error, json.JSONDecodeError) else error
        raise InputError(f"{field}: {file}: {why}") from None
    if not isinstance(tree, dict):
        raise InputError(f"{field}: {file}: must be an object")
    if named := sorted(OWN_CODE & tree.keys()):
        raise InputError(
            f"{field}: {file}: {named[0]}: names Python code, which is never executed; delete this "
            "entry if transformers has the model without it"
        )
    return tree


def _check_layers(configuration: Mapping[str, Any], where: str) -> None:
    """Refuse a number of blocks that no model has; transformers would make an object of each."""
    for name in ("num_hidden_layers", "n_layer"):
        if type(count := configuration.get(name, 1)) is not int or not 0 < count <= MOST_LAYERS:
            raise InputError(
                f"{where}: {name}: must be a whole number from 1 to {MOST_LAYERS}, "
                f"not {str(count)[:60]!r}"
            )


def _size(value: object, where: str) -> int:
    if type(value) is not int or value < 2:
        raise InputError(f"{where}: vocab_size: must be a whole number from 2, not {value!r}")
    return value


FETCHED = ["*.json", "model*.safetensors", "tokenizer.model", "merges.txt"]
"""Files of a model that are downloaded from the hub."""


def _from_hub(name: str) -> Path:
    """The folder of a model of the hub in the cache of its client."""
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name):
        raise InputError(
            f"{FIELD}: {name!r} is no name of the Hugging Face hub, which workload.weights "
            "'pretrained' needs; without it, a folder's own weights are used"
        )
    from huggingface_hub import snapshot_download

    try:
        # Cached files need no network.
        try:
            return Path(snapshot_download(name, allow_patterns=FETCHED, local_files_only=True))
        except Exception:
            return Path(snapshot_download(name, allow_patterns=FETCHED))
    except Exception as error:  # The client passes on all exceptions of its network layer.
        offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE") else ""
        raise InputError(
            f"{FIELD}: {name} cannot be downloaded from the Hugging Face hub{offline}: "
            f"{type(error).__name__}; without access to the hub give a folder"
        ) from None
