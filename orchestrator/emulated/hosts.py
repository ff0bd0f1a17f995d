# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The hosts of a run: found through a Dask scheduler, compared with this machine, and given nodes.

Dask finds hosts and starts their agents. Orders, reports and clocks travel between the orchestrator
and the agents directly, see `testbed.cluster`.
"""

import contextlib
import ipaddress
import secrets
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from orchestrator.emulated.host_worker import examine, findings, start_agent
from orchestrator.emulated.learning import learning_settings, startup_limit_s
from orchestrator.emulated.underlay import Demand, check_demand, check_relays, demand_of
from orchestrator.engine.access import LinkRates
from orchestrator.records.manifest import environment
from orchestrator.scenario.combinations import check
from orchestrator.scenario.schema import ResolvedScenario, Scenario
from testbed.cluster import world
from testbed.cluster.messages import STARTING, BeHost, FlowsMeasured, Listening
from testbed.cluster.placement import Resources, place
from testbed.cluster.world import Agent, HostsWorld, far_links
from testbed.control.codec import encode
from testbed.core.errors import InputError, RunError
from testbed.core.node import BS, NodeId, uavs
from testbed.host.dask_cluster import Cluster, client_of
from testbed.host.dask_nodes import HOST
from testbed.host.doctor import Finding
from testbed.network.fabric import TUNNEL_BYTES
from testbed.network.relay import RELAY_BYTES
from testbed.network.shaping import Shape
from testbed.runtimes import NodeSpec, World
from testbed.system.files import sha256_of
from testbed.transport.certificates import identities

TOKEN_BYTES = 32
SAME = ("source_sha256", "python", "packages")
"""Entries of `environment` that must be equal on all hosts."""


@dataclass
class Hosts:
    """The hosts on which a run's nodes live."""

    client: Any
    """Client of the Dask scheduler."""
    workers: Mapping[str, str]
    """Addresses of the Dask workers, by host name."""
    facts: Mapping[str, Mapping[str, Any]]
    """Properties of each host; see `examine`."""
    places: Mapping[NodeId, str]
    """The host of each node."""
    network: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Measured network between hosts, by host name; see `to_json`."""
    started: HostsWorld | None = None
    """The world that `start` has started, whether it still runs or not."""

    @property
    def used(self) -> list[str]:
        """Hosts that have nodes."""
        return [name for name in self.facts if name in self.places.values()]

    @property
    def relayed(self) -> bool:
        """Whether relays carry packets between hosts, because a host cannot create tunnels."""
        return len(self.used) > 1 and not all(self.facts[name]["tunnels"] for name in self.used)

    @property
    def around_bytes(self) -> int:
        """Bytes of headers that are added to each IP packet between hosts."""
        return RELAY_BYTES if self.relayed else TUNNEL_BYTES

    def start(
        self,
        scenario: ResolvedScenario,
        nodes: Sequence[NodeSpec],
        shape: Shape,
        rates: LinkRates,
        *,
        in_turns: bool,
    ) -> World:
        """Start a world on the hosts; see `testbed.runtimes.start`.

        Args:
            scenario: Scenario to emulate.
            nodes: Nodes, the base station first.
            shape: Shape of the links.
            rates: Rates of the slots that the run is expected to last, in emulated bit/s.
            in_turns: Whether gradients are sent one after the other.

        Raises:
            InputError: Links need more than the network between hosts carries.
            RunError: A host failed; the message names it.
        """

        def judge(found: FlowsMeasured, packets_s: Mapping[str, float]) -> None:
            demand = demand_of(
                rates,
                self.places,
                shape,
                scenario.dilation,
                in_turns=in_turns,
                broadcasts=not scenario.updates,
                around_bytes=self.around_bytes,
            )
            self._note(demand, found, packets_s)
            check_relays(demand, packets_s, scenario.dilation)
            check_demand(demand, found, scenario.dilation)

        ours, *theirs = identities(len(self.used))
        orders = {
            name: BeHost(
                self.facts[name]["address"],
                secrets.token_hex(TOKEN_BYTES),
                identity,
                len(far_links(self.places, name)) if self.relayed else 0,
            )
            for name, identity in zip(self.used, theirs, strict=True)
        }
        with ThreadPoolExecutor(len(orders)) as pool:
            answers = pool.map(self._start_agent, orders, orders.values())
            listening = dict(zip(orders, answers, strict=True))
        agents = {
            name: Agent(
                orders[name].address,
                listening[name].port,
                listening[name].clock_port,
                listening[name].flow_port,
                orders[name].token,
                NodeId(place_).host_name,
                listening[name].relay_ports,
            )
            for place_, name in enumerate(orders, 1)
        }
        limit_s = startup_limit_s(scenario)
        self.started = world.start(nodes, shape, agents, self.places, ours, limit_s, judge)
        return self.started

    def _note(self, demand: Demand, found: FlowsMeasured, packets_s: Mapping[str, float]) -> None:
        """Record the demand of the links and the capacity of the network."""
        self.network = {
            host: {"asked": asdict(asked), "carried": asdict(found.alone[host])}
            for host, asked in demand.by_host.items()
        }
        together = {"asked": asdict(demand.together), "carried": asdict(found.together)}
        self.network[demand.centre] = together
        for host, carried in packets_s.items():
            asked_s = demand.packets_s[host]
            self.network[host]["relay"] = {"asked_packets_s": asked_s, "packets_s": carried}

    def _start_agent(self, name: str, order: BeHost) -> Listening:
        where = self.workers[name]
        answer = self.client.run(start_agent, encode(order)[0], workers=[where], on_error="return")
        said = answer.get(where)
        if not isinstance(said, dict) or "failure" in said:
            why = said["failure"] if isinstance(said, dict) else said
            raise RunError(f"host {name}: its agent did not start ({why})")
        message = STARTING.decode(said, b"")
        assert isinstance(message, Listening)
        return message

    def to_json(self, calibration: pd.DataFrame | None) -> list[dict[str, Any]]:
        """The hosts as entries of the manifest.

        `network` has the largest demand of links between hosts and the measured capacity before the
        run (for the base station's host, of all links together): IP bits per second away from the
        base station (`down_bps`) and to it (`up_bps`). Where links are relayed, `relay` has the
        same in packets per second through the relay of the host. `clock` has the largest error of
        the assumed clock offset, and the jump of the clock. `lost` has the reason why the host was
        lost, if it was. `calibration` has median and maximum of the error of transfers whose rates
        this host set.

        Args:
            calibration: Table of `orchestrator.emulated.calibration`; None: there was no
                calibration.
        """
        clocks = {} if self.started is None else self.started.clock_errors()
        lost = {} if self.started is None else self.started.lost
        kept = ("host", "address", "mtu", "cores", "memory_bytes", "gpus", "cpu", "kernel")
        return [
            {"name": name}
            | {key: self.facts[name][key] for key in kept}
            | {"nodes": [str(node) for node, at in self.places.items() if at == name]}
            | {"network": self.network.get(name), "clock": clocks.get(name)}
            | {"calibration": self._calibrated(name, calibration)}
            | {"lost": lost.get(name)}
            for name in self.used
        ]

    def _calibrated(self, host: str, table: pd.DataFrame | None) -> dict[str, float] | None:
        """Calibration errors of the transfers whose senders are on this host."""
        if table is None:
            return None
        senders = (
            NodeId(client) if direction == "uplink" else BS
            for client, direction in zip(table["client"], table["direction"], strict=True)
        )
        errors = table["error"][[self.places[sender] == host for sender in senders]].abs()
        if errors.empty:
            return None
        return {"error_p50": float(errors.median()), "error_max": float(errors.max())}


@contextlib.contextmanager
def hosts_of(
    scenario: Scenario, scheduler: str, key: Path | None, *, learns: bool = True
) -> Iterator[Hosts]:
    """The hosts of a scheduler, with a place for every node, until the context ends.

    Args:
        scenario: Scenario to emulate.
        scheduler: Address of the scheduler.
        key: Key file of the scheduler.
        learns: Whether nodes train the scenario's model; otherwise they run other programs.

    Raises:
        InputError: There are no hosts, one differs from this machine, or the scenario does not fit.
    """
    check(scenario, "--scheduler", "run --scheduler" if learns else "up --scheduler")
    learning = learning_settings(scenario) if learns else None
    files = [] if learning is None else [learning["backbone"]]
    with _found(scheduler, key) as (client, workers):
        choices = scenario.links.queue, scenario.emulation.congestion_control
        at = list(workers.values())
        answers = client.run(examine, files, *choices, workers=at, on_error="return")
        facts = {name: answers.get(workers[name]) for name in sorted(workers)}
        _compare(facts, files)
        offers = {name: Resources(fact["cores"], fact["gpus"]) for name, fact in facts.items()}
        nodes = [BS, *uavs(scenario.uavs.count)]
        on_gpu = learning is not None and scenario.base_station.device.startswith("cuda")
        places = place(scenario.emulation.placement or "spread", nodes, offers, on_gpu=on_gpu)
        hosts = Hosts(client, workers, facts, places)
        _check_kernels(hosts)
        _check_tunnels(scenario, hosts)
        yield hosts


def findings_of(scheduler: str, key: Path | None) -> dict[str, list[Finding]]:
    """Findings of the doctor on each host of a scheduler.

    Raises:
        InputError: There are no hosts.
        RunError: The doctor failed on a host.
    """
    with _found(scheduler, key) as (client, workers):
        answers = client.run(findings, workers=list(workers.values()), on_error="return")
    for name, address in workers.items():
        if not isinstance(answers.get(address), list):
            raise RunError(f"host {name}: its doctor failed ({answers.get(address)})")
    return {name: [Finding(**each) for each in answers[workers[name]]] for name in sorted(workers)}


@contextlib.contextmanager
def _found(scheduler: str, key: Path | None) -> Iterator[tuple[Any, dict[str, str]]]:
    """A client of a scheduler, and the addresses of its hosts by name.

    Raises:
        InputError: There are no hosts.
    """
    if not scheduler.startswith("tls:"):
        raise InputError(
            f"`scheduler`: must be tls://…, not {scheduler}: secrets are sent to hosts"
        )
    with client_of(1, Cluster(scheduler, key=key)) as client:
        workers = {
            str(worker["name"]): address
            for address, worker in client.scheduler_info(n_workers=-1).get("workers", {}).items()
            if HOST in worker["resources"]
        }
        if not workers:
            raise InputError("`scheduler`: it has no host; `testbed host` adds a machine")
        yield client, workers


def _compare(facts: Mapping[str, Any], files: Sequence[str]) -> None:
    """Refuse a host that differs from this machine; the message names it."""
    here = environment()
    digests = {path: sha256_of(Path(path)) for path in files}
    for name, fact in facts.items():
        if not isinstance(fact, dict):
            raise InputError(f"`scheduler`: host {name} cannot describe itself ({fact})")
        for key in SAME:
            if fact[key] != here[key]:
                raise InputError(
                    f"`scheduler`: host {name} differs in {_difference(key, fact, here)}"
                )
        for path, digest in digests.items():
            if fact["files"][path] != digest:
                raise InputError(f"`scheduler`: host {name} lacks {path}, or has a different one")
        try:
            ipaddress.IPv4Address(fact["address"])
        except ValueError:
            raise InputError(
                f"`scheduler`: host {name} has no IPv4 address there, but {fact['address']!r}"
            ) from None


def _difference(key: str, fact: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    if key == "packages":
        names = sorted(set(fact[key].items()) ^ set(here[key].items()))
        package = names[0][0]
        return f"{package}: {fact[key].get(package)} there, {here[key].get(package)} here"
    if key == "source_sha256":
        return "its sources"
    return f"{key}: {fact[key]} there, {here[key]} here"


def _check_kernels(hosts: Hosts) -> None:
    """Check that the kernel of each host that has nodes supports the links."""
    for name in hosts.used:
        if (lacks := hosts.facts[name]["lacks"]) is not None:
            field_, there = lacks
            raise InputError(f"{field_}: the kernel of host {name} {there}")


def _check_tunnels(scenario: Scenario, hosts: Hosts) -> None:
    """Check that frames of links between hosts fit into the network between them."""
    if len(hosts.used) == 1:
        return
    for name in hosts.used:
        most = hosts.facts[name]["mtu"] - hosts.around_bytes
        if scenario.emulation.mtu > most:
            raise InputError(
                f"emulation.mtu: {scenario.emulation.mtu} does not fit through a "
                f"{'relay' if hosts.relayed else 'tunnel'} of host {name}, whose network carries "
                f"{hosts.facts[name]['mtu']}; at most {most}"
            )
