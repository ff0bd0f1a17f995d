# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The ways in which the testbed refuses to go on."""


class InputError(Exception):
    """The user's input is wrong: one line that names the field. The CLI exits with status 2.

    A scenario's key is named as it is (`workload.split: …`); an argument of a function stands in
    backticks (`` `out`: … ``), for the command line to write it as its flag.
    """


class RunError(Exception):
    """A run failed although its input was right: one line that says what. Exit status 1."""


class RunEnds(RunError):
    """A planned fault ends the run before its last round."""

    def __init__(self, message: str, at_s: float):
        super().__init__(message)
        self.at_s = at_s
        """Emulated time."""
