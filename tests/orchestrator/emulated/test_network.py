# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`tb.Network`, and `nodes` of a scenario."""

import json
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pytest
from small_scenario import AT_ONCE, TREE

import orchestrator as tb
from orchestrator.emulated.network import EmulatedNetwork
from orchestrator.scenario.loading import validate
from testbed.core.node import BS, uav
from testbed.runtimes import OWN_FOLDERS

TRACE = {"gain": np.full((3, 400), 1e-10), "slot_s": 0.1}
FLOOD = (
    "import socket\n"
    "s = socket.socket(type=socket.SOCK_DGRAM)\n"
    "while True: s.sendto(bytes(1000), ('bs', 9))\n"
)


def scenario(*, calibrate=False, **nodes):
    emulation = AT_ONCE | {"calibrate": calibrate}
    return validate(TREE | {"nodes": nodes, "emulation": emulation}, "small")


def test_programs_come_and_go_and_the_tables_say_what_was_carried() -> None:
    threads = threading.active_count()
    with tb.Network(scenario(), TRACE) as net:
        flood = net["uav2"].popen([sys.executable, "-c", FLOOD])
        echo = net["uav1"].popen(
            "cat; hostname >&2; exit 3",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert echo.communicate("typed\n", 20) == ("typed\nuav1\n", None)
        assert (echo.returncode, flood.poll()) == (3, None)
        assert net.run(1.0) == "time"
        assert len(net.rates) >= 10 * 3 * 2
        flood.terminate()
        assert flood.wait(10) == -15
        done = net["bs"].run(["sh", "-c", "echo $A $TESTBED_NODE $PWD"])
        assert (done.returncode, done.stdout.split()[0]) == (0, "bs")
        with pytest.raises(subprocess.TimeoutExpired):
            net["bs"].run(["sleep", "60"], timeout=0.1)
        with pytest.raises(tb.InputError, match=r"^`args`: there is no program 'nonsense'"):
            net["bs"].popen(["nonsense"])
        with pytest.raises(tb.InputError, match=r"^`node`: 'uav4' is not one of"):
            net["uav4"]
        home = net["bs"].home
        assert (net.valid, len(net.checks), net.calibration) == (None, 0, None)
    assert not home.exists()
    checks = net.checks.set_index("check")
    assert {"exhausted_slots", "injector_lateness_s", "transfer_error"} <= set(checks.index)
    assert (checks.ok == (checks.value <= checks.limit)).all()
    assert net.valid == checks.ok.all()
    rates, carried = net.rates, net.carried
    assert list(rates) == ["slot", "client", "direction", "rate_bps"]
    assert list(carried)[3:] == ["offered_bytes", "carried_bytes", "queued_bytes"]
    total = carried.groupby(["client", "direction"]).carried_bytes.sum()
    assert total[2, "up"] > 10 * total[1, "up"]
    assert total[2, "up"] > 0.3 * carried[carried.client == 2].offered_bytes.iloc[0] * 10
    assert threading.active_count() == threads
    with pytest.raises(tb.RunError, match="has been closed"):
        net.run(1)


def test_behind_a_traces_end_there_are_no_slots_and_slots_are_as_long_as_its(tmp_path) -> None:
    trace = {"gain": np.full((3, 5), 1e-10), "slot_s": 0.2}
    with tb.Network(scenario(), trace, out=tmp_path / "out") as net:
        assert net.run(5) == "trace"
        time.sleep(1.5)
        assert net.run(1) == "trace"
        assert set(net.rates.slot) == {0, 1, 2, 3, 4}
    assert set(net.rates.slot) == {0, 1, 2, 3, 4}
    assert net.checks.set_index("check").value["exhausted_slots"] == 0
    assert json.loads((tmp_path / "out/scenario.json").read_text())["slot_s"] == 0.2
    assert json.loads((tmp_path / "out/manifest.json").read_text())["ended"] == "context"
    assert "1.0 s of emulated time" in (tmp_path / "out/report.html").read_text()


def test_input_for_a_program_that_has_ended_is_not_missed() -> None:
    with tb.Network(scenario(), TRACE) as net:
        done = net["uav1"].popen(["true"], stdin=subprocess.PIPE)
        done.wait(20)
        assert done.communicate(bytes(1 << 20), 20) == (None, None)


def test_what_the_scenario_gives_its_nodes(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    measured = {"client": 1, "direction": "uplink", "level": "lowest", "rate_bps": 1e6}
    measured |= {"bytes": 1, "start_s": 0.0, "duration_s": 1.0, "due_s": 1.0, "error": 0.5}

    def calibrate(network: EmulatedNetwork, *_: object, **__: object) -> None:
        network.calibration = pd.DataFrame([measured])

    monkeypatch.setattr(EmulatedNetwork, "calibrate", calibrate)
    (tmp_path / "data").mkdir()
    given = scenario(
        calibrate=True,
        **{
            "uav*": {"command": ["sh", "-c", "echo $N >data/$TESTBED_NODE"], "env": {"N": 1}},
            "uav2": {"env": {"N": "two"}, "writable": ["data"]},
            "uav3": {"writable": ["data"]},
        },
    )
    with tb.Network(given, TRACE, out="out") as net:
        statuses = {name: program.wait(20) for name, program in net.programs.items()}
    assert statuses == {"uav1": 2, "uav2": 0, "uav3": 0}
    assert {p.name: p.read_text() for p in (tmp_path / "data").iterdir()} == {
        "uav2": "two\n",
        "uav3": "1\n",
    }
    assert (tmp_path / "out/session.parquet").exists()
    assert net.calibration.to_dict("records") == [measured]
    (check,) = net.checks[net.checks.check == "calibration_error"].to_dict("records")
    assert (check["ok"], net.valid) == (False, False)


def test_a_uavs_own_keys_go_before_those_of_all() -> None:
    given = scenario(
        **{"uav*": {"command": "a", "env": {"N": 1.5}}, "uav2": {"command": ["b"]}, "bs": {}}
    )
    assert given.programs_of(uav(1)).command == "a"
    assert given.programs_of(uav(2)).command == ["b"]
    assert given.programs_of(uav(2)).env == {"N": "1.5"}
    assert given.programs_of(BS).command is None
    assert "nodes" not in scenario().model_dump(mode="json")


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ({"uav4": {}}, "small: nodes.uav4: there is no such node"),
        ({"uav1": {"command": []}}, "small: nodes.uav1.command: must not be empty"),
        ({"uav1": {"comand": "a"}}, "small: nodes.uav1.comand: no such key; did you mean"),
        ({"uav1": {"command": "nonsense"}}, "nodes.uav1.command: there is no program 'nonsense'"),
        ({"bs": {"image": "mine:1"}}, "nodes.bs.image: not supported by the namespace"),
        ({"bs": {"writable": ["/etc"]}}, "nodes.bs.writable: /etc is outside of the working"),
        ({"bs": {"writable": ["gone"]}}, "nodes.bs.writable: gone does not exist"),
    ],
)
def test_wrong_nodes_are_named(tmp_path, monkeypatch, nodes, message) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(tb.InputError) as error, tb.Network(scenario(**nodes), TRACE, out="out"):
        pass
    assert str(error.value).startswith(message)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("folder", OWN_FOLDERS)
def test_a_nodes_own_folders_stay_its_own_whatever_commands_name(folder) -> None:
    with tb.Network(scenario(), TRACE) as net:
        for argv in (
            ["ls", folder],
            ["ls", f"{folder}/{'nothing' * 40}"],
            ["touch", f"{folder}/own"],
        ):
            done = net["uav1"].run(argv)
            assert done.returncode == (2 if "nothing" in argv[1] else 0), done.stderr
        assert "own" in net["uav1"].run(["ls", folder]).stdout.splitlines()


def test_what_a_node_has_written_is_not_hidden_by_this_machines_file_of_that_name() -> None:
    with tb.Network(scenario(), TRACE) as net, TemporaryDirectory(dir="/tmp") as place:
        run = net["uav1"].run
        (own, linked, led, both) = (f"{place}-{w}" for w in ("own", "linked", "led", "both"))
        for write in (f"mkdir {own}; echo mine >{own}/f", f"echo mine >{both}"):
            assert run(write).returncode == 0
        home = net["uav1"].home
        for link, target in ((linked, "/etc"), (led, home)):
            assert run(["ln", "-s", str(target), link]).returncode == 0
        try:
            theirs = (f"{own}/f", f"{linked}/hosts", f"{led}/d/f", both)
            for name in (*theirs, f"{place}/a/f", f"{place}/b/f"):
                Path(name).parent.mkdir(parents=True, exist_ok=True)
                Path(name).write_text("theirs")
            assert [run(["cat", name]).stdout for name in (both, f"{own}/f")] == ["mine\n"] * 2
            assert "uav3" in run(["cat", f"{linked}/hosts"]).stdout
            assert run(["cat", f"{led}/d/f"]).returncode == 1
            assert not (home / "d").exists()
            assert run(["touch", f"{own}/f", both]).returncode == 0
            # A folder that is there only because something in it was named.
            assert run(["cat", f"{place}/a/f"]).stdout == "theirs"
            assert run(["ls", place]).stdout == "a\nb\n"
        finally:
            for name in (own, linked, led):
                shutil.rmtree(name, ignore_errors=True)
            Path(both).unlink(missing_ok=True)
