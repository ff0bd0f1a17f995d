# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Sessions on real links: what programs meet there, how they end, and that nothing is left."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import pandas as pd
import psutil
import pytest
import yaml
from processes import arguments, family, gone, until
from small_scenario import AT_ONCE, TREE

from ns3_scenarios.errors import ChannelError
from ns3_scenarios.trace import ChannelTrace, Replay
from orchestrator import api
from orchestrator.emulated import rate_feed
from orchestrator.emulated import up as up_module
from orchestrator.emulated.options import SessionOptions
from orchestrator.emulated.up import held
from orchestrator.emulated.visits import _address
from orchestrator.reporting.formatting import sentence
from orchestrator.scenario.loading import validate
from testbed.core.errors import InputError, RunError
from testbed.core.node import BS
from testbed.network.pcap import frames
from testbed.system import linux

TRACE = {"gain": np.full((3, 400), 1e-10), "slot_s": 0.1}
# What is sent before slot 0 begins stands in no table.
SEND = """
import os, socket, time
time.sleep(max(0, int(os.environ["TESTBED_EPOCH_NS"]) - time.monotonic_ns()) / 1e9)
while True:
    try: s = socket.create_connection(({to!r}, 5000)); break
    except ConnectionRefusedError: time.sleep(0.05)
s.sendall(bytes({size})); s.shutdown(1); s.recv(1)
"""
RECEIVE = (
    "import socket, sys;"
    "s = socket.create_server(({at!r}, 5000), family={family});"
    "c, who = s.accept();"
    "print(sum(iter(lambda: len(c.recv(1 << 16)), 0)), who[0])"
)
# Datagrams, to and from somebody who listens on all addresses.
ANSWER = (
    "import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('', 5001))\n"
    "while True: s.sendto(*s.recvfrom(9))"
)
ASK = """
import socket, time
s = socket.socket(type=socket.SOCK_DGRAM); s.connect(("bs", 5001)); s.settimeout(0.5)
while True:
    try: s.send(b"?"); s.recv(9); break
    except OSError: time.sleep(0.05)
"""


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def play(out, commands, links=None, calibrate=False, until=(), **options):
    options = SessionOptions(**{"seconds": 20.0} | options)
    emulation = {"calibrate": calibrate}
    scenario = validate(TREE | {"links": links or {}, "emulation": emulation}, "small")
    return api.play_session(scenario, TRACE, out, commands, options, until)


@pytest.mark.alone
def test_a_transfer_takes_what_the_rates_allow_and_is_in_the_table(tmp_path) -> None:
    out, size = tmp_path / "out", 400_000
    done = play(
        out,
        {
            "bs": python(RECEIVE.format(at="", family="socket.AF_INET")),
            "uav2": python(SEND.format(to="bs", size=size)),
        },
        capture=True,
        calibrate=True,
    )
    assert (done.ended, done.succeeded) == ("commands", True)
    assert (out / "logs/bs.log").read_text() == f"{size} 10.0.2.2\n"
    table = pd.read_parquet(out / "session.parquet")
    carried = table.groupby(["client", "direction"]).carried_bytes.sum()
    assert size < carried[2, "up"] < 1.06 * size
    assert 0 < carried[2, "down"] < 0.1 * size
    assert carried[1].sum() == carried[3].sum() == 0
    uplink = table[(table.client == 2) & (table.direction == "up")].set_index("slot")
    # A slot may end a frame before or after its time, and a timer be late by a burst.
    assert (uplink.carried_bytes <= uplink.offered_bytes + 0.006 * uplink.rate_bps / 8 + 3028).all()
    about = json.loads((out / "manifest.json").read_text())
    assert (about["kind"], about["status"], about["ended"]) == ("session", "complete", "commands")
    assert [program["status"] for program in about["programs"]] == [0, 0]
    calibration = pd.read_parquet(out / "calibration.parquet")
    assert calibration.groupby(["client", "direction", "level"]).size().tolist() == [1] * 3 * 2 * 3
    assert calibration["rate_bps"].gt(1e6).all()
    assert calibration["error"].abs().median() < 0.1
    assert {entry["level"] for entry in about["calibration"]} == {"lowest", "middle", "highest"}
    assert about["validity"][0]["check"] == "calibration_error"
    assert (out / "pcap/uav2.pcap").stat().st_size > size
    sent = [f for f in frames(out / "pcap/uav2.pcap") if f.source == "10.0.2.2" and f.data_bytes]
    first = uplink.index[uplink.carried_bytes > 1000][0]
    assert (sent[0].time_ns - about["slot_0_unix_ns"]) / 1e8 == pytest.approx(first, abs=1)
    assert sent[0].acknowledged not in (0, sent[0].sequence)
    assert about["captured"]["missed_packets"] == 0
    assert not (out / "session.sock").exists()
    assert "Uplink of UAV 3" in (out / "report.html").read_text()


def test_what_a_node_is_like(tmp_path) -> None:
    out = tmp_path / "out"
    look = (
        "import os, socket, sys;"
        "print(socket.gethostname(), socket.gethostbyname('bs'), os.environ['TESTBED_NODE']);"
        "print(os.environ['TESTBED_BS'], os.environ['HOME']);"
        "open('/tmp/mine', 'x').write(socket.gethostname());"
        "os.mkdir('/tmp/d'); os.rename('/tmp/mine', '/tmp/d/mine');"
        "open(os.path.expanduser('~/kept'), 'w').write('kept');"
        "print(open('/etc/resolv.conf').read().count('nameserver'));\n"
        "for path in (sys.argv[1], '/etc/hosts'):\n"
        "  for write in (lambda: open(path, 'a'), lambda: os.truncate(path, 0)):\n"
        "    try: write()\n"
        "    except OSError as error: print(error.strerror)\n"
    )
    (theirs := tmp_path / "theirs").write_text("precious")
    argv = [*python(look + ASK), str(theirs)]
    done = play(out, {"bs": python(ANSWER), "uav1": argv, "uav3": argv}, until=["uav1", "uav3"])
    assert done.succeeded, (out / "logs/uav1.log").read_text()
    for node in ("uav1", "uav3"):
        lines = (out / f"logs/{node}.log").read_text().splitlines()
        assert lines[0] == f"{node} 10.255.0.1 {node}"
        assert lines[1] == f"10.255.0.1 {out}/nodes/{node}"
        assert lines[2] == "0"
        refused = {"Permission denied", "Read-only file system"}
        assert len(lines[3:]) == 4
        assert set(lines[3:]) <= refused
        assert (out / f"nodes/{node}/kept").read_text() == "kept"
    assert theirs.read_text() == "precious"
    assert not os.path.lexists("/tmp/d/mine")
    assert not (out / "nodes/bs").exists()


def test_an_attack_on_all_processes_ends_those_of_its_node_alone(tmp_path) -> None:
    attack = "sleep 99 & ps -eo args | grep -c ^sleep; kill -STOP -1; kill -9 -1; exit 6"
    commands = {
        "bs": "exec sleep 99",
        "uav1": attack,
        "uav2": "pkill -9 -f . ; pkill -9 sleep; exit 7",
        "uav3": "for k in 1 2 3 4 5 6 7 8 9; do test $k = $$ || kill -9 $k; done; exit 8",
    }
    done = play(tmp_path / "out", commands, until=["uav1", "uav3"])
    ends = {str(p.node): (p.returncode, p.stopped) for p in done.programs}
    assert (ends["uav1"], ends["uav3"]) == ((6, False), (8, False))
    assert ends["bs"][1], "it goes on until the end of the session"
    assert done.ended == "commands"
    assert (tmp_path / "out/logs/uav1.log").read_text().splitlines()[0] == "2", "with PID 1"


def test_what_limits_mean_without_containers_is_noted(tmp_path) -> None:
    nodes = {"uav*": {"memory_bytes": 64 << 20}, "uav2": {"processes": 100}}
    tree = TREE | {"nodes": nodes, "emulation": AT_ONCE}
    take = python("b = bytearray(300 << 20)")
    options = SessionOptions(seconds=20.0)
    done = api.play_session(
        validate(tree, "small"), TRACE, tmp_path / "out", {"uav1": take}, options
    )
    assert [program.returncode for program in done.programs] == [1]
    assert "MemoryError" in (tmp_path / "out/logs/uav1.log").read_text()
    assert any(
        note.startswith("nodes.uav*.memory_bytes: without containers") for note in done.notes
    )
    lacks = "nodes.uav2.processes has no effect"
    assert any(note.startswith(lacks) for note in done.notes) != linux.can_limit_processes()


def test_ports_below_1024_and_ping_are_for_all(tmp_path) -> None:
    code = """
import socket, struct
for family in (socket.AF_INET, socket.AF_INET6):
    socket.socket(family).bind(("", 80 + family))
for family, name, protocol, kind in (
    (socket.AF_INET, "uav1", socket.IPPROTO_ICMP, 8), (socket.AF_INET6, "ip6-uav1", 58, 128),
):
    with socket.socket(family, socket.SOCK_DGRAM, protocol) as echo:
        echo.settimeout(5)
        echo.sendto(struct.pack("!BBHHH", kind, 0, 0, 0, 1) + b"mine", (name, 0))
        print(echo.recv(99)[8:].decode())
"""
    done = play(tmp_path / "out", {"bs": ["sh", "-c", f"sleep 0.5; python3 -c '{code}'"]})
    assert (tmp_path / "out/logs/bs.log").read_text() == "mine\nmine\n"
    assert done.succeeded


def test_what_a_uav_sends_to_all_goes_out_on_its_link(tmp_path) -> None:
    hear = """
import socket, struct
heard = [socket.socket(family, socket.SOCK_DGRAM) for family in (2, 2, 10)]
for port, each in enumerate(heard, 5000):
    each.bind(("", port)); each.settimeout(10)
for link, name in socket.if_nameindex():
    if name.startswith("uav"):
        group = socket.inet_aton("239.1.1.1") + struct.pack("4si", bytes(4), link)
        heard[1].setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
        group = socket.inet_pton(10, "ff02::42") + struct.pack("i", link)
        heard[2].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group)
listens = socket.create_server(("", 4999))
for each in heard:
    found = (each.recvfrom(99) for _ in range(2))
    print(*sorted(" ".join((text.decode(), sender[0])) for text, sender in found))
for family, to in ((2, "255.255.255.255"), (2, "239.1.1.1"), (10, "ff02::42")):
    each = socket.socket(family, socket.SOCK_DGRAM)
    each.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    try: each.sendto(b"", (to, 5000))
    except OSError as error: print(error.strerror)
"""
    say = """
import os, socket, time
while True:
    try: socket.create_connection(("bs", 4999)).close(); break
    except ConnectionRefusedError: time.sleep(0.01)
text = os.environ["TESTBED_NODE"].encode()
for port, (family, to) in enumerate(((2, "255.255.255.255"), (2, "239.1.1.1"), (10, "ff02::42"))):
    each = socket.socket(family, socket.SOCK_DGRAM)
    each.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    each.sendto(text, (to, 5000 + port))
"""
    commands = {"bs": python(hear), "uav1": python(say), "uav3": python(say)}
    done = play(tmp_path / "out", commands)
    heard = (tmp_path / "out/logs/bs.log").read_text()
    assert heard.splitlines() == [
        *2 * ["uav1 10.0.1.2 uav3 10.0.3.2"],
        "uav1 fd55::1 uav3 fd55::3",
        # To send to all from the base station would reach one of the links.
        *2 * ["Network is unreachable"],
        "Cannot assign requested address",
    ]
    assert done.succeeded


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start such a session")
def test_a_daemon_of_root_becomes_another_user_who_is_none_of_this_machine(tmp_path) -> None:
    (secret := tmp_path / "secret").write_text("for user 33")
    os.chown(secret, 33, 33)
    secret.chmod(0o600)
    code = f"""
import os, signal, time
def tries(call, *words):
    try: call(*words)
    except OSError as error: print(error.strerror)
    else: print("done")
daemon = os.fork()
if not daemon:
    os.setgroups([34]); os.setgid(33); os.setuid(33)
    print(os.getresuid(), os.getresgid(), os.getgroups())
    tries(os.setuid, 0)
    tries(open, {str(secret)!r})
    time.sleep(60)
time.sleep(0.5)
os.kill(daemon, signal.SIGTERM)
print(os.waitpid(daemon, 0)[1])
tries(os.chown, "/etc/passwd", 33, 33)
"""
    done = play(tmp_path / "out", {"bs": [sys.executable, "-uc", code]})
    assert done.succeeded, (tmp_path / "out/logs/bs.log").read_text()
    assert (tmp_path / "out/logs/bs.log").read_text().splitlines() == [
        "(33, 33, 33) (33, 33, 33) [34]",
        *("Operation not permitted", "Permission denied", "15", "Operation not permitted"),
    ]


def test_ipv6_reaches_the_base_station(tmp_path) -> None:
    done = play(
        tmp_path / "out",
        {
            "bs": python(RECEIVE.format(at="::", family="socket.AF_INET6")),
            "uav1": python(SEND.format(to="ip6-bs", size=9000)),
        },
        capture=True,
    )
    assert done.succeeded
    assert (tmp_path / "out/logs/bs.log").read_text() == "9000 fd55::1\n"


@pytest.mark.parametrize(
    ("at", "family", "to", "who"),
    [("", "socket.AF_INET", "uav3", "10.0.1.2"), ("::", "socket.AF_INET6", "ip6-uav3", "fd55::1")],
)
def test_uavs_reach_each_other_through_the_base_station(tmp_path, at, family, to, who) -> None:
    done = play(
        tmp_path / "out",
        {
            "uav3": python(RECEIVE.format(at=at, family=family)),
            "uav1": python(SEND.format(to=to, size=50_000)),
        },
        links={"relay": True},
    )
    assert done.succeeded, (tmp_path / "out/logs/uav1.log").read_text()
    assert (tmp_path / "out/logs/uav3.log").read_text() == f"50000 {who}\n"
    table = pd.read_parquet(tmp_path / "out/session.parquet")
    carried = table.groupby(["client", "direction"]).carried_bytes.sum()
    assert carried[1, "up"] > 50_000
    assert carried[3, "down"] > 50_000
    # IPv6 may still announce its multicast groups, a frame each.
    assert carried[2].sum() < 500


def test_without_a_relay_they_do_not(tmp_path) -> None:
    done = play(tmp_path / "out", {"uav1": python(SEND.format(to="uav3", size=1))})
    assert not done.succeeded
    assert "Network is unreachable" in (tmp_path / "out/logs/uav1.log").read_text()


def test_status_says_how_commands_ended_and_time_ends_those_that_go_on(tmp_path) -> None:
    done = play(
        tmp_path / "out",
        {"uav*": "kill -35 $$", "uav2": "exit 3", "bs": "trap '' TERM; sleep 60 & wait; sleep 60"},
        until=["uav*"],
    )
    assert (done.ended, done.succeeded) == ("commands", False)
    assert [program.returncode for program in done.programs] == [-signal.SIGKILL, -35, 3, -35]
    assert [str(p).split(" after")[0] for p in done.programs][:3] == [
        "bs: still running",
        "uav1: ended by signal 35 (SIGRTMIN+1)",
        "uav2: ended with status 3",
    ]
    done = play(tmp_path / "some", {"uav1": "sleep 60"}, seconds=0.3, until=["uav1"])
    assert (done.ended, done.succeeded, done.as_asked) == ("time", False, False)
    done = play(tmp_path / "bad", {"uav1": "sleep 60", "bs": "exit 3"}, seconds=0.3)
    assert (done.ended, done.as_asked) == ("time", False)
    done = play(tmp_path / "other", {"uav1": "sleep 60"}, seconds=0.3)
    assert (done.ended, done.succeeded, done.as_asked) == ("time", False, True)
    table = pd.read_parquet(tmp_path / "other/session.parquet")
    assert sorted(set(table.slot)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"commands": {"uav7": "true"}}, "`node`: 'uav7' is not one of"),
        ({"commands": {"bs": "nonsense"}}, "`node` bs: there is no program 'nonsense'"),
        ({"commands": {"bs": "true"}, "until": ["uav1"]}, "`until`: uav1 has no command"),
    ],
)
def test_wrong_input_writes_nothing(tmp_path, options, message) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        play(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine").touch()
    with pytest.raises(InputError, match=r"^`out`: .* exists already"):
        play(tmp_path / "out", {"bs": "true"})


class Up:
    """`testbed up` in a process of its own, without commands."""

    def __init__(self, folder, *words: str, trace=TRACE, **options) -> None:
        self.out = folder / "out"
        (folder / "s.yaml").write_text(yaml.safe_dump(TREE | {"emulation": AT_ONCE}))
        np.savez(folder / "t.npz", **trace)
        self.testbed = [sys.executable, "-m", "orchestrator"]
        words = (str(folder / "s.yaml"), "--trace", str(folder / "t.npz"), *words)
        self.process = subprocess.Popen(
            [*self.testbed, "up", *words, "--out", str(self.out)],
            stdout=subprocess.PIPE,
            text=True,
            **options,
            # These tests may run under `nohup`, whose children outlive a terminal.
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        )
        until(lambda: (self.out / "session.sock").exists() or self.process.poll() is not None, 60)

    def exec(self, *words: str, **options) -> "subprocess.Popen[str]":
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True} | options
        return subprocess.Popen([*self.testbed, "exec", str(self.out), *words], **options)


def test_links_that_are_out_all_the_time_and_dilation_are_named(tmp_path) -> None:
    rates = np.full((3, 40), 1e6)
    down = rates * np.array([[1], [0.11], [0]])
    trace = {"uplink_bps": rates, "downlink_bps": down, "slot_s": 0.1}
    words = ("--seconds", "0.3", "--set", "emulation.dilation=2")
    up = Up(tmp_path, *words, trace=trace, stderr=subprocess.PIPE)
    printed, said = up.process.communicate(timeout=60)
    dilated = (
        "emulation.dilation is 2: rates are divided by 2, slots and delays last 2 times as long, "
        "but programs live in real time and their clocks are not dilated"
    )
    assert f"testbed: note: {dilated}\n" in said
    below = "its rate is at most 110 kb/s, below one frame per slot of 0.1 s (121.1 kb/s)"
    notes = [
        dilated,
        f"the downlink of uav2 was out in all slots: {below}",
        "the downlink of uav3 was out in all slots: its channel has no rate",
    ]
    assert printed.startswith("".join(f"note: {note}\n" for note in notes))
    assert json.loads((up.out / "manifest.json").read_text())["notes"] == notes
    page = (up.out / "report.html").read_text()
    assert all(sentence(note)[:60] in page for note in notes)


def sleepers(up: Up) -> list[psutil.Process]:
    return [p for p in family(up.process) if arguments(p) == ["sleep", "99"]]


def test_others_come_in_and_a_signal_ends_it_all(tmp_path) -> None:
    up = Up(tmp_path)
    inside = up.exec("uav2", "--", "sh", "-c", "hostname; cat; exit 7", cwd="/")
    shell, wrong = up.exec("bs"), up.exec("uav9", "true", stderr=subprocess.PIPE)
    # A name that no file can have is the visitor's trouble alone.
    odd = up.exec("uav1", "--", "echo", "/" + 300 * "x")
    assert odd.communicate(timeout=20) == ("/" + 300 * "x" + "\n", None)
    assert inside.communicate("typed\n", 20) == ("uav2\ntyped\n", None)
    assert inside.returncode == 7
    assert shell.communicate("pwd; hostname\n", 20)[0] == f"{up.out}/nodes/bs\nbs\n"
    assert wrong.communicate(timeout=20)[1].startswith("testbed: NODE: 'uav9' is not one of bs")
    assert wrong.returncode == 2
    # As another release may ask.
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other, _address(up.out) as at:
        other.connect(at)
        socket.send_fds(other, [b'{"node": "bs"}'], [0, 1, 2])
        assert json.loads(other.recv(1000))["error"].startswith("the session uses another rel")
    left, stays = (up.exec("uav1", "--", "sh", "-c", "echo in; exec sleep 99") for _ in "ab")
    killed = up.exec("uav3", "--", "sh", "-c", "echo in; kill -9 $$")
    assert killed.wait(20) == 128 + signal.SIGKILL
    for visitor in (left, stays):
        assert visitor.stdout.readline() == "in\n"
    # A shell that said so becomes the program it runs a moment later.
    until(lambda: len(sleepers(up)) == 2)
    processes = family(up.process)
    both = sleepers(up)
    left.kill()
    until(lambda: not all(sleeper.is_running() for sleeper in both))
    # As when the terminal is closed.
    up.process.send_signal(signal.SIGHUP)
    said, _ = up.process.communicate(timeout=20)
    assert (up.process.returncode, said.splitlines()[-1]) == (0, f"session: {up.out}")
    assert stays.wait(20) == 128 + signal.SIGTERM
    until(lambda: gone(processes))
    late = up.exec("bs", "true", stderr=subprocess.PIPE)
    assert late.communicate(timeout=20)[1] == f"testbed: {up.out}: no session runs there\n"
    assert late.returncode == 2


@pytest.mark.parametrize(
    "victim", ["session", "supervisor", "fabric", pytest.param("world", marks=pytest.mark.full)]
)
def test_nothing_is_left_whoever_is_killed(tmp_path, victim) -> None:
    up = Up(tmp_path, "--node", "uav*=sleep 99")
    visitor = up.exec("bs", "--", "sh", "-c", "echo in; exec sleep 99", stderr=subprocess.PIPE)
    assert visitor.stdout.readline() == "in\n"
    until(lambda: len(sleepers(up)) == 4)
    processes = family(up.process)
    children = psutil.Process(up.process.pid).children()
    (supervisor,) = [p for p in children if "testbed.runtimes.namespace" in arguments(p)]
    (world,) = supervisor.children()
    (fabric,) = [p for p in processes if "fabric" in " ".join(arguments(p))]
    parts = {"session": up.process, "supervisor": supervisor, "world": world, "fabric": fabric}
    parts[victim].kill()
    assert "the session" in visitor.communicate(timeout=30)[1]
    assert visitor.returncode == 1
    assert up.process.wait(30) == (-signal.SIGKILL if victim == "session" else 1)
    until(lambda: gone(processes))
    about = json.loads((up.out / "manifest.json").read_text())
    if victim == "session":
        assert about["status"] == "running"
    else:
        assert about["status"] == "failed"
        assert re.search("have ended|fabric was ended by SIGKILL", about["failure"])
    late = up.exec("bs", "true", stderr=subprocess.PIPE)
    assert "no session runs there" in late.communicate(timeout=20)[1]
    again = Up(tmp_path, "--overwrite", "--node", "bs=true")
    said, _ = again.process.communicate(timeout=60)
    assert (again.process.returncode, said.splitlines()[-1]) == (0, f"session: {up.out}")


def test_a_command_in_the_background_of_a_terminal_is_not_stopped(tmp_path) -> None:
    up = Up(tmp_path)
    terminal, theirs = os.openpty()
    said = tmp_path / "said"
    # A shell with jobs: its terminal, and a process group for what goes on behind.
    words = shlex.join([*up.testbed, "exec", str(up.out), "uav1", "--", "echo", "through"])
    shell = f"set -m; {words} 2>{said}.2 & wait $!; echo $? >{said}"
    with subprocess.Popen(
        ["setsid", "--ctty", "sh", "-c", shell], stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        assert process.wait(30) == 0
    assert said.read_text() == "0\n"
    assert b"through" in os.read(terminal, 1000)
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(20) == 0
    for end in (terminal, theirs):
        os.close(end)


def test_an_earlier_session_is_there_until_the_new_one_has_begun(tmp_path) -> None:
    out = tmp_path / "out"
    assert play(out, {"bs": "echo one >~/mine"}).succeeded
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(up_module, "opened", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            play(out, {"bs": "true"}, overwrite=True)
    assert (out / "nodes/bs/mine").read_text() == "one\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    # Whoever kills the new one finds nothing in the way of the next.
    beside: list[str] = []

    def began(_) -> AbstractContextManager[None]:
        beside.extend(path.name for path in tmp_path.iterdir())
        return nullcontext()

    assert play(out, {"bs": "echo two >~/other"}, overwrite=True, began=began).succeeded
    assert beside == ["out"]
    assert [path.name for path in (out / "nodes/bs").iterdir()] == ["other"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    (tmp_path / "link").symlink_to(out)
    with pytest.raises(InputError, match=r"link is a symbolic link; name the folder itself$"):
        play(tmp_path / "link", {"bs": "true"}, overwrite=True)
    about = json.loads((out / "manifest.json").read_text()) | {"kind": "run"}
    (out / "manifest.json").write_text(json.dumps(about))
    with pytest.raises(InputError, match=r"exists already; choose another name, it holds no"):
        play(out, {"bs": "true"}, overwrite=True)


def test_a_channel_that_fails_ends_the_session_by_name(tmp_path, monkeypatch) -> None:
    class Failing(Replay):
        def trace(self, slots: int) -> ChannelTrace:
            if slots > 30:
                raise ChannelError("ns-3 ended by SIGKILL")
            return super().trace(slots)

    def play_on() -> None:
        with held(scenario, source, tmp_path / "out", SessionOptions(), {}) as (session, _):
            sleeper = session.start(BS, ["sleep", "99"])
            with pytest.raises(RunError, match="the session failed while bs ran sleep"):
                sleeper.wait(30)
            session.play(60)

    monkeypatch.setattr(rate_feed, "AHEAD_S", 1.0)
    scenario = validate(TREE | {"emulation": {"calibrate": False}}, "small")
    source = Failing(ChannelTrace(np.full((3, 100), 1e-10), 0.1))
    with pytest.raises(RunError, match=r"^ns-3 ended by SIGKILL$"):
        play_on()
    about = json.loads((tmp_path / "out/manifest.json").read_text())
    assert (about["status"], about["failure"]) == ("failed", "ns-3 ended by SIGKILL")
