# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Ends of streams: the sizes that codecs may make, and what arrives of them."""

import pytest
import torch

from testbed.core.errors import RunError
from workloads.codecs.codec import Stream, varies
from workloads.learning.streams import AdapterUploads, Receiver, Sender
from workloads.learning.work import place_for


class Zeros:
    """Omits the zeros at the end, or fails to keep its promise by `wrong` bytes."""

    def __init__(self, bound: bool = True, wrong: int = 0) -> None:
        self.wrong = wrong
        if bound:
            self.size_is_bound = True

    def size(self, values: int) -> int:
        return 4 * values

    def encode(self, values: torch.Tensor, stream: Stream) -> bytes:
        data = values.numpy().tobytes().rstrip(b"\0")
        return data + bytes(self.wrong)

    def decode(self, data: memoryview, values: int, stream: Stream) -> torch.Tensor:
        whole = bytearray(4 * values)
        whole[: len(data)] = data
        return torch.frombuffer(whole, dtype=torch.float32)


VALUES = torch.tensor([1.5, -2.25, 0.0, 0.0])


def test_sizes_may_depend_on_the_data_if_the_codec_says_so() -> None:
    assert varies(Zeros())
    assert not varies(Zeros(bound=False))
    assert not varies(None)
    sent = Sender(Zeros(), "smashed").encode(VALUES)
    assert len(sent) < 16
    received = Receiver(Zeros(), "smashed").decode(memoryview(bytearray(sent)), (2, 2))
    assert torch.equal(received.flatten(), VALUES)
    with pytest.raises(
        RunError, match=r"the codec made \d+ bytes of 4 values, but its size\(\) is 16"
    ):
        Sender(Zeros(bound=False), "smashed").encode(VALUES)


@pytest.mark.parametrize(("values", "wrong"), [(torch.ones(4) + 1e-7, 1), (torch.zeros(4), 0)])
def test_more_bytes_than_the_bound_and_none_at_all_are_errors(
    values: torch.Tensor, wrong: int
) -> None:
    with pytest.raises(RunError, match=r"^workload\.wire_dtype: the codec made (17|0) bytes of 4"):
        Sender(Zeros(wrong=wrong), "gradient").encode(values)


def test_adapters_of_varying_size_feed_their_error_back() -> None:
    uploads = AdapterUploads(Zeros(), feeds_back=True)
    sent = uploads.encode(torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.0]))
    assert len(sent) == 4
    assert uploads.left_out is not None
    assert not uploads.left_out.any()


@pytest.mark.parametrize(
    ("size", "is_varying", "place"),
    [(5, True, 5), (8, True, 8), (9, True, 8), (0, True, 8), (5, False, 8), (2**63, True, 8)],
)
def test_a_payload_gets_room_only_within_its_bound(size: int, is_varying: bool, place: int) -> None:
    buffer = memoryview(bytearray(8))
    assert len(place_for(lambda given: buffer[:given], size, is_varying)) == place
