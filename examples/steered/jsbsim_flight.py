# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Flies a light aircraft with JSBSim's flight dynamics and its autopilot, to the west.

Usage: jsbsim_flight.py X_M Y_M

X and Y are the place of its start in the scenario, 198 m high. It needs `pip install jsbsim`. Each
line of its output has the time in s, the position in m, and the uplink rate in Mb/s that its modem
reports.
"""

import math
import os
import sys
import time

import jsbsim

from testbed.pilot import Pilot

FOOT_M = 0.3048
EARTH_M = 6_378_137.0, 6_356_752.0
"""Radius at the equator, to the east, and to the poles."""
START = {
    "ic/h-sl-ft": 650,
    "ic/vc-kts": 90,
    "ic/psi-true-deg": 270,
}
AUTOPILOT = {
    "propulsion/set-running": -1,
    "fcs/throttle-cmd-norm": 0.7,
    "fcs/mixture-cmd-norm": 0.9,
    "ap/heading_hold": 1,
    "ap/heading_setpoint": 270,
    "ap/altitude_hold": 1,
    "ap/altitude_setpoint": 650,
}
STEP_S = 0.05


def main(x_m: float, y_m: float) -> None:
    """Fly for as long as the session lasts."""
    pilot = Pilot()
    aircraft = jsbsim.FGFDMExec(os.path.dirname(jsbsim.__file__))  # noqa: PTH120
    aircraft.set_debug_level(0)
    aircraft.load_model("c172x")
    for name, value in START.items():
        aircraft[name] = value
    aircraft.run_ic()
    for name, value in AUTOPILOT.items():
        aircraft[name] = value
    step = 0
    while True:
        time.sleep(max(0.0, STEP_S * step - pilot.now()))
        while aircraft.get_sim_time() < STEP_S * step:
            aircraft.run()
        angles = (aircraft[f"position/{name}-gc-deg"] for name in ("long", "lat"))
        east_m, north_m = (math.radians(a) * r for a, r in zip(angles, EARTH_M, strict=True))
        position_m = x_m + east_m, y_m + north_m, aircraft["position/h-sl-ft"] * FOOT_M
        east, north, down = (
            aircraft[f"velocities/v-{axis}-fps"] * FOOT_M for axis in ("east", "north", "down")
        )
        pilot.publish(position_m, (east, north, -down), aircraft.get_sim_time())
        numbers = STEP_S * step, *position_m, pilot.link().uplink_bps / 1e6
        print(*(f"{number:.3f}" for number in numbers), flush=True)
        step += 1


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
