# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`Ns3Channel`: the stream from ns-3's process, and that process's life and death."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from processes import assert_ends_with_its_parent

from ns3_scenarios import channel as module
from ns3_scenarios import child
from ns3_scenarios.channel import ChannelSettings, Ns3Channel
from ns3_scenarios.errors import ChannelError
from ns3_scenarios.trace import ChannelTrace
from orchestrator.scenario.channel import ns3_source
from orchestrator.scenario.loading import validate
from testbed.system import leftovers


@pytest.fixture(autouse=True)
def none_kept() -> None:
    """Earlier tests in this process may have kept a process of ns-3, or started one ahead."""
    child.end_kept()


SETTINGS = ChannelSettings(
    ring_m=[(100.0, 550.0)] * 2 + [(820.0, 1000.0)] * 3,
    seed=7,
    line_of_sight="probability",
    shadow_fading=True,
)

KEPT = [
    [964.1521241, -224.6630576, 20.0000000, -104.7695407],
    [842.1218600, -160.3474473, 20.0000000, -102.7462600],
]
"""Position (m) and gain (dB) of the last UAV in slots 0 and 1000."""


def made(slots: int, settings: ChannelSettings = SETTINGS) -> ChannelTrace:
    with Ns3Channel(settings) as source:
        return source.trace(slots)


def test_a_process_that_was_started_ahead_is_used_once_for_what_it_runs() -> None:
    expected = made(5)
    child.start_ahead("ns3_scenarios.process", child.Launch(env={**os.environ, "OTHER": "1"}))
    ((_, _, (other, _)),) = child._ahead
    try:
        with Ns3Channel(SETTINGS) as source:  # with another environment
            assert source.trace(5).gain.tobytes() == expected.gain.tobytes()
        assert child._ahead
    finally:
        child._ahead.clear()
        other.kill()
        other.wait()
    child.start_ahead("ns3_scenarios.process", child.LAUNCH)
    ((_, _, (process, _)),) = child._ahead
    assert_same(made(5), expected)
    assert not child._ahead
    assert process.wait(60) == -signal.SIGKILL  # with the source that has used it


def assert_same(a: ChannelTrace, b: ChannelTrace, uavs: int | None = None) -> None:
    assert a.position_m is not None
    assert b.position_m is not None
    assert a.gain[:uavs].tobytes() == b.gain[:uavs].tobytes()
    assert a.position_m[:uavs].tobytes() == b.position_m[:uavs].tobytes()


def test_shape_and_first_call_gives_what_it_is_asked_for() -> None:
    trace = made(123)
    assert trace.position_m is not None
    assert trace.gain.shape == (5, 123)
    assert trace.position_m.shape == (5, 123, 3)
    assert (trace.slot_s, trace.seed, trace.uavs) == (0.1, 7, 5)
    assert trace.gain.flags.c_contiguous
    assert not trace.gain.flags.writeable
    assert not trace.position_m.flags.writeable


def test_same_seed_same_trace_other_seed_other_trace() -> None:
    first, second = made(400), made(400)
    assert_same(first, second)
    other = made(400, replace(SETTINGS, seed=8))
    assert (other.gain != first.gain).all()
    assert other.position_m is not None
    assert (other.position_m[..., :2] != first.position_m[..., :2]).all()


def test_a_seed_keeps_its_trace() -> None:
    # Published numbers name a seed: whoever changes these values changes every one of them.
    # Last bits may differ between machines, so compare to 1e-6 (m, dB).
    trace = made(1001)
    assert trace.position_m is not None
    found = [[*trace.position_m[4, s], 10 * np.log10(trace.gain[4, s])] for s in (0, 1000)]
    np.testing.assert_allclose(found, KEPT, rtol=0, atol=1e-6)


@pytest.mark.parametrize("seed", [0, 2**31 - 1])
def test_every_seed_of_a_scenario_works(seed: int) -> None:
    assert np.isfinite(made(10, replace(SETTINGS, seed=seed)).gain).all()


def test_sizes_of_calls_and_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = made(3000)
    with Ns3Channel(SETTINGS) as source:
        for slots in (1, 2, 9, 10, 11, 250, 251, 2000, 3000):
            before = source.trace(1)
            grown = source.trace(slots)
            assert grown.slots >= slots
            assert before.gain.tobytes() == grown.gain[:, : before.slots].tobytes()
        assert source.trace(17) is source.trace(2500)
    assert grown.position_m is not None
    assert grown.gain[:, :3000].tobytes() == whole.gain.tobytes()
    assert grown.position_m[:, :3000].tobytes() == whole.position_m.tobytes()
    monkeypatch.setattr(module, "_CHUNK_BYTES", 32 * 5 * 7)
    assert_same(made(3000), whole)


def test_growth_is_amortised(monkeypatch: pytest.MonkeyPatch) -> None:
    grown: list[int] = []
    original = Ns3Channel.following
    monkeypatch.setattr(
        Ns3Channel, "following", lambda self, slots: grown.append(slots) or original(self, slots)
    )
    with Ns3Channel(SETTINGS) as source:
        for slots in range(1, 5001):
            source.trace(slots)
    assert len(grown) < 30
    assert sum(grown) <= 7500


def test_more_uavs_leave_the_first_ones_alone() -> None:
    more = replace(SETTINGS, ring_m=[*SETTINGS.ring_m, *[(200.0, 900.0)] * 20])
    assert_same(made(2000, more), made(2000), uavs=5)


def test_slots_sample_one_motion() -> None:
    # Positions do not depend on how often they are looked at; times that are no whole number of
    # nanoseconds do not drift.
    fine, coarse = made(9001, replace(SETTINGS, slot_s=0.1)), made(901, replace(SETTINGS, slot_s=1))
    thirds = made(2701, replace(SETTINGS, slot_s=1 / 3))
    assert fine.position_m is not None
    assert coarse.position_m is not None
    assert thirds.position_m is not None
    np.testing.assert_allclose(fine.position_m[:, ::10], coarse.position_m, rtol=0, atol=1e-7)
    np.testing.assert_allclose(thirds.position_m[:, ::3], coarse.position_m, rtol=0, atol=1e-7)


def test_refusal_of_ns3_names_the_reason() -> None:
    settings = replace(SETTINGS, height_m=50.0, line_of_sight="never")
    with (
        Ns3Channel(settings) as source,
        pytest.raises(ChannelError, match=r"SIGABRT.*knows NLOS up to 40 m, not at 50 m") as caught,
    ):
        source.trace(1)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("height_m", [0.9, 300.5])
def test_heights_outside_the_model_are_refused(height_m: float) -> None:
    with (
        Ns3Channel(replace(SETTINGS, height_m=height_m)) as source,
        pytest.raises(ChannelError, match=r"from 1 m up to 300 m, not at"),
    ):
        source.trace(1)


def test_death_of_the_process_is_named_and_final() -> None:
    with Ns3Channel(SETTINGS) as source:
        kept = source.trace(100)
        source._child.process.kill()
        with pytest.raises(ChannelError, match=r"process died.*SIGKILL"):
            source.trace(101)
        assert source.trace(100) is kept
        with pytest.raises(ChannelError, match="closed"):
            source.trace(101)


def test_an_interrupt_ends_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with Ns3Channel(SETTINGS) as source:
        source.trace(10)
        monkeypatch.setattr(source._child, "receive_into", interrupted)
        with pytest.raises(KeyboardInterrupt):
            source.trace(20)
        assert source._child.process.poll() is not None
        with pytest.raises(ChannelError, match="closed"):
            source.trace(20)


def tell(process: child.Child, data: bytes) -> bytes:
    process.send("10", data)
    return process.receive_line()


@pytest.mark.parametrize(("what", "data"), [("answer", b""), ("read a request", bytes(1 << 20))])
def test_a_process_that_stands_still_is_given_up(
    monkeypatch: pytest.MonkeyPatch, what: str, data: bytes
) -> None:
    with Ns3Channel(SETTINGS) as source:
        source.trace(10)
        process = source._child.process
        process.send_signal(signal.SIGSTOP)
        monkeypatch.setattr(child, "ANSWER_S", 0.1)
        with pytest.raises(ChannelError, match=f"^waited 0.1 s for ns-3's process to {what}$"):
            tell(source._child, data)
        assert process.poll() == -signal.SIGKILL
        with pytest.raises(ChannelError, match="closed"):
            source.trace(11)


def test_a_process_that_says_no_more_but_does_not_end_is_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "mute.py").write_text("import os, time\nos.close(1)\ntime.sleep(1000)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(child, "ENDING_S", 0.1)
    mute = child.Child("mute", tmp_path, {}, child.LAUNCH)
    with pytest.raises(ChannelError, match="SIGKILL"):
        mute.receive_line()
    mute.close()


def test_close_ends_the_process_and_may_be_repeated() -> None:
    source = Ns3Channel(SETTINGS)
    trace = source.trace(10)
    source.close()
    source.close()
    assert source._child.process.poll() is not None
    assert trace.gain[0, 0] > 0
    with pytest.raises(ChannelError, match="closed"):
        source.trace(11)


def test_forgotten_channel_takes_its_process_along() -> None:
    source = Ns3Channel(SETTINGS)
    process = source._child.process
    del source
    assert process.poll() is not None


ORPHANAGE = """
import os, signal, sys, time
from ns3_scenarios.channel import ChannelSettings, Ns3Channel
source = Ns3Channel(ChannelSettings(ring_m=[(100, 550)] * 3, seed=1))
source.trace(10)
if "busy" in sys.argv:  # more than the pipe holds, and nobody reads
    source._child.send("1000000")
if "forked" in sys.argv and not (sibling := os.fork()):
    time.sleep(60)  # holds the pipes open
if "stopped" in sys.argv:
    source._child.process.send_signal(signal.SIGSTOP)
print(source._child.process.pid, sibling if "forked" in sys.argv else 0, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("how", ["idle", "busy", "forked", "busy forked", "stopped"])
def test_process_never_outlives_its_parent(how: str) -> None:
    assert_ends_with_its_parent(ORPHANAGE, *how.split())


def test_a_run_s_process_bears_its_mark_and_can_do_no_more_than_compute() -> None:
    scenario = validate({"uavs": {"tx_power_w": [1]}, "workload": {"compute": "none"}}, "test")
    with ns3_source(scenario) as source:
        source.trace(10)
        place = Path(f"/proc/{source._child.process.pid}")
        environment = (place / "environ").read_bytes().split(b"\0")
        status = (place / "status").read_text()
    assert f"{leftovers.VARIABLE}={leftovers.mark()}".encode() in environment
    about = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert about["NoNewPrivs"] == "1"
    assert {about[kind] for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0" * 16}


def test_a_confined_module_writes_into_nothing_but_what_is_open(tmp_path: Path) -> None:
    (tmp_path / "writer.py").write_text("print(open(__file__, 'a'))")
    writer = subprocess.run(
        [sys.executable, "-m", "testbed.system.confined", "writer"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"},
        capture_output=True,
        text=True,
    )
    assert "PermissionError" in writer.stderr
    assert not writer.stdout


def test_a_fork_does_not_end_the_process() -> None:
    with Ns3Channel(SETTINGS) as source:
        source.trace(10)
        if not (pid := os.fork()):
            source.close()
            os._exit(0)
        os.waitpid(pid, 0)
        assert source.trace(1000).slots == 1000


def test_process_imports_nothing_heavy() -> None:
    code = "import sys, ns3_scenarios.process; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path("/")
    ).stdout.split()
    assert "ns3_scenarios.native" in loaded
    assert not {"numpy", "torch", "pandas", "cppyy", "ns3"} & set(loaded)


def test_a_kept_process_makes_the_channels_of_fresh_ones() -> None:
    """One process, one channel after the other, of other numbers of UAVs; then there is none."""
    few = replace(SETTINGS, seed=9, ring_m=SETTINGS.ring_m[:2])

    def channels() -> list[tuple[int, bytes]]:
        found = []
        for settings in (SETTINGS, few, SETTINGS):
            with Ns3Channel(settings) as source:
                gain = source.trace(300).gain
            found.append((source._child.process.pid, gain.tobytes()))
            with pytest.raises(ChannelError, match="was closed"):
                source.trace(2000)
        return found

    fresh = channels()
    child.keep()
    try:
        kept = channels()
    finally:
        child.end_kept()
    assert [gain for _, gain in kept] == [gain for _, gain in fresh]
    assert len({pid for pid, _ in fresh}) == 3
    (pid,) = {pid for pid, _ in kept}
    assert not psutil.pid_exists(pid)
