# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Files with hostile safetensors headers: one line that names them, no memory, no waiting."""

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import safetensors.torch
import torch
from synthetic_run import make_run

from orchestrator.records.checkpoint import _state
from testbed.core.errors import InputError
from testbed.transport.wire import Header, Kind, WireError
from workloads.learning.cached import backbone_file
from workloads.learning.settings import ModelConfig
from workloads.learning.tensors import read_tensors

NANO = ModelConfig("swin_nano_patch4_window4_64", classes=5)


def file(header: object, body: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file of that header, which says to have that length."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def tensor(start: int, end: int, shape: tuple[int, ...] = (1,), dtype: str = "F32") -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


HOSTILE = {
    "empty": b"",
    "half a length": b"\1\2\3",
    "a huge length": file({}, length=2**64 - 1),
    "a large length": file({}, length=99_000_000),
    "no text": file(b"\xff\xfe\xfd"),
    "no JSON": file(b"{'a': 1}"),
    "deeply nested": file(b'{"a":' * 100_000),
    "a list": file([tensor(0, 4)]),
    "no description": file({"a": {"b": 1}}),
    "beyond the file": file({"a": tensor(0, 1 << 40, (1 << 38,))}, bytes(4)),
    "shape of another size": file({"a": tensor(0, 4, (1 << 38,))}, bytes(4)),
    "shape that overflows": file({"a": tensor(0, 4, (1 << 62, 1 << 62))}, bytes(4)),
    "before the file": file({"a": tensor(-8, 4, (3,))}, bytes(4)),
    "one over the other": file({"a": tensor(0, 4), "b": tensor(0, 4)}, bytes(4)),
    "more than it says": file({"a": tensor(0, 4)}, bytes(8)),
    "of no type": file({"a": tensor(0, 4, dtype="Q7")}, bytes(4)),
    "a pickle": b"\x80\x02}q\0.",
}
UNUSUAL = {
    "four bits": file({"a": tensor(0, 1, (2,), "F4")}, bytes(1)),
    "complex": file({"a": tensor(0, 8, (1,), "C64")}, bytes(8)),
}


@pytest.mark.parametrize("content", (HOSTILE | UNUSUAL).values(), ids=HOSTILE | UNUSUAL)
def test_hostile_files_are_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "given.safetensors"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"^export: {path}") as refused:
        read_tensors(path, "export")
    assert "\n" not in str(refused.value)
    assert len(str(refused.value).replace(str(path), "")) < 400
    with pytest.raises(InputError, match=rf"^workload\.weights: {path}"):
        backbone_file(replace(NANO, weights=str(path)), tmp_path / "cache")


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_checkpoint_is_refused_before_anything_starts(tmp_path, content: bytes) -> None:
    path = tmp_path / "state-000000.safetensors"
    path.write_bytes(content)
    learns = SimpleNamespace(workload=SimpleNamespace(compute="real"))
    with pytest.raises(InputError, match=rf"^`resume`: {path}: cannot be read"):
        _state(path, learns)
    path.write_bytes(good := safetensors.torch.save({"a": torch.ones(3)}))
    assert _state(path, learns) == good
    assert _state(path, SimpleNamespace(workload=SimpleNamespace(compute="none"))) == b""


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(path := tmp_path / "given.safetensors")
    with pytest.raises(InputError, match=rf"^export: {path} is not a regular file"):
        read_tensors(path, "export")
    with pytest.raises(InputError, match=rf"^workload\.weights: {path}"):
        backbone_file(replace(NANO, weights=str(path)), tmp_path / "cache")


def test_a_name_of_a_megabyte_is_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "given.safetensors"
    path.write_bytes(file({"a" * 1_000_000: tensor(0, 1, (2,), "F4")}, bytes(1)))
    with pytest.raises(InputError) as refused:
        read_tensors(path, "export")
    assert len(str(refused.value).replace(str(path), "")) < 400


def test_export_refuses_hostile_adapters_with_status_2_and_takes_no_memory(tmp_path) -> None:
    run = make_run(tmp_path / "run")
    limited = f"import resource, runpy; resource.setrlimit(resource.RLIMIT_DATA, {(1 << 32,) * 2});"
    limited += "runpy.run_module('orchestrator', run_name='__main__', alter_sys=True)"
    words = [sys.executable, "-c", limited, "export", str(run), "--out", str(tmp_path / "peft")]
    (run / "adapters.safetensors").write_bytes(HOSTILE["a large length"])
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("testbed: export: ")
    assert "adapters.safetensors is not a safetensors file" in line
    assert not (tmp_path / "peft").exists()


@pytest.mark.parametrize("field", ["extra_bytes", "payload_bytes"])
def test_adapters_that_say_to_be_huge_are_refused_before_memory_is_taken(field: str) -> None:
    """Their safetensors header is never read: each side compares it with its own."""
    due = Header(Kind.ADAPTERS, 3, 1, 0, 64, 10_000, 0.0, 0.0)
    huge = replace(due, **{field: 2**32 - 1})
    with pytest.raises(WireError, match=rf"^{field}: 4294967295 where .* is due \(client 3\)$"):
        Header.unpack(huge.pack()).expect(Kind.ADAPTERS, 0, 64, 10_000)
