"""A node's program: learns from the control plane who it is, then is base station or UAV."""

import sys

from testbed.control.node import ControlLost, Message, NodeControl
from testbed.runtimes import connect_control
from testbed.system import linux
from testbed.transport.wire import ConnectionLost, WireError
from workloads.learning.work import ClientWork, ServerWork, ZeroClient, ZeroServer
from workloads.nodes.base_station import BaseStation
from workloads.nodes.uav import Uav

SWITCH_S = 0.5e-3
"""A thread that computes in Python lets one that sends go first after this time at most."""


def main(control: NodeControl) -> int:
    """Serve the run that the control plane describes; the exit status.

    What goes wrong is reported as a `failed` message with one line of reason.
    """
    linux.precise_timers()
    sys.setswitchinterval(SWITCH_S)
    try:
        setup = control.expect("setup")
        if setup["role"] == "bs":
            BaseStation(control, setup, server_work(setup)).serve()
        else:
            Uav(control, setup, client_work(setup)).serve()
    except ControlLost as error:
        print(f"the orchestrator is gone: {error}", file=sys.stderr)
        return 1
    except (WireError, ConnectionLost) as error:
        control.send("failed", reason=f"{type(error).__name__}: {error}")
        return 1
    except Exception as error:
        control.send("failed", reason=f"{type(error).__name__}: {' '.join(str(error).split())}")
        raise
    return 0


def client_work(setup: Message) -> ClientWork:
    """What a UAV computes: nothing, or the client side of the model."""
    if setup["learning"] is None:
        return ZeroClient()
    from workloads.learning.real import RealClient, Settings

    return RealClient(Settings.from_json(setup["learning"]), setup["client"])


def server_work(setup: Message) -> ServerWork:
    """What the base station computes: nothing, or the server side of the model."""
    if setup["learning"] is None:
        return ZeroServer()
    from workloads.learning.real import RealServer, Settings

    return RealServer(Settings.from_json(setup["learning"]))


if __name__ == "__main__":
    sys.exit(main(NodeControl(connect_control())))
