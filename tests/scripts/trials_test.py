"""Trials: planner plan names plans to try, planner export writes them, planner learn reads their logs, planner plan decides."""

import json
import os
import pathlib
import sys
import tempfile

from made_up_runs import megatron_log
from programs import INFEASIBLE, OK, USAGE, planner

JOB = ("llama3-8b", "--cluster", "dgx-h100-80gb", "--devices", 16)


def planned(folder, *more):
    done = planner("plan", *JOB, *more, "-o", folder / "plan.json")
    assert done.returncode == OK, done.stderr
    return json.loads((folder / "plan.json").read_text())


def same_split(a, b):
    return all(a[key] == b[key] for key in ("mp", "pp", "cp", "sharding_stage", "micro_batch", "recompute"))


def check_path(folder):
    """A trial that was faster than predicted is named, and what was tried is not tried again."""
    plan = planned(folder)
    trials = plan["trials"]
    assert 2 <= len(trials) <= 3 and trials[0]["strategy"] == plan["strategy"] and trials[-1]["gain"] > 0, trials
    done = planner("export", folder / "plan.json", "--to", "megatron", "--trial", "-o", folder / "trial.sh")
    assert done.returncode == OK, done.stderr
    runs = []
    for number, trial in enumerate(trials, 1):
        script = folder / f"trial-{number}.sh"
        assert "--train-iters 20\n" in script.read_text() and "--log-interval 1\n" in script.read_text()
        read = json.loads(planner("simulate", "--from", script, *JOB[1:], "--json", "--calibration", "built-in").stdout)
        assert same_split(read["strategy"], trial["strategy"]), (read, trial)
        assert abs(read["prediction"]["step_time_s"] / trial["step_time_s"] - 1) < 1e-6, (read, trial)
        step = (0.9 if number == len(trials) else 1) * trial["step_time_s"]
        log = megatron_log(folder / f"trial-{number}.log", step, plan["job"]["global_batch"])
        assert f"--from {script} --log {script.with_suffix('.log')}" in done.stderr, done.stderr
        runs += ["--from", script, "--log", log]
    assert not (folder / f"trial-{len(trials) + 1}.sh").exists()
    assert planner("learn", *runs, *JOB[1:], "-o", folder / ".plimsoll/mine.json").returncode == OK
    done = planner("plan", *JOB, "-o", folder / "plan.json")
    line, = [line for line in done.stdout.splitlines() if line.startswith("measured")]
    assert f"{step:.1f} s in {folder}/trial-{len(trials)}.log" in line, done.stdout
    tried = [trial["strategy"] for trial in trials]
    again = json.loads((folder / "plan.json").read_text())["trials"]
    assert not any(same_split(one["strategy"], other) for one in again for other in tried), again
    # A single log of the three replaces what was learned, and the command names what gets lost.
    done = planner("learn", *runs[-4:], *JOB[1:], "-o", folder / ".plimsoll/mine.json")
    assert done.returncode == OK and f"no longer learned from {folder}/trial-1.log" in done.stderr, done.stderr


def check_refusals(folder):
    short = planned(folder, "--tokens", "10M", "--calibration", "built-in")  # a few steps: no trial pays
    assert short["trials"] == []
    done = planner("export", folder / "plan.json", "--to", "megatron", "--trial", "-o", folder / "none.sh")
    assert done.returncode == INFEASIBLE and not (folder / "none-1.sh").exists(), done.stderr
    assert planner("export", folder / "plan.json", "--to", "megatron", "--trial").returncode == USAGE


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HOME"] = os.environ["XDG_CONFIG_HOME"] = folder
        os.chdir(folder)
        check_path(pathlib.Path(folder))
        check_refusals(pathlib.Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
