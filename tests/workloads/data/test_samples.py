# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Data sets, partitions and batches: functions of their seeds, and refusals with reasons."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision.io import write_png

from testbed.core.errors import InputError
from workloads.data.samples import (
    Dataset,
    Passes,
    Synthetic,
    client_data,
    open_data,
    partition,
)
from workloads.learning.settings import DataConfig
from workloads.models.chain import DEVIATION, MEAN, Images, Tokens


def write_cifar(folder: Path, count: int = 40) -> np.ndarray:
    folder.mkdir(parents=True)
    random = np.random.default_rng(3)
    records = random.integers(0, 256, (count, 2 + 3072), dtype=np.uint8)
    records[:, 0] %= 20
    records[:, 1] %= 100
    (folder / "train.bin").write_bytes(records.tobytes())
    (folder / "test.bin").write_bytes(records[:10].tobytes())
    return records


def test_cifar_is_read_from_its_binary_files(tmp_path: Path) -> None:
    records = write_cifar(tmp_path / "cifar-100-binary")
    for root in (tmp_path, tmp_path / "cifar-100-binary"):
        data = open_data(DataConfig(source=str(root)), classes=100, input_=Images(32))
        assert data.labels.tolist() == records[:, 1].tolist(), "the fine labels"
        image = data.images([7])[0] * torch.tensor(DEVIATION).view(3, 1, 1)
        image = (image + torch.tensor(MEAN).view(3, 1, 1)) * 255
        red = records[7, 2 : 2 + 1024].reshape(32, 32)
        torch.testing.assert_close(image[0], torch.from_numpy(red).float(), atol=1e-2, rtol=0)
    assert (
        len(open_data(DataConfig(source=str(tmp_path)), 100, Images(32), train=False).labels) == 10
    )
    assert data.images([0, 1]).shape == (2, 3, 32, 32)
    assert open_data(DataConfig(source=str(tmp_path)), 100, Images(64)).images([1]).shape == (
        1,
        3,
        64,
        64,
    )


def test_pickled_cifar_is_refused_with_the_reason(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name in ("meta", "train", "test"):
        (folder / name).write_bytes(pickle.dumps({b"data": b""}))
    for root in (tmp_path, folder):
        with pytest.raises(InputError, match=r"^workload\.data\.source: .*can run code.*binary"):
            open_data(DataConfig(source=str(root)), 100, Images(32))


def test_broken_cifar_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.bin").write_bytes(b"x" * 3075)
    with pytest.raises(InputError, match=r"^workload\.data\.source: .*not CIFAR-100"):
        open_data(DataConfig(source=str(tmp_path)), 100, Images(32))


def test_any_image_folder(tmp_path: Path) -> None:
    for label, name in enumerate(("bees", "ants")):
        (tmp_path / "train" / name).mkdir(parents=True)
        for index in range(2):
            shade = torch.full((3, 20, 30 + index), 60 * (label + 1), dtype=torch.uint8)
            write_png(shade, str(tmp_path / "train" / name / f"{index}.png"))
    data = open_data(DataConfig(source=str(tmp_path)), classes=2, input_=Images(16))
    assert data.classes == 2
    assert data.labels.tolist() == [0, 0, 1, 1]
    images = data.images([0, 3])
    assert images.shape == (2, 3, 16, 16)
    expected = (torch.tensor([120.0, 60.0]) / 255 - MEAN[0]) / DEVIATION[0]
    torch.testing.assert_close(images[:, 0].mean((1, 2)), expected, atol=1e-3, rtol=0)
    for classes in (1, 3):
        says = rf"has 2 classes \(ants, bees\) and workload\.classes is {classes}$"
        with pytest.raises(InputError, match=says):
            open_data(DataConfig(source=str(tmp_path)), classes, Images(16))
    (tmp_path / "train" / "ants" / "0.png").write_bytes(b"no image")
    # Samples that were asked for before are kept.
    torch.testing.assert_close(data.images([0]), images[:1], atol=0, rtol=0)
    data = open_data(DataConfig(source=str(tmp_path)), classes=2, input_=Images(16))
    with pytest.raises(InputError, match=r"^workload\.data\.source: .*0\.png"):
        data.images([0])


def picture(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True)
    for name in names:
        shade = torch.full((3, 16, 16), int(name), dtype=torch.uint8)
        write_png(shade, str(folder / f"{name}.png"))


def held_out(root: Path, seed: int = 1, train: bool = False, classes: int = 2) -> Dataset:
    return open_data(DataConfig(source=str(root), seed=seed), classes, Images(16), train)


def test_held_out_images_bear_the_labels_of_training(tmp_path: Path) -> None:
    for name in ("ant", "bee", "cat"):
        picture(tmp_path / "train" / name, "1", "2")
    picture(tmp_path / "val" / "cat", "3")
    data = held_out(tmp_path, classes=3)
    assert data.classes == 3
    assert data.labels.tolist() == [2]  # not 0, though it is the only class there


def test_a_split_without_held_out_images_is_refused_when_they_are_needed(tmp_path: Path) -> None:
    picture(tmp_path / "train" / "ant", "1")
    assert len(held_out(tmp_path, train=True, classes=1).labels) == 1
    with pytest.raises(InputError, match=r"^workload\.data\.source: .*no part such as test/"):
        held_out(tmp_path)


def test_a_class_that_was_never_trained_is_refused(tmp_path: Path) -> None:
    picture(tmp_path / "train" / "ant", "1")
    picture(tmp_path / "test" / "bee", "1")
    with pytest.raises(InputError, match="the class 'bee', which train/ lacks"):
        held_out(tmp_path)


def test_held_out_images_without_training_ones_are_refused(tmp_path: Path) -> None:
    picture(tmp_path / "test" / "bee", "1")
    with pytest.raises(InputError, match="has test/, but no training part"):
        held_out(tmp_path, train=True)


def test_a_folder_of_classes_is_split_by_seed(tmp_path: Path) -> None:
    for name in ("ant", "bee"):
        picture(tmp_path / name, *map(str, range(20)))

    def shades(seed: int, train: bool) -> set[tuple[int, float]]:
        data = held_out(tmp_path, seed, train)
        values = data.images(range(len(data.labels)))[:, 0, 0, 0].tolist()
        return {(label, value) for label, value in zip(data.labels.tolist(), values, strict=True)}

    training, rest = shades(1, True), shades(1, False)
    assert (len(training), len(rest)) == (36, 4)
    assert not training & rest
    assert sorted(label for label, _ in rest) == [0, 0, 1, 1]
    assert shades(1, False) == rest
    assert shades(2, False) != rest


def test_too_few_images_to_hold_any_out_are_refused(tmp_path: Path) -> None:
    picture(tmp_path / "ant", "1", "2")
    assert len(held_out(tmp_path, train=True, classes=1).labels) == 2
    with pytest.raises(InputError, match="no image to evaluate on"):
        held_out(tmp_path)


@pytest.mark.parametrize("source", ["/nowhere/at/all", "syntetic"])
def test_other_sources_are_refused(source: str) -> None:
    with pytest.raises(InputError, match=r"^workload\.data\.source: "):
        open_data(DataConfig(source=source), 10, Images(32))


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^workload\.data\.source: "):
        open_data(DataConfig(source=str(tmp_path)), 10, Images(32))


def test_synthetic_images_depend_on_seed_and_index_alone() -> None:
    data = Synthetic(50, 5, 64, seed=1, train=True)
    again = Synthetic(80, 5, 64, seed=1, train=True)
    assert torch.equal(data.images([3, 9])[1], again.images([9])[0])
    assert not torch.equal(data.images([9]), Synthetic(50, 5, 64, 2, True).images([9]))
    assert not torch.equal(data.images([9]), Synthetic(50, 5, 64, 1, False).images([9]))
    assert np.bincount(data.labels).tolist() == [10] * 5


def test_synthetic_patterns_are_cyclic() -> None:
    """A pattern shifted over the edge has no seam that would give its position away."""
    pattern = Synthetic(10, 2, 64, 1, True)._pattern(0)
    inner = (pattern[:, 1:] - pattern[:, :-1]).abs().amax()
    seam = (pattern[:, 0] - pattern[:, -1]).abs().amax()
    assert seam <= inner * 1.01


@pytest.mark.parametrize("kind", ["iid", "dirichlet"])
def test_every_sample_has_one_client(kind: str) -> None:
    labels = np.arange(1000) % 10
    config = DataConfig(partition=kind, concentration=0.3, seed=5)
    parts = partition(labels, 7, config)
    assert sorted(np.concatenate(parts).tolist()) == list(range(1000))
    assert min(map(len, parts)) >= 1
    assert all(
        np.array_equal(a, b) for a, b in zip(parts, partition(labels, 7, config), strict=True)
    )
    other = partition(labels, 7, DataConfig(partition=kind, seed=6))
    assert any(not np.array_equal(a, b) for a, b in zip(parts, other, strict=True))


def test_concentration_makes_the_difference() -> None:
    labels = np.arange(2000) % 10

    def unevenness(config: DataConfig) -> float:
        parts = partition(labels, 5, config)
        return float(np.mean([np.bincount(labels[p], minlength=10).std() for p in parts]))

    iid = unevenness(DataConfig())
    mild = unevenness(DataConfig(partition="dirichlet", concentration=10))
    strong = unevenness(DataConfig(partition="dirichlet", concentration=0.1))
    assert iid < mild < strong / 2


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(InputError, match=r"^workload\.data: 3 samples"):
        partition(np.zeros(3, dtype=np.int64), 4, DataConfig())


def test_batches_depend_on_seed_client_round_and_iteration_alone() -> None:
    config = DataConfig(samples=200)
    data = open_data(config, 10, Images(64))
    shares = client_data(data, config, 3, batch_size=8)
    assert sum(len(share.indices) for share in shares) == 200
    batch = shares[1].choice(4, 2)
    shares[1].choice(0, 1)
    assert np.array_equal(batch, shares[1].choice(4, 2))
    assert set(batch.tolist()) <= set(shares[1].indices.tolist())
    assert len(set(batch.tolist())) == 8
    for other in (shares[1].choice(4, 3), shares[1].choice(3, 2), shares[2].choice(4, 2)):
        assert not np.array_equal(batch, other)
    images, labels = shares[1].batch(4, 2)
    assert images.shape == (8, 3, 64, 64)
    assert labels.tolist() == data.labels[batch].tolist()


def test_a_client_with_few_samples_still_fills_its_batch() -> None:
    config = DataConfig(samples=6)
    shares = client_data(open_data(config, 2, Images(64)), config, 2, batch_size=8)
    assert len(shares[0].choice(0, 1)) == 8


@pytest.mark.parametrize("iterations", [1, 3, 5])
@pytest.mark.parametrize(("batch", "samples"), [(8, 40), (8, 43), (7, 22), (1, 5), (5, 5)])
@pytest.mark.parametrize("keeps", [False, True])
def test_each_pass_has_every_sample_once(
    iterations: int, batch: int, samples: int, keeps: bool
) -> None:
    config = DataConfig(samples=2 * samples)
    data = open_data(config, 10, Images(64))
    share = client_data(data, config, 2, batch)[1].passing(Passes(iterations, keeps))
    steps = [(step // iterations, step % iterations + 1) for step in range(3 * share.batches)]
    chosen = [share.choice(*place) for place in steps]
    assert [share.size(*place) for place in steps] == list(map(len, chosen))
    orders = []
    for first in range(0, len(chosen), share.batches):
        own = chosen[first : first + share.batches]
        assert {len(part) for part in own[:-1]} <= {batch}
        assert len(own[-1]) == (samples % batch or batch if keeps else batch)
        order = np.concatenate(own)
        assert len(set(order.tolist())) == len(order) == (samples if keeps else len(own) * batch)
        assert set(order.tolist()) <= set(share.indices.tolist())
        orders.append(order.tolist())
    assert len(set(map(tuple, orders))) == 3, "each pass has an order of its own"
    assert np.array_equal(share.choice(*steps[-1]), chosen[-1]), "whatever was asked before"


def test_a_pass_without_a_full_batch_is_refused() -> None:
    config = DataConfig(samples=21)
    shares = client_data(open_data(config, 3, Images(64)), config, 3, [4, 7, 8])
    assert [share.passing(Passes(1, False)).batches for share in shares[:2]] == [1, 1]
    why = r"^workload\.batch_size: uav3 has 7 samples, which do not fill a batch of 8; .*'keep'$"
    with pytest.raises(InputError, match=why):
        shares[2].passing(Passes(1, False))
    assert shares[2].passing(Passes(1, True)).size(5, 1) == 7


def test_synthetic_tokens_follow_each_other_by_topic() -> None:
    tokens = Tokens(length=12, vocabulary=20)
    data = open_data(DataConfig(samples=400), 20, tokens)
    again = open_data(DataConfig(samples=40), 20, tokens)
    inputs, targets = data.batch(np.arange(40))
    assert inputs.shape == targets.shape == (40, 12)
    assert torch.equal(inputs[:, 1:], targets[:, :-1]), "each token's label is the one after it"
    assert torch.equal(again.batch(np.arange(40))[0], inputs)
    held_out = open_data(DataConfig(samples=400), 20, tokens, train=False)
    assert not torch.equal(held_out.batch(np.arange(40))[0], inputs)
    inputs, targets = data.batch(np.flatnonzero(data.labels == 1))
    for token in range(20):
        assert len(targets[inputs == token].unique()) <= 4
    assert len(set(map(tuple, data.batch(np.arange(400))[0].tolist()))) > 390


def test_token_files(tmp_path: Path) -> None:
    tokens, source = Tokens(length=3, vocabulary=9), DataConfig(source=str(tmp_path))
    np.save(tmp_path / "train.npy", np.arange(8, dtype=np.uint16).reshape(2, 4))
    inputs, targets = open_data(source, 9, tokens).batch(np.array([1]))
    assert (inputs.tolist(), targets.tolist()) == ([[4, 5, 6]], [[5, 6, 7]])
    with pytest.raises(InputError, match=r"^workload\.data\.source: .*test\.npy"):
        open_data(source, 9, tokens, train=False)
    for wrong in (
        np.zeros((2, 5), int),
        np.zeros((2, 4)),
        np.full((2, 4), 9),
        np.zeros((0, 4), int),
    ):
        np.save(tmp_path / "train.npy", wrong)
        with pytest.raises(InputError, match=r"^workload\.data\.source: .*train\.npy") as refusal:
            open_data(source, 9, tokens)
        assert "\n" not in str(refusal.value)
    np.save(tmp_path / "train.npy", np.array([[{}]]), allow_pickle=True)
    with pytest.raises(InputError, match=r"^workload\.data\.source: "):
        open_data(source, 9, tokens)


@pytest.mark.parametrize("name", ["{}", "class{}", "{}-animals", "{:02}"])
def test_class_folders_are_numbered_by_the_numbers_in_their_names(
    tmp_path: Path, name: str
) -> None:
    for label in range(12):
        for part in ("train", "test"):
            picture(tmp_path / part / name.format(label), "1", "2", "10")
    for train in (True, False):
        data = held_out(tmp_path, train=train, classes=12)
        assert list(data.names) == [name.format(label) for label in range(12)]
        assert data.labels.tolist() == [label for label in range(12) for _ in range(3)]
