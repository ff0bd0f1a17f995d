# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Output folders: `overwrite` replaces earlier results, and `resume` continues them."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from testbed.core.errors import InputError
from testbed.system.files import check_folder


def check_new(folder: Path | None, names: Sequence[str], *, overwrite: bool) -> None:
    """Refuse earlier results of the same command, unless they are to be replaced.

    Args:
        folder: The output folder; None: the command writes none.
        names: Patterns of the files that the command writes, for example `sweep.*`.
        overwrite: Whether earlier results are to be replaced.

    Raises:
        InputError: The folder has earlier results, cannot be written, or `overwrite` has no effect.
    """
    if folder is None:
        if overwrite:
            raise InputError("`overwrite`: needs `out`, the folder whose results are replaced")
        return
    check_folder(folder)
    if not overwrite and (found := _found(folder, names)):
        raise InputError(
            f"`out`: {folder} has earlier results ({found[0].name}); choose another folder, or "
            "pass `overwrite`"
        )


def remove_results(folder: Path, names: Sequence[str]) -> None:
    """Remove earlier results, so that none is taken for a result of the new command."""
    for path in _found(folder, names):
        path.unlink()


def _found(folder: Path, names: Sequence[str]) -> list[Path]:
    return sorted({p for name in names for p in folder.glob(name) if not p.is_dir()})


def check_resumable(
    folder: Path | None, mark: str, what: str, *, overwrite: bool, resume: bool
) -> None:
    """Check the options of a command that resumes work which it finds in its folder.

    Args:
        folder: The output folder; None: the command writes none.
        mark: Name of a file that every such folder contains.
        what: Content of such a folder, for example `a campaign`.
        overwrite: Whether earlier results are to be removed.
        resume: Whether there must be earlier results.

    Raises:
        InputError: The folder has no earlier results to resume or to replace, or an option lacks
            another one.
    """
    if overwrite and resume:
        raise InputError("`resume`: does not go together with `overwrite`")
    for name, given in (("overwrite", overwrite), ("resume", resume)):
        if given and folder is None:
            raise InputError(f"`{name}`: needs `out`, the folder of the earlier results")
    if folder is None:
        return
    check_folder(folder)
    if resume and not (folder / mark).is_file():
        there = "contains no" if folder.exists() else "does not exist: there is no"
        raise InputError(f"`resume`: {folder} {there} {what} to resume")
    foreign = folder.is_dir() and any(folder.iterdir()) and not (folder / mark).is_file()
    if overwrite and (foreign or folder.is_file()):
        raise InputError(f"`overwrite`: {folder} contains no {what}, so it is not replaced")


def empty(folder: Path, keep: Sequence[str] = ()) -> None:
    """Remove everything in a folder, if it exists, apart from the named files."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name not in keep:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
