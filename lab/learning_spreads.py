#!/usr/bin/env python3
"""lab/learning_spreads.py [--bin DIR] [--output FILE] FILES...: by how much published sources differ in each number.

Predicts the runs of files of rows by calibrations without their documents (planner validate --learn), and takes the spreads of
numbers that explain the errors best. Writes models/presets/spreads/learning.json (or FILE), the priors of `planner learn`.
"""

import argparse
import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def digits(value):
    return float(f"{value:.3g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/bin")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "models/presets/spreads/learning.json")
    options = parser.parse_args()
    command = [ROOT / "lab/validate", "--bin", options.bin, *options.files, "--leave-out-sources", "--learn", "0", "--json"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = json.loads(printed)
    spreads, groups = found["spreads"], found["groups"]
    documents = len({group["document"] for group in groups})
    text = {"source": f"lab/learning_spreads.py, of {sum(group['runs'] for group in groups)} runs in {len(groups)} groups of "
                      f"{documents} documents", "noise": digits(spreads["noise"]), "noise_spread": digits(spreads["noise_spread"]),
            "values": {name: digits(value) for name, value in spreads["values"].items()}}
    options.output.write_text(json.dumps(text, indent=2) + "\n")


if __name__ == "__main__":
    main()
