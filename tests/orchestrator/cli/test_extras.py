# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A light set-up: what needs no torch works without it, and what needs it says what to install."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import warm
from small_campaign import write_campaign

ROOT = Path(__file__).resolve().parents[3]
QUICKSTART = str(ROOT / "scenarios" / "quickstart.yaml")
# A length whose costs are not in the cache of any other test.
LANGUAGE = (
    str(ROOT / "examples" / "language" / "scenario.yaml"),
    *("--set", "workload.sequence_length=37"),
)
LEARNING = ("torch", "timm", "torchvision", "safetensors", "gymnasium", "tensorboard")


def without(names: tuple[str, ...], *words: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process where these packages are not installed."""
    return warm.run(*words, cwd=ROOT, hidden=names)


def starts_without(*names: str) -> None:
    """The command line in a process that really starts: whatever is imported then counts, too."""
    hiding = f"import sys; sys.modules.update(dict.fromkeys({names!r})); "
    program = hiding + "import orchestrator.api; from orchestrator.cli.main import main; main()"
    words = [sys.executable, "-c", program, "predict", QUICKSTART]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_predict_and_theory_need_no_torch(tmp_path: Path) -> None:
    starts_without(*LEARNING, "matplotlib", "jinja2")
    found = tmp_path / "found.json"
    done = without(LEARNING, "predict", QUICKSTART, "--json", str(found))
    assert done.returncode == 0, done.stderr
    assert json.loads(found.read_text())["rounds"]
    assert without(LEARNING, "theory", QUICKSTART).returncode == 0


def test_a_run_that_computes_nothing_its_report_and_a_campaign_need_no_torch(
    tmp_path: Path,
) -> None:
    out = tmp_path / "run"
    words = ("--set", "workload.compute=none", "--set", "rounds=1", "--out", str(out))
    done = without(LEARNING, "run", QUICKSTART, *words)
    assert done.returncode == 0, done.stderr
    assert (out / "report.html").is_file()
    campaign = write_campaign(tmp_path)
    done = without(LEARNING, "campaign", "run", str(campaign), "--out", str(tmp_path / "points"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "points" / "report.html").is_file()


@pytest.mark.parametrize(
    ("hidden", "words", "names"),
    [
        (LEARNING, ("run", QUICKSTART, "--out", "OUT"), ("[learning]",)),
        (LEARNING, ("train", QUICKSTART, "--out", "OUT"), ("[agent]",)),
        (("matplotlib",), ("reproduce", "fig3", "--out", "OUT"), ("[report]",)),
        (("transformers",), ("predict", *LANGUAGE), ("pip install 'uav-sfl-testbed[language]'",)),
    ],
)
def test_what_needs_an_extra_says_so_in_one_line(
    hidden: tuple[str, ...], words: tuple[str, ...], names: tuple[str, ...], tmp_path: Path
) -> None:
    done = without(hidden, *(str(tmp_path / "out") if w == "OUT" else w for w in words))
    assert done.returncode == 1
    *_, line = done.stderr.splitlines()
    assert "is not installed" in line
    assert "Traceback" not in done.stderr
    for name in names:
        assert name in line


FILES_ALONE = """
import sys
from importlib.metadata import Distribution, PackageNotFoundError
from_name = Distribution.from_name

def of_others(name):
    if name == "uav-sfl-testbed":
        raise PackageNotFoundError(name)
    return from_name(name)

Distribution.from_name = of_others
sys.modules[sys.argv.pop(1)] = None
from orchestrator.cli.main import main
main()
"""


@pytest.mark.parametrize(
    ("hidden", "words", "named"),
    [
        ("matplotlib", ("reproduce", "fig3", "--out", "OUT"), "matplotlib"),
        ("matplotlib", ("--version",), "uav-sfl-testbed"),
        ("orchestrator.analytical.claims", ("theory", QUICKSTART), ""),
    ],
)
def test_a_package_whose_files_alone_are_there_is_to_be_installed(
    hidden: str, words: tuple[str, ...], named: str, tmp_path: Path
) -> None:
    said = [str(tmp_path / "out") if word == "OUT" else word for word in words]
    command = [sys.executable, "-c", FILES_ALONE, hidden, *said]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1
    # What is missing of the files themselves no installation promises to bring.
    assert ("Traceback" in done.stderr) == (not named)
    if named:
        line = f"testbed: {named} is not installed; install the package: pip install 'uav-sfl-"
        assert done.stderr.splitlines()[-1].startswith(line)
