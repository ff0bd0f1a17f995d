# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`python -m orchestrator` is `testbed`."""

from orchestrator.cli.main import main

if __name__ == "__main__":
    main()
