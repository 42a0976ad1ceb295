"""A command that is killed, or whose writes fail, leaves the old file or the new one (scripts/kill-points)."""

import os
import subprocess
import sys

from programs import BIN, SOURCE


SKIPPED = 77


def main():
    if "ASAN_OPTIONS" in os.environ or "TSAN_OPTIONS" in os.environ:
        print("skipped: a sanitizer's runtime has to be loaded first")
        return SKIPPED
    done = subprocess.run([SOURCE / "scripts/kill-points", "plan", "describe", "run", "--most", "40", "--bin", BIN],
                          capture_output=True, text=True, timeout=900)
    print(done.stdout, done.stderr, sep="")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
