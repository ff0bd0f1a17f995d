# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What shell completion offers: keys and their values, names, and files."""

import os
from pathlib import Path

import pytest
import warm

from orchestrator.cli import completion
from orchestrator.cli.study import FIGURES
from orchestrator.exchange.formats import FORMATS
from orchestrator.policies.agent import VARIANTS


def offered(line: str, cwd: Path, bash: bool = False) -> list[str]:
    """What is offered for the last word of a line; of `bash` also the words that it splits."""
    words = line.split(" ")
    if bash:
        words = [part for word in words for part in word.replace("=", " = ").split(" ")]
        words = [word for word in words if word]
    env = {
        "_TESTBED_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    done = warm.run(cwd=cwd, env=os.environ | env)
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("testbed predict paper --set emulation.transp", ["tcp", "tls", "grpc", "quic"]),
        ("testbed predict paper --set radio.access=", ["shannon", "lte", "nr", "wifi"]),
        ("testbed predict paper --set radio.fading=r", ["rayleigh", "rician"]),
        ("testbed run paper --set emulation.nagle=", ["true", "false"]),
        ("testbed run paper --set allocation.policy=pl", ["planner"]),
        ("testbed run paper --set links.loss.model=s", ["snr"]),
    ],
)
def test_a_key_and_its_values(tmp_path: Path, line: str, expected: list[str]) -> None:
    key = {"emulation.transp": "emulation.transport="}.get(line.split()[-1])
    key = key or line.split()[-1].partition("=")[0] + "="
    assert offered(line, tmp_path) == [f"{key}{value}" for value in expected]


def test_keys_that_begin_so(tmp_path: Path) -> None:
    found = offered("testbed up paper --set workload.local_it", tmp_path)
    assert found == ["workload.local_iterations="]
    found = offered("testbed up paper --set radio.wifi.", tmp_path)
    assert {"radio.wifi.standard=", "radio.wifi.width_mhz="} <= set(found)
    assert not any("[]" in key for key in offered("testbed up paper --set ", tmp_path))


@pytest.mark.parametrize("join", ["--set ", "--set="])
def test_bash_gets_only_what_follows_the_equal_sign(tmp_path: Path, join: str) -> None:
    line = f"testbed predict paper {join}"
    assert offered(f"{line}radio.access=l", tmp_path, bash=True) == ["lte"]
    assert offered(f"{line}radio.access=", tmp_path, bash=True) == ["shannon", "lte", "nr", "wifi"]
    assert offered(f"{line}paradigm=pipesfl-no-p", tmp_path, bash=True) == ["pipesfl-no-ps"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("testbed import ", list(FORMATS)),
        ("testbed import m", ["mahimahi"]),
        ("testbed reproduce ", [*FIGURES, "all"]),
        ("testbed reproduce table2 fig", list(FIGURES[1:])),
        ("testbed reproduce fig4 --radio ", ["lte", "nr", "fitted"]),
        ("testbed train paper --variant ", list(VARIANTS)),
        ("testbed validate paper --model tau2", ["tau2", "tau2-hat"]),
        ("testbed fit a.npz --model rma", ["rma-av"]),
        ("testbed trace paper --radio ns3-w", ["ns3-wifi"]),
        ("testbed up paper --downlink s", ["shared"]),
        ("testbed verify b.zip --clock ", ["real", "virtual"]),
        ("testbed export r --to t", ["tensorboard"]),
        ("testbed overhead paper --sweep emulation.transport=tcp,t", ["tcp", "tls"]),
        ("testbed run paper --ca", ["--capture", "--capture-headers"]),
        ("testbed run paper --pc", []),
    ],
)
def test_names(tmp_path: Path, line: str, expected: list[str]) -> None:
    before = "emulation.transport=tcp," if "--sweep" in line else ""
    assert offered(line, tmp_path) == [f"{before}{word}" for word in expected]


def test_the_metric_of_a_validation(tmp_path: Path) -> None:
    assert "latency_s" in offered("testbed validate paper --metric ", tmp_path)


def test_files_and_folders(tmp_path: Path) -> None:
    for name in ("a.npz", "a.yaml", "a.json", ".hidden.yaml", "deep/b.yaml", "deep/c.zip"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    built_in = ["hundred", "paper", "quickstart"]
    assert offered("testbed run ", tmp_path) == [*built_in, "a.yaml", "deep/"]
    assert offered("testbed run d", tmp_path) == ["deep/"]
    assert offered("testbed run deep/", tmp_path) == ["deep/b.yaml"]
    assert offered("testbed run p", tmp_path) == ["paper"]
    assert offered("testbed campaign run q", tmp_path) == ["quickstart"]
    assert offered("testbed run paper --trace ", tmp_path) == ["a.npz", "deep/"]
    assert offered("testbed verify deep/", tmp_path) == ["deep/c.zip"]
    assert offered("testbed report ", tmp_path) == ["deep/"]
    assert offered("testbed predict paper --json a", tmp_path) == ["a.json"]
    assert completion.files()(f"{tmp_path}/nothing/") == []
