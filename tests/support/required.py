# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a test needs of a machine."""

import os
from typing import NoReturn

import pytest


def lacks(why: str, variable: str = "CI") -> NoReturn:
    """Skip the test; fail it where that environment variable says that all must be there."""
    refuse = pytest.fail if os.environ.get(variable) == "true" else pytest.skip
    refuse(why)
