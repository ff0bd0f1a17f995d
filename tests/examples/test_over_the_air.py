# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Over-the-air aggregation: one superposed transmission, and noise by the gains of the round."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from packages import importable, write_package

import orchestrator as tb
from testbed.core.errors import InputError
from testbed.core.timeline import CM
from workloads.aggregation.rules import Link, Sender, Update, rule_of

FOLDER = Path(__file__).parents[2] / "examples" / "over_the_air"
ENTRIES = (
    "[testbed.radios]\nanalog = over_the_air:analog\n\n"
    "[testbed.aggregators]\nover-the-air = over_the_air:over_the_air\n"
)
SNR_DB = [20.0, 3.0, 11.0]
WEIGHTS = [0.5, 0.2, 0.3]


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    write_package(tmp_path, "over_the_air", (FOLDER / "over_the_air.py").read_text(), ENTRIES)
    with importable(tmp_path, "over_the_air", monkeypatch):
        yield


def test_the_noise_is_that_of_the_weakest_channel() -> None:
    size = 200_000
    random = np.random.default_rng(1)
    before = random.normal(size=size)
    models = [before + scale * random.normal(size=size) for scale in (0.1, 0.3, 0.2)]
    links = [Link(1e-9, 1e-9, 1e6, 1e6, snr_db, 0.0) for snr_db in SNR_DB]

    def after(round_: int) -> np.ndarray:
        update = Update(
            torch.tensor(before),
            lambda: zip(WEIGHTS, map(torch.tensor, models), strict=True),
            lambda vector: {"all": vector},
            {},
            round=round_,
            senders=[
                Sender(k, 1, weight, link=link)
                for k, (weight, link) in enumerate(zip(WEIGHTS, links, strict=True), 1)
            ],
        )
        return rule_of("over-the-air", {})(update).numpy()

    mean = sum(w * model for w, model in zip(WEIGHTS, models, strict=True))
    noise = [after(round_) - mean for round_ in (0, 1)]
    square = [
        np.mean((w * (model - before)) ** 2) / (10 ** (snr_db / 10) / 3)
        for w, model, snr_db in zip(WEIGHTS, models, SNR_DB, strict=True)
    ]
    for each in noise:
        assert np.std(each) == pytest.approx(np.sqrt(max(square)), rel=0.01)
    assert abs(np.corrcoef(noise)[0, 1]) < 0.01
    np.testing.assert_array_equal(noise[0], after(0) - mean)


def test_models_arrive_at_once_and_the_rule_needs_a_channel() -> None:
    scenario = tb.load(FOLDER / "over_the_air.yaml")
    [round_, _] = tb.predict(scenario)
    uploads = round_.spans[round_.spans["step"] == CM]
    values = uploads["bytes"] / 4
    np.testing.assert_allclose(uploads["end_s"] - uploads["start_s"], values / (2 * 3e6))
    from orchestrator.emulated.trajectory import check

    with pytest.raises(InputError, match=r"^workload\.aggregation: must be a rule without the ch"):
        check(scenario)
