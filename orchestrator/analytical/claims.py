# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Compares the paper's claims about latency with the engine and with exhaustive search."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from rich.console import Group
from rich.table import Table

from ns3_scenarios.trace import ChannelSource, SlotValues, each_way
from orchestrator.analytical.closed_forms import (
    best_iteration_s,
    best_order_s,
    best_sequence_s,
    constant_durations,
    cpsfl_lower_bound_s,
    durations_of,
    iteration_latency_s,
    iteration_of,
    lag_of,
    larger_lag_first,
    order_latency_s,
    pipeline,
    pipesfl_without_at_hat_s,
    pipesfl_without_at_s,
    sfl_pp_s,
    upper_bound_s,
    without_adapters,
    without_at_hat_s,
    without_at_s,
)
from orchestrator.engine.access import RadioAccess
from orchestrator.engine.plan import RoundPlan, fixed_allocation, plan_round
from orchestrator.engine.radio import of_gains, radio_access
from orchestrator.rounds.loop import simulate_on
from orchestrator.rounds.simulation import RoundTimes, simulate
from orchestrator.scenario.channel import Channel, mean_loss
from orchestrator.scenario.combinations import check
from orchestrator.scenario.schema import Scenario
from testbed.core.timeline import S
from workloads.costs.profile import SplitProfile

MOST_ORDERED = 7
"""Largest number of clients for which all K! orders are tried."""
SEARCHED = (4, 3)
"""Largest numbers of clients and iterations for which all sequences are searched."""
NETWORKS = 500
"""Number of random networks for theorem 2 and (17)."""

NOT_ALWAYS = (
    "Not true for all networks: a gradient of small lag may start just before one of large lag is "
    "ready. COUNTEREXAMPLE in orchestrator/analytical/closed_forms.py: CPSFL 4.0 s, "
    "CPSFL w/o AT 3.1 s."
)
NO_BOUND = (
    "The paper calls the hatted tau_2 an approximate upper bound of CPSFL. It is a lower bound of "
    "tau_2 and therefore not an upper bound of CPSFL, even if the result for this scenario agrees."
)
EQUAL_BACKWARDS = (
    "Holds if all CB are equal, as with equal UAVs. Larger lag first is optimal between "
    "iterations, but the last iteration ends with CB only."
)
EQUAL_UAVS = (
    "A bound if the client of smallest lag has the shortest CF + CA + S and the shortest CB, as "
    "with equal UAVs; otherwise not."
)


@dataclass(frozen=True)
class Row:
    """A claim of the paper and the result of its check."""

    claim: str
    equation: str
    assumptions: str
    """Numbers of the assumptions; `-` for none."""
    value_s: float
    """Value from the engine or from a search, s."""
    relation: str
    """Claimed relation of the value to the form: `=`, `<=` or `>=`."""
    form_s: float
    note: str = ""

    @property
    def difference(self) -> float:
        """Relative difference: (value - form) / form."""
        return self.value_s / self.form_s - 1

    @property
    def holds(self) -> bool:
        """Whether the claim holds, up to a relative error of 1e-9."""
        too_large, too_small = self.difference > 1e-9, self.difference < -1e-9
        return not (
            (too_large and self.relation in ("=", "<=")) or (too_small and self.relation != "<=")
        )


@dataclass(frozen=True)
class TheoryTable:
    """All claims for one scenario."""

    rows: list[Row]

    def frame(self) -> pd.DataFrame:
        """One row per claim: the fields of `Row`, difference and holds."""
        rows = [
            asdict(row) | {"difference": row.difference, "holds": row.holds} for row in self.rows
        ]
        return pd.DataFrame(rows)

    def _repr_html_(self) -> str:
        """The claims, for a notebook."""
        html: str = self.frame().to_html(index=False)
        return html

    def __rich__(self) -> Group:
        table = Table(box=None, pad_edge=False)
        for name in ("claim", "eq.", "assumes"):
            table.add_column(name)
        for name in ("value s", "", "form s", "differs %", "holds"):
            table.add_column(name, justify="right", no_wrap=True)
        notes = []
        for row in self.rows:
            mark = ""
            if row.note:
                notes.append(row.note)
                mark = f" [{len(notes)}]"
            table.add_row(
                row.claim + mark.replace("[", r"\["),
                row.equation,
                row.assumptions,
                f"{row.value_s:.6f}",
                row.relation,
                f"{row.form_s:.6f}",
                f"{100 * row.difference:+.3f}",
                "yes" if row.holds else "NO",
            )
        return Group(table, "", *(rf"\[{n}] {note}" for n, note in enumerate(notes, 1)))


def run(scenario: Scenario, source: ChannelSource, profile: SplitProfile) -> TheoryTable:
    """Compare all forms and bounds with the engine, for the scenario's first round.

    Under assumption 1 the channel remains as in slot 0; under assumption 2, and in all forms
    except (13), SM and CM transfer no data.

    Raises:
        InputError: The radio divides its band among those that are active, clients do different
            numbers of iterations, or the scenario has edge servers or a protocol that the paper
            does not have.
    """
    check(scenario, "theory", "constant")
    channel = Channel.of(source)
    radio, gain = radio_access(scenario, channel.now), channel.trace(1).values[:, 0]
    return TheoryTable(
        [
            *_upper_bounds(scenario, channel, profile),
            *_closed_forms(scenario, profile, radio, gain),
            *_theorems(scenario, profile, radio, gain),
            *_random_networks(scenario, profile),
        ]
    )


def _plan(scenario: Scenario, profile: SplitProfile, name: str) -> RoundPlan:
    """The plan of the scenario's round under another paradigm, with that one's own order."""
    of_paper: dict[str, object] = {"paradigm": name, "order": None, "order_parameters": {}}
    tree = scenario.model_dump()
    tree["workload"]["server_adapters"] = "per-client"  # Times do not depend on it.
    other = Scenario.model_validate(tree | of_paper)
    return plan_round(other, profile, fixed_allocation(other))


def _constant_round(plan: RoundPlan, radio: RadioAccess, gain: SlotValues) -> RoundTimes:
    """The engine under assumption 1: one slot that never ends."""
    return simulate(plan, radio, gain[:, None], 1e9)


def _equalised(gain: SlotValues) -> SlotValues:
    """Everybody's gain the geometric mean of all."""
    return each_way(lambda way: np.full_like(way, np.exp(np.log(way).mean())), gain)


def _upper_bounds(scenario: Scenario, channel: Channel, profile: SplitProfile) -> Iterator[Row]:
    radio = radio_access(scenario, channel.now)
    for name in ("sfl-ps", "cpsfl-no-at", "cpsfl-no-ps", "cpsfl"):
        plan = _plan(scenario, profile, name)
        times = simulate_on(scenario, plan, radio, channel, 0.0)
        bound_s = upper_bound_s(durations_of(times, plan.clients))
        yield Row(
            f"{plan.paradigm.title} <= upper bound", "(13)", "-", times.latency_s, "<=", bound_s
        )


def _closed_forms(
    scenario: Scenario, profile: SplitProfile, radio: RadioAccess, gain: SlotValues
) -> Iterator[Row]:
    names = ("sfl-ps", "cpsfl-no-at", "cpsfl", "sfl-pp", "pipesfl-no-at", "pipesfl")
    plans = {name: without_adapters(_plan(scenario, profile, name)) for name in names}
    times = {name: _constant_round(plan, radio, gain) for name, plan in plans.items()}
    engine_s = {name: found.latency_s for name, found in times.items()}
    ps, pipe, pp = (
        constant_durations(plans[name], radio, gain) for name in ("cpsfl", "pipesfl", "sfl-pp")
    )
    if ps.iterations > 1:
        computed = times["cpsfl-no-at"].spans
        computed = computed["end_s"][computed["step"] == S].reshape(-1, ps.iterations).max(axis=0)
        yield Row(
            "T_iter: from all computed to all computed",
            "(15)",
            "1",
            computed[1] - computed[0],
            "=",
            iteration_of(ps),
        )
    yield Row(
        "CPSFL w/o AT = tau_2", "(16)", "1, 2", engine_s["cpsfl-no-at"], "=", without_at_s(ps)
    )
    yield Row(
        "SFL-PS = tau_1 >= tau_2",
        "",
        "1, 2",
        engine_s["sfl-ps"],
        ">=",
        without_at_s(ps),
        EQUAL_BACKWARDS,
    )
    yield Row(
        "CPSFL w/o AT >= hatted tau_2",
        "",
        "1, 2",
        engine_s["cpsfl-no-at"],
        ">=",
        without_at_hat_s(ps),
    )
    yield Row(
        "CPSFL <= tau_2",
        "(17)",
        "1, 2",
        engine_s["cpsfl"],
        "<=",
        without_at_s(ps),
        NOT_ALWAYS,
    )
    yield Row(
        "CPSFL <= hatted tau_2",
        "",
        "1, 2",
        engine_s["cpsfl"],
        "<=",
        without_at_hat_s(ps),
        NO_BOUND,
    )
    yield Row(
        "CPSFL >= lower bound",
        "(18)",
        "1, 2",
        engine_s["cpsfl"],
        ">=",
        cpsfl_lower_bound_s(ps),
        EQUAL_UAVS,
    )
    yield Row("SFL-PP = tau_PP", "(21)", "1, 2", engine_s["sfl-pp"], "=", sfl_pp_s(pp))
    yield Row(
        "PipeSFL w/o AT = tau_3",
        "(23)",
        "1, 2",
        engine_s["pipesfl-no-at"],
        "=",
        pipesfl_without_at_s(pipe),
    )
    yield Row(
        "PipeSFL <= tau_3", "(23)", "1, 2", engine_s["pipesfl"], "<=", pipesfl_without_at_s(pipe)
    )
    yield Row(
        "PipeSFL w/o AT >= hatted tau_3",
        "",
        "1, 2",
        engine_s["pipesfl-no-at"],
        ">=",
        pipesfl_without_at_hat_s(pipe),
    )


def _theorems(
    scenario: Scenario, profile: SplitProfile, radio: RadioAccess, gain: SlotValues
) -> Iterator[Row]:
    plan = without_adapters(_plan(scenario, profile, "cpsfl"))
    some, some_radio, chosen = _only(plan, radio, MOST_ORDERED)
    d = constant_durations(some, some_radio, gain[chosen])
    lag, sg = lag_of(d), d.sg_s[:, 0]
    yield Row(
        f"larger lag first = best of all {some.clients}! orders",
        "theorem 1",
        "1",
        iteration_latency_s(sg, lag, larger_lag_first(lag)),
        "=",
        best_iteration_s(sg, lag),
    )
    few, few_radio, chosen = _only(plan, radio, SEARCHED[0], SEARCHED[1])
    equal = _equalised(gain[chosen])
    p = pipeline(constant_durations(few, few_radio, equal))
    engine_s = _constant_round(few, few_radio, equal).latency_s
    size = f"K = {few.clients}, I = {few.iterations}"
    yield Row(
        f"CPSFL = best of all orders, {size}", "theorem 2", "1-3", engine_s, "=", best_order_s(p)
    )
    yield Row(
        f"CPSFL = best of all schedules, {size}",
        "theorem 2",
        "1-3",
        engine_s,
        "=",
        best_sequence_s(p),
    )


def _only(
    plan: RoundPlan, radio: RadioAccess, most: int, iterations: int | None = None
) -> tuple[RoundPlan, RadioAccess, npt.NDArray[np.int64]]:
    """At most `most` of a round's clients, spread evenly, and the first `iterations`."""
    few = min(most, plan.clients)
    chosen = np.linspace(0, plan.clients - 1, few).round().astype(np.int64)

    def part(array: npt.NDArray[Any]) -> Any:
        rows = array[chosen]
        return np.ascontiguousarray(rows[:, :iterations] if rows.ndim == 2 else rows)

    names = ("cf_s", "cb_s", "s_s", "sm_bytes", "ca_bytes", "sg_bytes", "cm_bytes")
    shares = {name: part(getattr(plan.allocation, name)) for name in ("alpha", "beta", "rho")}
    return (
        replace(
            plan,
            allocation=replace(plan.allocation, **shares),
            compute_power_w=part(np.full(plan.clients, plan.compute_power_w)),
            **{name: part(getattr(plan, name)) for name in names},
        ),
        radio.of_clients(chosen),
        chosen,
    )


def _random_networks(scenario: Scenario, profile: SplitProfile) -> Iterator[Row]:
    """Claims for random line-of-sight placements of UAVs, uniform over the area of their rings."""
    path_loss_db = mean_loss(scenario)
    if path_loss_db is None:  # a plug-in channel has no known path loss
        return
    rng = np.random.default_rng(scenario.seed)
    radio = of_gains(scenario)
    plan = without_adapters(_plan(scenario, profile, "cpsfl"))
    rings_m = np.array(scenario.uavs.ring_m)
    over_m = scenario.fleet.height_m - scenario.base_station.position_m[2]
    few, few_radio, chosen = _only(plan, radio, *SEARCHED)
    in_time, in_order, in_any = [], [], []
    for _ in range(NETWORKS):
        across_m = np.sqrt(rng.uniform(rings_m[:, 0] ** 2, rings_m[:, 1] ** 2))
        distance_m = np.hypot(across_m, over_m)
        loss_db = path_loss_db(scenario.fleet.height_m, distance_m)
        gain = 10 ** (-loss_db / 10)
        d = constant_durations(plan, radio, gain)
        greedy = order_latency_s(pipeline(d), larger_lag_first(lag_of(d)))
        in_time.append((greedy, without_at_s(d)))
        d = constant_durations(few, few_radio, gain[chosen])
        p = pipeline(replace(d, sg_s=np.full_like(d.sg_s, d.sg_s.mean())))
        greedy = order_latency_s(p, larger_lag_first(p.lag_s))
        in_order.append((greedy, best_order_s(p)))
        in_any.append((greedy, best_sequence_s(p)))
    size = f"K = {few.clients}, I = {few.iterations}"
    for claim, equation, assumptions, relation, pairs in (
        ("CPSFL <= tau_2", "(17)", "1, 2", "<=", in_time),
        (f"CPSFL = best of all orders, {size}", "theorem 2", "1-3", "=", in_order),
        (f"CPSFL = best of all schedules, {size}", "theorem 2", "1-3", "=", in_any),
    ):
        gaps = np.array([value_s / form_s - 1 for value_s, form_s in pairs])
        worst = pairs[int(gaps.argmax())]
        failed = int((gaps > 1e-9).sum())
        yield Row(
            f"{claim}, worst of {NETWORKS} networks",
            equation,
            assumptions,
            worst[0],
            relation,
            worst[1],
            f"Fails for {failed} of {NETWORKS} random placements of the UAVs; the largest relative "
            f"difference is {100 * gaps.max():.2f} %, the mean "
            f"{100 * np.maximum(gaps, 0).mean():.3f} %."
            if failed
            else "",
        )
