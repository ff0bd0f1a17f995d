# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Communication between the orchestrator, the nodes and the injector, outside the emulated links.

The package contains the messages and their sockets. Each receiver implements the handling
of its messages.
"""
