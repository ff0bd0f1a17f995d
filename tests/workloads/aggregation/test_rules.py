# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Each rule of aggregation is what its paper writes, stated here again in a few lines of numpy."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor

from testbed.core.errors import InputError
from workloads.aggregation.rules import Update, applied, rule_of

OUT, IN, RANK = 7, 5, 3
A, B = RANK * IN, OUT * RANK
SIZE = A + B + 4
WEIGHTS = np.array([0.5, 0.3, 0.2])


def views(vector: Tensor) -> dict[str, Tensor]:
    return {
        "layer.lora_A": vector[:A].view(RANK, IN),
        "layer.lora_B": vector[A : A + B].view(OUT, RANK),
        "head.bias": vector[A + B :],
    }


def rounds(name: str, parameters: Mapping[str, Any], count: int = 3) -> list[np.ndarray]:
    """The global models that the rule makes of random clients; each round begins with the last."""
    rule, memory, found = rule_of(name, parameters), {}, [start()]
    for models in clients(count):
        update = Update(
            torch.tensor(found[-1]),
            lambda models=models: zip(WEIGHTS.tolist(), map(torch.tensor, models), strict=True),
            views,
            memory,
        )
        found.append(rule(update).numpy())
    return found


def start() -> np.ndarray:
    return np.random.default_rng(1).normal(size=SIZE)


def clients(count: int) -> list[np.ndarray]:
    random = np.random.default_rng(2)
    return [random.normal(size=(len(WEIGHTS), SIZE)) for _ in range(count)]


def repeated(step: Callable[[np.ndarray, np.ndarray], np.ndarray], count: int = 3) -> Any:
    """The models by a rule that takes the global model and the clients' mean."""
    found = [start()]
    for models in clients(count):
        found.append(step(found[-1], WEIGHTS @ models))
    return found


@pytest.mark.parametrize("name", ["fedavg", "fedprox"])
def test_fedavg_is_the_weighted_mean(name: str) -> None:
    np.testing.assert_allclose(rounds(name, {}), repeated(lambda w, mean: mean), rtol=1e-12)


def test_fedavgm_has_server_momentum() -> None:
    v = np.zeros(SIZE)

    def step(w: np.ndarray, mean: np.ndarray) -> np.ndarray:
        nonlocal v
        v = 0.7 * v + (w - mean)
        return w - 0.5 * v

    ours = rounds("fedavgm", {"momentum": 0.7, "learning_rate": 0.5})
    np.testing.assert_allclose(ours, repeated(step), rtol=1e-12)
    np.testing.assert_allclose(
        rounds("fedavgm", {"momentum": 0.0}), rounds("fedavg", {}), rtol=1e-12
    )


def test_fedadam_is_adam_on_the_mean_change() -> None:
    m, v = np.zeros(SIZE), np.full(SIZE, 1e-2**2)

    def step(w: np.ndarray, mean: np.ndarray) -> np.ndarray:
        nonlocal m, v
        m = 0.8 * m + 0.2 * (mean - w)
        v = 0.95 * v + 0.05 * (mean - w) ** 2
        return w + 0.1 * m / (np.sqrt(v) + 1e-2)

    about = {"learning_rate": 0.1, "beta_1": 0.8, "beta_2": 0.95, "tau": 1e-2}
    np.testing.assert_allclose(rounds("fedadam", about), repeated(step), rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "usual"),
    [
        ("fedprox", {"mu": 0.01}),
        ("fedavgm", {"momentum": 0.9, "learning_rate": 1.0}),
        ("fedadam", {"learning_rate": 0.01, "beta_1": 0.9, "beta_2": 0.99, "tau": 1e-3}),
    ],
)
def test_what_is_not_given_is_as_in_the_papers(name: str, usual: dict[str, float]) -> None:
    np.testing.assert_array_equal(rounds(name, {}), rounds(name, usual))


def test_svd_is_the_best_product_of_the_rank() -> None:
    for models, ours in zip(clients(2), rounds("svd", {}, 2)[1:], strict=True):
        products = [m[A : A + B].reshape(OUT, RANK) @ m[:A].reshape(RANK, IN) for m in models]
        u, s, vt = np.linalg.svd(np.tensordot(WEIGHTS, products, 1))
        best = u[:, :RANK] * s[:RANK] @ vt[:RANK]
        a, b = ours[:A].reshape(RANK, IN), ours[A : A + B].reshape(OUT, RANK)
        np.testing.assert_allclose(b @ a, best, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(a @ a.T, b.T @ b, atol=1e-9, err_msg="shared evenly")
        assert (b.max(0) == np.abs(b).max(0)).all(), "singular vectors have a sign"
        np.testing.assert_allclose(ours[A + B :], WEIGHTS @ models[:, A + B :])
        averaged = WEIGHTS @ models
        plain = averaged[A : A + B].reshape(OUT, RANK) @ averaged[:A].reshape(RANK, IN)
        assert np.linalg.norm(plain - best) > 0.1 * np.linalg.norm(best), "the rules differ"


def test_svd_leaves_what_has_not_learned_able_to() -> None:
    model = torch.arange(SIZE, dtype=torch.float64)
    views(model)["layer.lora_B"].zero_()
    update = Update(model, lambda: iter([(1.0, model)]), views, {})
    assert torch.equal(rule_of("svd", {})(update), model)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("fedprox", {"mu": 0}),
        ("fedavgm", {"momentum": 0, "learning_rate": 0}),
        ("fedadam", {"learning_rate": 0, "beta_1": 0, "beta_2": 0, "tau": 1e-12}),
    ],
)
def test_parameters_may_reach_their_limits(name: str, parameters: dict[str, float]) -> None:
    assert np.isfinite(rounds(name, parameters)).all()


@pytest.mark.parametrize(
    ("name", "parameters", "says"),
    [
        ("fedavg", {"mu": 1}, "workload.aggregation_parameters: 'fedavg' has no parameters"),
        ("fedprox", {"mu": -1}, "mu: must be a number from 0, not -1"),
        ("fedavgm", {"momentum": 1}, "momentum: must be a number from 0 and below 1, not 1"),
        ("fedavgm", {"learning_rate": -1}, "learning_rate: must be a number from 0, not -1"),
        ("fedadam", {"learning_rate": -1}, "learning_rate: must be a number from 0, not -1"),
        ("fedadam", {"beta_1": 1}, "beta_1: must be a number from 0 and below 1, not 1"),
        ("fedadam", {"beta_2": 1}, "beta_2: must be a number from 0 and below 1, not 1"),
        ("fedadam", {"tau": 0}, "tau: must be a number from 1e-12, not 0"),
        ("fedadam", {"tau": "x"}, "tau: must be a number"),
    ],
)
def test_wrong_parameters_are_refused(name: str, parameters: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as refusal:
        rule_of(name, parameters)
    assert says in str(refusal.value)


@pytest.mark.parametrize(
    "value",
    [3, -0.5, True, np.float32(2), np.arange(3), torch.arange(4), torch.ones(2, 3).T],
    ids=str,
)
def test_what_a_rule_stores_can_be_saved_and_is_the_same_in_the_next_round(value: Any) -> None:
    def rule(update: Update) -> Tensor:
        update.memory["a"] = update.memory["b"] = value
        return update.before

    update = Update(torch.zeros(SIZE), lambda: iter(()), views, {})
    applied(rule, update)
    (kept, again), due = update.memory.values(), torch.as_tensor(value).double()
    saved = safetensors.torch.load(safetensors.torch.save(update.memory))
    assert kept.dtype is torch.float64
    assert torch.equal(kept, due)
    assert torch.equal(saved["a"], kept)
    assert kept.data_ptr() != again.data_ptr()


@pytest.mark.parametrize("value", ["x", None, {"n": 1}, [1, "a"]])
def test_what_cannot_be_saved_is_refused_in_its_round(value: object) -> None:
    def rule(update: Update) -> Tensor:
        update.memory["note"] = value
        return update.before

    update = Update(torch.zeros(SIZE), lambda: iter(()), views, {})
    says = r"^memory\['note'\]: must be a number or a tensor, not "
    with pytest.raises(ValueError, match=says):
        applied(rule, update)


def test_adaptive_optimisers_at_the_server() -> None:
    for name, second in (
        ("fedyogi", lambda v, d: v - 0.05 * d**2 * np.sign(v - d**2)),
        ("fedadagrad", lambda v, d: v + d**2),
    ):
        m, v = np.zeros(SIZE), np.full(SIZE, 1e-2**2)

        def step(w: np.ndarray, mean: np.ndarray, second: Any = second) -> np.ndarray:
            nonlocal m, v
            m, v = 0.8 * m + 0.2 * (mean - w), second(v, mean - w)
            return w + 0.1 * m / (np.sqrt(v) + 1e-2)

        about = {"learning_rate": 0.1, "beta_1": 0.8, "tau": 1e-2}
        about |= {"beta_2": 0.95} if name == "fedyogi" else {}
        np.testing.assert_allclose(rounds(name, about), repeated(step), rtol=1e-12)


def outcome(name: str, parameters: Mapping[str, Any], models: np.ndarray) -> np.ndarray:
    """The rule's model of these clients, whose claimed numbers of samples differ."""
    weights = (np.arange(len(models)) + 1) / sum(range(len(models) + 1))
    update = Update(
        torch.tensor(start()),
        lambda: zip(weights.tolist(), map(torch.tensor, models), strict=True),
        views,
        {},
    )
    return rule_of(name, parameters)(update).numpy()


@pytest.mark.parametrize("count", [7, 10, 11])
def test_robust_rules(count: int) -> None:
    models = np.random.default_rng(count).normal(size=(count, SIZE))
    models[[1, 4]] += 100.0
    ordered = np.sort(models, axis=0)
    cut = int(0.3 * count)
    np.testing.assert_allclose(
        outcome("trimmed-mean", {"share": 0.3}, models), ordered[cut : count - cut].mean(0)
    )
    np.testing.assert_allclose(outcome("median", {}, models), np.median(models, axis=0))
    distances = ((models[:, None] - models[None]) ** 2).sum(2)
    scores = [np.sort(row)[1 : count - 2 - 2 + 1].sum() for row in distances]
    best = np.argsort(scores)
    np.testing.assert_allclose(outcome("krum", {"attackers": 2}, models), models[best[0]])
    for parameters, chosen in (({"attackers": 2}, count - 2), ({"attackers": 2, "chosen": 3}, 3)):
        found = outcome("multi-krum", parameters, models)
        np.testing.assert_allclose(found, models[best[:chosen]].mean(0))
        assert not {1, 4} & set(best[:chosen].tolist())


@pytest.mark.parametrize(
    ("name", "parameters", "says"),
    [
        ("trimmed-mean", {"share": 0.5}, "share: must be a number from 1e-06 and below 0.5"),
        ("trimmed-mean", {"share": 0}, "share: must be a number from 1e-06"),
        ("krum", {"attackers": -1}, "attackers: must be a whole number from 0 to 1e+06, not -1"),
        ("krum", {"attackers": 1.5}, "attackers: must be a whole number"),
        ("krum", {"chosen": 2}, "'krum' has no such parameter"),
        ("multi-krum", {"chosen": 0}, "chosen: must be a whole number from 1"),
        ("median", {"share": 1}, "'median' has no parameters"),
        ("scaffold", {"learning_rate": -1}, "learning_rate: must be a number from 0, not -1"),
        ("feddyn", {"alpha": 0}, "alpha: must be a number from 1e-12, not 0"),
        ("feddyn", {"alpha": "x"}, "alpha: must be a number"),
        ("fednova", {"tau": 1}, "'fednova' has no parameters"),
        ("q-fedavg", {"q": -0.1}, "q: must be a number from 0, not -0.1"),
        ("q-fedavg", {"q": float("nan")}, "q: must be a number from 0, not nan"),
        ("fedyogi", {"beta_2": 1}, "beta_2: must be a number from 0 and below 1, not 1"),
        ("fedadagrad", {"beta_2": 0.9}, "'fedadagrad' has no such parameter"),
    ],
)
def test_wrong_parameters_of_further_rules(
    name: str, parameters: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError) as refusal:
        rule_of(name, parameters)
    assert says in str(refusal.value)


def test_fewer_models_than_a_rule_needs_are_told_in_their_round() -> None:
    with pytest.raises(ValueError, match="needs at least 7 models, and 6 arrived"):
        outcome("krum", {"attackers": 2}, np.zeros((6, SIZE)))


def test_a_wrong_state_or_model_is_told_in_its_round() -> None:
    given: dict[str, Any] = {"value": 3, "model": torch.zeros(SIZE)}

    def rule(update: Update) -> Tensor:
        update.states[2]["note"] = given["value"]
        model: Tensor = given["model"]
        return model

    states: dict[int, dict[str, Any]] = {1: {}, 2: {}}
    update = Update(torch.zeros(SIZE), lambda: iter(()), views, {}, states=states)
    applied(rule, update)
    assert torch.equal(states[2]["note"], torch.tensor(3.0, dtype=torch.float64))
    for given["value"] in ("x", None, [1, "a"]):
        with pytest.raises(ValueError, match=r"^states\[2\]\['note'\]: must be a number or a te"):
            applied(rule, update)
    given["value"] = 1.0
    for given["model"] in (torch.zeros(SIZE - 1), None, 3):
        with pytest.raises(ValueError, match=f"must return a vector of {SIZE} numbers, not "):
            applied(rule, update)
