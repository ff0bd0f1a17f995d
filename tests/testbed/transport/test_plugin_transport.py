# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The transport of examples/skyward: found, validated, charged for its bytes, and run."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from packages import importable, write_package
from play_programs import CLIENTS, ITERATIONS, PLAIN, play

import orchestrator as tb
from orchestrator.engine.plan import transfer_bytes
from testbed.core.errors import InputError
from testbed.core.paradigm import BUILT_IN

ROOT = Path(__file__).resolve().parents[3]
QUICK = ROOT / "scenarios" / "quickstart.yaml"
OTHERS = """

class Picky(Prefixed):
    name = "picky"
    allowed = {"emulation.nagle": (False,), "emulation.initial_window": (None, 4)}
    least_mtu = 1000


picky = Picky()
"""
ENTRIES = """
[testbed.transports]
prefixed = skyward:prefixed
picky = skyward:picky
mislabelled = skyward:prefixed
no-transport = skyward:Prefixed
gone = skyward:gone
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example's package, as an installer leaves it."""
    code = (ROOT / "examples" / "skyward" / "skyward.py").read_text(encoding="utf-8")
    folder = tmp_path_factory.mktemp("packages")
    write_package(folder, "skyward", code + OTHERS, ENTRIES)
    return folder


@pytest.fixture
def installed(packages: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package in this process."""
    with importable(packages, "skyward", monkeypatch):
        yield


def load(**emulation: Any) -> tb.Scenario:
    return tb.load(QUICK, {f"emulation.{key}": value for key, value in emulation.items()})


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("emulation", "says"),
    [
        ({"transport": "prefix"}, "'prefix' is not one of tcp, tls, grpc, quic, "),
        ({"transport": "prefix"}, "did you mean 'prefixed'?"),
        ({"transport": "gone"}, "plugin 'gone' (skyward:gone) cannot be loaded: AttributeError"),
        ({"transport": "mislabelled"}, "(skyward:prefixed) is not a TransportKind of that name"),
        ({"transport": "no-transport"}, "(skyward:Prefixed) is not a TransportKind of that name"),
        ({"transport": "picky", "nagle": True}, "emulation.nagle: must be false where"),
        ({"transport": "picky", "initial_window": 5}, "initial_window: must be absent or 4 wher"),
        ({"transport": "picky", "mtu": 999}, "emulation.mtu: must be at least 1000 where"),
    ],
)
def test_what_does_not_fit_is_refused(emulation: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)) as refused:
        load(**emulation)
    assert "emulation." in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.usefixtures("installed")
def test_it_charges_its_own_bytes() -> None:
    for connection in ("kept", "per-transfer"):
        plain, prefixed = (
            load(transport=name, connection=connection, rate_counts="payload")
            for name in ("tcp", "prefixed")
        )
        for sizes in ((0, 0), (16, 50_000)):
            added = transfer_bytes(prefixed.emulation, *sizes) - transfer_bytes(
                plain.emulation, *sizes
            )
            assert added == 10
    rounds = [
        tb.predict(load(transport=name, rate_counts="payload"), rounds=1, wire=True).rounds[0]
        for name in ("tcp", "prefixed")
    ]
    # Ten more bytes in each of a dozen transfers, at some Mb/s.
    assert 0 < rounds[1].latency_s - rounds[0].latency_s < 1e-3


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("connection", ["kept", "per-transfer"])
def test_it_carries_whole_rounds(connection: Any) -> None:
    settings = replace(PLAIN, transport="prefixed", connection=connection)
    for spans in play(BUILT_IN[6], rounds=2, settings=settings):
        assert len(spans) == CLIENTS * (2 + 5 * ITERATIONS)


@pytest.mark.usefixtures("installed")
def test_it_carries_a_run_and_every_byte_is_booked(packages: Path, tmp_path: Path) -> None:
    path = os.pathsep.join([str(packages), *filter(None, [os.environ.get("PYTHONPATH")])])
    keys = ("transport=prefixed", "dilation=1", "calibrate=false")
    keys = (*(f"emulation.{key}" for key in keys), "workload.compute=none", "rounds=1")
    words = [word for key in keys for word in ("--set", key)]
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", "run", QUICK, *words, "--out", "run"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    run = tb.read_run(tmp_path / "run")
    assert run.manifest["plugins"] == {"emulation.transport": "skyward 1.2 (skyward:prefixed)"}
    accounts = pd.read_parquet(tmp_path / "run" / "accounts.parquet")
    frames = accounts[~accounts["kind"].isin(["", "HELLO"])]
    assert (frames["tls_bytes"] == 10).all()
    of_links = (accounts["round"] == 0) & (accounts["kind"] == "") & (accounts["ack_bytes"] == 0)
    rest = accounts.loc[of_links, "other_bytes"]
    # On the real clock TCP may send an option of its own on a link (12 B for a SACK); bytes that
    # are booked wrongly would show on every link.
    assert len(rest) == 2 * CLIENTS
    assert rest.median() == 0
