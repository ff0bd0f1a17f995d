# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How are many scenarios computed, on many machines, and kept?

Points, workers, results; what a study asks of them stands in `orchestrator.studies`.
"""
