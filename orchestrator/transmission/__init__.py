# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What does a link carry in its slots, and when is a message there?

The air's rates, delays, losses and TCP's windows, compiled; what is sent when stands in
`orchestrator.prediction`.
"""
