# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Communication between orchestrator, nodes and injector, outside of the emulated links.

Messages and their sockets; each receiver implements how it handles a message.
"""
