# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What is installed is pinned by version and hash, complete, and fetched as pip would fetch it."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>\S+)(?P<rest>.*(?:\n    --hash=.*)*)", re.M)
LOCKS = {path.stem: path.read_text() for path in (ROOT / "constraints").glob("*.txt")}
EXTRAS = {"light": {"report"}, "full": {"full"}, "dev": {"dev", "full"}}
"""What each lock installs beside the package's own dependencies."""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def pins(lock):
    return {canonicalize_name(found["name"]): found for found in PIN.finditer(LOCKS[lock])}


def versions(lock):
    return {name: found["version"] for name, found in pins(lock).items()}


def wanted(extras):
    """Requirements of the package with these extras, those of extras within extras too."""
    for text in [
        *PROJECT["dependencies"],
        *(text for extra in extras for text in PROJECT["optional-dependencies"][extra]),
    ]:
        requirement = Requirement(text)
        if requirement.name == PROJECT["name"]:
            yield from wanted(requirement.extras)
        else:
            yield requirement


@pytest.fixture(scope="module")
def installer():
    spec = importlib.util.spec_from_file_location("install", ROOT / "constraints" / "install.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("lock", EXTRAS)
def test_every_dependency_is_pinned_and_within_its_bounds(lock):
    pinned = versions(lock)
    for requirement in wanted(EXTRAS[lock]):
        assert pinned[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def test_locks_agree_and_each_holds_the_one_before():
    assert versions("light").items() < versions("full").items() < versions("dev").items()


@pytest.mark.parametrize("lock", ["light", "full"])
def test_every_lock_has_the_files_of_every_python_and_machine(lock):
    known = {name: set(re.findall(r"sha256:\w+", pin[0])) for name, pin in pins("dev").items()}
    for name, pin in pins(lock).items():
        assert set(re.findall(r"sha256:\w+", pin[0])) == known[name], name
    assert versions("build").items() <= versions("dev").items()
    assert set(versions("uv")) == {"uv"}
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert {Requirement(text).name for text in build} <= versions("build").keys()


def test_the_light_set_is_without_torch_and_users_get_no_development_tools():
    light, full = versions("light"), versions("full")
    assert not {"torch", "timm", "torchvision", "safetensors", "gymnasium"} & light.keys()
    assert {"torch", "timm", "torchvision", "safetensors", "gymnasium"} <= full.keys()
    assert not {"pytest", "mypy", "ruff", "hypothesis", "reuse"} & full.keys()


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_a_hash(lock):
    assert pins(lock)
    assert not [name for name, pin in pins(lock).items() if "--hash=sha256:" not in pin["rest"]]


@pytest.mark.parametrize("which", EXTRAS)
def test_nothing_is_fetched_but_by_its_hash(installer, monkeypatch, tmp_path, which):
    """What source packages are built with, too: it comes first, and no build fetches its own."""
    ran = []

    def run(words, **_):
        ran.append(words[2:])  # without `uv pip`, or `python -m`

    monkeypatch.setattr(installer, "check", lambda: None)
    monkeypatch.setattr(installer, "environment", lambda folder: ("python", {}))
    monkeypatch.setattr(installer.subprocess, "run", run)
    installer.install(which, tmp_path, packages_only=False)
    locks = [Path(words[words.index("-r") + 1]).name if "-r" in words else "" for words in ran]
    assert locks == ["build.txt", f"{which}.txt", ""]
    for words, lock in zip(ran, locks, strict=True):
        assert "install" in words
        assert "--no-deps" in words
        assert ("--require-hashes" in words) is bool(lock)
        assert ("--no-build-isolation" in words) is (lock != "build.txt")
    assert ran[2][-2:] == ["-e", str(ROOT)]  # nothing but what is here


@pytest.mark.parametrize("lock", LOCKS)
def test_the_lock_names_no_index(lock):
    assert not re.findall(r"^\s*(?:-i|--\S*index|--find-links|.*://).*", LOCKS[lock], re.M)


def test_uv_is_told_what_pip_has_been_told(installer):
    settings = installer.pip_settings(
        "global.index-url='https://one.example/simple'\n"
        "global.extra-index-url='file:///a\\nfile:///b'\n"
        "install.index-url='https://two.example/simple'\n"
        "download.index-url='https://three.example/simple'\n"
        ":env:.find-links='/wheels /more'\n"
        "global.trusted-host='one.example'\n"
        "global.cert='/bundle.pem'\n"
    )
    told = installer.uv_variables(settings, {"SSL_CERT_FILE": "/mine.pem"})
    assert told["UV_DEFAULT_INDEX"] == "https://two.example/simple"
    assert told["UV_INDEX"] == "file:///a file:///b"
    assert told["UV_FIND_LINKS"] == "/wheels,/more"
    assert told["UV_INSECURE_HOST"] == "one.example"
    assert "SSL_CERT_FILE" not in told
    assert told["UV_INDEX_STRATEGY"] == "unsafe-best-match"


def test_the_environment_goes_over_files_and_a_bundle_of_requests_counts(installer):
    settings = installer.pip_settings(":env:.index-url='env'\nglobal.index-url='file'\n")
    assert settings == {"index-url": "env"}
    told = installer.uv_variables({}, {"REQUESTS_CA_BUNDLE": "/bundle.pem"})
    assert told["SSL_CERT_FILE"] == "/bundle.pem"


@pytest.mark.parametrize(
    ("version", "refused"),
    [
        *(((3, minor), False) for minor in (11, 12, 13)),
        *(((3, minor), True) for minor in (9, 10, 14, 15)),
        ((4, 0), True),
    ],
)
def test_only_declared_versions_of_python_are_set_up(installer, monkeypatch, version, refused):
    declared = SpecifierSet(PROJECT["requires-python"])
    assert (".".join(map(str, version)) not in declared) == refused
    monkeypatch.setattr(installer.sys, "version_info", (*version, 7, "final", 0))
    monkeypatch.setattr(installer.shutil, "which", lambda _: "there")
    if not refused:
        installer.check()
        return
    with pytest.raises(SystemExit, match=r"^Python 3.11, 3.12 or 3.13 is needed, not \d") as error:
        installer.check()
    assert ("ns3" in str(error.value)) == (version >= (3, 14))
    assert "\n" not in str(error.value)
