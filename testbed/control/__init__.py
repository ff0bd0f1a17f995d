# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How do orchestrator, nodes and injector talk, beside the emulated links?

Messages and their sockets; what is done about a message stands with its receiver.
"""
