"""Runs every plan of a space for real and compares the ranking with the planner's (lab/rank)."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import result_pages
from ranking_statistics import error, median_interval, regret, spearman, summary_of_errors

ROOT = pathlib.Path(__file__).resolve().parent.parent
OK, USAGE, INFEASIBLE, ENVIRONMENT, OUTSIDE_TOLERANCE = 0, 2, 4, 6, 7
LEAST_STEPS = 4  # of planner run: two to warm up, one timed, one traced
MOST_STEPS = 23
UNTIMED_STEPS = 3


class Failure(Exception):
    """A message, and the exit code to end with."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def note(text):
    print(text, file=sys.stderr, flush=True)


def number(low, high, kind=float):
    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not low <= value <= high:
            raise argparse.ArgumentTypeError(f"a number from {low} to {high} is required, "
                                             f"not '{text}'")
        return value
    return parse


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(
        prog="lab/rank", allow_abbrev=False,
        description="Runs every plan of the space for real, then the chosen plan and the fastest "
                    "again, interleaved; prints how well the planner ranked them.")
    add = parser.add_argument
    add("--job", default=ROOT / "models/presets/jobs/gpt-mini.json")
    add("--devices", type=number(1, 4096, int), default=2)
    add("--data", default=ROOT / "data/training-text.txt", help="file whose bytes are trained on")
    add("--calibration", help="with --cluster: of this machine; default: it is calibrated first")
    add("--cluster", help="the cluster file that planner calibrate wrote with the calibration")
    add("--calibration-budget", type=number(0.001, 1e5), default=50, metavar="SECONDS")
    add("--fix", action="append", default=[], metavar="KEY=VALUE",
        help="only plans with this choice; repeatable")
    add("--best", type=number(1, 1000, int), default=10,
        help="how many of the fastest run again (default 10)")
    add("--repeats", type=number(1, 100, int), default=7, help="how often they do (default 7)")
    add("--budget", type=number(1, 1e6), default=900, metavar="SECONDS",
        help="for all runs together, roughly: decides how many steps each has, at least "
             f"{LEAST_STEPS} (default 900)")
    add("--deadline", type=number(0.001, 1e6), default=120, metavar="SECONDS",
        help="for one run; also how long a rank waits for others (default 120)")
    add("--goal-median-error", type=number(0, 100), default=0.12)
    add("--goal-worst-error", type=number(0, 100), default=0.30)
    add("--goal-regret", type=number(0, 100), default=0.05)
    add("--goal-spearman", type=number(-1, 1), default=0.9)
    add("--bin", default=ROOT / "build/bin", help="folder of the programs")
    add("-o", "--out", default=ROOT / "out/rank", help="folder for plans and measurements")
    add("--json", action="store_true", help="the result as JSON")
    add("--page", metavar="FOLDER", help="write it into the page kernels, docs/results")
    options = parser.parse_args(arguments)
    if (options.calibration is None) != (options.cluster is None):
        parser.error("--calibration and --cluster belong together: both or neither")
    return options


class Planner:
    """Runs the planner program."""

    def __init__(self, options):
        self.options = options
        self.program = pathlib.Path(options.bin) / "planner"
        if not os.access(self.program, os.X_OK):
            raise Failure(ENVIRONMENT, f"{self.program} is not there; scripts/build makes it")

    def run(self, *words, allowed=(), timeout=None):
        command = [str(self.program), *map(str, words)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
        except subprocess.TimeoutExpired:
            raise Failure(ENVIRONMENT, f"{' '.join(command)}: not done after {timeout:g} s")
        if done.returncode != OK and done.returncode not in allowed:
            code = done.returncode if done.returncode > 0 else ENVIRONMENT
            raise Failure(code, f"{' '.join(command)}: exit {done.returncode}\n"
                                f"{done.stderr.strip()}")
        return done

    def json(self, *words, allowed=()):
        return json.loads(self.run(*words, "--json", allowed=allowed).stdout)

    def where(self):
        o = self.options
        return ["--cluster", o.cluster, "--calibration", o.calibration, "--devices", o.devices]


def fix_text(value):
    """A value of a strategy file as --fix takes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "+".join(map(str, value))
    return str(value)


def fixes(strategy):
    return [word for key, value in strategy.items() if value != []
            for word in ("--fix", f"{key}={fix_text(value)}")]


def calibrate(planner, options, folder):
    if options.calibration is not None:
        return
    options.calibration, options.cluster = folder / "calibration.json", folder / "cluster.json"
    note("calibrating")
    planner.run("calibrate", "--backend", "cpu", "--budget", options.calibration_budget,
                "-o", options.calibration, "--cluster-out", options.cluster)


class Entry:
    """One distinct set of Programs: a plan, the strategies that give it, and what was measured."""

    def __init__(self, plan, path):
        self.path = path
        self.strategies = [plan["strategy"]]
        self.digests = plan["programs"]
        self.predicted = plan["prediction"]["step_time_s"]
        self.medians = []      # of each run
        self.first_steps = []  # step times of the first run
        self.log = None        # file of the last run
        self.ops = {}          # kind -> [predicted, measured], summed over the runs

    def measured(self):
        return statistics.median(self.medians)

    def interval(self):
        return median_interval(self.medians if len(self.medians) > 1 else self.first_steps)


def make_plans(planner, options, folder):
    """One entry per distinct set of Programs, in canonical order; and how many do not fit."""
    narrowed = [word for fix in options.fix for word in ("--fix", fix)]
    space = planner.json("space", options.job, "--devices", options.devices, "--list", *narrowed)
    entries, misfits = {}, 0
    for index, strategy in enumerate(space["legal"]):
        path = folder / f"plan-{index}.json"
        done = planner.run("plan", options.job, *planner.where(), *fixes(strategy), "-o", path,
                           allowed=(INFEASIBLE,))
        if done.returncode == INFEASIBLE:
            misfits += 1
            continue
        plan = json.loads(path.read_text())
        known = entries.get(tuple(plan["programs"]))
        if known is None:
            entries[tuple(plan["programs"])] = Entry(plan, path)
        else:
            known.strategies.append(plan["strategy"])
    if not entries:
        raise Failure(INFEASIBLE, "no plan of the space fits this machine")
    path = folder / "chosen.json"
    planner.run("plan", options.job, *planner.where(), *narrowed, "-o", path)
    chosen = entries.get(tuple(json.loads(path.read_text())["programs"]))
    if chosen is None:
        raise Failure(1, "the chosen plan is none of those that planner space lists")
    return list(entries.values()), chosen, misfits


def run_once(planner, options, entry, steps, folder):
    """Runs a plan; returns how long that took."""
    began = time.monotonic()
    path = folder / (entry.path.stem + f"-measured-{len(entry.medians)}.json")
    done = planner.run("run", entry.path, "--data", options.data, "--steps", steps, "--deadline",
                       options.deadline, "-o", path, timeout=options.deadline)
    entry.log = path.with_suffix(".log")
    entry.log.write_text(done.stderr)
    taken = time.monotonic() - began
    measured = json.loads(path.read_text())
    entry.medians.append(measured["median_step_time_s"])
    entry.first_steps = entry.first_steps or measured["step_times_s"]
    compared = planner.json("compare", entry.path, path, allowed=(OUTSIDE_TOLERANCE,))
    if not compared["bytes_equal"]:
        raise Failure(OUTSIDE_TOLERANCE, f"{entry.path}: {compared['verdict']}")
    kinds = [(op["kind"], op["predicted_s"], op["measured_s"]) for op in compared["ops"]]
    exposed = compared["exposed"]
    for name in ("wait", "transfer"):
        pair = exposed[name + "_s"]
        kinds.append((f"(exposed {name})", pair["predicted"], pair["measured"]))
    for kind, predicted, got in kinds:
        total = entry.ops.setdefault(kind, [0.0, 0.0])
        total[0] += predicted
        total[1] += got
    return taken


def steps_within(seconds, step_times, overhead):
    """Steps per run, so that one run of each takes about this long."""
    fitting = (seconds - overhead * len(step_times)) / sum(step_times)
    return max(LEAST_STEPS, min(MOST_STEPS, int(fitting)))


def run_all(planner, options, entries, chosen, folder):
    """Everything once, then the chosen and the best again. Returns the finalists."""
    overhead = 0.5  # to start, initialise and compare; measured below
    steps = steps_within(options.budget / 2, [e.predicted for e in entries], overhead)
    note(f"{len(entries)} plans once, {steps} steps each ({steps - UNTIMED_STEPS} timed)")
    began = time.monotonic()
    taken = 0.0
    for index, entry in enumerate(entries):
        taken += run_once(planner, options, entry, steps, folder)
        if (index + 1) % 10 == 0 or index + 1 == len(entries):
            note(f"  {index + 1}/{len(entries)} after {time.monotonic() - began:.0f} s")
    overhead = max(0.1, (taken - steps * sum(e.measured() for e in entries)) / len(entries))
    finalists = sorted(entries, key=Entry.measured)[:options.best]
    if chosen not in finalists:
        finalists.append(chosen)
    left = max(1.0, options.budget - (time.monotonic() - began))
    steps = steps_within(left / options.repeats, [e.measured() for e in finalists], overhead)
    note(f"{len(finalists)} plans {options.repeats} times, interleaved, {steps} steps each")
    # The first run served to find them; being found makes it look faster than it is.
    for entry in finalists:
        entry.medians = []
    for repeat in range(options.repeats):
        # Forwards and backwards in turn, so that a machine that drifts does not favour a place.
        for entry in finalists if repeat % 2 == 0 else reversed(finalists):
            run_once(planner, options, entry, steps, folder)
        note(f"  round {repeat + 1}/{options.repeats}")
    return finalists


def differing(entries):
    """Keys of strategies that have more than one value, with their values."""
    values = {}
    for entry in entries:
        for key, value in entry.strategies[0].items():
            seen = values.setdefault(key, [])
            if value not in seen:
                seen.append(value)
    return {key: seen for key, seen in values.items() if len(seen) > 1}


def label(entry, keys):
    strategy = entry.strategies[0]
    text = " ".join(f"{key}={fix_text(strategy[key])}" for key in keys) or "(all the same)"
    others = len(entry.strategies) - 1
    return text + (f"  (= {others} more: equal Programs)" if others else "")


def by_kind(entries):
    totals = {}
    for entry in entries:
        for kind, (predicted, measured) in entry.ops.items():
            total = totals.setdefault(kind, [0.0, 0.0])
            total[0] += predicted
            total[1] += measured
    whole = sum(pair[1] for kind, pair in totals.items() if not kind.startswith("("))
    kinds = [{"kind": kind, "error": error(*pair) if pair[1] > 0 else None,
              "share": pair[1] / whole if whole > 0 else None,
              "predicted_s": pair[0], "measured_s": pair[1]} for kind, pair in totals.items()]
    return sorted(kinds, key=lambda k: -abs(k["predicted_s"] - k["measured_s"]))


def by_choice(entries, choices):
    """Signed error of the plans that share one choice."""
    rows = []
    for key, values in choices.items():
        for value in values:
            pairs = [(e.predicted, e.measured()) for e in entries if e.strategies[0][key] == value]
            signed = [error(*pair) for pair in pairs]
            rows.append({"key": key, "value": value, "plans": len(pairs),
                         "signed_median": statistics.median(signed),
                         "low": min(signed), "high": max(signed)})
    return rows


def judge(options, entries, chosen, finalists):
    pairs = [(e.predicted, e.measured()) for e in entries]
    errors = summary_of_errors(pairs)
    order = spearman([p for p, _ in pairs], [m for _, m in pairs])
    lost = regret(chosen.measured(), [e.measured() for e in finalists])
    goals = [
        ("median error", errors["median"], options.goal_median_error,
         errors["median"] <= options.goal_median_error),
        ("worst error", errors["worst"], options.goal_worst_error,
         errors["worst"] <= options.goal_worst_error),
        ("regret", lost, options.goal_regret, lost <= options.goal_regret),
        # One plan, or plans that all take as long, have no order that could be wrong.
        ("spearman", order, options.goal_spearman, order is None or order >= options.goal_spearman),
    ]
    return [{"goal": name, "value": value, "limit": limit, "met": met}
            for name, value, limit, met in goals]


def result_of(options, entries, chosen, finalists, misfits):
    keys = list(differing(entries))
    rows = []
    for entry in sorted(entries, key=Entry.measured):
        interval = entry.interval()
        rows.append({
            "plan": label(entry, keys),
            "strategies": entry.strategies,
            "chosen": entry is chosen,
            "runs": len(entry.medians),
            "predicted_s": entry.predicted,
            "measured_s": entry.measured(),
            "interval_s": list(interval) if interval else None,
            "error": error(entry.predicted, entry.measured()),
            "finalist": entry in finalists,
        })
    return {
        "strategies": sum(len(e.strategies) for e in entries),
        "do_not_fit": misfits,
        "plans": rows,
        "goals": judge(options, entries, chosen, finalists),
        "by_choice": by_choice(entries, differing(entries)),
        "by_kind": by_kind(entries),
    }


def milliseconds(seconds):
    return f"{1e3 * seconds:.4g}"


def print_text(result):
    plans = result["plans"]
    print(f"{len(plans)} distinct plans of {result['strategies']} strategies, "
          f"{result['do_not_fit']} more do not fit. Times in ms; measured is the median, in "
          "brackets its interval at 95 % confidence where the runs suffice.\n")
    print(f"{'':2}{'predicted':>10}{'measured':>10}  {'interval':19}{'error':>8}{'runs':>5}  plan")
    for row in plans:
        interval = row["interval_s"]
        shown = f"[{milliseconds(interval[0])}, {milliseconds(interval[1])}]" if interval else ""
        print(f"{'* ' if row['chosen'] else '  '}{milliseconds(row['predicted_s']):>10}"
              f"{milliseconds(row['measured_s']):>10}  {shown:19}{100 * row['error']:>+7.1f}%"
              f"{row['runs']:>5}  {row['plan']}")
    print("* chosen by the planner")
    if result["by_choice"]:
        print("\nSigned error by choice: median, lowest, highest")
    for row in result["by_choice"]:
        choice = f"{row['key']}={fix_text(row['value'])}"
        print(f"  {choice:32}{row['plans']:>4} plans {100 * row['signed_median']:>+7.1f}%"
              f"{100 * row['low']:>+7.1f}%{100 * row['high']:>+7.1f}%")
    print("\nPer op kind over all runs, by what it puts wrong: error, share of measured op time")
    for row in result["by_kind"]:
        wrong = f"{100 * row['error']:+.1f}%" if row["error"] is not None else "-"
        print(f"  {row['kind']:26}{wrong:>9}{100 * (row['share'] or 0):>8.2f}%")
    print()
    for goal in result["goals"]:
        value = "not defined" if goal["value"] is None else f"{goal['value']:.4f}"
        print(f"{goal['goal']:14}{value:>12}  goal {goal['limit']:g}: "
              f"{'met' if goal['met'] else 'MISSED'}")


def run(options):
    for name in ("job", "data", "calibration", "cluster"):
        path = getattr(options, name)
        if path is not None and not pathlib.Path(path).is_file():
            raise Failure(3, f"--{name} {path}: no such file")
    planner = Planner(options)
    folder = pathlib.Path(options.out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise Failure(ENVIRONMENT, f"--out {folder}: {problem.strerror}")
    note(f"load average before: {os.getloadavg()[0]:.2f}")
    calibrate(planner, options, folder)
    entries, chosen, misfits = make_plans(planner, options, folder)
    finalists = run_all(planner, options, entries, chosen, folder)
    note(f"load average after: {os.getloadavg()[0]:.2f}")
    result = result_of(options, entries, chosen, finalists, misfits)
    (folder / "ranking.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1)) if options.json else print_text(result)
    if options.page:
        rows = [{"what": goal["goal"], "found": "" if goal["value"] is None else f"{goal['value']:.3g}",
                 "goal": f"{goal['limit']:g}"} for goal in result["goals"]]
        on = f"{result_pages.machine()}; {len(result['plans'])} plans"
        result_pages.put(options.page, "kernels", {"ranking": result_pages.section(rows, on=on)})
    return OK if all(goal["met"] for goal in result["goals"]) else OUTSIDE_TOLERANCE


def main(arguments):
    try:
        return run(parse_arguments(arguments))
    except Failure as failure:
        note(f"rank: {failure}")
        return failure.code
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
