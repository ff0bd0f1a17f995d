# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Flies a UAV with an autopilot that speaks MAVLink, such as PX4 or ArduPilot in software (SITL).

Usage: mavlink.py CONNECTION X_M Y_M Z_M

CONNECTION is that of pymavlink, e.g. udpin:127.0.0.1:14550; the autopilot runs in the same node. X,
Y and Z are the place of the autopilot's origin in the scenario: x points to the east, y to the
north. It needs `pip install pymavlink`.
"""

import sys

from pymavlink import mavutil

from testbed.pilot import Pilot

INTERVAL_US = 50_000


def main(connection: str, *origin_m: float) -> None:
    """Publish each position that the autopilot reports."""
    pilot, (x, y, z) = Pilot(), origin_m
    pilot.publish((x, y, z))
    autopilot = mavutil.mavlink_connection(connection)
    autopilot.wait_heartbeat()
    autopilot.mav.command_long_send(
        autopilot.target_system,
        autopilot.target_component,
        mavutil.mavlink.MAV_CMD_SET_MESSAGE_INTERVAL,
        0,
        mavutil.mavlink.MAVLINK_MSG_ID_LOCAL_POSITION_NED,
        INTERVAL_US,
        *[0] * 5,
    )
    while True:
        at = autopilot.recv_match(type="LOCAL_POSITION_NED", blocking=True)
        # MAVLink's axes point to the north, to the east and down.
        pilot.publish((x + at.y, y + at.x, z - at.z), (at.vy, at.vx, -at.vz))


if __name__ == "__main__":
    main(sys.argv[1], *map(float, sys.argv[2:]))
