"""planner learn: a script and its log become a calibration, which later commands find by themselves."""

import json
import os
import pathlib
import sys
import tempfile

from made_up_runs import megatron_log
from programs import BAD_INPUT, NANO, OK, SOURCE, USAGE, planner

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


def check_stored_runs(folder):
    """The file has the runs with their errors, as the command prints them; describe shows them."""
    found = learned(*run_of(folder, 1, 4, 1.2), *run_of(folder, 2, 2, 1.2), "-o", folder / "stored.json")
    stored = json.loads((folder / "stored.json").read_text())["fitted"]["learned"]["runs"]
    assert len(stored) == 2 and "TP 2" in stored[1]["layout"] and "TP 2" not in stored[0]["layout"], stored
    for run, kept in zip(found["runs"], stored):
        assert all(kept[key] == run[key] for key in ("log", "measured_s", "before_s", "after_s")), (run, kept)
        assert abs(kept["by_others_s"] / kept["measured_s"] - 1 - run["by_others"]["error"]) < 1e-9, (run, kept)
    described = json.loads(planner("describe", folder / "stored.json", "--json").stdout)
    assert [{**run, "contradicts": False} for run in stored] == described["learned_from"], described
    text = planner("describe", folder / "stored.json").stdout
    for run in found["runs"]:
        assert f"{100 * (run['before_s'] / run['measured_s'] - 1):+.0f} %" in text, (run, text)


def check_intervals(folder):
    """A run that confirms the prediction makes no interval wider; one that nothing explains is called unlikely."""
    width = lambda path, *more: (lambda found: found["step_time_high_s"] / found["step_time_low_s"])(
        json.loads(planner("simulate", "--from", path, *TARGET, "--json", *more).stdout)["prediction"])
    found = learned(*run_of(folder, 1, 4, 1), "-o", folder / "confirmed.json")
    assert not found["runs"][0]["unlikely"] and found["half_width"] < found["half_width_before"], found
    for path in (script(folder, 1, 4), script(folder, 8, 1)):
        assert width(path, "--calibration", folder / "confirmed.json") <= 1.02 * width(path), path
    assert learned(*run_of(folder, 1, 4, 9))["runs"][0]["unlikely"]


def check_memory(folder):
    """A run that reserves a fifth more than its replay makes other plans larger and their memory surer; a wrong peak is named."""
    memory_of = lambda path, *more: json.loads(planner("simulate", "--from", path, *TARGET, "--json", *more).stdout)["prediction"]["memory"]

    def run_with(tp, micro, factor):
        run = run_of(folder, tp, micro, 1)
        stages = json.loads(planner("simulate", "--from", run[1], *TARGET, "--json").stdout)["prediction"]["stages"]
        allocated, reserved = (max(stage[f"{kind}_bytes"] for stage in stages) / 2**20 for kind in ("allocated", "reserved"))
        run[3].write_text(run[3].read_text() + f"[Rank 0] (after 1 iterations) memory (MB) | allocated: 1.0 | max allocated: {allocated} | "
                          f"reserved: {factor * reserved} | max reserved: {factor * reserved}\n")
        return run
    output, other = folder / "memory.json", script(folder, 4, 2)
    found = learned(*run_with(1, 4, 1.2), *run_with(2, 4, 1.2), "-o", output)
    peaks = {peak["kind"]: peak for peak in found["runs"][0]["peaks"]}
    assert abs(peaks["reserved"]["measured_bytes"] / peaks["reserved"]["before_bytes"] - 1.2) < 1e-6, peaks
    assert abs(peaks["allocated"]["measured_bytes"] / peaks["allocated"]["before_bytes"] - 1) < 1e-6, peaks
    assert 1.1 < found["memory"]["factor"] < 1.2, found["memory"]  # both agree
    before, after = memory_of(other), memory_of(other, "--calibration", output)
    outside = before["taken_bytes"] - json.loads(planner("simulate", "--from", other, *TARGET, "--json").stdout)["prediction"]["stages"][0]["reserved_bytes"]
    assert abs((after["taken_bytes"] - outside) / (before["taken_bytes"] - outside) / found["memory"]["factor"] - 1) < 1e-6, (before, after)
    width = lambda memory: memory["high_bytes"] / memory["low_bytes"]
    assert width(after) < width(before) and after["learned"] == found["memory"], (before, after)
    plan = folder / "plan-of-learned-memory.json"
    assert planner("plan", "--from", other, *TARGET, "--calibration", output, "-o", plan).returncode == OK
    assert json.loads(plan.read_text())["prediction"]["memory"]["learned"] == found["memory"]
    checked = planner("check", plan)
    assert checked.stdout and "memory" not in checked.stdout, checked  # the checker finds the same interval
    found = learned(*run_with(1, 4, 1), *run_with(2, 4, 1), *run_with(1, 2, 1), *run_with(2, 2, 3))
    assert [run["peak_contradicts"] for run in found["runs"]] == [False] * 3 + [True], found["runs"]
    assert abs(found["memory"]["factor"] - 1) < 0.02, found["memory"]
    assert learned(*run_of(folder, 1, 4, 1))["memory"] is None


def check_timers(folder):
    """Timers of phases that are forward, backward and the update of the same run are compared, those of several steps left out."""
    run = run_of(folder, 1, 4, 1)
    step = step_of(run[1])
    timers = lambda seconds: "".join(f"    {name} .....: ({1000 * part * seconds:.2f}, {1000 * part * seconds:.2f})\n" for name, part in
                                     (("forward-compute", 0.3), ("backward-compute", 0.6), ("optimizer", 0.05), ("batch-generator", 0.01)))
    rows = "(min, max) time across ranks (ms):\n"
    lines = run[3].read_text()
    run[3].write_text(lines + 2 * (rows + timers(step)))
    parts = {part["part"]: part["measured_s"] for part in learned(*run)["runs"][0]["parts"]}
    assert {"forward", "backward"} <= set(parts) <= {"forward", "backward", "optimizer"} and abs(parts["backward"] / step - 0.6) < 0.001, parts
    run[3].write_text(lines + 2 * (rows + timers(10 * step)))
    found, = learned(*run)["runs"]
    assert found["parts"] == [] and "sum to" in found["doubts"][-1], found
    run[3].write_text(lines)
    recorded = json.loads((SOURCE / "tests/interop/traces/three-steps.pt.trace.json").read_text())
    longest = max(event["dur"] for event in recorded["traceEvents"] if event["name"].startswith("ProfilerStep"))
    for event in recorded["traceEvents"]:
        event.update({key: event[key] * 1e6 * step / longest for key in ("ts", "dur") if key in event})
    trace = folder / "rank0.pt.trace.json"
    trace.write_text(json.dumps(recorded))
    parts = {part["part"]: part["measured_s"] for part in learned(*run, "--trace", trace)["runs"][0]["parts"]}
    assert "compute" in parts and set(parts) <= {"compute", "communication"} and sum(parts.values()) <= step, (parts, step)
    done = planner("learn", *run, "--trace", run[3], *TARGET)
    assert done.returncode == BAD_INPUT and run[3].name in done.stderr, done.stderr
    done = planner("learn", *run, "--trace", trace, "--trace", trace, *TARGET)
    assert done.returncode == USAGE, done.stderr


def check_rates(folder):
    """torchtitan prints tokens/s of a device, and its settings state the rest."""
    settings = folder / "train.toml"
    settings.write_text('[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 1\nseq_len = 8192\n'
                        "[parallelism]\ndata_parallel_shard_degree = 8\n")
    log = folder / "titan.log"
    log.write_text("".join(f"[titan] - INFO - step: {step:2}  loss:  9.0  memory: 40.00GiB(42.00%)  tps: {4096 if step > 1 else 100:,}  mfu: 30.0%\n"
                           for step in range(1, 12)))
    found, = learned("--from", settings, "--log", log)["runs"]
    assert abs(found["measured_s"] - 2) < 1e-9 and found["steps"] == 10, found  # 8 x 8192 tokens at 8 x 4096 a second


def check_measured(folder):
    """Collectives that nccl-tests measured stay as they are, and the rest is learned next to them."""
    run = run_of(folder, 2, 2, 1.2)
    measured, output = folder / "nccl.json", folder / "next-to-nccl.json"
    lines = ["# nccl-tests version 2.18.3 nccl-headers=22809 nccl-library=22809", "# Collective test starting: all_reduce_perf"]
    lines += [f"#  Rank {rank:2} Group  0 Pid   400{rank} on     node-0 device  {rank} [0000:1{rank}:00] NVIDIA A100-SXM4-80GB" for rank in range(8)]
    lines += ["#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong"]
    for size, us in ((2**20, 96.33), (2**30, 8000.0), (2**33, 63000.0)):
        rate = size / us / 1e3
        lines.append(f"{size} {size // 4} float sum -1" + 2 * f" {us} {rate:.2f} {rate * 7 / 4:.2f} 0")
    text = folder / "all_reduce.txt"
    text.write_text("\n".join(lines) + "\n# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 98.7\n")
    done = planner("import", "nccl-tests", text, "--cluster", TARGET[1], "--date", "2026-07-09", "-o", measured)
    assert done.returncode == OK, done.stderr
    alone = step_of(run[1], "--calibration", measured)
    found = learned(*run, "--calibration", measured, "-o", output)
    assert abs(found["runs"][0]["before_s"] / alone - 1) < 1e-6, (found, alone)
    together = step_of(run[1], "--calibration", measured, "--calibration", output)
    assert abs(together / found["runs"][0]["after_s"] - 1) < 0.01, (found, together)


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
    plan, page = folder / "plan.json", folder / "page.html"
    assert planner("plan", "--from", third, *TARGET, "-o", plan).returncode == OK
    assert planner("report", plan, "-o", page).returncode == OK and "tp2-2.log" in page.read_text()
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


def check_plan_and_its_run(folder):
    """A plan stands for a script, and the lines of planner run for a log."""
    plan, log = folder / "bundled.json", folder / "bundled.log"
    target = ("--cluster", "dgx-a100-80gb", "--framework", "bundled-cuda")
    done = planner("plan", "gpt-mini", *target, "--devices", 8, "--fix", "mp=2", "-o", plan)
    assert done.returncode == OK, done.stderr
    planned = json.loads(plan.read_text())["prediction"]["step_time_s"]
    found = json.loads(planner("simulate", "--from", plan, *target[:2], "--json").stdout)["prediction"]["step_time_s"]
    assert found == planned, (found, planned)
    # As runtime/command/run_command.cpp prints them. The first step is left out, and the median of the others is 20.2 ms.
    log.write_text("".join(f"step {step}/12  loss 4.{step:04}  step time {time} ms  41532 tokens/s  3.1 s left  held-out loss 9.1\n"
                           for step, time in enumerate((90.1, *[20.1, 20.2, 20.3] * 3, 20.2, 20.2), 1)))
    found = json.loads(planner("learn", "--from", plan, "--log", log, *target[:2], "--json").stdout)
    run, = found["runs"]
    assert (run["trainer"], run["steps"], run["left_out_steps"], run["measured_s"]) == ("planner run", 11, 1, 0.0202), run
    assert abs(run["before_s"] / planned - 1) < 1e-9 and found["framework"] == "bundled-cuda", (run, planned)
    for more in (("--devices", 4), ("gpt-mini",)):
        assert planner("simulate", "--from", plan, *target[:2], *more).returncode == USAGE, more


def check_cores(folder):
    """Steps on CPU cores take longer than their calibrated ops; two of them tell how long a third takes."""
    cluster, measured, output = (folder / f"{name}.json" for name in ("cores", "ops", "learned-on-cores"))
    done = planner("calibrate", "--quick", "--budget", "2 s", "-o", measured, "--cluster-out", cluster)
    assert done.returncode == OK, done.stderr
    target = ("--cluster", cluster, "--calibration", measured)

    def plan_of(micro):
        plan = folder / f"cores-{micro}.json"
        done = planner("plan", NANO, *target, "--devices", 1, "--global-batch", 8, "--fix", f"micro_batch={micro}", "-o", plan)
        assert done.returncode == OK, done.stderr
        return plan, json.loads(plan.read_text())["prediction"]["step_time_s"]

    runs = []
    for micro in (1, 4):
        plan, step = plan_of(micro)
        log = folder / f"cores-{micro}.log"
        log.write_text("".join(f"step {number}/20  loss 4.0000  step time {1080 * step:.6f} ms  41532 tokens/s\n" for number in range(1, 21)))
        runs += ["--from", plan, "--log", log]
    done = planner("learn", *runs, *target, "-o", output, "--json")
    assert done.returncode == OK, done.stderr
    third, before = plan_of(2)
    found = json.loads(planner("simulate", "--from", third, *target, "--calibration", output, "--json").stdout)
    after = found["prediction"]["step_time_s"]
    assert 1.03 * before < after < 1.08 * before, (before, after)
    shown = " ".join(planner("simulate", "--from", third, *target, "--calibration", output, "--verbose").stdout.split())
    assert "learned from 2 runs" in shown and "calibration measured on" in shown, shown
    alone = planner("simulate", "--from", third, "--cluster", cluster, "--calibration", output)
    assert alone.returncode == BAD_INPUT and "required, too" in alone.stderr, alone.stderr


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
        for check in (check_one_run, check_stored_runs, check_plan_and_its_run, check_cores, check_refusals, check_intervals, check_memory, check_timers,
                      check_rates, check_measured, check_found_files):
            check(pathlib.Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
