"""lab/accuracy: its pages are of what planner says of runs left out and of runs without a fit."""

import json
import pathlib
import re
import subprocess
import tempfile

from made_up_runs import made_up_runs, row
from programs import BAD_INPUT, BIN, OK, SOURCE, lab, load_script, write_json

CLUSTER, FRAMEWORK = "dgx-a100-40gb", "pytorch-fsdp"  # a pair with a built-in fit
FAMILY = "llm_foundry_mpt"  # one that docs/results/goals.json has goals for


def says_what_planner_says(folder):
    path = made_up_runs(folder / f"{FAMILY}.json", FRAMEWORK, "A100-40GB", 40)
    pages = folder / "pages"
    pages.mkdir()
    done = subprocess.run([SOURCE / "lab/accuracy", folder, "--bin", BIN, "--out", pages], capture_output=True, text=True, timeout=600)
    assert done.returncode == OK, done.stderr
    page = (pages / "accuracy.md").read_text()
    data = json.loads((pages / "accuracy.json").read_text())
    fitted = lab("fit", path, "--cluster", CLUSTER, "--framework", FRAMEWORK)
    assert fitted.returncode == OK, fitted.stderr
    mean = re.search(FAMILY + r", 12 left out by layout: mean \|error\| +([\d.]+) %", fitted.stdout)
    assert f"| made up | {CLUSTER} | {FRAMEWORK} | 12 |" in page, page
    assert data["fits"]["rows"][0]["layout"] == float(mean[1]), (data["fits"], mean[0])
    assert re.fullmatch(r"[1-4] of 4", data["goals"]["facts"]["layout"]), data["goals"]
    # 1 - 1 / 1.2 and 1 - 1 / 1.3 without a fit; what is typical differs from that.
    without = data["typical"]["facts"]
    assert without["runs"] == 12 and abs(float(without["own"]) - 19.9) < 0.11 and without["own"] != without["mean"], without
    calibrations = {}
    for name in ("built-in", "typical", "none"):
        done = lab("validate", path, "--json", "--calibration", name)
        calibrations[name] = {one["calibration"] for one in json.loads(done.stdout)["rows"]}
    assert calibrations == {"built-in": {f"{CLUSTER}--{FRAMEWORK}"}, "typical": {"typical"},
                            "none": {None}}, calibrations
    assert lab("validate", path, "--calibration", "other").returncode == BAD_INPUT
    done = lab("validate", path, "--json", "--calibration", "dgx-h100-80gb--pytorch-fsdp")
    missing = {one.get("missing", "") for one in json.loads(done.stdout)["rows"]}
    assert len(missing) == 1 and "dgx-h100-80gb" in missing.pop(), done.stdout
    errors = [abs(one["time_error_pct"]) for one in json.loads(lab("validate", path, "--json", "--calibration", "typical").stdout)["rows"]]
    assert without["mean"] == f"{sum(errors) / 12:.1f}", (without, errors)
    assert data["families"]["rows"][0]["rows"] == 12, data["families"]
    memory = json.loads((pages / "memory.json").read_text())
    assert memory["verdicts"]["rows"][-1] == {"runs": "all", "ran": 12, "called_too_large": 0, "out_of_memory": 0,
                                              "called_to_fit": 0}, memory["verdicts"]


def runs_without_anything_typical(folder):
    rows = [row(2048, 1024, gpus, "megatron-lm", "A100-40GB", 40) for gpus in (2, 4)]
    for one in rows:
        one["attention"] = "unfused"
        one["recompute"] = "full"
        one["parallel"]["zero_stage"] = None
    write_json(folder / "tables.json", rows)
    done = subprocess.run([SOURCE / "lab/accuracy", folder, "--bin", BIN], capture_output=True,
                          text=True, timeout=600)
    assert done.returncode == OK, done.stderr
    assert "rates of other fits, 0 of them" in " ".join(done.stdout.split()), done.stdout
    assert done.stdout.count("# How exact predictions are\n") == 1, done.stdout


def judges_goals(accuracy):
    fits = [{"what": "layout", "count": 30, "mean": 2.0, "p90": 4.0, "spearman": 0.99, "width": 4.0,
             "held": 90.0},
            {"what": "layout", "count": 10, "mean": 6.0, "p90": 9.0, "spearman": 0.93, "width": 8.0,
             "held": 70.0}]
    goal = {"family": "x", "of": "time", "most_mean_abs_pct": 4, "least_spearman": 0.95,
            "least_interval90_coverage": 0.85, "most_interval90_to_error": 2.5}
    found = [(round(value, 9), met) for _, value, _, met in accuracy.goals_of_unseen(goal, fits)]
    assert found == [(3.0, True), (0.93, False), (0.85, True), (round(5 / 3, 9), True)], found
    fits[1]["count"] = accuracy.LEAST_RUNS_OF_ORDER - 1  # too few for an order
    found = {what: value for what, value, _, _ in accuracy.goals_of_unseen(goal, fits)}
    assert found["x Spearman, of its worst fit"] == 0.99, found


def counts_skipped_rows_by_reason(accuracy, folder):
    """Numbers do not tell reasons apart; tables of other kinds are no runs."""
    path = write_json(folder / "runs.json", [{"id": "a", "model": {"name": "m", "experts": 8}, "measured": {}}])
    write_json(folder / "ops.json", {"kernels": []})
    files, _ = accuracy.read_files(folder)
    assert list(files) == [path.stem], files
    rows = [{"id": "a", "missing": "a: batch 12 of fp8"}, {"id": "b", "missing": "b: batch 7 of fp8"}, {"id": "c"},
            {"id": "d", "missing": "offload"}]
    section = accuracy.skipped_section(rows)
    assert section["rows"] == [{"why": "batch n of fp8", "rows": 2}, {"why": "offload", "rows": 1}], section
    assert section["facts"] == {"all": "4", "skipped": 3}, section


def experts_are_rows_of_documents(accuracy, folder):
    """Models of one document are one row, and the last row has all runs."""
    path = write_json(folder / "experts.json", [{"id": name, "model": {"name": model, "experts": 8}} for name, model in
                                                (("a", "m"), ("b", "n"), ("c", "m"))])

    def predicted(name, document, error):
        return {"id": name, "source": f"github:{document}@1 (2026)", "time_error_pct": error,
                "predicted": {"step_time_low_s": 0.9, "step_time_high_s": 1.1, "memory_allocated_bytes": 3},
                "measured": {"step_time_s": 1 - error / 100, "memory_allocated_bytes": 2 if name == "a" else None}}

    rows = [predicted("a", "x/y", -20.0), predicted("b", "x/y", 10.0), predicted("c", "z", 4.0), {"id": "d"}]
    first, second, everything = accuracy.expert_runs.expert_rows({"experts": path}, rows)
    assert (first["document"], first["models"], first["rows"], first["mean"], first["worst"]) == ("x/y", "m, n", 2, 15.0, -20.0), first
    assert (second["document"], second["held"], second["memory"]) == ("z", 100.0, None), second
    assert (everything["document"], everything["rows"], everything["median"], everything["memory"]) == ("all", 3, 10.0, 50.0), everything


def files_are_named_by_their_documents(accuracy, folder):
    """Files of one document are told apart by their names; a version and a remark are no part of a document's name."""
    def written(name, *sources):
        return write_json(folder / f"{name}.json", [{"source": {"repo_or_doc": source}} for source in sources])

    files = {name: written(name, *sources) for name, sources in {
        "one": ["github:x/y@1 (2026)"], "two": ["github:x/y@2"], "mixed": ["a issue b#1 (by c)", "arXiv:1"]}.items()}
    documents = accuracy.expert_runs.documents_of(files)
    assert documents == {"one": "x/y (one)", "two": "x/y (two)", "mixed": "a issue b#1, arXiv:1"}, documents
    rows = accuracy.named([{"runs": "mixed"}, {"runs": "all"}], documents)
    assert [row["runs"] for row in rows] == ["a issue b#1, arXiv:1", "all"], rows


def main():
    judges_goals(load_script("accuracy"))
    with tempfile.TemporaryDirectory() as name:
        counts_skipped_rows_by_reason(load_script("accuracy"), pathlib.Path(name))
        experts_are_rows_of_documents(load_script("accuracy"), pathlib.Path(name))
        files_are_named_by_their_documents(load_script("accuracy"), pathlib.Path(name))
    with tempfile.TemporaryDirectory() as name:
        says_what_planner_says(pathlib.Path(name))
    with tempfile.TemporaryDirectory() as name:
        runs_without_anything_typical(pathlib.Path(name))


main()
