# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Debian's stock kernels: fetched by apt, unpacked, never installed, with what starts them.

A kernel's folder holds `root/`, which lies over this machine's root in the virtual machine (its
modules, and who loads them), and `initramfs`, whose `init.sh` puts both together.
"""

import gzip
import lzma
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RELEASES = ("6.1", "6.12")
"""Of Debian 12: its own, and the one of its backports."""
NEEDED = {"apt-get": "apt", "dpkg-deb": "dpkg", "qemu-system-x86_64": "qemu-system-x86"}
"""Programs, and Debian's packages that bring them."""
STARTING = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
"""Modules that reach the root file system."""
_APPLETS = ("sh", "mount", "umount", "mkdir", "insmod", "switch_root", "poweroff", "sleep")


class Unavailable(Exception):
    """What this machine lacks, and how to get it."""


@dataclass(frozen=True)
class StockKernel:
    """A kernel as Debian ships it."""

    version: str
    """As `uname -r` says it."""
    image: Path
    root: Path
    """Modules, and kmod: lies over the machine's root."""
    initramfs: Path


def need() -> None:
    """Raise `Unavailable` if a program is missing."""
    lacking = [package for program, package in NEEDED.items() if not shutil.which(program)]
    if lacking:
        raise Unavailable(f"needs {', '.join(lacking)}: apt-get install {' '.join(lacking)}")


def stock_kernel(release: str, folder: Path) -> StockKernel:
    """The newest kernel of a release that apt knows, in a folder of its own.

    Args:
        release: As `6.12`.
        folder: Of all kernels; what is there already is not fetched again.

    Raises:
        Unavailable: apt does not know such a kernel, or cannot fetch it.
    """
    package = newest(release, _printed("apt-cache", "pkgnames", f"linux-image-{release}"))
    made = folder / package
    if not made.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".part-") as name:
            part = Path(name) / package
            _fetch([package, "kmod", "busybox-static"], part)
            part.rename(made)
    (modules,) = (made / "root/usr/lib/modules").iterdir()
    (image,) = (made / "root/boot").glob("vmlinuz-*")
    return StockKernel(modules.name, image, made / "root", made / "initramfs")


def newest(release: str, names: str) -> str:
    """The newest of these packages that is a signed kernel of the release for PCs.

    Raises:
        Unavailable: None is.
    """
    pattern = rf"linux-image-({re.escape(release)}(?:[.-]\d+)+)(\+deb\d+)?-amd64"
    found = [(match[1], name) for name in names.split() if (match := re.fullmatch(pattern, name))]
    if not found:
        why = f"apt knows no package linux-image-{release}…-amd64"
        raise Unavailable(f"{why}: add bookworm-backports to apt's sources, then apt-get update")
    return max(found, key=lambda pair: [int(part) for part in re.findall(r"\d+", pair[0])])[1]


def _fetch(packages: list[str], folder: Path) -> None:
    """Download and unpack packages, as one root and an initramfs that starts it."""
    root = folder / "root"
    # Debian's /lib is a link to usr/lib; packages of before that lie in it all the same.
    for name in ("bin", "lib", "sbin"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    downloads = folder / "downloads"
    downloads.mkdir()
    try:
        _printed("apt-get", "download", "--quiet", *packages, cwd=downloads)
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip() or "it says nothing").splitlines()[-1]
        raise Unavailable(f"apt-get download {packages[0]} failed: {last}") from None
    for archive in downloads.iterdir():
        tar = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", archive], stdout=subprocess.PIPE)
        unpack = ["tar", "-x", "--keep-directory-symlink", "-C", str(root)]
        subprocess.run(unpack, stdin=tar.stdout, check=True)
        assert tar.wait() == 0
    shutil.rmtree(downloads)
    (modules,) = (root / "usr/lib/modules").iterdir()
    _depmod(root, modules.name)
    (folder / "initramfs").write_bytes(gzip.compress(initramfs(root, modules), 1))


def _depmod(root: Path, version: str) -> None:
    """Which module needs which; kmod goes by the name that it is called by."""
    command = ["depmod", "--basedir", str(root), version]
    subprocess.run(command, executable=root / "usr/bin/kmod", check=True)


def initramfs(root: Path, modules: Path) -> bytes:
    """The first root: busybox, the modules that reach the second one, and `init.sh`."""
    files = {
        "bin/busybox": (root / "usr/bin/busybox").read_bytes(),
        "init": (HERE / "init.sh").read_bytes(),
    }
    for number, path in enumerate(in_order(STARTING, modules)):
        packed = path.read_bytes()
        data = lzma.decompress(packed) if path.suffix == ".xz" else packed
        files[f"modules/{number:02d}-{path.name.removesuffix('.xz')}"] = data
    folders = ("bin", "dev", "host", "modules", "new", "over", "proc", "rw", "sys")
    entries = [(name, stat.S_IFDIR | 0o755, b"") for name in folders]
    entries += [(name, stat.S_IFREG | 0o755, data) for name, data in files.items()]
    entries += [(f"bin/{name}", stat.S_IFLNK | 0o777, b"busybox") for name in _APPLETS]
    return b"".join(_cpio([*entries, ("TRAILER!!!", 0, b"")]))


def in_order(names: tuple[str, ...], modules: Path) -> list[Path]:
    """Files of modules and of those that they need, each after what it needs."""
    needs: dict[str, list[str]] = {}
    for line in (modules / "modules.dep").read_text().splitlines():
        file, _, others = line.partition(":")
        # Nearest first, as depmod writes them.
        needs[Path(file).name.partition(".")[0].replace("-", "_")] = [*others.split()[::-1], file]
    # What is built in has no file.
    files = [file for name in names for file in needs.get(name, [])]
    return [modules / file for file in dict.fromkeys(files)]


def _cpio(entries: list[tuple[str, int, bytes]]) -> Iterator[bytes]:
    """An archive in the kernel's format (newc)."""
    for number, (name, mode, data) in enumerate(entries):
        path = name.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + path
        yield head + bytes(-len(head) % 4)
        yield data + bytes(-len(data) % 4)


def _printed(*command: str, cwd: Path | None = None) -> str:
    # English, wherever this runs.
    environment = os.environ | {"LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout
