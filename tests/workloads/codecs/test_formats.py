# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What travels: bytes as counted, values as close as their format allows, feedback that adds up."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from testbed.core.errors import InputError, RunError
from workloads.codecs.codec import Stream
from workloads.codecs.registry import BUILT_IN, codec_of
from workloads.learning.streams import Receiver, Sender

SIZES = (1, 2, 63, 64, 65, 127, 128, 129, 4096)


def through(tensor: Tensor, name: str, **parameters: Any) -> Tensor:
    codec = codec_of(name, parameters)
    sent = bytearray(Sender(codec, "gradient").encode(tensor))
    return Receiver(codec, "gradient").decode(memoryview(sent), tensor.shape)


@pytest.mark.parametrize("name", BUILT_IN)
def test_bytes_are_what_was_counted(name: str) -> None:
    codec = codec_of(name, {})
    for values in SIZES:
        tensor = torch.randn(values)
        assert len(memoryview(codec.encode(tensor, Stream("smashed")))) == codec.size(values)
        assert through(tensor, name).shape == tensor.shape


@pytest.mark.parametrize(
    ("name", "values", "size"),
    [
        ("float32", 1000, 4000),
        ("float16", 1000, 2004),
        ("bfloat16", 1000, 2000),
        ("int8", 1000, 1000 + 4 * 8),
        ("int4", 1001, 501 + 4 * 16),
        ("top-k", 1000, 100 * 4 + 125),
    ],
)
def test_how_many_bytes_formats_take(name: str, values: int, size: int) -> None:
    assert codec_of(name, {}).size(values) == size


def test_few_places_are_numbers_and_many_are_bits() -> None:
    assert codec_of("top-k", {"share": 0.01}).size(10_000) == 100 * (4 + 4)
    assert codec_of("top-k", {"share": 0.5}).size(10_000) == 5000 * 4 + 1250


@pytest.mark.parametrize(
    ("name", "error"), [("float32", 0.0), ("bfloat16", 0.01), ("float16", 2e-3), ("int8", 0.05)]
)
def test_values_come_back_as_close_as_their_format_allows(name: str, error: float) -> None:
    """Also gradients, which are far below float16's smallest number when the loss is a mean."""
    tensor = torch.randn(8, 33, generator=torch.Generator().manual_seed(1))
    for each in (tensor, 1e-9 * tensor, torch.zeros(3, 5)):
        received = through(each, name)
        assert received.shape == each.shape
        assert (received - each).norm() <= error * each.norm()


@pytest.mark.parametrize(("name", "top"), [("int8", 127), ("int4", 7)])
def test_integers_are_the_nearest_steps_of_their_blocks_scale(name: str, top: int) -> None:
    values = torch.randn(201, generator=torch.Generator().manual_seed(2))
    received = through(values, name, block=50).numpy()
    for start in range(0, 201, 50):
        block = values[start : start + 50].numpy()
        scale = np.abs(block).max() / top
        np.testing.assert_allclose(
            received[start : start + 50], np.rint(block / scale) * scale, rtol=1e-6
        )


@pytest.mark.parametrize("share", [0.02, 0.3])
def test_the_largest_values_travel_to_their_places(share: float) -> None:
    values = torch.randn(500, generator=torch.Generator().manual_seed(3))
    kept = np.argsort(-np.abs(values.numpy()))[: round(500 * share)]
    due = np.zeros(500, np.float32)
    due[kept] = values.numpy()[kept]
    np.testing.assert_array_equal(through(values, "top-k", share=share).numpy(), due)


def test_error_feedback_sends_later_what_it_leaves_out() -> None:
    """All that was sent and what is left add up to all that was to be sent, batch for batch."""
    codec, stream = codec_of("top-k", {"share": 0.1, "feedback": "gradient"}), Stream("gradient")
    random = torch.Generator().manual_seed(4)
    due, sent = torch.zeros(200), torch.zeros(200)
    for _ in range(30):
        batch = torch.randn(200, generator=random)
        due += batch
        data = memoryview(bytearray(codec.encode(batch, stream)))
        sent += codec.decode(data, 200, Stream("gradient"))
        torch.testing.assert_close(sent + stream.memory["left_out"], due, rtol=1e-4, atol=1e-4)
    smashed = Stream("smashed")
    codec.encode(batch, smashed)
    assert not smashed.memory, "the other stream was not to be fed back"


def test_errors_are_those_of_the_tensor_and_noted_once_a_batch() -> None:
    tensor = torch.tensor([[3.0, 4.0], [0.0, 12.0]])
    sender = Sender(codec_of("top-k", {"share": 0.25}), "smashed", notes_errors=True)
    sender.note_error(tensor, sender.encode(tensor))
    assert sender.errors == pytest.approx([5 / 13])
    quiet = Sender(codec_of("top-k", {"share": 0.25}), "smashed")
    quiet.note_error(tensor, quiet.encode(tensor))
    assert quiet.errors == []


@pytest.mark.parametrize(
    ("name", "parameters", "says"),
    [
        ("float32", {"block": 8}, "workload.wire_parameters: 'float32' has no parameters"),
        ("int4", {"block": 1}, "block: must be a whole number from 2"),
        ("int8", {"block": 8.0}, "block: must be a whole number from 2"),
        ("top-k", {"share": 0}, "share: must be a number from 1e-06 and below 1, not 0"),
        ("top-k", {"feedback": "up"}, "feedback: must be one of gradient, smashed, both, none"),
    ],
)
def test_wrong_parameters_are_refused(name: str, parameters: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        codec_of(name, parameters)


def test_a_codec_that_breaks_its_word_ends_the_run() -> None:
    class Longer:
        def size(self, values: int) -> int:
            return values

        def encode(self, values: Tensor, stream: Stream) -> bytes:
            return bytes(len(values) + 1)

        def decode(self, data: memoryview, values: int, stream: Stream) -> Tensor:
            raise NotImplementedError

    with pytest.raises(RunError, match=r"made 5 bytes of 4 values, but its size\(\) is 4"):
        Sender(Longer(), "smashed").encode(torch.zeros(2, 2))
