# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Where things of this user's lie on this machine."""

from pathlib import Path

from platformdirs import user_cache_path


def cache_folder() -> Path:
    """Ours in the user's cache: what is costly to make again, and notes of what runs have made.

    `$XDG_CACHE_HOME/uav-sfl-testbed` if that variable holds an absolute path, else
    `~/.cache/uav-sfl-testbed`.
    """
    return user_cache_path("uav-sfl-testbed", appauthor=False)
