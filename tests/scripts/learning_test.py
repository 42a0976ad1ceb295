"""lab/learning: made-up runs that all take as much longer than predicted are learned from a few of them."""

import json
import pathlib
import subprocess
import tempfile

from made_up_runs import made_up_runs, stated
from programs import BIN, OK, lab, write_json

SLOWER = 1.4


def uniformly_slower(folder):
    """Writes raw rows whose steps take SLOWER times the prediction without their document."""
    path = made_up_runs(folder / "rows.json", "pytorch-fsdp", "A100-80GB", 80)
    done = lab("validate", path, "--leave-out-sources", "--json")
    assert done.returncode == OK, done.stderr
    predicted = {row["id"]: row["predicted"]["step_time_s"] for row in json.loads(done.stdout)["rows"]}
    rows = json.loads(path.read_text())
    for row in rows:
        row["measured"]["step_time_s"] = SLOWER * predicted[row["id"]]
    return write_json(path, rows)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        rows = uniformly_slower(folder)
        done = lab("learning", "--bin", BIN, "--spreads", folder / "spreads.json", rows)
        assert done.returncode == OK, done
        spreads = json.loads((folder / "spreads.json").read_text())
        assert "12 runs in 1 groups of 1 documents" in spreads["source"] and spreads["noise"] > 0, spreads
        file = write_json(folder / "stated.json", stated(json.loads(rows.read_text())))
        found = json.loads(subprocess.run([BIN / "learning-curves", file], check=True, capture_output=True).stdout)
    group, = found["groups"]
    assert (group["document"], group["framework"], group["runs"]) == ("made", "pytorch-fsdp", 12), group
    errors = {point["learned"]: point["error"] for point in group["points"]}
    assert sorted(errors) == [0, 1, 3], errors  # with 10 too few are left to be predicted
    assert abs(errors[0] - (1 - 1 / SLOWER)) < 1e-6, errors
    assert errors[3] < errors[1] < errors[0], errors


if __name__ == "__main__":
    main()
