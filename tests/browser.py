"""A real browser without a window: Debian's chromium, driven over the DevTools protocol through a pair of pipes."""
import base64
import itertools
import json
import os
import re
import subprocess

# It does nothing by itself: each request is one of the page's.
OPTIONS = ["--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-background-networking",
           "--disable-component-update", "--disable-sync", "--disable-gpu", "--disable-extensions", "--mute-audio",
           "--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb",
           "--no-sandbox"]  # which containers do not let it make; the pages are our own


class Browser:
    def __init__(self, path, home):
        to_browser, self.write = os.pipe()
        self.read, from_browser = os.pipe()

        def place():
            # the numbers that chromium asks for; by way of others, for they may be in use
            high = [os.dup2(fd, 100 + i, inheritable=False) for i, fd in enumerate((to_browser, from_browser))]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        home.mkdir()
        self.log = home / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([path, *OPTIONS, f"--user-data-dir={home}", "about:blank"], stderr=log,
                                            stdout=log, preexec_fn=place, close_fds=False,
                                            env={**os.environ, "HOME": str(home)})
        os.close(to_browser)
        os.close(from_browser)
        self.ids, self.rest, self.listeners = itertools.count(1), b"", []

    def ended(self):
        return f"the browser has ended: {self.log.read_text(errors='replace')[-2000:]}"

    def message(self):
        while b"\0" not in self.rest:
            more = os.read(self.read, 1 << 16)
            assert more, self.ended()
            self.rest += more
        line, _, self.rest = self.rest.partition(b"\0")
        return json.loads(line)

    def send(self, method, session=None, **parameters):
        """What it answers; events that come meanwhile go to the listeners."""
        number = next(self.ids)
        message = {"id": number, "method": method, "params": parameters, **({"sessionId": session} if session else {})}
        data = json.dumps(message).encode() + b"\0"
        try:
            while data:
                data = data[os.write(self.write, data):]
        except BrokenPipeError:
            raise AssertionError(self.ended()) from None
        while True:
            answer = self.message()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self.hear(answer)

    def hear(self, event):
        for listener in self.listeners:
            listener(event)

    def open(self, url, **options):
        return Tab(self, url, **options)

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.write)
        os.close(self.read)


class Tab:
    """A page. `requests` are the URLs that it asked for, `complaints` what the browser said about it."""

    def __init__(self, browser, url, width=1280, height=900, dark=False, scripts=True):
        self.browser, self.requests, self.complaints, self.loaded = browser, [], [], 0
        context = browser.send("Target.createBrowserContext")["browserContextId"]
        self.target = browser.send("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        self.session = browser.send("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        browser.listeners.append(self.hear)
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.send(f"{domain}.enable")
        self.send("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        # the page's own clock runs ten times as fast
        self.send("Page.addScriptToEvaluateOnNewDocument",
                  source="{ const wait = setTimeout; window.setTimeout = (call, ms) => wait(call, ms / 10); }")
        if not scripts:
            self.send("Emulation.setScriptExecutionDisabled", value=True)
        self.resize(width, height)
        self.go(url)

    def send(self, method, **parameters):
        return self.browser.send(method, self.session, **parameters)

    def hear(self, event):
        if event.get("sessionId") != self.session:
            return
        if event["method"] == "Network.requestWillBeSent":
            self.requests.append(event["params"]["request"]["url"])
        elif event["method"] == "Log.entryAdded":
            self.complaints.append(event["params"]["entry"]["text"])
        elif event["method"] == "Runtime.exceptionThrown":
            self.complaints.append(event["params"]["exceptionDetails"]["text"])
        elif event["method"] == "Page.loadEventFired":
            self.loaded += 1

    def resize(self, width, height=900):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)

    def go(self, url):
        before = self.loaded
        assert "errorText" not in (answer := self.send("Page.navigate", url=url)), answer
        self.wait_load(before)

    def wait_load(self, before):
        while self.loaded == before:
            self.browser.hear(self.browser.message())

    def eval(self, expression):
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, expression, seconds=20):
        """Until it is true, as the page itself sees it change."""
        assert self.eval(f"""new Promise(resolve => {{
            const look = () => {{ if ({expression}) {{ watcher.disconnect(); resolve(true); }} }};
            const watcher = new MutationObserver(look);
            watcher.observe(document, {{subtree: true, childList: true, characterData: true, attributes: true}});
            setTimeout(() => {{ watcher.disconnect(); resolve(false); }}, {seconds} * 10000);
            look();
        }})"""), expression

    def key(self, key, modifiers=0):
        codes = {"Tab": 9, "Enter": 13}
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key],
                      modifiers=modifiers, **({"text": "\r"} if key == "Enter" and kind == "keyDown" else {}))

    def text(self):
        return self.eval("document.body.innerText")

    def overflow(self):
        """By how many pixels the page is wider than its window."""
        return self.eval("document.documentElement.scrollWidth - document.documentElement.clientWidth")

    def picture(self, path, whole=True):
        image = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(image["data"]))

    def contrasts(self):
        """The least contrast of text with what is behind it, by WCAG, and which text that is: [(contrast, size, text)],
        the least first."""
        found = self.eval(CONTRASTS)
        return sorted((contrast(colour(ink), colour(paper)), size, text) for ink, paper, size, text in found)

    def close(self):
        self.browser.listeners.remove(self.hear)
        self.browser.send("Target.closeTarget", targetId=self.target)


# Every text that is shown: its colour, that of the nearest background, its size, its first words. SVG text has `fill`,
# and a cell of a heat map the rectangle before it for its background.
CONTRASTS = """(() => {
  const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(), element = walker.currentNode.parentElement;
    if (!text || !element.checkVisibility() || ["TITLE", "SCRIPT", "STYLE", "NOSCRIPT"].includes(element.tagName.toUpperCase()))
      continue;
    const style = getComputedStyle(element), svg = element instanceof SVGElement;
    let behind = element, paper = "rgba(0, 0, 0, 0)";
    if (svg && element.previousElementSibling?.tagName === "rect" && element.previousElementSibling.classList.contains("heat"))
      paper = getComputedStyle(element.previousElementSibling).fill;
    for (; behind && /, 0\\)$|transparent|none/.test(paper); behind = behind.parentElement)
      paper = getComputedStyle(behind).backgroundColor;
    found.push([svg ? style.fill : style.color, paper, parseFloat(style.fontSize), text.slice(0, 40)]);
  }
  return found;
})()"""


def colour(css):
    return [float(part) for part in re.findall(r"[\d.]+", css)][:3]


def luminance(rgb):
    parts = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in rgb]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(one, other):
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)
