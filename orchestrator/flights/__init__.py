# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Measured flights: channels fitted to them, and forecasts of other flights."""
