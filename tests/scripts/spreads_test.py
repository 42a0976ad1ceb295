"""lab/spreads: intervals by documents left out, as what planner says of made-up runs gives them."""

import itertools
import json
import math
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile

from programs import BIN, OK, SOURCE, lab, load_script, write_json

sys.path.insert(0, str(SOURCE / "lab"))
import spread_model  # noqa: E402  (scripts/ is no package)

# How much longer runs of each document take than the cluster's own numbers say.
SLOWER = {"made:up-a": 1.1, "made:up-b": 1.2, "made:up-c": 1.3, "made:up-d": 1.2}
# Sizes of models. The built-in fit has the second one.
SIZES = ({"hidden": 2048, "layers": 4, "heads": 16, "kv_heads": 16, "ffn_hidden": 8192},
         {"hidden": 1536, "layers": 24, "heads": 12, "kv_heads": 12, "ffn_hidden": 6144})
LAYOUTS = ((1, 4), (2, 4), (2, 8), (4, 8))  # micro-batch and GPUs


def row(document, index, micro, gpus, size=SIZES[0]):
    return {
        "id": f"{document}/{index}", "use": "public",
        "source": {"repo_or_doc": f"{document}@1 (2026)", "path_or_issue": "page 1"},
        "hardware": {"gpu": "A100-80GB", "gpus": gpus, "gpus_per_node": 8, "interconnect": "NVLink"},
        "model": {"name": "MPT", "vocab": 50368, "seq_len": 1024, **size},
        "parallel": {"tp": 1, "pp": 1, "dp": gpus, "zero_stage": 3},
        "batch": {"micro": micro, "global": micro * gpus}, "precision": "bf16", "recompute": "none",
        "attention": "flash", "measured": {"step_time_s": 1.0}, "framework": "pytorch-fsdp", "needs": [],
    }


def made_up(folder):
    rows = [row(document, index, *layout, size) for document in SLOWER
            for index, (size, layout) in enumerate(itertools.product(SIZES, LAYOUTS))]
    path = write_json(folder / "made_up.json", rows)
    done = lab("validate", path, "--json", "--calibration", "none")
    assert done.returncode == OK, done.stderr
    for one, found in zip(rows, json.loads(done.stdout)["rows"]):
        slower = SLOWER[found["source"]]
        one["measured"]["step_time_s"] = slower * found["predicted"]["step_time_s"]
    write_json(path, rows)


def finds_what_was_made_up(folder):
    made_up(folder)
    output = folder / "spreads" / "step-time.json"
    output.parent.mkdir()
    command = [SOURCE / "lab/spreads", folder, "--bin", BIN, "--output", output, "--out", output.parent]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == OK, done.stderr
    written = json.loads(output.read_text())
    assert written["documents"] == sorted(SLOWER), written
    kernels = written["step_time"]["kernels"]
    logs = [math.log(slower) for slower in SLOWER.values()]
    centre = statistics.median(logs)
    assert abs(kernels["centre"] - centre) < 2e-4, kernels
    # Nine in ten are not below the document that is farthest off. Another one's are wider by Student's t of three degrees of
    # freedom over the normal quantile. No cause tells the documents apart.
    farthest = max(abs(log - centre) for log in logs)
    assert abs(kernels["half_width"] - 2.353 / 1.645 * farthest * math.sqrt(1.25)) < 2e-4, kernels
    assert set(written["causes"].values()) == {0.0} and len(written["causes"]) == 6, written["causes"]
    assert kernels["documents"] == 4 and kernels["runs"] == 32
    for basis in ("fit", "fit_of_model"):  # runs of a size that the fit has are a basis of their own
        assert (written["step_time"][basis]["documents"], written["step_time"][basis]["runs"]) == (4, 16), written
    # Steps of one document are off alike: nothing is left of ratios.
    difference = written["difference"]["kernels"]
    assert difference["any"] < 1e-3 and difference["other_shapes"] < 1e-3, difference
    assert re.search(r"\| made_up \| made:up-a \| 8 \| -9.1 %", done.stdout), done.stdout
    assert len(re.findall(r"\| made_up \| made:up-a \| 4 \|", done.stdout)) == 2, done.stdout  # both kinds of fits
    rows = {row["basis"]: row for row in json.loads((output.parent / "accuracy.json").read_text())["intervals"]["rows"]}
    assert (rows["kernels"]["documents"], rows["kernels"]["rows"], rows["fit"]["rows"]) == (4, 32, 16), rows
    assert 12 < rows["kernels"]["error"] < 25, rows


def causes_are_found():
    """Runs that are off by what the host has of them: wide where it has much, narrow where it has nothing."""
    drawn = random.Random(2)
    runs = {"typical": [], "fit": []}
    for basis, document in itertools.product(runs, range(30)):
        own = drawn.gauss(0, 0.1)
        for _ in range(20):
            host, bubble = drawn.choice((0.0, 0.5)), drawn.random()
            error = own + host * drawn.gauss(0, 0.8)
            runs[basis].append(spread_model.Run(str(document), basis, error, 0.0, [bubble, host]))
    spreads = spread_model.spreads_of(runs, (), [0.0, 0.0])
    assert spreads.causes[0] < 0.1 and 0.8 < spreads.causes[1] < 1.8, spreads
    assert all(0.1 < half < 0.25 for half in spreads.halves.values()), spreads
    start = [half ** 2 for half in spreads.causes]
    shares = []
    for document in range(30):
        others = spread_model.spreads_without(runs, (), start, str(document))
        shares += [statistics.mean(map(others.holds, of[str(document)])) for of in map(spread_model.by_document, runs.values())]
    assert 0.85 <= statistics.mean(shares) <= 0.95, statistics.mean(shares)


def leaves_documents_out(folder):
    """A run of a document that a fit has runs of is predicted without that fit."""
    rows = [row("github:mosaicml/llm-foundry", 0, 2, 8, SIZES[1])]
    path = write_json(folder / "one.json", rows)

    def predicted(*flags):
        done = lab("validate", path, "--json", *flags)
        assert done.returncode == OK, done.stderr
        return json.loads(done.stdout)["rows"][0]

    with_fit, without = predicted(), predicted("--leave-out-sources")
    assert with_fit["basis"] == "fit_of_model" and with_fit["source_known"], with_fit
    assert not without["basis"].startswith("fit") and not without["source_known"], without
    # Typical rates leave its fits out, too.
    assert predicted("--calibration", "typical")["predicted"]["step_time_s"] != (
        predicted("--calibration", "typical", "--leave-out-sources")["predicted"]["step_time_s"])
    rows[0]["source"]["repo_or_doc"] = "made:up-a@1 (2026)"
    write_json(path, rows)
    of_others = predicted()
    assert of_others["basis"] == "fit_of_model" and not of_others["source_known"], of_others
    rows[0]["model"].update(SIZES[0])
    write_json(path, rows)
    assert predicted()["basis"] == "fit"
    width = [one["predicted"]["step_time_high_s"] / one["predicted"]["step_time_low_s"]
             for one in (with_fit, of_others, predicted())]
    assert width[0] < width[1] <= 1.02 * width[2], width


def a_fit_of_several_documents_keeps_the_others(folder):
    """Runs of one of its documents are predicted by the fit of the rest."""
    rows = json.loads((SOURCE / "models/presets/calibrations/dgx-h100-80gb--megatron-lm.json").read_text())
    documents = {source.split("@")[0].split(",")[0] for source in rows["fitted"]["sources"]}
    assert len(documents) > 1, documents
    one = row(sorted(documents)[0], 0, 1, 8)
    one["hardware"] = {"gpu": "H100-80GB", "gpus": 8, "gpus_per_node": 8, "interconnect": "NVLink"}
    one["framework"] = "megatron-lm core_v0.12"
    done = lab("validate", write_json(folder / "one.json", [one]), "--json", "--leave-out-sources")
    assert done.returncode == OK, done.stderr
    found, = json.loads(done.stdout)["rows"]
    assert found["calibration"].startswith("dgx-h100-80gb--megatron-lm--without--") and not found["source_known"], found
    assert found["basis"].startswith("fit"), found


def pages_hold_nine_in_ten(folder):
    """Each basis holds about nine in ten runs of a document that it had not seen, each document once."""
    page = json.loads((SOURCE / "docs/results/accuracy.json").read_text())
    shown = {row["basis"]: row for row in page["intervals"]["rows"]}
    preset = json.loads((SOURCE / "models/presets/spreads/step-time.json").read_text())
    for basis, spread in preset["step_time"].items():
        row = shown[basis]
        assert 85 <= row["held"] <= 98, row
        assert (row["documents"], row["rows"]) == (spread["documents"], spread["runs"]), row
    assert set(preset["causes"]) == set(load_script("spreads").CAUSES), preset["causes"]


def main():
    causes_are_found()
    for test in (finds_what_was_made_up, leaves_documents_out, a_fit_of_several_documents_keeps_the_others,
                 pages_hold_nine_in_ten):
        with tempfile.TemporaryDirectory() as folder:
            test(pathlib.Path(folder))


if __name__ == "__main__":
    main()
