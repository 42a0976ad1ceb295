"""Mutated files end the planner with a documented exit code and a message that names the file (lab/exit-codes)."""

import pathlib
import subprocess
import sys
import tempfile

from programs import BIN, SOURCE, load_script

RUNS = 100


def main():
    done = subprocess.run([SOURCE / "lab/exit-codes", "--runs", str(RUNS), "--bin", BIN], capture_output=True, text=True,
                          timeout=900)
    print(done.stdout, done.stderr, sep="")
    assert done.returncode == 0, done.returncode
    rows, failed = load_script("soak").exit_code_rows(done.stdout)
    assert sum(row["inputs"] for row in rows) >= RUNS and failed == 0, (rows, failed)
    the_check_can_fail(load_script("exit-codes"))
    return 0


def the_check_can_fail(script):
    with tempfile.TemporaryDirectory() as name:
        output = pathlib.Path(name) / "out"
        good = {"code": 3, "said": "planner: /tmp/1: /layers: too many\n", "memory": 1 << 20, "codes": {0, 3}, "files": ["/tmp/1"],
                "output": output, "sanitized": False}
        assert script.wrong(**good) is None
        for change in ({"code": None}, {"code": -11}, {"code": 1}, {"memory": 2 << 30}, {"said": ""}, {"said": "planner: no\n"},
                       {"said": good["said"] + "\x1b[2J"}):
            assert script.wrong(**{**good, **change}), change
        output.write_text("half")
        assert script.wrong(**good)


if __name__ == "__main__":
    sys.exit(main())
