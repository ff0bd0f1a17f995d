# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What is an emulated link, and who sets its rate in every slot?

Devices, queues, the injector; not what programs send over them.
"""
