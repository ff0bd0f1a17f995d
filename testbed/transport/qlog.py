# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Logs of the events of this process's QUIC connections in qlog format.

Each log is a sequence of JSON texts (RFC 7464, qlog 0.3): a header, then one text per event with
its Unix time. It is compressed incrementally; a round has hundreds of thousands of events.
"""

import json
import threading
import time
import zlib
from typing import Any

from aioquic.quic.logger import QLOG_VERSION, QuicLogger, QuicLoggerTrace

_BEGIN, _END = b"\x1e", b"\n"
_FAST = 1
"""Compression level whose cost is negligible compared to the packets."""


class Trace(QuicLoggerTrace):
    """The log of one side of a connection."""

    def __init__(self, *, is_client: bool, odcid: bytes) -> None:
        super().__init__(is_client=is_client, odcid=odcid)
        self.connection = odcid.hex()
        """Connection ID, which is equal on both sides."""
        self._lock = threading.Lock()
        self._deflate = zlib.compressobj(_FAST)
        self._is_whole = False
        self._compressed = bytearray()
        self._write(
            {
                "qlog_format": "JSON-SEQ",
                "qlog_version": QLOG_VERSION,
                "trace": {
                    "common_fields": {"ODCID": self.connection, "time_format": "absolute"},
                    "vantage_point": {"type": "client" if is_client else "server"},
                },
            }
        )

    def log_event(self, *, category: str, event: str, data: dict[str, Any]) -> None:
        """See aioquic."""
        at = self.encode_time(time.time())
        self._write({"time": at, "name": f"{category}:{event}", "data": data})

    def compressed(self) -> bytes:
        """The log so far, for `zlib.decompress`; ends the log."""
        with self._lock:
            if not self._is_whole:
                self._compressed += self._deflate.flush()
                self._is_whole = True
            return bytes(self._compressed)

    def _write(self, record: dict[str, Any]) -> None:
        text = json.dumps(record, separators=(",", ":")).encode()
        with self._lock:
            if not self._is_whole:
                self._compressed += self._deflate.compress(_BEGIN + text + _END)


class Logger(QuicLogger):
    """The logs of all connections of a process."""

    def __init__(self) -> None:
        super().__init__()
        self.traces: list[Trace] = []

    def start_trace(self, is_client: bool, odcid: bytes) -> QuicLoggerTrace:
        """See aioquic."""
        trace = Trace(is_client=is_client, odcid=odcid)
        self.traces.append(trace)
        return trace

    def end_trace(self, trace: QuicLoggerTrace) -> None:
        """See aioquic; the logs of closed connections are kept."""


LOGGER = Logger()
