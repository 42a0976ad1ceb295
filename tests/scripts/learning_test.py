"""lab/learning: made-up runs that all take as much longer than predicted are learned from a few of them."""

import json
import pathlib
import subprocess
import tempfile

from made_up_runs import made_up_runs, stated
from programs import BIN, OK, lab, write_json

SLOWER = 1.4


def learned(folder, rows):
    file = write_json(folder / "stated.json", stated(rows))
    group, = json.loads(subprocess.run([BIN / "learning-curves", file], check=True, capture_output=True).stdout)["groups"]
    return group


def of_one_job(path):
    """Writes eight layouts of the first made-up job."""
    first = json.loads(path.read_text())[0]
    rows = [{**first, "id": f"{micro} {recompute}", "recompute": recompute, "batch": {"micro": micro, "global": 24}}
            for micro in (1, 2, 4, 6) for recompute in ("none", "full")]
    return write_json(path, rows)


def uniformly_slower(path):
    """Makes the steps of raw rows SLOWER times the prediction without their document."""
    done = lab("validate", path, "--leave-out-sources", "--json")
    assert done.returncode == OK, done.stderr
    predicted = {row["id"]: row["predicted"]["step_time_s"] for row in json.loads(done.stdout)["rows"]}
    rows = json.loads(path.read_text())
    for row in rows:
        row["measured"]["step_time_s"] = SLOWER * predicted[row["id"]]
    return write_json(path, rows), predicted


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        rows, _ = uniformly_slower(made_up_runs(folder / "rows.json", "pytorch-fsdp", "A100-80GB", 80))
        done = lab("learning", "--bin", BIN, "--spreads", folder / "spreads.json", rows)
        assert done.returncode == OK, done
        spreads = json.loads((folder / "spreads.json").read_text())
        assert "12 runs in 1 groups of 1 documents" in spreads["source"] and spreads["noise"] > 0, spreads
        group = learned(folder, json.loads(rows.read_text()))
        job, predicted = uniformly_slower(of_one_job(made_up_runs(folder / "job.json", "pytorch-fsdp", "A100-80GB", 80)))
        layouts = json.loads(job.read_text())
        right = learned(folder, layouts)
        fastest = min(layouts, key=lambda row: predicted[row["id"]])
        fastest["measured"]["step_time_s"] *= 3
        wrong = learned(folder, layouts)
    assert (group["document"], group["framework"], group["runs"]) == ("made", "pytorch-fsdp", 12), group
    errors = {point["learned"]: point["error"] for point in group["points"]}
    assert sorted(errors) == [0, 1, 2, 3, 5], errors  # with 10 too few are left to be predicted
    assert abs(errors[0] - (1 - 1 / SLOWER)) < 1e-6, errors
    assert errors[3] < errors[1] < errors[0], errors
    assert all(point["regret"] is None for point in group["points"]), group  # each job has two layouts
    assert all(abs(point["regret"]) < 1e-6 for point in right["points"]), right
    assert all(point["regret"] > 1 for point in wrong["points"]), wrong  # no number explains the odd one


if __name__ == "__main__":
    main()
