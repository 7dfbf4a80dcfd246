#!/usr/bin/env python3
"""Opens a report of `heteroperf report` in headless Chromium and checks what a reader relies on.

    scripts/check_report.py report.html [--shots FOLDER] [--json]

Checks: no message of an error on the console, no request beyond the file, every chart drawn, nothing
wider than the window at 400 px and no value of a table of two columns beyond it, the keyboard's order
and keys, labels for screen readers, both colour schemes, PNG and CSV of every chart, printing. With --shots also
leaves screenshots and a PDF there.
Needs Python 3.10 and Chromium alone: it speaks the DevTools protocol over a pipe.

Exit codes: 0 all well, 1 a check failed, 2 wrong usage, 77 no Chromium here (CHROMIUM names one).
"""

import argparse
import base64
import json
import os
import pathlib
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time

TIMEOUT_S = 60
FLAGS = ["--headless=new", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--remote-debugging-pipe", "--hide-scrollbars", "--force-color-profile=srgb"]


def find_chromium():
    for name in (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"):
        if name and shutil.which(name):
            return shutil.which(name)
    return None


class Browser:
    """Chromium with one page, spoken to over file descriptors 3 and 4."""

    def __init__(self, program, profile):
        to_child, self.out = os.pipe()
        self.inp, from_child = os.pipe()
        flags = FLAGS + [f"--user-data-dir={profile}"]
        if os.geteuid() == 0:
            flags.append("--no-sandbox")
        shell = f'exec "$0" "$@" 3<&{to_child} 4>&{from_child}'
        self.process = subprocess.Popen(
            ["sh", "-c", shell, program] + flags, pass_fds=(to_child, from_child),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_child)
        os.close(from_child)
        self.number, self.rest, self.events, self.session = 0, b"", [], None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target,
                                flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")

    def close(self):
        self.process.kill()
        self.process.wait()

    def message(self, deadline):
        while b"\0" not in self.rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.inp], [], [], left)[0]:
                raise TimeoutError(f"the browser did not answer in {TIMEOUT_S} s")
            part = os.read(self.inp, 1 << 20)
            if not part:
                raise ConnectionError("the browser ended")
            self.rest += part
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def ask(self, method, **params):
        self.number += 1
        request = {"id": self.number, "method": method, "params": params}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.out, json.dumps(request).encode() + b"\0")
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            message = self.message(deadline)
            if "method" in message:
                self.events.append(message)
            elif message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                return message["result"]

    def value(self, expression):
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True,
                          awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']['text']}")
        return answer["result"].get("value")

    def width(self, pixels):
        self.ask("Emulation.setDeviceMetricsOverride", width=pixels, height=900,
                 deviceScaleFactor=1, mobile=False)

    def scheme(self, name):
        self.ask("Emulation.setEmulatedMedia", media="screen",
                 features=[{"name": "prefers-color-scheme", "value": name}])

    def open(self, url):
        """Milliseconds from asking for the page to its last chart."""
        start = time.monotonic()
        self.ask("Page.navigate", url=url)
        while not self.value("document.documentElement?.dataset.drawn || "
                             "(document.readyState === 'complete' ? 'no script' : '')"):
            if time.monotonic() - start > TIMEOUT_S:
                raise TimeoutError("the page drew nothing")
            time.sleep(0.01)
        return 1000 * (time.monotonic() - start)

    def key(self, name):
        codes = {"Tab": 9, "ArrowRight": 39, "ArrowDown": 40, "Enter": 13, "Escape": 27}
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=name, code=name,
                     windowsVirtualKeyCode=codes[name])

    def screenshot(self, path):
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        shot = self.ask("Page.captureScreenshot", captureBeyondViewport=True,
                        clip={"x": 0, "y": 0, "width": size["width"],
                              "height": min(size["height"], 16000), "scale": 1})
        path.write_bytes(base64.b64decode(shot["data"]))


def console_problems(browser):
    found = []
    for event in browser.events:
        params = event.get("params", {})
        if event["method"] == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            found.append(details.get("exception", {}).get("description", details["text"]))
        elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            found.append(" ".join(str(part.get("value", part.get("description")))
                                  for part in params["args"]))
        elif event["method"] == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            found.append(params["entry"]["text"])
    return found


def foreign_requests(browser, url):
    urls = [event["params"]["request"]["url"] for event in browser.events
            if event["method"] == "Network.requestWillBeSent"]
    return [one for one in urls if one != url and not one.startswith(("data:", "blob:"))]


BLANK_CHARTS = """[...document.querySelectorAll('figure[data-chart]')].filter(figure => {
  const canvas = figure.querySelector('canvas');
  if (!canvas || canvas.width === 0) return true;
  const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const colours = new Set();
  for (let i = 0; i < pixels.length; i += 4) {
    if (pixels[i + 3] > 0) colours.add(pixels[i] << 16 | pixels[i + 1] << 8 | pixels[i + 2]);
  }
  return colours.size < 3;
}).map(figure => figure.dataset.chart)"""

UNLABELLED = """[
  ...[...document.querySelectorAll('canvas')].filter(canvas =>
    canvas.getAttribute('role') !== 'img' || !canvas.getAttribute('aria-label') ||
    !document.getElementById(canvas.getAttribute('aria-describedby'))?.textContent.trim()),
  ...[...document.querySelectorAll('button, summary')].filter(one =>
    !one.textContent.trim() && !one.getAttribute('aria-label')),
  ...[...document.querySelectorAll('table')].filter(one => !one.caption?.textContent.trim()),
].map(one => one.outerHTML.slice(0, 120))"""

HALF_COUNTS = """Object.values(Chart.instances).filter(chart =>
  chart.options.model.kind === 'bars' &&
  chart.data.datasets.every(set => set.data.every(value => Number.isInteger(value))) &&
  chart.scales.y.ticks.some(tick => !Number.isInteger(tick.value))
).map(chart => chart.options.model.id)"""

FOCUSABLE = """[...document.querySelectorAll('button, canvas[tabindex], summary, [tabindex="0"]')]
  .filter(one => one.checkVisibility())"""


def check_keyboard(browser, found):
    """Tab goes through everything once, in the order in which it is read."""
    browser.value("document.activeElement.blur(); window.scrollTo(0, 0)")
    expected = browser.value(FOCUSABLE + ".length")
    browser.value(f"window.order = {FOCUSABLE}")
    reached = []
    for _ in range(expected):
        browser.key("Tab")
        reached.append(browser.value("window.order.indexOf(document.activeElement)"))
    if reached != list(range(expected)):
        found.append(f"Tab reaches {reached}, expected 0 to {expected - 1} in turn")
    if browser.value("document.querySelector('canvas') === null"):
        return expected
    browser.value("document.querySelector('canvas').focus()")
    browser.key("ArrowRight")
    first = browser.value("document.getElementById('spoken').textContent")
    browser.key("ArrowRight")
    second = browser.value("document.getElementById('spoken').textContent")
    if not first:
        found.append("an arrow key on a chart says nothing")
    single = browser.value("document.querySelector('figure table').tBodies[0].rows.length") < 2
    if first == second and not single:
        found.append(f"a second arrow key says the same: {first}")
    return expected


def check_exports(browser, folder, found):
    """Every chart leaves a PNG and a CSV file of its own."""
    browser.ask("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
    for chart in browser.value("[...document.querySelectorAll('figure[data-chart]')]"
                               ".map(figure => figure.dataset.chart)"):
        wanted = {folder / f"heteroperf-{chart}.png": b"\x89PNG",
                  folder / f"heteroperf-{chart}.csv": b""}
        for _ in range(5):  # Chromium drops some where a script saves many files at once
            browser.value(f"document.querySelector('figure[data-chart=\"{chart}\"] .export')"
                          ".querySelectorAll('button').forEach(button => button.click())")
            deadline = time.monotonic() + 2
            while time.monotonic() < deadline and not all(map(is_there, wanted)):
                time.sleep(0.01)
            if all(map(is_there, wanted)):
                break
        for file, magic in wanted.items():
            if not is_there(file) or not file.read_bytes().startswith(magic):
                found.append(f"the export of {chart} left no {file.name}")


def is_there(file):
    return file.is_file() and file.stat().st_size >= 10


def check_schemes(browser, found):
    ground = "getComputedStyle(document.body).backgroundColor"
    browser.scheme("light")
    light = browser.value(ground)
    browser.scheme("dark")
    dark = browser.value(ground)
    if light == dark:
        found.append(f"light and dark have the same ground, {light}")
    browser.value("document.getElementById('theme').click()")
    if browser.value(ground) != light:
        found.append("the switch does not change dark to light")
    browser.value("document.getElementById('theme').click()")
    browser.scheme("light")
    if browser.value(ground) != dark:
        found.append("the switch does not outlast the system's choice")
    browser.value("delete document.documentElement.dataset.theme")


CUT_OFF = """(() => {
  for (const one of document.querySelectorAll('details.values')) one.open = true;
  return [...document.querySelectorAll('table')].filter(table => {
    const whole = table.classList.contains('stack');
    if (!whole && table.tHead.rows[0].cells.length !== 2) return false;
    const box = table.closest('.scroll').getBoundingClientRect();
    const edge = Math.min(window.innerWidth, box.right) + 1;
    return [...table.tBodies[0].rows].some(row =>
      [...row.cells].some(cell => cell.getBoundingClientRect().right > edge));
  }).map(table => table.caption.textContent);
})()"""


def check_width(browser, found):
    browser.width(400)
    wide = browser.value("document.documentElement.scrollWidth")
    if wide > 400:
        widest = browser.value(
            "[...document.querySelectorAll('main *')].filter(one => !one.closest('.scroll') && "
            "one.getBoundingClientRect().right > 400).map(one => one.outerHTML.slice(0, 80))[0]")
        found.append(f"{wide} px wide in a window of 400 px: {widest}")
    found += [f"cut off in a window of 400 px: {one}" for one in browser.value(CUT_OFF)]


def take_shots(browser, url, folder):
    for width, scheme in ((400, "light"), (1280, "light"), (1280, "dark")):
        browser.width(width)
        browser.scheme(scheme)
        browser.open(url)
        browser.screenshot(folder / f"{width}-{scheme}.png")


def check(program, page, shots):
    url = page.resolve().as_uri()
    found = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        scratch = pathlib.Path(scratch)
        browser = Browser(program, scratch / "profile")
        try:
            browser.width(1280)
            browser.scheme("light")
            opened_ms = browser.open(url)
            charts = browser.value("document.querySelectorAll('figure[data-chart]').length")
            drawn = browser.value("document.documentElement.dataset.drawn")
            if drawn != str(charts):
                found.append(f"{drawn} of {charts} charts are drawn")
            found += [f"chart {one} is blank" for one in browser.value(BLANK_CHARTS)]
            found += [f"counts of {one} have ticks between whole numbers"
                      for one in browser.value(HALF_COUNTS)]
            found += [f"no label: {one}" for one in browser.value(UNLABELLED)]
            stops = check_keyboard(browser, found)
            exports = scratch / "exports"
            exports.mkdir()
            check_exports(browser, exports, found)
            check_schemes(browser, found)
            browser.ask("Emulation.setEmulatedMedia", media="", features=[])
            pdf = base64.b64decode(browser.ask("Page.printToPDF", printBackground=True)["data"])
            if not pdf.startswith(b"%PDF"):
                found.append("printing gives no PDF")
            pages = len(re.findall(rb"/Type\s*/Page\b", pdf))
            check_width(browser, found)
            if shots:
                shots.mkdir(parents=True, exist_ok=True)
                (shots / "print.pdf").write_bytes(pdf)
                take_shots(browser, url, shots)
            found += [f"console: {one}" for one in console_problems(browser)]
            found += [f"request: {one}" for one in foreign_requests(browser, url)]
        finally:
            browser.close()
    return {"page": str(page), "bytes": page.stat().st_size, "charts": charts,
            "focus_stops": stops, "pages": pages, "opened_ms": round(opened_ms, 1), "problems": found}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("page", type=pathlib.Path, help="the report")
    parser.add_argument("--shots", type=pathlib.Path, help="folder for screenshots and a PDF")
    parser.add_argument("--json", action="store_true", help="the result as one JSON document")
    options = parser.parse_args()
    if not options.page.is_file():
        print(f"cannot read {options.page}", file=sys.stderr)
        return 2
    program = find_chromium()
    if program is None:
        print("no Chromium here (apt-get install chromium, or set CHROMIUM)", file=sys.stderr)
        return 77
    result = check(program, options.page, options.shots)
    if options.json:
        print(json.dumps(result))
    else:
        print(f"{result['page']}: {result['bytes']} bytes, {result['charts']} charts, "
              f"{result['focus_stops']} stops of the keyboard, {result['pages']} pages on paper, "
              f"open after {result['opened_ms']:.0f} ms")
        for problem in result["problems"]:
            print(f"problem: {problem}")
    return 1 if result["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
