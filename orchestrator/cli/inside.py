# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The command line as it runs inside virtual time; it writes as the host's terminal needs it.

python -m orchestrator.cli.inside ARGUMENTS
"""

import os
import sys

from testbed.system import inside


def _main() -> None:
    told = inside.guest_settings()
    if told is None:
        sys.exit("testbed: this is not virtual time")
    os.environ["COLUMNS"] = str(told["columns"])
    if told["colour"]:
        os.environ["FORCE_COLOR"] = "1"
    from orchestrator.cli.main import main  # it reads the environment while it is imported

    main()


if __name__ == "__main__":
    _main()
