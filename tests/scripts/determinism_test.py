"""Equal inputs give the same plan, byte for byte, in any folder, at any time, on any threads."""

import pathlib
import sys
import tempfile

from programs import CLUSTER, NANO, OK, planner, write_json


RUNS = 20
THREADS = (1, 2, 8)


def plan(folder, threads):
    """Plans into `folder`; returns the bytes of the file and of stdout."""
    folder.mkdir()
    cluster = write_json(folder / "cluster.json", CLUSTER)
    output = folder / "plan.json"
    done = planner("plan", NANO, "--cluster", cluster, "--devices", 4, "-o", output,
                   "--threads", threads)
    assert done.returncode == OK, done.stderr
    return output.read_bytes(), done.stdout


def main():
    with tempfile.TemporaryDirectory() as name:
        first = plan(pathlib.Path(name) / "first", 1)
        for run in range(RUNS):
            threads = THREADS[run % len(THREADS)]
            other = plan(pathlib.Path(name) / f"run{run}", threads)
            assert first == other, f"run {run} on {threads} threads differs"
        assert name.encode() not in first[0], "the plan holds a path"
        # A plan's own --json is the file.
        cluster = pathlib.Path(name) / "first" / "cluster.json"
        shown = planner("plan", NANO, "--cluster", cluster, "--devices", 4, "--json")
        assert shown.stdout.encode() == first[0], "--json differs from the file"
    print("identical")
    return 0


if __name__ == "__main__":
    sys.exit(main())
