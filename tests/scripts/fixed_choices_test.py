"""lab/fixed-choices: what a held choice says of a free search, and one run of a small preset."""

import subprocess

from programs import BIN, OK, SOURCE, USAGE, load_script

script = load_script("fixed-choices")


def check_verdicts():
    free = script.Found(2.0, 2.0, True, {})
    assert script.judged(free, None) == "infeasible"
    assert script.judged(free, "nothing") == "open"
    for step, least, verdict in ((1.9, 1.9, "faster"), (1.9, 1.0, "faster"), (2.0, 2.0, "proven"),
                                 (3.0, 2.5, "proven"), (3.0, 1.5, "open")):
        assert script.judged(free, script.Found(step, least, False, {})) == verdict, (step, least)


def check_fixes():
    strategy = {"mp": 2, "recompute": "none", "keep_gathered": True, "grad_bucket_bytes": 4 << 20}
    assert script.fixes_of(strategy, ["recompute", "keep_gathered"]) == [
        "recompute=selective", "recompute=full"]
    assert "mp=2" not in script.fixes_of(strategy, ["mp"])
    assert "grad_bucket_bytes=4194304" not in script.fixes_of(strategy, ["grad_bucket_bytes"])
    assert len(script.PROBLEMS) == 30 and len(set(script.PROBLEMS)) == 30


def run(*arguments):
    command = [SOURCE / "lab" / "fixed-choices", "--bin", BIN, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=500)


def check_run():
    done = run("--only", "gpt2-medium", "--keys", "pp", "--limit", 60)
    assert done.returncode == OK, done.stdout + done.stderr
    rows = done.stdout.splitlines()[2:]
    assert len(rows) == 3, done.stdout
    for row in rows[:2]:
        assert ", proven |" in row and row.endswith("| 0 | 0 |"), row
    assert rows[0].count("| gpt2-medium | dgx-h100-80gb | megatron-lm | 8 |") == 1, rows[0]


def check_bad_input():
    for arguments in (["--only", "no-such-job"], ["--keys", "no_such_key"]):
        done = run(*arguments)
        assert done.returncode == USAGE and "no" in done.stderr, (arguments, done)


check_verdicts()
check_fixes()
check_bad_input()
check_run()
