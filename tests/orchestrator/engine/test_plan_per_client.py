# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Plans of clients that differ, and of codecs by direction; and what such rounds do not support."""

from typing import Any

import numpy as np
import pytest
from small_scenario import TREE

from ns3_scenarios.trace import ChannelTrace, Replay
from orchestrator.analytical import claims
from orchestrator.engine.plan import (
    fixed_allocation,
    link_bytes,
    payload_bytes,
    plan_round,
    prospects_of,
    round_sizes,
)
from orchestrator.records.directory import claimed
from orchestrator.rounds.loop import predict
from orchestrator.rounds.simulation import split_costs
from orchestrator.scenario.loading import validate
from orchestrator.scenario.profiles import model_of, profile_of
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.unused import unused
from orchestrator.studies.validation.space import default_space
from testbed.core.errors import InputError
from testbed.core.timeline import CF, CM, SM
from workloads.codecs.formats import int8, top_k

MODEL = {"profile": "auto", "model": "swin_nano_patch4_window4_64", "classes": 10}


def scenario(workload: dict[str, Any], **keys: Any) -> Scenario:
    return validate(TREE | keys | {"workload": TREE["workload"] | workload}, "small")


def plan_of(given: Scenario) -> Any:
    return plan_round(given, profile_of(given), fixed_allocation(given))


def test_each_client_has_its_batch() -> None:
    one, own = scenario({"batch_size": 1}), scenario({"batch_size": [2, 4, 8]})
    single, plan = plan_of(one), plan_of(own)
    for name in ("cf_s", "cb_s", "s_s", "ca_bytes", "sg_bytes"):
        times = np.array([[2], [4], [8]])
        np.testing.assert_allclose(getattr(plan, name), times * getattr(single, name))
    assert plan.sm_bytes.tolist() == plan.cm_bytes.tolist() == [80_000] * 3
    sizes = [round_sizes(own, profile_of(own), 3, k) for k in (1, 2, 3)]
    assert [(each.labels, each.smashed) for each in sizes] == [
        (2, 200_000),
        (4, 400_000),
        (8, 800_000),
    ]
    linked = plan_round(own, profile_of(own), fixed_allocation(own), link_bytes)
    due = [link_bytes(scenario({"batch_size": b}), profile_of(one), 3).smashed for b in (2, 4, 8)]
    assert linked.ca_bytes[:, 0].tolist() == due


def test_each_client_does_its_iterations() -> None:
    given = scenario({"local_iterations": [1, 3, 2]})
    plan = plan_of(given)
    assert (plan.iterations, given.iterations) == (3, 3)
    assert plan.iterations_of.tolist() == [1, 3, 2]
    sizes = [round_sizes(given, profile_of(given), 3, k) for k in (1, 2, 3)]
    assert [each.batches for each in sizes] == [1, 3, 2]
    known = prospects_of(plan)
    ahead = [known.ahead(k, 1, 1e6, 1e6) for k in (1, 2, 3)]
    assert [each.iterations for each in ahead] == [1, 3, 2]
    assert [each.downlink_bytes for each in ahead] == [200_000, 600_000, 400_000]
    (round_,) = predict(given, Replay(trace()), profile_of(given)).rounds
    last = round_.spans[round_.spans["step"] == CM]
    assert last["iteration"].tolist() == [1, 3, 2]
    assert len(round_.spans) == 7 + 17 + 12


def test_an_asynchronous_update_has_its_clients_iterations() -> None:
    given = scenario({"local_iterations": [1, 3, 2]}, paradigm="asfl-ps")
    plan = plan_of(given)
    assert (plan.updates, plan.iterations) == (12, 36)
    (round_,) = predict(given, Replay(trace()), profile_of(given)).rounds
    for k, each in enumerate((1, 3, 2), 1):
        own = round_.spans[round_.spans["client"] == k]
        begins, ends = (own["iteration"][own["step"] == step] for step in (SM, CM))
        assert ends.tolist() == [each * n for n in range(1, len(ends) + 1)]
        # The last update of a client may be in progress when the run ends.
        assert len(begins) - len(ends) in (0, 1)
        assert (ends - begins[: len(ends)]).tolist() == [each - 1] * len(ends)


def test_rounds_of_an_asynchronous_run_have_whole_updates_of_each_client() -> None:
    def steps(rounds: int, updates: int) -> list[Any]:
        workload = {"local_iterations": [1, 3, 2], "asynchronous": {"updates": updates}}
        given = scenario(workload, paradigm="asfl-ps", rounds=rounds)
        made = predict(given, Replay(trace()), profile_of(given)).rounds
        return [round_.spans for round_ in made]

    (whole,), parts = steps(1, 12), steps(4, 3)
    assert sorted(np.concatenate(parts).tolist()) == sorted(whole.tolist())
    own = {1: 1, 2: 3, 3: 2}
    for spans in parts:
        sent = spans[spans["step"] == CM]
        assert len(sent) == 3
        # All steps of an update are in the round in which it arrives.
        for client, last in zip(sent["client"].tolist(), sent["iteration"].tolist(), strict=True):
            here = spans[(spans["client"] == client) & (spans["step"] == CF)]["iteration"]
            assert set(range(last - own[client] + 1, last + 1)) <= set(here.tolist())


def trace() -> ChannelTrace:
    return ChannelTrace(np.full((3, 4000), 1e-10), 0.1)


def test_each_client_has_the_adapters_of_its_rank() -> None:
    given = scenario(MODEL | {"lora_rank": [2, 8, 4], "split": 2})
    assert model_of(given).rank == 8
    plan = plan_of(given)
    singles = [plan_of(scenario(MODEL | {"lora_rank": r, "split": 2})) for r in (2, 4)]
    assert [int(each.sm_bytes[0]) for each in singles] == [26_112, 52_224]
    assert plan.sm_bytes.tolist() == plan.cm_bytes.tolist() == [26_112, 104_448, 52_224]
    np.testing.assert_allclose(plan.cf_s[0], singles[0].cf_s[0])
    np.testing.assert_allclose(plan.s_s[2], singles[1].s_s[2])
    assert plan.cf_s[0, 0] < plan.cf_s[2, 0] < plan.cf_s[1, 0]


def test_equal_values_given_one_by_one_are_one_value() -> None:
    each = {"batch_size": [2] * 3, "local_iterations": [2] * 3, "lora_rank": [8] * 3}
    rounds = [
        predict(given, Replay(trace()), profile_of(given)).rounds[0]
        for given in (scenario({}), scenario(each))
    ]
    assert rounds[0].spans.tolist() == rounds[1].spans.tolist()
    assert rounds[0].objective == rounds[1].objective


def test_each_direction_has_its_codec() -> None:
    codecs = {
        "smashed": "bfloat16",
        "gradient": {"name": "int8", "block": 64},
        "adapters_up": {"name": "top-k", "share": 0.01},
        "adapters_down": "int8",
    }
    given = scenario({"wire_dtype": "float16", "codecs": codecs})
    found = payload_bytes(given, profile_of(given), 3)
    assert found.smashed == 100_000
    assert found.gradient == int8(64).size(50_000)
    assert found.adapters_up == top_k(0.01).size(20_000) == 1600
    assert found.adapters == int8().size(20_000)
    plan = plan_of(given)
    assert plan.sm_bytes.tolist() == [found.adapters] * 3
    assert plan.cm_bytes.tolist() == [1600] * 3
    costs = split_costs(given, profile_of(given))
    assert costs.broadcast_bytes[2].tolist() == [found.adapters] * 3
    assert costs.adapter_bytes[2].tolist() == [1600] * 3
    (round_,) = predict(given, Replay(trace()), profile_of(given)).rounds
    sent = {step: set(round_.spans["bytes"][round_.spans["step"] == step]) for step in (SM, CM)}
    assert sent == {SM: {found.adapters}, CM: {1600}}
    half = payload_bytes(scenario({"codecs": {"gradient": "bfloat16"}}), profile_of(given), 3)
    assert (half.smashed, half.gradient, half.adapters) == (200_000, 100_000, 80_000)


def test_float32_adapters_are_sent_without_a_codec() -> None:
    given = scenario({"codecs": {"adapters_up": "float32", "adapters_down": "float32"}})
    assert given.workload.codec_for("adapters_up") is None
    assert given.workload.codec_for("adapters_down") is None


def test_defaults_leave_no_trace_in_a_scenarios_json() -> None:
    tree = scenario({}).model_dump(mode="json")["workload"]
    assert "codecs" not in tree
    assert (tree["batch_size"], tree["local_iterations"], tree["lora_rank"]) == (2, 2, 8)


@pytest.mark.parametrize(
    ("workload", "keys", "says"),
    [
        ({"batch_size": [1, 2]}, {}, "batch_size: must have one entry per UAV: 3, not 2"),
        ({"batch_size": []}, {}, "batch_size: must not be empty"),
        ({"batch_size": [1, 0, 2]}, {}, "batch_size.1: must be at least 1"),
        ({"local_iterations": [1]}, {}, "local_iterations: must have one entry per UAV: 3, not 1"),
        ({"learning_rate": [1, 1]}, {}, "learning_rate: must have one entry per UAV: 3, not 2"),
        ({"lora_rank": [1, 1]}, {}, "lora_rank: must have one entry per UAV: 3, not 2"),
        (
            {"lora_rank": [1, 2, 3]},
            {},
            "lora_rank: must be one number where workload.profile gives",
        ),
        (
            MODEL | {"lora_rank": [1, 2, 3], "adapters": "dora"},
            {},
            "lora_rank: must be one number where workload.adapters is not 'lora'",
        ),
        (
            MODEL | {"lora_rank": [1, 2, 3], "clients_per_pass": 2},
            {},
            "lora_rank: must be one number where workload.clients_per_pass is above 1",
        ),
        (
            {"batch_size": [1, 2, 3], "clients_per_pass": 2},
            {},
            "batch_size: must be one number where workload.clients_per_pass is above 1",
        ),
        (
            {"learning_rate": [1, 2, 3], "server_adapters": "shared"},
            {},
            "learning_rate: must be one number where workload.server_adapters is 'shared'",
        ),
        (
            MODEL | {"lora_rank": [1, 2, 3], "server_adapters": "averaged"},
            {"paradigm": "sfl-sp"},
            "lora_rank: must be one number where workload.server_adapters is not 'per-client'",
        ),
        (
            {"split": [1, 2, 3], "server_adapters": "averaged"},
            {"paradigm": "sfl-sp"},
            "split: must be one number where workload.server_adapters is not 'per-client'",
        ),
        (
            {"server_adapters": "averaged"},
            {"paradigm": "cpsfl"},
            "server_adapters: must not be 'averaged' where clients do not wait for all in each",
        ),
        ({"server_adapters": "averaged"}, {"paradigm": "asfl-ps"}, "server_adapters: "),
        ({"codecs": {"up": "int8"}}, {}, "codecs.up: no such key"),
        ({"codecs": {"gradient": "zip"}}, {}, "codecs.gradient: 'zip' is not one of float32"),
        ({"codecs": {"adapters_up": {"share": 1}}}, {}, "codecs.adapters_up: must have the name"),
        (
            {"codecs": {"adapters_up": {"name": "top-k", "share": 2}}},
            {},
            "codecs.adapters_up: share: must be a number",
        ),
        (
            {"codecs": {"adapters_up": {"name": "int8", "shar": 2}}},
            {},
            "codecs.adapters_up: shar: 'int8' has no such parameter",
        ),
        ({"codecs": {"adapters_down": "top-k"}}, {}, "codecs.adapters_down: must not be 'top-k'"),
    ],
)
def test_what_does_not_fit_is_refused(
    workload: dict[str, Any], keys: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError) as refused:
        scenario(workload, **keys)
    assert str(refused.value).startswith(f"small: workload.{says}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("paradigm", ["sfl-sp", "sfl-ps", "pipesfl-no-at", "cpsfl-no-at"])
def test_gates_allow_an_average_after_each_iteration(paradigm: str) -> None:
    given = scenario({"server_adapters": "averaged"}, paradigm=paradigm)
    assert given.workload.server_adapters == "averaged"


def test_studies_of_equal_clients_name_the_key() -> None:
    own = scenario({"local_iterations": [1, 2, 3]})
    profile = profile_of(own)
    for study in (
        lambda: default_space(own),
        lambda: claims.run(own, Replay(trace()), profile),
    ):
        with pytest.raises(InputError, match=r"workload\.local_iterations: .*one number"):
            study()


def test_a_run_whose_uavs_keep_what_was_left_out_cannot_be_resumed(tmp_path) -> None:
    codecs = {"adapters_up": "int8"}
    own = scenario(MODEL | {"compute": "real", "codecs": codecs})
    (tmp_path / "run").mkdir()
    with (
        pytest.raises(InputError, match=r"workload\.codecs\.error_feedback: a run cannot"),
        claimed(tmp_path / "run", own, resume=True),
    ):
        pass
    without = codecs | {"error_feedback": False}
    for fine in (
        scenario(MODEL | {"compute": "real", "codecs": without}),
        scenario(MODEL | {"codecs": codecs}),
    ):
        with (
            pytest.raises(InputError, match="holds no run that failed or was killed"),
            claimed(tmp_path / "run", fine, resume=True),
        ):
            pass


def test_keys_of_codecs_without_effect_are_said() -> None:
    real = MODEL | {"compute": "real"}
    alone = scenario(real | {"codecs": {"gradient": "int8", "error_feedback": False}})
    assert unused(alone) == {
        "workload.codecs.adapters_up encodes nothing": ["workload.codecs.error_feedback"]
    }
    both = scenario(
        real | {"wire_dtype": "int8", "codecs": dict.fromkeys(("smashed", "gradient"), "int4")}
    )
    (keys,) = unused(both).values()
    assert keys == ["workload.wire_dtype"]
