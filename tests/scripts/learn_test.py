"""planner learn: a script and its log become a calibration, which later commands find by themselves."""

import json
import os
import pathlib
import sys
import tempfile

from made_up_runs import megatron_log
from programs import BAD_INPUT, OK, USAGE, planner

SCRIPT = """torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 16 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 \\
  --max-position-embeddings 2048 --micro-batch-size {micro} --global-batch-size 128 --tensor-model-parallel-size {tp} \\
  --vocab-size 50304 --bf16 --use-flash-attn --use-distributed-optimizer
"""
TARGET = ("--cluster", "dgx-a100-80gb", "--devices", 8)


def script(folder, tp, micro):
    path = folder / f"tp{tp}-{micro}.sh"
    path.write_text(SCRIPT.format(tp=tp, micro=micro))
    return path


def step_of(path, *more):
    done = planner("simulate", "--from", path, *TARGET, "--json", *more)
    assert done.returncode == OK, done.stderr
    return json.loads(done.stdout)["prediction"]["step_time_s"]


def run_of(folder, tp, micro, slower):
    """A script whose steps take `slower` times the built-in prediction, and its log."""
    path = script(folder, tp, micro)
    log = megatron_log(path.with_suffix(".log"), slower * step_of(path, "--calibration", "built-in"), 128)
    return ("--from", path, "--log", log)


def learned(*arguments):
    done = planner("learn", *arguments, *TARGET, "--json")
    assert done.returncode == OK, done.stderr
    return json.loads(done.stdout)


def check_one_run(folder):
    found = learned(*run_of(folder, 1, 4, 1.2))
    run, = found["runs"]
    assert run["steps"] == 39 and run["left_out_steps"] == 1, run
    assert abs(run["before_s"] / run["measured_s"] * 1.2 - 1) < 0.01, run
    assert run["before_s"] < run["after_s"] < 1.05 * run["measured_s"], run
    assert found["half_width"] < found["half_width_before"], found


def check_intervals(folder):
    """A run that confirms the prediction makes no interval wider; one that nothing explains is called unlikely."""
    width = lambda path, *more: (lambda found: found["step_time_high_s"] / found["step_time_low_s"])(
        json.loads(planner("simulate", "--from", path, *TARGET, "--json", *more).stdout)["prediction"])
    found = learned(*run_of(folder, 1, 4, 1), "-o", folder / "confirmed.json")
    assert not found["runs"][0]["unlikely"] and found["half_width"] < found["half_width_before"], found
    for path in (script(folder, 1, 4), script(folder, 8, 1)):
        assert width(path, "--calibration", folder / "confirmed.json") <= 1.02 * width(path), path
    assert learned(*run_of(folder, 1, 4, 9))["runs"][0]["unlikely"]


def check_found_files(folder):
    """Commands use .plimsoll, name it, and are as before without it or with another choice."""
    third = script(folder, 4, 4)
    before = step_of(third)
    done = planner("learn", *run_of(folder, 1, 4, 1.2), *run_of(folder, 2, 2, 1.2), *TARGET, "-o", folder / ".plimsoll/mine.json")
    assert done.returncode == OK and "by the other runs" in done.stdout, (done.stdout, done.stderr)
    after = step_of(third)
    assert 1.08 < after / before < 1.32, (before, after)
    assert step_of(third, "--calibration", "built-in") == before
    assert step_of(third, "--calibration", folder / ".plimsoll/mine.json") == after
    shown = planner("simulate", "--from", third, *TARGET, "--verbose").stdout
    assert ".plimsoll/mine.json, learned from 2 runs on dgx-a100-80gb" in " ".join(shown.split()), shown
    plan = folder / "plan.json"
    assert planner("plan", "--from", third, *TARGET, "-o", plan).returncode == OK
    assert planner("explain", plan).returncode == OK  # the plan's digest finds the file again
    other = planner("simulate", "--from", third, "--cluster", "dgx-h100-80gb", "--devices", 8, "--verbose")
    assert other.returncode == OK and "learned" not in other.stdout, other.stdout
    given = planner("simulate", "--from", third, "--cluster", "dgx-h100-80gb", "--devices", 8, "--calibration", folder / ".plimsoll/mine.json")
    assert given.returncode == BAD_INPUT and "/fitted/device" in given.stderr, given.stderr
    copy = folder / ".plimsoll/again.json"
    copy.write_text((folder / ".plimsoll/mine.json").read_text())
    several = planner("simulate", "--from", third, *TARGET)
    assert several.returncode == BAD_INPUT and "name one with --calibration" in several.stderr, several.stderr
    copy.write_text("{")
    broken = planner("simulate", "--from", third, *TARGET)
    assert broken.returncode == BAD_INPUT and "again.json" in broken.stderr, broken.stderr
    copy.write_text('{"notes": "of mine"}')
    shown = planner("simulate", "--from", third, *TARGET)
    assert shown.returncode == OK and ".plimsoll/mine.json, learned from 2 runs" in " ".join(shown.stdout.split()), (shown.stdout, shown.stderr)


def check_refusals(folder):
    run = run_of(folder, 1, 4, 1.2)
    log = megatron_log(folder / "other.log", 1, 256)
    done = planner("learn", "--from", run[1], "--log", log, *TARGET)
    assert done.returncode == BAD_INPUT and "global batch" in done.stderr and "256" in done.stderr, done.stderr
    run[3].write_text("  world_size ...................................... 64\n" + run[3].read_text())
    done = planner("learn", *run, *TARGET)
    assert done.returncode == BAD_INPUT and "world_size 64" in done.stderr, done.stderr
    run = run_of(folder, 1, 4, 1.2)
    done = planner("learn", *run, *run, *TARGET)
    assert done.returncode == USAGE and "twice" in done.stderr, done.stderr
    done = planner("learn", *run, "--from", run[1], *TARGET)
    assert done.returncode == USAGE and "2 --from and 1 --log" in done.stderr, done.stderr
    empty = folder / "empty.log"
    empty.write_text("nothing\n")
    done = planner("learn", "--from", run[1], "--log", empty, *TARGET)
    assert done.returncode == BAD_INPUT and "empty.log" in done.stderr, done.stderr
    output = folder / "kept.json"
    output.write_text("mine")
    done = planner("learn", "--from", run[1], "--log", empty, *TARGET, "-o", output)
    assert done.returncode == BAD_INPUT and output.read_text() == "mine"


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HOME"] = os.environ["XDG_CONFIG_HOME"] = folder
        os.chdir(folder)
        for check in (check_one_run, check_refusals, check_intervals, check_found_files):
            check(pathlib.Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
