# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Every reader of a file from outside: what is no file, has no end, or is broken is refused in one
line, soon and without memory."""

import hashlib
import io
import json
import os
import random
import resource
import signal
import socket
import struct
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import fuzz
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.torch
import torch
from PIL import Image
from small_scenario import TREE

from ns3_scenarios.trace import TraceError
from orchestrator.archive.unpack import unpack
from orchestrator.campaigning.spec import digest_of, load_campaign
from orchestrator.exchange.importing import Options, imported
from orchestrator.flights.document import Document
from orchestrator.flights.forecast import Forecast
from orchestrator.policies import agent
from orchestrator.records.reader import read_object
from orchestrator.records.tables import Absent, read_table
from orchestrator.scenario.channel import read_trace
from orchestrator.scenario.loading import load, read_fit
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.host.dask_nodes import security
from testbed.system.files import sha256_of
from workloads.data.config import DataConfig
from workloads.data.digests import data_digests
from workloads.data.pictures import EncodedPictures
from workloads.data.samples import open_data
from workloads.learning.cached import _digest
from workloads.learning.tensors import read_tensors
from workloads.models.chain import Images, Tokens
from workloads.models.language import language_model, tokenizer_files, weight_files

MOST_CPU_S, MOST_BYTES, LIMIT_S = 10, 1 << 30, 60
SCENARIO = Scenario.model_validate(TREE)


class HungError(BaseException):
    """A reader waits."""


@contextmanager
def limited() -> Iterator[None]:
    """Within it, this process may take `MOST_BYTES` more, and `MOST_CPU_S` of the processor."""
    here = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    most = resource.getrlimit(resource.RLIMIT_AS)

    def hung(*_: object) -> NoReturn:
        raise HungError

    signal.signal(signal.SIGALRM, hung)
    signal.alarm(LIMIT_S)
    resource.setrlimit(resource.RLIMIT_AS, (here + MOST_BYTES, most[1]))
    began_s = time.process_time()
    try:
        yield
    finally:
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_AS, most)
    assert time.process_time() - began_s < MOST_CPU_S


def outcome(read: Callable[[Path], object], path: Path) -> str:
    """What a reader says about a file; empty if it takes it."""
    with limited():
        try:
            read(path)
        except (InputError, TraceError, Absent) as refused:
            line = str(refused)
            assert "\n" not in line
            assert len(line.replace(str(path), "")) < 700
            return line
    return ""


def of_tokens(path: Path) -> object:
    return open_data(DataConfig(str(path)), 256, Tokens(4, 256))


def pictures_of(folder: Path) -> EncodedPictures:
    """The training set of a folder with classes `a` and `b`."""
    data = open_data(DataConfig(str(folder)), 2, Images(16))
    assert isinstance(data, EncodedPictures)
    return data


def picture(path: Path) -> None:
    """Read a data set with this picture as a run does; `unreadable` names all that are broken."""
    for name in ("a", "b"):
        (other := path.parent.parent / name).mkdir(exist_ok=True)
        Image.new("RGB", (16, 16)).save(other / "whole.png")
    data_digests(path.parent.parent)
    if bad := pictures_of(path.parent.parent).unreadable():
        raise InputError("; ".join(bad).replace("\n", " "))


def of_table(path: Path) -> object:
    """Every picture of a table, and its labels."""
    data = pictures_of(path.parent)
    if bad := data.unreadable():
        raise InputError("; ".join(bad)[:500])
    return data


def of_clients(path: Path) -> object:
    """Samples of named clients, in a folder of a part or not."""
    root = path.parent.parent if path.parent.name == "train" else path.parent
    return open_data(DataConfig(str(root), partition="column"), 3, Images(4))


def described_pictures(path: Path) -> object:
    for name in ("a", "b"):
        (folder := path.parent / name).mkdir(exist_ok=True)
        Image.new("RGB", (16, 16)).save(folder / "x.png")
    return pictures_of(path.parent)


def of_import(kind: str) -> Callable[[Path], object]:
    return lambda path: imported(kind, [path], Options())


def of_tokenizer(path: Path) -> object:
    (path.parent / "vocab.json").write_text("{}")
    return tokenizer_files(path.parent)


def of_model(path: Path) -> object:
    return language_model(f"hf:{path.parent}", {}, None)


def of_bundle(path: Path) -> object:
    (target := path.parent / "unpacked").mkdir()
    return unpack(path, target)


DOORS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "scenario": ("s.yaml", load),
    "campaign": ("c.yaml", load_campaign),
    "fit of a scenario": ("fit.json", lambda path: read_fit(path, "radio.fitted")),
    "fit": ("fit.json", lambda path: Document.read(path, "fit")),
    "forecast": ("forecast.json", lambda path: Forecast.read(path, "forecast")),
    "trace": ("t.npz", read_trace),
    "manifest": ("manifest.json", read_object),
    "table": ("rates.parquet", lambda path: read_table(path, SCENARIO)),
    "bundle": ("b.zip", of_bundle),
    "file of a campaign": ("data.bin", digest_of),
    "key": ("cluster.key", security),
    "agent": ("agent.pt", agent._read),
    "weights": ("w.safetensors", lambda path: read_tensors(path, "export")),
    "digest of weights": ("w.safetensors", lambda path: _digest(path)),
    "index of weights": (
        "model.safetensors.index.json",
        lambda path: weight_files(path.parent, "workload.weights"),
    ),
    "model": ("config.json", of_model),
    "configuration of a tokenizer": ("tokenizer_config.json", of_tokenizer),
    "other file of a tokenizer": ("added_tokens.json", of_tokenizer),
    "text": ("a.txt", of_tokens),
    "lines": ("a.jsonl", of_tokens),
    "array": ("a.npy", of_tokens),
    "numbers": ("a.bin", of_tokens),
    "texts in a table": ("a.parquet", of_tokens),
    "picture": ("a/x.png", picture),
    "pictures in a table": ("train.parquet", of_table),
    "list of tables": ("state.json", of_table),
    "clients in JSON": ("train/a.json", of_clients),
    "clients in HDF5": ("fed_train.h5", of_clients),
    "table of pictures": ("metadata.csv", described_pictures),
    **{name: (f"x.{name}", of_import(name)) for name in ("csv", "kml", "gpx", "ulog", "qgc")},
    **{name: (f"x.{name}", of_import(name)) for name in ("mahimahi", "ns2")},
}
"""Readers, each with the name of its file."""


def linked(to: str) -> Callable[[Path], object]:
    return lambda path: path.symlink_to(to)


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"/proc/self/cwd/{path.name}" if len(str(path)) > 100 else str(path))


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 41)


KINDS: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "zeros": linked("/dev/zero"),
    "noise": linked("/dev/urandom"),
    "terminal": linked("/dev/tty"),
    "memory": linked("/proc/self/mem"),
    "folder": lambda path: path.mkdir(),
    "socket": bind,
    "loop": lambda path: path.symlink_to(path.name),
    "hole": sparse,
    "nulls": lambda path: path.write_bytes(bytes(2001)),
    "brackets": lambda path: path.write_bytes(b"[" * 100_000),
    "objects": lambda path: path.write_bytes(b'{"a":' * 100_000),
    "bytes": lambda path: path.write_bytes(random.Random(1).randbytes(3001)),
}
"""What may stand where a file should."""
NO_FILES = ("pipe", "zeros", "noise", "terminal", "memory", "folder", "socket", "loop", "hole")
TAKEN = {
    *(("text", kind) for kind in ("nulls", "brackets", "objects")),
    *(("numbers", kind) for kind in ("nulls", "brackets", "objects", "bytes")),
    *((f"{what}", kind) for what in ("file of a campaign", "digest of weights") for kind in KINDS),
    *(("other file of a tokenizer", kind) for kind in KINDS),
    ("table of pictures", "loop"),
    *((what, "folder") for what in ("picture", "configuration of a tokenizer")),
}
"""Readers, and what is right for them: they take any bytes, or leave out what is no file."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("door", DOORS)
def test_what_is_no_such_file_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, door: str, kind: str
) -> None:
    name, read = DOORS[door]
    (path := tmp_path / name).parent.mkdir(exist_ok=True)
    monkeypatch.chdir(path.parent)
    KINDS[kind](path)
    path.chmod(0o600) if path.is_file() and not path.is_symlink() else None
    line = outcome(read, path)
    assert line or (door, kind) in TAKEN


def arrow(table: pa.Table) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)
    return out.getvalue()


def parquet(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def npy(values: np.ndarray[Any, Any]) -> bytes:
    out = io.BytesIO()
    np.save(out, values)
    return out.getvalue()


def png() -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (16, 16), (1, 2, 3)).save(out, "PNG")
    return out.getvalue()


def kmz() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("doc.kml", KML)
    return out.getvalue()


def saved_agent() -> bytes:
    out = io.BytesIO()
    identity = {"scenario": SCENARIO.model_dump_json(), "variant": "drl", "seed": 1, "settings": {}}
    torch.save({"identity": identity, "networks": {"a": torch.ones(3)}}, out)
    return out.getvalue()


def tensors() -> bytes:
    return safetensors.torch.save({"a": torch.ones(3), "b": torch.zeros(2, 2)})


def hdf5() -> bytes:
    out = io.BytesIO()
    with h5py.File(out, "w") as file:
        file["examples/u/pixels"] = np.full((12, 4, 4), 0.5, np.float32)
        file["examples/u/label"] = LEAF["y"]
    return out.getvalue()


LEAF = {"x": [[0.5] * 16] * 12, "y": [0, 1, 2] * 4}
MODEL = {"model_type": "gpt2", "vocab_size": 64, "n_layer": 3, "weight_map": {"a": "w.safetensors"}}
PLACE = "<coordinates>7,46,100 7.01,46,100</coordinates>"
KML = (
    '<kml xmlns="http://www.opengis.net/kml/2.2"><Placemark><LineString>'
    f"<altitudeMode>absolute</altitudeMode>{PLACE}</LineString></Placemark></kml>"
)
GPX = (
    '<gpx xmlns="http://www.topografix.com/GPX/1/1"><trk><trkseg>'
    '<trkpt lat="46" lon="7"><ele>1</ele><time>2026-01-01T00:00:00Z</time></trkpt>'
    '<trkpt lat="46.1" lon="7"><ele>2</ele><time>2026-01-01T00:01:00Z</time></trkpt>'
    "</trkseg></trk></gpx>"
)
CELLS = [{"bytes": png(), "path": None}] * 4
TABLE = pa.table({"image": CELLS, "label": [0, 1, 0, 1]})
VALID: dict[str, Callable[[], bytes]] = {
    "fit of a scenario": lambda: b'{"channel": {"kind": "a", "digest": "b"}}',
    "agent": saved_agent,
    "weights": tensors,
    "index of weights": lambda: json.dumps(MODEL).encode(),
    "model": lambda: json.dumps(MODEL).encode(),
    "configuration of a tokenizer": lambda: json.dumps(MODEL).encode(),
    "text": lambda: "aß\r\nb".encode() * 20,
    "lines": lambda: b'{"text": "abcdefgh"}\n' * 20,
    "array": lambda: npy(np.arange(200, dtype=np.int32)),
    "texts in a table": lambda: parquet(pa.table({"text": ["abcdefghijklmn"] * 9})),
    "picture": png,
    "pictures in a table": lambda: parquet(TABLE),
    "clients in JSON": lambda: json.dumps({"users": ["u"], "user_data": {"u": LEAF}}).encode(),
    "clients in HDF5": hdf5,
    "table of pictures": lambda: b"file_name,writer\na/x.png,u\nb/x.png,v\n",
    "csv": lambda: b"time,x,y,z\n0,1,2,3\n1,2,3,4\n",
    "kml": KML.encode,
    "gpx": GPX.encode,
    "mahimahi": lambda: b"1\n2\n3\n",
    "ns2": lambda: (
        b'$node_(0) set X_ 1.0\n$node_(0) set Y_ 2.0\n$ns_ at 1.0 "$node_(0) setdest 2 2 1"'
    ),
}


@pytest.mark.parametrize("door", VALID)
def test_a_reader_of_mutated_files_has_no_fault(tmp_path: Path, door: str) -> None:
    name, read = DOORS[door]
    valid = VALID[door]()
    (path := tmp_path / "0" / name).parent.mkdir(parents=True)

    def subject(data: bytes) -> None:
        path.write_bytes(data)
        read(path)

    with limited():
        outcomes, crashes = fuzz.fuzz(25, lambda rng: fuzz.mutated(valid, rng), subject, seed=7)
    assert crashes == []
    assert sum(outcomes.values()) == 25


def merged(levels: int) -> str:
    """Merge keys that expand to 10 to the power of `levels`."""
    lines = ["x0: &x0 {a: 1, b: 2}"]
    for level in range(1, levels + 1):
        lines.append(f"x{level}: &x{level} {{<<: [{', '.join([f'*x{level - 1}'] * 10)}]}}")
    return "\n".join(lines)


def zip_of(entries: int, *, claimed: int | None = None) -> bytes:
    """A zip file with that many empty entries, of which all but the directory is one entry."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a", b"")
    data = out.getvalue()
    begin, end = data.index(b"PK\x01\x02"), data.index(b"PK\x05\x06")
    directory = data[begin:end] * entries
    count = min(entries if claimed is None else claimed, 0xFFFF)
    sizes = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, len(directory), begin, 0)
    return data[:begin] + directory + sizes


def png_of(side: int) -> bytes:
    """A picture of one colour, whose file is a thousandth of its pixels."""

    def chunk(name: bytes, body: bytes) -> bytes:
        crc = zlib.crc32(name + body)
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", crc)

    rows = zlib.compress(bytes(1 + side * 3) * (side // 50))
    head = chunk(b"IHDR", struct.pack(">2I5B", side, side, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def wide(columns: int) -> bytes:
    names = ["time", "x", "y", "z", *(f"c{n}" for n in range(columns))]
    return "\n".join([",".join(names), *[",".join("1" * len(names))] * 2]).encode()


def outside(path: str) -> Callable[[], bytes]:
    cells = [{"bytes": None, "path": path}] * 4
    return lambda: parquet(pa.table({"image": cells, "label": [0, 1, 0, 1]}))


def config(**more: Any) -> bytes:
    return json.dumps(MODEL | more).encode()


def many_rows() -> bytes:
    return parquet(pa.table({"text": pa.nulls(9_000_000, pa.string())}))


CONTENTS: dict[str, tuple[str, bytes | Callable[[], bytes], str]] = {
    "merge bomb": ("scenario", merged(9).encode(), "expands to more than 200000 values"),
    "merge bomb in a key": (
        "scenario",
        (merged(6) + "\n? {<<: [*x6, *x6]}\n: 1").encode(),
        "expands to more than 200000 values",
    ),
    "merge bomb of a campaign": ("campaign", merged(9).encode(), "expands to more than 200000"),
    "merge of itself": ("scenario", b"a: &a {<<: *a}", "expands to more than 200000 values"),
    "hexadecimal": ("scenario", b"seed: 0x" + b"f" * 10**5, "an integer has 100,002 characters"),
    "octal": ("scenario", b"seed: 0o" + b"7" * 10**5, "an integer has 100,002 characters"),
    "decimal": ("scenario", b"seed: " + b"9" * 10**5, "an integer has 100,000 characters"),
    "sixties": ("campaign", b"studies: {}\nset: {seed: " + b"59:" * 9 + b"59}", ""),
    "exponent": ("scenario", b"seed: !!int 1e999999999", "'1e999999999' is not an integer"),
    "sixties with a tag": ("scenario", b"a: !!float " + b"59:" * 200 + b"59", "602 characters"),
    "time with a tag": ("scenario", b"a: !!timestamp " + b"1" * 999, "not YAML"),
    "bytes with a tag": ("scenario", b"a: !!binary " + b"A" * 999, "not YAML"),
    "a tag of 100 kB": ("scenario", b"%TAG ! " + b"x" * 10**5 + b"\n---\na: !b 1", "not YAML"),
    "twice in one line": ("scenario", b"{a: 1, a: 2}", "'a' occurs twice, both times in this"),
    "twice in JSON": ("scenario", b'{"rounds": 1, "rounds": 2}', "'rounds' occurs twice"),
    "twice a long key": ("scenario", b"{%b: 1, %b: 2}" % (b"k" * 800, b"k" * 800), "occurs twice"),
    "twice by value": ("scenario", b"{16: 1, 0x10: 2}", "'0x10' occurs twice"),
    "flow of questions": ("scenario", b"? " * 10**5, "not YAML: maximum recursion depth"),
    "long line": ("scenario", b"a: '" + b"x" * 4 * 10**6 + b"'", "longer than 4000000"),
    "twice the users": ("clients in JSON", b'{"users": [], "users": []}', "two keys 'users'"),
    "twice in a manifest": ("manifest", b'{"valid": 1, "valid": 2}', "two keys 'valid'"),
    "twice in a fit": ("fit of a scenario", b'{"a": 1, "a": 2}', "has an object with two keys 'a'"),
    "number in a manifest": ("manifest", b'{"a": ' + b"1" * 5000 + b"}", "Exceeds the limit"),
    "entries": ("bundle", lambda: zip_of(600_000), "has more than 500,000 entries"),
    "hidden entries": ("bundle", lambda: zip_of(600_000, claimed=1), "more than 500,000 entries"),
    "claimed entries": ("agent", lambda: zip_of(1, claimed=20_000), "more than 10,000 entries"),
    "entries of an agent": ("agent", lambda: zip_of(20_000), "has more than 10,000 entries"),
    "entries of a trace": ("trace", lambda: zip_of(20_000), "has more than 10,000 entries"),
    "hidden entries of a trace": ("trace", lambda: zip_of(20_000, claimed=1), "10,000 entries"),
    "entries of a KMZ": ("kml", lambda: zip_of(20_000), "has more than 10,000 entries"),
    "columns": ("csv", lambda: wide(40_000), "has 40,004 columns, more than 10,000"),
    "fewer columns": ("csv", lambda: wide(9000), ""),
    "columns by blanks": ("csv", lambda: wide(20_000).replace(b",", b" "), "has 20,004 columns"),
    "many equal columns": ("csv", b"time,x,y,z" + b",x" * 9000 + b"\n1,1,1,1", "two columns 'x'"),
    "long name": ("csv", b"time," + b"x" * 200_000 + b"\n1,2", "field larger than field limit"),
    "long cell": ("csv", b"time,x\n1," + b"2" * 2_000_000, "line 2: is longer than 1,000,000"),
    "lines": ("csv", b"time,x\n" + b"\n" * 3_000_001, "more than 3,000,000 lines"),
    "quotes": ("csv", b"time,x,y,z\n" + b'"' * 900_000, "is neither a number"),
    "comments": ("csv", b"#\n" * 400_000, "it has no lines"),
    "carriage returns": ("csv", b"time,x\r" + b"\r" * 3_000_001, "more than 3,000,000 lines"),
    "pixels": ("picture", lambda: png_of(13_000), "has 169,000,000 pixels, more than 50,000,000"),
    "a picture elsewhere": ("pictures in a table", outside("/etc/passwd"), "not in its folder"),
    "a picture above": ("pictures in a table", outside("../x.png"), "not in its folder"),
    "an endless picture": ("pictures in a table", outside("/dev/zero"), "not in its folder"),
    "no picture": ("pictures in a table", outside("train.parquet"), "is none of JPEG"),
    "rows": ("texts in a table", many_rows, "claims 288,000,000 bytes of values in a file of"),
    "layers": ("model", config(n_layer=10**9), "n_layer: must be a whole number from 1 to 10000"),
    "negative layers": ("model", config(n_layer=-1), "n_layer: must be a whole number from 1"),
    "layers as text": ("model", config(num_hidden_layers="x"), "must be a whole number from 1"),
    "vocabulary": ("model", config(vocab_size=1.5), "vocab_size: must be a whole number from 2"),
    "code of a model": ("model", config(auto_map={}), "config.json: auto_map: names Python code"),
    "code of a tokenizer": (
        "configuration of a tokenizer",
        config(auto_map=["a.B"]),
        "tokenizer_config.json: auto_map: names Python code",
    ),
    "weights above": (
        "index of weights",
        b'{"weight_map": {"a": "../w.safetensors"}}',
        "which is not in its folder",
    ),
    "weights elsewhere": ("index of weights", b'{"weight_map": {"a": "/dev/zero"}}', "not in its"),
    "weights without names": ("index of weights", b'{"weight_map": {"a": 1}}', "no weight_map"),
    "tables elsewhere": (
        "list of tables",
        b'{"_data_files": [{"filename": "/dev/zero"}]}',
        "cannot be read as a table",
    ),
    "lines without text": ("lines", b'{"text": 1}\n', "a.jsonl:1: must be a JSON object"),
    "deep line": ("lines", b"[" * 100_000, "a.jsonl:1: must be a JSON object"),
    "array of objects": ("array", b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '|O'" * 9, "a.npy: "),
}
"""By name: the reader, the content of its file, and what is said."""


@pytest.mark.parametrize("name", CONTENTS)
def test_hostile_content_is_refused_before_it_is_expanded(tmp_path: Path, name: str) -> None:
    door, data, said = CONTENTS[name]
    file, read = DOORS[door]
    (path := tmp_path / file).parent.mkdir(exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data())
    line = outcome(read, path)
    assert said in line
    assert line or name == "fewer columns"


def test_folders_that_contain_themselves_are_not_walked_for_ever(tmp_path: Path) -> None:
    """Two links in each of 40 folders would be a million million paths."""
    for depth in range(40):
        (tmp_path / f"{depth}").mkdir()
        for name in ("a", "b"):
            (tmp_path / f"{depth}" / name).symlink_to(tmp_path / f"{depth + 1}")
    (tmp_path / "40").mkdir()
    (tmp_path / "40" / "x.png").write_bytes(png())
    (tmp_path / "loop").symlink_to(tmp_path)
    for folder in (tmp_path, tmp_path / "0"):
        assert outcome(pictures_of, folder)
        assert "Too many levels of symbolic links" in outcome(data_digests, folder)
        assert "Too many levels of symbolic links" in outcome(of_tokens, folder)


def test_a_file_that_is_nearly_all_hole_is_refused_and_a_sparse_one_is_read(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    sparse(path)
    os.truncate(path, 3 << 30)
    for read in (sha256_of, lambda path: read_tensors(path, "export")):
        with limited(), pytest.raises((InputError, OSError), match="nearly all of them are a hole"):
            read(path)
    os.truncate(path, 1 << 20)
    assert sha256_of(path) == hashlib.sha256(bytes(1 << 20)).hexdigest()
