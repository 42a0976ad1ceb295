"""lab/rank: its statistics on numbers worked out by hand, its answers to bad input, and one run
of a tiny job. The run's goals are as wide as can be: nothing here depends on how fast it went."""

import json
import pathlib
import subprocess
import sys
import tempfile

from programs import BAD_INPUT, BIN, ENVIRONMENT, INFEASIBLE, NANO, OK, OUTSIDE_TOLERANCE, SOURCE
from programs import USAGE, planner

sys.path.insert(0, str(SOURCE / "lab"))
import ranking_statistics as statistics  # noqa: E402

WIDE = ["--goal-median-error", 100, "--goal-worst-error", 100, "--goal-regret", 100,
        "--goal-spearman", -1]


def check_statistics():
    assert statistics.ranks([30, 10, 20]) == [3, 1, 2]
    assert statistics.ranks([5, 7, 5, 9]) == [1.5, 3, 1.5, 4]
    assert statistics.spearman([1, 2, 3, 4], [10, 20, 30, 40]) == 1
    assert statistics.spearman([1, 2, 3, 4], [40, 30, 20, 10]) == -1
    # Without ties 1 - 6 sum d^2 / (n (n^2 - 1)): d = 1, 1, 0, 0, 0 of five gives 0.9.
    assert abs(statistics.spearman([1, 2, 3, 4, 5], [2, 1, 3, 4, 5]) - 0.9) < 1e-12
    # Ranks 1.5, 1.5, 3 against 1, 2, 3: 1.5 / sqrt(1.5 * 2).
    assert abs(statistics.spearman([7, 7, 8], [1, 2, 3]) - 1.5 / 3**0.5) < 1e-12
    assert statistics.spearman([7, 7], [1, 2]) is None and statistics.spearman([1], [1]) is None
    # The extremes of seven values cover the median with 1 - 2/128, their neighbours with 1 - 16/128.
    assert statistics.median_interval([7, 1, 2, 6, 3, 5, 4]) == (1, 7)
    assert statistics.median_interval([7, 1, 2, 6, 3, 5, 4], 0.87) == (2, 6)
    assert statistics.median_interval([1, 2, 3, 4, 5]) is None  # 1 - 2/32
    assert statistics.median_interval([1, 2, 3, 4, 5, 6]) == (1, 6)
    assert abs(statistics.regret(11, [10, 11, 12]) - 0.1) < 1e-12
    assert statistics.regret(10, [10, 11]) == 0
    found = statistics.summary_of_errors([(110, 100), (80, 100), (105, 100)])
    assert {key: round(value, 12) for key, value in found.items()} == {
        "median": 0.1, "worst": 0.2, "signed_median": 0.05}


def rank(*arguments):
    command = [str(SOURCE / "lab" / "rank"), "--bin", str(BIN), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def check_bad_input(folder):
    for expected, arguments in (
            (USAGE, ["--reruns", 3]),
            (USAGE, ["--repeats", 0]),
            (USAGE, ["--goal-spearman", 2]),
            (USAGE, ["--cluster", folder / "cluster.json"]),  # without its calibration
            (BAD_INPUT, ["--job", folder / "missing.json"]),
            (BAD_INPUT, ["--job", folder / "calibration.json"]),
            (ENVIRONMENT, ["--bin", folder]),
            (INFEASIBLE, ["--fix", "mp=3"]),
            (USAGE, ["--fix", "no_such_key=3"])):
        done = rank("--job", NANO, "--out", folder / "bad",
                    *(["--calibration", folder / "calibration.json", "--cluster",
                       folder / "cluster.json"] if "--cluster" not in arguments else []),
                    *arguments)
        assert done.returncode == expected, (arguments, done.returncode, done.stderr)
        assert done.stderr and "Traceback" not in done.stderr, done.stderr


def check_run(folder):
    given = ["--job", NANO, "--calibration", folder / "calibration.json", "--cluster",
             folder / "cluster.json", "--out", folder / "out", "--budget", 1, "--best", 2,
             "--repeats", 2, "--fix", "micro_batch=4"]
    done = rank(*given, "--fix", "recompute=none", *WIDE, "--json")
    assert done.returncode == OK, done.stderr
    result = json.loads(done.stdout)
    assert result == json.loads((folder / "out" / "ranking.json").read_text())
    plans = result["plans"]
    assert sum(len(plan["strategies"]) for plan in plans) == result["strategies"]
    # All gradients of the tiny job fit the smallest bucket: its four bucket sizes are one plan.
    assert any(len(plan["strategies"]) > 1 for plan in plans), plans
    assert [plan["measured_s"] for plan in plans] == sorted(plan["measured_s"] for plan in plans)
    assert sum(plan["chosen"] for plan in plans) == 1
    assert all(plan["runs"] == (2 if plan["finalist"] else 1) for plan in plans)
    assert 2 <= sum(plan["finalist"] for plan in plans) <= 3
    for plan in plans:
        wanted = (plan["predicted_s"] - plan["measured_s"]) / plan["measured_s"]
        assert abs(plan["error"] - wanted) < 1e-12
    kinds = {row["kind"] for row in result["by_kind"]}
    assert {"matmul", "send", "all_reduce", "(exposed wait)"} <= kinds, kinds
    assert {row["goal"] for row in result["goals"]} == {
        "median error", "worst error", "regret", "spearman"}
    # No prediction is exact to the last bit, so this goal is always missed.
    done = rank(*given, "--fix", "pp=2", "--fix", "recompute=none", *WIDE, "--goal-worst-error", 0)
    assert done.returncode == OUTSIDE_TOLERANCE, done.stderr
    assert "worst error" in done.stdout and "MISSED" in done.stdout


def main():
    check_statistics()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        done = planner("calibrate", "--quick", "-o", folder / "calibration.json", "--cluster-out",
                       folder / "cluster.json")
        assert done.returncode == OK, done.stderr
        if json.loads((folder / "cluster.json").read_text())["devices_per_node"] < 2:
            print("one core: no 2-rank plan makes a timing claim; statistics checked only")
            return 0
        check_bad_input(folder)
        check_run(folder)
    print("ranked")
    return 0


if __name__ == "__main__":
    sys.exit(main())
