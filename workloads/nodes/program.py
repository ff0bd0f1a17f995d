# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The program of a node: base station or UAV, as the control plane orders."""

import sys
from contextlib import closing

from testbed.control.codec import Json
from testbed.control.messages import Failed, NodeOrder, SetUpBaseStation, SetUpUav
from testbed.control.node import ControlLost, NodeControl, at_node
from testbed.core.errors import InputError
from testbed.core.registry import reason
from testbed.runtimes import connect_control
from testbed.system import inside, linux
from testbed.transport.wire import ConnectionLost, WireError
from workloads.learning.work import ClientWork, ServerWork, ZeroClient, ZeroServer
from workloads.nodes.base_station import BaseStation
from workloads.nodes.uav import Uav

SWITCH_S = 0.5e-3
"""Switch interval of the interpreter in s: the longest time that a computing thread delays a
sending one."""


def main(control: NodeControl[NodeOrder]) -> int:
    """Take part in the run that the control plane describes; returns the exit status.

    Errors are reported as a `Failed` message with a reason of one line.
    """
    linux.precise_timers()
    sys.setswitchinterval(SWITCH_S)
    try:
        match control.receive():
            case SetUpBaseStation() as setup:
                with closing(server_work(setup.learning)) as serves:
                    BaseStation(control, setup, serves).serve()
            case SetUpUav() as setup:
                with closing(client_work(setup.learning, setup.client)) as learns:
                    Uav(control, setup, learns).serve()
            case order:
                raise ControlLost(f"{type(order).__name__} arrived before a set-up message")
    except ControlLost as error:
        print(f"the connection to the orchestrator is lost: {error}", file=sys.stderr)
        return 1
    except InputError as error:
        control.send(Failed(str(error), wrong_input=True))
        return 1
    except (WireError, ConnectionLost) as error:
        control.send(Failed(f"{type(error).__name__}: {error}"))
        return 1
    except Exception as error:
        control.send(Failed(reason(error)))
        raise
    return 0


def client_work(learning: Json | None, client: int) -> ClientWork:
    """The work of a UAV: none, or the client side of the model."""
    if learning is None:
        return ZeroClient()
    if (place := inside.computing()) is not None:
        from workloads.offload.client import OffloadClient

        return OffloadClient(place, learning, client)
    from workloads.learning.real import RealClient, Settings

    return RealClient(Settings.from_json(learning), client)


def server_work(learning: Json | None) -> ServerWork:
    """The work of the base station: none, or the server side of the model."""
    if learning is None:
        return ZeroServer()
    if (place := inside.computing()) is not None:
        from workloads.offload.client import OffloadServer

        return OffloadServer(place, learning)
    from workloads.learning.real import RealServer, Settings

    return RealServer(Settings.from_json(learning))


def live() -> int:
    """As `main`, of the node in whose network namespace this thread is."""
    return main(at_node(connect_control()))


if __name__ == "__main__":
    sys.exit(live())
