# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Flower in a virtual environment of its own, an app from its template, and data for the app.

    python examples/flower/prepare.py RELEASE FOLDER      RELEASE: 1.22 or 1.41

What is installed stands in `flower-RELEASE.txt`, with hashes. The app is what `flwr new` of 1.22
makes of its PyTorch template, which later releases fetch from Flower's server. Its data set is
`uoft-cs/cifar10`; a folder of that name, with images by seed in the same form, takes its place.
"""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from workloads.data.samples import Synthetic

HERE = Path(__file__).resolve().parent
INSTALL = HERE.parents[1] / "constraints" / "install.py"
RELEASES = ("1.22", "1.41")
CLASSES, SIZE, SEED = 10, 32, 1
SAMPLES = {"train": 1500, "test": 300}
FEATURES = {
    "img": {"_type": "Image"},
    "label": {"names": [str(label) for label in range(CLASSES)], "_type": "ClassLabel"},
}
SCHEMA = pa.schema(
    {"img": pa.struct({"bytes": pa.binary(), "path": pa.string()}), "label": pa.int64()},
    {"huggingface": json.dumps({"info": {"features": FEATURES}})},
)


def install(release: str, folder: Path) -> None:
    """Flower and what it needs, into `folder`."""
    python = folder / "bin" / "python"
    uv = [sys.executable, INSTALL, "--into", folder, "uv", "--", "pip", "install"]
    # Nodes cannot write here: what is not compiled now, each of their processes would compile anew.
    exact = ["--compile-bytecode", "--require-hashes", "--no-deps"]
    exact += ["-r", HERE / f"flower-{release}.txt"]
    subprocess.run([*uv, "--python", python, *exact], check=True)


def make_app(venv: Path, folder: Path) -> None:
    """The app of 1.22's template, as `folder`."""
    python = venv / "bin" / "python"
    with TemporaryDirectory() as place:
        uv = [sys.executable, INSTALL, "--into", venv, "uv", "--", "pip", "install"]
        pinned = Path(place) / "flwr.txt"
        pinned.write_text(_pin((HERE / "flower-1.22.txt").read_text(), "flwr"))
        exact = ["--require-hashes", "--no-deps", "--target", f"{place}/flwr", "-r", pinned]
        subprocess.run([*uv, "-q", "--python", python, *exact], check=True)
        told = {"PYTHONPATH": f"{place}/flwr", "FLWR_HOME": place, "FLWR_TELEMETRY_ENABLED": "0"}
        new = "from flwr.cli.app import app; app()"
        words = ["new", folder.name, "--framework", "PyTorch", "--username", "testbed"]
        subprocess.run(
            [python, "-c", new, *words], env=os.environ | told, cwd=folder.parent, check=True
        )


def _pin(lock: str, name: str) -> str:
    """What a lock says of one package."""
    lines = lock.splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith(f"{name}=="))
    after = (at for at in range(first + 1, len(lines)) if not lines[at].startswith(" "))
    return "\n".join([*lines[first : next(after, len(lines))], ""])


def write_data(folder: Path) -> None:
    """Images of each class by seed, as Parquet files that `datasets` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, samples in SAMPLES.items():
        data = Synthetic(samples, CLASSES, SIZE, SEED, train=part == "train")
        images, labels = data.batch(np.arange(samples))
        pixels = (128 + 48 * images.numpy()).clip(0, 255).astype(np.uint8).transpose(0, 2, 3, 1)
        rows = {
            "img": [{"bytes": _png(image), "path": None} for image in pixels],
            "label": labels.numpy(),
        }
        pq.write_table(pa.table(rows, SCHEMA), folder / f"{part}.parquet")


def _png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def prepare(release: str, folder: Path) -> None:
    """All of it, where it is not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "venv/bin/flower-superlink").exists():
        install(release, folder / "venv")
    if not (folder / "app").exists():
        make_app(folder / "venv", folder / "app")
    write_data(folder / "uoft-cs" / "cifar10")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in RELEASES:
        sys.exit(f"usage: prepare.py {{{','.join(RELEASES)}}} FOLDER")
    prepare(sys.argv[1], Path(sys.argv[2]).resolve())
