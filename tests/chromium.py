"""A headless Chromium, driven over a pipe by its DevTools protocol: no driver and no socket."""

import json
import shutil
import subprocess
import threading
from contextlib import suppress

NAMES = ("chromium", "google-chrome", "google-chrome-stable", "chromium-browser")
LONGEST_S = 300  # a browser that hangs is killed


def find_browser():
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page. Errors and warnings of its scripts are collected in ``problems``."""

    def __init__(self, profile):
        command = [find_browser(), "--headless", "--no-sandbox", "--remote-debugging-pipe"]
        command += ["--disable-gpu", "--no-first-run", f"--user-data-dir={profile}", "about:blank"]
        # Chromium reads commands from file 3 and writes to file 4.
        shell = ["sh", "-c", 'exec "$@" 3<&0 4>&1 1>&2', "sh", *command]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(shell, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        self.timer = threading.Timer(LONGEST_S, self.process.kill)
        self.timer.start()
        self.problems, self.number, self.session = [], 0, None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Accessibility"):
            self.send(f"{domain}.enable")

    def read(self):
        """The next message, without the zero that ends it."""
        text = bytearray()
        while (byte := self.process.stdout.read(1)) != b"\0":
            if not byte:
                raise RuntimeError(f"{find_browser()} has ended")
            text += byte
        message = json.loads(text)
        if message.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
            self.problems.append(message["params"])
        return message

    def send(self, method, **params):
        """Sends a command and returns its result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.process.stdin.write(json.dumps(message).encode() + b"\0")
        self.process.stdin.flush()
        while (answer := self.read()).get("id") != self.number:
            pass
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def open(self, url):
        self.send("Page.navigate", url="about:blank")  # another hash alone would load nothing
        self.send("Page.navigate", url=url)
        while self.read().get("method") != "Page.loadEventFired":
            pass

    def run(self, script):
        """The value of a JavaScript expression; a promise is awaited."""
        options = {"returnByValue": True, "awaitPromise": True}
        answer = self.send("Runtime.evaluate", expression=script, **options)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"]["description"])
        return answer["result"].get("value")

    def resize(self, width, *, scheme="light"):
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.send("Emulation.setEmulatedMedia", features=[feature])

    def drag(self, start, *ends):
        """Presses the mouse at a point, moves it over others and lets it go."""
        (x, y), button = start, {"button": "left", "clickCount": 1}
        self.send("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, **button)
        for x, y in ends:
            self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y, **button)
        self.send("Input.dispatchMouseEvent", type="mouseReleased", x=x, y=y, **button)

    def press(self, key):
        for kind, text in (("keyDown", {"Enter": "\r"}.get(key, "")), ("keyUp", "")):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, text=text)

    def close(self):
        with suppress(RuntimeError):
            self.session = None
            self.send("Browser.close")
        self.process.communicate()
        self.timer.cancel()
