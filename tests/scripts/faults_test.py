"""A command that is killed, whose writes fail or that gets no memory leaves the old file or the new one (lab/kill-points)."""

import os
import shutil
import subprocess
import sys

from programs import BIN, SOURCE


SKIPPED = 77


def main():
    if "ASAN_OPTIONS" in os.environ or "TSAN_OPTIONS" in os.environ:
        print("skipped: a sanitizer's runtime has to be loaded first")
        return SKIPPED
    codes = []
    calls = [["plan", "describe", "run", "--most", "20", "--requests", "5"],
             ["report", "export", "simulate", "import", "--only", "memory", "--requests", "4"]]
    if shutil.which("mpirun") and (BIN / "planner-run-mpi").exists():
        calls.append(["run-rank-1", "--only", "kills", "--most", "4"])
    for commands in calls:
        done = subprocess.run([SOURCE / "lab/kill-points", *commands, "--bin", BIN], capture_output=True, text=True,
                              timeout=900)
        print(done.stdout, done.stderr, sep="")
        codes.append(done.returncode)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
