# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Communication between orchestrator, nodes and injector, outside of the emulated links.

The package contains the messages and their sockets. Each receiver implements the handling
of its messages.
"""
