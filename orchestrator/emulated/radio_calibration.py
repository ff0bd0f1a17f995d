# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The calibration of ns-3's radio as a carrier of frames: programs' goodput against ns-3 alone.

All UAVs send at the same time on a constant channel, first in one direction, then in the other. The
deliveries of the radio for each link, some time after the start and before the end, are compared
with the deliveries of ns-3 alone if senders have a backlog.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from ns3_scenarios.radio import WifiSettings
from orchestrator.emulated.radio_air import RadioAir
from orchestrator.engine.lte import TTI_S
from orchestrator.engine.plan import Array
from orchestrator.rounds.ns3_radio import air_of, settings_of, simulated
from orchestrator.scenario.schema import Emulation, ResolvedScenario
from testbed.control.messages import Probe, Received
from testbed.core.clock import EmulatedClock, next_tick
from testbed.network.injector import Injector, Samples
from testbed.transport import wire
from testbed.transport.framing import Framing

TRANSFER_S = 1.6
"""Emulated seconds that ns-3 alone needs for a transfer."""
WINDOW_S = (0.5, 1.3)
"""Part of a transfer that is compared: after slow start, and before the first link is done."""
PAUSE_S = 0.4
"""Emulated seconds after the transfers of a direction."""
SLOT_S = 0.1
LEAD_S = 0.1
"""Real seconds between the order and the first transfer."""
ALONE_S = 1.0
"""Simulated seconds of ns-3 alone."""
LEVEL = "middle"
WAYS = (("uplink", True), ("downlink", False))


@dataclass
class RadioTrial:
    """The transfers that calibrate the radio; see `orchestrator.emulated.calibration.Trial`."""

    channel: tuple[Array, ...]
    """The channel during the trial, one slot: see `RadioAir.channel`."""
    alone_bps: Array
    """Goodput of IP packets of ns-3 alone by direction and UAV, [2, K], in emulated bit/s."""
    probes: tuple[Probe, ...]
    """All transfers."""
    lasts_s: float
    """Duration in real seconds."""
    dilation: float
    left_out: Sequence[str] = ()
    """A message for each UAV without transfers."""
    samples: Samples | None = None
    """Bytes that the radio delivered by slot, available after the trial."""

    @classmethod
    def of(cls, scenario: ResolvedScenario, radio: RadioAir) -> "RadioTrial | None":
        """The transfers for a scenario; None where ns-3 alone is no reference: on Wi-Fi,
        acknowledgements take airtime from the data, and between several cells they interfere."""
        settings = settings_of(scenario, f"ns3-{scenario.radio.access}")
        assert settings is not None
        if isinstance(settings, WifiSettings) or scenario.radio.cells:
            return None
        slots = max(1, round(ALONE_S / radio.typical.slot_s))
        constant = replace(radio.typical, fading=None).at(np.zeros(slots, int))
        alone = simulated(
            air_of(scenario, constant, settings), settings, datagram_bytes=scenario.emulation.mtu
        )
        alone_bps = alone.bps.mean(axis=2)
        probes, at_s = [], 0.0
        framing = Framing(scenario.emulation.mtu)
        for (_, upward), rates in zip(WAYS, alone_bps, strict=True):
            for client in np.flatnonzero(rates).tolist():
                segments = max(1, round(rates[client] * TRANSFER_S / 8 / scenario.emulation.mtu))
                payload_bytes = segments * framing.segment_bytes - wire.HEADER_BYTES
                probes.append(Probe(client + 1, upward, at_s, payload_bytes))
            at_s += TRANSFER_S + PAUSE_S
        gains = radio.channel(constant, constant.values, 0, 1)
        return cls(
            tuple(
                np.broadcast_to(gain, clear.shape)
                for gain, clear in zip(gains, radio.clear, strict=True)
            ),
            alone_bps,
            tuple(probes),
            at_s * scenario.dilation,
            scenario.dilation,
            radio.missing,
        )

    def begin(self, injector: Injector) -> EmulatedClock:
        """Set the channel of the trial from a moment on, which is emulated time 0 of the returned
        clock."""
        slots = round(self.lasts_s / self.dilation / SLOT_S) + 1
        injector.channel(
            0, *(np.repeat(each, slots, axis=0) for each in self.channel), warn_slots=0
        )
        injector.watch()
        clock = EmulatedClock(next_tick() + round(LEAD_S * 1e9), 0.0, self.dilation)
        injector.epoch(clock, SLOT_S)
        return clock

    def end(self, injector: Injector) -> None:
        """Leave the channel as it is; the injector's next report begins here."""
        injector.pause()
        self.samples = injector.samples()
        injector.report()

    def table(self, received: Iterable[Received], emulation: Emulation) -> pd.DataFrame:
        """A comparison of the radio's deliveries with ns-3 alone.

        Returns:
            One row per UAV and direction; the columns are those of `Trial.table`, about the
            compared part of the transfer. A difference of one transport block counts as no
            difference.
        """
        rows, samples = [], self.samples
        assert samples is not None
        for probe in self.probes:
            way = 0 if probe.upward else 1
            first, last = (round((probe.start_s + part_s) / SLOT_S) for part_s in WINDOW_S)
            at = np.searchsorted(samples.slot, (first, last))
            size = int(np.diff(samples.sent_bytes[at, probe.client - 1, way])[0])
            rate_bps = self.alone_bps[way, probe.client - 1]
            took_s = (last - first) * SLOT_S
            # The window may begin or end within a transport block of the cell.
            block_bits = TTI_S * (rate_bps if probe.upward else self.alone_bps[way].sum())
            wrong_bits = 8 * size - rate_bps * took_s
            wrong_bits = np.sign(wrong_bits) * max(0.0, abs(wrong_bits) - block_bits)
            due_s = max(took_s + wrong_bits / rate_bps, TTI_S)
            error = took_s / due_s - 1
            rows.append(
                (
                    *(probe.client, WAYS[way][0], LEVEL, rate_bps, size, first * SLOT_S),
                    *(took_s, due_s, error),
                )
            )
        columns = ["client", "direction", "level", "rate_bps", "bytes", "start_s"]
        return pd.DataFrame(rows, columns=[*columns, "duration_s", "due_s", "error"])
