"""`planner sweep` from its command line to its files: rows, answers, refusals, limits, Ctrl-C."""

import csv
import html.parser
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from programs import (BIN, CLUSTER, INFEASIBLE, NANO, OK, SOURCE, STOPPED_EARLY, USAGE, catches, nano_job, planner,
                      write_json)

# Two test clusters: one twice as fast as the other.
FAST = {**CLUSTER, "name": "fast-cpu",
        "device": {**CLUSTER["device"], "peak": {"fp32": "200 GFLOP/s"}, "memory_bandwidth": "20 GB/s"}}


def sweep(expected, *arguments):
    done = planner("sweep", *arguments)
    assert done.returncode == expected, (arguments, done.returncode, done.stderr)
    return done


class Page(html.parser.HTMLParser):
    """Counts what a page draws, and refuses what loads anything or runs a script that its policy does not name."""

    def __init__(self, text):
        super().__init__()
        self.dots = self.charts = self.rows = 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        assert not any(key.startswith("on") for key in attributes), tag
        assert "src" not in attributes and attributes.get("href", "#").startswith("#"), (tag, attributes)
        self.dots += tag == "circle"
        self.charts += tag == "svg"
        self.rows += tag == "tr"


def check_outputs(folder, slow, fast):
    """Text, JSON, CSV and page have the same rows; each plan is that of `planner plan`."""
    table, page = folder / "table.csv", folder / "page.html"
    asked = (NANO, "--cluster", slow, "--cluster", fast, "--devices", "1..4x2", "--devices", "7",
             "--tokens", "1B", "--price", "test-cpu=0.01/h", "--price", f"{fast}=0.03/h",
             "--deadline", "30d")
    found = json.loads(sweep(OK, *asked, "--json", "--csv", table, "--html", page).stdout)
    points = found["points"]
    assert [(p["cluster"], p["devices"]) for p in points] == [
        (name, devices) for name in ("test-cpu", "fast-cpu") for devices in (1, 2, 4, 7)]
    job = json.loads(NANO.read_text())
    for point in points:
        if not point["strategy"]:
            assert point["reason"] and point["devices"] == 7, point
            continue
        steps = -(-10**9 // (job["global_batch"] * job["sequence"]))
        assert point["steps"] == steps
        days = steps * point["step_time_s"] / 86400
        assert abs(point["days"] - days) < 1e-9 * days
        price = 0.01 if point["cluster"] == "test-cpu" else 0.03
        assert abs(point["cost"] - days * 24 * point["devices"] * price) < 1e-9 * point["cost"]
        assert point["days_low"] <= point["days"] <= point["days_high"]
    with_plans = [p for p in points if p["strategy"]]
    assert points[found["fastest"]]["days"] == min(p["days"] for p in with_plans)
    in_time = [p for p in with_plans if p["days"] <= 30]
    assert points[found["cheapest"]]["cost"] == min(p["cost"] for p in in_time)
    plan = json.loads(planner("plan", NANO, "--cluster", fast, "--devices", 4, "--json").stdout)
    assert plan["strategy"] == points[6]["strategy"]
    assert plan["prediction"]["step_time_s"] == points[6]["step_time_s"]
    with open(table, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["cluster"] for row in rows] == [p["cluster"] for p in points]
    for row, point in zip(rows, points):
        assert row["days"] == "" if point["days"] is None else float(row["days"]) == point["days"]
    drawn = Page(page.read_text())
    assert drawn.charts == 6 and drawn.dots == 6 * len(with_plans), (drawn.charts, drawn.dots)
    text = sweep(OK, *asked).stdout
    assert text.count("test-cpu ") >= 4 and "fastest: " in text and "least cost within" in text, text
    assert sweep(OK, *asked, "--threads", 1).stdout == text
    assert found["command"].startswith("planner sweep gpt-nano.json --cluster "), found["command"]


def check_batches(slow):
    """Batches and sequences are points, too; limits hold for every search."""
    done = sweep(OK, NANO, "--cluster", slow, "--devices", "4", "--global-batch", "8,16",
                 "--sequence", "32,64", "--max", "mp=1", "--exclude", "recompute=full", "--json")
    points = json.loads(done.stdout)["points"]
    assert [(p["global_batch"], p["sequence"]) for p in points] == [(8, 32), (8, 64), (16, 32),
                                                                    (16, 64)]
    for point in points:
        assert point["strategy"]["mp"] == 1 and point["strategy"]["recompute"] != "full"
        assert point["days"] is None and point["cost"] is None


def check_networks():
    """--network is Gbit/s of each device: each point is the plan on a cluster with that network."""
    asked = ("gpt-mini", "--devices", 16, "--cluster", "dgx-a100-80gb", "--fix", "dp=16")
    points = json.loads(sweep(OK, *asked, "--network", "200,1.25", "--json").stdout)["points"]
    assert [p["network_bytes_per_s"] for p in points] == [1.25e9 / 8, 25e9]
    assert points[0]["step_time_s"] > 1.5 * points[1]["step_time_s"], points
    plain = json.loads(sweep(OK, *asked, "--json").stdout)["points"]
    assert plain[0]["network_bytes_per_s"] is None and plain[0]["step_time_s"] == points[1]["step_time_s"]
    text = sweep(OK, *asked, "--network", "1.25,200").stdout
    assert "1.25 Gbit/s" in text and "200 Gbit/s" in text, text
    done = sweep(USAGE, *asked, "--network", "fast")
    assert "--network fast" in done.stderr and "of each device" in done.stderr, done.stderr
    done = planner("sweep", "gpt-mini", "--cluster", "rtx-4090", "--network", "100")
    assert "no network between nodes" in done.stderr, done.stderr


def check_sizes(folder):
    """A point with more GPUs than its cluster is a row that names the cluster and why it has no plan."""
    cluster = json.loads((SOURCE / "models/presets/clusters/dgx-a100-80gb.json").read_text())
    cluster["nodes"], cluster["source"]["/nodes"] = 1, next(iter(cluster["source"].values()))
    one_node = write_json(folder / "one-node.json", cluster)
    text = sweep(OK, "gpt-mini", "--cluster", one_node, "--devices", "8,16", "--fix", "pp=1,mp=1").stdout
    assert f"16 devices of {cluster['name']}: cluster {cluster['name']} has 8 devices" in text, text


def check_refusals(folder, slow):
    asked = (NANO, "--cluster", slow)
    for words, *wrong in (("--devices 4..2x2", "--devices", "4..2x2"),
                          ("--tokens many", "--devices", 2, "--tokens", "many"),
                          ("needs --tokens", "--devices", 2, "--price", "1/h"),
                          ("needs --tokens", "--devices", 2, "--deadline", "3d"),
                          ("no --cluster other", "--devices", 2, "--tokens", "1B", "--price",
                           "other=1/h"),
                          ("exclude each other", "--devices", 2, "--fix", "mp=2", "--max", "mp=1"),
                          ("--csv", "--devices", 2, "--csv", slow)):
        done = sweep(USAGE, *asked, *wrong)
        assert words in done.stderr and not done.stdout, done.stderr
    odd = write_json(folder / "odd.json", nano_job(global_batch=3))
    done = sweep(INFEASIBLE, odd, "--cluster", slow, "--devices", 7)
    assert "no point has a plan" in done.stderr and "no point" not in done.stdout and "cost" not in done.stdout, done


def check_limits(slow):
    """A limit of all points, and of each; Ctrl-C and SIGTERM."""
    asked = (NANO, "--cluster", slow, "--devices", "1..4x2")
    done = sweep(STOPPED_EARLY, *asked, "--time-limit", "1 us", "--json")
    found = json.loads(done.stdout)
    assert found["points_left"] + len(found["points"]) == 3 and found["points_left"] > 0
    assert f"after {len(found['points'])} of 3 points" in done.stderr, done.stderr
    sweep(STOPPED_EARLY, *asked, "--point-time-limit", "0.000001s")
    for ending in (signal.SIGINT, signal.SIGTERM):
        check_signal(ending)


def check_signal(ending):
    """The signal comes as soon as it can be noted, before a machine of any speed has searched all points."""
    command = [BIN / "planner", "sweep", "gpt3-175b", "--cluster", "dgx-a100-80gb", "--devices",
               "512..4096+8", "--json"]
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as running:
        while running.poll() is None and not catches(running, ending):
            time.sleep(0.001)
        running.send_signal(ending)
        stdout, stderr = running.communicate(timeout=1200)
    found = json.loads(stdout)
    assert running.returncode == STOPPED_EARLY, (running.returncode, stderr)
    assert "stopped by an interrupt after" in stderr, stderr
    assert found["points_left"] + len(found["points"]) == 449


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        slow = write_json(folder / "slow.json", CLUSTER)
        fast = write_json(folder / "fast.json", FAST)
        check_outputs(folder, slow, fast)
        check_batches(slow)
        check_networks()
        check_sizes(folder)
        check_refusals(folder, slow)
        check_limits(slow)
    print("every row, answer, refusal and limit as documented")
    return 0


if __name__ == "__main__":
    sys.exit(main())
