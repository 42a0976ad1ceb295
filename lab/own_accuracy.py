"""Runs 30 strategies of one and two ranks and compares step times with predictions
(lab/own-accuracy)."""

import argparse
import json
import os
import pathlib
import statistics
import sys

from ranking import (ENVIRONMENT, Entry, Failure, LEAST_STEPS, MOST_STEPS, OK, OUTSIDE_TOLERANCE,
                     Planner, ROOT, calibrate, fixes, note, number, run_once, steps_within)
import result_pages
from ranking_statistics import error, spearman, summary_of_errors

JOBS = ROOT / "models/presets/jobs"
# Job, ranks, what is fixed; what is not is the planner's choice. Every way to split a job between
# two ranks, every stage of sharding and every schedule, large and small micro-batches, on three
# architectures.
STRATEGIES = [
    ("gpt-mini", 1, "micro_batch=1"),
    ("gpt-mini", 1, "micro_batch=4"),
    ("gpt-mini", 1, "micro_batch=16"),
    ("gpt-mini", 1, "micro_batch=4 recompute=full"),
    ("gpt-mini", 1, "micro_batch=4 recompute=selective"),
    ("gpt-mini", 1, "micro_batch=4 flatten=none"),
    ("gpt-mini", 2, "dp=2 micro_batch=1"),
    ("gpt-mini", 2, "dp=2 micro_batch=4"),
    ("gpt-mini", 2, "dp=2 micro_batch=4 grad_bucket_bytes=1MiB"),
    ("gpt-mini", 2, "dp=2 micro_batch=2 recompute=full"),
    ("gpt-mini", 2, "sharding_degree=2 sharding_stage=1 micro_batch=4"),
    ("gpt-mini", 2, "sharding_degree=2 sharding_stage=2 micro_batch=4"),
    ("gpt-mini", 2, "sharding_degree=2 sharding_stage=3 micro_batch=4"),
    ("gpt-mini", 2, "sharding_degree=2 sharding_stage=3 micro_batch=1"),
    ("gpt-mini", 2, "mp=2 micro_batch=1"),
    ("gpt-mini", 2, "mp=2 micro_batch=8"),
    ("gpt-mini", 2, "mp=2 micro_batch=4 sequence_parallel=true"),
    ("gpt-mini", 2, "pp=2 micro_batch=1"),
    ("gpt-mini", 2, "pp=2 micro_batch=4"),
    ("gpt-mini", 2, "pp=2 micro_batch=2 schedule=gpipe"),
    ("gpt-mini", 2, "pp=2 micro_batch=2 schedule=zb_h1"),
    ("gpt-mini", 2, "pp=2 micro_batch=2 virtual_stages=3"),
    ("llama-mini", 1, "micro_batch=4"),
    ("llama-mini", 2, "mp=2 micro_batch=4"),
    ("llama-mini", 2, "pp=2 micro_batch=2"),
    ("llama-mini", 2, "sharding_degree=2 sharding_stage=1 micro_batch=2"),
    ("bert-mini", 1, "micro_batch=4"),
    ("bert-mini", 2, "dp=2 micro_batch=4"),
    ("bert-mini", 2, "mp=2 micro_batch=2"),
    ("bert-mini", 2, "pp=2 micro_batch=4 recompute=full"),
]


PREDICTED = 5  # strategies after two runs were learned from


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(
        prog="lab/own-accuracy", allow_abbrev=False,
        description=f"Calibrates this machine, runs {len(STRATEGIES)} strategies of one and two "
                    "ranks, and does so again in further rounds; prints how far predicted step "
                    "times are off. Wants an idle machine for all rounds' calibration budgets and "
                    "the budget together, a quarter of an hour by default.")
    add = parser.add_argument
    add("--count", type=number(1, len(STRATEGIES), int), default=len(STRATEGIES),
        help="only so many of them, evenly spread, to try the script")
    add("--data", default=ROOT / "data/training-text.txt", help="file whose bytes are trained on")
    add("--calibration", help="with --cluster: of this machine, for all rounds; default: it is "
                              "calibrated before each")
    add("--cluster", help="the cluster file that planner calibrate wrote with the calibration")
    add("--calibration-budget", type=number(0.001, 1e5), default=60, metavar="SECONDS",
        help="of each round (default 60)")
    add("--budget", type=number(1, 1e6), default=720, metavar="SECONDS",
        help=f"for all runs together, roughly: decides how many steps each has, {LEAST_STEPS} to "
             f"{MOST_STEPS} (default 720)")
    add("--rounds", type=number(1, 100, int), default=3,
        help="predictions and runs of each strategy, far apart in time: the medians of both count "
             "(default 3)")
    add("--deadline", type=number(0.001, 1e6), default=120, metavar="SECONDS",
        help="for one run; also how long a rank waits for others (default 120)")
    add("--goal-median-error", type=number(0, 100), default=0.08)
    add("--bin", default=ROOT / "build/bin", help="folder of the programs")
    add("-o", "--out", default=ROOT / "out/own-accuracy", help="folder for plans and measurements")
    add("--json", action="store_true", help="the result as JSON")
    add("--page", metavar="FOLDER", help="write it into the page kernels, docs/results")
    options = parser.parse_args(arguments)
    if (options.calibration is None) != (options.cluster is None):
        parser.error("--calibration and --cluster belong together: both or neither")
    return options


def chosen_strategies(count):
    return [STRATEGIES[i * len(STRATEGIES) // count] for i in range(count)]


class Strategy(Entry):
    """A strategy, with a prediction of each round."""

    def __init__(self, what, plan, path):
        super().__init__(plan, path)
        self.what = what
        self.predictions = []
        self.half_widths = []

    def predict(self, planner, options, job, devices, folder):
        """Before a round: the same strategy with what was measured last."""
        path = folder / "predicted.json"
        planner.run("plan", job, "--cluster", options.cluster, "--calibration",
                    options.calibration, "--devices", devices, "-o", path,
                    *fixes(self.strategies[0]))
        plan = json.loads(path.read_text())
        if plan["programs"] != self.digests:
            raise Failure(1, f"{self.what}: planned again, other Programs")
        self.predictions.append(plan["prediction"]["step_time_s"])
        self.half_widths.append(plan["prediction"]["step_time_high_s"] / self.predictions[-1] - 1)
        self.predicted = statistics.median(self.predictions)
        self.half_width = statistics.median(self.half_widths)


def make_entries(planner, options, folder):
    entries = []
    for index, (job, devices, choices) in enumerate(chosen_strategies(options.count)):
        path = folder / f"plan-{index}.json"
        fixed = [word for choice in choices.split() for word in ("--fix", choice)]
        planner.run("plan", JOBS / f"{job}.json", "--cluster", options.cluster, "--calibration",
                    options.calibration, "--devices", devices, "-o", path, *fixed)
        what = f"{job} {devices} rank{'s' if devices > 1 else ''} {choices}"
        entries.append(Strategy(what, json.loads(path.read_text()), path))
    return entries


def run_all(planner, options, folder):
    """Rounds of a calibration, predictions and runs: what the machine's other guests leave it
    drifts by a fifth within minutes, which one calibration could not know."""
    entries, given = [], options.calibration
    for place in range(options.rounds):
        options.calibration = given
        calibrate(planner, options, folder)
        if not entries:
            entries = make_entries(planner, options, folder)
            steps = steps_within(options.budget / options.rounds, [e.predicted for e in entries],
                                 0.5)
            note(f"{len(entries)} strategies, {options.rounds} runs of {steps} steps each")
        for entry, (job, devices, _) in zip(entries, chosen_strategies(options.count)):
            entry.predict(planner, options, JOBS / f"{job}.json", devices, folder)
        # Forwards and backwards in turn, so that drift does not favour a place.
        for entry in entries if place % 2 == 0 else reversed(entries):
            run_once(planner, options, entry, steps, folder)
        note(f"  round {place + 1}/{options.rounds}")
    return entries


def learned_from_two(planner, options, entries, folder):
    """Learns from two runs of the last round, by the last calibration, and predicts the next five, for pairs of all places. Returns
    the mean errors before and after; nothing for few strategies."""
    before, after = [], []
    where, output = ("--cluster", options.cluster, "--calibration", options.calibration), folder / "learned.json"
    for place in range(0, len(entries), 3) if len(entries) >= 2 + PREDICTED else ():
        two = [entries[place], entries[(place + len(entries) // 2) % len(entries)]]
        planner.run("learn", *(word for one in two for word in ("--from", one.path, "--log", one.log)), *where, "-o", output)
        others = [one for step in range(1, len(entries)) if (one := entries[(place + step) % len(entries)]) not in two]
        for one in others[:PREDICTED]:
            found = planner.json("simulate", "--from", one.path, *where, "--calibration", output)["prediction"]
            before.append(abs(error(one.predictions[-1], one.medians[-1])))
            after.append(abs(error(found["step_time_s"], one.medians[-1])))
    return {"predictions": len(after), "before": statistics.fmean(before), "after": statistics.fmean(after)} if after else None


def result_of(options, entries, load):
    pairs = [(e.predicted, e.measured()) for e in entries]
    rows = [{"strategy": e.what, "predicted_s": e.predicted, "measured_s": e.measured(),
             "error": error(e.predicted, e.measured()), "half_width": e.half_width,
             "rounds": [{"predicted_s": p, "measured_s": m}
                        for p, m in zip(e.predictions, e.medians)],
             "within": abs(e.measured() / e.predicted - 1) <= e.half_width} for e in entries]
    summary = summary_of_errors(pairs)
    return {
        "strategies": rows,
        "median_error": summary["median"],
        "worst_error": summary["worst"],
        "mean_error": statistics.fmean(abs(row["error"]) for row in rows),
        "signed_median": summary["signed_median"],
        "interval90_coverage": statistics.fmean(row["within"] for row in rows),
        "mean_half_width": statistics.fmean(row["half_width"] for row in rows),
        "spearman": spearman([p for p, _ in pairs], [m for _, m in pairs]),
        "load_average": load,
        "goal_median_error": options.goal_median_error,
        "met": summary["median"] <= options.goal_median_error,
    }


def print_text(result):
    print(f"{'predicted':>12}{'measured':>12}{'error':>9}{'+-':>8}  strategy")
    for row in result["strategies"]:
        print(f"{1e3 * row['predicted_s']:>9.2f} ms{1e3 * row['measured_s']:>9.2f} ms"
              f"{100 * row['error']:>+8.1f}%{100 * row['half_width']:>7.1f}%  {row['strategy']}")
    rank = "" if result["spearman"] is None else f", rank correlation {result['spearman']:.3f}"
    print(f"\n{len(result['strategies'])} strategies: median error "
          f"{100 * result['median_error']:.1f} %, mean {100 * result['mean_error']:.1f} %, worst "
          f"{100 * result['worst_error']:.1f} %, signed median "
          f"{100 * result['signed_median']:+.1f} %{rank}")
    print(f"90 % intervals hold {100 * result['interval90_coverage']:.0f} % of them, half as wide as "
          f"{100 * result['mean_half_width']:.1f} % in the mean")
    if learned := result["learned_from_two"]:
        print(f"after learning from two runs: {100 * learned['after']:.1f} % off {learned['predictions']} other runs, before "
              f"{100 * learned['before']:.1f} %")
    before, after = result["load_average"]
    print(f"load average {before:.2f} before, {after:.2f} after")
    print(f"goal {100 * result['goal_median_error']:g} %: {'met' if result['met'] else 'MISSED'}")


def run(options):
    planner = Planner(options)
    folder = pathlib.Path(options.out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise Failure(ENVIRONMENT, f"--out {folder}: {problem.strerror}") from problem
    before = os.getloadavg()[0]
    entries = run_all(planner, options, folder)
    result = result_of(options, entries, [before, os.getloadavg()[0]])
    result["learned_from_two"] = learned_from_two(planner, options, entries, folder)
    (folder / "accuracy.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1)) if options.json else print_text(result)
    if options.page:
        row = {"machine": result_pages.processor(), "rounds": options.rounds, "spearman": result["spearman"],
               **{key: 100 * result[name] for key, name in (
                   ("median", "median_error"), ("mean", "mean_error"), ("signed", "signed_median"),
                   ("width", "mean_half_width"), ("held", "interval90_coverage"))}}
        result_pages.put(options.page, "kernels", {"strategies": result_pages.section([row], on=result_pages.machine())})
    return OK if result["met"] else OUTSIDE_TOLERANCE


def main(arguments):
    try:
        return run(parse_arguments(arguments))
    except Failure as failure:
        note(f"own-accuracy: {failure}")
        return failure.code
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
