"""No source file is longer than 500 lines."""

import sys

from programs import PRODUCT, SOURCE

FOLDERS = [*PRODUCT, "tests", "scripts", "cmake"]
SUFFIXES = {".h", ".cpp", ".cu", ".cuh", ".py", ".cmake", ""}
MOST = 500


def main():
    files = [p for folder in FOLDERS for p in sorted((SOURCE / folder).rglob("*"))
             if p.is_file() and p.suffix in SUFFIXES and "__pycache__" not in p.parts]
    lengths = {path: len(path.read_text().splitlines()) for path in files}
    too_long = {path: length for path, length in lengths.items() if length > MOST}
    for path, length in too_long.items():
        print(f"{path.relative_to(SOURCE)}: {length} lines, at most {MOST}")
    print(f"{len(files)} files, the longest has {max(lengths.values())} lines")
    return 1 if too_long else 0


if __name__ == "__main__":
    sys.exit(main())
