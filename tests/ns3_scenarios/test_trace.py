# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Trace files: what is saved comes back; what is no trace is refused by name."""

from pathlib import Path

import numpy as np
import pytest

from ns3_scenarios.trace import (
    ChannelTrace,
    Replay,
    TraceError,
    TraceExhausted,
    describe,
    load_trace,
    trace_of,
)

GAIN = np.array([[1e-9, 2e-9, 0.0], [3e-10, 1 / 3, 5e-12]])


def test_a_saved_trace_comes_back_to_the_byte(tmp_path: Path) -> None:
    position = np.random.default_rng(0).normal(size=(2, 3, 3))
    trace = ChannelTrace(GAIN, 0.1, position, seed=2**31 - 1, scenario='{"name": "é"}')
    trace.save(tmp_path / "t.npz")
    back = load_trace(tmp_path / "t.npz")
    assert back.position_m is not None
    assert back.gain.tobytes() == GAIN.tobytes()
    assert back.position_m.tobytes() == position.tobytes()
    assert (back.slot_s, back.seed, back.scenario) == (0.1, 2**31 - 1, '{"name": "é"}')
    assert [path.name for path in tmp_path.iterdir()] == ["t.npz"]


def test_the_file_has_the_documented_fields(tmp_path: Path) -> None:
    ChannelTrace(GAIN, 0.1, np.zeros((2, 3, 3)), 1, "{}").save(tmp_path / "t.npz")
    with np.load(tmp_path / "t.npz") as file:
        assert set(file.files) == {"gain", "position", "slot_s", "seed", "scenario"}
        assert file["gain"].dtype == np.float64


def test_what_frames_meet_comes_back_of_one_way_or_of_each(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "t.npz",
        **{"gain": GAIN, "slot_s": 0.1, "loss": GAIN / 2},
        **{"delay_up_s": GAIN / 3, "delay_down_s": GAIN / 4},
    )
    trace = load_trace(tmp_path / "t.npz")
    trace.save(tmp_path / "again.npz")
    for one in (trace, load_trace(tmp_path / "again.npz"), trace.first(2)):
        slots = one.slots
        assert one.loss is not None
        assert one.delay_s is not None
        np.testing.assert_array_equal(one.loss, [GAIN[:, :slots] / 2] * 2)
        np.testing.assert_array_equal(one.delay_s, [GAIN[:, :slots] / 3, GAIN[:, :slots] / 4])
        assert one.jitter_s is None
    some = trace.at(np.array([2, 0, 2]))
    np.testing.assert_array_equal(some.gain, GAIN[:, [2, 0, 2]])
    np.testing.assert_array_equal(some.loss, [GAIN[:, [2, 0, 2]] / 2] * 2)


def test_gain_and_slot_suffice(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", gain=GAIN.T.astype(np.float32).T, slot_s=1)
    trace = load_trace(tmp_path / "t.npz")
    assert trace.gain.dtype == np.float64
    assert trace.gain.flags.c_contiguous
    assert (trace.slot_s, trace.uavs, trace.slots) == (1.0, 2, 3)
    assert (trace.position_m, trace.seed, trace.scenario) == (None, None, None)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("gain", None),
        ("gain", np.zeros(3)),
        ("gain", np.zeros((0, 3))),
        ("gain", [["a"]]),
        ("gain", [[1.0, np.nan]]),
        ("gain", [[1.0, -1e-9]]),
        ("gain", [[1j]]),
        ("gain", [[True]]),
        ("slot_s", None),
        ("slot_s", 0.0),
        ("slot_s", -0.1),
        ("slot_s", np.inf),
        ("slot_s", 1e300),
        ("slot_s", 1e-300),
        ("gain", [[1e300, 1.0]]),
        ("gain", [[1e-300, 1.0]]),
        ("slot_s", np.nan),
        ("slot_s", [0.1, 0.1]),
        ("slot_s", "0.1"),
        ("position", np.zeros((2, 3))),
        ("position", np.full((2, 3, 3), np.nan)),
        ("seed", 1.5),
        ("seed", [1, 2]),
        ("scenario", 1),
        ("loss", np.full((2, 3), 1.01)),
        ("loss", np.full((2, 2), 0.1)),
        ("delay_s", np.full((2, 3), -1e-9)),
        ("jitter_s", np.full((2, 3), np.nan)),
        ("jitter_up_s", np.array([["x"]])),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, field: str, value: object) -> None:
    fields: dict[str, object] = {"gain": GAIN, "slot_s": 0.1} | {field: value}
    given = {name: np.asarray(value) for name, value in fields.items() if value is not None}
    np.savez(tmp_path / "t.npz", **given)
    with pytest.raises(TraceError, match=rf"t\.npz: {field}[ \[]") as caught:
        load_trace(tmp_path / "t.npz")
    assert "\n" not in str(caught.value)


FLIGHT = np.tile([10.0, 20.0, 30.0], (3, 16, 1))


def at(values: np.ndarray, k: int, s: int, value: object) -> np.ndarray:
    changed = values.copy()
    changed[k, s] = value
    return changed


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (
            {"gain": at(np.full((3, 16), 1e-9), 2, 15, 3.2)},
            "gain[2, 15] is 3.2: a linear power gain is at most 1; dB values are converted by "
            "10**(dB/10) (UAV 3, slot 15)",
        ),
        (
            {"gain": np.full((3, 16), -90)},
            "gain[0, 0] is -90: a linear power gain is at most 1; dB values are converted by "
            "10**(dB/10) (UAV 1, slot 0)",
        ),
        ({"gain": at(np.ones((3, 16)), 0, 1, 1.001)}, "gain[0, 1] is 1.001: a linear power"),
        ({"gain": at(np.full((3, 16), 1e-9), 1, 2, np.nan)}, "gain[1, 2] is NaN: a linear power"),
        (
            {"gain": at(np.full((3, 16), 1e-9), 1, 2, 1e-41)},
            "gain[1, 2] is 1e-41: must be 0, which is an outage, or at least 1e-40 (UAV 2, slot 2)",
        ),
        (
            {"gain_up": np.full((3, 16), 1e-9), "gain_down": np.full((3, 16), 90.0)},
            "gain_down[0, 0] is 90: a linear power gain",
        ),
        (
            {"uplink_bps": np.ones((3, 16)), "downlink_bps": np.full((3, 16), 1.1e12)},
            "downlink_bps[0, 0] is 1.1e+12: a rate is at most 1e+12 bit/s, and not negative",
        ),
        (
            {"uplink_bps": at(np.ones((3, 16)), 1, 3, np.inf), "downlink_bps": np.ones((3, 16))},
            "uplink_bps[1, 3] is inf: a rate",
        ),
        (
            {"position": at(FLIGHT, 1, 4, [np.nan, 0, 0])},
            "position[1, 4] is (NaN, 0, 0): x and y are at most 1e+06 m from 0 (UAV 2, slot 4)",
        ),
        ({"position": 0 * FLIGHT + 1.1e6}, "position[0, 0] is (1.1e+06, 1.1e+06, 1.1e+06): x and"),
        (
            {"position": at(FLIGHT, 2, 1, [0, 0, -20001])},
            "position[2, 1] is (0, 0, -20001): the height is at most 20000 m from 0",
        ),
        (
            {"position": at(FLIGHT, 1, 15, [111.0, 20, 30])},
            "position[1, 15] would need 1010 m/s from the slot before; a UAV flies at most 1000 "
            "m/s (UAV 2, slot 15)",
        ),
        ({"loss": at(np.zeros((3, 16)), 0, 9, np.nan)}, "loss[0, 9] is NaN: from 0 to 1 (UAV 1"),
        ({"slot_s": np.nan}, "slot_s must be one number from 1e-06 to 10, not NaN"),
    ],
)
def test_what_no_channel_and_no_flight_can_be_is_refused_with_its_place(
    fields: dict[str, object], says: str
) -> None:
    given = {"slot_s": 0.1, **fields}
    if not {"gain", "gain_up", "uplink_bps"} & given.keys():
        given["gain"] = np.full((3, 16), 1e-9)
    with pytest.raises(TraceError) as caught:
        trace_of(given, "t")
    assert str(caught.value).startswith(f"t: {says}")


def test_the_limits_themselves_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    gain = np.array([[1.0, 1e-40, 0.0]])
    position = np.array([[[1e6, -1e6, 2e4], [999900.0, -1e6, 2e4], [999800.0, -1e6, 2e4]]])
    trace_of({"gain": gain, "position": position, "slot_s": 0.1}, "t")
    bps = np.array([[1e12, 1e-3, 0.0]])
    trace_of({"uplink_bps": bps, "downlink_bps": bps, "slot_s": 0.1}, "t")
    # Between two blocks of a flight, too.
    monkeypatch.setattr("ns3_scenarios.npz.BLOCK_BYTES", 2 * 3 * 8)
    position[0, 2, 0] = 0
    with pytest.raises(TraceError, match=r"position\[0, 2\] would need"):
        trace_of({"gain": gain, "position": position, "slot_s": 0.1}, "t")
    two = np.concatenate([position[:, :2], position[:, 1:]], axis=1)
    with pytest.raises(TraceError, match=r"position\[0, 3\] would need"):
        trace_of({"gain": np.full((1, 4), 1e-9), "position": two, "slot_s": 0.1}, "t")


def test_half_a_pair_and_two_words_for_one_thing_are_refused() -> None:
    fields = {"gain": GAIN, "slot_s": 0.1, "loss_up": np.zeros((2, 3))}
    with pytest.raises(TraceError, match="loss_down is missing"):
        trace_of(fields, "test")
    with pytest.raises(TraceError, match="has loss and loss_up"):
        trace_of(fields | {"loss": np.zeros((2, 3))}, "test")


def test_what_is_no_npz_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        load_trace(tmp_path / "none.npz")
    whole = tmp_path / "whole.npz"
    ChannelTrace(GAIN, 0.1).save(whole)
    half = whole.read_bytes()[: whole.stat().st_size // 2]
    for content in (b"", b"gain: 1\n", b"PK\x03\x04", half):
        (tmp_path / "t.npz").write_bytes(content)
        with pytest.raises(TraceError, match="not an NPZ trace"):
            load_trace(tmp_path / "t.npz")
    np.save(tmp_path / "t.npy", GAIN)
    with pytest.raises(TraceError, match="not an NPZ trace"):
        load_trace(tmp_path / "t.npy")


def test_pickled_objects_are_not_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", gain=np.array([[object()]]), slot_s=0.1)
    with pytest.raises(TraceError, match="not an NPZ trace"):
        load_trace(tmp_path / "t.npz")


def test_replay_gives_the_whole_trace_and_no_more() -> None:
    whole = ChannelTrace(GAIN, 0.1)
    replay = Replay(whole)
    assert replay.trace(1) is replay.trace(3) is whole
    assert (replay.uavs, replay.slot_s) == (2, 0.1)
    with pytest.raises(TraceExhausted, match="after 3 slots"):
        replay.trace(4)


def test_a_line_describes_a_trace_of_gains() -> None:
    position = np.tile([10.0, -5.0, 30.0], (2, 600, 1))
    position[1, 599] = [130.0, 335.0, 45.25]
    gain = np.full((2, 600), 1e-11)
    gain[0, :12], gain[1, 7] = 0, 10**-8.51
    trace = ChannelTrace(gain, 0.1, position)
    assert describe(trace) == (
        "2 UAVs, 600 slots of 0.1 s (60 s), 120 m east-west x 340 m north-south, "
        "heights 30 to 45.2 m, gains -110 to -85.1 dB, 12 outages"
    )
    two = trace.replaced(position_m=None, gain_down=np.full((2, 600), 1e-9)).first(1)
    assert describe(two) == (
        "2 UAVs, 1 slot of 0.1 s (0.1 s), uplink gains -110 dB, downlink gains -90 dB, 1 outage"
    )


def test_a_line_describes_a_trace_of_rates_in_fitting_units() -> None:
    up, down = np.array([[5e5, 2e7, 0.0]]), np.array([[0.0, 1.5e9, 2e9]])
    trace = trace_of({"uplink_bps": up, "downlink_bps": down, "slot_s": 1}, "t")
    assert describe(trace) == (
        "1 UAV, 3 slots of 1 s (3 s), uplink 0.5 to 20 Mbit/s, downlink 1.5 to 2 Gbit/s, 2 outages"
    )
    assert describe(trace.changed(lambda bps, _: 0 * bps)) == (
        "1 UAV, 3 slots of 1 s (3 s), uplink 0 bit/s, downlink 0 bit/s, 3 outages"
    )
