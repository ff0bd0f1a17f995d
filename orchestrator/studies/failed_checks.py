# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Failed validity checks in words, for studies that emulate."""

from orchestrator.emulated.validity import CHECKS, remedy
from orchestrator.records.reader import Run
from orchestrator.reporting.formatting import observed


def failed_checks(run: Run) -> list[str]:
    """One text per failed check: its title, value and limit, where it was observed, and advice."""
    emulation = run.scenario.emulation
    found = []
    for check in run.checks.to_dict("records"):
        if not check["ok"]:
            name, value, limit, detail = (check[k] for k in ("check", "value", "limit", "detail"))
            where = f" ({detail})" if detail else ""
            advice = remedy(
                *(name, value, limit, emulation.dilation, emulation.clock), detail=detail
            )
            found.append(
                f"{CHECKS[name].title}: {observed(value, name)}, at most {observed(limit, name)} "
                f"is allowed{where}; advice: {advice}"
            )
    return found
