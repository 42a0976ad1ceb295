"""Runs tests/runtime/random_strategies_test.cpp over a range of draws.

A draw that ends the process (a broken invariant) counts as failed, and the rest goes on after it.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
AT_ONCE = 10  # draws per process
SECONDS_PER_DRAW = 60
OUTSIDE_TOLERANCE = 7
ENVIRONMENT = 6


def positive(text):
    number = int(text)
    if not 1 <= number <= 10**9:
        raise argparse.ArgumentTypeError(f"{text} is not from 1 to 1000000000")
    return number


def arguments():
    parser = argparse.ArgumentParser(prog="lab/sweep", description=__doc__)
    parser.add_argument("--seed", type=positive, default=1, help="of the first draw (default 1)")
    parser.add_argument("--count", type=positive, default=300, help="draws (default 300)")
    parser.add_argument("--test", type=pathlib.Path,
                        default=ROOT / "build/tests/runtime",
                        help="the test program (default: built here)")
    return parser.parse_args()


def run(test, first, count):
    """Seeds whose tests all ran, those of them that failed, and what was printed."""
    environment = dict(os.environ, PLIMSOLL_DRAWS=f"{first}:{count}", OMP_NUM_THREADS="1")
    try:
        done = subprocess.run([test, "--gtest_filter=Random/Drawn.*", "--gtest_color=no"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment,
                              timeout=SECONDS_PER_DRAW * count, check=False)
        text = done.stdout
    except subprocess.TimeoutExpired as late:
        text = (late.stdout or b"").decode(errors="replace")
    except OSError as error:
        print(f"{test}: {error.strerror}", file=sys.stderr)
        sys.exit(ENVIRONMENT)
    if "Global test environment tear-down" not in text:
        return set(), set(), text  # the process ended before its time
    ran = {int(seed) for seed in re.findall(r"\[ +OK +\] Random/.*?/seed(\d+)", text)}
    failed = {int(seed) for seed in re.findall(r"\[ +FAILED +\] Random/.*?/seed(\d+)", text)}
    return ran | failed, failed, text


def run_all(test, first, count):
    """As run(), each draw by itself where one ends the process."""
    ran, failed, text = run(test, first, count)
    if ran:
        return failed
    if count == 1:
        print(text, file=sys.stderr)
        return {first}
    return set().union(*(run_all(test, seed, 1) for seed in range(first, first + count)))


def main():
    options = arguments()
    end = options.seed + options.count
    failed = set()
    for first in range(options.seed, end, AT_ONCE):
        count = min(AT_ONCE, end - first)
        failed |= run_all(options.test, first, count)
        print(f"{first + count - options.seed} of {options.count} draws, {len(failed)} failed",
              file=sys.stderr)
    for seed in sorted(failed):
        print(f"draw {seed} failed: PLIMSOLL_DRAWS={seed}:1 {options.test}")
    print(f"{options.count} draws from {options.seed}: {options.count - len(failed)} passed, "
          f"{len(failed)} failed")
    if failed:
        sys.exit(OUTSIDE_TOLERANCE)


if __name__ == "__main__":
    main()
