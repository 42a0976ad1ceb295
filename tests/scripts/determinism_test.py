"""The same inputs give the same plan, byte for byte, in any folder and at any time."""

import pathlib
import sys
import tempfile

from programs import CLUSTER, NANO, OK, planner, write_json


def plan(folder):
    """Plans into `folder`; returns the bytes of the file and of stdout."""
    folder.mkdir()
    cluster = write_json(folder / "cluster.json", CLUSTER)
    output = folder / "plan.json"
    done = planner("plan", NANO, "--cluster", cluster, "--devices", 2, "-o", output)
    assert done.returncode == OK, done.stderr
    return output.read_bytes(), done.stdout


def main():
    with tempfile.TemporaryDirectory() as name:
        first = plan(pathlib.Path(name) / "first")
        second = plan(pathlib.Path(name) / "second")
        assert first == second, "two runs differ"
        assert name.encode() not in first[0], "the plan holds a path"
        # A plan's own --json is the file.
        cluster = pathlib.Path(name) / "first" / "cluster.json"
        shown = planner("plan", NANO, "--cluster", cluster, "--devices", 2, "--json")
        assert shown.stdout.encode() == first[0], "--json differs from the file"
    print("identical")
    return 0


if __name__ == "__main__":
    sys.exit(main())
