# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The paper's closed forms and bounds of a round's latency, and searches for optimal orders.

Equations are numbered as in the paper's LaTeX source. Assumption 1: the channel is constant during
a round. Assumption 2: the adapters' upload (CM) takes no time. Assumption 3: gradients take equally
long to all clients. All forms of the paper except (13) ignore the broadcast (SM).

Four claims of the paper do not hold in general; `orchestrator.analytical.claims` shows by how much:

- (17), that CPSFL is never slower than CPSFL w/o AT. Without waiting, a gradient of small lag may
  start just before one of large lag is ready, and it cannot be interrupted; with waiting, the one
  of large lag would have been first. `COUNTEREXAMPLE` is such a round.
- Theorem 2, that serving the largest lag first is optimal. Its proof compares approximations ('≈')
  and assumes that a client's rank determines the number of transmissions that it waits for.
  Gradients become ready at different times, so another order, or a short idle time of the downlink,
  can be better.
- That CPSFL w/o AT is the fastest vanilla SFL-PS, tau_1 >= tau_2. Larger lag first is optimal
  between iterations (theorem 1), but the last iteration ends with CB only: if clients' CB differ,
  another order can be better. The claim holds with equal UAVs.
- That the hatted form of (16) is an approximate upper bound of CPSFL. It is a lower bound of (16)
  and therefore no bound of CPSFL.
"""

from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np
import numpy.typing as npt

from ns3_scenarios.trace import SlotValues
from orchestrator.engine.access import RadioAccess
from orchestrator.engine.core_library import Chain, library, pointer
from orchestrator.engine.plan import Array, RoundPlan
from orchestrator.engine.rates import link_rates
from orchestrator.rounds.simulation import RoundTimes
from testbed.core.timeline import CA, CB, CF, CM, SG, SM, S

# --- closed forms --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Durations:
    """Duration of each step of a round, s."""

    sm_s: Array
    """Shape [K], as `cm_s`; the others have shape [K, I]."""
    cf_s: Array
    ca_s: Array
    s_s: Array
    sg_s: Array
    cb_s: Array
    cm_s: Array

    @property
    def iterations(self) -> int:
        """Number of iterations, I."""
        return int(self.cf_s.shape[1])

    @property
    def lag_s(self) -> Array:
        """Lag l_k, eq. (12), of iterations 2 to I, shape [K, I - 1], s."""
        return self.cb_s[:, :-1] + (self.cf_s + self.ca_s + self.s_s)[:, 1:]


def without_adapters(plan: RoundPlan) -> RoundPlan:
    """The plan under assumption 2 and without broadcast."""
    return replace(plan, sm_bytes=0 * plan.sm_bytes, cm_bytes=0 * plan.cm_bytes)


def constant_durations(plan: RoundPlan, radio: RadioAccess, gain: SlotValues) -> Durations:
    """Assumption 1: the durations of a plan if each client's gain, shape [K], is constant.

    The radio must not divide its band among those that are active, and all clients must do equal
    numbers of iterations.
    """
    assert not radio.is_shared
    assert plan.own_iterations is None
    uplink, broadcast, down = link_rates(plan, radio, gain[:, None])
    return Durations(
        sm_s=8 * plan.sm_bytes / broadcast[:, 0],
        cf_s=plan.cf_s,
        ca_s=8 * plan.ca_bytes / uplink,
        s_s=plan.s_s,
        sg_s=8 * plan.sg_bytes / down,
        cb_s=plan.cb_s,
        cm_s=8 * plan.cm_bytes / uplink[:, 0],
    )


def durations_of(times: RoundTimes, clients: int) -> Durations:
    """Durations of the steps of a simulated round."""
    spans = times.spans
    took = {
        step: (spans["end_s"] - spans["start_s"])[spans["step"] == step].reshape(clients, -1)
        for step in (SM, CF, CA, S, SG, CB, CM)
    }
    return Durations(
        took[SM][:, 0], took[CF], took[CA], took[S], took[SG], took[CB], took[CM][:, 0]
    )


def upper_bound_s(d: Durations) -> float:
    """τ_max, eq. (13), s: SFL-PS that serves the client of largest lag last in every iteration.

    The equation is valid for the actual durations of steps, with any channel.
    """
    ready, all_sg = (d.cf_s + d.ca_s + d.s_s)[:, 0], d.sg_s.sum(axis=0)
    between = (all_sg[:-1] + d.lag_s.max(axis=0)).sum() if d.iterations > 1 else 0.0
    return float(d.sm_s.max() + ready.max() + between + all_sg[-1] + (d.cb_s[:, -1] + d.cm_s).max())


def iteration_latency_s(sg_s: Array, lag_s: Array, order: npt.NDArray[np.int64]) -> float:
    """T_iter, eq. (15), s: one synchronous iteration that serves clients in `order`.

    The paper numbers clients by non-decreasing lag and serves the last first: `larger_lag_first`.
    """
    return float((np.cumsum(sg_s[order]) + lag_s[order]).max())


def larger_lag_first(lag_s: Array) -> npt.NDArray[np.int64]:
    """Order of the paper's scheduling, for lags of shape [K]."""
    return np.argsort(-lag_s, kind="stable")


def lag_of(d: Durations) -> Array:
    """Lag l_k, eq. (12), under assumption 1, shape [K], s."""
    return (d.cb_s + d.cf_s + d.ca_s + d.s_s)[:, 0]


def iteration_of(d: Durations) -> float:
    """T_iter, eq. (15), with larger lag first, under assumption 1, s."""
    lag = lag_of(d)
    return iteration_latency_s(d.sg_s[:, 0], lag, larger_lag_first(lag))


def without_at_s(d: Durations) -> float:
    """τ2, eq. (16), s: CPSFL w/o AT under assumptions 1 and 2."""
    lag, sg = lag_of(d), d.sg_s[:, 0]
    order = larger_lag_first(lag)
    return (
        float((d.cf_s + d.ca_s + d.s_s)[:, 0].max())
        + (d.iterations - 1) * iteration_latency_s(sg, lag, order)
        + iteration_latency_s(sg, d.cb_s[:, 0], order)
    )


def without_at_hat_s(d: Durations) -> float:
    """The hatted τ2, after eq. (16), s: I · T_iter, a lower bound of τ2."""
    return d.iterations * iteration_of(d)


def cpsfl_lower_bound_s(d: Durations) -> float:
    """Eq. (18), s: CPSFL if its downlink is always busy, under assumptions 1 and 2.

    The paper assumes that the client of smallest lag is the first to be ready and the last to end.
    This is a bound if that client has the shortest CF + CA + S and CB, as with equal UAVs.
    """
    k = int(np.argmin(lag_of(d)))
    ends = d.cf_s[k, 0] + d.ca_s[k, 0] + d.s_s[k, 0] + d.cb_s[k, 0]
    return float(ends + d.sg_s.sum())


def sfl_pp_s(d: Durations) -> float:
    """τ_PP, eq. (21), under assumptions 1 and 2, s; `d` are durations of `sfl-pp`."""
    return d.iterations * float((d.cf_s + d.ca_s + d.s_s + d.sg_s + d.cb_s)[:, 0].max())


def pipesfl_without_at_s(d: Durations) -> float:
    """τ3, eq. (23), s: PipeSFL w/o AT under assumptions 1 and 2; `d` are durations of `pipesfl`."""
    lag, tail = _pipesfl_lag(d), (d.sg_s + d.cb_s)[:, 0]
    order = larger_lag_first(lag)
    return (
        float((d.cf_s + d.ca_s)[:, 0].max())
        + (d.iterations - 1) * iteration_latency_s(d.s_s[:, 0], lag, order)
        + iteration_latency_s(d.s_s[:, 0], tail, order)
    )


def pipesfl_without_at_hat_s(d: Durations) -> float:
    """The hatted τ3, after eq. (23), s: a lower bound of τ3."""
    lag = _pipesfl_lag(d)
    return d.iterations * iteration_latency_s(d.s_s[:, 0], lag, larger_lag_first(lag))


def _pipesfl_lag(d: Durations) -> Array:
    """Lag l'_k, eq. (22), shape [K], s."""
    return (d.cf_s + d.ca_s + d.sg_s + d.cb_s)[:, 0]


# --- theorems, compared with all orders ----------------------------------------------------------


def best_iteration_s(sg_s: Array, lag_s: Array) -> float:
    """The smallest T_iter over all K! orders, for theorem 1, s."""
    orders = np.array(list(permutations(range(len(sg_s)))))
    return float((np.cumsum(sg_s[orders], axis=1) + lag_s[orders]).max(axis=1).min())


@dataclass(frozen=True)
class Pipeline:
    """CPSFL's downlink under assumptions 1 and 2; arrays have shape [K], in s."""

    ready_s: Array
    """CF + CA + S: time when the first gradient is ready."""
    lag_s: Array
    """Time from the end of a gradient until the next one is ready."""
    sg_s: Array
    tail_s: Array
    """CB: time from the end of the last gradient to the client's end."""
    iterations: int


def pipeline(d: Durations) -> Pipeline:
    """The parameters of the downlink, from durations of steps."""
    return Pipeline(
        ready_s=(d.cf_s + d.ca_s + d.s_s)[:, 0],
        lag_s=lag_of(d),
        sg_s=d.sg_s[:, 0],
        tail_s=d.cb_s[:, 0],
        iterations=d.iterations,
    )


def order_latency_s(p: Pipeline, order: npt.NDArray[np.int64]) -> float:
    """Latency of CPSFL if, among the ready gradients, the first client in `order` is served, s."""
    chain, places = _chain(p), np.ascontiguousarray(order, np.int64)
    return float(library().engine_served_in(chain.address, pointer(places)))


def best_order_s(p: Pipeline) -> float:
    """The shortest latency over all K! orders of priority, s."""
    orders = permutations(range(len(p.sg_s)))
    return min(order_latency_s(p, np.array(order)) for order in orders)


def best_sequence_s(p: Pipeline) -> float:
    """The shortest latency over all (K I)! / I!^K sequences of gradients, with idle times, s.

    No other schedule is faster. This is a branch-and-bound search for K I up to about 15.
    """
    chain, upper = _chain(p), order_latency_s(p, larger_lag_first(p.lag_s)) * (1 + 1e-12)
    return float(library().engine_best_sequence(chain.address, upper))


def _chain(p: Pipeline) -> Chain:
    return Chain(p.iterations, ready_s=p.ready_s, lag_s=p.lag_s, sg_s=p.sg_s, tail_s=p.tail_s)


COUNTEREXAMPLE = Durations(
    sm_s=np.zeros(2),
    cf_s=np.array([[0.2], [0.1]]),
    ca_s=np.array([[0.6], [0.8]]),
    s_s=np.array([[0.1], [0.1]]),
    sg_s=np.array([[1.0], [1.0]]),
    cb_s=np.array([[0.1], [1.1]]),
    cm_s=np.zeros(2),
)
"""Counterexample to (17) under assumptions 1 to 3. Client 1 (lag 1.0) is ready at 0.9 and is sent
first, until 1.9; client 2 (lag 2.1) follows until 2.9 and ends at 4.0. If the downlink had waited
for client 2 until 1.0, client 2 would have ended at 3.1 and client 1 also at 3.1, which is τ2."""
