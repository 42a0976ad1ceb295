"""Code names no framework, GPU or source of published runs: what is known of one is in data files.

The names are those of presets and documents, and the words for frameworks and GPUs that the rules of
lab/rules look for. Comments may name the sources of formulas and constants."""

import json
import re
import sys

from programs import PRODUCT, SOURCE

PRESETS, RULES = SOURCE / "models/presets", SOURCE / "lab/rules"
# Programs of this project, and words of rules that are also plain words.
OWN = {"bundled", "bundled-cuda", "core", "bridge", "unknown", "pcie"}
# Names that a user reads or may replace; none decides what a framework or a GPU is like.
ALLOWED = {
    ("planner/api/target.cpp", "megatron-lm"): "the default of --framework on GPUs",
    ("planner/cli/flags.cpp", "megatron-lm"): "the help names that default",
    ("planner/api/target.cpp", "megatron-lm-flex"): "the default for jobs with experts",
    ("planner/cli/flags.cpp", "megatron-lm-flex"): "the help names that default",
    ("planner/cli/flags.cpp", "dgx-h100-80gb"): "an example in the help",
    ("planner/cli/flags.cpp", "h100"): "an example in the help",
    ("planner/api/target.cpp", "h100"): "an example in a message",
    ("planner/init/init.cpp", "dgx-a100-80gb"): "an example in the help",
    ("planner/init/new_cluster.cpp", "dgx-a100-80gb"): "an example in a message",
    ("planner/cli/flags.cpp", "dgx-h100-80gb--megatron-lm"): "an example in the help",
    ("planner/commands/command_validate.cpp", "pytorch"): "the help names the program whose traces are replayed",
}
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\((.*?)\)\1"|"((?:[^"\\\n]|\\.)*)"|\'(?:[^\'\\]|\\.)\'', re.S)


def texts_of(condition):
    if isinstance(condition, str):
        yield condition
    elif isinstance(condition, list):
        for part in condition:
            yield from texts_of(part)
    elif isinstance(condition, dict):
        for part in condition.values():
            yield from texts_of(part)


def words_of_rules(folder):
    for path in sorted((RULES / folder).glob("*.json")):
        for rule in json.loads(path.read_text())["rules"]:
            when = rule.get("when", [])
            for conditions in when if isinstance(when, list) else [when]:
                for field in ("framework", "hardware.gpu"):
                    yield from texts_of(conditions.get(field))


def names():
    found = {path.stem for folder in ("clusters", "frameworks", "calibrations")
             for path in (PRESETS / folder).glob("*.json")}
    for path in (PRESETS / "gpu_generations").glob("*.json"):
        found |= set(json.loads(path.read_text())["names"])
    for path in (RULES / "documents").glob("*.json"):
        document = json.loads(path.read_text())["document"]
        found |= {document, document.split(":")[-1], document.split("/")[-1]}
    found |= set(words_of_rules("words")) | set(words_of_rules("documents"))
    return sorted({name.lower() for name in found} - OWN)


def literals(text):
    """(line, text) of each string literal outside comments and includes."""
    for match in TOKEN.finditer(text):
        literal = match[2] if match[2] is not None else match[3]
        if literal:
            line = text.count("\n", 0, match.start()) + 1
            if not text.splitlines()[line - 1].lstrip().startswith("#include"):
                yield line, literal


def found_in(path, pattern):
    for line, literal in literals(path.read_text()):
        for name in pattern.findall(literal.lower()):
            yield path.relative_to(SOURCE).as_posix(), line, name, literal


def main():
    words = "|".join(re.escape(name) for name in sorted(names(), key=len, reverse=True))
    pattern = re.compile(rf"(?<![a-z0-9&])(?:{words})(?![a-z0-9])")
    assert pattern.findall('x == "torchtitan" or the h100-80gb') == ["torchtitan", "h100"], "the pattern finds names"
    assert list(literals('// "a"\nf("b", \'"\', "c");')) == [(2, "b"), (2, "c")], "comments are left out"
    files = [path for folder in PRODUCT for ending in ("*.h", "*.cpp", "*.cu", "*.cuh")
             for path in sorted((SOURCE / folder).rglob(ending))]
    assert len(files) > 300
    wrong = [f"{name}:{line}: names {word}: \"{literal}\"" for path in files
             for name, line, word, literal in found_in(path, pattern) if (name, word) not in ALLOWED]
    print("\n".join(wrong) or f"{len(files)} files name none of {len(names())} frameworks, GPUs and sources")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
