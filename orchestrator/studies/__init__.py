# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What questions are answered by many runs: the paper's figures, overheads, cross-checks?

Each study says what varies and what is drawn; the machinery is the campaign's.
"""
