# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Folders of this user on this machine."""

from pathlib import Path

from platformdirs import user_cache_path


def cache_folder() -> Path:
    """The testbed's folder in the user's cache, for expensive results and notes for clean-up.

    It is `$XDG_CACHE_HOME/uav-sfl-testbed` if that variable is an absolute path, otherwise
    `~/.cache/uav-sfl-testbed`.
    """
    return user_cache_path("uav-sfl-testbed", appauthor=False)
