"""scripts/spreads: intervals by documents left out, as what planner says of made-up runs gives them."""

import json
import math
import pathlib
import re
import subprocess
import tempfile

from programs import BIN, OK, SOURCE, load_script, planner, write_json

# How much longer runs of each document take than the cluster's own numbers say.
SLOWER = {"made:up-a": 1.1, "made:up-b": 1.2, "made:up-c": 1.3, "made:up-d": 1.2}


def row(document, index, micro, gpus, framework):
    return {
        "id": f"{document}/{index}", "use": "public",
        "source": {"repo_or_doc": f"{document}@1 (2026)", "path_or_issue": "page 1"},
        "hardware": {"gpu": "A100-80GB", "gpus": gpus, "gpus_per_node": 8, "interconnect": "NVLink"},
        "model": {"name": "MPT", "hidden": 2048, "layers": 4, "heads": 16, "kv_heads": 16,
                  "ffn_hidden": 8192, "vocab": 50368, "seq_len": 1024},
        "parallel": {"tp": 1, "pp": 1, "dp": gpus, "zero_stage": 3},
        "batch": {"micro": micro, "global": micro * gpus}, "precision": "bf16", "recompute": "none",
        "attention": "flash", "measured": {"step_time_s": 1.0}, "framework": framework, "needs": [],
    }


def made_up(folder):
    rows = [row(document, index, micro, gpus, "pytorch-fsdp") for document in SLOWER
            for index, (micro, gpus) in enumerate([(1, 4), (2, 4), (2, 8), (4, 8)])]
    path = write_json(folder / "made_up.json", rows)
    done = planner("validate", path, "--json", "--calibration", "none")
    assert done.returncode == OK, done.stderr
    for one, found in zip(rows, json.loads(done.stdout)["rows"]):
        slower = SLOWER[found["source"]]
        one["measured"]["step_time_s"] = slower * found["predicted"]["step_time_s"]
    write_json(path, rows)


def finds_what_was_made_up(folder):
    made_up(folder)
    output = folder / "spreads" / "step-time.json"
    output.parent.mkdir()
    command = [SOURCE / "scripts/spreads", folder, "--bin", BIN, "--output", output, "--out", output.parent]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == OK, done.stderr
    written = json.loads(output.read_text())
    assert written["documents"] == sorted(SLOWER), written
    kernels = written["step_time"]["kernels"]
    logs = [math.log(slower) for slower in SLOWER.values()]
    centre = sum(logs) / 4
    between = sum((log - centre) ** 2 for log in logs) / 3
    assert abs(kernels["centre"] - centre) < 2e-4, kernels
    # Runs of a document do not scatter: Student's t of three degrees of freedom alone.
    assert abs(kernels["half_width"] - 2.353 * math.sqrt(between * 1.25)) < 2e-4, kernels
    assert kernels["documents"] == 4 and kernels["runs"] == 16
    # Steps of one document are off alike: nothing is left of ratios.
    difference = written["difference"]["kernels"]
    assert difference["any"] < 1e-3 and difference["other_shapes"] < 1e-3, difference
    page = (output.parent / "intervals.md").read_text()
    assert re.search(r"\| made_up \| made:up-a \| 4 \| -9\.1 % \|", page), page


def leaves_documents_out(folder):
    """A run of a document that a fit has runs of is predicted without that fit."""
    rows = [row("github:mosaicml/llm-foundry", 0, 2, 8, "pytorch-fsdp")]
    rows[0]["model"].update(hidden=1536, layers=24, heads=12, kv_heads=12, ffn_hidden=6144)  # MPT-760M, which the fit has
    path = write_json(folder / "one.json", rows)

    def predicted(*flags):
        done = planner("validate", path, "--json", *flags)
        assert done.returncode == OK, done.stderr
        return json.loads(done.stdout)["rows"][0]

    with_fit, without = predicted(), predicted("--leave-out-sources")
    assert with_fit["basis"] == "fit" and with_fit["source_known"], with_fit
    assert without["basis"] != "fit" and not without["source_known"], without
    width = [one["predicted"]["step_time_high_s"] / one["predicted"]["step_time_low_s"]
             for one in (with_fit, without)]
    assert width[0] < width[1], width
    # Typical rates leave its fits out, too.
    assert predicted("--calibration", "typical")["predicted"]["step_time_s"] != (
        predicted("--calibration", "typical", "--leave-out-sources")["predicted"]["step_time_s"])


def fits_of_several_documents_are_made_again(folder):
    """Without each document, of the runs of the others."""
    spreads = load_script("spreads")
    made_up(folder)
    cases = json.loads((folder / "made_up.json").read_text())
    spreads.CALIBRATIONS = folder / "calibrations"
    spreads.CALIBRATIONS.mkdir()
    three = [case for case in cases if not case["id"].startswith("made:up-d")]
    done = planner("fit", write_json(folder / "three.json", three), "--cluster", "dgx-a100-80gb",
                   "--framework", "pytorch-fsdp", "-o", spreads.CALIBRATIONS / "fit.json")
    assert done.returncode == OK, done.stderr
    found = list(spreads.fits_again(BIN / "planner", {folder / "made_up.json": cases}, folder))
    assert [document for _, document, _ in found] == ["made:up-a", "made:up-b", "made:up-c"], found
    for framework, document, path in found:
        fitted = json.loads(path.read_text())["fitted"]
        others = {"made:up-a", "made:up-b", "made:up-c"} - {document}
        assert framework == "pytorch-fsdp" and fitted["runs"] == 8, fitted
        assert {source.split("@")[0] for source in fitted["sources"]} == others, fitted["sources"]


def main():
    for test in (finds_what_was_made_up, leaves_documents_out,
                 fits_of_several_documents_are_made_again):
        with tempfile.TemporaryDirectory() as folder:
            test(pathlib.Path(folder))


if __name__ == "__main__":
    main()
