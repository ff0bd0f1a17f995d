# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Learns a scenario in one process without a network: the same passes, and no times.

The nodes' own work (`workloads.learning.real`) is called directly, iteration by iteration.
`orchestrator.records.learned` describes the cases in which this is exact. After each round, a
checkpoint is written, from which training that was interrupted continues with the same bytes.
"""

import fcntl
import gc
import hashlib
import json
import logging
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from orchestrator.emulated.inputs import inputs_of
from orchestrator.emulated.learning import (
    COLUMNS,
    ERRORS,
    divergence,
    evaluates,
    evaluates_after,
    evaluation_table,
    few_samples,
    learning_settings,
    place,
    privacy,
    whole_table,
)
from orchestrator.engine.plan import (
    OF_WORKLOAD,
    Allocation,
    decided,
    fixed_allocation,
    round_sizes,
)
from orchestrator.policies.registry import decider
from orchestrator.records.checkpoint import Checkpoint, LearnedRound
from orchestrator.records.directory import part_of, run_folder
from orchestrator.records.learned import (
    BEST,
    KIND,
    Trajectory,
    depends_on,
    is_trajectory,
    measure_of,
    read_trajectory,
    why_inexact,
    write_trajectory,
)
from orchestrator.records.manifest import environment, invocation, now, source_sha256
from orchestrator.rounds.loop import Situation, predict
from orchestrator.rounds.selection import RoundStart, selection
from orchestrator.scenario.channel import open_source
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario, Workload
from testbed.control.messages import Evaluated
from testbed.core.errors import InputError
from testbed.core.progress import Progress, silent
from testbed.core.registry import POLICIES, failures
from testbed.system.files import sha256_of, write_whole
from testbed.system.folders import cache_folder
from testbed.transport.wire import RoundSizes
from workloads.data.parts import FIELD

log = logging.getLogger(__name__)

KEPT = "kept."
"""Prefix of the names of tensors in a checkpoint that client K keeps: `kept.K.NAME`."""
DECIDED = (*OF_WORKLOAD, "clients")
"""Fields of `Allocation` on which learning depends, apart from the split point."""


def learn(
    scenario: Scenario,
    folder: Path,
    progress: Progress = silent,
    invoked: Mapping[str, Any] | None = None,
) -> Trajectory:
    """Learn all rounds of a scenario and write the trajectory into an existing folder.

    Rounds in the folder's checkpoint are not learned again.

    Args:
        scenario: Scenario to learn.
        folder: Output folder, as of `orchestrator.records.directory.run_folder`.
        progress: Called after each round.
        invoked: The command for the manifest; None: that of this process.

    Raises:
        InputError: The result of learning depends on times, or nothing is learned; or the model,
            its weights or the data are unavailable; or the checkpoint is of other inputs or broken.
    """
    check(scenario)
    inputs = inputs_of(scenario)
    for line in [f"{FIELD}: {inputs.data}"] * bool(inputs.data) + inputs.remarks:
        log.info("%s", line)
    if not evaluates(scenario):
        log.warning(
            "workload.evaluate_every: is 0, so nothing is evaluated on held-out data, and no "
            "accuracy can be reached"
        )
    about: dict[str, Any] = {
        **environment(),
        **(invoked or invocation()),
        "seed": scenario.seed,
        "started": now(),
        "data": inputs.data,
        "inputs": inputs.digests,
        "remarks": inputs.remarks,
        **({"clients": inputs.clients} if inputs.clients else {}),
    }
    checkpoint = Checkpoint(folder)
    checkpoint.check_inputs(inputs.digests)
    about["sessions"] = checkpoint.sessions(about)
    made = decisions(scenario)
    about["decided"] = bool(made)
    with ExitStack() as stack:
        learning = _Learning(scenario, stack, made)
        # Collections of garbage would otherwise visit all objects of the libraries in each round.
        gc.freeze()
        stack.callback(gc.unfreeze)
        learning.play(checkpoint, folder / BEST, progress)
        table = whole_table(learning.tables)
        about |= {"partition": learning.partition, "finished": now(), "diverged": None}
        about |= {"best": learning.best, "status": "complete"}
        for key, line in (
            (
                "remarks",
                few_samples(
                    learning.partition, scenario.workload.batch_size, scenario.workload.sampling
                ),
            ),
            ("remarks", privacy(scenario, table)),
            ("diverged", divergence(table, learning.diverged)),
        ):
            if line and line not in about["remarks"]:
                log.warning("%s", line)
                about[key] = [*about["remarks"], line] if key == "remarks" else line
        table = table.drop(columns="time_s")
        write_trajectory(folder, scenario, table, about, learning.server.state())
    return Trajectory(str(folder), scenario, table)


def learned_once(scenario: Scenario) -> Trajectory:
    """The trajectory of a scenario from the cache folder; computed and stored there first if it is
    missing.

    Other processes of this machine that ask for the same trajectory meanwhile wait for it.

    Args:
        scenario: The scenario; it may have workload.compute 'none'.

    Raises:
        InputError: See `learn`.
    """
    workload = scenario.workload.model_copy(update={"compute": "real"})
    scenario = scenario.model_copy(update={"workload": workload})
    check(scenario)
    parts = {
        "depends_on": depends_on(scenario),
        "rounds": scenario.rounds,
        "evaluate": [workload.evaluate_every, workload.evaluate_samples, workload.wire_error],
        "inputs": inputs_of(scenario).digests,
        "sources": source_sha256(),
        "decisions": [
            [np.array(getattr(each, name)).tolist() for name in DECIDED]
            for each in decisions(scenario)
        ],
        "torch": version("torch"),
    }
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
    cache = cache_folder() / KIND
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / digest
    with (cache / f"{digest}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_trajectory(folder):
            try:
                learn_into(folder, scenario, resume=part_of(folder).exists())
            except InputError as error:
                if not str(error).startswith("`resume`"):
                    raise
                log.warning("%s; the training begins again", error)
                shutil.rmtree(part_of(folder))
                learn_into(folder, scenario)
    return read_trajectory(folder)


def learn_into(
    out: Path,
    scenario: Scenario,
    *,
    overwrite: bool = False,
    resume: bool = False,
    progress: Progress = silent,
    invoked: Mapping[str, Any] | None = None,
) -> Trajectory:
    """Learn as `learn` does, and put the trajectory into place when it is complete.

    Args:
        out: Folder to create.
        scenario: Scenario to learn.
        overwrite: Whether an earlier trajectory in `out` is replaced at the end.
        resume: Whether to continue what was interrupted; there must be such.
        progress: Called after each round.
        invoked: See `learn`.

    Raises:
        InputError: See `learn` and `orchestrator.records.directory.run_folder`.
    """
    claim = run_folder(out, scenario, overwrite=overwrite, resume=resume, keeps_uavs=True)
    with claim as folder:
        made = learn(scenario, folder, progress, invoked)
    return replace(made, folder=str(out))


def decisions(scenario: Scenario) -> list[Allocation]:
    """The decisions of a package's policy in the predicted rounds, if learning depends on them;
    otherwise empty."""
    if scenario.allocation.policy not in POLICIES.plugins:
        return []
    made: list[Allocation] = []
    with open_source(scenario, None) as source:
        decide = decider(scenario, source)
        assert decide is not None

        def noted(now: Situation) -> Allocation:
            made.append(decide(now))
            return made[-1]

        timeline = predict(scenario, source, profile_of(scenario), decide=noted)
    if timeline.ended is not None:
        raise InputError(f"rounds: {timeline.ended}")
    matters = any(getattr(each, name) is not None for each in made for name in DECIDED)
    return made if matters else []


def check(scenario: Scenario) -> None:
    """Refuse a scenario whose learning depends on times, or that does not learn.

    Raises:
        InputError: A key of the scenario prevents it; the message names the key in one line.
    """
    if scenario.workload.compute == "none":
        raise InputError("workload.compute: is 'none', so nothing is learned; set it to 'real'")
    if why := why_inexact(scenario):
        raise InputError(f"{why}; use `testbed run`, which learns as messages arrive")


def _measured(table: pd.DataFrame) -> dict[str, Any]:
    """The last row of a table of `_Learning`."""
    row = table.iloc[-1]
    found = {"round": int(row["round"]), "data": row["data"]}
    return found | {measure: float(row[measure]) for measure in ("loss", "accuracy")}


class _Learning:
    """The base station and all UAVs of a scenario, without links."""

    def __init__(
        self, scenario: Scenario, stack: ExitStack, decided: Sequence[Allocation] = ()
    ) -> None:
        from workloads.data.samples import holdings
        from workloads.learning.real import Opened, RealClient, RealServer, Settings

        self._scenario = scenario
        self._decided = decided
        """What a policy decided for each round; empty: nothing that learning depends on."""
        settings = learning_settings(scenario)
        assert settings is not None
        of_uav = Settings.from_json(settings | place(scenario.uavs))
        of_bs = Settings.from_json(settings | place(scenario.base_station))
        opened = Opened.of(of_uav)
        shared = opened if of_bs.device == of_uav.device else None
        self.server: RealServer = RealServer(of_bs, shared)
        self._clients: dict[int, RealClient] = {}
        for client in range(1, scenario.uavs.count + 1):
            self._clients[client] = RealClient(of_uav, client, opened)
            stack.callback(self._clients[client].close)
        self._threads = scenario.base_station.threads, scenario.uavs.threads
        self.partition = [holdings(share) for share in opened.shares]
        self.tables: list[pd.DataFrame] = []
        """The table of each round and of each evaluation."""
        self.diverged: dict[int, list[int]] = {}
        self.best: dict[str, Any] | None = None
        """Round, loss and accuracy of the evaluation with the best state; None: there is none."""

    def play(self, checkpoint: Checkpoint, best: Path, progress: Progress) -> None:
        """Learn the rounds that the checkpoint does not have.

        Args:
            checkpoint: It is continued after each round.
            best: File for the best state that is evaluated.
            progress: Called after each round.
        """
        count = self._scenario.rounds
        choose = selection(self._scenario)
        profile = profile_of(self._scenario)
        splits = fixed_allocation(self._scenario).splits.tolist()

        def sizes_in(scenario: Scenario) -> list[RoundSizes]:
            return [
                round_sizes(scenario, profile, split, client)
                for client, split in enumerate(splits, start=1)
            ]

        sizes = sizes_in(self._scenario)
        import torch

        unknown: Any = None
        best_sha256 = self._continue(checkpoint, best)
        for index in range(len(self.diverged), count):
            tables = []
            if not index and evaluates_after(self._scenario, 0):
                tables.append(self._evaluated(-1))
                best_sha256 = self._keep_best(tables[-1], best) or best_sha256
            # These rules use only the round's index, see `why_inexact`.
            start = RoundStart(index, math.nan, (), unknown)
            clients = list(self._clients) if choose is None else sorted(choose(start))
            scenario = self._scenario
            if self._decided:
                scenario = decided(scenario, self._decided[index])
                sizes = sizes_in(scenario)
                clients = sorted(self._decided[index].clients or clients)
            self._begin(index, clients, splits, sizes)
            tables.append(self._trained(index, clients, scenario.workload))
            self._gather()
            if evaluates_after(self._scenario, index + 1):
                tables.append(self._evaluated(index))
                best_sha256 = self._keep_best(tables[-1], best) or best_sha256
            self.tables += tables
            random = torch.get_rng_state().numpy()
            done = LearnedRound(tables, self.diverged[index], random, best_sha256)
            checkpoint.save_learned(index, done, self._state())
            progress("rounds", index + 1, count)

    def _continue(self, checkpoint: Checkpoint, best: Path) -> str | None:
        """Take over the rounds of a checkpoint; returns the digest of the best state."""
        rounds, state = checkpoint.learned(self._scenario)
        if not rounds:
            return None
        self._restore(state)
        for index, done in enumerate(rounds):
            self.tables += done.tables
            self.diverged[index] = done.diverged
            for table in done.tables:
                if self._is_best(table):
                    self.best = _measured(table)
        import torch

        torch.set_rng_state(torch.from_numpy(rounds[-1].random))
        digest = rounds[-1].best_sha256
        if digest is not None and not (best.is_file() and sha256_of(best) == digest):
            raise InputError(f"`resume`: {best}: is missing, or not the best state of these rounds")
        return digest

    def _is_best(self, table: pd.DataFrame) -> bool:
        """Whether an evaluation is better than all before it; of equal ones, the first counts."""
        found, best = _measured(table), self.best
        if found["data"] != "held-out" or not math.isfinite(found["loss"]):
            return False
        if best is None:
            return True
        if measure_of(self._scenario) == "accuracy":
            return bool(found["accuracy"] > best["accuracy"])
        return bool(found["loss"] < best["loss"])

    def _keep_best(self, table: pd.DataFrame, file: Path) -> str | None:
        """Keep the present state if its evaluation is the best; returns its digest then."""
        if not self._is_best(table):
            return None
        self.best, state = _measured(table), self.server.state()
        write_whole(file, lambda part: part.write_bytes(state))
        return hashlib.sha256(state).hexdigest()

    def _state(self) -> bytes:
        """All that a later round depends on: the server's state, and what clients keep."""
        from workloads.learning.tensors import with_tensors

        kept = {
            f"{KEPT}{client}.{name}": tensor
            for client, work in self._clients.items()
            for name, tensor in work.kept().items()
        }
        state = self.server.state()
        return with_tensors(state, kept) if kept else state

    def _restore(self, state: bytes) -> None:
        """Continue from a result of `_state`."""
        from workloads.learning.tensors import without_tensors

        state, kept = without_tensors(state, KEPT)
        self.server.restore(state)
        for client, work in self._clients.items():
            work.restore(state)
            prefix = f"{client}."
            work.load_kept(
                {n.removeprefix(prefix): t for n, t in kept.items() if n.startswith(prefix)}
            )

    def _begin(self, index: int, clients: Sequence[int], splits: Any, sizes: Any) -> None:
        self._at_server(lambda: self.server.begin_round(index, splits, sizes, clients))
        for client in clients:
            work = self._clients[client]
            work.begin_round(index, splits[client - 1], sizes[client - 1])
            sent = self.server.broadcast(client)
            work.adapters_buffer(len(sent))[:] = sent
            work.load_adapters()

    def _trained(self, index: int, clients: Sequence[int], workload: Workload) -> pd.DataFrame:
        rows, row = [], (index, "train")
        for iteration in range(1, workload.largest("local_iterations") + 1):
            here = [k for k in clients if iteration <= workload.of_client("local_iterations", k)]
            for client in here:
                self._forward(client, iteration)
                if not workload.aggregated_samples:
                    # At once, so that the activations of one client at a time are in memory.
                    rows.append((*row, client, iteration, math.nan, *self._backward(client)))
            if workload.aggregated_samples:
                shared = self.server.shared_gradient(here)
                for client in here:
                    self._clients[client].shared_gradient_buffer(len(shared))[:] = shared
                    rows.append((*row, client, iteration, math.nan, *self._backward(client)))
        for client in clients:
            trained = self._clients[client].adapters()
            self.server.adapters_buffer(client, len(trained))[:] = trained
        with failures(f"round {index}: workload.aggregation {workload.aggregation!r}"):
            self._at_server(lambda: self.server.aggregate(clients))
        notes = self.server.notes()
        self.diverged[index] = notes["diverged"]
        by_client = [
            {client: self._clients[client].notes()["wire_errors"] for client in clients},
            notes["wire_errors"],
        ]
        rows.sort(key=lambda row: row[2:4])  # by client and iteration
        return pd.DataFrame(
            [
                (*row, *(own[row[2]][row[3] - 1] if own[row[2]] else math.nan for own in by_client))
                for row in rows
            ],
            columns=[*COLUMNS, *ERRORS],
        )

    def _forward(self, client: int, iteration: int) -> None:
        """Compute one batch of a client, up to the gradient of its smashed data."""
        work, server = self._clients[client], self.server
        work.forward(iteration)
        smashed, labels = work.smashed()
        # The last batch of an epoch, or what a codec made, may be smaller than the buffers.
        server.smashed_buffer(client, len(smashed))[:] = smashed
        server.labels_buffer(client)[: len(labels)] = labels
        self._at_server(lambda: server.forward_backward([client]))

    def _backward(self, client: int) -> tuple[float, float]:
        """The client's backward pass of the same batch; returns its loss and accuracy."""
        work = self._clients[client]
        gradient, result = self.server.served(client)
        assert result is not None
        work.gradient_buffer(len(gradient))[:] = gradient
        work.backward()
        return result.loss, result.accuracy

    def _gather(self) -> None:
        """Send the tensors that stay with UAVs to the server, which evaluates and saves them."""
        if self._scenario.workload.stays_at_clients:
            for client, work in self._clients.items():
                self.server.take_own(client, work.state())

    def _evaluated(self, index: int) -> pd.DataFrame:
        found = self._at_server(self.server.evaluate)
        return evaluation_table(index, math.nan, Evaluated(**vars(found)))

    def _at_server(self, compute: Callable[[], Any]) -> Any:
        """Compute with the base station's threads; UAVs have theirs again afterwards."""
        import torch

        of_bs, of_uavs = self._threads
        if of_bs == of_uavs:
            return compute()
        torch.set_num_threads(of_bs)
        try:
            return compute()
        finally:
            torch.set_num_threads(of_uavs)
