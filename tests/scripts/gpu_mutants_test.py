"""Faults in sources of the GPU backend are seen: the texts that lab/gpu-mutants replaces are there, and tests kill some mutants."""

import json
import os
import subprocess
import sys

from programs import BIN, SOURCE

# Faults that an emulation without races and late work passes over. All faults take ten minutes on two cores.
KILLED = ["communication-before-kernels", "communication-not-settled", "attention-forward-no-barrier",
          "attention-forward-late-start", "attention-key-gradients-no-barrier", "attention-query-gradients-no-barrier",
          "block-sum-before-write", "sort-tile-read"]


def mutants(*arguments):
    done = subprocess.run([SOURCE / "lab/gpu-mutants", *arguments], capture_output=True, text=True)
    print(done.stderr, end="")
    return done


def main():
    listed = mutants("--list")
    names = [mutant["name"] for mutant in json.loads((SOURCE / "tests/cuda_on_cpu/mutants.json").read_text())]
    assert listed.returncode == 0 and listed.stdout.count("\n") == len(names) == len(set(names)) > 50
    if not (BIN.parent / "tests/cuda").exists() or "ASAN_OPTIONS" in os.environ or "TSAN_OPTIONS" in os.environ:
        print("no mutant was compiled: this build has no emulation that sees races")
        return 0
    done = mutants("--build", BIN.parent, "--jobs", "1", *KILLED)
    print(done.stdout, end="")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
