"""Manual pages: one for each command, without warnings of man, with the sentence, the examples and the flags of the help."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from programs import BIN, ENVIRONMENT, OK, SOURCE, USAGE, planner

COMMANDS = SOURCE / "models" / "presets" / "commands"
SECTIONS = ["NAME", "SYNOPSIS", "DESCRIPTION", "EXAMPLES", "OPTIONS", "SEE ALSO"]
FLAG = re.compile(r"(?<![\w-])--[a-z][\w-]*")


def page_of(name):
    words = name.split("-", 1)[1:]
    for known in ("import-", "init-"):
        if words and words[0].startswith(known):
            words = words[0].split("-", 1)
    done = planner("man", *words)
    assert done.returncode == OK and not done.stderr, (name, done)
    return words, done.stdout


def wrong_page(name, text):
    words, page = page_of(name)
    for section in SECTIONS:
        if f"\n.SH {section}\n" not in page:
            yield f"{name}: no section {section}"
    for wanted in [text["about"], *(example["command"] for example in text["examples"])]:
        if wanted.replace("-", "\\-") not in page:
            yield f"{name}: lacks {wanted}"
    shown = set(FLAG.findall(re.sub(r"\\f[BIR]", "", page).replace("\\-", "-")))
    helped = planner(*words, "--help").stdout
    options = set(re.findall(r"^  (?:-\w,)?(--[a-z][\w-]*)", helped, re.M))
    if missing := options - shown:
        yield f"{name}: lacks flags {sorted(missing)}"
    if shutil.which("man"):
        done = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", "-"], input=page,
                              capture_output=True, text=True, env={"LC_ALL": "C.UTF-8", "MANWIDTH": "100", "PATH": "/usr/bin:/bin"})
        if done.returncode != OK or done.stderr:
            yield f"{name}: man: {done.stderr}"


def written_pages(names):
    """planner man -o writes every page of planner's own commands, planner's among them."""
    with tempfile.TemporaryDirectory() as folder:
        assert planner("man", "-o", folder).returncode == OK
        found = {path.stem for path in pathlib.Path(folder).glob("*.1")}
    wanted = names - {"planner-run", "planner-calibrate"}
    if found != wanted:
        yield f"planner man -o: lacks {wanted - found}, has {found - wanted}"
    if planner("man", "-o", "/no/such/folder").returncode != ENVIRONMENT:
        yield "planner man -o: writes into no folder"


def installed_pages(names):
    """The build writes those of all programs, and completions, for cmake --install."""
    folder = BIN.parent / "shell"
    if not folder.is_dir():
        return
    found = {path.stem for path in folder.glob("*.1")}
    if found != names:
        yield f"{folder}: lacks {names - found}, has {found - names}"
    for name in ("planner.bash", "_planner", "planner.fish"):
        if not (folder / name).is_file():
            yield f"{folder}: lacks {name}"


def main():
    texts = {path.stem: json.loads(path.read_text()) for path in sorted(COMMANDS.glob("*.json"))}
    failures = [message for name, text in texts.items() for message in wrong_page(name, text)]
    failures += written_pages(set(texts))
    failures += installed_pages(set(texts))
    done = planner("man", "plann")
    if done.returncode != USAGE or "plan?" not in done.stderr:
        failures.append(f"an unknown command: {done}")
    print("\n".join(failures) or f"{len(texts)} manual pages")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
