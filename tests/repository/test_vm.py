# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`make test-vm`: which kernels it takes, what starts them, and how it judges; it boots none."""

import gzip
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from synthetic_run import make_run

VM = Path(__file__).parents[1] / "vm"
sys.path.append(str(VM))

import checks  # noqa: E402
import machine  # noqa: E402
import stock  # noqa: E402
from machine import Outcome, Step  # noqa: E402

NAMES = """
linux-image-6.1.0-9-amd64 linux-image-6.1.0-47-amd64 linux-image-6.1.0-50-amd64-dbg
linux-image-6.1.0-51-rt-amd64 linux-image-6.1.0-52-cloud-amd64 linux-image-6.1.0-53-amd64-unsigned
linux-image-6.12.107+deb12-amd64 linux-image-6.12.99+deb12-amd64 linux-image-6.12-amd64-dbg
"""


def test_the_newest_kernel_for_pcs_is_taken() -> None:
    assert stock.newest("6.1", NAMES) == "linux-image-6.1.0-47-amd64"
    assert stock.newest("6.12", NAMES) == "linux-image-6.12.107+deb12-amd64"
    with pytest.raises(stock.Unavailable, match=r"linux-image-6\.2.*bookworm-backports"):
        stock.newest("6.2", NAMES)


def test_what_is_missing_is_named_with_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(stock.Unavailable, match=r"apt-get install apt dpkg qemu-system-x86$"):
        stock.need()
    for program in stock.NEEDED:
        (tmp_path / program).touch(0o755)
    stock.need()


def test_the_command_ends_with_status_2_where_something_is_missing(tmp_path: Path) -> None:
    environment = os.environ | {"PATH": str(tmp_path)}
    command = [sys.executable, str(VM / "vm.py"), "--keep", str(tmp_path / "kept")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("test-vm: needs apt, dpkg, qemu-system-x86: apt-get install")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    """Of a kernel in which 9p is built in, and overlay needs two others."""
    folder = tmp_path / "root/usr/lib/modules/6.1"
    folder.mkdir(parents=True)
    (folder / "modules.dep").write_text(
        "kernel/virtio_pci.ko: kernel/virtio-ring.ko kernel/virtio.ko\n"
        "kernel/virtio-ring.ko: kernel/virtio.ko\n"
        "kernel/virtio.ko:\n"
        "kernel/overlay.ko:\n"
    )
    (folder / "kernel").mkdir()
    for name in ("virtio_pci", "virtio-ring", "virtio", "overlay"):
        (folder / "kernel" / f"{name}.ko").write_bytes(name.encode())
    busybox = tmp_path / "root/usr/bin/busybox"
    busybox.parent.mkdir()
    busybox.write_bytes(b"busy")
    return folder


def test_modules_come_after_what_they_need(modules: Path) -> None:
    found = stock.in_order(stock.STARTING, modules)
    assert [path.stem for path in found] == ["virtio", "virtio-ring", "virtio_pci", "overlay"]


def test_the_first_root_is_an_archive_as_the_kernel_reads_it(modules: Path, tmp_path: Path) -> None:
    archive = stock.initramfs(tmp_path / "root", modules)
    entries, at = {}, 0
    while at < len(archive):
        assert archive[at : at + 6] == b"070701"
        fields = [int(archive[at + 6 + 8 * k : at + 14 + 8 * k], 16) for k in range(13)]
        mode, size, length = fields[1], fields[6], fields[11]
        name = archive[at + 110 : at + 109 + length].decode()
        at += -(-(110 + length) // 4) * 4
        entries[name] = mode, archive[at : at + size]
        at += -(-size // 4) * 4
    assert list(entries)[-1] == "TRAILER!!!"
    assert entries["init"] == (stat.S_IFREG | 0o755, (VM / "init.sh").read_bytes())
    assert entries["bin/mount"] == (stat.S_IFLNK | 0o777, b"busybox")
    assert entries["bin/busybox"][1] == b"busy"
    assert entries["modules/02-virtio_pci.ko"][1] == b"virtio_pci"
    assert len(gzip.compress(archive)) < len(archive)


@pytest.mark.parametrize("script", ["init.sh", "inside.sh"])
def test_scripts_of_the_machine_are_shells(script: str) -> None:
    shell = (VM / script).read_text().partition("\n")[0].removeprefix("#!")
    subprocess.run([shell, "-n", VM / script], check=True)


def test_without_kvm_the_processor_is_emulated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kernel = stock.StockKernel("6.1", tmp_path / "vmlinuz", tmp_path, tmp_path / "initramfs")
    monkeypatch.setattr(machine, "KVM", tmp_path / "kvm")
    assert machine.accelerator(kernel) == ("tcg", f"{tmp_path}/kvm cannot be opened")


@pytest.mark.parametrize(("says", "found"), [("Linux version 6", "kvm"), ("no MSR", "tcg")])
def test_kvm_counts_where_a_kernel_speaks_under_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str, found: str
) -> None:
    kernel = stock.StockKernel("6.1", tmp_path / "vmlinuz", tmp_path, tmp_path / "initramfs")
    (tmp_path / "kvm").touch(0o600)
    monkeypatch.setattr(machine, "KVM", tmp_path / "kvm")
    monkeypatch.setattr(machine, "KVM_S", 1.0)
    monkeypatch.setattr(machine, "_qemu", lambda *_: ["sh", "-c", f"echo {says}; exec sleep 60"])
    assert machine.accelerator(kernel)[0] == found


def test_what_a_step_left_is_read_and_one_that_never_ended_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.out").write_text("said")
    (tmp_path / "a.json").write_text('{"status": 3, "seconds": 1.5}')
    assert machine.outcome(tmp_path, "a") == Outcome(3, 1.5, "said", "")
    assert machine.outcome(tmp_path, "b") == Outcome(None, 0.0, "", "")
    assert checks.fine(Outcome(3, 1.5, "said", "line\nlast\n")) == ["status 3: last"]


def test_checks_have_names_of_their_own_and_may_be_told_to_the_machine() -> None:
    steps = [check.step for check in checks.checks(Path("/results"))]
    assert len({step.name for step in steps}) == len(steps)
    assert {step.user for step in steps if step.words[:2] == ["testbed", "doctor"]} == {False, True}
    assert any(step.docker and step.learning for step in steps)
    assert all(isinstance(step, Step) and step.limit_s for step in steps)
    ours = {Path(word).name for step in steps for word in step.words if word.endswith(".json")}
    assert len(ours) == 3
    assert not ours & {f"{step.name}.json" for step in steps}


def judged(name: str, outcome: Outcome, results: Path) -> list[str]:
    (check,) = [check for check in checks.checks(results) if check.step.name == name]
    return list(check.judge(outcome, results))


FINE = Outcome(0, 1.0, "", "")


def test_a_run_is_held_to_its_steps_and_to_no_dropped_frame(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "bytes")
    manifest = json.loads((folder / "manifest.json").read_text())
    for value, faults in ((0.0, []), (0.05, ["queues dropped 5.00% of the frames of uav1 up"])):
        dropped = {"check": "dropped_frames", "value": value, "limit": 0.01, "where": "uav1 up"}
        told = manifest | {"validity": [dropped | {"ok": not faults}]}
        (folder / "manifest.json").write_text(json.dumps(told))
        assert judged("bytes", FINE, tmp_path) == faults
    failed = Outcome(1, 1.0, "", "testbed: no")
    assert judged("bytes", failed, tmp_path) == ["status 1: testbed: no"]


@pytest.mark.parametrize(
    ("name", "by", "lost", "arrived", "faults"),
    [
        ("delay", "netem", 0, 1000, []),
        ("delay", "process", 0, 1000, ["who delays frames is not the kernel but "]),
        ("delay", "netem", 1, 999, ["frames were lost where none were to be"]),
        ("loss", "netem", 20, 980, []),
        ("loss", "netem", 0, 2000, ["0 of 2000 frames were lost, 2% were asked for"]),
        ("loss", "netem", 43, 957, ["43 of 1000 frames were lost, 2% were asked for"]),
    ],
)
def test_frames_are_lost_as_asked_and_none_by_a_delay(
    tmp_path: Path, name: str, by: str, lost: int, arrived: int, faults: list[str]
) -> None:
    folder = make_run(tmp_path / name)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest |= {"air": {"delayed_and_lost_by": by}}
    manifest["validity"] = [{"check": "dropped_frames", "value": 0, "limit": 0.01, "ok": True}]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    links = {"lost_frames": [lost, 0], "arrived_frames": [arrived - 1, 1]}
    pd.DataFrame(links).to_parquet(folder / "air.parquet")
    found = judged(name, FINE, tmp_path)
    assert len(found) == len(faults)
    assert all(map(str.startswith, found, faults))


def test_bbr_is_refused_with_how_to_get_it(tmp_path: Path) -> None:
    said = "if it has the module, `modprobe tcp_bbr` as root loads it"
    assert judged("bbr-refused", Outcome(2, 1.0, "", said), tmp_path) == []
    assert judged("bbr-refused", FINE, tmp_path) != []
    assert judged("bbr-refused", Outcome(2, 1.0, "", "no bbr"), tmp_path) != []


def test_a_bundle_is_verified_with_what_differs(tmp_path: Path) -> None:
    told = {"ok": True, "not_emulated": None, "environment": {"kernel": [], "cpu": []}}
    for change, faults in (
        ({}, 0),
        ({"ok": False}, 1),
        ({"not_emulated": "no namespaces"}, 1),
        ({"environment": {"cpu": []}}, 1),
    ):
        (tmp_path / checks.VERIFIED).write_text(json.dumps(told | change))
        assert len(judged("verify", FINE, tmp_path)) == faults
