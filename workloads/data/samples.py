# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Data sets, their partition among clients, and the batches drawn from them.

Everything is a function of the seed: a batch depends on (seed, client, round, iteration), and not
on the schedule or the layout of processes. This also holds for passes over a client's data: a pass
is a permutation of its samples that depends on the number of the pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from testbed.core.errors import InputError
from testbed.core.words import by_number
from workloads.data.arrays import ArrayPictures, ArrayTexts, array_files
from workloads.data.clients import CLIENT, Metadata
from workloads.data.config import DataConfig
from workloads.data.folders import (
    classes_in,
    client_folders,
    has_pictures,
    has_table,
    picture_bytes,
    picture_folders,
    pictures_below,
    pictures_metadata,
)
from workloads.data.partitions import COLUMN, NO_METADATA, partition
from workloads.data.parts import FIELD
from workloads.data.pictures import EncodedPictures, Indices, Pictures, is_held_out, normalised
from workloads.data.tokens import TokenSequences, open_tokens, shifted
from workloads.models.chain import Images, Tokens
from workloads.models.seeds import generator

CIFAR_RECORD = 2 + 3 * 32 * 32
"""Bytes of a record: coarse label, fine label, then 32 x 32 pixels of red, green, blue."""

SHOWN = 8
"""Largest number of classes that a message names."""

TOPICS = 4
FOLLOWERS = 4
"""Synthetic sequences: number of topics, and number of tokens that may follow a token."""


class Dataset(Protocol):
    """Labelled samples, which are generated or read on demand."""

    classes: int
    labels: Indices
    """Labels for the partition among clients, shape [N]."""
    metadata: Metadata
    """Columns that describe the samples."""

    def batch(self, indices: Indices) -> tuple[Tensor, Tensor]:
        """Samples as inputs of the model, float32 images or int64 tokens, and the targets: labels
        [n] or the next tokens [n, length]."""
        ...


class Synthetic(Pictures):
    """Random images: each class is a texture at a random position, weak and with noise.

    A class has a smooth random pattern; an image is that pattern, shifted cyclically to a random
    position and scaled by a random amplitude, plus pixel noise. The position is not informative, so
    a linear classifier of pixels fails and a network has to learn the textures.
    """

    def __init__(self, samples: int, classes: int, size: int, seed: int, train: bool) -> None:
        self.classes, self.names = classes, range(classes)
        self.labels = np.arange(samples, dtype=np.int64) % classes
        self._size = size
        self._part = "train" if train else "test"
        self._seed = seed

    def _image(self, index: int) -> Tensor:
        random = generator(self._seed, f"{self._part} {index}")
        down, right = torch.randint(self._size, (2,), generator=random).tolist()
        strength = 1 + 0.5 * torch.rand((), generator=random)
        pattern = self._pattern(int(self.labels[index])).roll((down, right), (1, 2))
        return strength * pattern + 0.5 * torch.randn(pattern.shape, generator=random)

    def _pattern(self, label: int) -> Tensor:
        # Enlarged on demand: a hundred patterns in the model's size would take 60 MB per process.
        grid = torch.randn(1, 3, 8, 8, generator=generator(self._seed, f"class {label}"))
        # Padding with one cell from the opposite side keeps the enlarged pattern cyclic.
        margin = round(self._size / 8)
        side = self._size + 2 * margin
        padded = functional.pad(grid, (1, 1, 1, 1), mode="circular")
        enlarged = functional.interpolate(padded, size=(side, side), mode="bilinear")[0]
        return enlarged[:, margin : margin + self._size, margin : margin + self._size]


class Cifar100(Pictures):
    """CIFAR-100 from its binary files (`train.bin`, `test.bin`), mapped into memory."""

    classes = 100
    names = range(100)

    def __init__(self, file: Path, images: Images) -> None:
        count, rest = divmod(file.stat().st_size, CIFAR_RECORD)
        if rest or not count:
            raise InputError(
                f"workload.data.source: {file} is not CIFAR-100's binary form "
                f"(records of {CIFAR_RECORD} bytes)"
            )
        self.part = file.name
        self._records = np.memmap(file, np.uint8, "r").reshape(count, CIFAR_RECORD)
        self.labels = self._records[:, 1].astype(np.int64)
        if self.labels.max() >= self.classes:
            raise InputError(f"workload.data.source: {file} has labels above 99; not CIFAR-100")
        self.metadata = {"coarse_label": self._records[:, 0].astype(np.int64)}
        self._to = images

    def images(self, indices: Sequence[int] | Indices) -> Tensor:
        """Images [n, 3, S, S]."""
        pixels = np.ascontiguousarray(self._records[np.asarray(indices), 2:])
        images = torch.from_numpy(pixels).view(-1, 3, 32, 32).float().div_(255)
        return normalised(images, self._to)


class Folder(EncodedPictures):
    """Images in one folder per class; classes are in the order of the training folders' names.

    The classes are in the folders of parts such as `train/` and `test/`; or directly in `root`, and
    one image in ten is held out at random by seed. With `by_client`, there is one folder per client
    in their place, and the folders of classes are in it.
    """

    def __init__(
        self, root: Path, images: Images, seed: int, train: bool, by_client: bool = False
    ) -> None:
        root, files = (client_folders if by_client else picture_folders)(root)
        fit = chosen = files.train[0]
        if files.held_out is not None and not train:
            chosen = files.held_out[0]
        elif not train and fit != root:
            raise InputError(
                f"{FIELD}: {root} has {fit.name}/, but no part such as test/ or val/, so nothing "
                "is held out to evaluate on"
            )
        here = {each: classes_in(each) if by_client else [""] for each in {fit, chosen}}

        def classes(folder: Path) -> list[str]:
            found = {name for client in here[folder] for name in classes_in(folder / client)}
            return sorted(found, key=by_number)

        self.names = names = classes(fit)
        if empty := [
            name for name in names if train and not by_client and not has_pictures(fit / name)
        ]:
            raise InputError(f"{FIELD}: {fit} has the class {empty[0]!r}, but no pictures of it")
        if strange := sorted(set(classes(chosen)) - set(names)):
            raise InputError(
                f"{FIELD}: {chosen} has the class {strange[0]!r}, which {fit.name}/ lacks"
            )
        listing = [
            (path, label, client)
            for label, name in enumerate(names)
            for client in here[chosen]
            if not by_client or (chosen / client / name).is_dir()
            for path in pictures_below(chosen / client / name)
        ]
        labels = np.array([label for _, label, _ in listing], dtype=np.int64)
        if fit == root:
            held_out = is_held_out(labels, seed)
            listing = [listing[index] for index in np.flatnonzero(held_out != train)]
            labels = labels[held_out != train]
        if not len(labels):
            use = "train" if train else "evaluate"
            raise InputError(f"{FIELD}: {root} has no image to {use} on")
        self._paths = [path for path, _, _ in listing]
        self.labels = labels
        owners = np.array([client for *_, client in listing])
        self.metadata = {CLIENT: owners} if by_client else pictures_metadata(root, self._paths)
        self.classes = len(names)
        self.folder = chosen
        self.part = "" if fit == root else f"{chosen.name}/"
        self.unused = [f"{folder.name}/" for folder in files.unused]
        self._to = images

    def _encoded(self, index: int) -> tuple[str, bytes]:
        path = self._paths[index]
        return path, picture_bytes(Path(path))


class SyntheticTokens:
    """Random sequences with one topic each; in each topic, only few tokens may follow a token.

    The followers are random by seed, topic and token, so a model has to infer the topic from the
    previous tokens, and can then predict the next one with probability 1 / `FOLLOWERS`.
    """

    metadata = NO_METADATA

    def __init__(self, samples: int, tokens: Tokens, seed: int, train: bool) -> None:
        self.classes = tokens.vocabulary
        self.labels = np.arange(samples, dtype=np.int64) % TOPICS
        self._tokens, self._seed, self._train = tokens, seed, train
        random = np.random.default_rng([seed, 0x70C5])
        shape = (TOPICS, tokens.vocabulary, FOLLOWERS)
        self._follow = random.integers(tokens.vocabulary, size=shape)

    def batch(self, indices: Indices) -> tuple[Tensor, Tensor]:
        """Tokens [n, length] and the next tokens [n, length]."""
        return shifted(np.stack([self._sequence(int(index)) for index in indices]))

    def _sequence(self, index: int) -> Indices:
        random = np.random.default_rng([self._seed, index, int(self._train)])
        follow = self._follow[self.labels[index]]
        sequence = np.empty(self._tokens.length + 1, np.int64)
        sequence[0] = random.integers(self._tokens.vocabulary)
        for place, which in enumerate(random.integers(FOLLOWERS, size=self._tokens.length)):
            sequence[place + 1] = follow[sequence[place], which]
        return sequence


def open_data(
    config: DataConfig, classes: int, input_: Images | Tokens, train: bool = True
) -> Dataset:
    """Open the data set of a configuration.

    Args:
        config: Configuration of the data.
        classes: Number of classes of the model.
        input_: Input format of the model.
        train: Whether to open the training set instead of the held-out one.

    Raises:
        InputError: The source is invalid; the message is one line.
    """
    try:
        return _open_data(config, classes, input_, train)
    except OSError as error:
        raise InputError(f"{FIELD}: {error.filename}: {error.strerror}") from None


def _open_data(config: DataConfig, classes: int, input_: Images | Tokens, train: bool) -> Dataset:
    data: Pictures
    if config.source == "synthetic":
        samples = config.samples if train else min(config.samples, 500)
        if isinstance(input_, Tokens):
            return SyntheticTokens(samples, input_, config.seed, train)
        return Synthetic(samples, classes, input_.size, config.seed, train)
    if isinstance(input_, Tokens):
        if (root := Path(config.source).expanduser()).is_dir() and (files := array_files(root)):
            return ArrayTexts(root, files, input_, config, train)
        return open_tokens(config, input_, train)
    for name in ("tokenizer", "text_column"):
        if getattr(config, name) is not None:
            raise InputError(f"workload.data.{name}: the model takes images, not tokens")
    root = Path(config.source).expanduser()
    if not root.is_dir():
        raise InputError(f"workload.data.source: {root} is neither 'synthetic' nor a folder")
    binary = [root / "cifar-100-binary", root]
    pickled = [root / "cifar-100-python", root]
    name = "train.bin" if train else "test.bin"
    if found := [folder / name for folder in binary if (folder / name).is_file()]:
        data = Cifar100(found[0], input_)
    elif any((folder / "meta").is_file() and (folder / "train").is_file() for folder in pickled):
        raise InputError(
            f"workload.data.source: {root} holds CIFAR-100 as Python pickles, which can run code "
            "when read; use the binary version (cifar-100-binary.tar.gz: train.bin, test.bin)"
        )
    else:
        # Imported here, because only tables need it.
        from workloads.data.tables import PictureTable, table_files

        if table_files(root) is not None:
            data = PictureTable(root, input_, config, train)
        elif (files := array_files(root)) is not None:
            return ArrayPictures(root, files, input_, classes, config.seed, train)
        else:
            by_client = config.partition == COLUMN and not has_table(root)
            data = Folder(root, input_, config.seed, train, by_client)
    if data.classes != classes:
        raise InputError(
            f"{FIELD}: {root} has {classes_in_words(data)} and workload.classes is {classes}"
        )
    return data


def classes_in_words(data: Pictures) -> str:
    """The number of classes, and their names or ids, of which at most `SHOWN` are given."""
    count = "1 class" if data.classes == 1 else f"{data.classes} classes"
    if isinstance(data.names, range):
        return f"{count} (ids 0 to {data.classes - 1})"
    shown = ", ".join(str(name) for name in data.names[:SHOWN])
    return f"{count} ({shown}{', …' * (data.classes > SHOWN)})"


@dataclass(frozen=True)
class Passes:
    """Batches that pass over a client's data without replacement (`workload.sampling: epochs`)."""

    iterations: int
    """Local iterations per round; passes continue over the rounds."""
    keeps_last: bool
    """Whether a pass ends with a batch of the remaining samples if they do not fill one."""


PASS_SEED = 0xE90C
"""Distinguishes the permutations of passes from other random draws."""


@dataclass(frozen=True)
class ClientData:
    """One client's share of a data set, and its batches."""

    dataset: Dataset
    indices: Indices
    """Indices into the data set; their number is |D_k|, the client's weight in aggregation."""
    client: int
    """Index of the client, starting from 1."""
    batch_size: int
    seed: int
    noise: float = 0.0
    """Standard deviation of the noise in this client's images, relative to that of a colour
    channel."""
    passes: Passes | None = None
    """None: each batch is a fresh draw."""

    @property
    def batches(self) -> int:
        """Number of batches per pass; 0 if none is full and a smaller one is not kept."""
        assert self.passes is not None, "fresh draws have no passes"
        full, rest = divmod(len(self.indices), self.batch_size)
        return full + (rest > 0 and self.passes.keeps_last)

    def batch(
        self, round_index: int, iteration: int, batch_size: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Samples and labels of one local iteration, see `Dataset.batch`.

        Without passes they are drawn without replacement (with replacement if the client has fewer
        than B samples).

        Args:
            round_index: Index of the round, starting from 0.
            iteration: Number of the iteration, from 1.
            batch_size: Number of samples B (default: the client's).
        """
        samples, labels = self.dataset.batch(self.choice(round_index, iteration, batch_size))
        if self.noise:
            random = generator(self.seed, f"noise {self.client} {round_index} {iteration}")
            samples = samples + self.noise * torch.randn(samples.shape, generator=random)
        return samples, labels

    def choice(self, round_index: int, iteration: int, batch_size: int | None = None) -> Indices:
        """Indices of the samples in a batch, shape [B], or fewer in the last batch of a pass."""
        if self.passes is not None:
            step = round_index * self.passes.iterations + iteration - 1
            number, place = divmod(step, self.batches)
            random = np.random.default_rng([self.seed, self.client, number, PASS_SEED])
            start = place * self.batch_size
            return random.permutation(self.indices)[start : start + self.batch_size]
        random = np.random.default_rng([self.seed, self.client, round_index, iteration])
        count = batch_size or self.batch_size
        return random.choice(self.indices, count, replace=len(self.indices) < count)

    def size(self, round_index: int, iteration: int) -> int:
        """Number of samples in a batch."""
        return self.batch_size if self.passes is None else len(self.choice(round_index, iteration))

    def passing(self, passes: Passes) -> "ClientData":
        """The same data with batches that pass over them.

        Raises:
            InputError: A pass would have no batch.
        """
        made = replace(self, passes=passes)
        if not made.batches:
            raise InputError(
                f"workload.batch_size: uav{self.client} has {len(self.indices)} samples, which do "
                f"not fill a batch of {self.batch_size}; an epoch needs one, or "
                "workload.last_batch 'keep'"
            )
        return made


def client_data(
    dataset: Dataset, config: DataConfig, clients: int, batch_size: int | Sequence[int]
) -> list[ClientData]:
    """The data of each of K clients, in order; `batch_size` is one number, or one per client.

    With feature skew, client k's images have k / K of the configured noise (Li et al. 2022).
    """
    noise = config.noise / clients if config.partition == "feature" else 0.0
    if noise and not isinstance(dataset, Pictures):
        raise InputError("workload.data.partition: 'feature' requires images, but these are tokens")
    if config.partition in ("dirichlet", "shards") and isinstance(dataset, TokenSequences):
        raise InputError(
            f"workload.data.partition: {config.partition!r} requires labels, which sequences of "
            "tokens from a file do not have; use 'quantity' for shares of different sizes"
        )
    sizes = [batch_size] * clients if isinstance(batch_size, int) else batch_size
    return [
        ClientData(dataset, indices, client, sizes[client - 1], config.seed, client * noise)
        for client, indices in enumerate(
            partition(dataset.labels, clients, config, dataset.metadata), start=1
        )
    ]


def holdings(share: ClientData) -> list[tuple[int, int]]:
    """Classes of a client's samples, with the number of samples of each."""
    classes, counts = np.unique(share.dataset.labels[share.indices], return_counts=True)
    return list(zip(classes.tolist(), counts.tolist(), strict=True))
