"""The messages on docs/guide/mistakes.md are those that planner prints.

In a code block a line that begins with `$ ` is a command, and the lines behind it are what it prints on stderr, however they
are broken. Where the message ends with `...`, only its beginning counts. The exit code stands in brackets at its end."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

from programs import BIN, SOURCE

PAGE = SOURCE / "docs/guide/mistakes.md"


def blocks(text):
    """The commands and the message of each code block."""
    for block in re.findall(r"(?:^    .*\n)+", text, re.MULTILINE):
        lines = [line[4:] for line in block.splitlines()]
        commands = [line[2:] for line in lines if line.startswith("$ ")]
        yield commands, " ".join(line.strip() for line in lines if not line.startswith("$ "))


def main():
    wrong, count = [], 0
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    for commands, message in blocks(PAGE.read_text(encoding="utf-8")):
        count += 1
        expected, code = re.fullmatch(r"(.*) \(exit (\d)\)", message).groups()
        with tempfile.TemporaryDirectory() as folder:
            for command in commands:
                done = subprocess.run(["bash", "-c", command], cwd=pathlib.Path(folder), env=environment,
                                      capture_output=True, text=True, timeout=300)
        said = " ".join(done.stderr.split())
        same = said.startswith(expected[:-3].strip()) if expected.endswith("...") else said == expected
        if not same or done.returncode != int(code):
            wrong.append(f"{commands[-1]}\n  says  {said} (exit {done.returncode})\n  page  {expected} (exit {code})")
    print("\n".join(wrong) or f"{count} mistakes are answered as the page says")
    return 1 if wrong or count < 10 else 0


if __name__ == "__main__":
    sys.exit(main())
