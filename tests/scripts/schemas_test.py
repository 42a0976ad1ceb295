"""JSON Schemas agree with the readers of files, in both ways.

Every preset, every file that the commands write and every --json output is valid. Files with one change are judged by schema and
reader: keys removed and added, and values of other types and sizes. What a schema refuses, the reader refuses, too. What the
reader alone refuses is in BEYOND: rules between values, and names of things.

Every command that knows --json has a schema. Outputs that nothing reads are changed as well, and their schemas refuse that:
a key that is missing and may not be, a key that is not known, and a value of another type."""

import copy
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from made_up_runs import megatron_log, row, stated
from programs import BAD_INPUT, BIN, CLUSTER, ENVIRONMENT, NANO, OK, OUTSIDE_TOLERANCE, SOURCE, USAGE, planner, write_json

try:
    import jsonschema
except ImportError:  # an interpreter beside Debian's
    sys.path.append("/usr/lib/python3/dist-packages")
    try:
        import jsonschema
    except ImportError:
        print("python3-jsonschema is not installed")
        sys.exit(77)

PRESETS = SOURCE / "models" / "presets"
PRESET_KINDS = {"job": "jobs", "cluster": "clusters", "framework": "frameworks", "calibration": "calibrations",
                "architecture": "architectures", "flag-table": "flags", "command-help": "commands"}
# Refusals that only readers make, by their messages: (kinds, message). Each is met by some changed file.
BEYOND = [
    ("job", r"they must divide hidden|it must divide the \d+ heads|need an even width"),
    ("job", r"only families gpt and llama have other kv_heads"),
    ("job", r"found \".*\"; known: "),
    ("job", r"at most 2\^\d+ are supported|to the sequence length is required"),
    ("cluster framework job strategy calibration plan measured goals published-runs", r"found -?\d+(\.0)?e?\+?\d*; an integer from"),
    ("cluster", r"from .* to .* is required|at most .* is allowed|more than 0 is required|more than 2\^53 bytes|it is more than the peak"),
    ("cluster", r"a larger multiple of the level inside|the outermost level|only the (inner|outer)most level"),
    ("cluster", r"one for each of the \d+ levels|than the bandwidth to all others|at least what `from` says"),
    ("cluster", r"a source of .* is required|this file has no number there"),
    ("cluster", r"nodes? .*of the cluster|the cluster has|kind must be|at least one node must"),
    ("cluster calibration published-runs", r"a number from .* to .* is required"),  # bounds by another value
    ("framework", r"no built-in framework"),
    ("calibration", r"a divisor of ranks"),
    ("calibration", r"a variance is not negative|the square of the \d+ names"),
    ("measured", r"axes such as mp"),
    ("checkpoint", r"the file was changed"),
    ("plan measured", r"must be as long as time_ps"),
    ("plan", r"/constraints/.*: .*(is required|unknown strategy key)"),  # values and names of keys of a strategy
    ("plan", r"/bounded: .*the bounds cut"),
    ("plan", r"found .*; [-+.e0-9]+ is required"),  # of a training, by its tokens and the step
    ("published-runs", r"the frameworks are|no cluster preset has that name"),
]
# Schemas of --json, by command; several where flags or inputs decide. Other schemas are of files.
OUTPUTS = {"calibrate": ["calibration"], "check": ["check"], "compare": ["comparison", "drift"], "describe": ["description"], "doctor": ["doctor"],
           "explain": ["explanation", "why-not", "few-changes"], "fit": ["calibration", "op-fit"], "import": ["import"],
           "import nccl-tests": ["nccl-import"], "learn": ["learn"], "list": ["preset-list"], "plan": ["plan"], "report": ["report"], "run": ["measured"], "schema": ["schema-list"],
           "simulate": ["simulation"], "space": ["space"], "sweep": ["sweep"], "validate": ["validation"]}
# Keys that outputs may leave out, by their places: those of jobs, strategies and maps, and others by the kind of output.
CHANGE = ".*change[sd]/0/(need_bytes|step_time_s|ratio)"  # of choices that do not run
ANYWHERE = ".*/(strategy|job|choices|share_by_provenance|legal/0)/.*"
OPTIONAL = {"learn": "/runs/0/by_others", "drift": "/runs/0/by_others", "space": "/legal", "preset-list": "/(jobs|clusters|frameworks|calibrations)", "simulation": "/training", "description": "/made/with", "validation": "/goals|/allocator_traces|/rows/0/time_error_pct",
            "explanation": CHANGE, "why-not": f"{CHANGE}|/asked/.*|/best/ratio", "few-changes": f"{CHANGE}|/run|/step_before|/run/by_others"}
# Made up: three layouts of one job, and a run of a shape that is not modelled; a trace of one allocation; and twenty timed matmuls.
RUNS = stated([*({**row(2048, 1024, 2, "torchtitan", "H100", 80), "batch": {"micro": micro, "global": 8}} for micro in (1, 2, 4)),
        {**row(2048, 1024, 4, "torchtitan", "H100", 80), "needs": ["experts"]}])
TRACE = {"id": "made up", "initial": {"segments": [], "live": []}, "events": [["S", 2097152, 4096], ["a", 1, 1000, 4096]],
         "expected": {"peak_reserved_bytes": 2097152}}
GOALS = {"goals": [{"family": "runs", "of": "time", "most_mean_abs_pct": 0.001}]}
OPS = [{"source": {"repo_or_doc": "doc", "path_or_issue": "table 1"}, "gpu": "A100", "devices": ["NVIDIA A100 PCIe 80GB"], "op": "matmul", "dtype": "bf16",
        "batch": 1, "m": m, "k": k, "n": 4096, "transpose_a": False, "transpose_b": True, "output_bytes": 2, "time_s": 2 * m * k * 4096 / 218e12}
       for m in (512, 1024, 2048, 4096, 8192) for k in (512, 1024, 2048, 4096)]
SCRIPT = """torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 256 \\
  --max-position-embeddings 256 --micro-batch-size 1 --global-batch-size 64 --tensor-model-parallel-size 4 --vocab-size 1024 --bf16
"""
VALUES = [None, True, -1, 1.5, 2 ** 53, "text", "", [1], {}]
FEW_VALUES = [None, -1, "text", {}]  # for plans, which are long


def schema_of(name):
    done = planner("schema", name)
    assert done.returncode == OK and not done.stderr, done
    schema = json.loads(done.stdout)
    jsonschema.Draft7Validator.check_schema(schema)
    return schema


class Schemas:
    def __init__(self):
        listed = planner("schema")
        assert listed.returncode == OK, listed
        self.names = [line.split()[0] for line in listed.stdout.splitlines()]
        files = sorted(path.stem for path in (PRESETS / "schemas").glob("*.json"))
        assert self.names == files, (self.names, files)
        schemas = {name: schema_of(name) for name in self.names}
        for name, schema in schemas.items():
            assert '"$ref": "#' in json.dumps(schema) or '"$ref"' not in json.dumps(schema), f"{name}: refers to a file"
        self.validators = {name: jsonschema.Draft7Validator(schema) for name, schema in schemas.items()}
        self.used, self.count = set(), 0

    def valid(self, kind, value):
        self.used.add(kind)
        self.count += 1
        return self.validators[kind].is_valid(value)

    def faults(self, kind, value, what):
        self.used.add(kind)
        self.count += 1
        for error in self.validators[kind].iter_errors(value):
            yield f"{kind}: {what}: at /{'/'.join(map(str, error.path))}: {error.message[:300]}"


def presets(schemas):
    for kind, folder in PRESET_KINDS.items():
        for path in sorted((PRESETS / folder).glob("*.json")):
            yield from schemas.faults(kind, json.loads(path.read_text()), path.name)
    for kind in ("training-logs", "profiler-traces"):
        yield from schemas.faults(kind, json.loads((PRESETS / "readers" / f"{kind}.json").read_text()), "of readers")
    yield from schemas.faults("goals", json.loads((SOURCE / "docs/results/goals.json").read_text()), "goals.json")
    for kind in schemas.names:
        for example in schemas.validators[kind].schema.get("examples", []):
            yield from schemas.faults(kind, example, "its example")


def printed(*arguments, codes=(OK,)):
    done = planner(*arguments)
    assert done.returncode in codes, (arguments, done)
    return json.loads(done.stdout)


def outputs(schemas, folder):
    """Collects what commands write and print. Returns the samples that are changed later, by kind."""
    cluster = write_json(folder / "cluster.json", CLUSTER)
    plan, measured, calibration = folder / "plan.json", folder / "measured.json", folder / "calibration.json"
    found = {"plan": printed("plan", NANO, "--cluster", cluster, "--devices", 2, "--fix", "mp=2", "--tokens", "1B",
                             "--price", "1/h", "-o", plan, "--json")}
    assert planner("run", plan, "--data", SOURCE / "data/training-text.txt", "--steps", 4, "-o", measured, "--checkpoint",
                   folder / "saved").returncode == OK
    found["checkpoint"] = json.loads((folder / "saved/step-4/checkpoint.json").read_text())
    found["measured"] = json.loads(measured.read_text())
    assert planner("calibrate", "--quick", "--budget", "1 s", "-o", calibration, "--cluster-out",
                   folder / "machine.json").returncode == OK
    found["calibration"] = json.loads(calibration.read_text())
    found["comparison"] = printed("compare", plan, measured, "--json", codes=(OK, OUTSIDE_TOLERANCE))
    found["explanation"] = printed("explain", plan, "--cluster", cluster, "--json")
    found["why-not"] = printed("explain", plan, "--cluster", cluster, "--why-not", "mp=1,dp=2", "--json")
    found["simulation"] = printed("simulate", NANO, "mp=2", "--cluster", cluster, "--devices", 2, "--json")
    found["timeline"] = found["plan"]["timeline"]
    found["strategy"] = found["plan"]["strategy"]
    failures = [fault for kind, value in found.items() for fault in schemas.faults(kind, value, "an output")]
    for kind, value in more_outputs(folder, cluster, plan, measured):
        failures += schemas.faults(kind, value, "an output")
        found.setdefault(kind, value)
    read = {kind for kind, _ in samples(found)}
    for kinds in OUTPUTS.values():
        failures += [fault for kind in kinds if kind not in read for fault in too_lax(schemas, kind, found[kind])]
    failures += schemas.faults("cluster", json.loads((folder / "machine.json").read_text()), "of planner calibrate")
    for kind in ("job", "strategy", "framework"):
        flags = {"job": "-o", "strategy": "--strategy-out", "framework": "--framework-out"}
        assert planner("import", SOURCE / "tests/interop/llama3-70b.sh", flags[kind], folder / "imported.json").returncode == OK
        failures += schemas.faults(kind, json.loads((folder / "imported.json").read_text()), "of planner import")
    return found, failures


def more_outputs(folder, cluster, plan, measured):
    """Yields kinds of --json with an output each, and often several: the first is the one that is changed later."""
    target = ("--cluster", cluster, "--devices", 2)
    script = SOURCE / "tests/interop/llama3-70b.sh"
    # Names of ops that only ranks with other experts have.
    yield "plan", printed("plan", SOURCE / "tests/expert-nano.json", *target, "--fix", "ep=2", "--fix", "expert_dispatch=all_to_all",
                          "--json")
    yield "space", printed("space", NANO, *target, "--list", "--fix", "mp=2", "--fix", "micro_batch=1", "--json")
    yield "space", printed("space", NANO, "--devices", 2, "--json")
    broken = json.loads(plan.read_text())
    broken["strategy"]["mp"] = 1
    yield "check", printed("check", write_json(folder / "broken.json", broken), "--json", codes=(BAD_INPUT,))
    yield "check", printed("check", plan, "--json")
    calibration = folder / "calibration.json"
    for what in (plan, NANO, "bert-mini", cluster, "dgx-h100-80gb", "dgx1-v100-16gb", "megatron-lm", "bundled", calibration,
                 "dgx-h100-80gb--megatron-lm", write_json(folder / "strategy.json", {"mp": 2}), SOURCE / "tests/interop/traces/three-steps.pt.trace.json",
                 *sorted((SOURCE / "tests/interop/logs").glob("*.log"))):
        yield "description", printed("describe", what, "--json")
    yield "doctor", printed("doctor", "--json", codes=(OK, ENVIRONMENT))
    yield "validation", printed("validate", write_json(folder / "runs.json", RUNS), write_json(folder / "traces.json", [TRACE]),
                                "--goals", write_json(folder / "goals.json", GOALS), "--json", codes=(OUTSIDE_TOLERANCE,))
    yield "validation", printed("validate", folder / "runs.json", "--json")
    yield "op-fit", printed("fit", write_json(folder / "ops.json", OPS), "--cluster", "a100-pcie-80gb", "--framework", "megatron-lm",
                            "--json")
    yield "import", printed("import", script, "--json")
    for file in ("data/llama-3-8b.json", "gpt3-175b.sh"):
        yield "import", printed("import", SOURCE / "tests/interop" / file, "--json")
    yield "nccl-import", printed("import", "nccl-tests", SOURCE / "tests/interop/nccl-tests/two-runs.txt", "--cluster", "dgx-h100-80gb",
                                 "--json")
    swept = ("sweep", NANO, "--cluster", cluster)
    yield "sweep", printed(*swept, "--devices", "2,7", "--tokens", "1B", "--price", "1/h", "--deadline", "30d", "--json")
    yield "sweep", printed(*swept, "--devices", 2, "--json")
    yield "simulation", printed("simulate", NANO, "mp=2", *target, "--tokens", "1B", "--json")
    (folder / "train.sh").write_text(SCRIPT)
    runs = [part for name in ("run", "again")
            for part in ("--from", folder / "train.sh", "--log", megatron_log(folder / f"{name}.log", 0.5, 64))]
    yield "learn", printed("learn", *runs, "--cluster", "dgx-a100-80gb", "-o", folder / "learned.json", "--json")
    yield "calibration", json.loads((folder / "learned.json").read_text())
    yield "few-changes", printed("explain", "--from", folder / "train.sh", "--cluster", "dgx-a100-80gb", "--json")
    yield "few-changes", printed("explain", *runs[:4], "--cluster", "dgx-a100-80gb", "--json")
    yield "drift", printed("compare", *runs[:4], "--cluster", "dgx-a100-80gb", "--calibration", folder / "learned.json", "--json")
    yield "report", printed("report", plan, measured, "--cluster", cluster, "--plan-only", "-o", folder / "page.html", "--json")
    yield "report", printed("report", plan, "--plan-only", "-o", folder / "page.html", "--json")
    yield "schema-list", printed("schema", "--json")
    yield "preset-list", printed("list", "--json")


def samples(found):
    """Files with as many keys as possible, to change."""
    read = {folder: lambda name, folder=folder: json.loads((PRESETS / folder / f"{name}.json").read_text())
            for folder in ("jobs", "clusters", "frameworks", "calibrations")}
    llama = {**read["jobs"]("llama3-8b"), "qkv_bias": True, "dropout": 0.1, "seed": 1, "fp32_parameters": ["norm"],
             "loss_scale": {"initial": 1024, "growth": 2, "backoff": 0.5, "growth_interval": 100}, "activation": "swiglu",
             "norm": "rms_norm", "clip_norm": 1, "optimizer": {"kind": "adamw", "learning_rate": 1e-4, "beta1": 0.9, "beta2": 0.95,
                                                               "epsilon": 1e-8, "weight_decay": 0.1, "groups": [
                                                                   {"match": "norm", "weight_decay": 0, "clip": False,
                                                                    "learning_rate_factor": 2}]}}
    ernie = {**read["jobs"]("ernie-mini"), "optimizer": {"kind": "sgd", "momentum": 0.5}}
    bert = {**read["jobs"]("bert-mini"), "pooler": True}
    mixed = read["clusters"]("dgx-h100-80gb")
    mixed["nodes"] = 4
    mixed["levels"][0]["peer_bandwidth"] = "10 GB/s"
    mixed["other_devices"] = [{"nodes": [1, 2], "device": copy.deepcopy(mixed["device"]),
                               "efficiency": {key: value for key, value in mixed["efficiency"].items() if key != "levels"}}]
    mixed["source"] = "chosen for tests"
    framework = {"name": "ours", "based_on": "megatron-lm", "runs_on": "nothing",
                 "calibrated_as": {"framework": "megatron-lm", "source": "a"}, "typical_rates": {"apply": True, "source": "b"}}
    whole = found["plan"]["framework"]
    framework["can"] = copy.deepcopy(whole["can"])
    groups = json.loads((PRESETS / "schemas/framework.json").read_text())["properties"]
    for group in ("kernels", "parallelism", "dispatch", "waits", "memory", "allocator"):
        values = {**whole, **whole["allocator"]}
        framework[group] = {key: values[key] for key in groups[group]["properties"] if key in values}
        framework[group]["source"] = "c"
    sample = {"median_s": 1e-5, "spread_s": 1e-6, "samples": 9, "unsteady": False}
    measured = {**found["calibration"], "launch": sample, "context_memory_bytes": 1000, "wake_up": sample, "sleeps_after_s": 0.01,
                "communicator_memory": [{"communicator": "mpi", "ranks": 2, "held_bytes": 5}],
                "collectives": [{"kind": "all_reduce", "ranks": 4, "nodes": 2, "groups_per_node": 1, "communicator": "nccl",
                                 "payload_bytes": 10, "dtype": "bf16", "imported": {"file": "f", "date": "2026-11-20"}, **sample}],
                "overlaps": [{"compute": "matmul", "communication": "all_gather", "communicator": "mpi", "nodes": 1,
                              "payload_bytes": 10, "compute_slowdown": 1.1, "compute_spread": 0.1, "communication_slowdown": 1.2,
                              "communication_spread": 0.1, "samples": 9}],
                "copies": [{"direction": "to_host", "pinned": True, "bytes": 10, **sample}]}
    for key in ("matmuls", "ops"):
        measured[key] = measured[key][:1]
    fitted = read["calibrations"]("dgx-h100-80gb--megatron-lm")
    for key in ("levels", "values", "layers", "sources"):
        fitted["fitted"][key] = fitted["fitted"][key][:1]
    fitted["fitted"]["learned"] = {
        "noise": 0.05, "names": ["dispatch_op"], "covariance": [0.01],
        "runs": [{"log": "a.log", "layout": "TP 2", "job_digest": "a", "strategy_digest": "b", "measured_s": 1.0, "before_s": 0.9, "after_s": 0.95, "by_others_s": 1.1,
                  "contradicts": False}]}
    plan = copy.deepcopy(found["plan"])
    plan["timeline"]["intervals"] = plan["timeline"]["intervals"][:1]
    plan["timeline"]["memory"] = plan["timeline"]["memory"][:1]
    for key in ("runners_up", "pareto", "rank_times"):
        plan[key] = plan[key][:1]
    curve = plan["timeline"]["memory"][0]["curve"]
    curve["time_ps"] = curve["time_ps"][:1]
    curve["by_class"] = {key: values[:1] for key, values in curve["by_class"].items()}
    plan.update(communicator="mpi", mixed_devices=False, calibration_rest_digest="0")
    run = {**copy.deepcopy(found["measured"]), "timeline": plan["timeline"], "loss_scales": [1.0], "skipped_steps": 0,
           "device": "GPU", "device_memory_before_bytes": 1, "device_memory_bytes": 2}
    run["traffic"] = run["traffic"][:1]
    goal = {"family": "a", "of": "time", "most_mean_abs_pct": 5, "most_median_abs_pct": 5, "least_spearman": 0.9,
            "least_interval90_coverage": 0.8, "most_interval90_to_error": 4, "most_skipped_pct": 10, "most_missed_oom": 0,
            "most_false_oom": 0}
    regret = {"of": "regret", "most_mean_pct": 2.5, "most_worst_pct": 12, "most_best_of_three_pct": 0.7}
    row = {"id": "a", "use": "public", "source": {"repo_or_doc": "doc", "path_or_issue": "page"},
           "hardware": {"gpu": "H100", "gpus": 8, "gpus_per_node": 8, "interconnect": "x"},
           "model": {"name": "m", "hidden": 64, "layers": 4, "heads": 4, "kv_heads": 4, "ffn_hidden": 256, "vocab": 100, "seq_len": 64,
                     "head_dim": 16, "qk_norm": True, "experts": 8, "top_k": 2, "expert_ffn_hidden": 64,
                     "shared_expert_ffn_hidden": 64, "dense_layers": 1, "mtp_layers": 1,
                     "mla": {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8}},
           "moe": {"capacity_factor": 1.0, "balanced": True},
           "parallel": {"tp": 2, "pp": 1, "dp": 4, "cp": 1, "ep": 2, "etp": 1, "vpp": 1, "zero_stage": 1, "sequence_parallel": False},
           "batch": {"micro": 1, "global": 8, "grad_accum": 1}, "precision": "bf16", "framework_version": "1",
           "attention": "flash", "kernels": "fused norms",
           "needs": ["x"], "dropout": 0.1, "layers_per_stage": [4], "oom": False,
           "measured": {"step_time_s": 1.5, "flops_per_s": 1e14, "memory_allocated_bytes": 9000000000,
                        "memory_reserved_bytes": 9500000000, "memory_device_bytes": 10000000000}, "derived_step_time_s": 1.4,
           "stated": {"cluster": "dgx-h100-80gb", "network_bytes_per_s": 5e10, "shards_within_node": False, "rack": {"devices": 72, "used_of_several": 64},
                      "family": "gpt", "activation": "swiglu", "norm": "rms_norm", "tied_embeddings": True, "precision": "bf16",
                      "pads_vocabulary": True, "framework": "megatron-lm", "framework_fields": {"flash_attention": True},
                      "recompute": "layers", "recompute_every": [2], "fp8": "none", "fp8_parameters": False, "gradient_type": "f32", "splits_boundary": False,
                      "ends_as_layers": 1, "schedule": "1f1b", "clip_norm": 1.0, "counted_attention": "seen",
                      "memory_of_last_rank": False, "needs": "x"}, "statements": []}
    return [("job", llama), ("job", ernie), ("job", bert), ("cluster", mixed), ("cluster", read["clusters"]("dgx1-v100-16gb")),
            ("framework", framework), ("strategy", found["strategy"]), ("calibration", measured), ("calibration", fitted),
            ("plan", plan), ("measured", run), ("checkpoint", found["checkpoint"]), ("goals", {"goals": [goal]}), ("goals", {"goals": [regret]}), ("published-runs", [row])]


def places(value, path=()):
    """Paths of all members; of arrays, the first element."""
    members = value.items() if isinstance(value, dict) else list(enumerate(value))[:1] if isinstance(value, list) else []
    for key, member in members:
        yield (*path, key)
        yield from places(member, (*path, key))


def changed(value, path, change):
    result = copy.deepcopy(value)
    at = result
    for key in path[:-1]:
        at = at[key]
    change(at, path[-1])
    return result


def same(a, b):
    """Equal to a JSON reader: true is not 1."""
    return type(a) is type(b) and a == b


def changes_of(value, values):
    """The value itself with a note for editors, and with one change."""
    if isinstance(value, dict):
        yield "as it is", {"$schema": "job.schema.json", **value}
        yield "$schema a number", {"$schema": 1, **value}
        yield "unknown key", {**value, "unknown_key": 1}
    for path in places(value):
        where = "/" + "/".join(map(str, path))
        yield f"{where} removed", changed(value, path, lambda at, key: at.pop(key))
        before = value
        for key in path:
            before = before[key]
        for other in values:
            if not same(before, other):
                yield f"{where} = {json.dumps(other)}", changed(value, path, lambda at, key, other=other: at.__setitem__(key, other))
        if isinstance(before, dict):
            yield f"{where}/unknown_key", changed(value, path, lambda at, key: at[key].update(unknown_key=1))


def too_lax(schemas, kind, value):
    """Says what a schema of an output accepts though no command prints it."""
    for path in places(value):
        where = "/" + "/".join(map(str, path))
        before = value
        for key in path:
            before = before[key]
        changes = {"with another type": lambda at, key, other=1 if isinstance(before, list) else [[]]: at.__setitem__(key, other)}
        if isinstance(path[-1], str) and not re.fullmatch(f"{ANYWHERE}|{OPTIONAL.get(kind, '')}", where):
            changes["removed"] = lambda at, key: at.pop(key)
        if isinstance(before, dict):
            changes["with an unknown key"] = lambda at, key: at[key].update(unknown_key=[[]])
        for what, change in changes.items():
            if schemas.valid(kind, changed(value, path, change)):
                yield f"{kind}: {where} {what}: the schema accepts it"


def undocumented():
    """Says which commands have --json and no schema, by their help."""
    for path in sorted((PRESETS / "commands").glob("planner-*.json")):
        words = path.stem.removeprefix("planner-").split("-", 1)
        command = path.stem.removeprefix("planner-") if words[0] not in ("import", "init") else " ".join(words)
        has_json = "--json" in planner(*command.split(), "--help").stdout
        if has_json != (command in OUTPUTS):
            yield f"planner {command}: --json {'has no schema' if has_json else 'is in OUTPUTS'}"


def broken_rules(files):
    """Files that break the rules between values which no single change of VALUES breaks."""
    llama, ernie = files[0][1], files[1][1]
    yield "job", "7 heads", {**llama, "heads": 7, "kv_heads": 7}
    yield "job", "other kv_heads", {**ernie, "kv_heads": ernie["heads"] + 1}
    yield "job", "too many parameters", {**llama, "layers": 100000, "hidden": 2**20, "ffn_hidden": 2**22}
    for kind, value in files:
        if kind == "cluster" and "other_devices" in value:
            yield kind, "nodes beyond the last", changed(value, ("other_devices", 0, "nodes"), lambda at, key: at.update(nodes=[3, 2]))
        if kind == "calibration" and "collectives" in value:
            yield kind, "3 nodes", changed(value, ("collectives", 0, "nodes"), lambda at, key: at.update(nodes=3))


def verdicts(cases):
    """Returns what the readers of files say of each (kind, document)."""
    program = BIN.parent / "tests" / "schemas.verdicts"
    text = "".join(f"{kind}\t{json.dumps(document)}\n" for kind, document in cases)
    done = subprocess.run([program], input=text, capture_output=True, text=True, timeout=600, env={**os.environ})
    lines = done.stdout.splitlines()
    assert done.returncode == OK and len(lines) == len(cases), (done.returncode, len(lines), len(cases), done.stderr[-500:])
    return lines


def disagreements(schemas, found):
    files = samples(found)
    named = [(kind, what, document) for kind, value in files
             for what, document in changes_of(value, FEW_VALUES if kind == "plan" else VALUES)]
    named += broken_rules(files)
    met = set()
    for (kind, what, document), said in zip(named, verdicts([(kind, document) for kind, _, document in named])):
        valid, accepted = schemas.valid(kind, document), said == "ok"
        if valid == accepted:
            continue
        rules = [i for i, (kinds, message) in enumerate(BEYOND) if kind in kinds.split() and re.search(message, said)]
        met.update(rules)
        if accepted or not rules:
            yield f"{kind}: {what}: the schema {'accepts' if valid else 'refuses'}, the reader says: {said[:200]}"
    for i, (kinds, message) in enumerate(BEYOND):
        if i not in met:
            yield f"BEYOND: no changed file meets {kinds}: {message}"


def wrong_defaults(schema, strategy):
    """Messages for keys whose default the schema does not state, or states otherwise than it is. `strategy`: one that states nothing."""
    for key, of in schema["properties"].items():
        stated = re.search(r"Default: (\S.*)\.$", of.get("description", ""))
        value = strategy.get(key)
        words = "empty" if value == [] else f"{value >> 20} MiB" if key.endswith("bytes") and value else json.dumps(value).strip('"')
        if key != "$schema" and (not stated or " if " not in stated[1] and " for " not in stated[1] and stated[1] != words):
            yield f"models/presets/schemas/strategy.json: {key}: the default is {words}"


def defaults_of_strategies():
    done = planner("simulate", "gpt-mini", "mp=1", "--cluster", "rtx-4090", "--devices", 1, "--json")
    assert done.returncode == OK, done.stderr
    strategy = json.loads(done.stdout)["strategy"]
    schema = json.loads((SOURCE / "models/presets/schemas/strategy.json").read_text(encoding="utf-8"))
    assert len(list(wrong_defaults(schema, {**strategy, "mp": 2, "gather": "use"}))) == 2
    return list(wrong_defaults(schema, strategy))


def main():
    schemas = Schemas()
    failures = list(presets(schemas))
    with tempfile.TemporaryDirectory() as name:
        found, wrong = outputs(schemas, pathlib.Path(name))
        failures += wrong
    failures += [*disagreements(schemas, found), *undocumented(), *defaults_of_strategies()]
    unused = set(schemas.names) - schemas.used
    failures += [f"{name}: nothing was held against it" for name in sorted(unused)]
    done = planner("schema", "jop")
    assert done.returncode == USAGE and "did you mean job?" in done.stderr, done
    print("\n".join(failures[:200]) or f"{schemas.count} documents are judged alike by {len(schemas.names)} schemas and their readers")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
