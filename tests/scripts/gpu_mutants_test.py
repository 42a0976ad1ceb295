"""The texts that scripts/gpu-mutants replaces are in the sources, and names are not used twice."""

import json
import subprocess
import sys

from programs import SOURCE


def main():
    done = subprocess.run([SOURCE / "scripts/gpu-mutants", "--list"], capture_output=True, text=True)
    print(done.stderr, end="")
    names = [mutant["name"] for mutant in json.loads((SOURCE / "tests/cuda_on_cpu/mutants.json").read_text())]
    assert done.stdout.count("\n") == len(names) == len(set(names)) > 50
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
