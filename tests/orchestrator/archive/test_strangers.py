# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Nothing that comes from others is executed, and verifying reads the bundle alone."""

import hashlib
import io
import json
import os
import pickle
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from small_campaign import write_campaign
from small_scenario import TREE
from synthetic_run import make_run

from orchestrator.archive.bundle import SUMS, bundle
from orchestrator.archive.placed import missing
from orchestrator.archive.verify import RunVerification, predicted_again, verify
from orchestrator.campaigning.cluster import run_campaign
from orchestrator.campaigning.folder import CampaignFolder
from orchestrator.campaigning.spec import load_campaign
from orchestrator.policies import agent
from orchestrator.records import checkpoint
from orchestrator.records.reader import read_run
from orchestrator.records.tables import read_table
from orchestrator.records.timelines import energy_table
from orchestrator.scenario.channel import read_trace
from orchestrator.scenario.loading import load
from orchestrator.scenario.profiles import model_of, profile_of
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.yaml_text import parse
from testbed.core.errors import InputError, RunError
from testbed.host.dask_cluster import Cluster
from workloads.data.config import DataConfig
from workloads.data.samples import open_data
from workloads.learning.cached import backbone_file
from workloads.learning.tensors import read_tensors
from workloads.models.chain import Images, Tokens
from workloads.models.language import PREFIX

HERE = Cluster(workers=0)
transformers = pytest.importorskip("transformers")

SIZES = {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32}
GPT2 = {"model_type": "gpt2", **SIZES}
MARKER = "EXECUTED"


class Evil:
    """An object whose pickle writes the marker when it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (f"open({MARKER!r}, 'w').close()",)


class Door:
    """A folder in which a stranger's files lie; each has Python that would write the marker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "mine.py").write_text(
            f"open({MARKER!r}, 'w').close()\n"
            "from transformers import PreTrainedTokenizer as T, GPT2Config as C\n"
            "from transformers import GPT2LMHeadModel as M\n"
        )
        self.json("tokenizer.json", {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})
        self.json("config.json", GPT2)

    def json(self, name: str, value: object) -> Path:
        (path := self.folder / name).write_text(json.dumps(value))
        return path

    def pickled(self, name: str) -> Path:
        (path := self.folder / name).write_bytes(pickle.dumps(Evil()))
        return path

    def tokenise(self, **files: Any) -> None:
        for name, value in files.items():
            self.json(f"{name}.json", value)
        (self.folder / "a.txt").write_text("a" * 500)
        config = DataConfig(str(self.folder / "a.txt"), tokenizer=str(self.folder))
        open_data(config, 300, Tokens(4, 300))

    def model(self, **more: Any) -> None:
        self.json("config.json", GPT2 | more)
        keys = [f"workload.model={PREFIX}{self.folder}", "workload.profile=counted"]
        scenario = load(self.scenario(), keys)
        profile_of(scenario)
        backbone_file(model_of(scenario), self.folder / "cache")

    def scenario(self, text: str = "") -> Path:
        (path := self.folder / "s.yaml").write_text(
            f"name: evil\nrounds: 1\nuavs: {{tx_power_w: [1, 0.4]}}\n{text}"
        )
        return path

    def tokens(self, name: str, data: bytes = b"") -> None:
        (self.folder / name).write_bytes(data or pickle.dumps(Evil()))
        open_data(DataConfig(str(self.folder / name)), 256, Tokens(4, 256))

    def pictures(self) -> None:
        open_data(DataConfig(str(self.folder)), 100, Images(16))

    def saved(self, save: Callable[[Path], object], read: Callable[[Path], object]) -> None:
        save(path := self.folder / "file")
        read(path)


AUTO = {"AutoTokenizer": ["mine.T", None], "AutoConfig": "mine.C", "AutoModelForCausalLM": "mine.M"}
OBJECTS = np.array([Evil()], dtype=object)
EXTENSION = {b"ARROW:extension:name": b"arrow.py_extension_type"}


def _arrow(door: Door) -> None:
    own = EXTENSION | {b"ARROW:extension:metadata": pickle.dumps(Evil())}
    field = pa.field("text", pa.string(), metadata=own)
    table = pa.table([pa.array(["abc"] * 99)], schema=pa.schema([field]))
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)
    (door.folder / "a.arrow").write_bytes(out.getvalue())
    door.json("state.json", {"_data_files": [{"filename": "a.arrow"}]})
    open_data(DataConfig(str(door.folder)), 256, Tokens(4, 256))


def _script_of_a_data_set(door: Door) -> None:
    shutil.copy(door.folder / "mine.py", door.folder / f"{door.folder.name}.py")
    door.json("dataset_infos.json", {"default": {"builder_name": "mine"}})
    door.pictures()


def _plugin(door: Door, text: str) -> None:
    about = door.folder / "mine-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    groups = ("mobility", "models", "policies", "channels", "aggregators")
    lines = "".join(f"[testbed.{group}]\nmine = mine:M\n" for group in groups)
    (about / "entry_points.txt").write_text(lines)
    load(door.scenario(text))


def _evil_zip(path: Path) -> None:
    torch.save({"identity": Evil()}, path)


def _old_agent(path: Path) -> None:
    torch.save({"identity": Evil()}, path, _use_new_zipfile_serialization=False)


def _npz(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, gain=OBJECTS, slot_s=0.1, arr_0=OBJECTS)


def _npy() -> bytes:
    out = io.BytesIO()
    np.save(out, OBJECTS, allow_pickle=True)
    return out.getvalue()


def _round(door: Door) -> None:
    (folder := door.folder / checkpoint.FOLDER).mkdir()
    _npz(folder / "round-000000.npz")
    checkpoint.Checkpoint(door.folder)._kept(0, "round")


ATTEMPTS: dict[str, Callable[[Door], object]] = {
    "tokenizer: auto_map": lambda d: d.tokenise(tokenizer_config={"auto_map": AUTO}),
    "tokenizer: list": lambda d: d.tokenise(tokenizer_config={"auto_map": ["mine.T", None]}),
    "tokenizer: hub": lambda d: d.tokenise(
        tokenizer_config={"auto_map": {"AutoTokenizer": ["a/b--mine.T", None]}}
    ),
    "tokenizer: class": lambda d: d.tokenise(tokenizer_config={"tokenizer_class": "mine.T"}),
    "tokenizer: config": lambda d: d.tokenise(config={"model_type": "mine", "auto_map": AUTO}),
    "tokenizer: class of config": lambda d: d.tokenise(config=GPT2 | {"tokenizer_class": "mine.T"}),
    "tokenizer: processor": lambda d: d.tokenise(processor_config={"auto_map": AUTO}),
    "tokenizer: arguments": lambda d: d.tokenise(
        tokenizer_config={"init_inputs": [f"{d.folder}/mine.py"], "vocab_file": "mine.py"}
    ),
    "model: auto_map": lambda d: d.model(auto_map=AUTO),
    "model: list": lambda d: d.model(auto_map=["mine.M"]),
    "model: hub": lambda d: d.model(auto_map={"AutoModelForCausalLM": "a/b--mine.M"}),
    "model: kind": lambda d: d.model(model_type="mine"),
    "model: architecture": lambda d: d.model(architectures=["mine.M"]),
    "model: pipelines": lambda d: d.model(custom_pipelines={"x": {"impl": "mine.M"}}),
    "model: activation": lambda d: d.model(activation_function="mine.M"),
    "model: attention": lambda d: d.model(attn_implementation="a/b", _attn_implementation="a/b"),
    "model: type": lambda d: d.model(torch_dtype="mine"),
    "weights: model's pickle": lambda d: (d.pickled("pytorch_model.bin"), d.model()),
    "weights: pickle": lambda d: read_tensors(d.pickled("w.bin"), "weights"),
    "weights: pickle by another name": lambda d: (d.pickled("model.safetensors"), d.model()),
    "weights: index": lambda d: (
        d.pickled("w.bin"),
        d.json("model.safetensors.index.json", {"weight_map": {"a": "w.bin"}}),
        d.model(),
    ),
    "weights: saved": lambda d: d.saved(_evil_zip, lambda path: read_tensors(path, "weights")),
    "data: array": lambda d: d.tokens("a.npy", _npy()),
    "data: arrays": lambda d: d.saved(_npz, lambda p: d.tokens("a.npy", p.read_bytes())),
    "data: numbers": lambda d: d.tokens("a.bin"),
    "data: pickled text": lambda d: d.tokens("a.txt"),
    "data: pickled lines": lambda d: d.tokens("a.jsonl"),
    "data: pickled table": lambda d: d.tokens("a.parquet"),
    "data: arrow": _arrow,
    "data: list": lambda d: (d.pickled("state.json"), d.pictures()),
    "data: script": _script_of_a_data_set,
    "data: CIFAR": lambda d: (d.pickled("meta"), d.pickled("train"), d.pictures()),
    "data: pictures": lambda d: ((d.folder / "a").mkdir(), d.pickled("a/x.png"), d.pictures()),
    "agent: pickle": lambda d: agent._read(d.pickled("agent.pt")),
    "agent: zip": lambda d: d.saved(_evil_zip, agent._read),
    "agent: old": lambda d: d.saved(_old_agent, agent._read),
    "checkpoint: round": _round,
    "checkpoint: state": lambda d: checkpoint._state(
        d.pickled("state.safetensors"), Scenario.model_validate(TREE)
    ),
    "trace": lambda d: d.saved(_npz, read_trace),
    "table": lambda d: read_table(d.pickled("rates.parquet"), Scenario.model_validate(TREE)),
    "plug-in: mobility": lambda d: _plugin(d, "mobility: {model: mine}"),
    "plug-in: model": lambda d: _plugin(d, "workload: {model: mine, profile: counted}"),
    "plug-in: policy": lambda d: _plugin(d, "allocation: {policy: mine}"),
    "plug-in: path": lambda d: _plugin(d, "allocation: {policy: 'mine:M'}"),
    "plug-in: rule": lambda d: _plugin(d, "workload: {aggregation: mine}"),
    "YAML: call": lambda d: load(d.scenario("x: !!python/object/apply:mine.M []")),
    "YAML: name": lambda d: load(d.scenario("x: !!python/name:mine.M")),
    "YAML: module": lambda d: load(d.scenario("x: !!python/module:mine")),
    "YAML: object": lambda d: load_campaign(d.scenario("x: !!python/object/new:mine.M {}")),
    "YAML: value": lambda d: parse("!!python/object/apply:exec ['1']", "`overrides` rounds"),
}
"""Ways in which a stranger's file may name or hold Python."""
NAMED_CODE = [name for name in ATTEMPTS if name.endswith(("auto_map", "hub", "processor"))]


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_no_file_of_a_stranger_is_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attempt: str
) -> None:
    """Although whatever is asked is answered with yes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 1000))
    door, said = Door(tmp_path), ""
    try:
        ATTEMPTS[attempt](door)
    except (InputError, RunError) as refused:
        said = str(refused)
    assert "\n" not in said
    if attempt in NAMED_CODE:
        assert ".json: auto_map: names Python code, which is never executed" in said
    assert not list(tmp_path.rglob(MARKER))


def test_the_attempts_would_execute_where_code_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickle.dumps(Evil()))
    (tmp_path / MARKER).unlink()
    door = Door(tmp_path)
    door.json("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["mine.T", None]}})
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    with pytest.raises(Exception):  # noqa: B017, PT011 - the files are no tokenizer
        transformers.AutoTokenizer.from_pretrained(
            tmp_path, local_files_only=True, trust_remote_code=True
        )
    assert (tmp_path / MARKER).exists()


# --- verifying ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("made") / "run")


@pytest.fixture(scope="module")
def packed(run_dir: Path) -> Path:
    bundle(run_dir, run_dir.with_name("run.zip"))
    return run_dir.with_name("run.zip")


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection is made, and none is tried."""

    def refuse(*_: object) -> None:
        raise AssertionError("a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)


def never(scenario: Scenario, trace: Path, folder: Path) -> None:
    raise AssertionError("emulated")


def rewritten(packed: Path, out: Path, change: Callable[[dict[str, bytes]], object]) -> Path:
    """The bundle with other files, and digests that fit."""
    with zipfile.ZipFile(packed) as archive:
        content = {name: archive.read(name) for name in archive.namelist() if name != SUMS}
    change(content)
    sums = [f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in content.items()]
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in [*content.items(), (SUMS, "".join(sums).encode())]:
            archive.writestr(name, data)
    return out


def forged(packed: Path, out: Path, workload: dict[str, Any], **sections: Any) -> Path:
    def change(content: dict[str, bytes]) -> None:
        tree = json.loads(content["run/scenario.json"])
        tree["workload"] |= workload
        if workload.get("classes", 0) is None:
            del tree["workload"]["classes"]
        content["run/scenario.json"] = json.dumps(tree | sections).encode()

    return rewritten(packed, out, change)


HUB = {"weights": "pretrained", "classes": 64}
NAMED = {
    "hub": (HUB | {"model": "hf:some-owner/some-model"}, "of the Hugging Face hub, which is not"),
    "family of the hub": (HUB | {"model": "hf:gpt2"}, "of the Hugging Face hub, which is not"),
    "folder": ({"model": "hf:{folder}"}, "it needs {folder}, which is not in the bundle"),
    "relative folder": ({"model": "hf:pipe"}, "it needs pipe, which is not in the bundle"),
    "folder above": ({"model": "hf:../../pipe"}, "which is not in the bundle"),
    "home": ({"model": "hf:~/pipe"}, "it needs ~/pipe, which is not in the bundle"),
    "home directory of an unknown user": (
        {"model": "hf:~no-such-user/x"},
        "which is not in the bundle",
    ),
    "link": ({"model": "hf:/proc/self/cwd/pipe"}, "which is not in the bundle"),
    "a folder with a family's name": ({"model": "hf:llama"}, "it needs llama, which is not in"),
}


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("named", NAMED)
def test_a_model_outside_of_the_bundle_is_neither_read_nor_asked_for(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    """A pipe would be waited for."""
    monkeypatch.chdir(tmp_path)
    for name in ("pipe", "llama"):
        (tmp_path / name).mkdir()
        os.mkfifo(tmp_path / name / "config.json")
    monkeypatch.setenv("HOME", str(tmp_path))
    keys, why = NAMED[named]
    keys = {"classes": 64} | keys | {"model": keys["model"].format(folder=tmp_path / "pipe")}
    done = verify(forged(packed, tmp_path / "b.zip", keys), never)
    assert isinstance(done, RunVerification)
    assert done.ok
    assert why.format(folder=tmp_path / "pipe") in done.not_predicted
    assert done.not_emulated
    assert f"not predicted again: {done.not_predicted}" in list(done.lines())
    with pytest.raises(InputError, match=r"^[^\n]*workload\.classes: is missing, and it needs"):
        verify(forged(packed, tmp_path / "c.zip", keys | {"classes": None}), never)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"compute": "real", "weights": "pretrained"}, "it needs pretrained weights, which would"),
        ({"compute": "real", "data": {"source": "/dev/zero"}}, "it needs /dev/zero, which is not"),
        ({"compute": "real", "data": {"source": "data"}}, "it needs data, which is not in the"),
    ],
)
def test_a_sample_uses_files_of_the_bundle_only(
    packed: Path, tmp_path: Path, keys: dict[str, Any], why: str
) -> None:
    done = verify(forged(packed, tmp_path / "b.zip", keys), never)
    assert isinstance(done, RunVerification)
    assert done.predicted == {"predicted": "", "predicted_wire": ""}
    assert why in done.not_emulated


@pytest.mark.parametrize("text", ["/etc/passwd", "~/x", "/proc/self/mem", "here", "../x", "./here"])
def test_what_parameters_of_a_plugin_name_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / "here").write_text("")
    (tmp_path / "x").write_text("")
    (folder := tmp_path / "cwd").mkdir()
    (folder / "here").write_text("")
    monkeypatch.chdir(folder)
    for tree in (
        {"workload": {"parameters": {"file": text}}},
        {"radio": {"parameters": {"a": [{"b": text}]}}},
        {"mobility": {"parameters": text}},
    ):
        assert missing(tree, {}) == f"it needs {text}, which is not in the bundle"
    assert missing({"radio": {"parameters": {"a": "m/s", "b": 1}}}, {}) == ""


def with_model(run_dir: Path, folder: Path, model: Path) -> Path:
    """A run of a language model: the rounds of another one, predicted with its costs."""
    made = Path(shutil.copytree(run_dir, folder))
    tree = json.loads((made / "scenario.json").read_text())
    tree["workload"] |= {"model": f"hf:{model}", "classes": 64, "profile": "counted"}
    (made / "scenario.json").write_text(json.dumps(tree))
    predicted = predicted_again(read_run(made))
    tables = {
        "rounds": [timeline.summary().assign(kind=kind) for kind, timeline in predicted.items()],
        "energy": [energy_table(predicted)],
    }
    for kind, timeline in predicted.items():
        timeline.frame().to_parquet(made / f"{kind}.parquet")
    for stem, parts in tables.items():
        stored = pd.read_parquet(made / f"{stem}.parquet")
        parts = [*parts, stored[stored["kind"] == "measured"]]
        pd.concat(parts).to_parquet(made / f"{stem}.parquet")
    return made


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("with_data", [False, True])
def test_a_run_of_a_models_folder_is_verified_on_another_machine(
    run_dir: Path, tmp_path: Path, with_data: bool
) -> None:
    (model := tmp_path / "model").mkdir()
    (model / "config.json").write_text(json.dumps(GPT2))
    (model / "notes.txt").write_text("something large")
    made, packed = with_model(run_dir, tmp_path / "run", model), tmp_path / "b.zip"
    left = bundle(made, packed, with_data=with_data)
    assert left == ([] if with_data else [str(model)])
    shutil.rmtree(model)
    with zipfile.ZipFile(packed) as archive:
        assert any(name.endswith("/notes.txt") for name in archive.namelist()) == with_data
    done = verify(packed, never, sample=0)
    assert isinstance(done, RunVerification)
    assert done.predicted == {"predicted": "", "predicted_wire": ""}
    real = forged(packed, tmp_path / "real.zip", {"compute": "real"})
    if not with_data:
        done = verify(real, never)
        assert isinstance(done, RunVerification)
        assert (
            done.not_emulated == f"it needs {model}, of which the bundle has the configuration only"
        )
        assert done.predicted["predicted"] == ""


@pytest.mark.usefixtures("alone")
def test_a_campaigns_points_of_a_hub_are_not_computed(tmp_path: Path) -> None:
    made = CampaignFolder(tmp_path / "small")
    run_campaign(load_campaign(write_campaign(tmp_path)), made, cluster=HERE)
    bundle(made.path, tmp_path / "campaign.zip")

    def ask(content: dict[str, bytes]) -> None:
        for path in [path for path in content if path.endswith("/point.json")][1:]:
            point = json.loads(content[path])
            tree = json.loads(point["scenario"])
            tree["workload"] |= {"model": "hf:some-owner/some-model", "weights": "pretrained"}
            content[path] = json.dumps(point | {"scenario": json.dumps(tree)}).encode()

    evil = rewritten(tmp_path / "campaign.zip", tmp_path / "b.zip", ask)
    done = verify(evil, never, cluster=HERE)
    assert done.ok
    reasons = set(done.skipped.values())
    assert reasons == {"it needs some-owner/some-model of the Hugging Face hub, which is not asked"}


def test_no_answer_on_the_standard_input_lets_verify_execute_a_bundle(
    packed: Path, tmp_path: Path
) -> None:
    """The sample runs in another process, whose questions are not shown: nothing must answer them.
    This also holds in the folder of the bundle."""
    (tmp_path / "inside").mkdir()
    door = Door(tmp_path / "inside")
    door.json("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["mine.T", None]}})
    for name in ("sitecustomize", "usercustomize", "numpy", "torch", "yaml", "multiprocessing"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / MARKER)!r}, 'w').close()")
    files = {path.name: path.read_bytes() for path in door.folder.iterdir()}
    keys: dict[str, Any] = {"compute": "real", "model": "hf:gpt2", "classes": 300}
    keys["parameters"] = SIZES | {"vocab_size": 300}
    costs = ("client_forward_flops", "server_forward_flops", "adapter_bytes", "smashed_bytes")
    keys["profile"] = {name: [1000] * 4 for name in costs}
    keys |= {"data": {"source": "/there/a.txt", "tokenizer": "/there/tok"}}

    def add(content: dict[str, bytes]) -> None:
        content |= {f"inputs/0/tok/{name}": data for name, data in files.items()}
        content["inputs/1/a.txt"] = b"a" * 900
        inputs = {"/there/tok": "inputs/0/tok", "/there/a.txt": "inputs/1/a.txt"}
        content["inputs.json"] = json.dumps(inputs).encode()

    evil = rewritten(forged(packed, tmp_path / "a.zip", keys), tmp_path / "evil.zip", add)
    program = Path(sys.executable).with_name("testbed")
    with subprocess.Popen(["yes"], stdout=subprocess.PIPE) as yes:
        done = subprocess.run(
            [program, "verify", evil, "--clock", "real"],
            stdin=yes.stdout,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=400,
        )
        yes.kill()
    assert "tokenizer_config.json: auto_map: names Python code, which is never" in done.stdout
    assert not list(tmp_path.rglob(MARKER))
