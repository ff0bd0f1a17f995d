# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The runtimes: isolation, reports of exits, and that nothing is left whatever ends a run."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from processes import SMALL_WORLD, arguments, check_result, family, gone, nodes_of, spawn, until
from small_world import SmallWorld
from tripwire import Tripwires

from orchestrator.emulated.stage import LEARNING_IMPORTS, NODE_IMPORTS
from testbed import runtimes
from testbed.control.stream import ControlSocket
from testbed.core.errors import RunError
from testbed.core.node import BS, uav, uavs
from testbed.network.shaping import Shape
from testbed.runtimes import Command, Exit, Module, NodeSpec, Sandbox, namespace
from testbed.system import linux

NOBODY = 65_534


def python_for(user):
    """An interpreter that an ordinary user can run, and the environment it needs.

    Root's own may lie in root's home. Then the system's takes its place, with the same packages.
    """
    paths = os.pathsep.join([str(SMALL_WORLD.parents[2]), *(p for p in sys.path if "site-" in p)])
    probe = "import sys, numpy, testbed; sys.exit(sys.version_info[:2] != (%d, %d))"
    for python, env in ((sys.executable, {}), ("/usr/bin/python3", {"PYTHONPATH": paths})):
        with contextlib.suppress(OSError):
            test = subprocess.run(
                [python, "-c", probe % sys.version_info[:2]],
                env={**os.environ, **env},
                stderr=subprocess.DEVNULL,
                **user,
            )
            if test.returncode == 0:
                return {"python": python, "env": {**os.environ, **env}, **user}
    return None


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can become someone else")
def test_an_ordinary_user_may_run_a_world():
    user = python_for({"user": NOBODY, "group": NOBODY, "extra_groups": []})
    if user is None:
        pytest.skip("no interpreter with the packages that an ordinary user may run")
    with tempfile.TemporaryDirectory() as folder:
        shutil.chown(folder, NOBODY, NOBODY)
        process = spawn("namespace", folder, **user)
        facts = check_result(process)
        assert facts["uid"] == NOBODY
        processes = family(process)
        process.communicate("")
        assert process.returncode == 0
        until(lambda: gone(processes))


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_when_the_orchestrator_is_killed(tmp_path, end):
    process = spawn("namespace", tmp_path, stderr=subprocess.PIPE)
    check_result(process)
    processes = family(process)
    assert len(processes) == 5  # supervisor, world, fabric, base station, UAV
    process.send_signal(end)
    process.wait(10)
    until(lambda: gone(processes))
    if end == signal.SIGKILL:
        assert process.stderr.read() == "", "an orphan's"


def test_a_world_whose_orchestrator_has_closed_its_sockets_says_nothing(tmp_path):
    """So does one whose orchestrator was killed, before the supervisor ends it."""
    process = spawn("namespace", tmp_path, stderr=subprocess.PIPE)
    check_result(process)
    assert process.communicate("")[1] == ""


def test_links_are_removed_once_nothing_reads_them(monkeypatch):
    """The fabric process reads the counters of all ends, and failed where one was missing."""
    fabrics, alive = [], []

    def create(world):
        fabrics.append(world._fork(lambda: time.sleep(60)))
        world._processes[fabrics[0]] = None

    monkeypatch.setattr(namespace._World, "_create", create)
    monkeypatch.setattr(namespace._World, "_watch", lambda *_: None)
    monkeypatch.setattr(namespace, "unshape", lambda _: alive.append(psutil.pid_exists(fabrics[0])))
    before = signal.getsignal(signal.SIGCHLD)
    with contextlib.ExitStack() as sockets:
        four = [socket.socket() for _ in range(4)]
        for each in four:
            sockets.enter_context(each)
        try:
            namespace._World(ControlSocket(four[0]), *four[1:], None, []).run()
        finally:
            os.close(signal.set_wakeup_fd(-1))
            signal.signal(signal.SIGCHLD, before)
    assert alive == [False]


def test_a_world_may_have_been_forked_ahead_and_is_as_any_other(tmp_path):
    before = {p.pid for p in psutil.Process().children()}
    namespace.fork_ahead(NODE_IMPORTS)
    (ahead,) = [p for p in psutil.Process().children() if p.pid not in before]
    with SmallWorld(tmp_path) as small:
        assert not [p for p in psutil.Process().children() if p.pid not in {*before, ahead.pid}]
        processes = [ahead, *ahead.children(recursive=True)]
        assert len(processes) == 5  # supervisor, world, fabric, base station, UAV
        assert small.world.exits() == []
    until(lambda: gone(processes))
    with SmallWorld(tmp_path):
        (another,) = [p for p in psutil.Process().children() if p.pid not in before]
        assert "testbed.runtimes.namespace" in arguments(another)


def test_what_was_forked_ahead_ends_with_who_has_forked_it(tmp_path):
    program = (
        "from testbed.runtimes.namespace import fork_ahead; import psutil; fork_ahead([]);"
        "print(psutil.Process().children()[0].pid)"
    )
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    until(lambda: not psutil.pid_exists(int(done.stdout)))


@pytest.mark.parametrize("victim", [0, 1])
def test_nothing_is_left_when_keeper_or_world_is_killed(tmp_path, victim):
    with SmallWorld(tmp_path) as small:
        me = psutil.Process()
        (supervisor,) = [p for p in me.children() if "testbed.runtimes.namespace" in arguments(p)]
        processes = [supervisor, *supervisor.children(recursive=True)]
        processes[victim].kill()
        until(lambda: gone(processes))
        with pytest.raises(RunError, match="have ended"):
            small.world.exits()
        with pytest.raises(RunError, match=r"has disconnected|gone"):
            small.injector.report()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("victim", ["supervisor", "world", "fabric", "bs"])
def test_nothing_is_left_whoever_is_killed_or_stands_still(tmp_path, monkeypatch, victim, end):
    monkeypatch.setattr(namespace, "END_TIMEOUT_S", 2)
    with SmallWorld(tmp_path) as small:
        (supervisor,) = [
            p for p in psutil.Process().children() if "testbed.runtimes.namespace" in arguments(p)
        ]
        (world,) = supervisor.children()
        named = {" ".join(arguments(p)): p for p in world.children()}
        processes = {"supervisor": supervisor, "world": world}
        processes["fabric"] = next(p for name, p in named.items() if "fabric" in name)
        processes["bs"] = next(p for name, p in named.items() if "link_program" in name)
        everyone = [supervisor, *supervisor.children(recursive=True)]
        processes[victim].send_signal(end)
        if victim == "fabric" and end == signal.SIGKILL:
            with pytest.raises(RunError, match="injector: its process is gone"):
                small.injector.report()
            until(lambda: Exit(None, -signal.SIGKILL) in small.world.exits())
    until(lambda: gone(everyone))


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone may map other users")
@pytest.mark.parametrize(
    ("capabilities", "users"),
    [(None, ["0 0 1", "1 2000000001 65535"]), ([21, 31], ["0 0 1"])],
    ids=["root", "root without CAP_SETUID"],
)
def test_ids_of_a_world_of_root_are_none_of_this_machine(capabilities, users):
    program = f"""
from pathlib import Path
from testbed.runtimes import namespace
from testbed.system import linux
if {capabilities} is not None:
    linux.keep_capabilities(*{capabilities})
namespace._leave_host(as_root=False)
for kind in ("uid", "gid"):
    print(Path(f"/proc/self/{{kind}}_map").read_text())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=SMALL_WORLD.parents[2]
    )
    assert done.stderr == ""
    lines = [" ".join(line.split()) for line in done.stdout.splitlines() if line]
    assert lines == users * 2


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can look into namespaces")
@pytest.mark.parametrize("victim", [None, "supervisor", "world", "fabric"])
def test_no_namespace_is_left_in_which_frames_wait_for_ever(tmp_path, victim):
    with SmallWorld(tmp_path) as small:
        everyone = psutil.Process().children(recursive=True)
        supervisor = next(p for p in everyone if "testbed.runtimes.namespace" in arguments(p))
        wires = Tripwires(p.pid for p in nodes_of(psutil.Process()))
        assert wires.left() == 2
        small.let_frames_wait()
        named = {"supervisor": supervisor, "world": supervisor.children()[0]}
        named["fabric"] = next(p for p in everyone if "fabric" in " ".join(arguments(p)))
        if victim:
            named[victim].kill()
            until(lambda: gone([named[victim]]))
            time.sleep(0.2)  # Nobody else is told to end meanwhile.
    until(lambda: wires.left() == 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can look into namespaces")
def test_none_is_left_of_an_orchestrator_that_is_killed(tmp_path):
    process = spawn("namespace", tmp_path)
    check_result(process)
    wires = Tripwires(p.pid for p in nodes_of(process))
    assert wires.left() == 2
    process.kill()
    process.wait(10)
    # TCP may send again what the other end is no longer there for.
    until(lambda: wires.left() == 0, 200)


def test_exits_are_told_at_once(tmp_path):
    with SmallWorld(tmp_path) as small:
        assert small.world.exits() == []
        small.order("uav1", "exit", status=3)
        until(lambda: (found := small.world.exits()) == [Exit(uav(1), 3)] or found)
        assert str(Exit(BS, -9)) == "bs was ended by SIGKILL"
        (supervisor,) = [
            p for p in psutil.Process().children() if "testbed.runtimes.namespace" in arguments(p)
        ]
        (node,) = nodes_of(supervisor)
        node.kill()
        exits = []
        until(lambda: exits.extend(small.world.exits()) or exits)
        assert exits == [Exit(BS, -signal.SIGKILL)]


def test_a_node_that_ends_before_it_connects_is_named(tmp_path):
    log = tmp_path / "bs.log"
    nodes = [
        NodeSpec(BS, ["sh", "-c", "echo $WHY; exit 7"], log, {"WHY": "no reason"}),
        NodeSpec(uav(1), ["sleep", "100"], tmp_path / "uav1.log"),
    ]
    with runtimes.start("namespace", nodes, Shape()) as world:
        says = "^bs exited with status 7 before it connected: no reason$"
        with pytest.raises(RunError, match=says):
            world.connect(20)
        assert log.read_text() == "no reason\n"


def born(tmp_path, monkeypatch, *nodes):
    """What each node, once it has ended, had to say about its birth; and the exits."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SMALL_WORLD.parent), *sys.path]))
    specs = [NodeSpec(node, program, tmp_path / str(node), env) for node, program, env in nodes]
    exits = []
    with runtimes.start("namespace", specs, Shape()) as world:
        until(lambda: exits.extend(world.exits()) or len(exits) == len(nodes), 30)
    return [json.loads(spec.log.read_text()) for spec in specs], exits


def test_modules_are_born_with_what_was_imported_for_them_and_nothing_else(tmp_path, monkeypatch):
    with_colours = Module("born_program", ["colorsys", "workloads.nodes.uav"])
    facts, exits = born(
        tmp_path,
        monkeypatch,
        (BS, with_colours, {"WHY": "so"}),
        (uav(1), with_colours, {"WHY": "so"}),
        (uav(2), Module("born_program"), {"WHY": "not"}),
        (uav(3), Module("born_program").argv(), {}),
    )
    assert sorted(exits, key=str) == [Exit(node, 3) for node in (BS, *uavs(3))]
    modules = [fact["modules"] for fact in facts]
    assert modules == [["colorsys", "workloads.nodes.uav"]] * 2 + [[], []]
    assert [fact["why"] for fact in facts] == ["so", "so", "not", None]
    assert facts[1]["command"] == ["born_program", "uav1"]
    assert len({fact["namespace"] for fact in facts}) == 4
    executed = facts[3]
    for fact in facts:
        for thing in (
            "argv",
            "capabilities",
            "no_new_privileges",
            "threads",
            "scheduling",
            "open",
            "uid",
        ):
            assert fact[thing] == executed[thing], thing
        assert fact["capabilities"] == 0
        assert fact["threads"] == 1
    assert [fact["interfaces"] for fact in facts[1:]] == [["bs", "lo"]] * 3


def test_what_nodes_of_a_learning_run_import_starts_no_thread_and_touches_no_gpu():
    program = f"""
import os, sys
from importlib import import_module
for name in {NODE_IMPORTS}: import_module(name)
print("torch" in sys.modules)
for name in {LEARNING_IMPORTS}: import_module(name)
print("torch" in sys.modules, sys.modules["torch"].cuda.is_initialized())
print(len(os.listdir("/proc/self/task")))
"""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env)
    assert found.stdout.split() == ["False", "True", "False", "1"], found.stderr


def test_nodes_write_no_files_and_see_no_daemons(tmp_path):
    given = tmp_path / "given"
    given.mkdir()
    daemon = Path("/run") / f"testbed-test-{os.getpid()}.sock"
    ours = tmp_path / "ours"
    with SmallWorld(tmp_path, writable=[given]) as small, contextlib.ExitStack() as stack:
        if os.geteuid() == 0:
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(daemon))
            stack.callback(daemon.unlink)
        forbidden = [str(ours), "/proc/self/clear_refs", "/proc/sys/net/ipv4/tcp_sack"]
        # CUDA names the threads that it starts, and does not start where it cannot.
        allowed = [str(given / "file"), "/dev/null", "/proc/thread-self/comm"]
        said = small.ask("uav1", "try_to", files=forbidden + allowed)
        assert said["written"] == [False] * 3 + [True] * 3
        assert not said["run"], "sockets of daemons are in sight"
    assert not ours.exists()


def test_a_module_that_cannot_be_imported_is_named_in_a_log(tmp_path):
    nodes = [NodeSpec(BS, Module("workloads.nodes.program", ["nonesuch"]), tmp_path / "bs.log")]
    with runtimes.start("namespace", nodes, Shape()) as world:
        says = "bs exited with status 1 before it connected: .*No module named 'nonesuch'"
        with pytest.raises(RunError, match=says):
            world.connect(20)
        assert "No module named 'nonesuch'" in (tmp_path / "bs.log").read_text()


def test_nodes_that_live_together_share_a_process_but_no_network(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(SMALL_WORLD.parent))
    program = Module("living_together")
    nodes = [
        NodeSpec(node, program, tmp_path / f"{node}.log", together=node != BS)
        for node in (BS, *uavs(3))
    ]
    with runtimes.start("namespace", nodes, Shape()) as world:
        streams = world.connect(20)
        said = {node: json.loads(stream.recv(999)) for node, stream in streams.items()}
        assert len({place["net"] for place in said.values()}) == 4
        assert len({place["pid"] for place in said.values()}) == 2
        assert len({said[node]["pid"] for node in uavs(3)}) == 1
        assert {place["rights"] for place in said.values()} == {0}
        streams[uav(2)].sendall(b"0")
        streams[uav(3)].sendall(b"5")
        ended = []
        until(lambda: ended.extend(world.exits()) or ended)
        assert ended == [Exit(uav(1), 5)]


def test_the_end_of_a_log_is_one_line(tmp_path):
    ended, log = Exit(BS, 1), tmp_path / "bs.log"
    plain = "bs exited with status 1 before it connected"
    assert runtimes.before_it_connected(ended, log) == plain
    log.write_bytes(b"x" * 9000 + b"\nsh: 1: exec:  python3: not found \n\n \n")
    said = f"{plain}: sh: 1: exec: python3: not found"
    assert runtimes.before_it_connected(ended, log) == said
    hint = "the image 'a:1' must contain the testbed"
    assert runtimes.before_it_connected(ended, log, hint) == f"{said}: {hint}"
    assert runtimes.before_it_connected(ended, None, hint) == f"{plain}: {hint}"
    log.write_bytes(b"\xff\x00")
    assert "\n" not in runtimes.before_it_connected(ended, log)


def test_a_program_that_is_missing_is_named_in_its_log(tmp_path):
    nodes = [NodeSpec(BS, [str(tmp_path / "nothing")], tmp_path / "bs.log")]
    with runtimes.start("namespace", nodes, Shape()) as world:
        with pytest.raises(RunError, match="bs exited with status 1"):
            world.connect(20)
        assert "FileNotFoundError" in (tmp_path / "bs.log").read_text()


def test_nodes_that_never_connect_are_named(tmp_path):
    nodes = [NodeSpec(node, ["sleep", "100"], tmp_path / str(node)) for node in (BS, uav(1))]
    with (
        runtimes.start("namespace", nodes, Shape()) as world,
        pytest.raises(RunError, match=r"^waited 0.3 s for bs, uav1 to connect$"),
    ):
        world.connect(0.3)


def test_processes_of_nodes_end_with_the_world(tmp_path):
    """Even those that nodes have left behind, and that changed their session."""
    mark = f"9{os.getpid()}"
    nodes = [NodeSpec(BS, ["sh", "-c", f"setsid sleep {mark} & sleep 100"], tmp_path / "log")]
    with runtimes.start("namespace", nodes, Shape()):
        found = []
        until(
            lambda: found.extend(p for p in psutil.process_iter() if mark in arguments(p)) or found
        )
    until(lambda: gone(found))


def test_a_node_sees_and_ends_only_its_own_processes(tmp_path):
    attack = "kill -STOP -1; kill -9 -1; kill -9 1 2 3 4 5 6; ls -d /proc/[0-9]*; exit 3"
    nodes = [
        NodeSpec(BS, ["sleep", "100"], tmp_path / "bs"),
        NodeSpec(uav(1), ["sh", "-c", attack], tmp_path / "uav1"),
        NodeSpec(uav(2), ["sh", "-c", "sleep 100 & kill -9 -1; wait; exit 4"], tmp_path / "uav2"),
    ]
    exits = []
    with runtimes.start("namespace", nodes, Shape()) as world:
        until(lambda: exits.extend(world.exits()) or len(exits) == 2, 30)
        assert sorted(exits, key=str) == [Exit(uav(1), 3), Exit(uav(2), 4)]
        assert world.injector.report() is not None
        said = (tmp_path / "uav1").read_text().splitlines()
        assert [line for line in said if line.startswith("/proc/")] == ["/proc/1"], "the shell"
        world.kill(BS)
        until(lambda: exits.extend(world.exits()) or len(exits) == 3, 30)
        assert exits[2] == Exit(BS, -signal.SIGKILL)


def sandboxes(folder, count, **options):
    """A base station and UAVs without programs, each with a home folder."""
    specs = []
    for node in (BS, *uavs(count)):
        (home := folder / str(node)).mkdir()
        sandbox = Sandbox("127.0.0.1 localhost\n", (home,), **options)
        specs.append(NodeSpec(node, sandbox, folder / f"{node}.log"))
    return specs


def started(world, folder, node, words, log, **options):
    """The number of a program in a sandbox that writes to a file."""
    env = {"HOME": str(folder / str(node)), "PATH": os.defpath}
    with log.open("wb") as output, Path(os.devnull).open("rb") as nothing:
        files = (nothing.fileno(), output.fileno(), output.fileno())
        return world.spawn(Command(node, words, env, folder, **options), files)


def ended(world, count):
    """The statuses of programs, by number, once so many have ended."""
    found = {}
    until(
        lambda: found.update((n.number, n.status) for n in world.news()) or len(found) == count, 60
    )
    return found


@pytest.mark.parametrize("runtime", ["namespace", pytest.param("docker", marks=pytest.mark.docker)])
def test_held_programs_start_together_and_are_told_the_epoch(tmp_path, runtime):
    look = "cat /proc/uptime; echo $TESTBED_EPOCH_NS; exit 3"
    with runtimes.start(runtime, sandboxes(tmp_path, 2), Shape()) as world:
        logs = {node: tmp_path / f"{node}.out" for node in (BS, *uavs(2))}
        held = [
            started(world, tmp_path, node, ["sh", "-c", look], log, held=True)
            for node, log in logs.items()
        ]
        free = started(world, tmp_path, BS, ["sh", "-c", "exit 4"], tmp_path / "free")
        assert ended(world, 1) == {free: 4}, "the others wait"
        released_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        world.release(1234)
        assert ended(world, 3) == dict.fromkeys(held, 3)
        for log in logs.values():
            uptime, epoch_ns = log.read_text().splitlines()
            assert float(uptime.split()[0]) >= released_s - 0.01
            assert epoch_ns == "1234"


def test_a_program_that_is_held_and_killed_leaves_the_others_waiting(tmp_path):
    with runtimes.start("namespace", sandboxes(tmp_path, 1), Shape()) as world:
        first, second = (
            started(world, tmp_path, BS, ["sh", "-c", "exit 5"], tmp_path / "log", held=True)
            for _ in range(2)
        )
        world.signal(first, signal.SIGKILL)
        assert ended(world, 1) == {first: -signal.SIGKILL}
        world.release(1)
        assert ended(world, 1) == {second: 5}


def test_programs_of_a_sandbox_have_a_process_table_that_is_reaped(tmp_path):
    """What others leave behind does not stay as a zombie, and PID 1 outlives every attack."""
    orphans = "for k in 1 2 3; do (sleep 0.05 & ); done; sleep 0.5; cat /proc/[0-9]*/stat"
    attack = "trap '' TERM; kill -9 1; kill -STOP 1; kill -TERM -1; kill -9 -1; exit 6"
    with runtimes.start("namespace", sandboxes(tmp_path, 1), Shape()) as world:
        other = started(world, tmp_path, BS, ["sleep", "100"], tmp_path / "other")
        number = started(world, tmp_path, uav(1), ["sh", "-c", attack], tmp_path / "attack")
        assert ended(world, 1) == {number: 6}
        log = tmp_path / "orphans"
        number = started(world, tmp_path, uav(1), ["sh", "-c", orphans], log)
        assert ended(world, 1) == {number: 0}
        states = [line.rpartition(")")[2].split()[0] for line in log.read_text().splitlines()]
        assert len(states) in (2, 3), "PID 1, the shell unless it became cat, cat"
        assert "Z" not in states
        world.signal(other, signal.SIGTERM)
        assert ended(world, 1) == {other: -signal.SIGTERM}
        (first,) = (
            p
            for p in psutil.Process().children(recursive=True)
            if arguments(p) == list(namespace.WAITING) and b"uav1" in _host_name(p)
        )
        first.kill()
        exits = []
        until(lambda: exits.extend(world.exits()) or exits)
        assert exits == [Exit(uav(1), -signal.SIGKILL)]


def _host_name(process):
    enter = ["nsenter", "--target", str(process.pid), "--uts", "hostname"]
    return subprocess.run(enter, capture_output=True).stdout


def test_limits_of_a_sandbox_hold_for_it_alone(tmp_path):
    allocate = "import sys; b = bytearray(300 << 20); sys.exit(7)"
    threads = (
        "import threading\nstop = threading.Event(); made = 0\n"
        "try:\n"
        "  for made in range(1, 400): threading.Thread(target=stop.wait).start()\n"
        "except RuntimeError: made -= 1\n"
        "print(made); stop.set()"
    )
    specs = sandboxes(tmp_path, 2)
    for place, limit in ((0, {"memory_bytes": 96 << 20}), (1, {"processes": 40})):
        sandbox = replace(specs[place].program, **limit)
        specs[place] = replace(specs[place], program=sandbox)
    shown = (Path(sys.prefix), Path(sys.base_prefix))
    found = {}
    with runtimes.start("namespace", specs, Shape()) as world:
        for node in (BS, *uavs(2)):
            for name, code in (("memory", allocate), ("threads", threads)):
                log, words = tmp_path / "log", [sys.executable, "-c", code]
                number = started(world, tmp_path, node, words, log, shown=shown)
                found[str(node), name] = ended(world, 1)[number], log.read_text()
    assert "MemoryError" in found["bs", "memory"][1]
    assert [found[f"uav{k}", "memory"] for k in (1, 2)] == [(7, "")] * 2
    assert found["uav2", "threads"] == (0, "399\n")
    if linux.can_limit_processes():
        # The kernel spares PIDs below 300, once.
        assert 40 <= int(found["uav1", "threads"][1]) <= 340


@pytest.mark.parametrize(
    ("release", "can"),
    [("6.12.117", False), ("6.1.0-37-amd64", False), ("6.14.0-rc1", True), ("7.0", True)],
)
def test_the_limit_of_a_whole_machine_is_let_alone(release, can, monkeypatch):
    """Before 6.14, `pid_max` is the machine's, and root's user namespaces may write it."""
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(release=release))
    assert linux.can_limit_processes() == can


def test_who_runs_behind_others_goes_on_so():
    """An ordinary user may lower their priority, but not raise it again."""
    if (child := os.fork()) == 0:
        try:
            lowered = os.nice(15)
            if os.geteuid() == 0:
                os.setuid(65534)
            linux.prefer_scheduling()
            linux.ordinary_scheduling()
            os._exit(linux.scheduling() != f"nice {lowered}")
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_supervisor_of_an_orchestrator_that_is_gone_says_nothing():
    """Whoever killed it reads its terminal: no traceback of ours may come there later."""
    ours, theirs = zip(*(socket.socketpair() for _ in range(3)), strict=True)
    numbers = [end.fileno() for end in theirs]
    supervisor = subprocess.Popen(
        [sys.executable, "-m", "testbed.runtimes.namespace", *map(str, numbers), "0"],
        pass_fds=numbers,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    for end in (*ours, *theirs):
        end.close()
    try:
        said, _ = supervisor.communicate(timeout=100)
    finally:
        supervisor.kill()
    assert said == ""
