#!/usr/bin/env python3
"""lab/typical_rates.py [--calibrations DIR] [--folds DIR] [--output FILE]: what fits of published runs found of rates.

Reads the fitted calibrations of models/presets/calibrations (or of DIR) but those of
models/presets/spreads/untypical-fits.json, and the same fits without one of their documents, models/presets/folds. Writes
models/presets/spreads/typical-rates.json (or FILE): for each fit the ratio of each rate that its runs determined to what its
cluster states. The product takes rates typical of training from this file (predict/default_efficiency.h). `lab/built-in-fits`
writes it of the fits that it has just made.
"""

import argparse
import json
import pathlib

from row_rules import document_of

SOURCE = pathlib.Path(__file__).resolve().parent.parent
PRESETS = SOURCE / "models/presets"
# Rates are shares of something that a cluster states. Times and sizes differ by machine.
RATES = ("matmul.peak_fraction", "memory.bandwidth_fraction", "attention_forward.peak_fraction",
         "attention_backward.peak_fraction", "levels.0.bandwidth_fraction", "levels.1.bandwidth_fraction")


def untypical():
    return json.loads((PRESETS / "spreads/untypical-fits.json").read_text())["fits"]


def noisy_clusters():
    """Clusters whose authors state a noise: their runs are no measure of predictions."""
    return {fit["calibration"].split("--")[0] for fit in untypical() if "noise" in fit}


def rates_of(path):
    fitted = json.loads(path.read_text())["fitted"]
    found = {value["name"]: value["value"] / value["prior"] for value in fitted["values"]
             if value["determined"] and value["name"] in RATES}
    return {"calibration": path.stem, "cluster": fitted["cluster"], "framework": fitted["framework"],
            "documents": sorted(set(map(document_of, fitted["sources"]))), "rates": found}


def typical_rates(calibrations, folds):
    """`folds`: of fits of the other folder, without one of their documents."""
    left_out = {fit["calibration"] for fit in untypical()}
    whole = [rates_of(path) for path in sorted(calibrations.glob("*.json")) if path.stem not in left_out]
    found = []
    for fit in whole:
        found.append(fit)
        for path in sorted(folds.glob(f"{fit['calibration']}--without--*.json")):
            fold = rates_of(path)
            without, = set(fit["documents"]) - set(fold["documents"])
            found.append({**fold, "without": without})
    return {"made_by": "lab/typical_rates.py; each rate relative to what the cluster states", "fits": found}


def write(calibrations, folds, output):
    output.write_text(json.dumps(typical_rates(calibrations, folds), indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--calibrations", type=pathlib.Path, default=PRESETS / "calibrations")
    parser.add_argument("--folds", type=pathlib.Path, default=PRESETS / "folds")
    parser.add_argument("--output", type=pathlib.Path, default=PRESETS / "spreads/typical-rates.json")
    options = parser.parse_args()
    write(options.calibrations, options.folds, options.output)


if __name__ == "__main__":
    main()
