"""The two ways in which the testbed refuses to go on."""


class InputError(Exception):
    """The user's input is wrong: one line that names the field. The CLI exits with status 2."""


class RunError(Exception):
    """A run failed although its input was right: one line that says what. Exit status 1."""
