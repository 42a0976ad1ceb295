"""Files of raw rows are stated: lab/state writes them, lab/validate and lab/fit hand them to planner."""

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import derived_facts
import row_rules

ROOT = pathlib.Path(__file__).resolve().parent.parent
USAGE, BAD_INPUT, ENVIRONMENT = 2, 3, 6
OUTPUTS = ("-o", "--output", "--inputs", "--without")  # options of planner whose value it writes


class BadFile(Exception):
    """A file has rows that cannot be stated."""


def number(text):
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def unique(pairs):
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)


def read(path):
    """The rows of a file, or None: it has none, or is not what planner reads as JSON, which planner says best."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"), parse_float=number, parse_constant=number, object_pairs_hook=unique)
    except (ValueError, RecursionError, OSError):
        return None
    return rows if isinstance(rows, list) else None


def devices_of(gpu, device_names, rules):
    """Names of the devices of cluster presets that are of the same chip on the same board as a GPU in a source's words."""
    def known(name):
        statement = row_rules.Statement({"hardware": {"gpu": name}}, rules.general)
        return statement.field("implied.chip")[0], statement.field("implied.board")[0]
    chip = known(gpu)
    return [name for name in device_names if chip[0] is not None and known(name) == chip]


class Stater:
    """States rows by the rules of this folder."""

    def __init__(self):
        self.rules = row_rules.built_in()
        presets = sorted((ROOT / "models/presets/clusters").glob("*.json"))
        self.device_names = sorted({json.loads(preset.read_text(encoding="utf-8"))["device"]["name"] for preset in presets})
        self.devices = {}

    def run(self, row):
        """A run, of a stated file: as it is."""
        if not isinstance(row, dict) or not isinstance(source := row_rules.field_of(row, "source.repo_or_doc"), str):
            raise BadFile("a row is an object with source.repo_or_doc")
        if "statements" in row:
            return row
        return derived_facts.derive(row_rules.Statement(row, self.rules.of(row_rules.document_of(source))).stated())

    def timing(self, row, gpu):
        """A timed op or collective, with the devices that its GPU is. No other rule is about it."""
        if not isinstance(gpu, str) or "devices" in row:
            return row
        if gpu not in self.devices:
            self.devices[gpu] = devices_of(gpu, self.device_names, self.rules)
        return {**row, "devices": self.devices[gpu], "statements": []}

    def row(self, row):
        if isinstance(row, dict) and "op" in row:
            return self.timing(row, row.get("gpu"))
        if isinstance(row, dict) and "collective" in row:
            return self.timing(row, row_rules.field_of(row, "hardware.gpu"))
        if isinstance(row, dict) and "events" in row:  # the trace of an allocator
            return row
        return self.run(row)

    def rows(self, rows, path):
        stated = []
        for i, row in enumerate(rows):
            try:
                stated.append(self.row(row))
            except derived_facts.BadFact as error:
                raise BadFile(f"{path}: at /{i}{error}") from error
            except (BadFile, row_rules.BadRule) as error:
                raise BadFile(f"{path}: at /{i}: {error}") from error
        return stated


def text_of(rows):
    return json.dumps(rows, indent=1) + "\n"


def state_main():
    """lab/state FILES... -o DIR: writes files of raw rows once more, with all facts about each run and the source of each."""
    if sys.argv[1:] == ["--lines"]:
        return state_lines()
    parser = argparse.ArgumentParser(prog="lab/state", description=state_main.__doc__)
    parser.add_argument("files", nargs="+", type=pathlib.Path, metavar="FILE")
    parser.add_argument("-o", "--output", required=True, type=pathlib.Path, metavar="DIR", help="folder of the new files")
    options = parser.parse_args()
    return state(options.files, options.output)


def state_lines():
    """A raw row a line on stdin, the stated row on stdout: for programs that state single rows."""
    stater = Stater()
    for line in sys.stdin:
        print(json.dumps(stater.row(json.loads(line))), flush=True)
    return 0


def state(files, output):
    stater = Stater()
    output.mkdir(parents=True, exist_ok=True)
    for file in files:
        to = output / file.name
        if to.exists() and file.exists() and to.samefile(file):
            print(f"{to}: is a file of raw rows", file=sys.stderr)
            return USAGE
        if (rows := read(file)) is None:
            print(f"{file}: not a file of rows", file=sys.stderr)
            return BAD_INPUT
        try:
            to.write_text(text_of(stater.rows(rows, file)), encoding="utf-8")
        except BadFile as error:
            print(error, file=sys.stderr)
            return BAD_INPUT
    return 0


def planner_main(command):
    """Runs `planner COMMAND ARGUMENTS`, in which each file of raw rows is replaced by a stated one of the same name."""
    arguments = sys.argv[1:]
    folder = pathlib.Path(os.environ.get("PLIMSOLL_BIN_DIR", ROOT / "build/bin"))
    if "--bin" in arguments:
        at = arguments.index("--bin")
        if at + 1 == len(arguments):
            print("lab: --bin: a folder is required", file=sys.stderr)
            return USAGE
        folder = pathlib.Path(arguments[at + 1])
        del arguments[at:at + 2]
    if not (folder / "planner").is_file():
        print(f"lab: {folder / 'planner'} is missing: scripts/build release planner", file=sys.stderr)
        return ENVIRONMENT
    with tempfile.TemporaryDirectory() as temporary:
        try:
            stated = stated_arguments(arguments, pathlib.Path(temporary))
        except BadFile as error:
            print(error, file=sys.stderr)
            return BAD_INPUT
        done = subprocess.run([folder / "planner", command, *stated], stderr=subprocess.PIPE, text=True, check=False)
        messages = done.stderr
        for new, old in zip(stated, arguments):
            messages = messages.replace(new, old) if new != old else messages
        sys.stderr.write(messages)
        return done.returncode


def stated_arguments(arguments, folder):
    stater, stated = Stater(), []
    for i, argument in enumerate(arguments):
        is_input = argument.endswith(".json") and arguments[i - 1:i] not in [[option] for option in OUTPUTS]
        rows = read(pathlib.Path(argument)) if is_input else None
        if not rows:
            stated.append(argument)
            continue
        path = folder / str(i) / pathlib.Path(argument).name
        path.parent.mkdir()
        path.write_text(text_of(stater.rows(rows, argument)), encoding="utf-8")
        stated.append(str(path))
    return stated
