"""Every command of planner and of the laboratory that a page shows does what the page says: it runs, in the order of its page.

A line of a code block that begins with `planner`, `planner-calibrate`, `lab/validate`, `lab/fit` or `lab/state` is a command; a
backslash at its end continues it.
The commands of a page run in one folder, which has the files that a user would have (make_files). A plan that an earlier page
made by the same command is copied. Exit code 0 is required.
Commands that this machine cannot run are listed with their reason (NOT_RUN), and each entry must still be in use."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from made_up_runs import made_up_runs, megatron_log, stated_runs
from programs import BIN, CLUSTER, OK, OUTSIDE_TOLERANCE, SOURCE, STOPPED_EARLY, planner, write_json

COMMAND = re.compile(r"^(?:    |)(?:\$ )?((?:planner|planner-run|planner-calibrate|lab/(?:validate|fit|state)|mkdir) .*)$")
# A pattern of commands, and why they are not run.
NOT_RUN = {
    r"--backend cuda": "needs a GPU",
    r"--launcher mpirun --devices 16": "needs 16 cores",
    r"JOB ": "JOB stands for a file of the reader's",
    r"--calibration calibration\.json": "needs a machine at rest; scripts/demo runs it",
}
# Measurements, trainings and searches are cut short; a search that was may end with exit code 5.
BUDGET = re.compile(r'--budget ("[^"]*"|\S+)')
MANY_STEPS = re.compile(r"--steps \d\d+\b")
SEARCHES = re.compile(r"^planner (plan|sweep|explain|report) ")
PLANS = re.compile(r"^planner plan .* -o (\S+)$")
DEADLINE_S = 300


def pages():
    yield SOURCE / "README.md"
    for folder in ("guide", "how-to", "how-it-works", "reference"):
        # Commands of the page of mistakes fail, as mistakes_test.py checks.
        yield from (page for page in sorted((SOURCE / "docs" / folder).glob("*.md")) if page.stem != "mistakes")
    yield SOURCE / "docs/tutorial.md"
    yield SOURCE / "lab/README.md"


def commands_in(text):
    """The commands of a page, without comments at their ends; continued lines are joined."""
    lines = iter(text.splitlines())
    fenced = False
    for line in lines:
        if line.startswith("```"):
            fenced = not fenced
            continue
        found = COMMAND.match(line)
        if not found or not (fenced or line.startswith("    ")):
            continue
        command = found.group(1)
        while command.endswith("\\"):
            command = command[:-1] + next(lines).strip()
        yield re.sub(r"\s+# .*$", "", command).strip()


def reason_not_to_run(command):
    return next((reason for pattern, reason in NOT_RUN.items() if re.search(pattern, command)), None)


def timed_ops():
    """Matrix products with four fifths of the peak of an A100."""
    return [{"source": {"repo_or_doc": "made up", "path_or_issue": "documented_commands_test.py"}, "gpu": "A100-SXM4-80GB", "dtype": "f16",
             "devices": ["NVIDIA A100 SXM4 80GB"], "op": "matmul", "batch": 1, "m": m, "n": 4096, "k": k, "transpose_a": False,
             "transpose_b": False, "output_bytes": 2, "time_s": 2 * m * 4096 * k / 250e12}
            for m in (1024, 2048, 4096, 8192, 16384) for k in (1024, 2048, 4096, 8192, 16384)]


def make_files(folder):
    """Writes what the readers of pages have: runs, texts, scripts, and a machine that was measured."""
    (folder / "CASES").mkdir()
    stated_runs(folder / "CASES/torchtitan.json", "pytorch-fsdp", "A100-40GB", 40)
    stated_runs(folder / "runs.json", "megatron-lm", "A100-80GB", 80)
    made_up_runs(folder / "rows.json", "megatron-lm", "A100-80GB", 80)
    write_json(folder / "gemm_ops.json", timed_ops())
    (folder / "lab").symlink_to(SOURCE / "lab")
    for name in ("train", "a", "b"):
        shutil.copy(SOURCE / "tests/interop/llama3-70b.sh", folder / f"{name}.sh")
    for name in ("run", "a", "b", "night", "trial-1", "trial-2", "trial-3"):
        megatron_log(folder / f"{name}.log", 13.0, 512)
    shutil.copy(SOURCE / "tests/interop/logs/megatron-lm-new-ling-v2-mtp.log", folder / "train.log")
    shutil.copy(SOURCE / "tests/interop/traces/three-steps.pt.trace.json", folder / "rank0.pt.trace.json.gz")  # read either way
    shutil.copy(SOURCE / "tests/interop/data/llama-3-70b.json", folder / "config.json")
    shutil.copy(SOURCE / "tests/fuzz/examples/import/axolotl.yaml", folder / "qlora.yaml")
    shutil.copy(SOURCE / "tests/fuzz/examples/import/adapter_config.json", folder)
    shutil.copy(SOURCE / "tests/interop/topology/hgx-h100.txt", folder / "topo.txt")
    shutil.copy(SOURCE / "tests/interop/nccl-tests/two-runs.txt", folder / "all_reduce.txt")
    shutil.copy(SOURCE / "data/training-text.txt", folder / "text.txt")
    (folder / "tests").mkdir()
    shutil.copy(SOURCE / "tests/gpt-nano.json", folder / "tests")
    (folder / "overrides.yaml").write_text(
        "model: {tensor_model_parallel_size: 8, sequence_parallel: true}\ntrain: {micro_batch_size: 1}\n"
        "ddp: {use_distributed_optimizer: true}\n")
    (folder / "config.yaml").write_text("distributed_type: DEEPSPEED\nnum_processes: 64\nmixed_precision: bf16\n"
                                        "deepspeed_config: {zero_stage: 3, gradient_accumulation_steps: 8}\n")
    done = planner("plan", "gpt-mini", "--cluster", write_json(folder / "machine.json", CLUSTER), "--devices", 2,
                   "-o", folder / "plan.json")
    assert done.returncode == OK, done.stderr


def run(command, folder):
    """Returns what is wrong, or nothing."""
    shortened, allowed = command, (OK,)
    if command.startswith(("planner calibrate", "planner-calibrate")):
        shortened = BUDGET.sub("", command) + ' --quick --budget "2 s"'
    if command.startswith("planner run"):
        shortened = MANY_STEPS.sub("--steps 4", command)
    if SEARCHES.match(command) and "--time-limit" not in command:
        shortened, allowed = shortened + ' --time-limit "1 s" --threads 1', (OK, STOPPED_EARLY)
    if command.startswith("planner compare"):  # of a machine that does not exist
        allowed = (OK, OUTSIDE_TOLERANCE)
    environment = {**os.environ, "HOME": str(folder), "PATH": f"{BIN}:{os.environ['PATH']}"}
    def done_by(line):
        return subprocess.run(["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True,
                              timeout=DEADLINE_S)

    done = done_by(shortened)
    if done.returncode == STOPPED_EARLY and "none fits so far" in done.stderr:
        done = done_by(command)  # a busy machine found nothing in that time, and later commands read the file
    if done.returncode in allowed:
        return ""
    return f"exit {done.returncode}: {done.stderr.strip()[-500:]}"


def run_once(command, folder, plans):
    """Runs a command, or takes the plan that a page before got from the same one; `plans` has these."""
    found = PLANS.match(command)
    reads_files = any((folder / word).exists() for word in command.split(" -o ")[0].split())
    if not found or reads_files:
        return run(command, folder)
    if command in plans:
        (folder / found[1]).write_bytes(plans[command])
        return ""
    message = run(command, folder)
    if not message:
        plans[command] = (folder / found[1]).read_bytes()
    return message


def check_extraction():
    text = "planner no\n\n    planner plan a \\\n      --x   # why\n    other\n    lab/fit c # why\n    lab/pages\n```\nplanner space b\n```\n"
    assert list(commands_in(text)) == ["planner plan a --x", "lab/fit c", "planner space b"], list(commands_in(text))


def main():
    check_extraction()
    wrong, ran, used, plans = [], 0, set(), {}
    shows_times = "--times" in sys.argv
    with tempfile.TemporaryDirectory() as base:
        files = pathlib.Path(base) / "files"
        files.mkdir()
        make_files(files)
        for page in pages():
            commands = list(commands_in(page.read_text(encoding="utf-8")))
            if not commands:
                continue
            folder = pathlib.Path(base) / page.stem
            shutil.copytree(files, folder, symlinks=True)
            for command in commands:
                if reason := reason_not_to_run(command):
                    used.add(reason)
                    continue
                ran += 1
                begin = time.monotonic()
                if message := run_once(command, folder, plans):
                    wrong.append(f"{page.relative_to(SOURCE)}: {command}: {message}")
                if shows_times:
                    print(f"{time.monotonic() - begin:6.1f} s  {page.stem}: {command}", flush=True)
            shutil.rmtree(folder)
    wrong += [f"no command is left out because it {reason}" for reason in set(NOT_RUN.values()) - used]
    print("\n".join(wrong) or f"{ran} commands of pages run")
    return 1 if wrong or ran < 40 else 0


if __name__ == "__main__":
    sys.exit(main())
