# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Every command in the documentation is run in a fresh checkout and prints what the page shows."""

from pathlib import Path

import pytest
from documents import PAGES, Checkout, Command, judge, parse, read

from ns3_scenarios import nr_module

READ = {page.name: page for page in map(read, PAGES)}
LONG = ("docs/plugins.md", "docs/validate.md")
"""Pages that compute longest with what tests of their own cover."""


def with_words(word: str) -> list[str]:
    return [name for name, page in READ.items() if any(word in c.words for c in page.commands)]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.full] if name in LONG else [])
        for name, page in READ.items()
        if page.commands
    ],
)
def test_commands_work_and_print_what_is_shown(name: str, checkout: Checkout) -> None:
    quick = [c for c in READ[name].commands if not c.words & {"full", "docker", "lena"}]
    faults = checkout.run(quick, limit_s=280)
    assert not faults, "\n".join(faults)


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", with_words("full"))
def test_long_commands_work_too(name: str, checkout: Checkout) -> None:
    commands = [c for c in READ[name].commands if not c.words & {"docker", "lena"}]
    faults = checkout.run(commands, limit_s=3500)
    assert not faults, "\n".join(faults)


@pytest.mark.full
@pytest.mark.skipif(nr_module.find() is None, reason="5G-LENA is not built")
@pytest.mark.parametrize("name", with_words("lena"))
def test_commands_over_5g_lena_work(name: str, checkout: Checkout) -> None:
    faults = checkout.run([c for c in READ[name].commands if "lena" in c.words], limit_s=280)
    assert not faults, "\n".join(faults)


@pytest.mark.docker
@pytest.mark.parametrize("name", with_words("docker"))
def test_commands_with_docker_work(name: str, checkout: Checkout) -> None:
    commands = [c for c in READ[name].commands if c.file or "docker" in c.words]
    faults = checkout.run(commands, limit_s=280)
    assert not faults, "\n".join(faults)


# --- the test itself -----------------------------------------------------------------------------


PAGE = """
```sh
echo one \\
  two
# a comment
false
```
```console about status=3
$ echo 'took 3.5 s, −7 %'; (exit 3)
took 12,345.0 s, … %
```
```yaml made/it.yaml
a: 1
```
```python
print(open("made/it.yaml").read())
```
```
nothing said
```
```sh quickly
```
"""


def test_blocks_become_commands_in_their_order() -> None:
    page = parse("docs/page.md", PAGE)
    assert [command.text.split("\n")[0] for command in page.commands] == [
        "echo one \\",
        "false",
        "echo 'took 3.5 s, −7 %'; (exit 3)",
        "a: 1",
        "python - <<'END_OF_PROGRAM'",
    ]
    assert page.commands[1].where == "docs/page.md:6"
    assert [fault.split(":")[1] for fault in page.faults] == ["18", "21"]


def test_a_command_that_fails_or_prints_something_else_is_a_fault(checkout: Checkout) -> None:
    page = parse("docs/page.md", PAGE)
    (fault,) = checkout.run(page.commands, limit_s=60)
    assert fault.startswith("docs/page.md:6: false ended with status 1")
    rest = [command for command in page.commands if command.text != "false"]
    assert checkout.run(rest, limit_s=60) == []
    exact = Command("here", "x", shows=("took 12 s",))
    assert judge(exact, "it took   12 s\n", "0") == []
    assert judge(exact, "took 13 s\n", "0")
    assert (
        judge(Command("here", "x", frozenset({"about"}), 0, ("took 12 s",)), "took 1e-3 s", "0")
        == []
    )
    slow = [Command("here", "echo begun; sleep 30")]
    (fault,) = checkout.run(slow, limit_s=1)
    assert "did not end in time" in fault
