"""Prints what each switch of a strategy changes, as published, as simulated and as executed.

For each row of switch_rows.py `planner simulate` predicts the variants at the published size, and
`planner plan` and `planner run` execute them at a small one.
"""

import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import result_pages
import switch_rows

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Switches that `planner plan` tries, and their defaults.
SEARCHED = {"schedule": "1f1b", "virtual_stages": "1", "sequence_parallel": "false",
            "split_boundary": "false", "recompute": "none", "recompute_layers": "0",
            "prefetch_depth": "1", "keep_gathered": "false", "embedding_as_layers": "0", "loss_as_layers": "0"}
STEPS = 4  # the fewest that planner run takes
MIB = 2**20
# Bytes and counts are taken from runs on this cluster, no time: its rates decide nothing.
CORES = {
    "name": "local-cores", "nodes": 1, "devices_per_node": 8,
    "device": {"name": "core", "kind": "cpu_core", "memory": "4 GiB", "memory_bandwidth": "10 GB/s",
               "peak": {"fp32": "100 GFLOP/s", "bf16": "100 GFLOP/s", "fp16": "100 GFLOP/s"}},
    "levels": [], "source": "nominal: only bytes and counts are taken from runs on it",
}


def arguments():
    parser = argparse.ArgumentParser(prog="lab/switches", description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/bin",
                        help="folder of planner and planner-run (default: built here)")
    parser.add_argument("--only", help="rows whose switch has this in its name")
    return parser.parse_args()


class Planner:
    """Runs the planner on jobs that differ from a file in some keys."""

    def __init__(self, folder, scratch):
        self.folder, self.scratch = folder, scratch
        self.cores = scratch / "cores.json"
        self.cores.write_text(json.dumps(CORES))

    def call(self, program, *words):
        done = subprocess.run([self.folder / program, *map(str, words)], text=True,
                              capture_output=True, check=False, cwd=ROOT)
        if done.returncode not in (0, 4):
            raise SystemExit(f"{program} {' '.join(map(str, words))}: {done.stderr.strip()}")
        return done

    def job(self, name, changes):
        path = ROOT / name
        if not changes:
            return path
        job = json.loads(path.read_text())
        job.update(changes)
        changed = self.scratch / "job.json"
        changed.write_text(json.dumps(job))
        return changed

    def simulate(self, size, strategy):
        """Step time, bytes of the fullest stage, or why there is no such strategy."""
        done = self.call("planner", "simulate", self.job(size.job, size.changes), strategy,
                         "--cluster", ROOT / size.cluster, "--devices", size.devices,
                         "--framework", size.framework, "--calibration", "none", "--reserve", "0 B",
                         "--json")
        if not done.stdout:
            return refusal(done)
        found = json.loads(done.stdout)
        prediction = found["prediction"]
        peaks = [stage["peak_bytes"] for stage in prediction["stages"]]
        chosen, batch = found["strategy"], self.global_batch(size)
        width = chosen["micro_batch"] * chosen["dp"] * chosen["sharding_degree"]
        return {"step": prediction["step_time_s"], "peak": peaks, "fits": found["fits"],
                "micro_batches": batch // width,
                "exposed": prediction["breakdown"]["exposed_communication_s"],
                "bubble": prediction["breakdown"]["bubble_s"]}

    def global_batch(self, size):
        return json.loads(self.job(size.job, size.changes).read_text())["global_batch"]

    def run(self, small, strategy):
        """Counts of an executed run."""
        plan, measured = self.scratch / "plan.json", self.scratch / "measured.json"
        chosen = dict(pair.split("=", 1) for pair in strategy.split(","))
        if "sharding_degree" in chosen:
            chosen.setdefault("sharding_stage", "1")
        # Choices that the search would make by itself stay at their defaults.
        fixes = [word for pair in {**SEARCHED, **chosen}.items() for word in ("--fix", "=".join(pair))]
        done = self.call("planner", "plan", self.job(small.job, small.changes), "--cluster",
                         self.cores, "--devices", small.devices, "--framework", "bundled",
                         "--reserve", "0 B", "-o", plan, *fixes)
        if done.returncode != 0:
            return refusal(done)
        done = self.call("planner-run", plan, "--data", ROOT / "data/training-text.txt", "--steps",
                         STEPS, "-o", measured)
        return counts(json.loads(measured.read_text()))


def refusal(done):
    return {"refused": done.stderr.strip().split(": ", 1)[-1]}


CASTS = {"cast", "cast_parameters"}


def counts(measured):
    """Returns counts, each of the rank where it is largest."""
    ranks = collections.defaultdict(collections.Counter)
    for one in measured["traffic"]:
        ranks[one["rank"]]["sent"] += one["sent_bytes"]
        ranks[one["rank"]]["communications"] += one["count"]
    for op in measured["timeline"]["intervals"]:
        own = ranks[op["rank"]]
        own["ops"] += 1
        own["optimizer ops"] += op["phase"] == "optimizer"
        own["casts"] += op["kind"] in CASTS
        own["matmuls"] += op["kind"] == "matmul"
    for memory in measured["timeline"]["memory"]:
        own = ranks[memory["rank"]]
        own["peak"] = memory["peak_bytes"]
        own["buffers"] = max(memory["curve"]["by_class"].get("communication", [0]))
    result = {key: max(own[key] for own in ranks.values())
              for key in ("peak", "buffers", "sent", "communications", "ops", "optimizer ops", "casts",
                          "matmuls")}
    result["loss"] = measured["losses"][-1]
    return result


def arrow(texts):
    return " → ".join(texts)


def seconds(time):
    return f"{time:.2f} s" if time >= 10 else f"{1e3 * time:,.1f} ms"


def change(values):
    """Relative to the first: "+1.2 %" for each other."""
    return ", ".join(f"{100 * (value / values[0] - 1):+.1f} %" for value in values[1:])


def simulated_cell(row, results):
    refused = [result for result in results if "refused" in result]
    if refused:
        return f"refused: {refused[0]['refused']}"
    steps = [result["step"] for result in results]
    text = f"step {arrow(seconds(step) for step in steps)} ({change(steps)})"
    if row.per_micro_batch:
        parts = [step / result["micro_batches"] for step, result in zip(steps, results)]
        text += f", per micro-batch {arrow(f'{1e3 * part:.1f}' for part in parts)} ms"
    peaks = [max(result["peak"]) if row.stage is None else result["peak"][row.stage]
             for result in results]
    if len(set(peaks)) > 1:
        where = "fullest rank" if row.stage is None else f"stage {row.stage}"
        text += f"; {where} {arrow(f'{peak / MIB:,.0f}' for peak in peaks)} MiB ({change(peaks)})"
    for key, name in (("exposed", "exposed communication"), ("bubble", "bubble")):
        parts = [100 * result[key] / result["step"] for result in results]
        if max(parts) >= 1 and max(parts) - min(parts) >= 0.5:
            text += f"; {name} {arrow(f'{part:.1f}' for part in parts)} % of the step"
    missing = [str(i + 1) for i, result in enumerate(results) if not result["fits"]]
    if missing:
        text += f"; variant {', '.join(missing)} does not fit the device"
    return text


def executed_cell(results):
    refused = [result for result in results if "refused" in result]
    if refused:
        return f"refused: {refused[0]['refused']}"
    names = {"peak": "peak {} B", "buffers": "communication buffers {} B", "sent": "sent {} B", "communications": "{} communications",
             "ops": "{} ops", "optimizer ops": "{} ops in the optimizer phase", "casts": "{} casts",
             "matmuls": "{} matmuls"}
    parts = []
    for key, form in names.items():
        values = [result[key] for result in results]
        if len(set(values)) > 1:
            parts.append(form.format(arrow(f"{value:,}" for value in values)))
    if not parts:
        parts.append("the same bytes, messages and ops")
    losses = {f"{result['loss']:.4f}" for result in results}
    parts.append(f"loss {arrow(sorted(losses))}" + ("" if len(losses) > 1 else " in all"))
    return "; ".join(parts)


def job_text(size):
    changed = "".join(f", {key} {json.dumps(value)}" for key, value in size.changes.items())
    return f"`{size.job}`{changed}"


def run_of(number, row):
    """Returns the arguments of what is simulated and executed, for a person to type."""
    size, small = row.size, row.small
    return {"number": number,
            "job": f"{job_text(size)}; `--cluster {size.cluster} --devices {size.devices} --framework {size.framework} "
                   "--calibration none --reserve 0B`",
            "strategies": common(row.variants), "small_job": f"{job_text(small)}; `--devices {small.devices}`",
            "small_strategies": common(row.small_variants)}


def common(variants):
    return " → ".join(f"`{variant}`" for variant in variants)


def keys_of(row):
    """The strategy's fields that a row is about: the words of its switch."""
    return set(re.findall(r"[a-z_]+", row.switch))


def main():
    options = arguments()
    rows = [row for row in switch_rows.ROWS if not options.only or options.only in row.switch]
    found, runs = [], []
    with tempfile.TemporaryDirectory() as scratch:
        planner = Planner(options.bin.resolve(), pathlib.Path(scratch))
        for number, row in enumerate(rows, 1):
            print(f"{number} of {len(rows)}: {row.switch}", file=sys.stderr)
            simulated = [planner.simulate(row.size, variant) for variant in row.variants]
            executed = [planner.run(row.small, variant) for variant in row.small_variants]
            note = f" *{row.note}*" if row.note else ""
            found.append({"number": number, "switch": row.switch, "published": row.published,
                          "simulated": f"{simulated_cell(row, simulated)}.{note}", "executed": executed_cell(executed),
                          "source": row.source})
            runs.append(run_of(number, row))
    for name, rows in (("switches", found), ("runs of switches", runs)):
        print(result_pages.table(result_pages.PRINTED[name], rows), end="\n\n")


if __name__ == "__main__":
    main()
