# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The kernel of virtual time: its recipe, what a build lacks, and how it is built and kept.

The archives here are of a few lines that a make file turns into a program: what is tested is how
the build treats what it is given. Real kernels are tested in test_guest.py.
"""

import io
import json
import re
import tarfile
import tomllib
from pathlib import Path

import pytest

from testbed.core.errors import InputError, RunError
from testbed.virtual import kernel

ROOT = Path(__file__).resolve().parents[3]
MAKEFILE = """\
allnoconfig:
\tcp $(KCONFIG_ALLCONFIG) .config
linux:
\t@echo "  CC      init/main.o"
\t@echo 'int main(void) { return 0; }' >main.c
\tcc -o linux main.c
kernelversion:
\t@echo 6.12.1
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(kernel, "TOOLS", {"make": "make", "patch": "patch"})


def before(patch: str) -> dict[str, str]:
    """The files that a patch changes, as far as it shows them."""
    files: dict[str, str] = {}
    for line in patch.splitlines():
        if line.startswith("--- a/"):
            name = line.removeprefix("--- a/")
            files[name] = ""
        elif files and line[:1] in " -" and not line.startswith("---"):
            files[name] += line[1:] + "\n"
    return files


def archive(path: Path, makefile: str = MAKEFILE, **changed: str) -> Path:
    """An archive of what looks like Linux to the build."""
    files = {"Makefile": makefile, "arch/um/Kconfig": ""}
    for patch in kernel.patches():
        for name, text in before(patch.read_text()).items():
            files[name] = files.get(name, "") + text
    with tarfile.open(path, "w:gz") as tar:
        for name, text in (files | changed).items():
            member = tarfile.TarInfo(f"linux-6.12.1/{name}")
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return path


def test_the_recipe_sets_each_option_once() -> None:
    lines = [line for line in kernel.CONFIG.read_text().splitlines() if line.startswith("CONFIG_")]
    assert len(lines) == len(kernel.wanted(kernel.CONFIG.read_text())) > 100
    assert all(re.fullmatch(r'CONFIG_\w+=(y|\d+|"\w*")', line) for line in lines)


def test_the_recipe_is_packed_and_its_patches_name_their_licence() -> None:
    packed = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert packed["tool"]["setuptools"]["package-data"]["testbed.virtual"] == ["recipe/*"]
    assert len(kernel.patches()) == 8
    for path in kernel.patches():
        assert "License-Identifier: GPL-2.0\n" in path.read_text()


def test_the_key_follows_everything_of_the_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {kernel.recipe_sha256()}
    recipe = tmp_path / "recipe"
    recipe.mkdir()
    for path in (kernel.CONFIG, *kernel.patches()):
        (recipe / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(kernel, "RECIPE", recipe)
    monkeypatch.setattr(kernel, "CONFIG", recipe / kernel.CONFIG.name)
    assert kernel.recipe_sha256() in keys
    for path in sorted(recipe.iterdir()):
        path.write_text(path.read_text() + "\n")
        assert kernel.recipe_sha256() not in keys
        keys.add(kernel.recipe_sha256())


def test_what_a_build_lacks_is_named_a_line_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "TOOLS", {"no-such-flex": "flex", "no-such-ld": "binutils"})
    monkeypatch.setattr(kernel, "DEBIAN_SOURCES", (Path("/nowhere/linux.tar.xz"),))
    flex, ld, source = kernel.missing()
    assert flex == "no-such-flex: apt-get install flex"
    assert ld == "no-such-ld: apt-get install binutils"
    assert "linux-source-6.12" in source
    assert kernel.missing(Path("linux.tar.xz")) == [flex, ld]
    with pytest.raises(InputError, match="apt-get install flex; no-such-ld: apt-get"):
        kernel.build()


def test_a_kernel_is_built_kept_and_found(tmp_path: Path) -> None:
    assert kernel.find() is None
    told: list[tuple[str, float, float]] = []
    source = archive(tmp_path / "linux.tar.gz")
    built = kernel.build(source, jobs=1, progress=lambda *words: told.append(words))
    assert kernel.find() == built
    assert built.version == "6.12.1"
    assert built.folder.name == f"6.12.1-{kernel.recipe_sha256()[:16]}"
    assert sorted(path.name for path in built.folder.iterdir()) == [
        *("build.log", "config", "kernel.json", "linux")
    ]
    assert json.loads((built.folder / "kernel.json").read_text()) == built.to_json()
    assert built.patches_sha256.keys() == {path.name for path in kernel.patches()}
    assert ("compiling", 1, kernel.COMPILED) in told
    # The kernel is not there twice, and nothing else is left.
    assert kernel.build(source, jobs=1).folder == built.folder
    assert {path.name for path in kernel.kernels().iterdir()} == {
        *("build.lock", "build.log", built.folder.name)
    }


def test_patches_change_what_is_built(tmp_path: Path) -> None:
    looks = "linux:\n\t@grep -q 12288 arch/x86/um/user-offsets.c || exit 1\n"
    kernel.build(archive(tmp_path / "linux.gz", MAKEFILE.replace("linux:\n", looks)), jobs=1)


def test_a_kernel_that_has_changed_is_refused(tmp_path: Path) -> None:
    built = kernel.build(archive(tmp_path / "linux.tar.gz"), jobs=1)
    with built.program.open("ab") as file:
        file.write(b"more")
    with pytest.raises(RunError, match="was changed after the build"):
        kernel.find()


def test_a_kernel_of_another_recipe_or_half_a_one_is_not_found(tmp_path: Path) -> None:
    built = kernel.build(archive(tmp_path / "linux.tar.gz"), jobs=1)
    about = built.folder / "kernel.json"
    text = about.read_text()
    about.write_text(text.replace(built.recipe_sha256, "0" * 64))
    assert kernel.find() is None
    about.write_text(text[:-20])
    assert kernel.find() is None
    about.write_text(text)
    assert kernel.find() == built


@pytest.mark.parametrize(
    ("makefile", "message"),
    [
        (
            MAKEFILE.replace("\tcc -o", "\t@echo 'main.c:1: error: no such thing'; false #"),
            "the kernel cannot be compiled: main.c:1: error: no such thing; see ",
        ),
        (
            MAKEFILE.replace("\tcp $(KCONFIG_ALLCONFIG)", "\tgrep -v VETH $(KCONFIG_ALLCONFIG) >"),
            "this source has no CONFIG_VETH=y; see ",
        ),
    ],
)
def test_a_build_that_fails_says_why_and_leaves_its_log(
    makefile: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(RunError) as failure:
        kernel.build(archive(tmp_path / "linux.tar.gz", makefile), jobs=1)
    told = str(failure.value)
    assert told.startswith(message)
    assert "patching file" in Path(told.rpartition(" ")[2]).read_text()
    assert kernel.find() is None


def test_a_source_that_is_none_or_another_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no file"):
        kernel.build(tmp_path / "nothing.tar.xz")
    other = tmp_path / "other.tar"
    with tarfile.open(other, "w") as tar:
        tar.add(__file__, "other-1.0/readme")
    with pytest.raises(InputError, match="is not an archive of Linux"):
        kernel.build(other)
    (tmp_path / "noise.tar").write_bytes(b"noise" * 1000)
    with pytest.raises(RunError, match="the source cannot be unpacked"):
        kernel.build(tmp_path / "noise.tar")
    new = archive(tmp_path / "new.tar.gz", **{"drivers/char/random.c": "entirely different\n"})
    with pytest.raises(RunError, match=r"repeatable-random\.patch does not fit this source"):
        kernel.build(new)
