# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The code blocks of the documentation, and a fresh checkout in which their commands are run.

What stands behind a block's opening fence says what it is:

- ``sh``: commands, one a line (or continued with a backslash); each must succeed.
- ``console``: the same behind ``$ ``, each followed by what it prints. Every line shown must be in
  the output, in this order; ``…`` stands for anything.
- ``python``: a program that must succeed.
- ``yaml``, ``python``, ``toml``, ``json``, ``text`` and a file name: that file, for what follows.
- ``yaml``, ``json``, ``toml``, ``text``, ``mermaid`` alone: nothing to run.

Words behind ``sh``, ``console`` and ``python``: ``about``: numbers in the output differ from run to
run; ``status=N``: commands end with that status; ``full``: takes long, run under ``-m full`` only;
``docker``: run where a daemon answers to root; ``lena``: run where 5G-LENA is built.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path

import warm

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("**/*.md")),
    *sorted((ROOT / "examples").glob("**/README.md")),
]

RUN = {"sh", "console", "python"}
FILES = {"yaml", "python", "toml", "json", "text"}
SHOWN = {"yaml", "toml", "json", "text", "mermaid"}
WORDS = {"about", "full", "docker", "lena"}
PROGRAM = re.compile(r"(?:sudo )?(?:\S*/)?(?:testbed|python|make|pip) \S")
NUMBER = r"[−+-]?[\d,]*\.?\d+(?:e[+-]?\d+)?"


@dataclass(frozen=True)
class Command:
    """One command, or a file to be written (`file`), and what its output must show."""

    where: str
    """Page and line."""
    text: str
    words: frozenset[str] = frozenset()
    status: int = 0
    shows: tuple[str, ...] = ()
    file: str | None = None


@dataclass
class Page:
    """A page's commands in their order, and what is wrong with its blocks."""

    name: str
    commands: list[Command] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def read(path: Path) -> Page:
    """A page of the documentation."""
    return parse(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))


def named(name: str, text: str) -> list[Command]:
    """Commands that a page of that text names, but does not ask its reader to run.

    They are in the blocks `text`, perhaps with a comment or, behind spaces, what they do, and in
    the text itself, perhaps without their arguments.
    """
    found, fence, at = [], "", 1
    for piece in re.split(r"^(\s*`{3,}.*\n)", text, flags=re.M):
        if re.match(r"\s*`{3,}", piece):
            fence = "" if fence else piece.strip("` \n") or "?"
        elif fence == "text":
            lines = re.sub(r"\\\n\s*", "", piece).splitlines()
            found += [(at, re.split(r" {3,}| +# ", line.strip())[0]) for line in lines]
        elif not fence:
            for code in re.finditer(r"`([^`]+)`", piece):
                line = at + piece.count("\n", 0, code.start())
                found.append((line, " ".join(code[1].split())))
        at += piece.count("\n")
    return [Command(f"{name}:{at}", line) for at, line in found if PROGRAM.match(line)]


def parse(name: str, text: str) -> Page:
    """What a page of that text asks its reader to do."""
    page = Page(name)
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        fence = re.match(r"\s*(`{3,}|~{3,})(.*)$", lines[at])
        at += 1
        if not fence:
            continue
        first = at
        while at < len(lines) and lines[at].strip() != fence[1]:
            at += 1
        _block(page, first, fence[2].split(), lines[first:at])
        at += 1
    return page


def _block(page: Page, first: int, info: list[str], lines: list[str]) -> None:
    where = f"{page.name}:{first}"
    kind, *words = info or [""]
    if kind in FILES and words and not set(words) & WORDS:
        page.commands.append(Command(where, "\n".join(lines) + "\n", file=words[0]))
        return
    if kind not in RUN:
        if kind not in SHOWN:
            page.faults.append(
                f"{where}: a code block must say what it is behind its fence: sh or console "
                f"(commands, run by this test), python, yaml FILE, text; not {kind!r}"
            )
        return
    status = 0
    for word in words:
        if found := re.fullmatch(r"status=(\d+)", word):
            status = int(found[1])
        elif word not in WORDS:
            page.faults.append(f"{where}: {word!r} is none of {', '.join(WORDS)}, status=N")
    plain = frozenset(words)
    if kind == "python":
        text = f"python - <<'END_OF_PROGRAM'\n{chr(10).join(lines)}\nEND_OF_PROGRAM"
        page.commands.append(Command(where, text, plain, status))
        return
    for offset, text, shows in _commands(lines, kind == "console"):
        page.commands.append(
            Command(f"{page.name}:{first + offset + 1}", text, plain, status, tuple(shows))
        )


def _commands(lines: list[str], console: bool) -> list[tuple[int, str, list[str]]]:
    """Line, command and shown output of each command of a block."""
    found: list[tuple[int, str, list[str]]] = []
    going_on = False
    for number, line in enumerate(lines):
        if going_on:
            found[-1] = (found[-1][0], f"{found[-1][1]}\n{line}", found[-1][2])
        elif console and not line.startswith("$ "):
            if line.strip() and found:
                found[-1][2].append(line)
            continue
        elif not line.strip() or line.lstrip().startswith("#"):
            continue
        else:
            found.append((number, line.removeprefix("$ "), []))
        going_on = line.endswith("\\")
    return found


class Checkout:
    """A copy of the repository with an environment of its own, as a reader's after `make setup`.

    The environment sees all packages of the one that runs the tests; what a page installs goes into
    its own. Its `testbed` need not import first, see `warm`.
    """

    def __init__(self, folder: Path):
        self.folder = folder / "testbed"
        # What git knows, and no more: other tests may have files there meanwhile.
        listed = subprocess.run(
            ["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "-z"],
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for name in listed.rstrip("\0").split("\0"):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, self.folder / name, follow_symlinks=False)
        environment = self.folder / ".venv"
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True
        )
        (site,) = environment.glob("lib/python3*/site-packages")
        (site / "parent.pth").write_text(sysconfig.get_path("purelib") + "\n")
        pip = environment / "bin" / "pip"
        line = "import runpy; runpy.run_module('pip', run_name='__main__')"
        pip.write_text(f"#!{environment / 'bin' / 'python'}\n{line}\n")
        pip.chmod(0o755)
        warm.program(environment / "bin" / "testbed")
        for done in (".light", ".ready"):
            (environment / done).touch()  # `make setup` has nothing left to do
        self.variables = os.environ | {
            "PATH": f"{environment / 'bin'}:{os.environ['PATH']}",
            # The tested sources, with their compiled caches, and not the copy's.
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "100",
            "PIP_NO_BUILD_ISOLATION": "0",  # pip's way to say that there is none
            "PIP_NO_INDEX": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }

    def run(self, commands: list[Command], limit_s: float) -> list[str]:
        """Run commands in one shell, up to the first that fails; what is wrong with them."""
        script = ["exec 2>&1 </dev/null"]
        for command in commands:
            if command.file is not None:
                script.append(
                    f"mkdir -p $(dirname {command.file})\n"
                    f"cat >{command.file} <<'END_OF_FILE'\n{command.text}END_OF_FILE"
                )
                continue
            script.append(
                f"printf '\\0'\n{command.text}\n"
                f"__status=$?; printf '\\0%s' $__status\n"
                f"test $__status = {command.status} || exit 0"
            )
        try:
            done = subprocess.run(
                ["bash", "-c", "\n".join(script)],
                cwd=self.folder,
                env=self.variables,
                stdout=subprocess.PIPE,
                text=True,
                timeout=limit_s,
                check=False,
            )
            said = done.stdout
        except subprocess.TimeoutExpired as late:
            said = (late.stdout or b"").decode()
        _, *parts = said.split("\0")
        ran = [command for command in commands if command.file is None]
        for number, command in enumerate(ran):
            output, status = (*parts[2 * number : 2 * number + 2], "", "")[:2]
            if faults := judge(command, output, status):
                return faults
        return []


def judge(command: Command, output: str, status: str) -> list[str]:
    """What is wrong with what a command did."""
    short = shlex.quote(command.text) if "\n" not in command.text else command.text
    if status != str(command.status):
        how = f"ended with status {status}" if status else "did not end in time"
        due = f", not {command.status}" if command.status else ""
        return [f"{command.where}: {short} {how}{due}:\n{output[-3000:]}"]
    rest = output
    for line in command.shows:
        found = re.search(_pattern(line, "about" in command.words), rest)
        if not found:
            return [
                f"{command.where}: {short} does not print what the page shows:\n"
                f"  {line}\nIt printed:\n{output[-3000:]}"
            ]
        rest = rest[found.end() :]
    return []


def _pattern(line: str, about: bool) -> str:
    """A regular expression for one shown line; spaces and frames of tables may be of any width."""
    tokens = []
    for token in line.split():
        pieces = re.split("…", token)
        if about:
            text = ".*?".join(
                NUMBER.join(re.escape(part) for part in re.split(NUMBER, piece)) for piece in pieces
            )
        else:
            text = ".*?".join(map(re.escape, pieces))
        tokens.append(text)
    return r"\s+".join(tokens)
