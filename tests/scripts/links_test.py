"""planner links no MPI, oneDNN or CUDA, so it installs on a laptop or a login node."""

import re
import subprocess
import sys

from programs import BIN

FORBIDDEN = re.compile(r"lib(mpi|dnnl|cuda|cudart|cublas|cudnn|nccl|gomp|OpenCL)[^ ]*\.so")


def libraries(program):
    return subprocess.run(["ldd", str(BIN / program)], check=True, capture_output=True,
                          text=True).stdout


def main():
    # The rule can fire: the runtime does link oneDNN.
    assert FORBIDDEN.search(libraries("planner-run")), "planner-run should link oneDNN"
    found = FORBIDDEN.findall(libraries("planner"))
    print(f"planner links {found}" if found else "planner links none of them")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
