"""Each folder includes only the folders above it, and vendor headers stay in their backends."""

import os
import pathlib
import re
import sys

SOURCE = pathlib.Path(os.environ["PLIMSOLL_SOURCE_DIR"])

# Folder -> folders it may include besides itself: the table of README.md.
ALLOWED = {
    "base": "",
    "graph": "base",
    "models": "base graph",
    "passes": "base graph models",
    "simulator": "base graph models",
    "plan": "base graph models passes",
    "reports": "base graph models passes plan",
    "planner": "base graph models passes simulator plan reports",
    "runtime": "base graph models passes plan",
    "calibrate": "base graph models passes simulator plan runtime",
}
# Header prefix -> the folders that may include it.
VENDOR = {
    r"(oneapi/dnnl/|dnnl)": "runtime/cpu",
    r"omp\.h": "runtime/cpu",
    r"mpi\.h": "runtime/comm",
    r"nccl": "runtime/comm",
    r"(cuda|cublas|cudnn)": "runtime/cuda",
    r"CL/": "",
}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
SOURCES = {".h", ".hpp", ".cpp", ".cc", ".cu", ".cuh"}


def violations(path, text):
    """Messages for one file; `path` is relative to the source tree."""
    folder = path.parts[0]
    allowed = {folder, *ALLOWED[folder].split()}
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        header = match.group(1)
        target = header.split("/")[0]
        if "/" in header and target in ALLOWED and target not in allowed:
            yield f"{path}:{number}: {folder}/ may not include {header}"
        if header.startswith("tests/"):
            yield f"{path}:{number}: the product may not include {header}"
        for pattern, home in VENDOR.items():
            if re.match(pattern, header) and not (home and str(path).startswith(home + "/")):
                yield f"{path}:{number}: {header} belongs to {home or 'no folder'} only"


def self_test():
    """The rules fire on what they are for, and stay quiet otherwise."""
    fires = [
        ("graph/a.h", '#include "models/job.h"'),
        ("planner/a.cpp", '#include "runtime/backend.h"'),
        ("runtime/a.cpp", "#include <dnnl.hpp>"),
        ("planner/a.cpp", "#include <oneapi/dnnl/dnnl.hpp>"),
        ("runtime/cpu/a.cpp", "#include <mpi.h>"),
        ("base/a.cpp", '#include "tests/a.h"'),
    ]
    quiet = [
        ("graph/a.h", '#include "base/units.h"'),
        ("runtime/cpu/a.cpp", "#include <dnnl.hpp>"),
        ("planner/a.cpp", "#include <map>"),
    ]
    for path, text in fires:
        assert list(violations(pathlib.Path(path), text)), (path, text)
    for path, text in quiet:
        assert not list(violations(pathlib.Path(path), text)), (path, text)


def main():
    self_test()
    files = [p for folder in ALLOWED for p in sorted((SOURCE / folder).rglob("*"))
             if p.suffix in SOURCES]
    assert files, "no sources found"
    found = [message for path in files
             for message in violations(path.relative_to(SOURCE), path.read_text())]
    print("\n".join(found) or f"{len(files)} files keep the include table")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
