# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The protocol of a round at the base station, fed with events: what it answers, word for word."""

import math
from dataclasses import replace

import pytest

from testbed.core.paradigm import BUILT_IN, Paradigm, paradigm
from testbed.core.server_round import (
    Abandon,
    AdaptersArrived,
    AllowUpload,
    BroadcastReceived,
    Compute,
    Computed,
    ContinueClients,
    Event,
    GiveUp,
    GradientDelivered,
    Instruction,
    Refused,
    SendGradient,
    SendShared,
    ServerRound,
    SetPriorities,
    SharedReceived,
    SmashedArrived,
    StartClients,
    TimePassed,
    UploadReady,
)

CPSFL, PIPESFL, VANILLA = (paradigm(name) for name in ("cpsfl", "pipesfl", "sfl-sp"))


def a_round(scheme: Paradigm, clients=(1, 2), first=lambda client, at: 0, **lost) -> ServerRound:
    return ServerRound(scheme, clients, first, **lost)


def then(round_: ServerRound, *events: Event) -> list[Instruction]:
    """What begins when all this has happened at a moment."""
    for event in events:
        round_.tell(event)
    return round_.instructions()


def begun(scheme: Paradigm, clients=(1, 2), **about) -> ServerRound:
    """A round whose clients have started, at 10."""
    round_ = a_round(scheme, clients, **about)
    assert then(round_, *(BroadcastReceived(k, 10) for k in clients)) == [
        StartClients(tuple(clients), 10)
    ]
    return round_


def test_clients_start_together_when_the_last_has_the_broadcast() -> None:
    round_ = a_round(CPSFL, (1, 2, 3))
    assert then(round_, BroadcastReceived(2, 5)) == []
    assert then(round_, BroadcastReceived(3, 7), BroadcastReceived(1, 6)) == [
        StartClients((1, 2, 3), 7)
    ]
    assert then(round_) == []
    assert not round_.is_over


def test_one_client_from_smashed_data_to_its_adapters() -> None:
    round_ = begun(CPSFL, (4,))
    assert then(round_, SmashedArrived(4, 1, 20, 25, 8)) == [Compute(4, 1, 25)]
    assert then(round_, Computed(4, 30)) == [SendGradient(4, 1, 30)]
    assert then(round_, GradientDelivered(4, 30, 33, 34)) == []
    assert then(round_, SmashedArrived(4, 2, 40, 41, 8)) == [Compute(4, 2, 41)]
    assert then(round_, Computed(4, 42)) == [SendGradient(4, 2, 42)]
    assert then(round_, GradientDelivered(4, 42, 43, 43)) == []
    assert (round_.is_over, round_.finished) == (False, [])
    assert then(round_, AdaptersArrived(4)) == []
    assert (round_.is_over, round_.finished) == (True, [4])


def test_the_lag_before_the_downlink_is_all_that_the_client_and_the_server_took() -> None:
    """Eq. (12): τ_CB + τ_CF of 1 is larger, but CA and S of 2 make up for more than that."""
    round_ = begun(CPSFL, (1, 2, 3))
    assert then(round_, SmashedArrived(3, 1, 10, 11, 0)) == [Compute(3, 1, 11)]
    assert then(round_, SmashedArrived(1, 1, 10, 12, 9)) == [Compute(1, 1, 12)]
    assert then(round_, SmashedArrived(2, 1, 10, 14, 6)) == [Compute(2, 1, 14)]
    assert then(round_, Computed(3, 15)) == [SendGradient(3, 1, 15)]
    assert then(round_, Computed(1, 16)) == []  # lag 9 + 2 + 4
    assert then(round_, Computed(2, 20)) == []  # lag 6 + 4 + 6
    assert then(round_, GradientDelivered(3, 15, 21, 21)) == [SendGradient(2, 1, 21)]
    assert then(round_, GradientDelivered(2, 21, 22, 23)) == [SendGradient(1, 1, 23)]


def test_the_lag_before_computing_has_the_last_gradient_in_it() -> None:
    """Eq. (22), with what stands for τ'_SG(0) where i = 1."""
    asked = []

    def first(client: int, at: float) -> float:
        asked.append((client, at))
        return {1: 1, 2: 3, 3: 0}[client]

    round_ = begun(PIPESFL, (1, 2, 3), first=first)
    assert then(round_, SmashedArrived(3, 1, 10, 11, 0)) == [Compute(3, 1, 11)]
    assert then(round_, SmashedArrived(1, 1, 10, 12, 5), SmashedArrived(2, 1, 10, 12, 4)) == []
    # 5 + 2 + 1 against 4 + 2 + 3.
    assert then(round_, Computed(3, 15)) == [Compute(2, 1, 15), SendGradient(3, 1, 15)]
    assert then(round_, Computed(2, 16)) == [Compute(1, 1, 16), SendGradient(2, 1, 16)]
    then(round_, Computed(1, 17), GradientDelivered(3, 15, 18, 18))
    then(round_, GradientDelivered(2, 16, 18, 18), GradientDelivered(1, 17, 26, 26))
    assert then(round_, SmashedArrived(3, 2, 30, 31, 0)) == [Compute(3, 2, 31)]
    # 4 + 1 + (26 - 17) against 8 + 1 + (18 - 16).
    assert then(round_, SmashedArrived(1, 2, 31, 32, 4), SmashedArrived(2, 2, 31, 32, 8)) == []
    assert then(round_, Computed(3, 33))[0] == Compute(1, 2, 33)
    assert asked == [(3, 11), (1, 12), (2, 12)]


def test_gates_hold_turns_until_all_have_come_that_far() -> None:
    round_ = begun(VANILLA)
    assert then(round_, SmashedArrived(2, 1, 10, 11, 0)) == []
    assert then(round_, SmashedArrived(1, 1, 10, 15, 0)) == [Compute(2, 1, 15)]
    assert then(round_, Computed(2, 18)) == [Compute(1, 1, 18)]
    assert then(round_, Computed(1, 20)) == [SendGradient(2, 1, 20), SendGradient(1, 1, 20)]


def test_whole_numbers_stay_whole() -> None:
    """Nanoseconds of a driver that counts them: no tie is torn by floats."""
    round_ = begun(CPSFL)
    (start,) = then(round_, SmashedArrived(1, 1, 10**15, 10**15 + 1, 7))
    assert isinstance(start, Compute)
    assert type(start.at) is int


@pytest.mark.parametrize("drops", [False, True])
def test_whose_time_is_over_is_given_up_or_ends_the_round(drops: bool) -> None:
    round_ = begun(CPSFL, lost_at={1: 30, 2: 60, 7: 1}, drops=drops)
    assert round_.next_loss == 30
    assert then(round_, SmashedArrived(1, 1, 20, 25, 8)) == [Compute(1, 1, 25)]
    assert then(round_, TimePassed(29.9)) == []
    lost = then(round_, TimePassed(31))
    assert lost == [GiveUp(1, 30, "", 1, "S") if drops else Abandon(1, 30, "")]
    if drops:
        assert (round_.here, round_.next_loss) == ({2}, 60)
        assert then(round_, Computed(1, 32), AdaptersArrived(1)) == []
        assert then(round_, AdaptersArrived(2), TimePassed(99)) == []
        assert (round_.finished, round_.next_loss, round_.is_over) == ([2], math.inf, True)
        assert round_.lost.keys() == {1}


def test_a_client_that_is_lost_is_waited_for_no_longer() -> None:
    started = a_round(CPSFL, lost_at={2: 30}, drops=True)
    assert then(started, BroadcastReceived(1, 10)) == []
    # It counts as lost from 30 on, so the others start no sooner.
    assert then(started, TimePassed(31)) == [GiveUp(2, 30, "", 1, "SM"), StartClients((1,), 30)]

    gated = begun(VANILLA, (1, 2, 3), lost_at={3: 30}, drops=True)
    assert then(gated, SmashedArrived(1, 1, 10, 11, 0), SmashedArrived(2, 1, 10, 12, 0)) == []
    assert then(gated, TimePassed(30)) == [GiveUp(3, 30, "", 1, ""), Compute(1, 1, 30)]

    sending = begun(CPSFL, lost_at={1: 40}, drops=True)
    then(sending, SmashedArrived(1, 1, 10, 11, 0), SmashedArrived(2, 1, 10, 11, 0))
    assert then(sending, Computed(1, 12)) == [SendGradient(1, 1, 12)]
    assert then(sending, Computed(2, 13)) == []
    assert then(sending, TimePassed(40)) == [GiveUp(1, 40, "", 1, "SG"), SendGradient(2, 1, 40)]


def test_whose_machine_is_gone_is_lost_when_that_is_told() -> None:
    """Also if nothing of the kind was planned; who has finished has finished."""
    round_ = begun(CPSFL, (1, 2, 3), lost_at={2: 20})
    then(round_, AdaptersArrived(3))
    round_.lose_at((1, 2, 3), 30, drops=True)
    assert round_.next_loss == 20
    assert then(round_, TimePassed(25)) == [GiveUp(2, 20, "", 1, "")]
    assert then(round_, TimePassed(29)) == []
    assert then(round_, TimePassed(31)) == [GiveUp(1, 30, "", 1, "")]
    assert round_.finished == [3]
    ended = begun(CPSFL)
    ended.lose_at((2,), 30, drops=False)
    assert ended.may_be_lost(2)
    assert then(ended, TimePassed(31)) == [Abandon(2, 30, "")]


def test_all_may_be_lost_before_anyone_starts() -> None:
    round_ = a_round(CPSFL, lost_at={1: 5, 2: 6}, drops=True)
    lost = then(round_, TimePassed(7))
    assert lost == [GiveUp(1, 5, "", 1, "SM"), GiveUp(2, 6, "", 1, "SM"), StartClients((), 6)]
    assert round_.is_over


def test_what_is_refused_is_a_loss_at_once() -> None:
    round_ = begun(CPSFL, drops=True)
    assert not round_.may_be_lost(1)
    (lost,) = then(round_, Refused(1, 12.5, "kind: HELLO"))
    assert lost == GiveUp(1, 12.5, "kind: HELLO", 1, "")
    assert round_.may_be_lost(1)
    assert then(begun(CPSFL), Refused(1, 12.5, "kind")) == [Abandon(1, 12.5, "kind")]


def test_gradients_that_the_mac_orders_are_sent_at_once_with_their_places() -> None:
    """The lags are 13, 16 and 10 time units; each is that of the time at which it was computed."""
    round_ = begun(CPSFL, (1, 2, 3), mac_orders=True)
    then(round_, SmashedArrived(1, 1, 10, 11, 8), SmashedArrived(2, 1, 10, 11, 8))
    then(round_, SmashedArrived(3, 1, 10, 11, 0))
    assert then(round_, Computed(1, 15)) == [SetPriorities((1,)), SendGradient(1, 1, 15)]
    assert then(round_, Computed(2, 18), Computed(3, 20)) == [
        SetPriorities((2, 1, 3)),
        SendGradient(2, 1, 18),
        SendGradient(3, 1, 20),
    ]
    assert then(round_, TimePassed(21)) == []
    assert then(round_, GradientDelivered(2, 18, 22, 22)) == [SetPriorities((1, 3))]
    assert then(round_, GradientDelivered(3, 20, 23, 23)) == [SetPriorities((1,))]
    assert then(round_, GradientDelivered(1, 15, 24, 24)) == [SetPriorities(())]


def test_the_mac_orders_by_the_paradigms_own_order() -> None:
    first_come = begun(paradigm("cpsfl-no-ps"), (1, 2, 3), mac_orders=True)
    then(first_come, *(SmashedArrived(k, 1, 10, 11, 9 * k) for k in (1, 2, 3)))
    then(first_come, Computed(2, 12))
    then(first_come, Computed(3, 13))
    assert then(first_come, Computed(1, 14))[0] == SetPriorities((2, 3, 1))
    # A gate holds the gradients back until all are computed.
    gated = begun(paradigm("cpsfl-no-at"), mac_orders=True)
    then(gated, SmashedArrived(1, 1, 10, 11, 1), SmashedArrived(2, 1, 10, 11, 5))
    assert then(gated, Computed(1, 12)) == []
    assert then(gated, Computed(2, 13)) == [
        SetPriorities((2, 1)),
        SendGradient(2, 1, 13),
        SendGradient(1, 1, 13),
    ]


def test_a_lost_client_has_no_place() -> None:
    round_ = begun(CPSFL, lost_at={1: 40}, drops=True, mac_orders=True)
    then(round_, SmashedArrived(1, 1, 10, 11, 0), SmashedArrived(2, 1, 10, 11, 0))
    then(round_, Computed(1, 12), Computed(2, 12))
    assert then(round_, TimePassed(40)) == [GiveUp(1, 40, "", 1, "SG"), SetPriorities((2,))]


def test_parallel_gradients_have_no_places() -> None:
    round_ = begun(VANILLA, mac_orders=True)
    then(round_, SmashedArrived(2, 1, 10, 11, 0), SmashedArrived(1, 1, 10, 15, 0))
    then(round_, Computed(2, 18))
    assert then(round_, Computed(1, 20)) == [SendGradient(2, 1, 20), SendGradient(1, 1, 20)]


@pytest.mark.parametrize("scheme", BUILT_IN, ids=lambda scheme: scheme.name)
def test_any_paradigm_serves_every_client_once_an_iteration(scheme: Paradigm) -> None:
    clients, iterations = (1, 2, 3), 3
    round_ = begun(scheme, clients)
    events: list[Event] = [SmashedArrived(k, 1, 10, 10 + k, k) for k in clients]
    served, now = [], 20
    while events:
        begins = then(round_, events.pop(0))
        for instruction in begins:
            now += 1
            match instruction:
                case Compute(client, iteration):
                    served.append(("S", client, iteration))
                    events.append(Computed(client, now))
                case SendGradient(client, iteration):
                    served.append(("SG", client, iteration))
                    events.append(GradientDelivered(client, now, now + 1, now + 1))
                    last = iteration == iterations
                    events.append(
                        AdaptersArrived(client)
                        if last
                        else SmashedArrived(client, iteration + 1, now + 2, now + 3, 1)
                    )
    assert round_.is_over
    assert sorted(served) == sorted(
        (step, k, i) for step in ("S", "SG") for k in clients for i in range(1, iterations + 1)
    )


# --- uploads that wait, and aggregated gradients --------------------------------------------------

GATED = replace(paradigm("sfl-pp"), adapters_wait_for_all=True)
IN_TURN = replace(paradigm("sfl-pp"), uplink="sequential")
SCHEDULED = replace(IN_TURN, uplink_order="scheduled")
HALF = replace(VANILLA, gradient_aggregation=0.5)


def test_adapters_may_be_uploaded_when_all_have_asked() -> None:
    round_ = begun(GATED, (1, 2, 3), lost_at={3: 60}, drops=True)
    assert then(round_, UploadReady(2, 40, adapters=True)) == []
    assert then(round_, UploadReady(1, 50, adapters=True)) == []
    lost, *allowed = then(round_, TimePassed(60))
    assert isinstance(lost, GiveUp)
    assert allowed == [AllowUpload(2, 60), AllowUpload(1, 60)]
    assert then(round_, AdaptersArrived(1, 70), AdaptersArrived(2, 71)) == []
    assert round_.is_over


def test_uploads_in_turn_are_allowed_when_the_one_before_has_arrived() -> None:
    round_ = begun(IN_TURN, (1, 2, 3))
    asked = [UploadReady(3, 20, adapters=False), UploadReady(1, 21, adapters=False)]
    assert then(round_, *asked) == [AllowUpload(3, 20)]
    assert then(round_, UploadReady(2, 22, adapters=False)) == []
    assert round_.waiting()["upload"] == [1, 2]
    arrived = SmashedArrived(3, 1, 20, 30, 1)
    assert then(round_, arrived) == [Compute(3, 1, 30), AllowUpload(1, 30)]
    arrived = SmashedArrived(1, 1, 30, 35, 1)
    assert then(round_, arrived) == [Compute(1, 1, 35), AllowUpload(2, 35)]


def test_scheduled_uploads_wait_for_whose_turn_it_is() -> None:
    round_ = a_round(SCHEDULED, (2, 3, 1), lost_at={2: 40}, drops=True)
    then(round_, *(BroadcastReceived(k, 10) for k in (1, 2, 3)))
    assert then(round_, UploadReady(3, 20, adapters=True)) == []
    assert then(round_, UploadReady(1, 21, adapters=True)) == []
    assert then(round_, TimePassed(40))[1:] == [AllowUpload(3, 40)]
    assert then(round_, AdaptersArrived(3, 50)) == [AllowUpload(1, 50)]


def test_a_turn_that_waits_at_the_gate_is_passed_over() -> None:
    round_ = begun(replace(SCHEDULED, adapters_wait_for_all=True), (1, 2))
    assert then(round_, UploadReady(2, 20, adapters=False)) == []  # It is the turn of client 1.
    assert then(round_, UploadReady(1, 30, adapters=True)) == [AllowUpload(2, 30)]
    then(round_, SmashedArrived(2, 1, 30, 40, 1))
    assert then(round_, UploadReady(2, 50, adapters=True)) == [AllowUpload(1, 50)]
    assert then(round_, AdaptersArrived(1, 60)) == [AllowUpload(2, 60)]


def test_a_lost_client_frees_the_uplink() -> None:
    round_ = begun(IN_TURN, (1, 2), lost_at={1: 40}, drops=True)
    assert then(round_, UploadReady(1, 20, adapters=True)) == [AllowUpload(1, 20)]
    assert then(round_, UploadReady(2, 25, adapters=True)) == []
    assert then(round_, TimePassed(40))[1:] == [AllowUpload(2, 40)]


def computed(round_: ServerRound) -> list[Instruction]:
    """What begins when both have computed, at 22 and 24."""
    arrived = [SmashedArrived(k, 1, 10, 20, 1) for k in (1, 2)]
    assert then(round_, *arrived) == [Compute(1, 1, 20)]
    assert then(round_, Computed(1, 22)) == [Compute(2, 1, 22)]
    return then(round_, Computed(2, 24))


def test_aggregated_gradients_come_first_and_the_others_when_all_have_them() -> None:
    round_ = begun(HALF)
    assert computed(round_) == [SendShared((1, 2), 1, 24)]
    assert then(round_, SharedReceived(2, 26)) == []
    assert then(round_, SharedReceived(1, 27)) == [SendGradient(1, 1, 27), SendGradient(2, 1, 27)]
    assert then(round_, GradientDelivered(1, 24, 30, 30)) == []


def test_without_other_gradients_all_continue_together() -> None:
    round_ = begun(replace(HALF, gradient_aggregation=1.0), own_gradients=False)
    assert computed(round_) == [SendShared((1, 2), 1, 24)]
    assert then(round_, SharedReceived(2, 26), SharedReceived(1, 25)) == [
        ContinueClients((1, 2), 26)
    ]


def test_aggregation_does_not_wait_for_lost_clients() -> None:
    round_ = begun(HALF, lost_at={2: 50}, drops=True)
    arrived = [SmashedArrived(k, 1, 10, 20, 1) for k in (1, 2)]
    assert then(round_, *arrived) == [Compute(1, 1, 20)]
    assert then(round_, Computed(1, 22)) == [Compute(2, 1, 22)]
    assert then(round_, TimePassed(50))[1:] == [SendShared((1,), 1, 50)]
    round_ = begun(HALF, lost_at={2: 50}, drops=True)
    computed(round_)
    assert then(round_, SharedReceived(1, 26)) == []
    assert then(round_, TimePassed(50))[1:] == [SendGradient(1, 1, 50)]
