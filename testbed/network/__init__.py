# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What is an emulated link, who sets its rate in every slot, and what passes over it?

Devices, queues, the injector, loss and delay of frames, captures; not what programs send.
"""
