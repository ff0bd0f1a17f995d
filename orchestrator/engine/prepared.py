# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Compiles the engine and the models of ns-3, so that no later command has to.

python -m orchestrator.engine.prepared
"""

import logging
from typing import get_args

from ns3_scenarios import build
from ns3_scenarios.errors import ChannelError
from orchestrator.engine import core_library
from testbed.core.errors import RunError


def main() -> None:
    """Compile what is missing; what cannot be compiled is said in one line, and is no error."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    models = [name for name in get_args(build.Models) if name != "radio-nr"]  # needs a download
    try:
        core_library.library()
        for name in models:
            build.library(name)
    except (RunError, ChannelError) as error:
        logging.warning("%s", error)


if __name__ == "__main__":
    main()
