# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A small example of each thing that CONTRIBUTING.md says how to add, and a check that it works.

`add` writes all examples into a copy of the repository. In the copy, this file is a program:
`additions.py RUN CHECK…` runs checks by name and prints, as JSON, what went wrong in each. RUN is
the directory of a run, for what reports and figures show.
"""

import json
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from small_scenario import TREE

ROOT = Path(__file__).resolve().parents[2]
LICENCE = """\
# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT
"""
SCENARIO_REFERENCE = {"docs/scenario.md": "orchestrator.scenario.reference"}
GAIN = np.full((3, 300), 1e-9)

Edit = tuple[str, str]
"""A text that a file has once, and what takes its place."""


def before(anchor: str, text: str) -> Edit:
    return anchor, text + anchor


def after(anchor: str, text: str) -> Edit:
    return anchor, anchor + text


@dataclass(frozen=True)
class Addition:
    """What to write where, and the check that it works."""

    edits: dict[str, str | list[Edit]]
    """By file: the text of a new one, or the edits of one that is there."""
    check: Callable[[Path], None]
    """Is called in the copy with the directory of a run."""
    generated: dict[str, str] = field(default_factory=dict)
    """By file: the module that prints it."""

    @property
    def files(self) -> set[str]:
        """The files that the addition touches."""
        return {*self.edits, *self.generated}


def add(copy: Path) -> None:
    """Write all examples into a copy of the repository."""
    generated = {}
    for addition in ADDITIONS.values():
        generated |= addition.generated
        for name, edits in addition.edits.items():
            file = copy / name
            if isinstance(edits, str):
                assert not file.exists(), name
                file.write_text(edits, encoding="utf-8")
                continue
            text = file.read_text(encoding="utf-8")
            for old, new in edits:
                assert text.count(old) == 1, (name, old)
                text = text.replace(old, new)
            file.write_text(text, encoding="utf-8")
    for name, module in generated.items():
        printed = output([sys.executable, "-m", module], copy)
        assert printed != (copy / name).read_text(encoding="utf-8"), name
        (copy / name).write_text(printed, encoding="utf-8")


def output(command: list[str], copy: Path) -> str:
    """What a command prints that imports the packages of a copy."""
    environment = os.environ | {"PYTHONPATH": str(copy)}
    done = subprocess.run(command, env=environment, cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def scenario(**keys):
    """The small scenario under other keys."""
    from orchestrator.scenario.loading import validate

    return validate(TREE | keys, "small")


def predicted(wire=False, gain=GAIN, **keys):
    """A round of the small scenario under other keys, as a timeline."""
    import orchestrator as tb

    return tb.predict(scenario(**keys), {"gain": gain, "slot_s": 0.1}, rounds=1, wire=wire)


def steps(step, **keys):
    """That step of every client in the first iteration of such a round, by start."""
    spans = predicted(**keys).frame()
    return spans[(spans["step"] == step) & (spans["iteration"] == 1)].sort_values("start_s")


def plan_and_radio(chosen):
    """The plan of a scenario's round and its radio."""
    from orchestrator.engine.fdma import ShannonFdma
    from orchestrator.engine.plan import fixed_allocation, plan_round
    from orchestrator.scenario.profiles import profile_of

    plan = plan_round(chosen, profile_of(chosen), fixed_allocation(chosen))
    return plan, ShannonFdma.of(chosen)


def check_schedule(_):
    for step in ("S", "SG"):
        served = steps(step, paradigm="sfl-ss")
        assert len(served) == 3
        assert (served["start_s"].to_numpy()[1:] >= served["end_s"].to_numpy()[:-1]).all()


SCHEDULE = Addition(
    {
        "testbed/core/paradigm.py": [
            before(
                ")\n\nASYNCHRONOUS = (",
                '    Paradigm("sfl-ss", "SFL-SS", "sequential", "sequential"),\n',
            )
        ],
        "orchestrator/reporting/glossary.py": [
            before(
                '        _word(\n            "SFL-PP"',
                '        _word("SFL-SS", "computing and gradients in turn", r"(?i:SFL-SS)"),\n',
            )
        ],
        "docs/round.md": [before("| `sfl-pp` |", "| `sfl-ss` | sequential | sequential | | |\n")],
    },
    check_schedule,
    {"docs/glossary.md": "orchestrator.reporting.glossary"},
)


def check_order(_):
    from reference_engine import reference_round

    from orchestrator.engine.orders import machine_code

    chosen = scenario(paradigm="sfl-ps", order="last-first")
    assert machine_code(chosen.scheme)
    _, _, _, spans, _ = reference_round(*plan_and_radio(chosen), GAIN, 0.1)
    sent = sorted((span[3], span[0]) for span in spans if span[1:3] == (1, "SG"))
    assert [client for _, client in sent] == [3, 2, 1]
    assert steps("SG", paradigm="sfl-ps", order="last-first")["client"].tolist() == [3, 2, 1]


ORDER = Addition(
    {
        "testbed/core/orders.py": [
            before(
                "BUILT_IN: dict[str, Rank] = {\n",
                '''\
def last_first(asked: ServiceRequest) -> float:
    """The client with the highest number first."""
    return -float(asked.client)


''',
            ),
            after('    "round-robin": round_robin,\n', '    "last-first": last_first,\n'),
        ],
        "docs/service-orders.md": [
            before("| `larger-lag` | the client", "| `last-first` | the last UAV |\n")
        ],
        "tests/support/reference_engine.py": [
            before(
                '            case "round-robin":\n',
                '            case "last-first":\n                return -k\n',
            )
        ],
    },
    check_order,
)


def check_channel(_):
    from orchestrator.scenario.channel import open_source

    chosen = scenario(radio={"channel": "inverse-square"})
    with open_source(chosen, None) as source:
        trace = source.trace(20)
    far_m = np.linalg.norm(trace.position_m - chosen.base_station.position_m, axis=2)
    assert trace.gain.shape[0] == 3
    assert np.allclose(trace.gain, 1e-4 / far_m**2)


CHANNEL = Addition(
    {
        "ns3_scenarios/inverse_square.py": LICENCE
        + '''
"""A channel whose gain falls with the square of the distance."""

import numpy as np

from ns3_scenarios.modelled import Gain, Surroundings
from ns3_scenarios.trace import Array


def inverse_square(space: Surroundings, at_1_m: float = 1e-4) -> Gain:
    """The channel of a scenario; `at_1_m` is the gain at a distance of 1 m."""

    def gain(position_m: Array, times_s: Array) -> Array:
        far_m = np.linalg.norm(position_m - np.array(space.bs_position_m), axis=2)
        return np.asarray(at_1_m / far_m**2)

    return gain
''',
        "orchestrator/scenario/schema.py": [
            after(
                "**dict.fromkeys(PLAIN)",
                ', "inverse-square": "ns3_scenarios.inverse_square:inverse_square"',
            )
        ],
        "docs/channels.md": [
            before("| `rma-av` | rural", "| `inverse-square` | 1/d² | anywhere |\n")
        ],
    },
    check_channel,
)


def check_protocol(_):
    gain = GAIN * np.array([[1.0], [1e-2], [1e-4]])
    for gated in (False, True):
        keys = {"paradigm": "sfl-pp", "uploads": {"adapters_wait_for_all": gated}}
        received, began = (
            steps(step, gain=gain, **keys).sort_values("client") for step in ("SM", "CF")
        )
        assert received["end_s"].nunique() == 3
        due_s = received["end_s"] if gated else np.full(3, received["end_s"].max())
        np.testing.assert_allclose(began["start_s"], due_s)
        sent_s = predicted(gain=gain, **keys).frame().query("step == 'CM'")["start_s"]
        assert sent_s.nunique() == (1 if gated else 3)


PROTOCOL = Addition(
    {
        "testbed/core/server_round.py": [
            after(
                "                self._has_broadcast(event.client, event.at)\n",
                """\
                if self._paradigm.adapters_wait_for_all:
                    self._instructions.append(StartClients((event.client,), event.at))
""",
            ),
            (
                "            self._instructions.append(StartClients(tuple(sorted(self.here)), "
                "self._start_at))\n",
                """\
            if not self._paradigm.adapters_wait_for_all:
                started = tuple(sorted(self.here))
                self._instructions.append(StartClients(started, self._start_at))
""",
            ),
        ]
    },
    check_protocol,
)
"""Clients whose adapters wait for all begin as soon as each has the broadcast."""


def check_radio(_):
    from ns3_scenarios.trace import ChannelTrace
    from orchestrator.engine.plan import Allocation
    from orchestrator.engine.radio import ConstantRate, radio_access

    gain, shares = np.array([[1e-9, 0.0]] * 3), np.full(3, 1 / 3)
    radio = radio_access(scenario(radio={"access": "constant"}), ChannelTrace(gain, 0.1))
    assert isinstance(radio, ConstantRate)
    given = radio.link_rates(Allocation(3, shares, shares, shares), gain, in_turns=True)
    for rates_bps in given:
        assert rates_bps.tolist() == [[1e7, 0.0]] * 3
    for keys in ({}, {"paradigm": "asfl-pp"}):
        sent = steps("CA", radio={"access": "constant"}, **keys)
        assert np.allclose(sent["end_s"] - sent["start_s"], 8 * sent["bytes"] / 1e7)


RADIO = Addition(
    {
        "orchestrator/engine/radio.py": [
            before("GIVEN, Bands\n", "CONSTANT, "),
            after("type[ShannonFdma] | type[Lte]", " | type[ConstantRate]"),
            after('"lte": Lte', ', "constant": ConstantRate'),
            before(
                "ACCESS: Mapping",
                '''\
@dataclass(frozen=True)
class ConstantRate(Radio):
    """A radio whose links carry 10 Mb/s wherever there is a channel."""

    uplink_power_w: Array
    """p_k, shape [K]."""

    decides = frozenset[str]()
    without_shares = "where all links have the same rate"
    is_shared = False
    least_beta = 0.0

    @classmethod
    def of(cls, scenario: Scenario) -> "ConstantRate":
        """The scenario's radio."""
        return cls(scenario.fleet.tx_power_w)

    def of_clients(self, chosen: Ints) -> Self:
        """See `RadioAccess.of_clients`."""
        return replace(self, uplink_power_w=self.uplink_power_w[chosen])

    def bands(self) -> Bands:
        """See `RadioAccess.bands`."""
        return Bands(CONSTANT, self.uplink_power_w)


''',
            ),
        ],
        "orchestrator/engine/core/links.h": [
            after("enum Kind { SHANNON, GIVEN, LTE, WIFI, CURVE, NR", ", CONSTANT"),
            before(
                "    default:\n      return link.curve(",
                "    case CONSTANT:\n      return value > 0.0 ? 1e7 : 0.0;\n",
            ),
        ],
        "orchestrator/engine/core_library.py": [
            ("WIFI, CURVE, NR = range(6)", "WIFI, CURVE, NR, CONSTANT = range(7)")
        ],
        "orchestrator/scenario/schema.py": [
            after('RADIOS.add(dict.fromkeys(("shannon"', ', "constant"'),
            after("Rate model of the links: ", "`constant`, 10 Mb/s; "),
        ],
    },
    check_radio,
    SCENARIO_REFERENCE,
)


def check_transport(_):
    from orchestrator.engine.plan import transfer_bytes

    sections = [{"transport": name, "rate_counts": "payload"} for name in ("tcp", "measured")]
    plain, prefixed = (
        transfer_bytes(scenario(emulation=section).emulation, 16, 50_000) for section in sections
    )
    assert prefixed - plain == 10
    plain, prefixed = (predicted(wire=True, emulation=section) for section in sections)
    assert 0 < prefixed.rounds[0].latency_s - plain.rounds[0].latency_s < 1e-3


OF_A_PACKAGE = (ROOT / "examples" / "skyward" / "skyward.py").read_text(encoding="utf-8")
TRANSPORT = Addition(
    {
        "testbed/transport/prefixed.py": LICENCE
        + '''
"""The transport of examples/skyward, under another name."""

from testbed.transport.streams import StreamTransport
from testbed.transport.tcp import TcpStream


'''
        + re.findall(r"^class PrefixedStream.*?^prefixed = .*?\n", OF_A_PACKAGE, re.M | re.S)[
            0
        ].replace('"prefixed"', '"measured"'),
        "testbed/transport/__init__.py": [
            before(
                "from testbed.transport.quic import",
                "from testbed.transport.prefixed import prefixed\n",
            ),
            after("for kind in (TCP, TLS, GRPC, QUIC", ", prefixed"),
        ],
        "docs/overheads.md": [after("| `transport` | ", "`measured`: frames after their length; ")],
    },
    check_transport,
)


def check_validity(run):
    from orchestrator.emulated.validity import to_json, validity
    from orchestrator.records.reader import read_run
    from orchestrator.reporting.report import render

    sys.path.append(str(ROOT / "tests" / "orchestrator" / "emulated"))
    from test_validity_observed import emulation, round_record, way

    ends = [way(sent=1), way(sent=1)]
    limits = {"limits": {"longest_round_s": 1}}
    checks = validity(emulation([round_record(ends, ends)], emulation=limits))
    (found,) = (each for each in to_json(checks) if not each["ok"])
    assert found["check"] == "longest_round_s"
    assert found["value"] == 2.0
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    (run / "manifest.json").write_text(json.dumps(manifest | {"validity": [found]}))
    page = render(read_run(run))
    assert "Longest round</th>" in page
    assert "Ask for less work in a round." in page


VALIDITY = Addition(
    {
        "orchestrator/emulated/validity.py": [
            before(
                "def _counts(",
                """\
def _longest_round(done: Emulation) -> Observed:
    latencies_s = [record.measured.latency_s for record in done.rounds]
    yield max(latencies_s), f"round {np.argmax(latencies_s)}"


""",
            ),
            after(
                "CHECKS = {\n",
                """\
    "longest_round_s": ValidityCheck(
        "Longest round", "ask for less work in a round", of_run=_longest_round
    ),
""",
            ),
        ],
        "orchestrator/scenario/schema.py": [
            before(
                "    clock_drift_ppm: Limit",
                '''\
    longest_round_s: Limit = Field(default=1e9, exclude_if=lambda limit: limit == 1e9)
    """The measured latency of a round, in emulated seconds."""
''',
            )
        ],
    },
    check_validity,
    SCENARIO_REFERENCE,
)


def check_chart(run):
    from orchestrator.records.reader import read_run
    from orchestrator.reporting.report import render

    page = render(read_run(run))
    assert '<a href="#uploads">Uploads</a>' in page
    assert '<div class="chart" id="uploads-took_s">' in page
    (data,) = re.findall(r"<script [^>]*application/json[^>]*>(.*?)</script>", page, re.S)
    (curve,) = json.loads(data)["over_time"]["uploads"]["curves"]
    assert len(curve["time_s"]) == len(curve["took_s"]) > 2
    assert min(curve["took_s"]) > 0


CHART = Addition(
    {
        "orchestrator/reporting/charts.py": [
            (
                "TIME_CHARTS = {\n",
                """\
def _uploads(run: Run) -> Curves | None:
    if "measured" not in run.tables:
        return None
    spans = run.tables["measured"].query("step == 'CA'").sort_values("end_s")
    took_s = column_of(spans["end_s"] - spans["start_s"], 6)
    time_s = column_of(spans["end_s"], 6)
    return [{"label": "all UAVs", "time_s": time_s, "took_s": took_s, "clients": []}]


TIME_CHARTS = {
    "uploads": TimeChart(
        "Uploads", "How long smashed data took.", {"took_s": "Seconds"}, _uploads
    ),
""",
            )
        ],
        "docs/report.md": [before("| Overview |", "| Uploads | how long they took |\n")],
    },
    check_chart,
)


def check_figure(run):
    from orchestrator.reporting.run_plots import draw_run

    assert run / "latency.pdf" in draw_run(run, run)


FIGURE = Addition(
    {
        "orchestrator/reporting/run_plots.py": [
            before(
                "PLOTS: dict[str, Callable",
                '''\
def _latency(run: Run, round_: int) -> Figure | None:
    """The measured latency of the rounds up to this one."""
    if "measured" not in run.tables:
        return None
    figure, ax = _canvas(2.0)
    rounds = run.rounds[run.rounds["round"] <= round_]
    ax.plot(rounds["round"], rounds["measured_latency_s"])
    return figure


''',
            ),
            after('    "budget": _budget,\n', '    "latency": _latency,\n'),
        ],
        "docs/report.md": [after("`gantt`", ", `latency`")],
    },
    check_figure,
)


def check_command(_):
    testbed = [sys.executable, "-m", "orchestrator"]
    listed = " ".join(output([*testbed, "--help"], ROOT).split())
    assert "cores Print the number of CPU cores." in listed
    assert output([*testbed, "cores"], ROOT) == f"{os.cpu_count()}\n"


COMMAND = Addition(
    {
        "orchestrator/cli/machine.py": [
            before(
                "def host(",
                '''\
def cores() -> None:
    """Print the number of CPU cores.

    Examples:
        testbed cores
    """
    import os

    print(os.cpu_count())


''',
            )
        ],
        "orchestrator/cli/main.py": [after("machine.clean, machine.host", ", machine.cores")],
    },
    check_command,
    {"docs/cli.md": "orchestrator.cli.reference"},
)


def check_policy(_):
    took = steps("CA", allocation={"policy": "first-best"}).set_index("client")
    took_s = took["end_s"] - took["start_s"]
    equal = steps("CA", allocation={"policy": "equal"}).set_index("client")
    assert took_s[1] < (equal["end_s"] - equal["start_s"])[1]


POLICY = Addition(
    {
        "orchestrator/policies/registry.py": [
            before(
                "def static(",
                '''\
def first_best(scenario: Scenario) -> Decide:
    """The policy that gives the first UAV twice as much as each other one."""
    shares = np.ones(scenario.uavs.count)
    shares[0] = 2
    shares /= shares.sum()
    return always(Allocation(split_of(scenario), shares, shares, shares))


''',
            )
        ],
        "orchestrator/scenario/schema.py": [
            after(
                '        "agent": "orchestrator.policies.registry:trained",\n',
                '        "first-best": "orchestrator.policies.registry:first_best",\n',
            ),
            before("`equal`: a share of 1/K", "`first-best`: twice as much to UAV 1; "),
        ],
    },
    check_policy,
    SCENARIO_REFERENCE,
)


def check_equation(_):
    from orchestrator.analytical.models import model

    chosen = scenario(paradigm="sfl-pp")
    said = model("forward", chosen)(*plan_and_radio(chosen), GAIN, 0.1)
    assert 0 < said.low_s < predicted(paradigm="sfl-pp").rounds[0].latency_s


EQUATION = Addition(
    {
        "orchestrator/analytical/closed_forms.py": [
            before(
                "def iteration_of(",
                '''\
def forward_s(d: Durations) -> float:
    """The forward computing of the slowest client."""
    return float(d.cf_s.sum(axis=1).max())


''',
            )
        ],
        "orchestrator/analytical/models.py": [
            before(
                '        Equation("tau-pp"',
                '        Equation("forward", "forward computing", theory.forward_s, '
                '_of(sfl_pp=">=")),\n',
            )
        ],
        "docs/validate.md": [
            before("| `upper-bound` |", "| `forward` | forward computing | a lower bound |\n")
        ],
    },
    check_equation,
)


def check_key(_):
    assert scenario(uavs=TREE["uavs"] | {"rotors": 6}).uavs.rotors == 6


KEY = Addition(
    {
        "orchestrator/scenario/schema.py": [
            before(
                "    tx_power_w: Watts | Annotated",
                '''\
    rotors: Annotated[int, Field(ge=1, le=16)] = Field(default=4, exclude_if=lambda n: n == 4)
    """Rotors of each UAV."""
''',
            )
        ]
    },
    check_key,
    SCENARIO_REFERENCE,
)


def check_group(_):
    from testbed.core import registry

    assert "testbed.rotors" in registry.installed()


GROUP = Addition(
    {
        "testbed/core/registry.py": [
            before("TRANSPORTS = Registry(", 'ROTORS = Registry("testbed.rotors", "uavs.rotors")\n')
        ],
        "docs/plugins.md": [
            before("| schedule | `testbed", "| rotor | `testbed.rotors` | a number | |\n")
        ],
    },
    check_group,
)

ADDITIONS = {
    "a schedule": SCHEDULE,
    "a service order": ORDER,
    "a channel": CHANNEL,
    "a protocol (what happens in a round)": PROTOCOL,
    "a radio": RADIO,
    "a transport": TRANSPORT,
    "a validity check": VALIDITY,
    "a chart of the HTML report": CHART,
    "a figure of a run": FIGURE,
    "a command": COMMAND,
    "a policy": POLICY,
    "an equation": EQUATION,
    "a key of scenarios": KEY,
    "a group of plug-ins": GROUP,
}
"""By the first column of the table in CONTRIBUTING.md."""
CHECKS = {name: addition.check for name, addition in ADDITIONS.items()}


def wrong(run: Path, names: list[str]) -> dict[str, str]:
    """What went wrong, by check."""
    found = {}
    for name in names:
        try:
            CHECKS[name](run)
        except Exception:
            found[name] = traceback.format_exc()
    return found


if __name__ == "__main__":
    print(json.dumps(wrong(Path(sys.argv[1]), sys.argv[2:])))
