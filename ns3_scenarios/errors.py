# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Errors of the channel models."""


class ChannelError(Exception):
    """ns-3's channel could not be built, or its process died; the message is one line with the
    cause."""
