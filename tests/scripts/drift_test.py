"""planner compare --log and planner explain --log: logs against what was learned, and what the steps of a log show."""

import json
import math
import os
import pathlib
import sys
import tempfile

from learn_test import TARGET, run_of, script, step_of
from made_up_runs import megatron_log
from programs import BAD_INPUT, OK, OUTSIDE_TOLERANCE, USAGE, planner

MINE = ".plimsoll/mine.json"


def compared(code, *arguments):
    done = planner("compare", *arguments, *TARGET, "--json")
    assert done.returncode == code, (done.returncode, done.stderr)
    return json.loads(done.stdout)


def check_canary(folder):
    """A learned run's log again is expected; a longer and a shorter one are not, and the exit code says so."""
    path = script(folder, 1, 4)
    step = 1.2 * step_of(path, "--calibration", "built-in")
    log = lambda name, slower, batch=128: megatron_log(folder / name, slower * step, batch)
    nothing = planner("compare", "--from", path, "--log", log("a.log", 1), *TARGET)
    assert nothing.returncode == USAGE and "planner learn" in nothing.stderr, nothing.stderr
    done = planner("learn", "--from", path, "--log", log("a.log", 1), *TARGET, "-o", MINE)
    assert done.returncode == OK, done.stderr
    found = compared(OK, "--from", path, "--log", log("b.log", 1.005))
    run, = found["runs"]
    assert found["all_expected"] and run["expected"] and "mine.json" in found["basis"], found
    assert run["before_low_s"] < run["measured_s"] < run["before_high_s"], run
    for slower in (1.3, 0.7):
        found = compared(OUTSIDE_TOLERANCE, "--from", path, "--log", log("c.log", slower))
        run, = found["runs"]
        assert not run["expected"] and not found["all_expected"], run
        changes = [part["change"] for part in run["error_parts"]]
        assert changes == sorted(changes, key=abs, reverse=True) and (changes[0] > 0) == (slower > 1), run
    # One script may have a log for each night. One bad night is enough.
    nights = [part for name, slower in (("1.log", 1), ("2.log", 1.4), ("3.log", 0.99)) for part in ("--log", log(name, slower))]
    found = compared(OUTSIDE_TOLERANCE, "--from", path, *nights)
    assert [run["expected"] for run in found["runs"]] == [True, False, True], found
    shown = planner("compare", "--from", path, *nights, *TARGET)
    assert shown.returncode == OUTSIDE_TOLERANCE and "1 of 3 logs" in shown.stderr, shown
    named = compared(OK, "--from", path, "--log", folder / "1.log", "--calibration", folder / MINE)
    assert named["runs"][0]["before_s"] == found["runs"][0]["before_s"], named
    other = planner("compare", "--from", path, "--log", log("other.log", 1, 64), *TARGET)
    assert other.returncode == BAD_INPUT and "global batch" in other.stderr, other.stderr
    for wrong in (("--from", path), ("--log", folder / "1.log"), ("plan.json", "--from", path, "--log", folder / "1.log"), (),
                  ("--from", path, "--log", folder / "1.log", "--refit")):
        done = planner("compare", *wrong)
        assert done.returncode == USAGE, (wrong, done.returncode, done.stderr)
    (folder / MINE).unlink()


def check_steps(folder):
    """A step that gets longer by 0.2 % each time, and every eighth slow by half; 38 distances are steady."""
    path = script(folder, 1, 4)
    step = step_of(path, "--calibration", "built-in")
    drifts = megatron_log(folder / "drifts.log", step, 128, factor=lambda step: math.exp(0.002 * step))
    found = json.loads(planner("explain", "--from", path, "--log", drifts, *TARGET, "--json").stdout)
    trend = found["run"]["trend"]
    assert abs(trend["change"] - math.expm1(0.002 * 38)) < 0.002, trend  # the steps of the log wobble by as much
    assert 0 < trend["low"] <= trend["change"] <= trend["high"], trend
    assert found["run"]["slow_steps"]["share"] == 0, found["run"]
    steady = megatron_log(folder / "steady.log", step, 128, steps=81, factor=lambda step: 1.5 if step % 8 == 0 else 1)
    run = json.loads(planner("explain", "--from", path, "--log", steady, *TARGET, "--json").stdout)["run"]
    assert run["slow_steps"]["period"] == 8 and run["slow_steps"]["share"] == 10 / 80, run
    assert abs(run["slow_steps"]["time_lost"] - 5 / 85) < 0.001, run
    assert run["trend"]["low"] < 0.001 and run["trend"]["high"] > -0.001, run


def check_explanation(folder):
    """After learning, the step and its changes are those of the learned numbers."""
    run = run_of(folder, 2, 2, 1.25)
    done = planner("explain", *run, *TARGET, "--json")
    assert done.returncode == OK, done.stderr
    found = json.loads(done.stdout)
    measured, before, after = found["run"]["measured_s"], found["step_before"]["step_time_s"], found["step"]["step_time_s"]
    assert abs(measured / before / 1.25 - 1) < 0.01, found["run"]
    assert abs(after / measured - 1) < 0.08 < abs(before / measured - 1), (before, after, measured)
    width = lambda step: step["step_time_high_s"] / step["step_time_low_s"]
    assert width(found["step"]) < width(found["step_before"]), found["step"]
    unlearned = json.loads(planner("explain", "--from", run[1], *TARGET, "--json", "--calibration", "built-in").stdout)
    assert unlearned["step"] == found["step_before"]
    # The step of a change is what `simulate` predicts with what `learn` writes.
    assert planner("learn", *run, *TARGET, "-o", "learned.json").returncode == OK
    assert step_of(run[1], "--calibration", "learned.json") == after
    brief = planner("explain", *run, *TARGET)
    verbose = planner("explain", *run, *TARGET, "--verbose")
    assert brief.returncode == OK and verbose.returncode == OK, (brief.stderr, verbose.stderr)
    assert len(brief.stdout) < len(verbose.stdout) and "planner learn --from" in brief.stdout, brief.stdout
    for wrong in (("--log", run[3]), ("plan.json", "--from", run[1], "--log", run[3])):
        assert planner("explain", *wrong).returncode == USAGE, wrong


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HOME"] = os.environ["XDG_CONFIG_HOME"] = folder
        os.chdir(folder)
        for check in (check_canary, check_steps, check_explanation):
            check(pathlib.Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
