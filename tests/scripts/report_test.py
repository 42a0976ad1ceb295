"""The report page in a real browser: complete, quiet, no wider than it, reaching for nothing outside.

Plans and runs the small job, makes the page, opens it headless, and compares what the browser shows
with the two files and with what `planner compare` says. Skipped (77) without the browser.
"""

import html
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from programs import CLUSTER, NANO, OK, OUTSIDE_TOLERANCE, SOURCE, planner, write_json

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
    must(planner("report", plan, measured, "-o", page))
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


def width_in_window(page, out, window):
    """How wide the page's content is in a window, and the window. The copy may run one script."""
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text())
    script = ("<script>const r = document.documentElement;"
              "document.title = r.scrollWidth + '/' + r.clientWidth;</script>")
    copy = out / f"at-{window}.html"
    copy.write_text(text.replace("</body>", script + "</body>"))
    done = subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={window},900",
         f"--user-data-dir={out / 'profile'}", "--dump-dom", copy.as_uri()],
        capture_output=True, text=True, timeout=300)
    must(done)
    return tuple(int(number) for number in
                 re.search(r"<title>(\d+)/(\d+)</title>", done.stdout).groups())


def check_that_it_wraps(out):
    """The page of a plan with long values is no wider than the window; only charts and tables may be
    moved inside it."""
    cluster = write_json(out / "wide.json", CLUSTER)
    plan, page = out / "wide-plan.json", out / "wide.html"
    must(planner("plan", NANO, "--cluster", cluster, "--devices", 4, "--fix", "pp=2", "--fix",
                 "layer_split=1+3", "-o", plan))
    text = json.loads(plan.read_text())
    text["strategy"]["layer_split"] = [1, 3]
    text["origin"]["command"] += " --fix " + "x" * 400
    text["framework"]["sources"]["kernels"] = "y" * 400
    plan.write_text(json.dumps(text))
    must(planner("report", plan, "-o", page))
    for window in (400, 1600):
        content, inner = width_in_window(page, out, window)
        assert content <= inner, (window, content, inner)
    wide = out / "too-wide.html"
    wide.write_text(page.read_text().replace("</main>", '<div style="width:3000px">wide</div></main>'))
    content, inner = width_in_window(wide, out, 1600)
    assert content > inner, "a page that is too wide went unseen"


def outside(requests):
    return [url for url in requests if not url.startswith(("file:", "data:"))]


def bars(dom, chart):
    """Bars drawn in one chart, and how many it says it has."""
    svg = re.search(rf'<svg class="chart" id="{chart}".*?</svg>', dom, re.DOTALL)
    assert svg, f"no chart {chart}"
    stated = int(re.search(r'data-interval-count="(\d+)"', svg[0])[1])
    return len(re.findall(r'<path class="interval ', svg[0])), stated


def check_report(plan, measured, page, out):
    opened = Opened(page, out)
    assert opened.console == [], opened.console
    assert outside(opened.requests) == [], opened.requests

    for chart, file in (("predicted-timeline", plan), ("measured-timeline", measured)):
        intervals = len(json.loads(file.read_text())["timeline"]["intervals"])
        assert intervals > 0
        assert bars(opened.dom, chart) == (intervals, intervals), (chart, intervals)

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


def main():
    if shutil.which(BROWSER) is None:
        print(f"skipped: {BROWSER} is not installed (scripts/dependencies lists it)")
        return SKIPPED
    with tempfile.TemporaryDirectory() as name:
        out = pathlib.Path(name)
        check_that_the_checks_can_fail(out)
        check_report(*make_files(out), out)
        check_that_it_wraps(out)
    print("the page is complete, quiet and alone, and it wraps")
    return 0


if __name__ == "__main__":
    sys.exit(main())
