# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`testbed radio`, and NR over packets where 5G-LENA is not built."""

from pathlib import Path

import pytest
import warm

NOT_BUILT = "get 5G-LENA's release NR-v4.0, then `testbed radio build nr --source FOLDER`"
NR = (
    *("--set", "radio.access=nr", "--set", "radio.uplink_bandwidth_hz=20e6"),
    *("--set", "radio.downlink_bandwidth_hz=20e6"),
)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("build", "lte", "--source", "."), "radio build: 'lte' is not one of nr"),
        (
            ("build", "nr", "--source", "none"),
            "source: must be the folder contrib/nr of 5G-LENA's release NR-v4.0; there is no "
            "folder none",
        ),
        (
            ("build", "nr", "--source", "."),
            "source: must be the folder contrib/nr of 5G-LENA's release NR-v4.0; . has other files",
        ),
    ],
)
def test_what_cannot_be_built_is_refused_in_one_line(
    tmp_path: Path, words: tuple[str, ...], says: str
) -> None:
    done = warm.run("radio", *words, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, f"testbed: {says}\n")
    assert not (tmp_path / "cache" / "uav-sfl-testbed" / "nr").exists()


def test_the_status_says_how_to_get_the_module(tmp_path: Path) -> None:
    done = warm.run("radio", "status", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"nr: not built: {NOT_BUILT}\n")


def test_nr_over_packets_is_refused_without_the_module(tmp_path: Path) -> None:
    refused = (
        "testbed: radio.access: 'nr' over packets of ns-3 needs 5G-LENA, which is not built: "
        f"{NOT_BUILT}"
    )
    for words in (
        ("trace", "quickstart", "--radio", "ns3-nr", "--slots", "2", "--out", "t.npz"),
        ("run", "quickstart", "--set", "emulation.air=ns3", "--out", "run"),
        ("cross-check", "quickstart", "--no-emulated"),
    ):
        done = warm.run(*words, *NR, cwd=tmp_path)
        assert done.returncode == 2, words
        assert done.stderr.splitlines()[-1] == refused, words
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache"]
