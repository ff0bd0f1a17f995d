# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Accounts of every byte, held against captures of the same links; choices of the transport."""

import json
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pandas as pd
import pytest
from console import run_testbed
from small_scenario import TEXT

from orchestrator.analysis.byte_accounts import BYTES, RESENT, SET_UP
from orchestrator.analysis.waterfall import PARTS
from testbed.network.pcap import frames

CHOICES = {
    "tcp": [],
    "tls": ["transport=tls"],
    "grpc": ["transport=grpc"],
    "tls-per-transfer": ["transport=tls", "connection=per-transfer"],
    "payload": ["rate_counts=payload", "connection=per-transfer"],
    "small-packets": ["mtu=576"],
}
FIN, SYN, RST = 1, 2, 4


QUICK = ("tcp", "tls", "grpc")


@pytest.fixture(
    scope="module",
    params=[c if c in QUICK else pytest.param(c, marks=pytest.mark.full) for c in CHOICES],
)
def run(request, tmp_path_factory) -> tuple[str, Path]:
    """A run of each choice, with a capture."""
    folder = tmp_path_factory.mktemp("run")
    scenario, out = folder / "small.yaml", folder / "out"
    scenario.write_text(TEXT)
    words = [w for choice in CHOICES[request.param] for w in ("--set", f"emulation.{choice}")]
    words += ["--set", "emulation.dilation=4"]
    run_testbed("run", scenario, *words, "--out", out, "--capture-headers")
    return request.param, out


class Stretches:
    """Of a stream, what was seen; packets may overtake each other where two cores handle them."""

    def __init__(self) -> None:
        self.known: list[tuple[int, int]] = []

    def add(self, first: int, end: int) -> bool:
        """Whether anything of it is new."""
        if any(a <= first and end <= b for a, b in self.known):
            return False
        near = [(a, b) for a, b in self.known if a <= end and first <= b]
        whole = [*near, (first, end)]
        self.known = [stretch for stretch in self.known if stretch not in near]
        self.known.append((min(a for a, _ in whole), max(b for _, b in whole)))
        return True


def test_accounts_and_captures_hold_the_same_bytes(run: tuple[str, Path]) -> None:
    choice, out = run
    accounts = pd.read_parquet(out / "accounts.parquet")
    booked = accounts.groupby(["client", "direction"])[list(BYTES)].sum()
    for client in (1, 2, 3):
        for direction, end in (("down", 1), ("up", 2)):
            seen = [
                frame
                for frame in frames(out / "pcap" / f"uav{client}.pcap")
                if frame.source == f"10.0.{client}.{end}"
            ]
            books = booked.loc[client, direction]
            assert sum(f.header_bytes + f.data_bytes for f in seen) == books.sum()
            assert not any(f.flags & RST for f in seen)
            # Nothing was sent again on the way but what the kernel says it was.
            known: dict[tuple[int, int], Stretches] = defaultdict(Stretches)
            again = 0
            for f in seen:
                # The end of a stream has a number of its own, as every byte, and may go twice.
                length = f.data_bytes + (f.flags & FIN)
                if length and not known[f.ports].add(f.sequence, f.sequence + length):
                    again += f.header_bytes + f.data_bytes
            assert again == books[list(RESENT)].sum()
            data = sum(f.data_bytes for f in seen)
            if not again:
                handshakes = books["handshake_bytes"] - sum(
                    f.header_bytes for f in seen if f.flags & SYN
                )
                # Each side that opened a connection has sent one frame without data for it.
                handshakes -= 66 * sum(1 for f in seen if f.flags & SYN and not f.flags & 16)
                content = books[["payload_bytes", "framing_bytes", "tls_bytes", "grpc_bytes"]]
                assert data == content.sum() + handshakes
    in_round = accounts[accounts["round"] != SET_UP]
    assert in_round["payload_bytes"].sum() == 3 * (2 * 80_000 + 4 * 200_000)
    assert (in_round["tls_bytes"].sum() > 0) == choice.startswith("tls")
    assert (in_round["grpc_bytes"].sum() > 0) == (choice == "grpc")
    assert (in_round["handshake_bytes"].sum() > 0) == (choice in ("tls-per-transfer", "payload"))


@pytest.mark.parametrize("transport", ["tcp", "grpc"])
def test_what_a_queue_refused_was_not_carried(transport: str, tmp_path: Path) -> None:
    """TCP counts a frame as sent also where the link's own queue drops it, as many under BBR."""
    scenario, out = tmp_path / "small.yaml", tmp_path / "out"
    scenario.write_text(TEXT.replace("200000", "2000000"))
    choices = ("congestion_control=bbr", f"transport={transport}")
    words = [w for choice in choices for w in ("--set", f"emulation.{choice}")]
    run_testbed("run", scenario, *words, "--out", out, "--capture-headers")
    checks = json.loads((out / "manifest.json").read_text())["validity"]
    (dropped,) = (c["value"] for c in checks if c["check"] == "dropped_frames")
    assert dropped > 0.002
    accounts = pd.read_parquet(out / "accounts.parquet")
    booked = accounts.groupby(["client", "direction"])[list(BYTES)].sum()
    for client, direction in booked.index:
        books = booked.loc[client, direction]
        source = f"10.0.{client}.{1 if direction == 'down' else 2}"
        first, known = 0, Stretches()
        for f in frames(out / "pcap" / f"uav{client}.pcap"):
            if f.source == source and f.data_bytes:
                first += known.add(f.sequence, f.sequence + f.data_bytes)
        # A frame or two may have been sent again in part; options of some frames are no headers.
        assert books["header_bytes"] == pytest.approx(66 * first, abs=2 * 66)
        assert abs(books["other_bytes"]) < 500
        assert books["grpc_bytes"] < 2_000


def test_the_waterfall_adds_up_to_the_measured_latency(run: tuple[str, Path]) -> None:
    _, out = run
    parts = pd.read_parquet(out / "waterfall.parquet").set_index("part")["seconds"]
    rounds = pd.read_parquet(out / "rounds.parquet").set_index("kind")["latency_s"]
    assert list(parts.index) == list(PARTS)
    assert parts.sum() == pytest.approx(rounds["measured"], abs=1e-9)
    assert parts["payload"] + parts["computing"] == pytest.approx(rounds["predicted"], abs=1e-9)


def test_what_a_transfer_takes_on_the_link_is_known_beforehand(run: tuple[str, Path]) -> None:
    """Also under gRPC, whose own framing varies by some bytes."""
    choice, out = run
    if choice == "payload":
        pytest.skip("frames cost nothing there")
    accounts = pd.read_parquet(out / "accounts.parquet")
    predicted = pd.read_parquet(out / "predicted_wire.parquet")
    # Retransmissions of the moment and acknowledgements are no part of a prediction.
    columns = [c for c in BYTES if c not in ("ack_bytes", *RESENT, "other_bytes")]
    for kind, step in (("SMASHED", "CA"), ("GRADIENT", "SG"), ("BROADCAST", "SM")):
        up = kind == "SMASHED"
        sent = accounts[
            (accounts["kind"] == kind) & (accounts["direction"] == ("up" if up else "down"))
        ]
        due = predicted[predicted["step"] == step].groupby("client")["bytes"].mean()
        for client, size in sent.groupby("client")[columns].sum().sum(axis=1).items():
            count = len(sent[sent["client"] == client])
            limit = 1_000 if choice == "grpc" else 2 * 66
            assert size / count == pytest.approx(due[client], abs=limit)


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_tshark_reads_captures_with_and_without_what_frames_carry(tmp_path: Path) -> None:
    scenario = tmp_path / "small.yaml"
    scenario.write_text(TEXT)
    for option in ("--capture", "--capture-headers"):
        out = tmp_path / option
        run_testbed("run", scenario, "--out", out, option)
        fields = ["frame.len", "frame.cap_len", "tcp.len", "tcp.hdr_len"]
        said = subprocess.run(
            ["tshark", "-r", out / "pcap" / "uav1.pcap", "-T", "fields"]
            + [word for field in fields for word in ("-e", field)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        seen = pd.DataFrame([map(int, line.split()) for line in said.splitlines()], columns=fields)
        accounts = pd.read_parquet(out / "accounts.parquet")
        assert seen["frame.len"].sum() == accounts[accounts["client"] == 1][list(BYTES)].sum().sum()
        assert (seen["frame.len"] <= 1514).all()
        kept = seen["frame.cap_len"] - 34 - seen["tcp.hdr_len"]
        assert (kept == (seen["tcp.len"] if option == "--capture" else 0)).all()
        assert (out / "pcap" / "uav1.pcap").stat().st_size > (
            200_000 if option == "--capture" else 0
        )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--set", "emulation.mtu=575"], "emulation.mtu"),
        (["--set", "emulation.transport=sctp"], "emulation.transport"),
        (
            ["--set", "emulation.transport=grpc", "--set", "emulation.connection=per-transfer"],
            "emulation.connection",
        ),
        (["--set", "emulation.transport=grpc", "--set", "emulation.nagle=true"], "emulation.nagle"),
        (["--set", "emulation.congestion_control=vegas9"], "emulation.congestion_control"),
        (["--capture"], "--capture"),
    ],
)
def test_choices_that_cannot_be_are_refused_by_name(words, complaint, tmp_path: Path) -> None:
    scenario = tmp_path / "small.yaml"
    scenario.write_text(TEXT)
    refused = run_testbed("run", scenario, *words, check=False)
    assert refused.returncode == 2
    # Another emulation on this machine is worth a note, too.
    (line,) = (x for x in refused.stderr.splitlines() if not x.startswith("testbed: note: "))
    assert complaint in line


def test_a_queue_that_the_kernel_lacks_is_refused(tmp_path: Path) -> None:
    from testbed.host.doctor import has_qdisc

    missing = [kind for kind in ("fq_codel", "pie", "red") if not has_qdisc(kind)]
    if not missing:
        pytest.skip("this kernel has them all")
    scenario = tmp_path / "small.yaml"
    scenario.write_text(TEXT)
    done = run_testbed("run", scenario, "--set", f"links.queue={missing[0]}", check=False)
    assert done.returncode == 2
    (line,) = (x for x in done.stderr.splitlines() if not x.startswith("testbed: note: "))
    assert line.startswith(f"testbed: links.queue: this kernel has no {missing[0]}")


def test_keys_of_tls_are_never_in_a_file(run: tuple[str, Path]) -> None:
    for path in run[1].rglob("*"):
        assert path.is_dir() or b"PRIVATE KEY" not in path.read_bytes()


def test_a_sweep_is_a_table_pictures_and_json(tmp_path: Path) -> None:
    scenario, out, found = tmp_path / "small.yaml", tmp_path / "out", tmp_path / "found.json"
    scenario.write_text(TEXT)
    words = ("--sweep", "emulation.mtu=1500,9000", "--out", out, "--json", found)
    done = run_testbed("overhead", scenario, *words)
    assert "emulation.mtu 9000" in done.stdout
    small, large = json.loads(found.read_text())["points"]
    assert large["up_bytes"]["header_bytes"] < small["up_bytes"]["header_bytes"] / 4
    assert large["up_bytes"]["payload_bytes"] == small["up_bytes"]["payload_bytes"] == 1_440_000
    for point in (small, large):
        assert sum(point["parts_s"].values()) == pytest.approx(point["measured_s"], abs=1e-9)
    names = {path.name for path in out.iterdir()}
    assert {"sweep.png", "sweep.pdf", "waterfall-1500.png", "bytes.csv", "waterfall.csv"} <= names
    refused = run_testbed("overhead", scenario, "--sweep", "emulation.mtu", check=False)
    assert refused.returncode == 2
    assert "--sweep" in refused.stderr


def test_a_stranger_is_refused_by_tls() -> None:
    import socket
    import threading

    from testbed.transport.certificates import identities
    from testbed.transport.tls import TlsStream, context
    from testbed.transport.wire import ConnectionLost, WireError

    ours, theirs = identities(1), identities(1)
    near, far = socket.socketpair()
    for sock in (near, far):
        sock.settimeout(10)
    outcome: list[BaseException] = []

    def serve() -> None:
        try:
            TlsStream(far, context(ours[0], server_side=True))
        except WireError as error:
            outcome.append(error)
        far.close()

    thread = threading.Thread(target=serve)
    thread.start()
    with pytest.raises((WireError, ConnectionLost)):
        TlsStream(near, context(theirs[1], server_side=False), server_name="node00000")
    near.close()
    thread.join(10)
    assert outcome
