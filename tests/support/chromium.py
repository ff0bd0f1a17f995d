# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A headless Chromium, driven through its own pipe: no driver, no socket, no network."""

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


class Page:
    """One page. What it complained about and what it asked for is kept."""

    def __init__(self, to_browser: int, from_browser: int):
        self._to, self._from = to_browser, from_browser
        self._buffer = b""
        self._serial = 0
        self._loads = 0
        self._session: str | None = None
        self.errors: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the DevTools protocol; messages are JSON, each ended by a zero byte."""
        self._serial += 1
        message = {"id": self._serial, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        while True:
            answer = self._next()
            if answer.get("id") == self._serial:
                assert "error" not in answer, (method, answer["error"])
                return dict(answer["result"])
            self._note(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._from, 1 << 16)
            assert part, "Chromium has ended"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(message))

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Page.loadEventFired":
                self._loads += 1
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                self.errors.append(details.get("exception", {}).get("description", str(details)))
            case "Log.entryAdded":
                self.errors.append(params["entry"]["text"])
            case "Runtime.consoleAPICalled" if params["type"] in {"error", "warning", "assert"}:
                self.errors.append(str(params["args"]))
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])

    def open(self, path: Path, width: int = 1280, height: int = 800, dark: bool = False) -> None:
        """Show a file and wait until its scripts have run and drawn."""
        self.size(width, height, dark)
        self.show(path.as_uri())

    def size(self, width: int, height: int = 800, dark: bool = False, media: str = "") -> None:
        """The window of what is shown from now on, and its medium: the screen, or `print`."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def show(self, address: str) -> None:
        """Go to an address and wait until the page is loaded and drawn."""
        before = self._loads
        self.call("Page.navigate", url=address)
        while self._loads == before:
            self._note(self._next())
        self.settle()

    def js(self, expression: str) -> Any:
        """The value of an expression on the page; promises are awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def settle(self) -> None:
        """Let two frames pass, so that everything asked for is drawn."""
        self.js("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def wait(self, until: Callable[[], object], limit_s: float = 30) -> None:
        """Ask again and again until it is true."""
        deadline = time.monotonic() + limit_s
        while not until():
            assert time.monotonic() < deadline, "the page did not get there"
            time.sleep(0.02)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """A mouse event of the protocol: mouseMoved, mousePressed, mouseReleased, mouseWheel."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)
        self.settle()

    def click(self, x: float, y: float) -> None:
        """Press and release."""
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)

    def screenshot(self, path: Path, whole: bool = True) -> None:
        """The page, or the part in view, as a PNG."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=whole, format="png")
        path.write_bytes(base64.b64decode(shot["data"]))


class _Process:
    """Chromium with the two ends of its pipe, which it expects as files 3 and 4."""

    def __init__(self, profile: Path):
        assert PROGRAM
        inward, self.to_browser = os.pipe()
        self.from_browser, outward = os.pipe()
        script = f'exec "$@" 3<&{inward} 4>&{outward}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "sh", PROGRAM, *FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(inward, outward),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
        )
        os.close(inward)
        os.close(outward)

    def __enter__(self) -> "_Process":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for end in (self.to_browser, self.from_browser):
            os.close(end)  # without its pipe Chromium ends itself
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def chromium(profile: Path) -> Iterator[Page]:
    """A page of a Chromium with a fresh profile."""
    with _Process(profile) as process:
        yield Page(process.to_browser, process.from_browser)
