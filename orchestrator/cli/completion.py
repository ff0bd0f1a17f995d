# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Values that shell completion offers: files, scenario keys and their values, and names.

Each function takes the text before the cursor. It imports modules when it is called, because
every command imports this module.
"""

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

Completer = Callable[[str], list[str]]


def words(*known: str) -> Completer:
    """Complete one of the known words."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in known if word.startswith(incomplete)]

    return complete


def files(*suffixes: str) -> Completer:
    """Complete files that have one of the suffixes (none: all files), and folders."""

    def complete(incomplete: str) -> list[str]:
        folder, slash, _ = incomplete.rpartition("/")
        found = []
        with contextlib.suppress(OSError):
            for path in sorted(Path(folder + slash or ".").iterdir()):
                name = f"{folder}{slash}{path.name}"
                if not name.startswith(incomplete) or (
                    path.name.startswith(".") and incomplete in ("", folder + slash)
                ):
                    continue
                if path.is_dir():
                    found.append(f"{name}/")
                elif not suffixes or path.suffix in suffixes:
                    found.append(name)
        return found

    return complete


def folders(incomplete: str) -> list[str]:
    """Complete folders."""
    return [path for path in files()(incomplete) if path.endswith("/")]


def scenarios(incomplete: str) -> list[str]:
    """Complete built-in scenarios and YAML files."""
    return _built_in("scenarios", incomplete)


def campaigns(incomplete: str) -> list[str]:
    """Complete built-in campaigns, YAML files and folders."""
    return _built_in("campaigns", incomplete)


def _built_in(kind: str, incomplete: str) -> list[str]:
    from orchestrator.scenario.loading import OWN

    own = sorted(path.stem for path in (OWN / kind).glob("*.yaml"))
    return [*words(*own)(incomplete), *files(".yaml", ".yml")(incomplete)]


def assignments(incomplete: str) -> list[str]:
    """Complete a dotted key of a scenario, and after `=` one of its values."""
    from orchestrator.scenario.reference import values

    known = values()
    if "=" not in incomplete:
        found = [key for key in known if key.startswith(incomplete)]
        if len(found) != 1:
            return [f"{key}=" for key in found]
        incomplete = f"{found[0]}="
        return _values(known, incomplete) or [incomplete]
    return _values(known, incomplete)


def _values(known: dict[str, list[str]], incomplete: str) -> list[str]:
    key, _, start = incomplete.partition("=")
    before, comma, start = start.rpartition(",")  # a sweep has several values
    return [
        f"{key}={before}{comma}{value}" for value in known.get(key, []) if value.startswith(start)
    ]


def analytical_models(incomplete: str) -> list[str]:
    """Complete a model of `testbed validate`."""
    from testbed.core.registry import ANALYTICAL_MODELS

    return words(*ANALYTICAL_MODELS.names())(incomplete)


def metrics(incomplete: str) -> list[str]:
    """Complete a metric of `testbed validate`."""
    from testbed.core.registry import METRICS

    return words(*METRICS.names())(incomplete)


def fitted_models(incomplete: str) -> list[str]:
    """Complete a channel model that `testbed fit` can fit."""
    from orchestrator.scenario.schema import FITTED
    from testbed.core.registry import CHANNELS

    return words(*(name for name in CHANNELS.names() if name != FITTED))(incomplete)


@contextlib.contextmanager
def words_of_bash() -> Iterator[None]:
    """Let completions be printed as bash needs them: bash splits words at `=`.

    It passes `radio.access`, `=` and `l` as three words, and replaces the last one only.
    """
    given = os.environ.get("COMP_WORDS", "").split("\n")
    if os.environ.get("_TESTBED_COMPLETE") != "complete_bash" or "=" not in given:
        yield
        return
    given = given[: int(os.environ["COMP_CWORD"]) + 1]
    joined: list[str] = []
    kept = ""
    """Part of the last word that bash does not replace."""
    for word, last in zip(given, ["", *given], strict=False):
        kept = ""
        if "=" not in (word, last):
            joined.append(word)
        elif joined[-1].startswith("--"):  # the option's value is a word of its own
            joined += [] if word == "=" else [word]
        else:
            kept = f"{joined[-1]}=" if word == "=" else joined[-1]
            joined[-1] += word
    if given[-1] == "=" and not kept:
        joined.append("")
    os.environ |= {"COMP_WORDS": "\n".join(joined), "COMP_CWORD": str(len(joined) - 1)}
    stdout = sys.stdout
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            yield
        finally:
            lines = printed.getvalue().splitlines()
            stdout.write("".join(f"{line.removeprefix(kept)}\n" for line in lines))
