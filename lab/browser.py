"""A headless browser, driven over the pipe of its DevTools protocol: what lab/report-figures and tests of pages share.

The protocol: https://chromedevtools.github.io/devtools-protocol/. Messages are JSON, each with a zero byte behind it, on file
descriptors 3 (to the browser) and 4 (from it).
"""

import base64
import fcntl
import json
import os
import select
import subprocess
import time

PROGRAM = "chromium-headless-shell"
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
         "--remote-debugging-pipe")
LEAST_FREE = 10  # file descriptors below are the browser's own


class Browser:
    """Use it in a `with` statement; `profile` is an empty folder."""

    def __init__(self, profile, longest=240):
        self.longest = longest
        self.number = 0
        self.buffer = b""
        self.events = []
        to_browser, from_browser = self._pipe(), self._pipe()

        def ends():
            os.dup2(to_browser[0], 3)
            os.dup2(from_browser[1], 4)

        self.process = subprocess.Popen([PROGRAM, *FLAGS, f"--user-data-dir={profile}"], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=ends,
                                        pass_fds=(3, 4))
        os.close(to_browser[0])
        os.close(from_browser[1])
        self.out, self.into = to_browser[1], from_browser[0]

    @staticmethod
    def _pipe():
        made = os.pipe()
        high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, LEAST_FREE) for end in made)
        for end in made:
            os.close(end)
        return high

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.ask("Browser.close")
        except (OSError, RuntimeError):
            self.process.terminate()  # it ended before it answered, or does not answer
        os.close(self.out)
        os.close(self.into)
        self.process.wait(timeout=60)

    def _read(self, until):
        """The next message, or None where none came in time."""
        while b"\0" not in self.buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.into], [], [], left)[0]:
                return None
            part = os.read(self.into, 1 << 20)
            if not part:
                raise RuntimeError("the browser ended")
            self.buffer += part
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def ask(self, method, session=None, **parameters):
        """The result of a method. Events that come before it are kept in `events`."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + self.longest
        while (answer := self._read(until)) is not None:
            if answer.get("id") != self.number:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            else:
                return answer["result"]
        raise RuntimeError(f"{method}: no answer within {self.longest} s")

    def wait_for(self, method, session):
        until = time.monotonic() + self.longest
        while True:
            for event in self.events:
                if event.get("method") == method and event.get("sessionId") == session:
                    return event
            event = self._read(until)
            if event is None:
                raise RuntimeError(f"{method} did not come within {self.longest} s")
            self.events.append(event)

    def open(self, url, width=1600, height=900, dark=False, scripts=True):
        return Page(self, url, width, height, dark, scripts)


class Page:
    """A page that was loaded. It is drawn in a window of this size."""

    def __init__(self, browser, url, width, height, dark, scripts):
        self.browser = browser
        self.target = browser.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.ask("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Performance"):
            self.ask(f"{domain}.enable")
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                 mobile=False)
        self.ask("Emulation.setEmulatedMedia",
                 features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.ask("Emulation.setScriptExecutionDisabled", value=not scripts)
        browser.events.clear()
        self.ask("Page.navigate", url=url)
        browser.wait_for("Page.loadEventFired", self.session)

    def ask(self, method, **parameters):
        return self.browser.ask(method, session=self.session, **parameters)

    def evaluate(self, script):
        """The value of a script, or of the promise that it makes."""
        done = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in done:
            raise RuntimeError(done["exceptionDetails"])
        return done["result"].get("value")

    def frames(self, count=2):
        """Waits until so many frames were drawn."""
        self.evaluate("new Promise((done) => { let left = %d; const next = () => left-- > 0 ? "
                      "requestAnimationFrame(next) : done(); next(); })" % count)

    def key(self, key, code="", text=""):
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=code or key,
                     **({"text": text} if text and kind == "keyDown" else {}))

    def type(self, text):
        self.ask("Input.insertText", text=text)

    def mouse(self, kind, x, y, **more):
        self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def faults(self):
        """Errors, warnings and exceptions that the page has caused so far, policy violations among them."""
        self.frames()
        found = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            parameters = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                found.append(parameters["exceptionDetails"].get("exception", {}).get("description", "exception"))
            elif event["method"] == "Log.entryAdded":
                found.append(parameters["entry"]["text"])
            elif event["method"] == "Runtime.consoleAPICalled":
                found.append(str(parameters["args"]))
        return found

    def requests(self):
        """Addresses that the page asked for."""
        return [event["params"]["request"]["url"] for event in self.browser.events
                if event.get("method") == "Network.requestWillBeSent" and event.get("sessionId") == self.session]

    def screenshot(self, path, whole=False):
        done = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole,
                        **({"clip": {**self.size(), "x": 0, "y": 0, "scale": 1}} if whole else {}))
        with open(path, "wb") as file:
            file.write(base64.b64decode(done["data"]))

    def size(self):
        """The size of the whole page."""
        return self.evaluate("({width: document.documentElement.scrollWidth, "
                             "height: document.documentElement.scrollHeight})")

    def cpu(self):
        """Seconds of CPU that the page's main thread has taken so far."""
        metrics = self.ask("Performance.getMetrics")["metrics"]
        return next(one["value"] for one in metrics if one["name"] == "ThreadTime")

    def close(self):
        self.browser.ask("Target.closeTarget", targetId=self.target)
