"""lab/built-in-fits: a built-in fit is made again from the runs that it names, and without each of its documents."""

import itertools
import json
import pathlib
import sys
import tempfile

from programs import BIN, OK, SOURCE, lab, load_script, write_json

sys.path.insert(0, str(SOURCE / "lab"))
NAME = "dgx-a100-80gb--pytorch-fsdp"
SLOWER = {"made:up-a": 1.1, "made:up-b": 1.3, "made:up-c": 5.0}
LAYOUTS = ((1, 4), (2, 4), (2, 8), (4, 8))  # micro-batch and GPUs


def row(document, index, layers, micro, gpus):
    return {
        "id": f"{document}/{index}", "use": "public",
        "source": {"repo_or_doc": f"{document}@1 (2026)", "path_or_issue": "page 1"},
        "hardware": {"gpu": "A100-80GB", "gpus": gpus, "gpus_per_node": 8, "interconnect": "NVLink"},
        "model": {"name": "MPT", "vocab": 50368, "seq_len": 1024, "hidden": 1536, "layers": layers, "heads": 12,
                  "kv_heads": 12, "ffn_hidden": 6144},
        "parallel": {"tp": 1, "pp": 1, "dp": gpus, "zero_stage": 3},
        "batch": {"micro": micro, "global": micro * gpus}, "precision": "bf16", "recompute": "none",
        "attention": "flash", "measured": {"step_time_s": 1.0}, "framework": "pytorch-fsdp", "needs": [],
    }


def made_up(path):
    rows = [row(document, index, layers, *layout) for document in SLOWER
            for index, (layers, layout) in enumerate(itertools.product((4, 8), LAYOUTS))]
    done = lab("validate", write_json(path, rows), "--json", "--calibration", "none")
    assert done.returncode == OK, done.stderr
    for one, found in zip(rows, json.loads(done.stdout)["rows"]):
        one["measured"]["step_time_s"] = SLOWER[found["source"]] * found["predicted"]["step_time_s"]
    write_json(path, rows)
    return rows


def main():
    fits = load_script("built-in-fits")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        cases, known = folder / "cases", folder / "presets/calibrations"
        cases.mkdir()
        known.mkdir(parents=True)
        rows = made_up(cases / "made_up.json")
        named = [one for one in rows if not one["id"].startswith("made:up-c")]
        done = lab("fit", write_json(folder / "named.json", named), "--cluster", "dgx-a100-80gb", "--framework",
                       "pytorch-fsdp", "-o", known / f"{NAME}.json")
        assert done.returncode == OK, done.stderr
        fits.PRESETS = folder / "presets"
        made, folds, typical = folder / "made", folder / "folds", folder / "typical.json"
        folds.mkdir()
        (folds / f"{NAME}--without--gone.json").write_text("{}")  # of a document that the fit has no more
        sys.argv = ["built-in-fits", str(cases), "--bin", str(BIN), "--calibrations", str(made), "--folds", str(folds),
                    "--typical", str(typical)]
        fits.main()
        # Rows of the third document are on the same cluster, but the fit does not name them.
        assert (made / f"{NAME}.json").read_text() == (known / f"{NAME}.json").read_text()
        assert [path.name for path in sorted(folds.iterdir())] == [
            f"{NAME}--without--made_up-{one}.json" for one in "ab"], list(folds.iterdir())
        rates = {}
        for path, document in zip(sorted(folds.iterdir()), ("made:up-b", "made:up-a")):
            fitted = json.loads(path.read_text())["fitted"]
            assert fitted["runs"] == 8 and fitted["sources"] == [f"{document}@1 (2026), page 1"], fitted["sources"]
            rates[document] = sum(value["value"] / value["prior"] for value in fitted["values"] if value["determined"])
        assert rates["made:up-a"] != rates["made:up-b"], rates
        entries = json.loads(typical.read_text())["fits"]
        assert [one.get("without") for one in entries] == [None, "made:up-a", "made:up-b"], entries
    return 0


if __name__ == "__main__":
    sys.exit(main())
