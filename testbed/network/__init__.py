# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Emulated links, the injector that sets their rates in every slot, and captures.

Devices, queues, loss and delay of frames; the content of frames does not matter here.
"""
