"""The main job end to end, on the small job: calibrate, plan, check, run, compare, report."""

import json
import pathlib
import re
import sys
import tempfile

from programs import BAD_INPUT, NANO, OK, OUTSIDE_TOLERANCE, SOURCE, USAGE, planner

STEPS = 12


def must(done, *codes):
    assert done.returncode in (codes or (OK,)), (done.args, done.returncode, done.stderr)
    return done


def bytes_equal(comparison):
    """Every rank's peak, and every class at that peak, predicted and measured."""
    for rank in comparison["ranks"]:
        pairs = [rank["peak_bytes"], *rank["by_class"].values()]
        for pair in pairs:
            assert pair["predicted"] == pair["measured"], rank
        assert rank["peak_bytes"]["measured"] > 0, rank
    return len(comparison["ranks"])


def run_loop(out, fix):
    """Plans under `fix`, runs, compares: bytes must agree exactly; only time may miss."""
    plan, measured = out / "plan.json", out / "measured.json"
    fixes = [argument for pair in fix for argument in ("--fix", pair)]
    planned = must(planner("plan", NANO, "--cluster", out / "cluster.json", "--calibration",
                           out / "calibration.json", "--devices", 2, *fixes, "-o", plan))
    for word in ("gpt-nano", "2 CPU cores", "bundled", "rests on measurements of"):
        assert word in planned.stdout, planned.stdout
    must(planner("check", plan))
    text = SOURCE / "data" / "training-text.txt"
    must(planner("run", plan, "--data", text, "--steps", STEPS, "-o", measured))
    losses = json.loads(measured.read_text())["losses"]
    assert len(losses) == STEPS and losses[-1] < losses[0], losses

    compared = must(planner("compare", plan, measured, "--json"), OK, OUTSIDE_TOLERANCE)
    comparison = json.loads(compared.stdout)
    assert bytes_equal(comparison) == 2
    # A tolerance that hardly anything misses leaves the bytes alone to decide.
    must(planner("compare", plan, measured, "--tolerance", 100))
    step = comparison["step_time_s"]
    assert step["predicted"] > 0 and step["measured"] > 0, step

    # The run corrects the calibration, which plans again; of another calibration it says nothing.
    made_with = ("--cluster", out / "cluster.json", "--calibration", out / "calibration.json")
    better = out / "refitted.json"
    done = must(planner("compare", plan, measured, "--tolerance", 100, "--refit", *made_with, "-o",
                        better, "--json"))
    refit = json.loads(done.stdout)["refit"]
    assert refit["step_time_s"]["before"] == step["predicted"], refit
    assert "matmul" in {term["name"] for term in refit["terms"]}, refit
    must(planner("plan", NANO, "--cluster", out / "cluster.json", "--calibration", better,
                 "--devices", 2, *fixes))
    must(planner("compare", plan, measured, "--refit", *made_with[:2], "--calibration", better),
         BAD_INPUT)
    must(planner("compare", plan, measured, "--refit"), USAGE)

    page = out / "report.html"
    must(planner("report", plan, measured, "-o", page))
    assert re.match(r"<!doctype html>", page.read_text(), re.IGNORECASE)


def main():
    with tempfile.TemporaryDirectory() as name:
        out = pathlib.Path(name)
        must(planner("calibrate", "--backend", "cpu", "--quick", "-o", out / "calibration.json",
                     "--cluster-out", out / "cluster.json", timeout=300))
        run_loop(out, [])
        run_loop(out, ["pp=2", "recompute=full", "micro_batch=4"])
    print("the loop closes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
