"""Headers compile on their own: whoever includes one needs nothing before it.

Named headers are checked, or every one with --all; scripts/check does so for changed headers, and for the tree with --all.
Without arguments the test shows that a header which leaves out an include is found.

Reading the standard library anew for each header takes most of the time. So a few headers that many others include are
precompiled. A header starts from the largest precompiled one that it includes itself. It then sees nothing that it does not
bring along, so the answer is that of compiling it alone. What was found good is remembered in the build folder, by the
contents of all that a header includes of the project.
"""

import collections
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from programs import BIN, PRODUCT, SOURCE

FOLDERS = [*PRODUCT, "tests"]
EMULATION = "tests/cuda_on_cpu/include"  # CUDA's headers are those of the emulation: no toolkit
FLAGS = ["-std=c++20", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", f"-I{SOURCE}/{EMULATION}", f"-I{SOURCE}",
         "-isystem", "/usr/include/eigen3"]  # where Debian's package has it
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
MOST_PRECOMPILED = 12
FEWEST_USERS = 5  # fewer would not pay for precompiling
REMEMBERED = BIN.parent / "headers-alone.json"


def mpi_flags():
    """Returns the options that headers which include mpi.h need, or None where there is no Open MPI."""
    if not shutil.which("mpicc"):
        return None
    done = subprocess.run(["mpicc", "--showme:compile"], capture_output=True, text=True)
    flags = [flag.replace("-I", "-isystem") for flag in done.stdout.split()]
    return [*flags, "-DOMPI_SKIP_MPICXX=1"] if done.returncode == 0 else None


@functools.cache
def text_of(name):
    """The text of a header of the project; None of others."""
    paths = (SOURCE / folder / name for folder in (EMULATION, "."))
    return next((path.read_text() for path in paths if path.is_file()), None)


@functools.cache
def brought_by(name):
    """The names of all headers, of the project and of others, that including `name` includes, with itself."""
    return {name}.union(*(brought_by(other) for other in INCLUDE.findall(text_of(name) or "")))


def digest(header, compiler_is):
    """A digest of all that the answer for a header depends on: compiler, flags, and the text of all it includes of the project."""
    texts = [(name, text_of(name)) for name in sorted(brought_by(header))]
    return hashlib.sha256(json.dumps([compiler_is, FLAGS, texts]).encode()).hexdigest()


def choose_precompiled(headers):
    """The headers whose precompiling spares the others most, by the number of headers read."""
    spared, chosen = collections.Counter(), []
    users = {header: [other for other in headers if header in brought_by(other)] for header in headers}
    candidates = [header for header in headers if len(users[header]) >= FEWEST_USERS]

    def gain(header):
        size = len(brought_by(header))
        return sum(max(0, size - spared[other]) for other in users[header])
    while candidates and len(chosen) < MOST_PRECOMPILED:
        best = max(candidates, key=gain)
        candidates.remove(best)
        chosen.append(best)
        for other in users[best]:
            spared[other] = max(spared[other], len(brought_by(best)))
    return chosen


def compiler(*arguments):
    """The compiler's message, empty where it has none."""
    command = [os.environ.get("CXX", "g++"), *FLAGS, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True).stderr


def unit_of(header, scratch):
    """A file that includes the header twice, for its guard."""
    unit = scratch / (header.replace("/", "_") + ".hpp")
    unit.write_text(f'#include "{header}"\n#include "{header}"\n')
    return unit


def precompile(header, scratch, flags):
    unit = unit_of(header, scratch)
    return compiler(*flags, "-x", "c++-header", unit, "-o", f"{unit}.gch")


def compile_alone(header, precompiled, scratch, flags):
    """The compiler's message about a header; `precompiled` are names of headers that precompile() has seen."""
    unit = unit_of(header, scratch)
    start = max((other for other in precompiled if other in brought_by(header)),
                key=lambda other: len(brought_by(other)), default=None)
    before = ["-include", unit_of(start, scratch)] if start else []
    return compiler(*flags, "-fsyntax-only", "-x", "c++", *before, unit)


def check(headers, flags):
    """(header, message) of those that do not stand alone."""
    with (tempfile.TemporaryDirectory() as name,
          concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool):
        scratch = pathlib.Path(name)
        chosen = choose_precompiled(headers)
        messages = dict(zip(chosen, pool.map(lambda header: precompile(header, scratch, flags), chosen)))
        good = [header for header in chosen if not messages[header]]
        rest = [header for header in headers if header not in messages]
        messages |= zip(rest, pool.map(lambda header: compile_alone(header, good, scratch, flags), rest))
        return [(header, messages[header]) for header in headers if messages[header]]


def finds_what_is_missing():
    """A header that leaves out an include is found, also where it starts from a precompiled one."""
    with tempfile.TemporaryDirectory(dir=SOURCE / "tests", prefix="headers-") as name:
        folder = pathlib.Path(name)
        base = folder.relative_to(SOURCE) / "base.h"
        (SOURCE / base).write_text("#pragma once\n#include <vector>\n")
        for i in range(FEWEST_USERS):
            (folder / f"good{i}.h").write_text(f'#pragma once\n#include "{base}"\nstd::vector<int> good{i}();\n')
        (folder / "bad.h").write_text(f'#pragma once\n#include "{base}"\nstd::map<int, int> bad();\n')
        (folder / "twice.h").write_text(f'#include "{base}"\nstruct Twice {{}};\n')
        headers = sorted(str(path.relative_to(SOURCE)) for path in folder.iterdir())
        assert choose_precompiled(headers) == [str(base)]
        found = [pathlib.Path(header).name for header, _ in check(headers, [])]
        assert found == ["bad.h", "twice.h"], found


def main():
    headers = [p.relative_to(SOURCE) for folder in FOLDERS
               for p in sorted((SOURCE / folder).rglob("*.h"))]
    assert headers, "no headers found"
    if not sys.argv[1:]:
        finds_what_is_missing()
        print("a header that leaves out an include is found")
        return 0
    everything = sys.argv[1:] == ["--all"]
    if not everything:
        headers = [header for header in headers if str(header) in sys.argv[1:]]
    # NCCL's header comes with the toolkit.
    headers = [header for header in headers if not header.is_relative_to("runtime/comm/nccl")]
    flags = mpi_flags()
    if flags is None:
        headers = [header for header in headers if not header.is_relative_to("runtime/comm/mpi")]
        flags = []
    headers = [str(header) for header in headers]
    compiler_is = subprocess.run([os.environ.get("CXX", "g++"), "--version"], capture_output=True, text=True).stdout
    digests = {header: digest(header, compiler_is) for header in headers}
    remembered = set(json.loads(REMEMBERED.read_text())) if REMEMBERED.is_file() else set()
    failed = check([header for header in headers if digests[header] not in remembered], flags)
    good = set(digests.values()) - {digests[header] for header, _ in failed}
    if BIN.parent.is_dir():
        # Whoever checks a few headers forgets nothing of the others.
        REMEMBERED.write_text(json.dumps(sorted(good if everything else good | remembered)))
    for header, message in failed:
        print(f"{header} does not stand alone:\n{message}")
    print(f"{len(headers) - len(failed)} of {len(headers)} headers stand alone")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
