# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""FIT.json: written and read, and what is refused in one line."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_flights import Truth, flight_on, lawnmower

from orchestrator.flights.document import Document
from orchestrator.flights.result import fit_flights
from testbed.core.errors import InputError
from testbed.system.files import json_digest

SLOTS = 240


@pytest.fixture(scope="module")
def made() -> Document:
    """A fit of one flight with all that can be measured."""
    rng, route = np.random.default_rng(3), lawnmower(SLOTS)
    snr_db = Truth(offset_db=95.0).drawn_db(route, rng)
    flight = flight_on(
        route,
        rsrp_dbm=np.round(Truth().drawn_db(route, rng)),
        snr_db=np.clip(np.round(snr_db), -40, 60),
        snr_up_db=10 * np.log10(1 + 10 ** (snr_db / 10)),
        uplink_bps=rng.uniform(1e6, 9e6, SLOTS),
        blocks_up=np.full(SLOTS, 400.0),
        mcs_up=rng.uniform(0, 28, SLOTS),
        bler_up=rng.uniform(0, 0.1, SLOTS),
        start="2022-06-10T19:53:22",
    )
    return fit_flights({"one": flight}, ["free-space", "log-distance"]).document()


@pytest.fixture
def file(made: Document, tmp_path: Path) -> Path:
    made.write(tmp_path / "FIT.json")
    return tmp_path / "FIT.json"


def test_a_document_comes_back_as_it_was_written(made: Document, file: Path) -> None:
    assert Document.read(file, "fit") == made
    text = json.loads(file.read_text())
    assert text["flights"][0]["start"] == "2022-06-10T19:53:22"
    assert {model["name"] for model in text["models"]} == {"free-space", "log-distance"}


def test_the_digest_is_that_of_canonical_json(file: Path) -> None:
    fields = json.loads(file.read_text())
    digest = fields.pop("digest")
    canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    assert digest == hashlib.sha256(canonical.encode()).hexdigest()
    assert json_digest({"b": 1.5, "a": [True, None]}) == (
        hashlib.sha256(b'{"a":[true,null],"b":1.5}').hexdigest()
    )


def test_another_order_of_fields_is_the_same_document(made: Document, file: Path) -> None:
    fields = json.loads(file.read_text())
    file.write_text(json.dumps(dict(reversed(fields.items())), indent=7))
    assert Document.read(file, "fit") == made


def changed(value: Any) -> Any:
    """Another valid value in place of one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 0.999 + 1e-3
    if isinstance(value, str):
        return value + "x"
    return "x"


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all numbers and texts, the first of each list."""
    if isinstance(value, dict):
        return [place for key, part in value.items() for place in places(part, (*at, key))]
    if isinstance(value, list):
        return [place for i, part in enumerate(value[:1]) for place in places(part, (*at, i))]
    return [at]


def test_any_change_is_noticed(file: Path) -> None:
    text = file.read_text()
    every = places(json.loads(text))
    assert len(every) > 100
    for place in every:
        fields = json.loads(text)
        part = fields
        for key in place[:-1]:
            part = part[key]
        if part[place[-1]] is None:
            continue
        part[place[-1]] = changed(part[place[-1]])
        file.write_text(json.dumps(fields))
        with pytest.raises(InputError) as refused:
            Document.read(file, "fit")
        assert str(refused.value) == (
            f"`fit`: {file}: digest: the file was changed after it was made"
        ), place


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        (("chosen", "sigma_db"), None, r"chosen\.sigma_db: .*number"),
        (("chosen", "sigma_db"), "much", r"chosen\.sigma_db: .*number"),
        (("chosen", "sigma_db"), -1.0, r"chosen\.sigma_db: must be at least 0"),
        (("chosen", "decorrelation_m"), 0.0, r"chosen\.decorrelation_m: must be above 0"),
        (("chosen", "decorrelation_m"), float("nan"), r"chosen\.decorrelation_m: .*finite"),
        (("uplink", "correlation"), 1.5, r"uplink\.correlation: must be at most 1"),
        (("models", 1, "aic"), "?", r"models\.1\.aic: .*number"),
        (("models",), [], r"models: must not be empty"),
        (("link", "curve", "seconds"), [0.5], r"link\.curve\.seconds\.0: must be a whole number"),
        (("carrier_hz",), float("inf"), r"carrier_hz: .*finite"),
        (("colour",), "red", r"colour: extra inputs are not permitted"),
        (("chosen", "colour"), "red", r"chosen\.colour: extra inputs are not permitted"),
    ],
)
def test_a_wrong_field_is_named(place: tuple[Any, ...], value: Any, says: str, file: Path) -> None:
    fields = json.loads(file.read_text())
    part = fields
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    file.write_text(json.dumps(fields))
    with pytest.raises(InputError, match=f"^`fit`: {file}: {says}") as refused:
        Document.read(file, "fit")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["chosen", "models", "flights", "channel", "digest"])
def test_a_missing_field_is_named(name: str, file: Path) -> None:
    fields = json.loads(file.read_text())
    del fields[name]
    file.write_text(json.dumps(fields))
    with pytest.raises(InputError, match=f"^`fit`: {file}: {name}: ") as refused:
        Document.read(file, "fit")
    assert "\n" not in str(refused.value)


def test_a_channel_with_an_infinite_number_is_refused(file: Path) -> None:
    fields = json.loads(file.read_text())
    for value in (float("nan"), float("inf")):
        fields["channel"]["up"]["offset_db"] = value
        file.write_text(json.dumps(fields))
        with pytest.raises(InputError, match=f"^`fit`: {file}: "):
            Document.read(file, "fit")


@pytest.mark.parametrize(
    "text", [b"", b"{", b"# A fit\n", b"\xff\xfe", b"[1, 2]", b'"fit"', b"3", b"PK\x03\x04"]
)
def test_what_is_no_document_is_refused(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_bytes(text)
    with pytest.raises(InputError, match=f"^`fit`: {path}: ") as refused:
        Document.read(path, "fit")
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_and_one_that_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"^`fit`: {tmp_path / 'no.json'}: no such file$"):
        Document.read(tmp_path / "no.json", "fit")
    with pytest.raises(InputError, match=f"^`fit`: {tmp_path}: cannot be read") as refused:
        Document.read(tmp_path, "fit")
    assert "\n" not in str(refused.value)


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    with path.open("wb") as file:
        file.truncate((16 << 20) + 1)
    with pytest.raises(InputError, match=f"^`fit`: {path}: cannot be read"):
        Document.read(path, "fit")
