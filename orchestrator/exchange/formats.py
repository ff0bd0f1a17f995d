# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Formats that `testbed import` reads; a separate module, because help texts need it early."""

TRACES = ("mahimahi", "ns2", "csv", "kml", "gpx", "ulog", "qgc")
"""Formats that become traces."""
FORMATS = (*TRACES, "srsran")
"""All formats; the last one becomes a measured flight."""
