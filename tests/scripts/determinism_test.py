"""Equal inputs give the same bytes in any folder, locale and time zone, on any threads (lab/same-bytes)."""

import pathlib
import re
import subprocess
import sys
import tempfile

from programs import BIN, CLUSTER, ENVIRONMENT, NANO, OK, OUTSIDE_TOLERANCE, SOURCE, planner, write_json

SKIPPED = 77  # the machine has no locale with a decimal comma


def same_bytes(*arguments):
    return subprocess.run([SOURCE / "lab/same-bytes", *map(str, arguments)], capture_output=True, text=True, check=False)


def all_are_the_same():
    done = same_bytes("--planner", BIN / "planner", "--runs", 1, "--threads", "1,2")
    if done.returncode == ENVIRONMENT:
        print(done.stderr)
        return False
    assert done.returncode == OK, done.stdout + done.stderr
    assert "repeated: 4 of 4 runs the same" in done.stdout, done.stdout
    return True


def a_difference_is_named(folder):
    """A planner that prints the time zone, and one that writes other bytes."""
    for name, line in (("zone", 'echo "$TZ"'), ("locale", 'test "$1" != init || echo "$LC_ALL" >> "$PWD/new-job.json"')):
        program = folder / name
        program.write_text(f'#!/bin/sh\n{line}\nexec "{BIN}/planner" "$@"\n')
        program.chmod(0o755)
    (folder / "planner-run").symlink_to(BIN / "planner-run")
    done = same_bytes("--planner", folder / "zone", "--runs", 2, "--threads", "1", "simulate")
    assert done.returncode == OUTSIDE_TOLERANCE, done.stdout + done.stderr
    assert "simulate: stdout differs at byte 0 of" in done.stdout and "'<+1345>-13:45" in done.stdout, done.stdout
    done = same_bytes("--planner", folder / "locale", "--runs", 1, "--threads", "1", "init cluster")
    assert done.returncode == OUTSIDE_TOLERANCE, done.stdout + done.stderr
    assert "init cluster: new-job.json differs at byte 0 of 8: 'C.UTF-8" in done.stdout, done.stdout
    done = same_bytes("--against", BIN / "planner", "--planner", folder / "zone", "--set", "repeated,others", "simulate", "passes")
    assert done.returncode == OUTSIDE_TOLERANCE and done.stdout.startswith("simulate: stdout differs at byte 0"), done.stdout
    assert done.stdout.splitlines()[0].endswith(", in words alone"), done.stdout
    assert re.findall(r"^(\w+): 0 of 1 ", done.stdout, re.MULTILINE) == ["repeated", "others"], done.stdout
    done = same_bytes("--against", BIN / "planner", "--set", "sixty,programs", "simulate context", "bundled-cuda pp=4,micro_batch=1")
    assert done.returncode == OK, done.stdout + done.stderr
    assert re.findall(r"^(\w+): 1 of 1 .* (\d+) outputs, 0 ", done.stdout, re.MULTILINE) == [("sixty", "4"), ("programs", "3")], done.stdout
    done = same_bytes("no such command")
    assert done.returncode == 2 and "no such command is no command" in done.stderr, done.stderr


def main():
    can_compare = all_are_the_same()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if can_compare:
            a_difference_is_named(folder)
        cluster, output = write_json(folder / "cluster.json", CLUSTER), folder / "plan.json"
        command = ("plan", NANO, "--cluster", cluster, "--devices", 2, "--fix", "pp=2", "--fix", "micro_batch=2")
        assert planner(*command, "-o", output).returncode == OK
        assert name not in output.read_text(), "the plan holds a path"
        assert planner(*command, "--json").stdout == output.read_text(), "--json differs from the file"
    print("identical")
    return OK if can_compare else SKIPPED


if __name__ == "__main__":
    sys.exit(main())
