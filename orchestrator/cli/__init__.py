"""What may be typed after `testbed`?

Options, tables, progress; whatever a command does can be called without it.
"""
