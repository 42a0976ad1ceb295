"""The report page in a real browser: complete, quiet, no wider than it, reaching for nothing outside.

Plans and runs the small job, makes the page, opens it headless, and compares what the browser shows
with the two files and with what `planner compare` says. Then it uses the page: keys, wheel, pointer,
search, sorting, CSV, light and dark, print, and without a script. Skipped (77) without the browser.
"""

import html
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from programs import CLUSTER, NANO, OK, OUTSIDE_TOLERANCE, SOURCE, load_script, planner, write_json

load_script("results")  # puts lab/ on the path
import browser  # noqa: E402

BROWSER = "chromium-headless-shell"
SKIPPED = 77
STEPS = 4


def must(done, *codes):
    assert done.returncode in (codes or (OK,)), (done.args, done.returncode, done.stderr)
    return done


def make_files(out):
    """A plan of two stages, a run of it, and the page of both."""
    cluster = write_json(out / "cluster.json", CLUSTER)
    plan, measured, page = out / "plan.json", out / "measured.json", out / "report.html"
    must(planner("plan", NANO, "--cluster", cluster, "--devices", 2, "--fix", "pp=2", "--fix",
                 "micro_batch=4", "-o", plan))
    must(planner("run", plan, "--data", SOURCE / "data" / "training-text.txt", "--steps", STEPS,
                 "-o", measured))
    must(planner("report", plan, measured, "--cluster", cluster, "-o", page))
    return plan, measured, page


class Opened:
    """Returns what the browser made of a page: its document, its console, its network requests."""

    def __init__(self, page, out):
        net_log = out / "net-log.json"
        done = subprocess.run(
            [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
             "--no-first-run", "--disable-background-networking", "--disable-component-update",
             "--disable-sync", f"--user-data-dir={out / 'profile'}", "--enable-logging=stderr",
             f"--log-net-log={net_log}", "--dump-dom", page.as_uri()],
            capture_output=True, text=True, timeout=300)
        must(done)
        self.dom = done.stdout
        self.console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
        self.requests = requested_urls(net_log)


def requested_urls(net_log):
    """Every URL that a request was started for, and every host that was looked up."""
    log = json.loads(net_log.read_text())
    events = log["constants"]["logEventTypes"]
    assert "URL_REQUEST_START_JOB" in events, "the net log has no such event"
    asked = {events[name] for name in
             ("URL_REQUEST_START_JOB", "HOST_RESOLVER_MANAGER_REQUEST", "TCP_CONNECT")
             if name in events}
    found = []
    for event in log["events"]:
        parameters = event.get("params", {})
        target = parameters.get("url") or parameters.get("host") or parameters.get("address_list")
        if event["type"] in asked and target:
            found.append(str(target))
    return found


def check_that_it_wraps(opened, out):
    """The page of a plan with long and hostile values is no wider than the window, in light and in
    dark; only charts and tables may be moved inside it. Names from files stay text."""
    cluster = write_json(out / "wide.json", CLUSTER)
    plan, page = out / "wide-plan.json", out / "wide.html"
    must(planner("plan", NANO, "--cluster", cluster, "--devices", 4, "--fix", "pp=2", "--fix",
                 "layer_split=1+3", "-o", plan))
    hostile = "\"'><script>document.title = 'taken over'</script><img src=x onerror=alert(1)>"
    text = json.loads(plan.read_text())
    text["strategy"]["layer_split"] = [1, 3]
    text["origin"]["command"] += " --fix " + "x" * 400
    text["framework"]["sources"]["kernels"] = "y" * 400
    text["job"]["name"] = text["cluster_name"] = text["origin"]["interval_basis"] = hostile
    text["timeline"]["intervals"][0]["routine"] = hostile
    plan.write_text(json.dumps(text))
    done = must(planner("report", plan, "-o", page))
    assert "--cluster is required" in done.stderr, done.stderr  # the page goes without
    papers = set()
    for window in (400, 1600):
        for dark in (False, True):
            shown = opened.open(page.as_uri(), window, 900, dark)
            assert shown.size()["width"] <= window, (window, dark, shown.size())
            assert shown.faults() == [], shown.faults()
            assert "taken over" in shown.evaluate("document.title"), "the name is shown"
            assert shown.evaluate("document.title") != "taken over"
            assert shown.evaluate("document.querySelectorAll('img').length") == 0
            assert shown.evaluate("document.querySelectorAll('script:not([type])').length") == 1
            papers.add(shown.evaluate("getComputedStyle(document.documentElement).backgroundColor"))
            shown.close()
    assert len(papers) == 2, f"light and dark have one colour: {papers}"
    wide = out / "too-wide.html"
    wide.write_text(page.read_text().replace("</main>", "<pre>" + "wide " * 999 + "</pre></main>"))
    shown = opened.open(wide.as_uri(), 1600)
    assert shown.size()["width"] > 1600, "a page that is too wide went unseen"
    shown.close()


def outside(requests):
    return [url for url in requests if not url.startswith(("file:", "data:"))]


def bars(dom, chart):
    """Bars drawn in one chart, how many it says it has, and how many the script has."""
    svg = re.search(rf'<svg class="chart" id="{chart}".*?</svg>', dom, re.DOTALL)
    assert svg, f"no chart {chart}"
    stated = int(re.search(r'data-interval-count="(\d+)"', svg[0])[1])
    drawn = sum(path.count("M") for path in re.findall(r'<path class="interval [^>]*>', svg[0]))
    data = re.search(rf'<script type="application/json" id="{chart}-data">(.*?)</script>', dom, re.DOTALL)
    return drawn, stated, sum(len(lane["gap"]) for lane in json.loads(data[1])["lanes"])


def check_report(plan, measured, page, out):
    opened = Opened(page, out)
    assert opened.console == [], opened.console
    assert outside(opened.requests) == [], opened.requests

    for chart, file in (("predicted-timeline", plan), ("measured-timeline", measured)):
        intervals = len(json.loads(file.read_text())["timeline"]["intervals"])
        assert intervals > 0
        assert bars(opened.dom, chart) == (intervals,) * 3, (chart, intervals, bars(opened.dom, chart))

    compared = must(planner("compare", plan, measured, "--json"), OK, OUTSIDE_TOLERANCE)
    verdict = json.loads(compared.stdout)["verdict"]
    shown = re.search(r'<p class="verdict [a-z]+" id="verdict">(.*?)</p>', opened.dom, re.DOTALL)
    assert html.unescape(shown[1]) == verdict, (shown[1], verdict)


def check_that_the_checks_can_fail(out):
    """A page that errs and reaches outside must not look quiet."""
    page = out / "noisy.html"
    page.write_text("<!DOCTYPE html><title>noisy</title><script>undefined_name();</script>"
                    '<img src="http://127.0.0.1:9/picture.png">')
    opened = Opened(page, out)
    assert len(opened.console) >= 1, "a script error went unseen"
    assert outside(opened.requests) != [], "a request went unseen"


class Chart:
    """The first pipeline chart of a page."""

    def __init__(self, shown):
        self.shown = shown
        self.box = "document.querySelector('[data-timeline]')"

    def text(self, part):
        self.shown.frames()
        return self.shown.evaluate(f"{self.box}.querySelector('.{part}').textContent")

    def picture(self):
        self.shown.frames()
        return self.shown.evaluate(f"{self.box}.querySelector('canvas').toDataURL()")

    def press(self, key):
        self.shown.evaluate(f"{self.box}.querySelector('canvas').focus()")
        self.shown.key(key, text=key if len(key) == 1 else "")
        return self.text("state")


def check_chart(shown):
    """Keys, wheel and pointer change what the pipeline chart shows; the search finds ops."""
    chart = Chart(shown)
    whole, before = chart.text("state"), chart.picture()
    assert re.search(r": [\d,]+ intervals", whole), whole
    assert chart.press("+") != whole and chart.picture() != before, "plus does not zoom"
    zoomed = chart.text("state")
    assert chart.press("ArrowRight") != zoomed, "an arrow does not move"
    assert chart.press("Home") == whole and chart.picture() == before, "Home shows the whole step"
    box = shown.evaluate(f"(() => {{ const c = {chart.box}.querySelector('canvas'); "
                         "c.scrollIntoView({block: 'center'}); "
                         "const r = c.getBoundingClientRect(); return {x: r.x + r.width / 2, y: r.y + 40}; })()")
    shown.mouse("mouseWheel", box["x"], box["y"], deltaX=0, deltaY=-200, modifiers=2)  # Ctrl
    zoomed = chart.text("state")
    assert zoomed != whole, "the wheel does not zoom"
    shown.mouse("mousePressed", box["x"], box["y"], button="left", clickCount=1)
    shown.mouse("mouseMoved", box["x"] - 120, box["y"], button="left", buttons=1)
    shown.mouse("mouseReleased", box["x"] - 120, box["y"], button="left", clickCount=1)
    assert chart.text("state") != zoomed, "dragging does not move"
    check_pinch(shown, chart, box)
    chart.press("n")
    assert re.search(r"rank 0.*compute: .*from", chart.text("details")), chart.text("details")
    shown.evaluate(f"{chart.box}.querySelector('input').focus()")
    shown.type("matmul, layer 1")
    assert re.search(r"[1-9]\d* found", chart.text("state")), chart.text("state")
    shown.key("Enter")
    assert "matmul" in chart.text("details") and "layer 1" in chart.text("details")
    shown.evaluate(f"{chart.box}.querySelector('input').value = ''")


def check_pinch(shown, chart, box):
    """Two fingers that part zoom in; the time below each stays there."""
    def touch(kind, *places):
        points = [{"x": box["x"] + x, "y": box["y"], "id": i} for i, x in enumerate(places)]
        shown.ask("Input.dispatchTouchEvent", type=kind, touchPoints=points)

    def span(state):
        ends = re.match(r"([\d.]+) (\S+) to ([\d.]+) (\S+):", state)
        units = {"s": 1, "ms": 1e-3, "\u00b5s": 1e-6, "ns": 1e-9}
        return float(ends[3]) * units[ends[4]] - float(ends[1]) * units[ends[2]]

    chart.press("+")
    before = span(chart.text("state"))
    touch("touchStart", -40)
    touch("touchStart", -40, 40)
    touch("touchMove", -80, 80)
    touch("touchEnd")
    after = span(chart.text("state"))
    assert abs(after / before - 0.5) < 0.02, (before, after)


def check_tables(shown):
    """Headers sort by exact values, and rows are saved as CSV that no spreadsheet runs."""
    shown.evaluate("window.t = [...document.querySelectorAll('#plan table')].find((t) => "
                   "t.tHead.textContent.includes('Share'))")
    assert shown.evaluate("t.tHead.rows[0].cells[1].querySelector('button').click(), "
                          "t.tHead.rows[0].cells[1].getAttribute('aria-sort')") == "ascending"
    values = shown.evaluate("[...t.tBodies[0].rows].map((row) => Number(row.cells[1].dataset.exact))")
    assert len(values) > 2 and values == sorted(values), values
    text = shown.evaluate("plimsollSave('x', [['=1+1', 'a\"b', -3, '-4.2 %', '@x', 'a,b']])")
    assert text == "'=1+1,\"a\"\"b\",-3,-4.2 %,'@x,\"a,b\"\r\n", text
    assert shown.evaluate("document.querySelectorAll('.scroll > .save').length") > 5
    folded = "document.querySelector('details:has(tbody tr:nth-child(3))')"
    assert shown.evaluate(f"window.folded = {folded}, folded.querySelectorAll('.save').length") == 0
    shown.evaluate("folded.open = true")
    shown.frames()
    assert shown.evaluate("folded.querySelectorAll('.save').length") == 1, "a table that is opened has no button"


def check_access(shown):
    """Everything can be reached by the tab key and has a name; headings go down one level at a time."""
    shown.key("Tab")
    assert shown.evaluate("document.activeElement.className") == "skip"
    assert shown.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    unnamed = shown.evaluate("[...document.querySelectorAll('button, canvas, svg[role], input')].filter((e) => "
                             "!(e.getAttribute('aria-label') || e.textContent.trim() || e.closest('label')))"
                             ".map((e) => e.outerHTML.slice(0, 80))")
    assert unnamed == [], unnamed
    levels = shown.evaluate("[...document.querySelectorAll('h1, h2, h3')].map((e) => Number(e.tagName[1]))")
    assert levels[0] == 1 and all(b <= a + 1 for a, b in zip(levels, levels[1:])), levels
    tables = shown.evaluate("[...document.querySelectorAll('svg.chart')].filter((e) => "
                            "!e.closest('section').querySelector('table')).length")
    assert tables == 0, f"{tables} charts have no table in their section"


def check_points(shown):
    """The points of the plans can be gone through by keys, and say why they were not chosen."""
    shown.evaluate("document.getElementById('plans-chart').focus()")
    shown.key("ArrowRight")
    first = shown.evaluate("document.querySelector('[data-details]').textContent")
    shown.key("ArrowRight")
    assert shown.evaluate("document.querySelector('[data-details]').textContent") != first
    assert shown.evaluate("document.querySelectorAll('.point.marked').length") == 1


def check_without_script(opened, page):
    """Without a script and in print the static drawing is shown; with one the canvas is."""
    display = "getComputedStyle(document.querySelector('[data-timeline] .wide')).display"
    shown = opened.open(page.as_uri(), scripts=False)
    assert shown.evaluate(display) == "block"
    assert shown.evaluate("document.querySelectorAll('canvas').length") == 0
    shown.close()
    shown = opened.open(page.as_uri())
    assert shown.evaluate(display) == "none"
    shown.ask("Emulation.setEmulatedMedia", media="print")
    assert shown.evaluate(display) == "block"
    assert shown.evaluate("getComputedStyle(document.querySelector('.zoomed')).display") == "none"
    shown.close()


def check_policy(opened, page, out):
    """The content policy refuses a script, a style and an attribute that are not the page's own."""
    for name, more in (("script", "<script>document.title = 'run'</script>"), ("style", "<style>p{}</style>"),
                       ("attribute", '<p style="color:red">x</p>')):
        copy = out / f"{name}.html"
        copy.write_text(page.read_text().replace("</main>", more + "</main>"))
        shown = opened.open(copy.as_uri())
        assert any("Content Security Policy" in fault for fault in shown.faults()), (name, shown.faults())
        assert shown.evaluate("document.title") != "run"
        shown.close()


def check_sweep(opened, out):
    """The page of a sweep has the same script: its table sorts and is saved, points of its charts can be chosen by keys, and
    the name of the deadline lies on no line, interval or point."""
    cluster = write_json(out / "swept.json", CLUSTER)
    page = out / "sweep.html"
    must(planner("sweep", NANO, "--cluster", cluster, "--devices", "1..4x2", "--global-batch", "8,16", "--tokens", "1B",
                 "--price", "1/h", "--deadline", "0.17d", "--html", page))
    for window in (400, 1600):
        for dark in (False, True):
            shown = opened.open(page.as_uri(), window, 900, dark)
            assert shown.size()["width"] <= window and shown.faults() == [], (window, shown.size(), shown.faults())
            shown.close()
    shown = opened.open(page.as_uri())
    check_access(shown)
    shown.evaluate("window.t = document.querySelector('#points table')")
    column = "[...t.tHead.rows[0].cells].find((c) => c.textContent.trim() === 'days')"
    assert shown.evaluate(f"{column}.querySelector('button').click(), {column}.getAttribute('aria-sort')") == "ascending"
    days = shown.evaluate(f"[...t.tBodies[0].rows].map((row) => Number(row.cells[{column}.cellIndex].dataset.exact))")
    assert len(days) == 6 and days == sorted(days), days
    assert shown.evaluate("t.closest('.scroll').querySelectorAll('.save').length") == 1
    shown.evaluate("document.getElementById('days').focus()")
    shown.key("ArrowRight")
    assert "1 devices: " in shown.evaluate("document.querySelector('[data-details=days]').textContent")
    hit = shown.evaluate("""(() => {
      const name = document.querySelector('#days text.capacity').getBoundingClientRect();
      return [...document.querySelectorAll('#days .whisker, #days .dot')].map((e) => e.getBoundingClientRect()).filter((r) =>
        r.left < name.right && r.right > name.left && r.top < name.bottom && r.bottom > name.top).length; })()""")
    assert hit == 0, f"the deadline's name lies on {hit} marks"
    shown.close()


def check_use(page, out):
    with browser.Browser(out / "driven") as opened:
        shown = opened.open(page.as_uri())
        check_access(shown)  # first: the tab key goes on from where a page was used
        check_chart(shown)
        check_tables(shown)
        check_points(shown)
        assert shown.faults() == [], shown.faults()
        assert outside(shown.requests()) == [], shown.requests()
        shown.close()
        check_without_script(opened, page)
        check_sweep(opened, out)
        check_policy(opened, page, out)
        check_that_it_wraps(opened, out)


def main():
    if shutil.which(BROWSER) is None:
        print(f"skipped: {BROWSER} is not installed (scripts/dependencies lists it)")
        return SKIPPED
    with tempfile.TemporaryDirectory() as name:
        out = pathlib.Path(name)
        check_that_the_checks_can_fail(out)
        plan, measured, page = make_files(out)
        check_report(plan, measured, page, out)
        check_use(page, out)
    print("the page is complete, quiet and alone; it can be used, and it wraps")
    return 0


if __name__ == "__main__":
    sys.exit(main())
