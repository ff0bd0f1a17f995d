# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The error budget: what is put in comes out under its name, and nothing is left over."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from engine_cases import CONTENTION, by_hand

from orchestrator.analysis.error_budget import (
    CODEC,
    KEYS,
    PARTS,
    PARTS_OF_LATENCY,
    RADIO_PARTS,
    error_budget,
    measured_plan,
    step_table,
    transfer_errors,
)
from orchestrator.engine.faults import RoundFaults
from orchestrator.engine.plan import RoundPlan, transfer_bytes, with_measured_bytes
from orchestrator.engine.tcp_model import CONTROLS, RECEIVER_FRAMES, TcpModel
from orchestrator.rounds.simulation import round_of, service_order_of, simulate
from orchestrator.scenario.schema import Emulation
from testbed.core.timeline import SG, STEPS, Round, Timeline
from testbed.transport.wire import RoundSizes

SLOT_S = 0.1
GAIN = np.ones((3, 200))


def budget_of(measured_plan, edges_s=None, service_order=None):
    plan, radio = by_hand("cpsfl", **CONTENTION)
    wire = replace(plan, sg_bytes=plan.sg_bytes * 11 // 10)
    predicted = round_of(0, plan, simulate(plan, radio, GAIN, SLOT_S))
    how = {} if service_order is None else {"service_order": service_order}
    times = simulate(measured_plan(wire), radio, GAIN, SLOT_S, slot_edges_s=edges_s, **how)
    measured = round_of(0, plan, times)
    found = error_budget(predicted, measured, plan, wire, radio, GAIN, SLOT_S, edges_s)
    assert sum(found.seconds.values()) == pytest.approx(measured.latency_s - predicted.latency_s)
    return found


def swapped():
    """The order of the gradients if client 2 went first, though client 1 is ready before it."""
    plan, radio = by_hand("cpsfl", **CONTENTION)
    service_order = service_order_of(simulate(plan, radio, GAIN, SLOT_S).spans, 3, 1).copy()
    service_order[1] = [[1], [0], [2]]
    service_order.flags.writeable = False
    return service_order


def test_another_order_of_service_is_a_part_of_its_own():
    found = budget_of(lambda plan: plan, service_order=swapped())
    # The downlink stands still until client 2 is ready, 0.2 s after client 1.
    assert found.seconds["order"] == pytest.approx(0.2)
    assert [part for part in PARTS_OF_LATENCY if abs(found.seconds[part]) > 1e-9] == [
        "framing",
        "order",
    ]
    assert abs(found.steps["rest"]).max() < 1e-9


def test_computing_that_took_longer_is_not_booked_under_order():
    slower = budget_of(lambda plan: replace(plan, cb_s=plan.cb_s + 0.05))
    assert slower.seconds["compute"] == pytest.approx(0.05)
    assert slower.seconds["order"] == slower.seconds["rest"] == 0


def varying_budget(*, late_s=0.0, slower_s=0.0):
    """The budget of a round on a channel that changes every slot, and how long it took."""
    gain = 10 ** np.random.default_rng(4).uniform(-0.5, 0.5, (3, 400))
    plan, radio = by_hand("cpsfl", **CONTENTION)
    edges_s = np.arange(401) * SLOT_S
    edges_s[1:] += late_s
    predicted = round_of(0, plan, simulate(plan, radio, gain, SLOT_S))
    real = replace(plan, s_s=plan.s_s + slower_s)
    times = simulate(real, radio, gain, SLOT_S, slot_edges_s=edges_s)
    measured = round_of(0, real, times)
    found = error_budget(predicted, measured, plan, plan, radio, gain, SLOT_S, edges_s)
    return found.seconds, measured.latency_s - predicted.latency_s


def test_rates_that_changed_late_are_a_part_of_their_own():
    seconds, apart_s = varying_budget(late_s=0.04)
    assert abs(apart_s) > 1e-3
    assert seconds["injection"] == pytest.approx(apart_s)
    assert seconds["rest"] == pytest.approx(0, abs=1e-12)
    assert seconds["compute"] == 0


def test_a_server_that_took_longer_is_booked_under_computing():
    seconds, apart_s = varying_budget(slower_s=0.3)
    assert apart_s > 0.1
    assert seconds["compute"] == pytest.approx(apart_s)
    assert seconds["rest"] == pytest.approx(0, abs=1e-12)
    assert seconds["injection"] == 0


def varying_gain():
    return 10 ** np.random.default_rng(4).uniform(-0.5, 0.5, (3, 400))


def played(plan: RoundPlan, radio, *, index=0, start_s=0.0, gain=GAIN, **given) -> Round:
    return round_of(index, plan, simulate(plan, radio, gain, SLOT_S, start_s, **given))


def transport(delay_s: float, loss: float) -> TcpModel:
    return TcpModel(
        delay_s=np.full((2, 3), delay_s) * [[1.0], [2.0]],
        jitter_s=np.zeros((2, 3)),
        losses=np.full((2, 3, 4), (0.0, 1.0, loss, 0.0)),
        control=CONTROLS["cubic"],
        frame_bits=1514 * 8.0,
        initial=10.0,
        credit_s=0.0,
        round_trips=0,
        offered=RECEIVER_FRAMES,
        seeds=np.arange(6, dtype=np.uint64).reshape(2, 3),
    )


def test_a_round_that_began_later_is_a_part_of_its_own():
    plan, radio = by_hand("cpsfl", **CONTENTION, sm=0.5)
    predicted = played(plan, radio, gain=varying_gain(), index=7)
    measured = played(plan, radio, gain=varying_gain(), index=7, start_s=3.14)
    found = error_budget(predicted, measured, plan, plan, radio, varying_gain(), SLOT_S, None)
    apart_s = measured.latency_s - predicted.latency_s
    assert abs(apart_s) > 1e-3
    assert found.seconds == {part: apart_s if part == "start" else 0.0 for part in PARTS_OF_LATENCY}
    assert (found.round, found.predicted_s, found.measured_s) == (
        7,
        predicted.latency_s,
        measured.latency_s,
    )
    assert list(found.steps) == [*KEYS, *(p for p in PARTS if p not in (*RADIO_PARTS, CODEC))]
    assert set(found.steps["round"]) == {7}
    # Of every step: how much longer it took than predicted.
    late = found.steps.set_index(KEYS)["start"]
    for mine, theirs in zip(measured.spans, predicted.spans, strict=True):
        key = (7, mine["client"], mine["iteration"], STEPS[mine["step"]])
        took_s = mine["end_s"] - mine["start_s"] - (theirs["end_s"] - theirs["start_s"])
        assert late[key] == pytest.approx(took_s, abs=1e-12)


def test_what_links_delay_and_what_they_lose_are_two_parts():
    plan, radio = by_hand("cpsfl", **CONTENTION)
    air = transport(0.02, 0.01)
    delayed = played(plan, radio, tcp=air.without_loss())
    measured, predicted = played(plan, radio, tcp=air), played(plan, radio)
    found = error_budget(
        predicted, measured, plan, plan, radio, GAIN, SLOT_S, None, tcp=air
    ).seconds
    assert found["delay"] == pytest.approx(delayed.latency_s - predicted.latency_s)
    assert found["loss"] == pytest.approx(measured.latency_s - delayed.latency_s)
    assert min(found["delay"], found["loss"]) > 0.02
    others = {part for part in found if part not in ("delay", "loss")}
    assert {part: found[part] for part in others} == pytest.approx(dict.fromkeys(others, 0))


def faults(**given) -> RoundFaults:
    never = np.full(3, np.inf)
    values = {
        "absent": np.zeros(3, bool),
        "stop_s": never,
        "lost_s": never,
        "wrong_s": never,
        "wrong": [None] * 3,
        "slow": np.empty((0, 4)),
        "silent": [],
        "bs_crash_s": np.inf,
        "drops": True,
        "causes": {},
        "resting": np.zeros(3, bool),
    }
    return RoundFaults(**values | given)


def test_slow_nodes_were_predicted_to_be_slow():
    plan, radio = by_hand("cpsfl", **CONTENTION)
    slow = faults(slow=np.array([[n, 0.0, 90.0, 3.0] for n in range(4)]))
    predicted = played(plan, radio, faults=slow)
    assert predicted.latency_s > played(plan, radio).latency_s + 0.1
    found = error_budget(predicted, predicted, plan, plan, radio, GAIN, SLOT_S, None, slow)
    assert found.seconds == pytest.approx(dict.fromkeys(PARTS_OF_LATENCY, 0.0), abs=1e-12)


def test_a_step_that_a_loss_cut_off_was_to_take_at_least_as_long():
    plan, radio = by_hand("cpsfl", **CONTENTION)
    gone = faults(lost_s=np.array([np.inf, 0.05, np.inf]), causes={2: "uav-crash"})
    measured = played(plan, radio, faults=gone)
    assert [loss.client for loss in measured.lost] == [2]
    assert measured.cut.sum() == 1
    # Its forward pass was cut at 0.05 s of 0.1; the others', and all that came later, was measured.
    assert measured_plan(measured, plan).cf_s.tolist() == plan.cf_s.tolist()
    shorter = replace(plan, cf_s=plan.cf_s / 10)
    assert measured_plan(measured, shorter).cf_s[:, 0] == pytest.approx([0.1, 0.05, 0.1])
    found = error_budget(measured, measured, plan, plan, radio, GAIN, SLOT_S, None, gone)
    assert found.seconds == pytest.approx(dict.fromkeys(PARTS_OF_LATENCY, 0.0), abs=1e-12)


def test_steps_are_held_beside_each_other_by_round_and_kind():
    plan, radio = by_hand("cpsfl", **CONTENTION)
    slower = replace(plan, cb_s=plan.cb_s + np.array([[0.1], [0.2], [0.6]]))
    both = [
        Timeline([played(of_round, radio, index=n) for n, of_round in enumerate(plans)])
        for plans in ((plan, plan), (plan, slower))
    ]
    table = step_table(*both)
    assert list(table) == ["round", "step", "predicted_s", "measured_s"]
    assert table["round"].tolist() == [0] * len(STEPS) + [1] * len(STEPS)
    assert table["step"].tolist() == list(STEPS) * 2
    first, second = (table[table["round"] == n].set_index("step") for n in (0, 1))
    assert first["measured_s"].tolist() == first["predicted_s"].tolist()
    assert second.loc["CB"].tolist()[1:] == pytest.approx([0.2, 0.5])
    assert second.loc["CF"].tolist()[1:] == pytest.approx([0.1, 0.1])


@pytest.mark.parametrize("delay_s", [0.0, 0.03])
def test_every_transfer_is_held_against_the_integral_of_its_rates(delay_s):
    plan, radio = by_hand("sfl-pp", **CONTENTION, sm=0.5, cm=0.7, iterations=2)
    gain = varying_gain()
    air = transport(delay_s, 0.0) if delay_s else None
    measured = played(plan, radio, gain=gain, index=3)
    table = transfer_errors(measured, plan, radio, gain, SLOT_S, air)
    assert list(table) == [*KEYS, "start_s", "duration_s", "due_s", "rate_bps", "error"]
    assert set(table["round"]) == {3}
    counts = table["step"].value_counts()
    assert {step: counts[step] for step in STEPS} == {
        **{"SM": 3, "CF": 0, "CA": 6, "S": 0, "SG": 6, "CB": 0, "CM": 3}
    }
    late_s = table["due_s"] - table["duration_s"]
    due_s = table["step"].map({"SM": 2 * delay_s, "SG": 2 * delay_s, "CA": delay_s, "CM": delay_s})
    assert late_s.tolist() == pytest.approx(due_s.tolist(), abs=1e-9)
    carried = table["rate_bps"] * (table["due_s"] - due_s) / 8
    sizes = {"SM": plan.sm_bytes, "SG": plan.sg_bytes, "CA": plan.ca_bytes, "CM": plan.cm_bytes}
    for row, size in zip(table.itertuples(), carried, strict=True):
        assert size == pytest.approx(np.ravel(sizes[row.step][row.client - 1])[0], rel=1e-9)
    assert table["error"].tolist() == pytest.approx((-late_s / table["due_s"]).tolist(), abs=1e-12)
    begun = {
        (c, i, STEPS[s]): start for c, i, s, start, _, _ in measured.spans[~measured.cut].tolist()
    }
    for row in table.itertuples():
        assert row.start_s == begun[row.client, row.iteration, row.step]


def test_over_serial_lines_transfers_are_due_when_their_acknowledgements_permit():
    plan, radio = by_hand("sfl-pp", **CONTENTION, sm=0.5, cm=0.7, iterations=2)
    measured = played(plan, radio)
    # Frames of 264 bits; an acknowledgement has 528, and the uplink half the rate.
    lines = replace(transport(0.0, 0.0), impaired=False, receipt_bits=1.0, frame_bits=264.0)
    plain, clocked = (
        transfer_errors(measured, plan, radio, GAIN, SLOT_S, air) for air in (None, lines)
    )
    later_s = clocked["due_s"] - plain["due_s"]
    assert (later_s > -1e-9).all()
    assert (later_s[clocked["step"] == "SG"] > 2.0).all(), "3 s by the integral"


def test_adapters_may_have_a_size_for_each_iteration():
    """As where the base station updates with each batch."""
    plan, radio = by_hand("sfl-pp", **CONTENTION, sm=0.5, cm=0.7, iterations=2)
    measured = played(plan, radio)
    each = {n: np.repeat(getattr(plan, n)[:, None], 2, axis=1) for n in ("sm_bytes", "cm_bytes")}
    tables = [
        transfer_errors(measured, of, radio, GAIN, SLOT_S, None)
        for of in (plan, replace(plan, **each))
    ]
    pd.testing.assert_frame_equal(*tables)


def test_a_transfer_that_was_cut_off_has_no_error():
    plan, radio = by_hand("sfl-pp", **CONTENTION)
    gone = faults(lost_s=np.array([np.inf, 1.5, np.inf]), causes={2: "link-outage"})
    measured = played(plan, radio, faults=gone)
    assert measured.spans["step"][measured.cut].tolist() == [SG]
    table = transfer_errors(measured, plan, radio, GAIN, SLOT_S)
    assert table.groupby("client")["step"].apply(list).to_dict() == {
        1: ["CA", "SG"],  # Adapters have no bytes here.
        2: ["CA"],
        3: ["CA", "SG"],
    }


def test_what_arrived_after_its_link_counts_as_silent_has_no_error():
    """A host was lost; what it had sent meanwhile was there."""
    plan, radio = by_hand("sfl-pp", **CONTENTION, sm=0.5, cm=0.5)
    measured = played(plan, radio)
    gain = GAIN.copy()
    own = measured.spans[measured.spans["client"] == 2]
    gain[1, math.ceil(own["start_s"][-1] / SLOT_S) :] = 0.0
    table = transfer_errors(measured, plan, radio, gain, SLOT_S)
    assert table.groupby("client")["step"].apply(list).to_dict() == {
        1: ["SM", "CA", "SG", "CM"],
        2: ["SM", "CA", "SG"],
        3: ["SM", "CA", "SG", "CM"],
    }
    assert np.isfinite(table["error"]).all()


def test_clocks_that_are_apart_stretch_one_way_and_shorten_the_other():
    plan, radio = by_hand("cpsfl", **CONTENTION, sm=0.5)
    predicted = played(plan, radio)
    ahead_s = np.array([0.010, 0.010, 0.013, 0.004])
    spans = predicted.spans.copy()
    at_bs = {"start_s": ("SM", "S", "SG"), "end_s": ("CA", "S", "CM")}
    for moment, steps in at_bs.items():
        for span in spans:
            noted_by = 0 if STEPS[span["step"]] in steps else span["client"]
            span[moment] += ahead_s[noted_by]
    # Rounds begin and end by the base station's clock.
    measured = replace(predicted, spans=spans)
    found = error_budget(
        predicted, measured, plan, plan, radio, GAIN, SLOT_S, None, ahead_s=ahead_s
    )
    assert found.seconds == pytest.approx(dict.fromkeys(PARTS_OF_LATENCY, 0.0), abs=1e-12)
    assert found.steps["rest"].abs().max() < 1e-12
    clock_s = found.steps.set_index(["client", "step"])["clock"]
    for client, off_s in ((1, 0.0), (2, 0.003), (3, -0.006)):
        for step, sign in (("SM", 1), ("CF", 0), ("CA", -1), ("S", 0), ("SG", 1), ("CM", -1)):
            assert clock_s[client, step] == pytest.approx(sign * off_s, abs=1e-12)
    unknown = error_budget(predicted, measured, plan, plan, radio, GAIN, SLOT_S, None)
    assert unknown.steps["clock"].abs().max() == 0
    assert unknown.steps["rest"].abs().max() == pytest.approx(0.006)


def test_real_sizes_of_encoded_data_are_a_part_of_their_own():
    plan, radio = by_hand("cpsfl", **CONTENTION)
    smaller = np.random.default_rng(3).uniform(0.3, 0.9, plan.sg_bytes.shape)
    real = replace(plan, sg_bytes=(plan.sg_bytes * smaller).astype(np.int64))
    real = replace(real, ca_bytes=plan.ca_bytes * 3 // 4, cm_bytes=plan.cm_bytes * 2 // 3)
    measured = played(real, radio)
    sizes = [RoundSizes(8, 8, 8, 4, 1, varying=("smashed", "gradient", "adapters_up"))] * 3
    found = with_measured_bytes(plan, measured.spans, sizes)
    for name in ("sm_bytes", "ca_bytes", "sg_bytes", "cm_bytes"):
        assert np.array_equal(getattr(found, name), getattr(real, name)), name
    budget = error_budget(
        played(plan, radio), measured, plan, plan, radio, GAIN, SLOT_S, None, real_plan=found
    )
    assert budget.seconds["codec"] < -1e-3
    apart_s = measured.latency_s - played(plan, radio).latency_s
    assert budget.seconds["codec"] == pytest.approx(apart_s)
    assert abs(budget.steps["rest"]).max() < 1e-9
    fixed = error_budget(played(plan, radio), measured, plan, plan, radio, GAIN, SLOT_S, None)
    assert "codec" not in fixed.seconds
    assert fixed.seconds["rest"] == pytest.approx(apart_s)
    choices = Emulation()
    framed = with_measured_bytes(plan, measured.spans, sizes, choices)
    assert framed.ca_bytes[1, 0] == transfer_bytes(choices, 4 * 4, int(real.ca_bytes[1, 0]))
    assert framed.sg_bytes[2, 0] == transfer_bytes(choices, 0, int(real.sg_bytes[2, 0]))
    assert framed.cm_bytes[0] == transfer_bytes(choices, 8, int(real.cm_bytes[0]))
    assert np.array_equal(framed.sm_bytes, plan.sm_bytes)
