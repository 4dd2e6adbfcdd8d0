"""A browser driven from tests, with the standard library alone: Chromium's DevTools protocol over two pipes.

No port is opened and no driver program is needed.  What the page says on its console, what it throws and what it asks
the network for is kept, so that a test can demand that it is nothing.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# The protocol's pipes are the descriptors 3 and 4 of the browser, whatever lay there before.
_AS_3_AND_4 = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(one), fcntl.F_DUPFD, 10) for one in sys.argv[1:3]]
for place, end in zip((3, 4), ends):
    os.dup2(end, place)
os.execv(sys.argv[3], sys.argv[3:])
"""
NO_BROWSER = "needs Chromium or Chrome"
PATIENCE = 120.0  # seconds until an answer counts as none; machines of many jobs are slow


def find() -> str:
    """The browser of this machine; an empty text where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), "")


class Browser:
    """One browser with one page."""

    def __init__(self, program: str, folder: Path, *, width: int = 1280, height: int = 900) -> None:
        to_it, our_end = os.pipe()
        our_ear, from_it = os.pipe()
        self._to, self._from = our_end, our_ear
        command = [
            program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--mute-audio",
            "--hide-scrollbars", "--force-color-profile=srgb", f"--user-data-dir={folder}",
            f"--window-size={width},{height}", "--remote-debugging-pipe", "about:blank",
        ]  # fmt: skip
        wrapped = [sys.executable, "-c", _AS_3_AND_4, str(to_it), str(from_it), *command]
        self._process = subprocess.Popen(
            wrapped, pass_fds=(to_it, from_it), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_it)
        os.close(from_it)
        self._heard = b""
        self._number = 0
        self._session = ""
        self.console: list[str] = []
        self.requests: list[str] = []
        try:
            self._attach()
        except BaseException:
            self.close()
            raise

    def _attach(self) -> None:
        targets = self.ask("Target.getTargets")["targetInfos"]
        page = next(one for one in targets if one["type"] == "page")
        found = self.ask("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = found["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")

    def close(self) -> None:
        try:
            self._session = ""
            self.ask("Browser.close")
        except (OSError, RuntimeError):
            self._process.kill()
        self._process.wait(PATIENCE)
        os.close(self._to)
        os.close(self._from)

    # -- the protocol ----------------------------------------------------------------------------------

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command, and its answer; events on the way are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == message["id"]:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self._event(answer)

    def _message(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._heard:
            ready, _, _ = select.select([self._from], [], [], max(0.0, end - time.monotonic()))
            more = os.read(self._from, 1 << 20) if ready else b""
            if not more:
                raise RuntimeError("the browser says nothing" + ("" if ready else f" for {PATIENCE:.0f} s"))
            self._heard += more
        text, _, self._heard = self._heard.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        return found

    def _event(self, message: dict[str, Any]) -> None:
        given = message.get("params", {})
        kind = message.get("method")
        if kind == "Runtime.consoleAPICalled":
            self.console.append(" ".join(str(one.get("value", one.get("description"))) for one in given["args"]))
        elif kind == "Runtime.exceptionThrown":
            details = given["exceptionDetails"]
            self.console.append(str(details.get("exception", {}).get("description") or details["text"]))
        elif kind == "Log.entryAdded":
            self.console.append(str(given["entry"]["text"]))
        elif kind == "Network.requestWillBeSent":
            self.requests.append(str(given["request"]["url"]))

    # -- what a person does ----------------------------------------------------------------------------

    def open(self, path: Path, anchor: str = "") -> None:
        self.console.clear()
        self.requests.clear()
        self.ask("Page.navigate", url="about:blank")
        self.ask("Page.navigate", url=path.absolute().as_uri() + anchor)
        self.wait("document.readyState === 'complete' && location.protocol === 'file:'")

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{script}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def wait(self, condition: str) -> None:
        self._until(lambda: bool(self.run(condition)), condition)

    @staticmethod
    def _until(done: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not done():
            if time.monotonic() > end:
                raise RuntimeError(f"it never came to be that {what}")
            time.sleep(0.02)

    def click(self, selector: str) -> None:
        """The mouse on the middle of the first element a selector finds."""
        text = json.dumps(selector)
        self.run(f"document.querySelector({text}).scrollIntoView({{block: 'center', inline: 'center'}})")
        x, y = self.run(
            f"(() => {{ const box = document.querySelector({text}).getBoundingClientRect();"
            "return [box.left + box.width / 2, box.top + box.height / 2]; })()"
        )
        self.move(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def move(self, x: float, y: float) -> None:
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def key(self, name: str) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=name, code=name)

    def type(self, selector: str, text: str) -> None:
        self.click(selector)
        self.ask("Input.insertText", text=text)

    def choose(self, selector: str, value: str) -> None:
        """An option of a select, as a person's choice: with its event."""
        self.run(
            f"(() => {{ const one = document.querySelector({json.dumps(selector)}); one.value = {json.dumps(value)};"
            "one.dispatchEvent(new Event('change', {bubbles: true})); })()"
        )

    def texts(self, selector: str) -> list[str]:
        """The text of every element a selector finds."""
        found: list[str] = self.run(
            f"Array.from(document.querySelectorAll({json.dumps(selector)}), (one) => one.innerText)"
        )
        return found

    def scheme(self, word: str) -> None:
        """The system's preference: light or dark."""
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": word}])

    def picture(self, path: Path, *, whole: bool = True) -> None:
        found = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))
