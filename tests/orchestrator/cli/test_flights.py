# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""From the logs of two flights to a fit, to forecasts, and to a scenario on the fitted link."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import warm
from srsran import Logs, write_flight

from ns3_scenarios.trace import ChannelTrace, load_trace
from orchestrator.flights.document import UNSEALED, Document
from orchestrator.flights.forecast import Forecast
from testbed.system.files import json_digest

SECONDS = 240
STATION = "--base-station=48.2653,11.6707,10"


def logs(folder: Path, seed: int) -> Logs:
    """The logs of a flight on parallel lines, 25 m high, with RSRP as in free space."""
    rng = np.random.default_rng(seed)
    at_s = np.arange(SECONDS)
    east_m = 40 + 200 * np.abs(((at_s / 40) % 2) - 1)
    north_m = -60 + 5 * seed + 0.5 * at_s
    position_m = np.column_stack([east_m, north_m, np.full(len(at_s), 25.0)])
    far_m = np.hypot(np.hypot(east_m, north_m), 15)
    rsrp_dbm = -30 - 20 * np.log10(far_m) + 2 * rng.standard_normal(SECONDS)
    snr_up_db = np.clip(55 - 20 * np.log10(far_m) + 2 * rng.standard_normal(SECONDS), 1, 30)
    folder.mkdir()
    return write_flight(
        folder,
        position_m,
        rsrp_dbm=np.round(rsrp_dbm),
        snr_up_db=snr_up_db,
        uplink_bps=1e6 * np.maximum(snr_up_db, 1),
    )


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two imported flights, a.npz and b.npz, and a fit of the first, fit.json."""
    folder = tmp_path_factory.mktemp("flights")
    for seed, name in enumerate("ab"):
        files = logs(folder / name, seed)
        run(folder, "import", "srsran", *files.options(), STATION, f"--out={name}.npz")
    run(folder, "fit", "a.npz", "--model=free-space", "--model=log-distance", "--json=fit.json")
    return folder


def run(folder: Path, *words: str) -> str:
    done = warm.run(*words, cwd=folder)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def refusal(folder: Path, *words: str) -> str:
    """The line with which a command is refused; it writes nothing."""
    before = sorted(folder.rglob("*"))
    done = warm.run(*words, cwd=folder)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert sorted(folder.rglob("*")) == before
    return str(line)


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def test_a_fit_prints_its_result_and_writes_what_it_says(work: Path, tmp_path: Path) -> None:
    said = run(work, "fit", "a.npz", "b.npz", "--model=free-space", f"--out={tmp_path / 'out'}")
    found = read(tmp_path / "out" / "fit.json")
    assert found["best"] == "free-space"
    assert found["models"][0]["offset_db"] == pytest.approx(-30 + 40.98, abs=0.6)  # 2.68 GHz
    assert set(found["models"][0]) >= {
        *("name", "offset_db", "exponent", "sigma_db", "decorrelation_m", "aic"),
        "cv_log_likelihood",
    }
    assert found["link"]["implementation_margin_db"] is not None
    assert found["sentence"] in " ".join(said.split())
    assert found["digest"] == json_digest(found, UNSEALED)
    assert [flight["name"] for flight in found["flights"]] == ["a", "b"]
    page = (tmp_path / "out" / "fit.html").read_text(encoding="utf-8")
    assert "free-space describes these 2 flights best" in page


def test_the_measured_gains_are_replayed(work: Path, tmp_path: Path) -> None:
    run(work, "fit", "a.npz", "--model=free-space", f"--out={tmp_path}")
    replayed = load_trace(tmp_path / "a-replay.npz")
    assert isinstance(replayed, ChannelTrace)
    assert replayed.gain_down is not None
    with np.load(work / "a.npz") as flight:
        rsrp_dbm, snr_up_db = flight["rsrp_dbm"][0], flight["snr_up_db"][0]
    for gains, measured in (
        (replayed.gain_down[0], rsrp_dbm),
        (replayed.gain[0], 10 * np.log10(10 ** (snr_up_db / 10) - 1)),
    ):
        known = np.isfinite(measured)
        np.testing.assert_array_equal(gains > 0, known)
        apart_db = 10 * np.log10(gains[known]) - measured[known]
        np.testing.assert_allclose(apart_db, apart_db[0], atol=1e-6)
    # 23 dBm over 100 resource blocks with thermal noise have the measured ratio.
    noise_dbm = -114 + 10 * np.log10(18)
    snr_db = 23.0103 + 10 * np.log10(replayed.gain[0]) - noise_dbm
    np.testing.assert_allclose(10 ** (snr_db / 10) + 1, 10 ** (snr_up_db / 10), rtol=1e-4)


def test_a_sealed_forecast_is_revealed_later(work: Path, tmp_path: Path) -> None:
    words = ("forecast", "paper", "--fit=fit.json", "--flight=b.npz")
    said = run(work, *words, f"--json={tmp_path / 'c.json'}", f"--out={tmp_path}")
    made = read(tmp_path / "c.json")
    assert made["digest"] == json_digest(made, UNSEALED)
    assert made["digest"] in said
    assert "The fit has one flight" in said
    assert made["reveal"] is None
    for name in ("rsrp_dbm", "uplink_bps"):
        assert {len(made[name][edge]) for edge in ("p5", "p50", "p95")} == {SECONDS}
    later = f"--json={tmp_path / 'd.json'}"
    run(work, *words, "--reveal", f"--sealed={tmp_path / 'c.json'}", later)
    revealed = read(tmp_path / "d.json")
    assert revealed["digest"] == made["digest"]
    found = revealed["reveal"]
    assert found["rsrp_coverage_90"] == pytest.approx(0.9, abs=0.06)
    assert abs(found["uplink_median_error"]) < 0.2
    assert found["uplink_ks"] < 0.2
    assert found["crps_db"] == pytest.approx(2 / np.sqrt(np.pi), abs=0.25)
    page = (tmp_path / "forecast.html").read_text(encoding="utf-8")
    assert made["digest"][:16] in page


def test_a_forecast_does_not_read_what_was_measured(work: Path, tmp_path: Path) -> None:
    with np.load(work / "b.npz") as flight:
        fields = {name: flight[name] for name in flight.files}
    fields |= {
        name: np.full_like(fields[name], value)
        for name, value in (("rsrp_dbm", -50.0), ("snr_up_db", 1.0), ("uplink_bps", 1.0))
    }
    (tmp_path / "other").mkdir()
    np.savez(tmp_path / "other" / "b.npz", **fields)
    made = []
    for flight_file in (work / "b.npz", tmp_path / "other" / "b.npz"):
        path = tmp_path / "made.json"
        run(
            work, "forecast", "paper", "--fit=fit.json", f"--flight={flight_file}", f"--json={path}"
        )
        found = read(path)
        made.append({name: found[name] for name in found if name not in ("made", "digest")})
    assert made[0] == made[1]


def test_a_flight_with_the_radio_of_a_fitted_one(work: Path, tmp_path: Path) -> None:
    words = ("forecast", "paper", "--fit=fit.json", "--flight=b.npz", "--like=a")
    said = run(work, *words, "--offered-bps=5e6", f"--json={tmp_path / 'c.json'}")
    assert "The bands are valid for a flight with the radio of a." in said
    assert max(read(tmp_path / "c.json")["uplink_bps"]["p95"]) == 5e6


def test_a_scenario_on_the_fitted_link(work: Path) -> None:
    said = run(
        work,
        *("predict", "quickstart", "--rounds=1"),
        *("--set=radio.channel=fitted", "--set=radio.fitted=fit.json"),
    )
    assert "round" in said


def test_what_a_fit_refuses(work: Path, tmp_path: Path) -> None:
    says = "testbed: "
    assert refusal(work, "fit", "no.npz") == f"{says}no.npz: no such file"
    line = refusal(work, "fit", "a.npz", "--model=friis")
    assert line.startswith(f"{says}--model: must be one of rma-av, ")
    assert "not 'friis'" in line
    run(work, "import", "srsran", *_options(work / "a"), f"--out={tmp_path / 'n.npz'}")
    line = refusal(work, "fit", f"{tmp_path / 'n.npz'}")
    assert "n: does not contain the base station's position" in line
    assert refusal(work, "fit", "a.npz", "a.npz") == f"{says}FILE: a.npz is given twice"
    file = tmp_path / "file"
    file.touch()
    (tmp_path / "out").mkdir()
    for words, line in (
        (["--json=a.npz"], "--json: a.npz is an input, which would be replaced"),
        (["--json=new", "--out=new"], "--json: new is also written by --out"),
        (
            [f"--json={tmp_path / 'out/fit.html'}", f"--out={tmp_path / 'out'}"],
            f"--json: {tmp_path / 'out/fit.html'} is also written by --out",
        ),
        ([f"--out={file}"], f"--out: {file} cannot be created ({file} is not a directory)"),
        ([f"--out={file}/in"], f"--out: {file}/in cannot be created ({file} is not a directory)"),
    ):
        assert refusal(work, "fit", "a.npz", *words) == f"{says}{line}"


def test_an_import_does_not_replace_its_logs(work: Path, tmp_path: Path) -> None:
    files = logs(tmp_path / "logs", 2)
    for path in files:
        before = path.read_bytes()
        line = refusal(work, "import", "srsran", *files.options(), STATION, f"--out={path}")
        assert line == f"testbed: --out: {path} is an input, which would be replaced"
        assert path.read_bytes() == before


def test_flights_of_one_name_have_their_own_replays(work: Path, tmp_path: Path) -> None:
    for name, folder in (("a", "one"), ("b", "other")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "f.npz").write_bytes((work / f"{name}.npz").read_bytes())
    run(tmp_path, "fit", "one/f.npz", "other/f.npz", "--model=free-space", "--out=out")
    first, second = (load_trace(tmp_path / f"out/f-{n}-replay.npz") for n in (1, 2))
    for replayed, name in ((first, "a"), (second, "b")):
        with np.load(work / f"{name}.npz") as flight:
            assert replayed.position_m is not None
            np.testing.assert_array_equal(replayed.position_m, flight["position"])


def _options(folder: Path) -> list[str]:
    return [
        f"--ue={folder / 'ue.txt'}",
        f"--enb={folder / 'enb.txt'}",
        f"--vehicle={folder / 'vehicle.txt'}",
    ]


def test_what_a_forecast_refuses(work: Path, tmp_path: Path) -> None:
    words = ("forecast", "paper", "--flight=b.npz")
    assert "--fit: no.json: no such file" in refusal(work, *words, "--fit=no.json")
    changed = read(work / "fit.json")
    changed["chosen"]["sigma_db"] += 1
    (tmp_path / "changed.json").write_text(json.dumps(changed))
    line = refusal(work, *words, f"--fit={tmp_path / 'changed.json'}")
    assert line.endswith("digest: the file was changed after it was made")
    del changed["chosen"]
    (tmp_path / "less.json").write_text(json.dumps(changed))
    assert "chosen: is missing" in refusal(work, *words, f"--fit={tmp_path / 'less.json'}")
    fitted = (*words, "--fit=fit.json")
    assert "--like: must be one of a, not 'x'" in refusal(work, *fitted, "--like=x")
    assert "--like: is given twice" in refusal(work, *fitted, "--like=a", "--like=a")
    for name in ("fit.json", "b.npz"):
        line = refusal(work, *fitted, f"--json={name}")
        assert line.endswith(f"--json: {name} is an input, which would be replaced")
    assert "--offered-bps: must be from 1 to 1e12" in refusal(work, *fitted, "--offered-bps=0")
    run(
        work,
        "forecast",
        "paper",
        "--flight=a.npz",
        "--fit=fit.json",
        f"--json={tmp_path / 'a.json'}",
    )
    line = refusal(work, *fitted, "--reveal", f"--sealed={tmp_path / 'a.json'}")
    assert line.endswith("is the forecast of a different flight")
    run(work, "fit", "b.npz", "--model=free-space", f"--json={tmp_path / 'b.json'}")
    line = refusal(
        work,
        *("forecast", "paper", "--flight=a.npz", f"--fit={tmp_path / 'b.json'}", "--reveal"),
        f"--sealed={tmp_path / 'a.json'}",
    )
    assert "was made from a different fit" in line


def test_documents_are_read_back_as_they_were_written(work: Path, tmp_path: Path) -> None:
    document = Document.read(work / "fit.json", "fit")
    document.write(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (work / "fit.json").read_bytes()
    run(
        work,
        "forecast",
        "paper",
        "--flight=b.npz",
        "--fit=fit.json",
        f"--json={tmp_path / 'c.json'}",
    )
    made = Forecast.read(tmp_path / "c.json", "sealed")
    assert made.inputs.fit == document.digest
