# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What do the paper's closed forms and bounds say, and do they hold?

Formulas and their checks against the engine; nothing measured.
"""
