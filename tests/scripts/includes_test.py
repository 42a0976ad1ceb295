"""Each folder includes only what cmake/folders.txt allows, and vendor headers stay in their backends."""

import collections
import os
import pathlib
import re
import sys

SOURCE = pathlib.Path(os.environ["PLIMSOLL_SOURCE_DIR"])

TABLE = SOURCE / "cmake" / "folders.txt"
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
MOST_FILES = 30
# One kernel a file.
MAY_BE_CROWDED = {"runtime/cuda"}
SOURCES = {".h", ".hpp", ".cpp", ".cc", ".cu", ".cuh"}


def read_table(text):
    """Folder -> the folders that it may include. Each names only folders of rows above its own."""
    table = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        folder, _, names = line.partition(":")
        above = {row for name in names.split() for row in table
                 if row == name or row.startswith(name + "/")}
        for name in names.split():
            assert any(row == name or row.startswith(name + "/") for row in above), (
                f"cmake/folders.txt: {folder}: {name} is no folder above it")
        table[folder] = {folder, *above}
    return table


def folder_of(path, table):
    """The row of a file: the nearest folder above it that is listed."""
    return next((str(folder) for folder in pathlib.PurePath(path).parents if str(folder) in table),
                None)


def violations(path, text, table):
    """Messages for one file; `path` is relative to the source tree."""
    folder = folder_of(path, table)
    if folder is None:
        yield f"{path}: lies in no folder of cmake/folders.txt"
        return
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        header = match.group(1)
        target = folder_of(header, table)
        if target and target not in table[folder]:
            yield f"{path}:{number}: {folder}/ may not include {header}"
        if header.startswith("tests/"):
            yield f"{path}:{number}: the product may not include {header}"
        for pattern, home in VENDOR.items():
            if re.match(pattern, header) and not (home and str(path).startswith(home + "/")):
                yield f"{path}:{number}: {header} belongs to {home or 'no folder'} only"


def self_test():
    """The rules fire on what they are for, and stay quiet otherwise."""
    table = read_table("base:\ngraph: base\nrooms/low: base\nrooms/high: base rooms/low\n"
                       "top: base rooms\nruntime: base\n")
    fires = [
        ("graph/a.h", '#include "rooms/low/job.h"'),
        ("rooms/low/a.h", '#include "rooms/high/a.h"'),
        ("rooms/a.h", ""),
        ("top/a.cpp", '#include "runtime/backend.h"'),
        ("runtime/a.cpp", "#include <dnnl.hpp>"),
        ("top/a.cpp", "#include <oneapi/dnnl/dnnl.hpp>"),
        ("runtime/cpu/a.cpp", "#include <mpi.h>"),
        ("base/a.cpp", '#include "tests/a.h"'),
    ]
    quiet = [
        ("graph/a.h", '#include "base/units.h"'),
        ("rooms/high/a.h", '#include "rooms/low/a.h"'),
        ("top/a.h", '#include "rooms/high/a.h"'),
        ("runtime/cpu/a.cpp", "#include <dnnl.hpp>"),
        ("runtime/cpu/a.cpp", '#include "runtime/backend.h"'),
        ("top/a.cpp", "#include <map>"),
    ]
    for path, text in fires:
        assert list(violations(pathlib.Path(path), text, table)), (path, text)
    for path, text in quiet:
        assert not list(violations(pathlib.Path(path), text, table)), (path, text)
    try:
        read_table("base: graph\ngraph:\n")
    except AssertionError:
        return
    raise AssertionError("a folder may not name one that is listed below it")


def crowded(files):
    """Folders with more source files than one can overlook."""
    counts = collections.Counter(str(path.parent) for path in files)
    for folder, count in sorted(counts.items()):
        if count > MOST_FILES and folder not in MAY_BE_CROWDED:
            yield f"{folder}: {count} source files, at most {MOST_FILES}"


def main():
    self_test()
    table = read_table(TABLE.read_text())
    tops = sorted({folder.split("/")[0] for folder in table})
    files = [p.relative_to(SOURCE) for top in tops for p in sorted((SOURCE / top).rglob("*"))
             if p.suffix in SOURCES]
    assert files, "no sources found"
    found = [message for path in files
             for message in violations(path, (SOURCE / path).read_text(), table)]
    found += crowded(files)
    print("\n".join(found) or f"{len(files)} files in {len(table)} folders keep the include table")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
