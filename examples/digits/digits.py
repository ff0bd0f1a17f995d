# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The handwritten digits of scikit-learn as folders of pictures, and two small networks for them.

    python examples/digits/digits.py FOLDER

The data have 1,797 grey pictures of 8 × 8 pixels; every tenth is held out. FOLDER gets `upright`
and `rotated` (by 90°), each with one folder of PNG files per class, and `mlp.safetensors`: weights
of `digits_mlp` that are trained on all upright pictures for training.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from orchestrator import Chain, Images

Array = np.ndarray[Any, Any]


class DigitsCnn(nn.Module):
    """Two convolutions and two linear layers with 38,570 parameters, for 16 × 16 pixels."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
        self.hidden, self.head = nn.Linear(512, 64), nn.Linear(64, classes)

    def part1(self, x: Tensor) -> Tensor:
        return functional.max_pool2d(functional.relu(self.first(x)), 2)

    def part2(self, x: Tensor) -> Tensor:
        return functional.max_pool2d(functional.relu(self.second(x)), 2)

    def part3(self, x: Tensor) -> Tensor:
        return functional.relu(self.hidden(x.flatten(1)))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.part3(self.part2(self.part1(x))))


class DigitsMlp(nn.Module):
    """Three linear layers, for 8 × 8 pixels."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(192, 64), nn.Linear(64, 64)
        self.head = nn.Linear(64, classes)

    def part1(self, x: Tensor) -> Tensor:
        return functional.relu(self.first(x))

    def part2(self, x: Tensor) -> Tensor:
        return functional.relu(self.second(x))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.part2(self.part1(x.flatten(1))))


def digits_cnn(classes: int) -> Chain:
    """The convolutional network, which can be split after each of three parts."""
    net = DigitsCnn(classes)
    parts = [net.part1, net.part2, net.part3]
    return Chain(net, Images(16), lambda x: x, parts, lambda x: x, "head")


def digits_mlp(classes: int) -> Chain:
    """The network of linear layers, which can be split after each of two parts."""
    net = DigitsMlp(classes)
    return Chain(
        net, Images(8), lambda x: x.flatten(1), [net.part1, net.part2], lambda x: x, "head"
    )


def digits() -> tuple[Array, Array, Array]:
    """Images [1797, 8, 8] as bytes, labels [1797], and which samples are for training [1797].

    Raises:
        SystemExit: scikit-learn is missing.
    """
    try:
        from sklearn.datasets import load_digits  # type: ignore[import-not-found]
    except ModuleNotFoundError:
        sys.exit("scikit-learn is missing: pip install ./examples/digits")
    found = load_digits()
    images = (found.images * 15.9375).round().astype(np.uint8)
    return images, found.target, np.arange(len(images)) % 10 != 0


def write_pictures(folder: Path, turns: int = 0) -> None:
    """Write the digits as PNG files: `train/CLASS/N.png` and `test/CLASS/N.png`.

    Args:
        folder: Where to write; it is created.
        turns: Number of rotations by 90° anticlockwise.
    """
    from PIL import Image

    images, labels, trains = digits()
    for index, (image, label, train) in enumerate(zip(images, labels, trains, strict=True)):
        place = folder / ("train" if train else "test") / str(label)
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.rot90(image, turns)).save(place / f"{index}.png")


def write_weights(file: Path) -> None:
    """Train `digits_mlp` on the upright pictures for training, and write its tensors."""
    from safetensors.torch import save_file

    images, labels, trains = digits()
    form = Images(8)
    mean, deviation = (torch.tensor(v)[:, None, None] for v in (form.mean, form.deviation))
    pixels = (torch.from_numpy(images[trains]).float()[:, None] / 255 - mean) / deviation
    targets = torch.from_numpy(labels[trains])
    torch.set_num_threads(1)  # More threads add in another order.
    torch.manual_seed(1)
    net = DigitsMlp(10)
    for _ in range(200):  # Gradient descent with all pictures.
        loss = functional.cross_entropy(net(pixels), targets)
        gradients = torch.autograd.grad(loss, [*net.parameters()])
        with torch.no_grad():
            for tensor, gradient in zip(net.parameters(), gradients, strict=True):
                tensor -= 0.3 * gradient
    save_file(net.state_dict(), file)


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/digits/digits.py FOLDER")
    folder = Path(sys.argv[1])
    write_pictures(folder / "upright")
    write_pictures(folder / "rotated", turns=1)
    write_weights(folder / "mlp.safetensors")
    print(f"pictures and weights: {folder}")


if __name__ == "__main__":
    main()
