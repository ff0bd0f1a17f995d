# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Every option of every command has an effect, or is refused where it would have none."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
import warm
from small_campaign import write_campaign
from small_scenario import TEXT

from orchestrator.archive import verify
from orchestrator.archive.unpack import Unpacked
from orchestrator.cli.main import app
from testbed.core.errors import InputError
from testbed.host.dask_cluster import Cluster

USED = ""
"""The option has an effect in every mode of its command."""
NO_SCHEDULER = "--key: needs --scheduler, which the key belongs to"
TWO_SORTS = "--workers: are processes of this machine; --scheduler has its own"
NO_FOLDER = "--overwrite: needs --out, the folder whose results are replaced"
NOTHING = "--resume: o does not exist: there is no"


def resumed(call: str, what: str) -> dict[str, str | tuple[str, str]]:
    """The rows of a command that finds in its folder what it resumes."""
    return {"--overwrite": USED, "--resume": (f"{call} --out o --resume", f"{NOTHING} {what}")}


OPTIONS: dict[str, dict[str, str | tuple[str, str]]] = {
    "init": {"file": USED},
    "combinations": {"--json": USED},
    "show": {"scenario": USED, "--trace": USED, "--set": USED, "--json": USED},
    "trace": {"scenario": USED, "--slots": USED, "--out": USED, "--set": USED, "--radio": USED}
    | {
        "--trace": (
            "trace s.yaml --slots 2 --out t.npz --trace r.npz",
            "--trace: needs --radio; a trace of gains is there already",
        )
    }
    | {
        option: (
            f"trace s.yaml --slots 2 --out t.npz --radio ns3-lte {option} {value}".strip(),
            f"{option}: needs --radio ns3-wifi",
        )
        for option, value in (
            *(("--wifi-standard", "ac"), ("--wifi-width-mhz", "40")),
            *(("--rts", ""), ("--wifi-ap-w", "2")),
        )
    },
    "predict": {"scenario": USED, "--trace": USED, "--rounds": USED, "--set": USED}
    | {"--wire": USED, "--learned": USED, "--json": USED, "--steps": USED},
    "export-trace": {"trace_file": USED, "--out": USED, "--format": USED, "--overwrite": USED}
    | {
        "--scenario": (
            "export-trace r.npz --out o --scenario s.yaml",
            "--scenario: must be absent, since r.npz has rates",
        ),
        "--set": (
            "export-trace r.npz --out o --set rounds=1",
            "--set: apply to a scenario; give --scenario, too",
        ),
    },
    "fit": {"files": USED, "--model": USED, "--json": USED, "--out": USED}
    | {"--overwrite": ("fit r.npz --overwrite", NO_FOLDER)},
    "forecast": {"scenario": USED, "--fit": USED, "--flight": USED, "--reveal": USED}
    | {"--set": USED, "--json": USED, "--out": USED}
    | {
        "--overwrite": ("forecast s.yaml --fit f.json --flight r.npz --overwrite", NO_FOLDER),
        "--sealed": (
            "forecast s.yaml --fit f.json --flight r.npz --sealed c.json",
            "--sealed: needs --reveal",
        ),
    }
    | {
        option: (
            f"forecast s.yaml --fit f.json --flight r.npz --reveal --sealed c.json {option} 7",
            f"{option}: must be absent with --sealed",
        )
        for option in ("--offered-bps", "--like")
    },
    "run": {"scenario": USED, "--trace": USED, "--rounds": USED, "--set": USED, "--json": USED}
    | {"--out": USED, "--live": USED, "--strict": USED, "--scheduler": USED}
    | {
        "--wait-quiet": (
            "run s.yaml --set emulation.clock=virtual --wait-quiet 1s",
            "--wait-quiet: must be absent where emulation.clock is 'virtual'",
        ),
        "--overwrite": (
            "run s.yaml --overwrite",
            "--overwrite: needs --out, the folder that is replaced",
        ),
        "--resume": (
            "run s.yaml --resume",
            "--resume: needs --out, the folder of the run that is resumed",
        ),
        "--capture": ("run s.yaml --capture", "--capture: needs --out DIR, where captures are"),
        "--capture-headers": (
            "run s.yaml --capture --capture-headers --out o",
            "--capture, --capture-headers: give one of them",
        ),
        "--key": ("run s.yaml --key k", NO_SCHEDULER),
    },
    "report": {
        "run_dir": USED,
        "--figures": ("report session --figures", "--figures: only for runs; session holds a"),
    },
    "compare": {"given": USED, "--out": USED, "--json": USED}
    | {"--target": USED, "--learned": USED, "--figures": USED},
    "perfetto": {"run_dir": USED, "--out": USED},
    "up": {"scenario": USED, "--out": USED, "--trace": USED, "--seconds": USED, "--node": USED}
    | {"--downlink": USED, "--capture": USED, "--live": USED, "--scheduler": USED}
    | {
        "--wait-quiet": (
            "up s.yaml --out o --set emulation.clock=virtual --seconds 1 --wait-quiet 1s",
            "--wait-quiet: must be absent where emulation.clock is 'virtual'",
        ),
        "--set": USED,
        "--overwrite": USED,
        "--until": (
            "up s.yaml --out o --until bs",
            "--until: bs has no command that could end",
        ),
        "--key": ("up s.yaml --out o --key k", NO_SCHEDULER),
    },
    "bundle": {"directory": USED, "--out": USED, "--with-data": USED},
    # For a run and for a campaign, see the test below.
    "verify": {"bundle": USED, "--sample": USED, "--tolerance": USED, "--clock": USED}
    | {"--workers": USED, "--json": USED},
    "theory": {"scenario": USED, "--trace": USED, "--set": USED, "--json": USED},
    "cross-check": {"scenario": USED, "--trace": USED, "--rounds": USED, "--set": USED}
    | {"--json": USED, "--out": USED, "--emulated": USED, "--delay-ms": USED}
    | {"--overwrite": ("cross-check s.yaml --overwrite", NO_FOLDER)},
    "validate": {"scenario": USED, "--model": USED, "--space": USED, "--samples": USED}
    | {"--packets": USED, "--kernel": USED, "--tolerance": USED, "--metric": USED, "--seed": USED}
    | {"--set": USED, "--json": USED, "--out": USED, "--scheduler": USED}
    | resumed("validate s.yaml --model tau2-hat", "validation")
    | {
        "--key": ("validate s.yaml --model tau2-hat --key k", NO_SCHEDULER),
        "--workers": (
            "validate s.yaml --model tau2-hat --scheduler tcp://x:1 --workers 2",
            TWO_SORTS,
        ),
    },
    "overhead": {"scenario": USED, "--trace": USED, "--rounds": USED, "--set": USED}
    | {"--sweep": USED, "--json": USED, "--out": USED}
    | {"--overwrite": ("overhead s.yaml --overwrite", NO_FOLDER)},
    "reproduce": {
        "what": USED,
        "--out": USED,
        "--overwrite": USED,
        "--resume": ("reproduce fig4 --resume", "--resume: only for fig8, which keeps its"),
        "--rounds": ("reproduce fig8 --rounds 9", "--rounds: must be absent for fig8"),
        "--radio": (
            "reproduce table2 --radio lte",
            "--radio: must be absent for table2; it is for figures 3 to 7",
        ),
        "--fit": (
            "reproduce fig4 --radio lte --fit F.json",
            "--fit: must be absent without --radio fitted",
        ),
    },
    "index": {"folder": USED, "--json": USED},
    "learn": {"scenario": USED, "--out": USED, "--rounds": USED, "--set": USED}
    | {"--overwrite": USED, "--resume": USED, "--seeds": USED}
    | {"--scheduler": USED, "--workers": USED}
    | {"--key": ("learn s.yaml --out o --key k", NO_SCHEDULER)},
    "train": {"scenario": USED, "--out": USED, "--variant": USED, "--rounds": USED, "--set": USED}
    | {"--tensorboard": USED, "--emulated": USED}
    | resumed("train s.yaml", "trained agent"),
    "evaluate": {"scenario": USED, "--trace": USED, "--rounds": USED, "--set": USED}
    | {"--json": USED},
    "export": {"run_dir": USED, "--out": USED, "--to": USED}
    | {
        option: (
            f"export session --to mlflow --out o {option} {value}".strip(),
            f"{option}: has no effect with --to mlflow",
        )
        for option, value in (("--overwrite", ""), ("--state", "best"), ("--client", "1"))
    },
    "doctor": {"--json": USED, "--scheduler": USED, "--key": ("doctor --key k", NO_SCHEDULER)},
    "clean": {},
    "host": {"address": USED, "--key": USED, "--name": USED},
    "exec": {"folder": USED, "node": USED, "command": USED},
    "import": {"kind": USED, "files": USED, "--out": USED, "--slot-s": USED, "--from": USED}
    | {"--to": USED, "--repeat": USED}
    | {
        option: (
            f"import mahimahi d --out o.npz {option} {value}".strip(),
            f"{option}: is not used",
        )
        for option, value in (
            *(("--column", "time=t"), ("--no-header", ""), ("--time-format", "%Y")),
            *(("--same-time", "last"), ("--no-signal", "0"), ("--tx-dbm", "1")),
            *(("--scenario", "s.yaml"), ("--height-m", "30"), ("--ground-m", "1")),
            *(("--speed", "3"), ("--origin", "1,2"), ("--within-km", "3")),
            *(("--fastest-m-s", "3"), ("--longest-gap-s", "3"), ("--clock", "each")),
            ("--hold", ""),
            *(("--ue", "u"), ("--enb", "e"), ("--vehicle", "v"), ("--base-station", "1,2,3")),
        )
    }
    | {
        "--down": ("import csv d --out o.npz --down d", "--down: is not used by the format csv"),
        "--set": (
            "import mahimahi d --out o.npz --set rounds=1",
            "--set: apply to a scenario; give --scenario, too",
        ),
    },
    "campaign run": {"given": USED, "--out": USED, "--scheduler": USED, "--retry-invalid": USED}
    | resumed("campaign run small.yaml", "campaign")
    | {
        "--key": ("campaign run small.yaml --key k", NO_SCHEDULER),
        "--workers": (
            "campaign run small.yaml --scheduler tcp://x:1 --workers 2",
            TWO_SORTS,
        ),
    },
    "campaign status": {"given": USED, "--out": USED},
    "campaign report": {"given": USED, "--out": USED},
    "campaign table": {"given": USED, "--out": USED, "--json": USED},
    "campaign verify": {"given": USED, "--out": USED, "--sample": USED, "--tolerance": USED}
    | {"--scheduler": USED, "--json": USED}
    | {
        "--key": ("campaign verify small.yaml --key k", NO_SCHEDULER),
        "--workers": (
            "campaign verify small.yaml --scheduler tcp://x:1 --workers 2",
            TWO_SORTS,
        ),
    },
    "campaign scheduler": {"--host": USED, "--key": USED, "--port": USED},
    "campaign worker": {"address": USED, "--key": USED, "--machine": USED}
    | {
        "--workers": (
            "campaign worker tcp://x:1 --key k --machine --workers 2",
            "--workers: must be absent with --machine, which starts one worker",
        ),
    },
    "kernel build": {"--source": USED, "--jobs": USED},
    "kernel status": {"--json": USED},
    "kernel warm": {"command": USED},
    "radio build": {"part": USED, "--source": USED, "--jobs": USED},
    "radio status": {"--json": USED},
}
"""By command and option: a call in which it would have no effect, and its refusal; or `USED`."""
REFUSED = [
    (command, option, *row)
    for command, rows in OPTIONS.items()
    for option, row in rows.items()
    if isinstance(row, tuple)
]


def commands() -> Iterator[tuple[str, Any]]:
    """Every command by its words."""

    def within(command: Any, words: str) -> Iterator[tuple[str, Any]]:
        if not hasattr(command, "commands"):
            yield words, command
            return
        for name, inner in command.commands.items():
            yield from within(inner, f"{words} {name}".strip())

    yield from within(typer.main.get_command(app), "")


def name_of(parameter: Any) -> str:
    """The name of an argument, or the first long name of an option: others are former names."""
    is_option = parameter.param_type_name == "option"
    return str(next(o for o in parameter.opts if o[:2] == "--") if is_option else parameter.name)


def test_the_table_has_every_option_of_every_command() -> None:
    found = {words: {name_of(each) for each in command.params} for words, command in commands()}
    assert found == {command: set(rows) for command, rows in OPTIONS.items()}


@pytest.mark.parametrize(("words", "command"), [*commands()], ids=lambda given: str(given)[:20])
def test_a_command_reads_each_of_its_options(words: str, command: Any) -> None:
    function: Callable[..., None] = inspect.unwrap(command.callback)
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    (body,) = tree.body
    assert isinstance(body, ast.FunctionDef)
    read = {
        node.id
        for statement in body.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    assert {each.name for each in command.params} <= read


@pytest.mark.parametrize(
    ("command", "option", "call", "says"), REFUSED, ids=[" ".join(row[:2]) for row in REFUSED]
)
def test_an_option_without_effect_is_refused(
    tmp_path: Path, command: str, option: str, call: str, says: str
) -> None:
    (tmp_path / "s.yaml").write_text(TEXT)
    write_campaign(tmp_path)
    bps = np.full((3, 9), 1e7)
    np.savez(tmp_path / "r.npz", uplink_bps=bps, downlink_bps=bps, slot_s=1)
    (tmp_path / "session").mkdir()
    (tmp_path / "session" / "session.parquet").touch()
    before = sorted(tmp_path.rglob("*"))
    done = warm.run(*call.split(), cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"testbed: {says}")
    assert option in line
    assert call.startswith(command)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("kind", "given", "says"),
    [
        ("run", {"cluster": Cluster(workers=1)}, "`workers`: only for a campaign; b.zip holds a"),
        ("campaign", {"clock": "real"}, "`clock`: only for a run; b.zip holds a campaign"),
    ],
)
def test_verifying_refuses_what_the_kind_of_bundle_does_not_use(
    monkeypatch: pytest.MonkeyPatch, kind: str, given: dict[str, Any], says: str
) -> None:
    def unpack(bundle: Path, folder: Path) -> Unpacked:
        return Unpacked(folder, kind, {}, {})

    monkeypatch.setattr(verify, "unpack", unpack)
    with pytest.raises(InputError, match=says):
        verify.verify(Path("b.zip"), lambda *_: None, **given)
