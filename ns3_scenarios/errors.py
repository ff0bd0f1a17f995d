# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How the channel fails."""


class ChannelError(Exception):
    """ns-3's channel could not be built, or its process died: one line that says what and why."""
