"""Help begins with one sentence and two to four examples by task, and every example works.

Examples run in a folder with the files that they name. Long ones are shortened in these ways only: searches end after a
second on one thread (--time-limit, --threads; exit code 5 is as good as 0), and planner calibrate measures few points (--quick, --budget)."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from made_up_runs import megatron_log, stated
from programs import (BIN, CLUSTER, ENVIRONMENT, NANO, OK, OUTSIDE_TOLERANCE, SOURCE, STOPPED_EARLY, planner,
                      write_json)

COMMANDS = SOURCE / "models" / "presets" / "commands"
SHORTER = {**{search: {"--time-limit": "1 s", "--threads": "1"} for search in ("plan", "explain", "sweep")}, "calibrate": {"--quick": "", "--budget": "2 s"}}
# A search may end early, a machine may lack what doctor looks for, and one that does not exist keeps no prediction.
MAY_END = {"plan": (OK, STOPPED_EARLY), "explain": (OK, STOPPED_EARLY), "sweep": (OK, STOPPED_EARLY), "doctor": (OK, ENVIRONMENT),
           "compare": (OK, OUTSIDE_TOLERANCE)}


def candidates(*words):
    """The words that planner says may follow, without files and meanings."""
    lines = planner("complete", "--", *words).stdout.splitlines()
    return [line.split("\t")[0] for line in lines if not line.startswith(":")]


def commands():
    """Every command as its words; commands within commands follow the one they are in."""
    yield ()
    for name in candidates(""):
        yield (name,)
        for inner in candidates(name, ""):
            if "planner-" + name + "-" + inner in {path.stem for path in COMMANDS.glob("*.json")}:
                yield (name, inner)


def run_of(number, tensor, data, layers, hidden, heads, step_time):
    """A published run of Megatron-LM on A100s: images/cases_april2021.png of its repository at 50a4b5fa02."""
    return {"id": f"run-{number}", "source": {"repo_or_doc": "github:NVIDIA/Megatron-LM@50a4b5fa02",
                                              "path_or_issue": "images/cases_april2021.png"},
            "hardware": {"gpu": "A100-80GB", "gpus": tensor * data, "gpus_per_node": 8},
            "model": {"name": "gpt", "hidden": hidden, "layers": layers, "heads": heads, "vocab": 51200, "seq_len": 2048},
            "parallel": {"tp": tensor, "pp": 1, "dp": data}, "batch": {"micro": 8, "global": 512}, "precision": "fp16",
            "recompute": "full", "attention": "unfused", "framework": "megatron-lm", "measured": {"step_time_s": step_time}}


def make_samples(folder):
    """The files that examples name."""
    tests = SOURCE / "tests"
    shutil.copy(NANO, folder / "job.json")
    write_json(folder / "cluster.json", CLUSTER)
    shutil.copy(tests / "interop" / "data" / "llama-3-8b.json", folder / "config.json")
    shutil.copy(tests / "fuzz" / "examples" / "import" / "adapter_config.json", folder / "adapter_config.json")
    shutil.copy(tests / "interop" / "llama3-70b.sh", folder / "train.sh")
    shutil.copy(tests / "interop" / "logs" / "megatron-lm-new-ling-v2-mtp.log", folder / "train.log")
    megatron_log(folder / "run.log", 13.0, 512)
    shutil.copy(tests / "interop" / "nccl-tests" / "current.txt", folder / "all_reduce.txt")
    shutil.copy(tests / "interop" / "topology" / "hgx-h100.txt", folder / "topo.txt")
    shutil.copy(SOURCE / "data" / "training-text.txt", folder / "text.txt")
    write_json(folder / "runs.json", stated([run_of(1, 1, 32, 24, 2304, 24, 3.528), run_of(2, 4, 32, 36, 4096, 32, 3.6963)]))
    for arguments in (("gpt2-small", "--cluster", "dgx-a100-80gb", "--devices", 4, "-o", "plan.json"),
                      ("job.json", "--cluster", "cluster.json", "--devices", 2, "--fix", "mp=2", "-o", "cpu-plan.json")):
        done = subprocess.run([BIN / "planner", "plan", *map(str, arguments)], cwd=folder, capture_output=True, text=True)
        assert done.returncode == OK, done.stderr
    done = subprocess.run([BIN / "planner", "run", "cpu-plan.json", "--data", "text.txt", "--steps", "4", "-o",
                           "measured.json"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == OK, done.stderr


def shortened(command):
    """The command with what makes it short, behind its own words or in place of its own limits."""
    parts = re.split(r"(\s*(?:&&|\||<\(|\)|>)\s*)", command)
    for i, part in enumerate(parts):
        words = part.split()
        for flag, value in (SHORTER.get(words[1], {}) if len(words) > 1 and words[0] == "planner" else {}).items():
            part = re.sub(rf" {flag}( '[^']*')?", "", part) + f" {flag}" + (f" '{value}'" if value else "")
        parts[i] = part
    return "".join(parts)


def failures_of(name, example, samples):
    """Runs an example in a copy of the samples."""
    with tempfile.TemporaryDirectory() as copy:
        folder = pathlib.Path(copy) / "here"
        shutil.copytree(samples, folder)
        command = shortened(example["command"])
        # It replaces no file, and the samples have one of each kind.
        if command.startswith("planner init") and " -o " in command:
            (folder / command.split(" -o ")[1].split()[0]).unlink(missing_ok=True)
        done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=folder, capture_output=True, text=True,
                              timeout=300, env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"})
        allowed = MAY_END.get(name.split("-")[1] if "-" in name else "", (OK,))
        if done.returncode not in allowed:
            yield f"{name}: {command}: exit {done.returncode}: {done.stderr[-500:]}"


def chained(samples):
    """The examples of planner itself follow each other: the first writes the plan of the others."""
    help_of = json.loads((COMMANDS / "planner.json").read_text())
    script = " && ".join(f"{{ {shortened(example['command'])} || [ $? = 5 ]; }}" for example in help_of["examples"])
    with tempfile.TemporaryDirectory() as copy:
        folder = pathlib.Path(copy) / "here"
        shutil.copytree(samples, folder)
        done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, timeout=300,
                              env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"})
        if done.returncode != OK:
            yield f"planner: {script}: exit {done.returncode}: {done.stderr[-500:]}"


def wrong_form(words, texts):
    name = "-".join(("planner", *words))
    if name not in texts:
        yield f"{name}: no help in {COMMANDS}"
        return
    text = texts[name]
    if not re.fullmatch(r"[A-Z][^.]*(\.[a-z][^.]*)*\.", text["about"]):
        yield f"{name}: not one sentence: {text['about']}"
    if not 2 <= len(text["examples"]) <= 4:
        yield f"{name}: {len(text['examples'])} examples, not 2 to 4"
    done = planner(*words, "--help")
    shown = done.stdout
    if done.returncode != OK or not " ".join(shown.split()).startswith(text["about"] + " Examples: "):
        yield f"{name}: --help does not begin with the sentence: {shown[:100]!r}"
    if wide := [line for line in shown.splitlines() if len(line) > 100 and not line.startswith("    planner ")]:
        yield f"{name}: wider than a hundred columns: {wide}"
    if words and words[-1] not in ("calibrate", "run") and planner("help", *words).stdout != shown:
        yield f"{name}: planner help does not print the help"
    for example in text["examples"]:
        if not 0 < shown.find(f"  {example['task']}:\n    {example['command']}\n") < shown.find("\nUsage: planner"):
            yield f"{name}: --help does not show {example['command']} before the options"
        if " ".join(("planner", *words)) not in example["command"]:
            yield f"{name}: an example without the command: {example['command']}"


def main():
    texts = {path.stem: json.loads(path.read_text()) for path in sorted(COMMANDS.glob("*.json"))}
    every = list(commands())
    assert ("import", "topology") in every and len(every) > 20, every
    failures = [f"{name}: help of no command" for name in texts
                if tuple(name.split("-", 1)[1:]) and name not in {"-".join(("planner", *words)) for words in every}]
    for words in every:
        failures += wrong_form(words, texts)
    with tempfile.TemporaryDirectory() as name:
        samples = pathlib.Path(name)
        make_samples(samples)
        for name, text in texts.items():
            if name != "planner":
                for example in text["examples"]:
                    failures += failures_of(name, example, samples)
        failures += chained(samples)
    count = sum(len(text["examples"]) for text in texts.values())
    print("\n".join(failures) or f"{count} examples of {len(every)} commands work")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
