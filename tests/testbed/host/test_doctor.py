# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The doctor: what it finds by trying, and what it says where something is missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.core.errors import RunError
from testbed.host import doctor, line_speed


def test_on_a_machine_that_runs_the_other_tests_the_needed_things_are_found():
    findings = {finding.name: finding for finding in doctor.examine()}
    assert findings["namespaces"].ok
    assert findings["links"].ok
    assert findings["tunnels"].ok
    carries = "VXLAN carries links" if os.geteuid() == 0 else "a relay carries links"
    assert carries in findings["tunnels"].detail
    assert "htb yes, tbf yes, bfifo yes" in findings["other qdiscs"].detail
    for finding in findings.values():
        assert finding.detail
        assert finding.needed_for
        assert set(finding.to_json()) == {"name", "ok", "detail", "needed_for", "remedy"}
        if finding.ok:
            assert finding.remedy == ""


def test_without_namespaces_it_says_how_to_get_them(monkeypatch):
    monkeypatch.setattr(
        doctor,
        "_probe",
        lambda: {"error": "unshare: Operation not permitted", "scheduling": "fifo", "landlock": ""},
    )
    findings = {finding.name: finding for finding in doctor.examine()}
    assert not findings["namespaces"].ok
    assert "Operation not permitted" in findings["namespaces"].detail
    assert "run as root" in findings["namespaces"].remedy
    assert not findings["links"].ok
    assert findings["tunnels"].detail == "cannot be tried: see namespaces"


@pytest.mark.parametrize(
    ("knob", "value", "remedy"),
    [
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "restrict_unprivileged_userns=0"),
        ("kernel/unprivileged_userns_clone", "0", "unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "user.max_user_namespaces=15000"),
    ],
)
def test_the_knob_that_forbids_user_namespaces_is_named(monkeypatch, tmp_path, knob, value, remedy):
    (tmp_path / knob).parent.mkdir()
    (tmp_path / knob).write_text(value + "\n")
    monkeypatch.setattr(doctor, "_SYSCTL", tmp_path)
    assert remedy in doctor._namespaces({"error": "no"}).remedy
    (tmp_path / knob).write_text({"0": "1", "1": "0"}[value])
    assert doctor._namespaces({"error": "no"}).remedy == "run as root"


NO_MPU = "rate = shaping._rate; shaping._rate = lambda bytes_s, least_bytes=0: rate(bytes_s)"


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (NO_MPU, "a closed link lets frames through"),
        ("shaping.End.change = lambda self, rate_bps: []", "does not release"),
        ("shaping.attribute = lambda kind, value: b''", "the kernel refused"),
    ],
)
def test_a_kernel_that_cannot_hold_frames_is_found_out(fault, words):
    program = f"""
from testbed.host import doctor
from testbed.system import linux
from testbed.network import shaping
{fault}
linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNET)
print(doctor._try_links())
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert words in found.stdout, found.stderr


def test_a_qdisc_that_no_kernel_has_is_missed():
    program = """
from testbed.host import doctor
from testbed.system import linux
linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNET)
print(doctor._knows_qdisc("nonesuch"), doctor._knows_qdisc("htb"))
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.stdout.split() == ["False", "True"], found.stderr


def test_no_docker_is_a_finding_in_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    finding = doctor._docker()
    assert not finding.ok
    assert finding.detail == "no daemon answers: No such file or directory"
    assert "dockerd" in finding.remedy or "root" in finding.remedy


@pytest.mark.parametrize(
    ("enabled", "parser", "lacks"), [("Y", False, True), ("Y", True, False), ("N", False, False)]
)
def test_docker_needs_apparmors_parser_where_the_kernel_has_apparmor(
    monkeypatch, tmp_path, enabled, parser, lacks
):
    class Client:
        def version(self):
            return {"Version": "20.1"}

        def close(self):
            pass

    monkeypatch.setattr("docker.from_env", lambda timeout: Client())
    monkeypatch.setattr(doctor.os, "geteuid", lambda: 0)
    monkeypatch.setattr(doctor, "APPARMOR", tmp_path / "enabled")
    monkeypatch.setattr(doctor.shutil, "which", lambda name, path: "/it" if parser else None)
    (tmp_path / "enabled").write_text(enabled + "\n")
    found = doctor._docker()
    assert found.ok == (not lacks)
    assert ("apt-get install apparmor" in found.remedy) == lacks


@pytest.mark.parametrize(("there", "says"), [("reno cubic", True), ("reno cubic bbr", False)])
def test_what_loads_bbr_is_said_where_it_is_not_loaded(monkeypatch, tmp_path, there, says):
    knobs = tmp_path / "net" / "ipv4"
    knobs.mkdir(parents=True)
    (knobs / "tcp_available_congestion_control").write_text(there + "\n")
    (knobs / "tcp_congestion_control").write_text("cubic\n")
    monkeypatch.setattr(doctor, "_SYSCTL", tmp_path)
    found = doctor._congestion_controls()
    assert found.ok
    assert ("modprobe tcp_bbr" in found.detail) == says


@pytest.mark.parametrize(
    ("tries", "field", "what"),
    [
        (doctor.has_netem, "doctor", "what namespaces allow"),
        (line_speed.measure, "links", "the frame rate of links"),
    ],
)
def test_a_trial_that_fails_is_one_line(tries, field, what, monkeypatch, tmp_path: Path):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho first >&2\necho why >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with pytest.raises(RunError) as failed:
        tries()
    assert str(failed.value) == f"{field}: the process that tries {what} failed: why"
