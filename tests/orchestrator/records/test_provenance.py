# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The recorded command: pasted into a shell, it is the same command, wherever it is shown."""

import html
import json
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from synthetic_run import make_run, make_session

from orchestrator.archive.bundle import bundle
from orchestrator.records import manifest
from orchestrator.records.manifest import command_of, environment, invocation, provenance
from orchestrator.records.reader import read_run
from orchestrator.reporting.pages import TEMPLATES
from orchestrator.reporting.report import render
from orchestrator.reporting.session_report import write_session_report
from testbed.system import inside

WORDS = [
    ["run", "quickstart", "--out", "runs/first"],
    ["up", "s.yaml", "--until", "uav*", "--node", "uav*=echo one; echo two"],
    ["run", "q", "--set", "uavs.tx_power_w=[1, 0.4, 0.1]", "--out", "my session"],
    ["up", "q", "--node", 'bs=echo "a  b"', "--node", "uav1=it's $HOME && `id` | cat > x"],
    ["up", "q", "--node", "bs=line one\nline two\ttab"],
    ["run", "", "--set", "name=Überflug 無人機 \N{RIGHT-TO-LEFT OVERRIDE}x"],
    ["run", "~", "--set", "{a,b}", "#no", "!!", "\\", "-", "--", "a=b", "%s", "^x", "?"],
    ["up", "q", "--node", "bs=one\rtwo\r\n\x1b[0m"],
    ["run", "</pre><b>", "&amp;", "{{ 1 }}", "``` x ````"],
    [],
]
given = pytest.mark.parametrize("words", WORDS, ids=range(len(WORDS)))


@given
def test_a_shell_splits_the_text_into_the_words(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/testbed", *words])
    said = json.loads(json.dumps(invocation()))
    assert said["argv"] == ["testbed", *words]
    assert shlex.split(said["command"]) == ["testbed", *words]
    assert command_of(said) == said["command"]
    told = subprocess.run(
        ["bash", "-c", f"testbed() {{ printf '%s\\0' \"$@\"; }}; {said['command']}"],
        capture_output=True,
        check=True,
    )
    assert told.stdout.decode().split("\0")[:-1] == (words or [""])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("made") / "run")


def record(folder: Path, words: list[str]) -> None:
    path = folder / "manifest.json"
    full = ["testbed", *words]
    entries = {"argv": full, "command": shlex.join(full)} | environment()
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


def copied(page: str) -> list[str]:
    """The words of what the button of a page copies."""
    (name,) = re.findall(r'data-copy="(command-\d+)"', page)
    (text,) = re.findall(rf'<pre id="{name}">(.*?)</pre>', page, re.S)
    return shlex.split(html.unescape(text))


@given
def test_pages_and_bundles_show_the_same_words(
    words: list[str], made: Path, tmp_path: Path
) -> None:
    record(made, words)
    assert copied(render(read_run(made))) == ["testbed", *words]
    session = make_session(tmp_path / "session")
    record(session, words)
    assert copied(write_session_report(session).read_text("utf-8")) == ["testbed", *words]
    bundle(made, tmp_path / "run.zip")
    with zipfile.ZipFile(tmp_path / "run.zip") as packed:
        readme = packed.read("README.md").decode()
        crate = json.loads(packed.read("ro-crate-metadata.json"))
    (fence,) = re.findall(r"^(`+)sh$", readme, re.M)
    text = readme.partition(f"{fence}sh\n")[2].partition(f"\n{fence}\n")[0]
    assert shlex.split(text) == ["testbed", *words]
    (action,) = (it for it in crate["@graph"] if it["@type"] == "CreateAction")
    assert shlex.split(action["description"]) == ["testbed", *words]


def test_a_command_without_quotes_is_shown_but_not_offered(made: Path) -> None:
    run = read_run(made)
    run.manifest["command"] = "testbed up q --node uav1=a; b"
    del run.manifest["argv"]
    page = render(run)
    assert "testbed up q --node uav1=a; b</pre>" in page
    assert "recorded this command without quotes" in page
    assert 'data-copy="command' not in page
    run.manifest["command"] = ["testbed", "up", "q", "--node", "uav1=a; b"]
    assert copied(render(run)) == run.manifest["command"]
    run.manifest["command"] = None
    assert "<h3>Command</h3>" not in render(run)


def test_a_program_that_calls_the_functions_is_named_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["study.py", "a b"])
    monkeypatch.setattr(sys, "orig_argv", ["/usr/bin/python3", "study.py", "a b"])
    assert invocation()["argv"] == ["python", "study.py", "a b"]
    ours = Path(manifest.__file__).parents[1] / "__main__.py"
    monkeypatch.setattr(sys, "argv", [str(ours), "predict", "paper"])
    assert invocation()["argv"] == ["testbed", "predict", "paper"]


def test_a_guest_records_the_command_and_the_cpu_of_its_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert environment()["host_cpu"] == environment()["cpu"]
    settings: dict[str, Any] = {"argv": ["testbed", "run", "a b"], "host_cpu": "Some CPU"}
    settings["started_s"] = 0
    monkeypatch.setattr(inside, "guest_settings", lambda: settings)
    assert environment()["host_cpu"] == "Some CPU"
    assert environment()["cpu"] == manifest.cpu()
    assert invocation()["command"] == "testbed run 'a b'"


def test_every_page_of_results_has_a_provenance() -> None:
    assert {"command", "argv", "made", "testbed_version"} <= provenance().keys()
    pages = [
        path
        for path in TEMPLATES.glob("*.html")
        if '{% extends "page.html" %}' in path.read_text("utf-8")
    ]
    without = {p.stem for p in pages if '{% include "provenance.html" %}' not in p.read_text()}
    assert len(pages) > 10
    assert without == {"index", "live", "live_session"}
