"""The file of typical rates is what lab/typical_rates.py makes of the built-in fits."""

import json
import pathlib
import sys
import tempfile

from programs import SOURCE, write_json

sys.path.insert(0, str(SOURCE / "lab"))
import typical_rates  # noqa: E402  (scripts/ is no package)

PRESETS = SOURCE / "models/presets"


def is_what_the_fits_say():
    known = json.loads((PRESETS / "spreads/typical-rates.json").read_text())
    assert known == typical_rates.typical_rates(PRESETS / "calibrations", PRESETS / "folds"), \
        "lab/typical_rates.py writes models/presets/spreads/typical-rates.json"
    names = {fit["calibration"] for fit in known["fits"] if "without" not in fit}
    assert not names & {fit["calibration"] for fit in typical_rates.untypical()} and len(names) >= 8, names


def leaves_out_what_runs_did_not_determine(folder):
    value = {"name": "matmul.peak_fraction", "value": 0.6, "prior": 0.8, "determined": True}
    fitted = {"cluster": "c", "framework": "f", "sources": ["github:a/b@1 (MIT), page", "github:a/b@2, page"],
              "values": [value, {**value, "name": "memory.bandwidth_fraction", "determined": False},
                         {**value, "name": "dispatch_op"}]}
    write_json(folder / "c--f.json", {"fitted": fitted})
    folds = folder / "folds"
    folds.mkdir()
    fit, = typical_rates.typical_rates(folder, folds)["fits"]
    assert fit["documents"] == ["github:a/b"] and list(fit["rates"]) == ["matmul.peak_fraction"], fit
    assert abs(fit["rates"]["matmul.peak_fraction"] - 0.75) < 1e-12 and "without" not in fit
    two = {**fitted, "sources": [*fitted["sources"], "github:c/d@1, page"]}
    write_json(folder / "c--f.json", {"fitted": two})
    write_json(folds / "c--f--without--d.json", {"fitted": {**fitted, "values": [{**value, "value": 0.4}]}})
    whole, fold = typical_rates.typical_rates(folder, folds)["fits"]
    assert whole["documents"] == ["github:a/b", "github:c/d"] and fold["without"] == "github:c/d", (whole, fold)
    assert fold["calibration"] == "c--f--without--d" and abs(fold["rates"]["matmul.peak_fraction"] - 0.5) < 1e-12


def noise_is_stated():
    noisy = typical_rates.noisy_clusters()
    assert noisy and noisy <= {path.stem for path in (PRESETS / "clusters").glob("*.json")}, noisy


def main():
    is_what_the_fits_say()
    noise_is_stated()
    with tempfile.TemporaryDirectory() as folder:
        leaves_out_what_runs_did_not_determine(pathlib.Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
