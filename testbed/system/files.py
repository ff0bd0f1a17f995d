# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Atomic writing and safe reading of files."""

import errno
import hashlib
import json
import os
import secrets
import stat
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from testbed.core.errors import InputError
from testbed.core.words import place_of
from testbed.system.leftovers import noted

if TYPE_CHECKING:
    import pandas as pd

DIGEST_BYTES = hashlib.sha256().digest_size
_NO_FILE = "is not a regular file"
MOST_DATA_BYTES = 1 << 40
"""Size limit of a file with data or weights."""
MOST_JSON_BYTES = 16 << 20
"""Size limit of a JSON file."""
_TABLES = {".csv", ".json", ".npy", ".npz", ".parquet", ".pcap", ".txt", ".xlsx", ".yaml", ".yml"}
_PAGES = {".htm", ".html", ".pdf", ".png", ".svg"}
_ENDINGS = _TABLES | _PAGES | {".gz", ".tar", ".zip"}
"""Endings of names that show of what kind a file is."""
MOST_WAYS = 16
"""Largest number of paths, through symbolic links, on which a folder is read."""
_SAFE_BYTES, _MOST_HOLLOW = 1 << 30, 200
"""A file that is longer, and longer than this multiple of the data in it, is refused."""


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file in the folder of `path`, then rename it to `path`.

    After a failure there is neither an incomplete nor a changed file.

    Raises:
        OSError: Raised by `write`, or the path is a device, a pipe or the like.
    """
    if not _may_be_replaced(path):
        raise OSError(errno.EINVAL, _NO_FILE, str(path))
    part = _part_of(path)
    with noted(part):
        try:
            write(part)
            part.replace(path)
        except OSError as error:
            if error.errno is not None:  # for example a full disk: libraries seldom name the file
                error.filename, error.filename2 = str(path), None
            raise
        finally:
            part.unlink(missing_ok=True)


def _part_of(path: Path) -> Path:
    """The temporary file of a path. Its name is unpredictable, because others may write in the
    folder and could place a link."""
    return path.with_name(f".{path.name[:200]}.{secrets.token_hex(4)}.part")


def _may_be_replaced(path: Path) -> bool:
    """Whether a path is not a device (which would be removed), a pipe, or a name such as
    `/dev/stdout`."""
    if path.is_symlink() and str(path.readlink()).startswith("/proc/"):
        return False
    try:
        mode = path.stat().st_mode
    except OSError:  # The file does not exist yet.
        return True
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


@contextmanager
def opened_regular(path: Path, most_bytes: int) -> Iterator[tuple[IO[bytes], int]]:
    """A regular file, opened to be read without ever blocking, and its size in bytes.

    Raises:
        OSError: The file cannot be opened.
        ValueError: The path is not a regular file, is longer than `most_bytes`, or nearly all of it
            is a hole.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError(_NO_FILE)
    # It may have been replaced since; opening a pipe without a writer would block.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise ValueError(_NO_FILE)
        if about.st_size > most_bytes:
            raise ValueError(f"is longer than {most_bytes:,} bytes")
        if about.st_size > _SAFE_BYTES and _is_hollow(file.fileno(), about.st_size):
            raise ValueError(f"claims {about.st_size:,} bytes, and nearly all of them are a hole")
        yield file, about.st_size


def _is_hollow(file: int, size: int) -> bool:
    """Whether less than 1 / `_MOST_HOLLOW` of a file has been written; its position is 0."""
    data = end = 0
    try:
        while data * _MOST_HOLLOW < size:
            begin = os.lseek(file, end, os.SEEK_DATA)
            end = os.lseek(file, begin, os.SEEK_HOLE)
            data += end - begin
    except OSError as error:
        return error.errno == errno.ENXIO  # nothing but a hole follows
    finally:
        os.lseek(file, 0, os.SEEK_SET)
    return False


def read_whole(file: IO[bytes], size: int) -> bytes:
    """The content of an opened file; never allocates more memory than its size.

    Raises:
        ValueError: The file has more than `size` bytes.
    """
    data = file.read(size + 1)
    if len(data) > size:
        raise ValueError("is still being written")
    return data


def read_regular(path: Path, most_bytes: int) -> bytes:
    """The content of a file; never blocks, and never allocates more memory than the file's size.

    Raises:
        OSError: The file cannot be opened or read.
        ValueError: The path is not a regular file, or longer than `most_bytes`.
    """
    with opened_regular(path, most_bytes) as (file, size):
        return read_whole(file, size)


def check_regular(path: Path, most_bytes: int = MOST_DATA_BYTES) -> None:
    """Refuse what a library must not be given to open: a pipe, a device, a file without an end.

    Raises:
        OSError: The file cannot be opened.
        ValueError: See `opened_regular`.
    """
    with opened_regular(path, most_bytes):
        pass


def json_value(path: Path, most_bytes: int = MOST_JSON_BYTES) -> Any:
    """The value in a JSON file.

    Raises:
        OSError: The file cannot be opened or read.
        ValueError: See `read_regular`; or the text is not JSON, is nested too deeply, or has an
            object with two equal keys. The message is one line.
    """
    try:
        return json.loads(read_regular(path, most_bytes), object_pairs_hook=_object)
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8 text") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        [(twice, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"has an object with two keys {ascii(twice)[:60]}")
    return found


def walk(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """As `os.walk`, through symbolic links to folders.

    Raises:
        OSError: A folder is reached on more than `MOST_WAYS` paths: links form a loop.
    """
    ways: Counter[tuple[int, int]] = Counter()
    for place, folders, names in os.walk(folder, followlinks=True):
        about = os.stat(place)  # noqa: PTH116 - a text
        ways[about.st_dev, about.st_ino] += 1
        if ways[about.st_dev, about.st_ino] > MOST_WAYS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), place)
        yield place, folders, names


def read_json(path: Path, most_bytes: int = MOST_JSON_BYTES) -> Any:
    """A JSON value with finite numbers and texts that UTF-8 can encode.

    Raises:
        InputError: The file is missing, or is not JSON; the message names it.
    """
    try:
        value = json_value(path, most_bytes)
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    except UnicodeError:
        raise InputError(f"{path}: cannot be read (it is not UTF-8 text)") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: is not JSON{place_of(error)}") from None
    except ValueError as error:
        is_ours = str(error).startswith("is ")
        raise InputError(f"{path}: cannot be read ({'it ' * is_ours}{error})") from None
    return value


def mode_of(name: "str | os.PathLike[str]") -> int:
    """Mode of a file by `stat`; 0 if it does not exist, is not accessible or has an invalid
    name."""
    try:
        return os.stat(name).st_mode  # noqa: PTH116 - `name` may be no valid path
    except (OSError, ValueError):
        return 0


def sha256_of(path: Path) -> str:
    """SHA-256 digest of a file's content.

    Raises:
        OSError: The file cannot be opened or read, or is no regular file; see `opened_regular`.
    """
    try:
        with opened_regular(path, MOST_DATA_BYTES) as (file, _):
            return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error), str(path)) from None


def content_digest(path: Path) -> str:
    """SHA-256 of a file, or of the names and contents of all files of a folder, as hexadecimal
    digits; compiled files of Python are not included.

    Raises:
        OSError: See `sha256_of`.
    """
    if not path.is_dir():
        return sha256_of(path)
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            digest.update(f"{file.relative_to(path)}\0{sha256_of(file)}\0".encode())
    return digest.hexdigest()


def sealed(data: bytes) -> bytes:
    """Data and its digest, for a file of the cache: see `is_intact`. Loaders of programs and
    libraries, and pickle, ignore what follows their data."""
    return data + hashlib.sha256(data).digest()


def is_intact(path: Path) -> bool:
    """Whether a file is there and is as `sealed` has made it, not cut or changed since."""
    try:
        data = memoryview(path.read_bytes())
    except OSError:
        return False
    rest, digest = data[:-DIGEST_BYTES], data[-DIGEST_BYTES:]
    return bool(hashlib.sha256(rest).digest() == digest)


def json_digest(value: Mapping[str, Any], without: Collection[str] = ("digest",)) -> str:
    """SHA-256 of a JSON object as canonical JSON: sorted keys, no spaces.

    Args:
        value: The object.
        without: Names of fields that the digest does not cover.
    """
    rest = {name: part for name, part in value.items() if name not in without}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, atomically.

    If it is a mapping, a value that is an iterator becomes a list, of which only one element is in
    memory at a time.
    """

    def pieces() -> Iterator[str]:
        text = partial(json.dumps, allow_nan=False)
        if not (isinstance(value, dict) and any(isinstance(v, Iterator) for v in value.values())):
            yield text(value)
            return
        for at, (key, each) in enumerate(value.items()):
            yield f"{', ' if at else '{'}{text(key)}: "
            if not isinstance(each, Iterator):
                yield text(each)
                continue
            yield "["
            for place, item in enumerate(each):
                yield f"{', ' if place else ''}{text(item)}"
            yield "]"
        yield "}"

    def write(part: Path) -> None:
        with part.open("w", encoding="utf-8") as file:
            file.writelines(pieces())
            file.write("\n")

    write_whole(path, write)


def write_csv(path: Path, table: "pd.DataFrame") -> None:
    """Write a table as CSV, atomically."""
    write_whole(path, partial(table.to_csv, index=False))


def check_no_link(folder: Path | None) -> None:
    """Refuse a symbolic link as the folder of results, because its target belongs to others.

    Raises:
        InputError: The folder is a symbolic link.
    """
    if folder is not None and folder.is_symlink():
        raise InputError(f"`out`: {folder} is a symbolic link; name the folder itself")


def check_folder(folder: Path | None) -> None:
    """Refuse a folder of results that cannot be created or written, before any work is done.

    Raises:
        InputError: The folder is a symbolic link, it or a part of its path is a file, or it cannot
            be written.
    """
    if folder is None:
        return
    check_no_link(folder)
    there = folder
    while not os.path.lexists(there):
        there = there.parent
    if not there.is_dir():
        raise InputError(f"`out`: {folder} cannot be created ({there} is not a directory)")
    probe = there / f".{secrets.token_hex(8)}.part"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        reason = error.strerror
        raise InputError(f"`out`: the folder {there} cannot be written ({reason})") from None


def check_ending(argument: str, path: Path | None, ending: str) -> None:
    """Refuse a name whose ending is that of another kind of file than what is written.

    Raises:
        InputError: The name has the ending of another kind; the message names the argument.
    """
    if path is not None and path.suffix.lower() in _ENDINGS - {ending}:
        raise InputError(f"`{argument}`: must be a file *{ending}, not {path}")


def check_writable(argument: str, path: Path | None, ending: str = "") -> None:
    """Refuse an output file that cannot be created, before any work is done.

    With an ending, a name of another kind is refused as well: see `check_ending`.

    Raises:
        InputError: The file cannot be created; the message names the argument.
    """
    if path is None:
        return
    if ending:
        check_ending(argument, path, ending)
    try:
        if path.is_dir():
            raise InputError(f"`{argument}`: {path} is a directory")
        if not _may_be_replaced(path):
            raise InputError(f"`{argument}`: {path} {_NO_FILE}")
        if not path.parent.is_dir():
            raise InputError(f"`{argument}`: the folder {path.parent} does not exist")
        # Only the kernel knows: in some folders, such as /proc, no file can be created by anyone.
        os.close(os.open(part := _part_of(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        part.unlink()
    except OSError as error:
        raise InputError(f"`{argument}`: {path} cannot be created ({error.strerror})") from None
