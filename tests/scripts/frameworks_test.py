"""A framework of a user's own, in a file: planned with, checked, simulated, and not run."""

import pathlib
import sys
import tempfile

from programs import BAD_INPUT, NANO, OK, planner, write_json

OWN = {"name": "ours", "based_on": "megatron-lm",
       "can": {"pipeline": {"value": False, "source": "our launcher has none"}},
       "parallelism": {"overlap_grad_reduce": False, "source": "our launcher's flags"}}
A100 = "dgx-a100-80gb"


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        own = write_json(folder / "ours.json", OWN)
        output = folder / "plan.json"
        plan = ["plan", NANO, "--cluster", A100, "--devices", 4, "--framework"]
        done = planner(*plan, own, "-o", output, "--verbose")
        assert done.returncode == OK, done.stderr
        assert "framework ours" in done.stdout and "pp=1" in done.stdout, done.stdout
        assert "our launcher has none" in done.stdout, done.stdout
        assert name not in output.read_text(), "a path is in the plan"
        assert "--framework ours.json" in output.read_text(), "the command does not name the file"
        done = planner("check", output)
        assert done.returncode == OK, done.stdout + done.stderr
        done = planner("simulate", NANO, "dp=4", "--cluster", A100, "--devices", 4,
                       "--framework", own, "--verbose")
        assert done.returncode == OK and "framework ours" in done.stdout, done.stderr
        wrong = write_json(folder / "wrong.json", OWN | {"based_on": "megatron"})
        done = planner(*plan, wrong)
        assert done.returncode == BAD_INPUT and "/based_on" in done.stderr, done.stderr
    print("a framework of a file is planned with, checked and simulated")


if __name__ == "__main__":
    sys.exit(main())
