# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Emulated links, the injector that sets their rates in every slot, and packet captures.

The package handles devices and queues, and the loss and delay of frames. It does not depend on the
content of frames.
"""
