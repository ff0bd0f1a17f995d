# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A round that practically never ends is refused at once, with the key whose unit is wrong."""

import importlib
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from annotated_types import Ge, Gt, Le, Lt

import orchestrator as tb
from ns3_scenarios.trace import TraceError, trace_of
from orchestrator.scenario.channel import Channel, open_source
from orchestrator.scenario.loading import load, put, validate
from orchestrator.scenario.schema import Scenario, Section
from testbed.core.errors import InputError, RunError

QUICK = ("workload.compute=none", "rounds=1")
BY_DISTANCE = "radio={channel: log-distance, parameters: {exponent: 5}, noise_dbm_per_mhz: -90}"
EDGES = (
    "topology={edges: [{uavs: [1, 2]}, {uavs: [3]}], backhaul: {uplink_bps: %s, downlink_bps: %s}}"
)


def quick(*overrides: str) -> Scenario:
    return load(Path("quickstart"), [*QUICK, *overrides])


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["radio.noise_dbm_per_mhz=0"], "radio.noise_dbm_per_mhz: with 0, the upload of"),
        (["radio.noise_dbm_per_mhz=40"], "radio.noise_dbm_per_mhz: with 40, the upload of"),
        (["uavs.compute_flops=2500"], "uavs.compute_flops: with 2500, the computing of uav"),
        (["uavs.compute_flops=1000"], "uavs.compute_flops: with 1000, the computing of uav"),
        (["uavs.compute_flops=[2e9, 1e3, 2e9]"], "with 1000, the computing of uav2 takes"),
        (["base_station.compute_flops=1000"], "base_station.compute_flops: with 1000, the server"),
        (["uavs.tx_power_w=[1, 1, 1e-6]", BY_DISTANCE], "uavs.tx_power_w: with 1e-06, the upload"),
        (["base_station.tx_power_w=1e-6", BY_DISTANCE], "base_station.tx_power_w: with 1e-06, the"),
        (
            ["radio.uplink_bandwidth_hz=1000", "workload.batch_size=4096"],
            "radio.uplink_bandwidth_hz: with 1000, the upload of smashed data of uav",
        ),
        (
            ["radio.downlink_bandwidth_hz=1000", "workload.local_iterations=1000"],
            "radio.downlink_bandwidth_hz: with 1000, the download of gradients of",
        ),
        (
            ["workload.backward_ratio=1000", "workload.local_iterations=1000"],
            "workload.backward_ratio: with 1000, the",
        ),
        (["paradigm=asfl-ps", "uavs.compute_flops=1000"], "uavs.compute_flops: with 1000, the"),
        (["paradigm=sfl-pp", "uavs.compute_flops=1000"], "uavs.compute_flops: with 1000, the"),
        (["radio.access=wifi", "radio.noise_dbm_per_mhz=0"], "radio"),
        ([EDGES % (1, 1e6)], "topology.backhaul.uplink_bps: with 1, round 0 takes"),
        (
            ["allocation.policy=planner", "uavs.compute_flops=1000"],
            "uavs.compute_flops: with 1000, the",
        ),
        (
            ["longest_round_s=4"],
            "longest_round_s: a round may last 4 s (longest_round_s), and needs",
        ),
    ],
)
def test_the_step_the_key_and_its_value_are_named(overrides: list[str], says: str) -> None:
    with pytest.raises(InputError) as refused:
        tb.predict(quick(*overrides))
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_frames_that_are_always_lost_are_named() -> None:
    lossy = quick("links.loss=0.9999", "longest_round_s=2000")
    with pytest.raises(InputError, match=r"^longest_round_s: .* see links.loss and faults$"):
        tb.predict(lossy, wire=True)


def test_long_slots_with_fading_in_milliseconds_take_no_longer_than_short_ones() -> None:
    faded = quick("radio.fading=rayleigh", "slot_s=10")
    with open_source(faded, None) as source:
        assert Channel.of(source).now.slots == 10
    assert tb.predict(faded).end_s < 10


def test_a_longer_bound_allows_the_round() -> None:
    slow = quick("uavs.compute_flops=40000", "slot_s=10")
    with pytest.raises(InputError, match=r"a round may last 100,000 s \(longest_round_s\)"):
        tb.predict(slow)
    longer = slow.model_copy(update={"longest_round_s": 1e6})
    assert 1e5 < tb.predict(longer).end_s < 1e6


def test_an_outage_at_the_start_is_no_reason_to_refuse() -> None:
    gain = np.full((3, 9000), 1e-9)
    gain[:, :2000] = 1e-25
    timeline = tb.predict(quick(), {"gain": gain, "slot_s": 0.1})
    assert 200 < timeline.end_s < 400


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (
            ["rounds=1000000"],
            "rounds: 1,000,000 rounds of 3 UAVs with 3 iterations have 51,000,000",
        ),
        (
            ["paradigm=asfl-ps", "workload.asynchronous.updates=100000", "rounds=100"],
            "rounds: 100 rounds, 100,000 updates each of 3 UAVs",
        ),
    ],
)
def test_rounds_that_would_fill_the_memory_are_refused(overrides: list[str], says: str) -> None:
    with pytest.raises(InputError) as refused:
        tb.predict(quick(*overrides))
    assert str(refused.value).startswith(says)


def test_rounds_whose_slots_would_fill_the_memory_are_refused() -> None:
    """A policy may look at past slots, so they stay there; without one, they do not."""
    third = np.full(3, 1 / 3)
    with pytest.raises(InputError, match=r"^rounds: 900,000 rounds of 5\.0\d* s: slot_s: "):
        tb.predict(quick("rounds=900000"), policy=lambda now: tb.Allocation(2, third, third, third))


def test_fading_that_would_fill_the_memory_is_refused() -> None:
    gain = np.broadcast_to(1e-9, (3, 50_000))
    with pytest.raises(
        InputError, match=r"^radio.fading_block: .* use 'slot', or a shorter trace$"
    ):
        tb.predict(quick("radio.fading=rayleigh"), {"gain": gain, "slot_s": 10.0})


def test_a_slot_of_a_trace_in_milliseconds_is_refused() -> None:
    with pytest.raises(TraceError, match="slot_s must be one number from 1e-06 to 10, not 100"):
        trace_of({"gain": np.full((3, 10), 1e-9), "slot_s": 100.0}, "trace")


def test_random_faults_have_a_bound() -> None:
    with pytest.raises(InputError, match=r"rate_per_s: 0.01 .* are 10,000,000 faults"):
        quick("faults.random={rate_per_s: 0.01, within_s: 1e9}")


SCENARIOS = {
    "plain": (),
    "wire": (),
    "lte": ("radio={access: lte, uplink_bandwidth_hz: 1.4e6, downlink_bandwidth_hz: 1.4e6}",),
    "wifi": ("radio.access=wifi",),
    "asynchronous": ("paradigm=asfl-ps", "workload.asynchronous.mixing=0.5"),
    "edges": (EDGES % (1e6, 1e6), "rounds=2"),
    "faults": ("faults={random: {rate_per_s: 0.01}, on_loss: drop}", "participation.deadline_s=99"),
    "fading": ("radio={fading: rayleigh, doppler_hz: 10}",),
    "bursts": ("links.loss={model: gilbert-elliott, good_to_bad: 0.01, bad_to_good: 0.5}",),
    "snr": ("links.loss={model: snr, threshold_db: 5}",),
}


def _ends(annotation: Any, metadata: tuple[Any, ...] = ()) -> tuple[float, float] | None:
    """The least and the largest number that an annotation allows; None: it has no bounds."""
    bounds = list(metadata)
    if hasattr(annotation, "__metadata__"):
        for each in annotation.__metadata__:
            bounds += getattr(each, "metadata", [each])
        annotation = annotation.__origin__
    if annotation in (int, float):
        step = 1 if annotation is int else 1e-9
        low = [b.ge if isinstance(b, Ge) else b.gt + step for b in bounds if isinstance(b, Ge | Gt)]
        high = [
            b.le if isinstance(b, Le) else b.lt - step for b in bounds if isinstance(b, Le | Lt)
        ]
        return (low[0], high[0]) if low and high else None
    return next((found for part in get_args(annotation) if (found := _ends(part))), None)


def _numbers(section: Section, path: str = "") -> Iterator[tuple[str, tuple[float, float]]]:
    """The numeric keys of a section and those in it, with their bounds."""
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, Section):
            yield from _numbers(value, f"{path}{name}.")
        elif (ends := _ends(field.annotation, tuple(field.metadata))) is not None:
            yield path + name, ends


def _outcome(tree: dict[str, Any], key: str, value: float, wire: bool) -> str:
    """What becomes of a prediction with another value: `ends`, `refused`, or what went wrong."""
    end, begin = os.pipe()
    if (child := os.fork()) == 0:
        resource.setrlimit(resource.RLIMIT_AS, (6_000_000_000, 6_000_000_000))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        try:
            changed = Scenario.model_validate(tree).model_dump(mode="json")
            put(changed, key, value, "s")
            tb.predict(validate(changed, "s"), wire=wire)
            said = "ends"
        except (InputError, RunError) as error:
            said = "refused" if "\n" not in str(error) else str(error)
        except BaseException as error:
            said = repr(error)
        os.write(begin, said.encode())
        os._exit(0)
    os.close(begin)
    with os.fdopen(end, "rb") as stream:
        said = stream.read().decode()
    os.waitpid(child, 0)
    return said or "too long"


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", SCENARIOS)
def test_every_number_at_its_bounds_ends_or_is_refused(kind: str) -> None:
    scenario = quick(*SCENARIOS[kind])
    importlib.import_module("torch")  # here, so that not every process imports it
    tree = scenario.model_dump(mode="json")
    found = {
        (key, value): _outcome(tree, key, value, kind in ("wire", "bursts", "snr"))
        for key, ends in _numbers(scenario)
        if not key.startswith("emulation.limits")
        for value in ends
    }
    assert len(found) > 150
    assert {at: said for at, said in found.items() if said not in ("ends", "refused")} == {}
