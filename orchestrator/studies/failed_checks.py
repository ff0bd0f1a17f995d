# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Failed validity checks in words, for studies that emulate."""

from collections.abc import Sequence

from orchestrator.emulated.validity import CHECKS, remedy
from orchestrator.records.emulation import Check
from orchestrator.reporting.formatting import observed
from orchestrator.scenario.schema import Scenario


def failed_checks(checks: Sequence[Check], scenario: Scenario) -> list[str]:
    """One text per failed check: its title, value and limit, where it was observed, and advice."""
    emulation = scenario.emulation
    found = []
    for check in checks:
        if not check.ok:
            where = f" ({check.detail})" if check.detail else ""
            advice = remedy(
                *(check.check, check.value, check.limit, emulation.dilation, emulation.clock),
                detail=check.detail,
            )
            found.append(
                f"{CHECKS[check.check].title}: {observed(check.value, check.check)}, at most "
                f"{observed(check.limit, check.check)} is allowed{where}; advice: {advice}"
            )
    return found
