"""lab/own-accuracy: its strategies are legal and distinct, and it says what it found."""

import json
import pathlib
import sys
import tempfile

from programs import CLUSTER, OK, SOURCE, planner

sys.path.insert(0, str(SOURCE / "lab"))
import own_accuracy  # noqa: E402  (from the folder above)


def main():
    assert len(own_accuracy.STRATEGIES) == 30
    assert own_accuracy.chosen_strategies(30) == own_accuracy.STRATEGIES
    assert len(set(own_accuracy.chosen_strategies(7))) == 7
    seen = {}
    with tempfile.TemporaryDirectory() as name:
        path, cluster = pathlib.Path(name) / "plan.json", pathlib.Path(name) / "cluster.json"
        cluster.write_text(json.dumps(CLUSTER))
        for job, devices, choices in own_accuracy.STRATEGIES:
            fixed = [word for choice in choices.split() for word in ("--fix", choice)]
            done = planner("plan", own_accuracy.JOBS / f"{job}.json", "--cluster", cluster,
                           "--devices", devices, "-o", path, *fixed)
            assert done.returncode == OK, (job, devices, choices, done.stderr)
            programs = (job, *json.loads(path.read_text())["programs"])
            assert programs not in seen, (choices, seen[programs])
            seen[programs] = choices

    class Options:
        goal_median_error = 0.08

    class Run:
        def __init__(self, predicted, measured):
            self.what, self.predicted, self.medians = "x", predicted, [measured]
            self.predictions, self.half_width = [predicted], 0.15

        def measured(self):
            return self.medians[0]

    result = own_accuracy.result_of(Options, [Run(1.0, 1.0), Run(1.1, 1.0), Run(0.8, 1.0)], [0, 0])
    assert abs(result["median_error"] - 0.1) < 1e-12 and not result["met"], result
    assert abs(result["worst_error"] - 0.2) < 1e-12, result
    assert abs(result["interval90_coverage"] - 2 / 3) < 1e-12, result
    assert abs(result["mean_half_width"] - 0.15) < 1e-12, result
    print("30 strategies, legal and distinct")


if __name__ == "__main__":
    main()
