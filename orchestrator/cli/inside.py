# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The command line inside virtual time; its output is formatted for the host's terminal.

python -m orchestrator.cli.inside ARGUMENTS
"""

import os
import sys

from testbed.system import inside


def _main() -> None:
    settings = inside.guest_settings()
    if settings is None:
        sys.exit("testbed: this process is not in virtual time")
    os.environ["COLUMNS"] = str(settings["columns"])
    if settings["colour"]:
        os.environ["FORCE_COLOR"] = "1"
    from orchestrator.cli.main import main  # reads the environment on import

    main()


if __name__ == "__main__":
    _main()
