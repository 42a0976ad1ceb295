"""Files of raw rows are stated: lab/state writes them, lab/validate and lab/fit hand them to planner."""

import argparse
import codecs
import errno
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import derived_facts
import row_rules
import stated_ops

ROOT = pathlib.Path(__file__).resolve().parent.parent
USAGE, BAD_INPUT, ENVIRONMENT = 2, 3, 6
OUTPUTS = (("-o", "--output"), ("--inputs",), ("--without",))  # options of planner whose value it writes
OBJECTS = ("hardware", "model", "parallel", "batch", "measured", "stated", "lora")  # of a row


class BadFile(Exception):
    """A file has no rows, or rows that cannot be stated."""


class BadJson(BadFile):
    """A file is not an array in JSON."""


def number(text):
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def unique(pairs):
    if len(dict(pairs)) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key {next(key for key in keys if keys.count(key) > 1)} stands twice")
    return dict(pairs)


def parse(data, path):
    """The rows of a file. Raises BadJson if it is not what planner reads as JSON, or has no array."""
    try:
        rows = json.loads(data.decode("utf-8-sig"), parse_float=number, parse_constant=number, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise BadJson(f"{path}: at {error.lineno}:{error.colno}: {error.msg}") from error
    except RecursionError as error:
        raise BadJson(f"{path}: is nested too deeply") from error
    except ValueError as error:
        raise BadJson(f"{path}: {error}") from error
    if not isinstance(rows, list):
        raise BadJson(f"{path}: expected an array of rows")
    return rows


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
        for key in OBJECTS:
            if not isinstance(row.get(key) or {}, dict):
                raise derived_facts.BadFact(f"/{key}: an object is required")
        return derived_facts.derive(row_rules.Statement(row, self.rules.of(row_rules.document_of(source))).stated())

    def timing(self, row, gpu):
        """A timed op or collective, with the devices that its GPU is. No other rule is about it."""
        if not isinstance(gpu, str) or "statements" in row:
            return row
        if gpu not in self.devices:
            self.devices[gpu] = devices_of(gpu, self.device_names, self.rules)
        return {"devices": self.devices[gpu], **(stated_ops.stated(row) if "op" in row else row), "statements": []}

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


def stop(number, _):
    """Ends the program in order. A second signal does not interrupt that."""
    for other in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(other, signal.SIG_IGN)
    raise SystemExit(128 + number)


def stop_in_order():
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, stop)


def failed(code, reason):
    print(reason, file=sys.stderr)
    return code


def state_main():
    """lab/state FILES... -o DIR: writes files of raw rows once more, with all facts about each run and the source of each."""
    stop_in_order()
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
    for i, line in enumerate(sys.stdin, 1):
        try:
            row, = stater.rows([json.loads(line)], f"lab/state: line {i}")
        except (BadFile, ValueError, RecursionError) as error:
            return failed(BAD_INPUT, error if isinstance(error, BadFile) else f"lab/state: line {i}: {error}")
        print(json.dumps(row), flush=True)
    return 0


def state(files, output):
    stater, outputs = Stater(), {}
    for file in files:
        to = output / file.name
        if to in outputs:
            return failed(USAGE, f"lab/state: {outputs[to]} and {file} would both become {to}")
        if same_file(to, file):
            return failed(USAGE, f"lab/state: -o {output}: this command uses the same file as {file}")
        outputs[to] = file
    try:
        output.mkdir(parents=True, exist_ok=True)
        for to, file in outputs.items():
            write(to, text_of(stater.rows(parse(read(file), file), file)))
    except BadFile as error:
        return failed(BAD_INPUT, f"lab/state: {error}")
    except OSError as error:
        return failed(ENVIRONMENT, f"lab/state: cannot write {error.filename or output}: {error.strerror}")
    return 0


def same_file(one, other):
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)


def read(path):
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadFile(f"{path}: cannot open: {error.strerror}") from error


def write(path, text):
    """Readers see the old file or the new one."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        new.write_text(text, encoding="utf-8")
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)


def planner_main(command, about):
    """Runs `planner COMMAND ARGUMENTS`, in which each file of raw rows is replaced by a stated one of the same name. `about`: the
    help of lab/COMMAND, which planner's help follows."""
    stop_in_order()
    parser = argparse.ArgumentParser(prog=f"lab/{command}", add_help=False, allow_abbrev=False)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path(os.environ.get("PLIMSOLL_BIN_DIR", ROOT / "build/bin")))
    for flags in OUTPUTS:
        parser.add_argument(*flags, dest=flags[-1], action="append", default=[])
    options, arguments = parser.parse_known_args()
    written = [(flags[0], value) for flags in OUTPUTS for value in getattr(options, flags[-1])]
    for flag, value in written:
        for argument in arguments:
            if same_file(value, argument) and os.path.isfile(value):
                return failed(USAGE, f"lab/{command}: {flag} {value}: this command uses the same file as {argument}")
    if {"-h", "--help"} & set(arguments):
        print(about, flush=True)
    planner = options.bin / "planner"
    if not planner.is_file():
        return failed(ENVIRONMENT, f"lab/{command}: {planner} is missing: scripts/build release planner")
    with tempfile.TemporaryDirectory() as folder:
        try:
            stated = stated_arguments(arguments, pathlib.Path(folder))
        except BadFile as error:
            return failed(BAD_INPUT, f"lab/{command}: {error}")
        names = [(os.fsencode(new), os.fsencode(old)) for new, old in zip(stated, arguments) if new != old]
        return run([planner, command, *(word for pair in written for word in pair), *stated], names)


def stated_arguments(arguments, folder):
    """The arguments with new names of files that were stated into the folder. A pipe can be read once, so that it is always copied."""
    stater, stated = Stater(), []
    for i, argument in enumerate(arguments):
        path, new = pathlib.Path(argument), folder / str(i) / pathlib.Path(argument).name
        is_pipe = os.path.exists(argument) and path.is_fifo()
        data = read(path) if is_pipe or os.path.isfile(argument) and not argument.startswith("-") else None
        text = data and stated_text(stater, data, argument)
        if text is data and not is_pipe:
            stated.append(argument)
            continue
        new.parent.mkdir()
        new.write_bytes(text)
        stated.append(str(new))
    return stated


def stated_text(stater, data, path):
    """A file with its rows stated. Other files stay as they are: planner has the messages about them."""
    try:
        rows = parse(data, path) if data.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"[") else []
    except BadJson:
        rows = []
    return text_of(stater.rows(rows, path)).encode() if rows else data


def run(command, names):
    """Runs a command and passes its messages on as they come, with the user's names of files. Returns its exit code."""
    ours, its = os.openpty() if sys.stderr.isatty() else os.pipe()  # planner shows its progress on terminals alone
    with subprocess.Popen(command, stderr=its) as running:
        try:
            os.close(its)
            pass_on(ours, names)
            running.wait()
        except SystemExit as stopped:
            running.send_signal(stopped.code - 128)
            raise
    return running.returncode if running.returncode >= 0 else 128 - running.returncode


def pass_on(source, names):
    """A line with a slash may have a part of a name, and waits for its end."""
    text = b""
    while piece := read_some(source):
        text += piece
        last = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        end = last if b"/" in text[last:] else len(text)
        say(text[:end], names)
        text = text[end:]
    say(text, names)


def read_some(source):
    try:
        return os.read(source, 1 << 16)
    except OSError as error:
        if error.errno != errno.EIO:  # the end of a terminal
            raise
        return b""


def say(text, names):
    for new, old in names:
        text = text.replace(new, old)
    sys.stderr.buffer.write(text)
    sys.stderr.flush()
