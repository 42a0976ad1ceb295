"""No source file is longer than 500 lines, and the product has no more lines than its budget.

The budget falls with each change that deletes, and only a feature that is planned with an allowance raises it. Next to the
lines stand the other numbers that tell how much a reader has to carry: fields of the main types, and types per header.
"""

import re
import sys

from programs import PRODUCT, SOURCE

FOLDERS = [*PRODUCT, "tests", "scripts", "lab", "cmake"]
SUFFIXES = {".h", ".cpp", ".cu", ".cuh", ".py", ".cmake", ""}
MOST = 500
# Lines of the product: C++, CUDA, JavaScript and Python without tests, presets and scripts. The aim is 102,000.
BUDGET = 123750
PRODUCT_SUFFIXES = {".h", ".cpp", ".cu", ".cuh", ".py", ".js"}
# The main types, which only grow where nobody counts.
TYPES = {"Job": "models/job/job.h", "Experts": "models/job/job.h", "Strategy": "passes/strategy/strategy.h",
         "Framework": "models/framework/framework.h", "Capabilities": "models/framework/capabilities.h"}
COMMENT = re.compile(r"//.*")
FIELD = re.compile(r"^  [\w:<>, ]+? \w+( = [^;()]*|\{[^;]*\})?(, \w+( = [^;()]*|\{\})?)*;$")
TYPE = re.compile(r"^(struct|class|enum class|enum|union) \w+[^;]*\{", re.MULTILINE)


def files_of(folders, suffixes):
    return [p for folder in folders for p in sorted((SOURCE / folder).rglob("*"))
            if p.is_file() and p.suffix in suffixes and "__pycache__" not in p.parts]


def lines_of(path):
    return len(path.read_text().splitlines())


def fields_of(name, text):
    """Members of a struct, several of which may stand in one declaration."""
    body = re.search(rf"^struct {name} \{{\n(.*?)^\}};", text, re.MULTILINE | re.DOTALL)[1]
    code = re.sub(r"\n {4,}", " ", COMMENT.sub("", body))
    return sum(1 + len(re.findall(r", \w+", re.sub(r"<[^;]*>|\{[^;]*\}", "", line)))
               for line in map(str.rstrip, code.splitlines()) if FIELD.match(line))


def main():
    lengths = {path: lines_of(path) for path in files_of(FOLDERS, SUFFIXES)}
    too_long = {path: length for path, length in lengths.items() if length > MOST}
    for path, length in too_long.items():
        print(f"{path.relative_to(SOURCE)}: {length} lines, at most {MOST}")
    product = files_of(PRODUCT, PRODUCT_SUFFIXES)
    product = [path for path in product if "presets" not in path.relative_to(SOURCE).parts]
    lines = sum(map(lines_of, product))
    if lines > BUDGET:
        print(f"the product has {lines} lines, {lines - BUDGET} over its budget: delete, then add")
    headers = [path.read_text() for path in product if path.suffix == ".h"]
    fields = {name: fields_of(name, (SOURCE / header).read_text()) for name, header in TYPES.items()}
    print(f"{len(lengths)} files, the longest has {max(lengths.values())} lines; {lines} of {BUDGET} lines of product; fields: "
          + ", ".join(f"{name} {count}" for name, count in fields.items())
          + f"; types per header: {sum(len(TYPE.findall(text)) for text in headers) / len(headers):.2f}")
    return 1 if too_long or lines > BUDGET else 0


if __name__ == "__main__":
    sys.exit(main())
