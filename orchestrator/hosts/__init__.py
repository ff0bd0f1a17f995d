# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Which machines carry the nodes of a run, and are they fit to?

Hosts found through a Dask scheduler, compared, and given their parts; what they then do stands in
`testbed.cluster`. Points of campaigns, which each stay on one machine, are `campaign`'s.
"""
