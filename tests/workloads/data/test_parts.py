# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Training and held-out parts by the names of files and folders; ambiguous names are refused."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from testbed.core.errors import InputError
from workloads.data import tables
from workloads.data.config import DataConfig
from workloads.data.digests import data_digests
from workloads.data.parts import part_of
from workloads.data.samples import client_data, open_data, partition
from workloads.learning.examined import data_line
from workloads.models.chain import Images, Tokens
from workloads.models.config import ModelConfig

MODEL = ModelConfig("vit_nano_patch8_64", 3)


def encoded(value: int = 100) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.full((8, 8), value, np.uint8)).save(out, "PNG")
    return out.getvalue()


def write(root: Path, name: str, rows: int) -> None:
    """A table of so many rows."""
    cells = [{"bytes": encoded(), "path": None}] * rows
    table = pa.table({"image": cells, "label": [k % 3 for k in range(rows)]})
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, root / name)


def fill(root: Path, *folders: str, count: int = 10) -> Path:
    for folder in folders:
        (root / folder).mkdir(parents=True)
        for index in range(count):
            (root / folder / f"{index}.png").write_bytes(encoded(index))
    return root


def counts(root: Path) -> tuple[int, int]:
    """Samples for training, and held out."""
    parts = [open_data(DataConfig(str(root)), 3, Images(8), train) for train in (True, False)]
    return len(parts[0].labels), len(parts[1].labels)


def line(root: Path, model: ModelConfig = MODEL, evaluates: bool = True) -> str:
    data = DataConfig(str(root))
    return data_line(model, data, data_digests(root), evaluates, root.parent / "cache")


@pytest.mark.parametrize(
    ("name", "part"),
    [
        *(
            (word, "train")
            for word in ("train", "Training", "TRAIN_0", "train00", "mnist-train.v2")
        ),
        *((word, "test") for word in ("test", "Testing", "my eval", "evaluation(1)", "test_01")),
        *((word, "validation") for word in ("val", "VALID", "dev.1", "x_validation_y")),
        *((word, "") for word in ("", "trained", "contest", "valley", "traintest", "über-évals")),
    ],
)
def test_a_word_of_a_name_says_its_part(name: str, part: str) -> None:
    assert part_of(name) == part


@pytest.mark.parametrize(
    "names",
    [
        ("train-00000-of-00001.parquet", "test-00000-of-00001.parquet"),
        ("train_00.parquet", "test_00.parquet"),
        ("mnist_train.parquet", "mnist_test.parquet"),
        ("Train.parquet", "Test.parquet"),
        ("train.parquet", "valid.parquet"),
        ("training.parquet", "dev.parquet"),
        ("training/0.parquet", "testing/0.parquet"),
        ("data/train/0000.parquet", "data/test/0000.parquet"),
        ("default/train/0000.parquet", "default/validation/0000.parquet"),
        ("plain/Train-0.parquet", "plain/eval-0.parquet"),
    ],
)
def test_no_table_is_both_for_training_and_held_out(tmp_path: Path, names: tuple[str, str]) -> None:
    write(tmp_path, names[0], 30)
    write(tmp_path, names[1], 12)
    assert counts(tmp_path) == (30, 12)


def test_the_test_part_is_held_out_rather_than_the_validation_part(tmp_path: Path) -> None:
    for name, rows in (("train", 30), ("valid", 9), ("test", 12), ("extra", 6)):
        write(tmp_path / "t", f"{name}.parquet", rows)
    assert counts(tmp_path / "t") == (30, 12)
    assert line(tmp_path / "t") == (
        "3 classes (ids 0 to 2), 30 training samples in train.parquet, 12 held out in "
        "test.parquet, not used: extra.parquet, valid.parquet"
    )


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["test.parquet", "other.parquet"], "has no training part, only test, and others"),
        (["test.parquet", "valid.parquet"], "has no training part, only test and validation"),
        (["train_test.parquet", "x.parquet"], r"train_test\.parquet names several parts"),
        (["a/train.parquet", "b/train.parquet"], r"several sets of tables, in a, b;"),
    ],
)
def test_tables_whose_use_is_ambiguous_are_refused(
    tmp_path: Path, names: list[str], says: str
) -> None:
    for name in names:
        write(tmp_path, name, 3)
    with pytest.raises(InputError, match=rf"^workload\.data\.source: .*{says}") as refusal:
        counts(tmp_path)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("parts", "below"),
    [
        (("train", "test"), ""),
        (("Train", "Test"), ""),
        (("training", "testing"), ""),
        (("fruit_train", "fruit_valid"), ""),
        (("TRAIN", "dev"), "archive/"),
    ],
)
def test_folders_of_parts_are_no_classes(
    tmp_path: Path, parts: tuple[str, str], below: str
) -> None:
    fill(tmp_path, *(f"{below}{parts[0]}/{name}" for name in "abc"))
    fill(tmp_path, *(f"{below}{parts[1]}/{name}" for name in "abc"), count=4)
    (tmp_path / "annotations").mkdir()
    assert counts(tmp_path) == (30, 12)


def test_a_class_may_have_a_keyword_in_its_name(tmp_path: Path) -> None:
    fill(tmp_path, "beaker", "test tube", "flask")
    assert counts(tmp_path) == (27, 3)


@pytest.mark.parametrize(
    ("folders", "says"),
    [
        (["train", "test"], r"test/, train/ in .* need one folder per class"),
        (["train/a", "train/b", "car"], r"ambiguous: train/ would be parts .* car/ classes"),
        (["train/a", "Training/a"], "one part several times: Training/, train/"),
        (["test/a", "test/b", "other/a"], "has no training part"),
        (["cat/train", "cat/test", "dog/train"], "cat has the folder test/; parts must hold"),
        (["x/a", "x/b", "y/a", "y/b"], "ambiguous: x/, y/ each have folders a, b"),
        (["Images/a", "Images/b"], r"has 1 class \(Images\) and workload\.classes is 3"),
        (["a", "b"], r"has 2 classes \(a, b\) and workload\.classes is 3"),
        (["a", "b", "c", "d"], r"has 4 classes \(a, b, c, d\) and workload\.classes is 3"),
    ],
)
def test_folders_whose_use_is_ambiguous_are_refused(
    tmp_path: Path, folders: list[str], says: str
) -> None:
    fill(tmp_path, *folders)
    with pytest.raises(InputError, match=rf"^workload\.data\.source: .*{says}") as refusal:
        counts(tmp_path)
    assert "\n" not in str(refusal.value)


def test_a_class_without_pictures_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, "a", "b")
    (tmp_path / "c").mkdir()
    with pytest.raises(InputError, match="the class 'c', but no pictures of it"):
        counts(tmp_path)


@pytest.mark.parametrize("labels", [[0, 10**6, 2 * 10**9], [0, 1, 10**12], [0, 1, 2**63 - 1]])
def test_large_label_ids_are_refused_at_once(tmp_path: Path, labels: list[int]) -> None:
    pq.write_table(pa.table({"image": [encoded()] * 3, "label": labels}), tmp_path / "x.parquet")
    with pytest.raises(InputError, match=r"^workload\.data\.source: .*(ids 0 to|the label)"):
        counts(tmp_path)


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ([0, 1, -1], "the label -1; labels are"),
        ([0.0, 1.0, 2.0], "label_column"),
        ([0, 1, None], ""),
    ],
)
def test_labels_that_are_no_classes_are_refused(
    tmp_path: Path, labels: list[object], says: str
) -> None:
    pq.write_table(pa.table({"image": [encoded()] * 3, "label": labels}), tmp_path / "x.parquet")
    with pytest.raises(InputError, match=rf"^workload\.data.*{says}"):
        counts(tmp_path)


def test_labels_may_be_integers_of_different_types(tmp_path: Path) -> None:
    for name, kind in (("train", pa.int64()), ("test", pa.uint8())):
        table = pa.table({"image": [encoded()] * 3, "label": pa.array([0, 1, 2], kind)})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    assert counts(tmp_path) == (3, 3)
    table = pa.table({"image": [encoded()] * 3, "label": ["0", "1", "2"]})
    pq.write_table(table, tmp_path / "test.parquet")
    tables._opened.cache_clear()
    with pytest.raises(InputError, match="labels of another type than the training part"):
        counts(tmp_path)


def test_files_with_labels_of_different_types_are_refused(tmp_path: Path) -> None:
    for name, labels in (("a", [0, 1]), ("b", ["x", "y"])):
        table = pa.table({"image": [encoded()] * 2, "label": labels})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    with pytest.raises(InputError, match="numbers in one file, and text in another"):
        counts(tmp_path)


def test_what_is_recognised_is_said_in_one_line(tmp_path: Path) -> None:
    root = fill(tmp_path / "flat", "a", "b", "c")
    expected = (
        "3 classes (a, b, c), 27 training samples, 3 held out (a tenth of each class, by seed)"
    )
    assert line(root) == expected
    assert line(root) == expected, "from the cache"
    only = fill(tmp_path / "only", *(f"train/{name}" for name in "abc"))
    assert line(only, evaluates=False).endswith("30 training samples in train/, none held out")
    with pytest.raises(InputError, match="no part such as test/"):
        line(only)
    many = fill(tmp_path / "many", *(f"c{number:02}" for number in range(11)), count=1)
    assert line(many, ModelConfig("vit_nano_patch8_64", 11), evaluates=False) == (
        "11 classes (c00, c01, c02, c03, c04, c05, c06, c07, …), 11 training samples, none held out"
    )


def test_all_unreadable_pictures_are_counted_and_the_first_is_named(tmp_path: Path) -> None:
    root = fill(
        tmp_path / "set", *(f"{part}/{name}" for part in ("train", "val") for name in "abc")
    )
    (root / "train/b/3.png").write_bytes(encoded()[:40])
    (root / "train/c/0.png").write_bytes(b"")
    (root / "val/a/1.png").write_bytes(b"no picture")
    says = (
        r"^workload\.data\.source: 3 of 60 pictures cannot be read; the first is .*train/b/3\.png: "
    )
    with pytest.raises(InputError, match=says) as refusal:
        line(root)
    assert "\n" not in str(refusal.value)


def test_files_that_are_not_read_are_counted(tmp_path: Path) -> None:
    root = fill(tmp_path / "set", "a", "b", "c")
    for name in ("x.gif", "y.heic", ".hidden"):
        (root / "b" / name).write_bytes(b"")
    assert line(root).endswith("2 files not read, as their names do not end like pictures")
    (root / "0.png").write_bytes(encoded())
    assert ", 1 pictures outside of the folders of classes not read, 2 files" in line(root)


def test_missing_files_of_cells_are_unreadable_pictures(tmp_path: Path) -> None:
    cells = [{"bytes": encoded(), "path": "x"}] * 2 + [{"bytes": None, "path": "gone.png"}]
    table = pa.table({"image": cells, "label": [0, 1, 2]})
    (tmp_path / "t").mkdir()
    pq.write_table(table, tmp_path / "t" / "x.parquet")
    says = "1 of 3 pictures cannot be read; the first is .*No such file.*gone"
    with pytest.raises(InputError, match=says):
        line(tmp_path / "t", evaluates=False)
    with pytest.raises(InputError, match=r"^workload\.data\.source: .*No such file.*gone"):
        open_data(DataConfig(str(tmp_path / "t")), 3, Images(8)).batch(np.array([2]))


def test_digests_say_which_folder_has_changed(tmp_path: Path) -> None:
    root = fill(tmp_path / "set", "a", "b")
    write(root, "t.parquet", 3)
    before = data_digests(root)
    assert before.keys() == {"a/", "b/", "t.parquet"}
    (root / "a/0.png").write_bytes(encoded(9))
    (root / "notes.txt").write_text("no data")
    after = data_digests(root)
    assert {name for name in before if before[name] != after[name]} == {"a/"}
    (root / "b/0.png").rename(root / "b/x.png")
    assert data_digests(root)["b/"] != after["b/"]


def test_classes_without_samples_are_said(tmp_path: Path) -> None:
    cells = [encoded()] * 30
    table = pa.table({"image": cells, "label": [0] * 25 + [2] * 5})
    (tmp_path / "t").mkdir()
    pq.write_table(table, tmp_path / "t" / "x.parquet")
    assert line(tmp_path / "t").endswith(
        "28 training samples, 2 held out (a tenth of each class, by seed), no samples to train on "
        "of 1 of the classes, no samples to evaluate on of 2 of the classes"
    )


def test_token_sequences_have_no_label_skew(tmp_path: Path) -> None:
    np.save(tmp_path / "train.npy", np.zeros((50, 4), int))
    config = DataConfig(str(tmp_path), partition="dirichlet")
    data = open_data(config, 9, Tokens(3, 9))
    assert (data.classes, len(data.labels)) == (9, 50)
    with pytest.raises(InputError, match=r"^workload\.data\.partition: 'dirichlet' requires"):
        client_data(data, config, 2, 4)
    config = DataConfig(str(tmp_path), partition="quantity")
    assert sum(len(share.indices) for share in client_data(data, config, 2, 4)) == 50


@pytest.mark.parametrize("kind", ["iid", "dirichlet", "quantity", "feature"])
def test_every_uav_has_samples_and_every_sample_one_uav(kind: Any) -> None:
    labels = np.repeat(np.arange(5), 8)
    parts = partition(labels, 10, DataConfig(partition=kind, concentration=2.0))
    assert sorted(np.concatenate(parts).tolist()) == list(range(40))
    assert min(map(len, parts)) >= 1
    for clients in (41, 1000):
        with pytest.raises(
            InputError, match=rf"^workload\.data: 40 samples .* {clients} clients 1$"
        ):
            partition(labels, clients, DataConfig(partition=kind))
