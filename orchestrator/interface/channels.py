# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`trace`: the channel of a scenario as arrays."""

from typing import Literal

from ns3_scenarios.trace import SlotTrace, TraceExhausted
from orchestrator.interface.given import ScenarioLike, Trace, channel_of, resolved, typed, whole
from orchestrator.interface.progress import followed
from testbed.core.errors import InputError
from testbed.core.progress import Progress

Radio = Literal["ns3-lte", "ns3-nr", "ns3-wifi"]
MOST_SLOTS = 10_000_000


@typed
def trace(
    scenario: ScenarioLike,
    slots: int,
    *,
    given: Trace | None = None,
    radio: Radio | None = None,
    wifi_standard: Literal["n", "ac", "ax"] | None = None,
    wifi_width_mhz: int | None = None,
    rts: bool = False,
    wifi_ap_w: float | None = None,
    progress: Progress | None = None,
) -> SlotTrace:
    """Generate a channel trace with ns-3; its method `save` writes it to an NPZ file.

    Args:
        scenario: A scenario, or the path or name of one, as for `load`.
        slots: Number of slots in the trace. Each slot lasts `slot_s` seconds.
        given: With `radio`: trace whose gains are used instead of generated ones.
        radio: The trace has the rates that this radio of ns-3 delivers, instead of gains.
        wifi_standard: Wi-Fi standard. Default: that of the scenario.
        wifi_width_mhz: Width of the Wi-Fi channel, MHz. Default: that of the scenario.
        rts: Whether RTS and CTS precede each frame, even if the scenario has `rts: false`.
        wifi_ap_w: Transmit power of the access point, W. Default: that of the scenario.
        progress: Called with a description of the current step, its progress, and its total.
            Default: a bar in a notebook.

    Raises:
        InputError: An argument is not valid.
        RunError: ns-3 failed.
    """
    from orchestrator.rounds.ns3_radio import rate_trace, settings_of

    parsed = resolved(scenario, None, None)
    whole("slots", slots, 1, MOST_SLOTS)
    access = None
    if rts or any(it is not None for it in (radio, wifi_standard, wifi_width_mhz, wifi_ap_w)):
        access = settings_of(
            parsed, radio, wifi_standard, wifi_width_mhz, rts=rts, access_point_w=wifi_ap_w
        )
    elif given is not None:
        raise InputError("`given`: needs `radio`; a trace of gains is there already")
    with channel_of(parsed, given) as source, followed(progress) as show:
        try:
            channel = source.trace(slots).first(slots)
        except TraceExhausted as end:
            raise InputError(f"`slots`: the given trace has {end.available} slots") from None
        if access is None:
            return channel
        rates, _ = rate_trace(
            parsed, channel, access, wifi_ap_w, lambda done: show(str(radio), done, slots)
        )
    return rates
