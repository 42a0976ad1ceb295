"""The default results of plan, simulate, explain and sweep: at most fifteen lines of a hundred columns, in the field's words, with
the numbers of JSON; a refusal is three lines. The commands that they name work as they are typed."""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

from made_up_runs import stated_runs
from programs import BIN, CLUSTER, INFEASIBLE, NANO, OK, SOURCE, STOPPED_EARLY, write_json

LINES, COLUMNS = 15, 100
H100, A100 = ("--cluster", "dgx-h100-80gb"), ("--cluster", "dgx-a100-80gb")

# A result has no words of this project alone, and no defaults.
OWN_WORDS = re.compile(r"\b(mp|sharding_degree|sharding_stage|send_slots|layer_split|digest|weakest|tied|loss_as_layers)\b"
                       r"|that peak|cannot be told apart")


def ran(code, *arguments, folder=None):
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run([str(BIN / "planner"), *map(str, arguments)], cwd=folder, env=environment, capture_output=True,
                          text=True, timeout=900)
    assert done.returncode == code, (arguments, done.returncode, done.stderr)
    return done


def labelled(text):
    """The lines of a result by their labels; lines that go on are joined."""
    found, label = {}, "job"
    for line in text.splitlines():
        word = re.match(r"(rests on|[\w -]+?(?=  )) +", line)
        if word and not line.startswith(" "):
            label = word[1]
        found.setdefault(label, []).append(line[len(word[0]):] if word else line.strip())
    return {label: "\n".join(lines) for label, lines in found.items()}


def check_columns(text, lines):
    rows = text.splitlines()
    assert len(rows) <= lines, (len(rows), text)
    assert all(len(row) <= COLUMNS for row in rows), text


def check_size(text, lines=LINES):
    check_columns(text, lines)
    for row in text.splitlines():
        assert "..." not in row and not OWN_WORDS.search(row), row


def number(pattern, text):
    found = re.search(pattern, text)
    assert found, (pattern, text)
    return float(found[1].replace(",", ""))


def near(shown, exact):
    """Whether a number of three digits is this one."""
    return abs(shown - exact) <= 0.006 * abs(exact)


def check_numbers(text, prediction, devices, tokens_per_step):
    """The lines have the numbers that JSON has."""
    lines, step = labelled(text), prediction["step_time_s"]
    units = {"us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600}
    time = re.match(r"([\d.]+) (us|ms|s|min|h)\b", lines["step"])
    assert time and near(float(time[1]) * units[time[2]], step), lines["step"]
    scales = {"": 1, "k": 1e3, "M": 1e6, "B": 1e9}
    for words, exact in (("tokens/s", prediction["tokens_per_s"]),
                         ("per (?:GPU|core);", prediction["tokens_per_s"] / devices)):
        rate = re.search(rf"([\d.]+) ?([kMB]?) {words}", lines["speed"])
        assert rate and near(float(rate[1]) * scales[rate[2]], exact), lines["speed"]
    assert abs(number(r"MFU ([\d.]+) %", lines["speed"]) - 100 * prediction["mfu"]) < 0.06, lines["speed"]
    days = 100e9 / tokens_per_step * step / 86400
    assert near(number(r"100 B tokens: ([\d.,]+) ", lines["days"]), days) or days >= 1e6, lines["days"]
    memory = prediction["memory"]
    taken = re.match(r"([\d.]+)(?: ([KMG])iB)? of [\d.]+ ([KMG])iB ", lines["memory"])
    unit = {"K": 2**10, "M": 2**20, "G": 2**30}[taken[2] or taken[3]]
    assert near(float(taken[1]) * unit, memory["taken_bytes"]), lines["memory"]
    verdict = {"safe": "safe", "tight": "tight", "does_not_fit": "does not fit"}[memory["verdict"]]
    assert verdict in lines["memory"], lines["memory"]
    shares = [float(share) for share in re.findall(r"([\d.]+) %", lines["where"])]
    assert abs(sum(shares) - 100) < 0.5, lines["where"]


def typed(command, folder):
    """Types a command into a shell."""
    done = subprocess.run(["bash", "-c", command], cwd=folder, env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"},
                          capture_output=True, text=True, timeout=900)
    assert done.returncode in (OK, STOPPED_EARLY), (command, done.returncode, done.stderr)
    return done.stdout


def next_commands(text):
    commands = re.split(r"\n|; | *# [^\n]*", labelled(text)["next"].replace(" \\\n", " "))
    return [" ".join(command.split()) for command in commands if command.startswith("planner ")]


def check_commands(text, folder, machine=(), step=None):
    """Every command below a result runs as it is typed, and writes no file that was read. What is exported has the plan's step."""
    commands = next_commands(text)
    for command in commands:
        limited = "--time-limit" in command or not re.match("planner (plan|explain)", command)
        typed(command + ("" if limited else ' --time-limit "1 s"'), folder)
        exported = re.match(r"planner export (\S+) --to (\S+) (--allow-lossy)?.*-o (\S+)", command)
        if exported and step and not exported[3]:
            job = write_json(folder / "exported-job.json", json.loads((folder / exported[1]).read_text())["job"])
            states_model = exported[2] in ("megatron", "torchtitan")
            read = typed(shlex.join(["planner", "simulate", *([] if states_model else [str(job)]), "--from", exported[4],
                                     *map(str, machine), "--json"]), folder)
            assert near(json.loads(read)["prediction"]["step_time_s"], step), command
    return commands


def check_flags(folder):
    """Printed commands have every flag that was typed and may change the answer, and find the same step."""
    flags = {"--global-batch": 64, "--sequence": 256, "--cluster": "dgx-a100-80gb", "--calibration": "typical", "--devices": 8,
             "--framework": "megatron-lm", "--fix": "mp=1", "--max": "pp=4", "--min": "micro_batch=2", "--exclude": "recompute=full",
             "--try": "moment_type=bf16", "--tokens": "10B", "--price": "2/h", "--reserve": "2 GiB", "--time-limit": "3600 s",
             "--top": 2}
    asked = ["gpt-mini", "--fastest", *(str(word) for pair in flags.items() for word in pair)]
    text = ran(OK, "plan", *asked, folder=folder).stdout
    command, = next_commands(text)
    words = shlex.split(command)
    for flag, value in flags.items():
        assert words[words.index(flag) + 1] == str(value), (flag, command)
    others = {"--help", "--output", "--threads", "--verbose", "--json", "--from", "--vocab", "--ignore-unknown", "--fastest"}
    known = set(re.findall(r"^  (?:-\w,)?(--[\w-]+)", ran(OK, "plan", "--help").stdout, re.MULTILINE))
    assert known == flags.keys() | others, known ^ (flags.keys() | others)
    again = typed(command, folder)
    assert labelled(again)["step"] == labelled(text)["step"] and "--fastest" in words, (text, again)
    script = folder / "train.sh"
    script.write_text((SOURCE / "tests/interop/llama3-70b.sh").read_text().replace("--bf16", "--bf16 --novel-flag 3"))
    asked = ("--from", "train.sh", "--ignore-unknown", "--vocab", 128256, *H100, "--sequence", 4096, "--reserve", "2 GiB")
    command, = next_commands(ran(OK, "simulate", *asked, folder=folder).stdout)
    for word in map(str, asked):
        assert word in shlex.split(command), (word, command)
    before = script.read_text()
    text = ran(OK, "plan", *asked, "-o", "train.json", folder=folder).stdout
    check_commands(text, folder)
    assert script.read_text() == before, "the script that was read is overwritten"


def check_plans(folder):
    """Dense, FSDP, DeepSpeed on consumer GPUs, a slow network, experts and a CPU."""
    cpu = write_json(folder / "cpu.json", CLUSTER)
    slow = folder / "slow.json"
    ran(OK, "init", "cluster", "--based-on", "dgx-a100-80gb", "--nodes", 2, "--network", "25 Gbit/s", "--name", "slow", "-o", slow)
    plans = {
        "dense": ("llama3-8b", *H100, "--devices", 16),
        "fsdp": ("gpt2-small", *A100, "--devices", 8, "--framework", "pytorch-fsdp"),
        "deepspeed": ("llama3.2-1b", "--cluster", "rtx-4090", "--devices", 8, "--framework", "deepspeed"),
        "torchtitan": ("qwen3-8b", *H100, "--devices", 32, "--framework", "torchtitan", "--fix", "cp=1", "--fix", "pp=1"),
        "network": ("llama3-8b", "--cluster", slow, "--fix", "recompute=none"),
        "experts": ("qwen3-30b-a3b", *H100, "--devices", 16, "--fix", "pp=1", "--fix", "mp=1"),
        "cpu": (NANO, "--cluster", cpu, "--devices", 4)}
    for name, arguments in plans.items():
        file = folder / f"{name}-plan.json"
        text = ran(OK, "plan", *arguments, "-o", file.name, folder=folder).stdout
        check_size(text)
        plan = json.loads(file.read_text())
        lines = labelled(text)
        check_numbers(text, plan["prediction"], plan["devices"], plan["job"]["global_batch"] * plan["job"]["sequence"])
        strategy = plan["strategy"]
        replicas = strategy["dp"] * strategy["sharding_degree"]
        for words in (f"TP {strategy['mp']}", f"PP {strategy['pp']}", f"DP {replicas}", f"micro-batch {strategy['micro_batch']} x "):
            assert words in lines["layout"].replace("\n", " "), (words, lines["layout"])
        assert ("EP " in lines["layout"]) == bool(plan["job"].get("experts")), lines["layout"]
        assert ("faster" in lines) == (plan["fastest"] is not None), text
        commands = check_commands(text, folder, (*arguments[1:3], "--devices", plan["devices"]), plan["prediction"]["step_time_s"])
        assert not any("--allow-lossy" in command for command in commands), commands
        assert any(command.startswith("planner report") for command in commands), commands
        verbose = ran(OK, "plan", *arguments, "--verbose", folder=folder).stdout
        assert "search: " in verbose and "Pareto front" in verbose or name == "cpu", verbose
    assert "causal half" in labelled(ran(OK, "plan", *plans["dense"]).stdout)["speed"]
    return folder / "dense-plan.json"


def check_others(folder, plan):
    text = ran(OK, "explain", plan).stdout
    check_size(text)
    assert {"plan", "step", "best", "limit", "memory"} <= labelled(text).keys(), text
    assert "with one rate changed" in ran(OK, "explain", plan, "--verbose").stdout
    why_not = ("explain", plan, "--why-not", "recompute=full,micro_batch=2")
    check_size(ran(OK, *why_not).stdout)
    # One number of memory everywhere: taken of the device, without what is kept free.
    taken = json.loads(plan.read_text())["prediction"]["memory"]["taken_bytes"] / 2**30
    page = folder / "memory.html"
    ran(OK, "report", plan, "-o", page)
    for text in (text, *(ran(OK, *command).stdout for command in (why_not, (*why_not, "--verbose"), ("describe", plan))),
                 page.read_text()):
        assert f"{taken:#.3g} of 79.2 GiB" in " ".join(text.split()), text
    simulated = ("llama3-70b", "mp=4,pp=4,sharding_degree=4,sequence_parallel=true,recompute=full", *H100, "--devices", 64)
    text = ran(OK, "simulate", *simulated).stdout
    check_size(text)
    found = json.loads(ran(OK, "simulate", *simulated, "--json").stdout)
    job = json.loads(ran(OK, "plan", "llama3-70b", *H100, "--devices", 64, "--json", "--fix", "mp=4", "--fix", "pp=4").stdout)["job"]
    check_numbers(text, found["prediction"], 64, job["global_batch"] * job["sequence"])
    check_commands(text, folder)
    swept = ("llama3-8b", *H100, *A100, "--devices", "8..32x2", "--tokens", "1T", "--price", "2/h")
    text = ran(OK, "sweep", *swept, "--fix", "recompute=none", "--fix", "mp=2").stdout
    check_size(text)
    head = text.splitlines()[1]
    for column in ("devices", "step", "tokens/s/device", "MFU", "days", "device-hours", "cost"):
        assert column in head, head


def check_refusals(folder):
    """Three lines: what is too large and by how much, the first change of a practitioner, its command."""
    ran(OK, "init", "job", "--based-on", "llama3-8b", "--sequence", 2048, "--global-batch", 32, "-o", "ft.json", folder=folder)
    asked = ("ft.json", "--cluster", "dgx-a100-40gb", "--devices", 4, "--framework")
    for framework, change in (("pytorch-fsdp", "offload_parameters=true"), ("deepspeed", "offload_optimizer_percent=")):
        text = ran(INFEASIBLE, "plan", *asked, framework, folder=folder).stderr
        check_size(text, 5)  # a long change, and a long command, go on in another line
        text = text.replace(" \\\n", "").replace("\n" + 10 * " ", " ")
        first, second, third = text.splitlines()
        assert re.search(r"not fit on 4 GPUs of dgx-a100-40gb: [\d.]+ of 39.6 GiB, [\d.]+ [GM]iB ", first), first
        assert change in second and "cp" not in second, second
        command = third.split("run", 1)[1].strip()
        assert command.startswith("planner plan ft.json --cluster dgx-a100-40gb --devices "), command
        done = subprocess.run(["bash", "-c", command + " --json"], cwd=folder, capture_output=True, text=True, timeout=900,
                              env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"})
        assert done.returncode == OK, (command, done.stderr)
        assert json.loads(done.stdout)["prediction"]["memory"]["verdict"] != "does_not_fit"
    # The command leaves out the choice that was freed, in whatever words and list it was typed, and keeps the others.
    freed = ("llama3-8b", "--cluster", "8xh100", "--fix", "ZeRO=0,TP=1,PP=1", "--fix", "offload_optimizer_percent=0")
    text = ran(INFEASIBLE, "plan", *freed).stderr
    assert "without --fix sharding_stage=0 " in text, text
    command = shlex.split(text.replace(" \\\n", "").splitlines()[-1].split("run", 1)[1])
    assert {"mp=1", "pp=1", "offload_optimizer_percent=0"} < set(command) and "sharding_stage" not in " ".join(command), command
    assert ran(OK, *command[1:], "--json").returncode == OK
    held = ("llama3-8b", "--cluster", "8xh100", "--fix", "recompute=none", "--reserve", "40 GiB", "--verbose")
    for limits, freed in ((("--fix", "DP=8"), "without --fix DP=8:"), (("--max", "DP=8", "--min", "DP=4"), "without --max DP=8 --min DP=4:")):
        assert freed in ran(INFEASIBLE, "plan", *held, *limits).stderr, freed
    # Plain shards come before all other changes of one strategy.
    text = ran(INFEASIBLE, "simulate", "llama3-8b", "dp=8,recompute=full", *A100, "--devices", 8, "--global-batch", 64,
               folder=folder)
    check_size(text.stdout)
    words, command = text.stderr.split("  run ")
    check_size(words, 2)
    check_columns(command, 2)
    assert "with ZeRO-1 " in words, text.stderr
    command = " ".join(text.stderr.replace(" \\\n", "").splitlines()[2].split("run", 1)[1].split())
    assert ran(OK, *shlex.split(command)[1:], "--json").returncode == OK
    assert "what would fit:" in ran(INFEASIBLE, "plan", *asked, "pytorch-fsdp", "--verbose", folder=folder).stderr


def check_widths(folder):
    """Results and notes about files have a hundred columns, too. A fit lists on one line what its runs do not determine."""
    config = SOURCE / "tests/interop/data/llama-3-8b.json"
    done = ran(OK, "import", config, "--sequence", 8192, "--global-batch", 64, "-o", folder / "imported.json")
    check_columns(done.stdout, 30)
    done = ran(OK, "simulate", "--from", SOURCE / "tests/interop/llama3-70b.sh", *H100)
    check_columns(done.stdout + done.stderr.replace(str(SOURCE), "."), 40)
    runs = stated_runs(folder / "made-up.json", "fsdp", "A100-80GB", 80)
    check_columns(ran(OK, "validate", runs, "--rows").stdout, 80)
    done = ran(OK, "fit", runs, "--cluster", "a100-80gb", "--framework", "fsdp", "-o", folder / "fit.json")
    check_columns(done.stdout, 40)
    assert done.stdout.count("not determined") == 1 and f"wrote {folder / 'fit.json'}" in done.stderr, done


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        check_flags(folder)
        plan = check_plans(folder)
        check_others(folder, plan)
        check_refusals(folder)
        check_widths(folder)
    print("short")
    return 0


if __name__ == "__main__":
    sys.exit(main())
