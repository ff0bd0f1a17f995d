# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Sessions in containers: other people's images on the links, their limits, and their ends."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import docker
import numpy as np
import pandas as pd
import psutil
import pytest
import yaml
from processes import arguments, family, gone, until
from small_scenario import TREE

import orchestrator as tb
from orchestrator import api
from orchestrator.emulated.options import SessionOptions
from orchestrator.scenario.loading import validate
from testbed.core.errors import InputError
from testbed.core.node import uav
from testbed.runtimes import docker as runtime
from testbed.runtimes.docker_sandboxes import PROGRAM_LABEL

pytestmark = pytest.mark.docker
TRACE: dict[str, Any] = {"gain": np.full((3, 400), 1e-10), "slot_s": 0.1}
IMAGE = f"uav-sfl-test-{os.getpid()}"


def libraries(program: str) -> set[str]:
    said = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    return set(re.findall(r"(/\S+) \(0x", said))


@pytest.fixture(scope="module")
def image():
    """An image of a few programs, with an ENTRYPOINT that would get in the way of all others."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        needed = set()
        for name in ("sh", "cat", "head", "tail", "sleep", "hostname", "ls"):
            path = shutil.which(name)
            assert path is not None
            tar.add(Path(path).resolve(), f"bin/{name}")
            needed |= libraries(path)
        for library in sorted(needed):
            tar.add(Path(library).resolve(), library.lstrip("/"))
        users = b"root:x:0:0::/:/bin/sh\napp:x:1234:1::/:/bin/sh\n"
        (entry := tarfile.TarInfo("etc/passwd")).size = len(users)
        tar.addfile(entry, io.BytesIO(users))
    client = docker.from_env()
    for tag, change in (
        ("1", 'ENTRYPOINT ["/bin/false"]'),
        ("name", "USER app"),
        ("number", "USER 1234:1"),
    ):
        client.api.import_image_from_data(
            archive.getvalue(), repository=IMAGE, tag=tag, changes=[change]
        )
    yield f"{IMAGE}:1"
    for tag in ("1", "name", "number"):
        client.images.remove(f"{IMAGE}:{tag}", force=True)
    client.close()


def scenario(calibrate=False, **nodes):
    tree = TREE | {"nodes": nodes, "emulation": {"runtime": "docker", "calibrate": calibrate}}
    return validate(tree, "small")


def ours(image: str) -> list[Any]:
    client = docker.from_env()
    try:
        return client.containers.list(all=True, filters={"ancestor": image}, ignore_removed=True)
    finally:
        client.close()


def test_programs_of_an_own_image_run_on_the_links(tmp_path, image) -> None:
    look = "hostname; ls /; cat /etc/hosts; echo $TESTBED_NODE $HOME; echo kept >$HOME/kept; exit 3"
    done = api.play_session(
        scenario(
            calibrate=True,
            uav1={"image": image, "command": look},
            uav2={"command": "hostname; exit 0"},
        ),
        TRACE,
        tmp_path / "out",
        {},
        SessionOptions(seconds=60.0),
    )
    said = (tmp_path / "out/logs/uav1.log").read_text()
    assert [program.returncode for program in done.programs] == [3, 0], said
    lines = said.splitlines()
    assert lines[0] == "uav1"
    assert "usr" not in lines, "nothing of this machine"
    assert f"uav1 {tmp_path}/out/nodes/uav1" in lines
    assert any(re.fullmatch(r"10\.255\.0\.1\s+bs", line) for line in lines)
    assert (tmp_path / "out/nodes/uav1/kept").read_text() == "kept\n"
    assert (tmp_path / "out/logs/uav2.log").read_text() == "uav2\n"
    assert ours(image) == []
    # By programs that this image has not.
    calibration = pd.read_parquet(tmp_path / "out/calibration.parquet")
    assert calibration.groupby(["client", "direction", "level"]).size().tolist() == [1] * 3 * 2 * 3
    assert calibration["error"].abs().median() < 0.1


@pytest.mark.alone
def test_commands_start_before_slot_0(tmp_path) -> None:
    say = "import os, time; print(time.monotonic_ns() - int(os.environ['TESTBED_EPOCH_NS']))"
    command = {"command": [sys.executable, "-c", say]}
    done = api.play_session(
        scenario(bs=command, **{"uav*": command}),
        TRACE,
        tmp_path / "out",
        {},
        SessionOptions(seconds=20.0),
    )
    assert done.succeeded
    said = [int((tmp_path / f"out/logs/{p.node}.log").read_text()) / 1e9 for p in done.programs]
    assert len(said) == 4
    assert max(said) < 0, said


@pytest.mark.alone
def test_limits_bite_and_the_links_carry(image) -> None:
    given = scenario(uav1={"image": image, "cpus": 0.1, "memory_bytes": 32 << 20})
    send = "import socket; s = socket.create_server(('', 5000)); c, _ = s.accept();"
    receive = "print(sum(iter(lambda: len(c.recv(1 << 16)), 0)))"
    connect = (
        "import socket,time\n"
        "while True:\n"
        "  try: s = socket.create_connection(('bs', 5000)); break\n"
        "  except OSError: time.sleep(0.05)\n"
        "s.sendall(bytes(100_000))"
    )
    with tb.Network(given, TRACE) as net:
        busy = net["uav1"].popen("while :; do :; done")
        greedy = net["uav1"].run("head -c 200000000 /dev/zero | tail -c 150000000 >/dev/null")
        assert greedy.returncode == -9, "killed for what it took"
        echo = net["uav1"].popen(
            "cat; echo no >&2; exit 3",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert echo.communicate("typed\n", 60) == ("typed\n", "no\n")
        assert echo.returncode == 3
        ours_, theirs = os.openpty()
        files = (theirs, theirs, theirs)
        argv = ["sh", "-c", "test -t 0 && test -t 1 && echo a terminal"]
        shell = net._session.start(uav(1), argv, files, terminal=True)
        assert shell.wait(60) == 0
        assert os.read(ours_, 100).strip() == b"a terminal"
        for end in (ours_, theirs):
            os.close(end)
        client = docker.from_env()
        label = f"{PROGRAM_LABEL}={busy.number}"
        (container,) = client.containers.list(filters={"ancestor": image, "label": label})
        # By these, what a killed session leaves is found and removed.
        assert {runtime.LABEL, runtime.MARK_LABEL} < container.labels.keys()
        throttled = 0
        while not throttled:
            throttled = container.stats(stream=False)["cpu_stats"]["throttling_data"][
                "throttled_periods"
            ]
        client.close()
        assert container.attrs["HostConfig"]["NanoCpus"] == 1e8
        assert container.attrs["HostConfig"]["Binds"] == [
            f"{net['uav1'].home}:{net['uav1'].home}:rw"
        ]
        busy.kill()
        assert busy.wait(20) == -9
        net.run(0)  # What is sent before slot 0 does not count.
        server = net["bs"].popen(
            [sys.executable, "-c", send + receive], stdout=subprocess.PIPE, text=True
        )
        net["uav2"].popen([sys.executable, "-c", connect])
        assert server.communicate(timeout=60)[0] == "100000\n"
        with pytest.raises(InputError, match=r"^`args`: image .* has no program 'nonsense'"):
            net["uav1"].popen(["nonsense"])
        # Whole slots alone count: the one in which the last byte went has to end.
        time.sleep(3 * TRACE["slot_s"])
    carried = net.carried.groupby(["client", "direction"]).carried_bytes.sum()
    assert carried[2, "up"] > 100_000
    assert isinstance(net.carried, pd.DataFrame)
    assert ours(image) == []


def test_a_memory_limit_and_the_image_are_named_and_ping_needs_no_capability(
    tmp_path, image
) -> None:
    take = "head -c 200000000 /dev/zero | tail -c 150000000 >/dev/null; exit 5"
    done = api.play_session(
        scenario(
            uav1={"image": image, "memory_bytes": 32 << 20, "command": take},
            uav2={"command": "ping -c 1 -W 20 bs" if shutil.which("ping") else "exit 0"},
            uav3={"command": "exit 3"},
        ),
        TRACE,
        tmp_path / "out",
        {},
        SessionOptions(seconds=60.0),
    )
    assert [program.returncode for program in done.programs] == [5, 0, 3], [
        log.read_text() for log in sorted((tmp_path / "out/logs").iterdir())
    ]
    limit = "it exceeded its limit of 33554432 bytes of memory (nodes.uav1.memory_bytes)"
    assert str(done.programs[0]).endswith(limit)
    assert [note for note in done.notes if limit in note] == [str(done.programs[0])]
    about = json.loads((tmp_path / "out/manifest.json").read_text())
    assert [program["exceeded"] for program in about["programs"]] == [limit, None, None]
    client = docker.from_env()
    known = {image: {"id": client.images.get(image).id, "digests": []}}
    assert about["containers"] == {"daemon": client.version()["Version"], "images": known}
    client.close()


def test_a_usual_image_that_is_missing_is_named_by_its_key(tmp_path) -> None:
    tree = TREE | {"emulation": {"runtime": "docker", "docker_image": "nonesuch"}}
    message = r"^emulation\.docker_image: there is no image 'nonesuch' here$"
    commands = {"uav1": "true"}
    with pytest.raises(InputError, match=message):
        api.play_session(
            validate(tree, "small"), TRACE, tmp_path / "out", commands, SessionOptions()
        )
    tree["nodes"] = {"uav1": {"command": "true"}}
    with pytest.raises(InputError, match=message), tb.Network(validate(tree, "small"), TRACE):
        pass
    assert not (tmp_path / "out").exists()


def test_whatever_a_command_names_its_container_has_a_system_of_its_own(tmp_path) -> None:
    (tmp_path / "f").write_text("theirs")
    with tb.Network(scenario(), TRACE) as net:
        run = net["uav1"].run
        for argv in (["ls", "/"], ["ls", "/dev/shm"], ["head", "/proc/net/dev"]):
            done = run(argv)
            assert (done.returncode, done.stderr) == (0, "")
        mounts = [
            line.split()[1:3]
            for line in run(["cat", "/proc/mounts", "/dev/null"]).stdout.splitlines()
        ]
        assert [kind for place, kind in mounts if place in ("/dev", "/proc")] == ["proc", "tmpfs"]
        assert run(["cat", str(tmp_path / "f")]).stdout == "theirs"
        pwd = net["uav1"].popen(["pwd"], cwd="/", stdout=subprocess.PIPE, text=True)
        assert pwd.communicate(timeout=60)[0] == "/\n"


@pytest.mark.parametrize("tag", ["name", "number"])
def test_an_images_own_user_may_write_its_home(image, tag) -> None:
    given = scenario(calibrate=True, uav1={"image": image.replace(":1", f":{tag}")})
    with tb.Network(given, TRACE) as net:
        done = net["uav1"].run("echo kept >$HOME/kept")
        assert (done.returncode, done.stderr) == (0, "")
        assert (net["uav1"].home / "kept").stat().st_uid == 1234


def test_a_shell_in_an_image_is_one_that_it_has(image) -> None:
    with tb.Network(scenario(uav1={"image": image}), TRACE) as net:
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator", "exec", net["uav1"].home.parents[1], "uav1"],
            env=os.environ | {"SHELL": "/bin/bash"},
            input="echo typed $TESTBED_NODE\n",
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.stdout, done.stderr) == ("typed uav1\n", "")


@pytest.mark.alone
def test_what_a_killed_look_into_an_image_leaves_is_found(image) -> None:
    killed = (
        "import os, signal, sys; from testbed.runtimes import docker, docker_sandboxes;"
        "docker_sandboxes._is_there = lambda *_: os.kill(os.getpid(), signal.SIGKILL);"
        "docker.check_image(sys.argv[1], 'sh')"
    )
    assert subprocess.run([sys.executable, "-c", killed, image]).returncode == -9
    (left,) = ours(image)
    (found,) = [one for one in runtime.find_leftovers() if one.what == f"container {left.name}"]
    found.remove()
    assert ours(image) == []


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"image": "nonesuch"}, r"nodes\.uav1\.image: there is no image 'nonesuch' here"),
        ({"command": ["nonsense"]}, r"nodes\.uav1\.command: image .* has no program 'nonsense'"),
    ],
)
def test_what_an_image_lacks_is_one_line_and_writes_nothing(tmp_path, image, node, message) -> None:
    with pytest.raises(InputError, match=f"^{message}$"):
        api.play_session(
            scenario(uav1={"image": image} | node),
            TRACE,
            tmp_path / "out",
            {},
            SessionOptions(),
        )
    assert not (tmp_path / "out").exists()
    assert ours(image) == []


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("victim", ["session", "injector", "reaper", "node", "program"])
def test_nothing_is_left_whoever_is_killed(tmp_path: Path, image: str, victim: str) -> None:
    given = scenario(uav1={"image": image, "command": "sleep 999"}).model_dump(mode="json")
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(given))
    np.savez(tmp_path / "t.npz", gain=np.full((3, 4000), 1e-10), slot_s=0.1)
    testbed, out = [sys.executable, "-m", "orchestrator"], tmp_path / "out"
    up = subprocess.Popen(
        [*testbed, "up", "s.yaml", "--trace", "t.npz", "--out", out],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
    )
    client = docker.from_env()
    try:
        until(lambda: (out / "session.sock").exists() and bool(ours(image)), 120)
        visitor = subprocess.Popen(
            [*testbed, "exec", out, "uav1", "--", "sh", "-c", "echo in; exec sleep 999"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert visitor.stdout is not None
        assert visitor.stdout.readline() == "in\n"
        processes = family(up)
        (command, visited) = sorted(ours(image), key=lambda c: int(c.labels[PROGRAM_LABEL]))
        everyone = {"label": f"{runtime.LABEL}={command.labels[runtime.LABEL]}"}

        def left() -> list[object]:
            return client.containers.list(all=True, filters=everyone, ignore_removed=True)

        assert len(left()) == 4 + 2  # Those that hold the nodes' networks, and two programs.
        match victim:
            case "session":
                up.kill()
            case "injector" | "reaper":
                module = {"injector": "network.injector", "reaper": "runtimes.docker"}[victim]
                children = psutil.Process(up.pid).children()
                (process,) = [p for p in children if f"testbed.{module}" in arguments(p)]
                process.kill()
            case "node":
                holders = client.containers.list(filters=everyone)
                (holder,) = [c for c in holders if c.name.endswith("-uav2")]
                holder.kill()
            case "program":
                visited.kill()
        if victim == "program":
            # It was a visitor's, and nobody else's business.
            assert visitor.wait(60) == 128 + 9
            assert up.poll() is None
        if victim in ("program", "reaper"):
            up.terminate()
        assert up.wait(120) != 0
        assert visitor.wait(60) not in (0, None)
        until(lambda: gone(processes), 60)
        until(lambda: not left(), 60)
    finally:
        up.kill()
        up.wait()
        client.close()
