"""Bad input: one clear message, the contract's exit code, and nothing written."""

import json
import pathlib
import subprocess
import sys
import tempfile

from programs import (BAD_INPUT, BIN, CLUSTER, ENVIRONMENT, INFEASIBLE, NANO, OK, OUTSIDE_TOLERANCE,
                      SOURCE, STOPPED_EARLY, USAGE, nano_job, planner, write_json)

TEXT = SOURCE / "data" / "training-text.txt"


class Cases:
    """Runs `planner plan` on variations of a good request and collects what is wrong."""

    def __init__(self, folder):
        self.folder = folder
        self.cluster = write_json(folder / "cluster.json", CLUSTER)
        self.output = folder / "plan.json"
        self.count = 0
        self.failures = []

    def refuses(self, what, job, code, *words, arguments=(), devices=2):
        """The request must end with `code`, a message holding every word, and no other trace. Where
        nothing fits, indented lines with a change and its command follow it."""
        before = sorted(self.folder.iterdir())
        done = planner("plan", job, "--cluster", self.cluster, "--devices", devices, "-o",
                       self.output, *arguments)
        self.judge(what, done, code, words)
        if sorted(self.folder.iterdir()) != before:
            self.failures.append(f"{what}: wrote {set(self.folder.iterdir()) - set(before)}")

    def says(self, what, code, *words, command, program="planner"):
        """`planner COMMAND` must end with `code` and one message of `program`, writing nothing."""
        before = sorted(self.folder.iterdir())
        self.judge(what, planner(*command), code, words, program)
        if sorted(self.folder.iterdir()) != before:
            self.failures.append(f"{what}: wrote {set(self.folder.iterdir()) - set(before)}")

    def judge(self, what, done, code, words, program="planner"):
        self.count += 1
        if done.returncode != code:
            self.failures.append(f"{what}: exit {done.returncode}, not {code}: {done.stderr}")
        if done.stdout:
            self.failures.append(f"{what}: stdout is not empty: {done.stdout[:200]}")
        message, _, changes = done.stderr.partition("\n")
        if not message.startswith(f"{program}: "):
            self.failures.append(f"{what}: not one message: {done.stderr!r}")
        if not all(line.startswith("  ") for line in changes.splitlines()):
            self.failures.append(f"{what}: not one message and its changes: {changes!r}")
        for word in words:
            if word not in done.stderr:
                self.failures.append(f"{what}: the message lacks {word!r}: {done.stderr!r}")

    def job(self, name, text):
        path = self.folder / f"{name}.json"
        path.write_text(text if isinstance(text, str) else json.dumps(text))
        return path


def presets(cases):
    """A bare name is a preset where no file of that name is there."""
    cases.count += 1
    done = planner("simulate", "gpt3-1.3b", "mp=8,dp=8,recompute=full", "--devices", 64, "--cluster",
                   "dgx-a100-80gb")
    if done.returncode != OK or "on 64 GPUs (8 x dgx-a100-80gb)" not in done.stdout:
        cases.failures.append(f"preset of job and cluster: exit {done.returncode}: {done.stderr}")


def bad_jobs(cases):
    cases.refuses("unknown key", cases.job("a", nano_job(layerz=4)), BAD_INPUT, "a.json", "layerz",
                  "layers")
    cases.refuses("negative layers", cases.job("b", nano_job(layers=-4)), BAD_INPUT, "b.json",
                  "/layers", "-4")
    cases.refuses("fractional layers", cases.job("c", nano_job(layers=2.5)), BAD_INPUT, "/layers",
                  "2.5")
    cases.refuses("missing key", cases.job("d", nano_job(layers=None)), BAD_INPUT, "layers")
    cases.refuses("wrong type", cases.job("e", nano_job(layers="4")), BAD_INPUT, "/layers")
    text = json.dumps(nano_job())
    cases.refuses("duplicate key", cases.job("f", text.replace("{", '{"layers": 2, ', 1)), BAD_INPUT,
                  "f.json", "layers")
    cases.refuses("deep nesting", cases.job("g", '{"name": ' + "[" * 100_000), BAD_INPUT, "g.json")
    cases.refuses("truncated file", cases.job("h", text[: len(text) // 2]), BAD_INPUT, "h.json")
    cases.refuses("empty file", cases.job("i", ""), BAD_INPUT, "i.json")
    cases.refuses("not an object", cases.job("j", "[1, 2]"), BAD_INPUT, "j.json")
    cases.refuses("missing file", cases.folder / "nowhere.json", BAD_INPUT, "nowhere.json")
    cases.refuses("a folder", cases.folder, BAD_INPUT, str(cases.folder))
    cases.refuses("text behind a NUL byte", cases.job("l", text + "\0 not JSON"), BAD_INPUT, "l.json",
                  "NUL")
    cases.refuses("overflowing number", cases.job("k", text.replace('"hidden": 64', '"hidden": 1e400')),
                  BAD_INPUT, "k.json")


def infeasible_jobs(cases):
    seven = cases.job("seven", nano_job(hidden=56, heads=7, kv_heads=7, ffn_hidden=224))
    cases.refuses("7 heads, mp 2", seven, INFEASIBLE, "heads", "7", "mp",
                  arguments=("--fix", "mp=2"))
    odd = cases.job("odd", nano_job(global_batch=3))
    cases.refuses("batch not divisible", odd, INFEASIBLE, "batch", "3",
                  arguments=("--fix", "sharding_degree=2"))
    cases.refuses("batch not divisible by the micro-batch", NANO, INFEASIBLE, "batch",
                  arguments=("--fix", "micro_batch=3"))
    cases.refuses("degrees that do not multiply", NANO, INFEASIBLE, "devices",
                  arguments=("--fix", "mp=4", "--fix", "pp=4"))
    # Five layers of 16384: 16 GB of parameters alone, four times that with gradients and moments.
    huge = cases.job("huge", nano_job(hidden=16384, heads=16, kv_heads=16, ffn_hidden=65536,
                                      global_batch=2))
    cases.refuses("a job that cannot fit", huge, INFEASIBLE, "does not fit on 2 cores of test-cpu: ",
                  "GiB too much", "\n  change  no change that was tried makes it fit")
    whole = planner("plan", huge, "--cluster", cases.cluster, "--devices", 2, "--verbose")
    lacks = [words for words in ("stage", "bytes", "what would fit:", "per device") if words not in whole.stderr]
    cases.failures += [f"a job that cannot fit: no {words} in {whole.stderr}" for words in lacks]


def steps_too_long(cases):
    """They are refused before they are lowered, by each command that lowers."""
    long = cases.job("long", nano_job(layers=1, global_batch=2**24))
    passes = ("16777216 micro-batches x 3 layers", "50331648 passes", "at most 1048576")
    for command in ("simulate", "--cluster", cases.cluster, "--devices", 1), ("passes",):
        cases.says(f"{command[0]} of a step too long", INFEASIBLE, *passes,
                   command=(command[0], long, "micro_batch=1", *command[1:]))
    cases.refuses("a plan with a step too long", long, INFEASIBLE, *passes, devices=1,
                  arguments=("--fix", "micro_batch=1"))


def unfit_strategy(cases):
    """Predicted all the same; then the changes with which it fits."""
    cases.count += 1
    small = {**CLUSTER, "device": {**CLUSTER["device"], "memory": "8 MiB"}}
    cluster = write_json(cases.folder / "small.json", small)
    asked = ("simulate", NANO, "dp=2,micro_batch=8", "--devices", 2, "--reserve", "0 B", "--cluster", cluster)
    short = planner(*asked)
    if "too much\n  change  with " not in short.stderr:
        cases.failures.append(f"a strategy that does not fit: {short.stderr}")
    done = planner(*asked, "--verbose")
    refusal, _, changes = done.stderr.partition("\nwhat would fit:\n")
    if done.returncode != INFEASIBLE or "step time" not in done.stdout or \
            not refusal.startswith("planner: does not fit: "):
        cases.failures.append(f"a strategy that does not fit: exit {done.returncode}: {done.stderr}")
    if "  with micro_batch=2: mp=1 " not in changes:  # the fastest that fits
        cases.failures.append(f"a strategy that does not fit: no change named: {done.stderr}")


def bad_command_lines(cases):
    cases.refuses("unknown flag", NANO, USAGE, "--devises", "--devices", arguments=("--devises", 2))
    cases.refuses("unknown flag with a value", NANO, USAGE, "--calibraton", "--calibration",
                  arguments=("--calibraton=x",))
    cases.refuses("unknown --fix key", NANO, USAGE, "micro_bach", "micro_batch",
                  arguments=("--fix", "micro_bach=2"))
    cases.refuses("bad --fix value", NANO, USAGE, "mp", "two", arguments=("--fix", "mp=two"))
    cases.refuses("--fix without value", NANO, USAGE, "KEY=VALUE", arguments=("--fix", "mp"))
    cases.refuses("--fix twice", NANO, USAGE, "mp", "twice",
                  arguments=("--fix", "mp=1", "--fix", "mp=2"))
    cases.refuses("a sharding stage that there is none", NANO, USAGE, "sharding_stage", "0 to 3",
                  arguments=("--fix", "sharding_stage=4"))
    for devices in (0, -1, "two", 2**22 + 1, 10**12, 10**20 - 1):
        cases.refuses(f"{devices} devices", NANO, USAGE, "--devices", str(devices), "from 1 to 4194304",
                      devices=devices)
    for threads in (0, -1, "two", 1025, 10**20):
        cases.refuses(f"{threads} threads", NANO, USAGE, "--threads", str(threads), "from 1 to 1024",
                      arguments=("--threads", threads))
    for limit in ("30", "-1 s", "soon", "30 bananas", "nan s"):
        cases.refuses(f"a time limit of {limit}", NANO, USAGE, "--time-limit", limit,
                      arguments=(f"--time-limit={limit}",))
    cases.refuses("no time at all", NANO, USAGE, "--time-limit", "above 0 s",
                  arguments=("--time-limit", "0 s"))
    cases.refuses("more time than clocks hold", NANO, USAGE, "--time-limit", "at most 1e6 s",
                  arguments=("--time-limit", "1e300 s"))
    cases.refuses("hardly any time", NANO, STOPPED_EARLY, "time limit", "none fits so far",
                  arguments=("--time-limit", "1 ps"))
    cases.refuses("a fixed value that is not legal", NANO, INFEASIBLE, "heads",
                  arguments=("--fix", "mp=3"), devices=3)
    cases.refuses("a fixed value beside the devices", NANO, INFEASIBLE, "devices",
                  arguments=("--fix", "pp=3"))
    cases.says("space of an unknown framework", USAGE, "no-such",
               command=("space", NANO, "--devices", 2, "--framework", "no-such"))
    cases.says("space without the cluster file", BAD_INPUT, "nowhere.json",
               command=("space", NANO, "--devices", 2, "--cluster", "nowhere.json"))
    presets = SOURCE / "models" / "presets"
    cases.says("a device without the job's precision", BAD_INPUT,
               "dgx1-v100-32gb.json: at /device/peak: found fp32, fp16; the job needs bf16",
               command=("space", presets / "jobs" / "gpt2-xl.json", "--devices", 8, "--cluster",
                        presets / "clusters" / "dgx1-v100-32gb.json"))
    for flag, name, known in (("--cluster", "dgx-a100", "dgx-a100-40gb, dgx-a100-80gb"),
                              ("--calibration", "hgx", "planner list calibrations")):
        words = {"--cluster": "dgx-a100-80gb", flag: name}
        cases.says(f"no preset: {flag}", BAD_INPUT, f"{name}: no such file", known,
                   command=("simulate", "gpt3-175b", "mp=8", "--devices", 8,
                            *(word for pair in words.items() for word in pair)))
    nameless = cases.job("nameless", {**CLUSTER, "name": ""})
    cases.says("a cluster without a name", BAD_INPUT, "nameless.json", "/name",
               command=("space", NANO, "--devices", 2, "--cluster", nameless))
    for flag in ("--framework", "--output", "--calibration", "--reserve", "--time-limit",
                 "--threads"):
        cases.refuses(f"empty {flag}", NANO, USAGE, flag, arguments=(flag, ""))
        cases.refuses(f"empty {flag}=", NANO, USAGE, flag, arguments=(f"{flag}=",))
    cases.refuses("no sequences", NANO, USAGE, "--global-batch", "0", arguments=("--global-batch", 0))
    cases.refuses("bad reserve", NANO, USAGE, "--reserve", arguments=("--reserve", "1"))
    cases.refuses("unknown framework", NANO, USAGE, "no-such", arguments=("--framework", "no-such"))
    cases.refuses("surplus argument", NANO, USAGE, "surplus", arguments=("surplus",))
    cases.judge("unknown command", planner("plann", NANO), USAGE, ["unknown command plann", "plan?"])
    cases.judge("unknown flag alone", planner("--bogus"), USAGE, ["--bogus", "--help"])
    cases.judge("misspelt flag alone", planner("--versoin"), USAGE, ["--versoin", "--version?"])
    cases.judge("flag before the command", planner("-x", "plan", NANO), USAGE, ["unknown flag -x"])
    cases.judge("missing --cluster", planner("plan", NANO, "--devices", 2), USAGE, ["--cluster"])
    for flag in ("--before", "--after"):
        cases.judge("unknown stage", planner("passes", NANO, "mp=1", flag, "backwards"), USAGE,
                    [flag, "backwards", "backward"])
    cases.judge("before the first", planner("passes", NANO, "mp=1", "--before", "forward"), USAGE,
                ["--before forward"])
    cases.judge("two stages", planner("passes", NANO, "mp=1", "--before", "backward", "--after",
                                      "backward"), USAGE, ["--before", "--after"])
    for rank in (2, -1, "x"):
        cases.judge(f"rank {rank}", planner("passes", NANO, "mp=2", "--after", "schedule", "--rank",
                                            rank), USAGE, ["--rank", str(rank)])
    cases.judge("rank of no stage", planner("passes", NANO, "mp=2", "--rank", 1), USAGE,
                ["--rank 1", "--before", "--after"])


def other_commands(cases):
    cases.judge("plan is not a plan", planner("check", NANO), BAD_INPUT, ["gpt-nano.json"])
    cases.judge("compare without files", planner("compare", cases.folder / "p", cases.folder / "m"),
                BAD_INPUT, [str(cases.folder / "p")])
    machine = ("--cluster", cases.cluster, "--devices")
    cases.says("simulate an illegal strategy", INFEASIBLE, "heads",
               command=("simulate", NANO, "mp=3", *machine, 3))
    cases.says("simulate what a framework cannot do", INFEASIBLE, "flash attention",
               command=("simulate", NANO, "recompute=selective", "--framework", "megatron-lm",
                        *machine, 1))
    cases.says("lower what a framework cannot do", INFEASIBLE, "no distributed optimizer",
               command=("passes", NANO, "sharding_degree=2", "--framework", "megatron-lm-2021"))
    for devices in (0, -1, 10**12):
        cases.says(f"simulate {devices} devices", USAGE, str(devices), "4194304",
                   command=("simulate", NANO, "mp=1", *machine, devices))
        cases.says(f"space of {devices} devices", USAGE, str(devices), "4194304",
                   command=("space", NANO, "--devices", devices))
    cases.says("passes for too many devices", USAGE, "4194304",
               command=("passes", NANO, "mp=4194304,pp=4194304,dp=4194304,sharding_degree=4194304"))
    for tolerance in ("nan", -0.1, 101, "inf"):
        cases.says(f"tolerance {tolerance}", USAGE, "--tolerance", str(tolerance),
                   command=("compare", "p", "m", "--tolerance", tolerance))


def good_files(cases):
    """A plan of two ranks and a run of it."""
    done = planner("plan", NANO, "--cluster", cases.cluster, "--devices", 2, "--fix", "mp=2", "-o",
                   cases.output)
    assert done.returncode == OK, done.stderr
    measured = cases.folder / "measured.json"
    done = planner("run", cases.output, "--data", TEXT, "--steps", 4, "-o", measured)
    assert done.returncode == OK, done.stderr
    return cases.output, measured


def changed(cases, name, file, change):
    """A copy of the JSON `file` with one change."""
    value = json.loads(file.read_text())
    change(value)
    return write_json(cases.folder / name, value)


def bad_runs(cases, plan):
    def refuses(what, code, *words, arguments=(), plan=plan, data=TEXT):
        cases.says(f"run: {what}", code, *words, program="planner-run",
                   command=("run", plan, "--data", data, *arguments))

    refuses("no plan", BAD_INPUT, "nowhere.json", plan=cases.folder / "nowhere.json")
    refuses("half a plan", BAD_INPUT, "half.json", plan=cases.job("half", plan.read_text()[:2000]))
    refuses("another strategy than its Programs", BAD_INPUT, "tampered.json", "/",
            plan=changed(cases, "tampered.json", plan,
                         lambda value: value["strategy"].update(recompute="full")))
    refuses("no text", BAD_INPUT, "nowhere.txt", data=cases.folder / "nowhere.txt")
    refuses("too little text", BAD_INPUT, "short.json", "2 bytes", data=cases.job("short", "ab"))
    refuses("misspelt flag", USAGE, "--step;", "--steps", arguments=("--step", 4))
    refuses("surplus argument", USAGE, "surplus", arguments=("surplus",))
    for steps in (3, -1, 10**12, "many"):
        refuses(f"{steps} steps", USAGE, "--steps", str(steps), "from 4 to 1000000",
                arguments=("--steps", steps))
    for deadline in (0, 0.0005, "nan", -1, 1e7):
        refuses(f"deadline {deadline}", USAGE, "--deadline", "0.001", arguments=("--deadline", deadline))
    refuses("a deadline of 1.5 ms", USAGE, "0.0015", "whole milliseconds",
            arguments=("--deadline", 0.0015))
    refuses("unknown backend", USAGE, "abacus", arguments=("--backend", "abacus"))
    refuses("a folder as output", ENVIRONMENT, str(cases.folder), arguments=("-o", cases.folder))
    refuses("the plan as output", USAGE, plan.name, arguments=("-o", plan))


def bad_calibrations(cases):
    def refuses(what, code, *words, arguments):
        cases.says(f"calibrate: {what}", code, *words, program="planner-calibrate",
                   command=("calibrate", *arguments))

    out = cases.folder / "calibration.json"
    refuses("misspelt flag", USAGE, "--bugdet", "--budget?", arguments=("--bugdet", 3))
    schedule = ("--schedule", 4, "--ranks-per-node", 2, "--cluster", "a.json")
    refuses("a schedule of an unknown backend", USAGE, "abacus", "cuda",
            arguments=(*schedule, "--backend", "abacus"))
    refuses("a schedule for a plan", USAGE, "--plan", "--schedule",
            arguments=(*schedule, "--plan", "b.json"))
    refuses("devices without a launcher", USAGE, "--devices", "--launcher", arguments=("--devices", 2))
    refuses("no plan", BAD_INPUT, "nowhere.json", arguments=("--plan", cases.folder / "nowhere.json"))
    refuses("nothing to go on with", USAGE, "--resume", "-o", arguments=("--resume",))
    refuses("no budget", USAGE, "--budget", "nan", arguments=("--budget", "nan"))
    refuses("unknown backend", USAGE, "abacus", arguments=("--backend", "abacus"))
    refuses("no such folder", ENVIRONMENT, "nowhere",
            arguments=("-o", cases.folder / "nowhere" / "c.json"))
    refuses("a folder as cluster", ENVIRONMENT, str(cases.folder),
            arguments=("-o", out, "--cluster-out", cases.folder))
    refuses("one file for both", USAGE, "same file", arguments=("-o", out, "--cluster-out", out))


def bad_comparisons(cases, plan, measured):
    other = changed(cases, "other.json", measured,
                    lambda value: value.update(plan_digest="0" * 64))
    half = cases.job("half-measured", measured.read_text()[:2000])
    page = cases.folder / "page.html"
    for command, rest in (("compare", ()), ("report", ("-o", page))):
        def refuses(what, code, *words, files=(plan, measured), rest=rest):
            cases.says(f"{command}: {what}", code, *words, command=(command, *files, *rest))

        refuses("no measurement", BAD_INPUT, "nowhere", files=(plan, cases.folder / "nowhere"))
        refuses("half a measurement", BAD_INPUT, half.name, files=(plan, half))
        refuses("the run of another plan", BAD_INPUT, str(other), "/plan_digest", files=(plan, other))
        refuses("a measurement as plan", BAD_INPUT, measured.name, files=(measured, plan))
        refuses("misspelt flag", USAGE, "--tolerence", "--tolerance?",
                rest=(*rest, "--tolerence", 0.3))
    cases.says("report: no such folder", ENVIRONMENT, "nowhere",
               command=("report", plan, "-o", cases.folder / "nowhere" / "page.html"))
    cases.says("report: the plan as page", USAGE, plan.name, command=("report", plan, "-o", plan))


def other_devices(cases):
    """Costs of one device are not those of another."""
    sample = {"median_s": 1e-6, "spread_s": 0.0, "samples": 7, "unsteady": False}
    calibration = write_json(cases.folder / "calibration-of-another.json", {
        "device": "other-core", "backend": "cpu", "date": "2024-01-01", "versions": [],
        "busy_cores": 1, "dispatch_op": sample, "dispatch_call": sample, "wake_up": sample,
        "sleeps_after_s": 0.001, "matmuls": [], "ops": [],
        "collectives": []})
    cases.refuses("a calibration of another device", NANO, BAD_INPUT, "other-core", "test-core",
                  calibration.name, "/device", arguments=("--calibration", calibration))
    cases.refuses("nothing typical", NANO, BAD_INPUT, "typical", "GPUs that are all alike",
                  arguments=("--calibration", "typical"))
    same = changed(cases, "same.json", calibration, lambda value: value.update(device="test-core"))
    done = planner("space", NANO, "--devices", 2)
    assert done.returncode == OK, done.stderr
    done = planner("simulate", NANO, "mp=2", "--cluster", cases.cluster, "--devices", 2,
                   "--calibration", same)
    assert done.returncode == OK, done.stderr


def simulations(cases):
    """The parts of a step are the step, to the picosecond; the trace has it whole."""
    trace = cases.folder / "trace.json"
    command = ("simulate", NANO, "mp=2,pp=2", "--cluster", cases.cluster, "--devices", 4)
    done = planner(*command, "--json", "--trace", trace)
    assert done.returncode == OK, done.stderr
    result = json.loads(done.stdout)
    step = result["step"]
    total = sum(step[f"{part}_ps"] for part in ("forward", "recompute", "backward", "optimizer",
                                                "bubble", "dispatch"))
    total += sum(one["wait_ps"] + one["transfer_ps"] for one in step["communication"])
    assert total == step["step_time_ps"], step
    assert step["step_time_ps"] == round(result["prediction"]["step_time_s"] * 1e12), step
    assert {"mp", "pp"} <= {one["group"] for one in step["communication"]}, step
    first = trace.read_bytes()
    events = json.loads(first)["traceEvents"]
    ranks = {event["pid"] for event in events}
    assert ranks == {one["rank"] for one in result["simulated_ranks"]}, ranks
    assert planner(*command, "--json", "--trace", trace).stdout == done.stdout
    assert trace.read_bytes() == first
    done = planner(*command, "--verbose")
    for word in ("exposed transfer", "optimizer_state", "stage 1", "live peak", "alive then on"):
        assert word in done.stdout, done.stdout
    assert len(result["memory"]) == 2, result["memory"]
    for stage in result["memory"]:
        assert sum(one["bytes"] for one in stage["alive_at_peak"]) == stage["allocated_bytes"], stage
        assert sum(stage["allocated_by_class"].values()) == stage["allocated_bytes"], stage
        assert stage["device_bytes"] == stage["reserved_bytes"] + stage["outside_program_bytes"]
    cases.says("simulate: the trace over the job", USAGE, "gpt-nano.json",
               command=(*command, "--trace", NANO))


def full_disks(cases, plan, measured):
    """Every result that does not arrive is the environment's fault, said once."""
    machine = ("--cluster", cases.cluster, "--devices", 2)
    for command in (("space", NANO, "--devices", 2), ("space", NANO, "--devices", 2, "--json"),
                    ("plan", NANO, *machine, "--fix", "mp=2"),
                    ("plan", NANO, *machine, "--fix", "mp=2", "--json"),
                    ("simulate", NANO, "mp=2", *machine), ("passes", "--list"),
                    ("passes", NANO, "mp=2"), ("passes", NANO, "mp=2", "--after", "backward"),
                    ("check", plan), ("check", plan, "--json"), ("compare", plan, measured),
                    ("compare", plan, measured, "--json"), ("--help",), ("run", "--help"),
                    ("run", plan, "--data", TEXT, "--steps", 4),
                    ("run", plan, "--data", TEXT, "--steps", 4, "--json")):
        with open("/dev/full", "w") as full:
            done = subprocess.run([str(BIN / "planner"), *map(str, command)], stdout=full, text=True,
                                  stderr=subprocess.PIPE, timeout=300)
        cases.count += 1
        said = done.stderr.count("cannot write to standard output")
        if done.returncode != ENVIRONMENT or said != 1:
            cases.failures.append(f"{command} on a full disk: {done.returncode}, {done.stderr!r}")


def stopping_ranks(cases, plan):
    """A deadline that no rank can keep ends the run with the deadline's code and its number."""
    done = planner("run", plan, "--data", TEXT, "--steps", 2000, "--deadline", 0.001)
    cases.count += 1
    last = done.stderr.splitlines()[-1]
    if done.returncode not in (OK, ENVIRONMENT):
        cases.failures.append(f"deadline of 1 ms: exit {done.returncode}: {last}")
    if done.returncode == ENVIRONMENT and ("deadline" not in last or "rank " not in last):
        cases.failures.append(f"deadline of 1 ms: {last}")


def no_command(cases):
    """Without a command the help is there, as an error."""
    done = planner()
    cases.count += 1
    if done.returncode != USAGE or done.stdout or "Subcommands:" not in done.stderr:
        cases.failures.append(f"no command: exit {done.returncode}: {done.stderr}")


def results_as_json(cases, plan, measured):
    """check and report say in JSON what they say in words."""
    done = planner("check", plan, "--json")
    checked = json.loads(done.stdout)
    assert done.returncode == OK and checked["violations"] == [] and len(checked["rules"]) > 10, done
    broken = changed(cases, "broken.json", plan, lambda value: value["prediction"].update(mfu=0.5))
    done = planner("check", broken, "--json")
    assert done.returncode == BAD_INPUT, done
    found = json.loads(done.stdout)["violations"]
    assert found and {"rule", "message"} == set(found[0]), found
    plural = "violation" if len(found) == 1 else "violations"
    assert done.stderr == f"planner: {broken}: {len(found)} {plural}\n", done.stderr

    page = cases.folder / "page.html"
    done = planner("report", plan, measured, "-o", page, "--json")
    assert done.returncode == OK, done.stderr
    compared = planner("compare", plan, measured, "--json")
    assert compared.returncode in (OK, OUTSIDE_TOLERANCE), compared.stderr
    assert json.loads(done.stdout) == {"output": str(page),
                                       "verdict": json.loads(compared.stdout)["verdict"]}, done.stdout
    done = planner("report", plan, "-o", page, "--json")
    assert json.loads(done.stdout)["verdict"] is None, done.stdout


def still_works(cases):
    """The good request that the others vary passes, so each refusal is about its own fault."""
    done = planner("plan", NANO, "--cluster", cases.cluster, "--devices", 2, "-o", cases.output)
    assert done.returncode == OK, done.stderr
    assert "on 2 CPU cores of test-cpu" in done.stdout, done.stdout
    assert planner("check", cases.output).returncode == OK
    # A job through a pipe is read once.
    piped = subprocess.run([BIN / "planner", "simulate", "/dev/stdin", "dp=2,micro_batch=1", "--cluster",
                            cases.cluster, "--devices", "2"], input=NANO.read_text(),
                           capture_output=True, text=True, timeout=300)
    assert piped.returncode == OK and "on 2 CPU cores of test-cpu" in piped.stdout, piped
    for command in ((), ("plan",), ("run",), ("calibrate",)):
        done = planner(*command, "--help")
        assert done.returncode == OK and "Usage" in done.stdout, done


def main():
    with tempfile.TemporaryDirectory() as name:
        cases = Cases(pathlib.Path(name))
        no_command(cases)
        presets(cases)
        bad_jobs(cases)
        infeasible_jobs(cases)
        steps_too_long(cases)
        unfit_strategy(cases)
        bad_command_lines(cases)
        other_commands(cases)
        other_devices(cases)
        plan, measured = good_files(cases)
        bad_runs(cases, plan)
        bad_calibrations(cases)
        bad_comparisons(cases, plan, measured)
        simulations(cases)
        full_disks(cases, plan, measured)
        stopping_ranks(cases, plan)
        results_as_json(cases, plan, measured)
        still_works(cases)
    print("\n".join(cases.failures) or f"{cases.count} requests refused as documented")
    return 1 if cases.failures else 0


if __name__ == "__main__":
    sys.exit(main())
