"""Every header, or those named, compiles on its own: whoever includes it needs nothing before it."""

import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from programs import PRODUCT, SOURCE

FOLDERS = [*PRODUCT, "tests"]
# CUDA's headers are those of the emulation, which needs no toolkit.
FLAGS = ["-std=c++20", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-fsyntax-only",
         f"-I{SOURCE}/tests/cuda_on_cpu/include", f"-I{SOURCE}",
         "-isystem", "/usr/include/eigen3"]  # where Debian's package has it


def mpi_flags():
    """Returns the options that headers which include mpi.h need, or None where there is no Open MPI."""
    if not shutil.which("mpicc"):
        return None
    done = subprocess.run(["mpicc", "--showme:compile"], capture_output=True, text=True)
    flags = [flag.replace("-I", "-isystem") for flag in done.stdout.split()]
    return [*flags, "-DOMPI_SKIP_MPICXX=1"] if done.returncode == 0 else None


def compile_alone(header, scratch, flags):
    """The compiler's message, empty when the header stands alone (included twice, for its guard)."""
    unit = scratch / (str(header).replace("/", "_") + ".cpp")
    unit.write_text(f'#include "{header}"\n#include "{header}"\n')
    command = [os.environ.get("CXX", "g++"), *FLAGS, *flags, str(unit)]
    return subprocess.run(command, capture_output=True, text=True).stderr


def main():
    headers = [p.relative_to(SOURCE) for folder in FOLDERS
               for p in sorted((SOURCE / folder).rglob("*.h"))]
    assert headers, "no headers found"
    if sys.argv[1:]:
        headers = [header for header in headers if str(header) in sys.argv[1:]]
    # NCCL's header comes with the toolkit.
    headers = [header for header in headers if not header.is_relative_to("runtime/comm/nccl")]
    flags = mpi_flags()
    if flags is None:
        headers = [header for header in headers if not header.is_relative_to("runtime/comm/mpi")]
        flags = []
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            messages = list(pool.map(lambda header: compile_alone(header, scratch, flags), headers))
    failed = [(header, message) for header, message in zip(headers, messages) if message]
    for header, message in failed:
        print(f"{header} does not stand alone:\n{message}")
    print(f"{len(headers) - len(failed)} of {len(headers)} headers stand alone")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
