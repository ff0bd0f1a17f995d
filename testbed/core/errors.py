# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Exceptions of the testbed."""


class InputError(Exception):
    """Invalid user input; the message is one line that names the field. The CLI exits with status
    2.

    A scenario key is written as it is (`workload.split: …`); an argument of a function is written
    in backticks (`` `out`: … ``), and the command line replaces it with the option.
    """


class RunError(Exception):
    """A run failed although its input was valid; the message is one line. Exit status 1."""


class RunEnds(RunError):
    """A planned fault ends the run before its last round."""

    def __init__(self, message: str, at_s: float):
        super().__init__(message)
        self.at_s = at_s
        """Emulated time of the fault."""
