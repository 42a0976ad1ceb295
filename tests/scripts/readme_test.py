"""README's first example is what its command prints: every number there comes from this test's run. With --update, README gets it."""

import re
import subprocess
import sys
import tempfile

from programs import BIN, OK, SOURCE

README = SOURCE / "README.md"
EXAMPLE = re.compile(r"^    (planner plan .*)\n\n((?:    .*\n)+)", re.M)


def printed(command):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["bash", "-c", f"{BIN}/{command}"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == OK, done.stderr
    return "".join(f"    {line}\n" for line in done.stdout.splitlines())


def main():
    text = README.read_text(encoding="utf-8")
    example = EXAMPLE.search(text)
    assert example and text.index(example[0]) < text.index("\n## "), "README begins with a plan and its result"
    found = printed(example[1])
    if "--update" in sys.argv:
        README.write_text(text.replace(example[2], found), encoding="utf-8")
        return
    assert example[2] == found, f"README shows\n{example[2]}and the command prints\n{found}"
    assert len(found.splitlines()) <= 15, found


if __name__ == "__main__":
    main()
    print("README shows what its first command prints")
