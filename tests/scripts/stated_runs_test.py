"""lab/state writes runs that are predicted as their raw rows are by lab/validate, each fact with its source. planner refuses raw rows."""

import json
import pathlib
import sys
import tempfile

from programs import BAD_INPUT, ENVIRONMENT, INFEASIBLE, OK, OUTSIDE_TOLERANCE, USAGE, lab, planner, write_json


def row(name, document, place, **more):
    return {
        "id": name, "use": "public", "source": {"repo_or_doc": document, "path_or_issue": place},
        "hardware": {"gpu": "B200-SXM", "gpus": 8, "gpus_per_node": 8},
        "model": {"name": "llama3", "hidden": 1024, "layers": 4, "heads": 16, "vocab": 128256, "seq_len": 1024},
        "parallel": {"tp": 2, "pp": 1, "dp": 4}, "batch": {"micro": 1, "global": 16}, "precision": "bf16",
        "recompute": "none", "attention": "flash", "measured": {"step_time_s": 0.1}, "framework": "megatron-core",
        **more,
    }


def validated(run, path, *arguments):
    done = run("validate", path, "--json", *arguments)
    assert done.returncode == OK, done.stderr
    return json.loads(done.stdout)["rows"]


def stated_runs_are_predicted_alike(folder):
    rows = [row("known", "github:MooreThreads/SimuMax@4dcaae5 (Apache-2.0)", "case llama3_405b_l4"),
            row("unknown", "github:somebody/runs", "page 1"),
            row("own", "github:somebody/runs", "page 2", stated={"framework": "torchtitan"},
                parallel={"tp": 1, "pp": 1, "dp": 8, "zero_stage": 3})]
    raw = write_json(folder / "runs.json", rows)
    stated = folder / "made" / "stated"  # -o makes its folder
    before = validated(lab, raw)
    assert [run["framework"] for run in before] == ["megatron-lm", "megatron-lm", "torchtitan"], before
    assert lab("state", raw, "-o", stated).returncode == OK
    assert validated(planner, stated / "runs.json") == before
    assert validated(lab, stated / "runs.json") == before, "a stated row is read as it is"
    first, second, _ = json.loads((stated / "runs.json").read_text())
    vocabulary, = [said for said in first["statements"] if said["field"] == "model.vocab"]
    assert vocabulary["value"] == 128257 and "NullTokenizer" in vocabulary["source"], vocabulary
    assert not [said for said in second["statements"] if said["field"] == "model.vocab"]
    assert any(said["settled_by_results"] for said in first["statements"])
    done = lab("state", raw, "-o", folder)
    assert done.returncode == USAGE and json.loads(raw.read_text()) == rows, "it overwrites no input"


def raw_rows_are_refused(folder):
    """The message names the row, and the command that states it."""
    raw = write_json(folder / "raw.json", [row("a", "github:somebody/runs", "page")])
    for command in (("validate", raw), ("fit", raw, "--cluster", "hgx-b200", "--framework", "megatron-lm")):
        done = planner(*command)
        assert done.returncode == BAD_INPUT and f"{raw}: at /0/statements" in done.stderr, done.stderr
        assert all(name in done.stderr for name in ("lab/state", "lab/validate", "lab/fit")), done.stderr


def messages_name_the_raw_file(folder):
    for bad, place in ((row("a", "doc", "page", precision=3), "/0/precision"), ({"id": "a"}, "/0"), (3, "/0")):
        path = write_json(folder / "bad.json", [bad])
        done = lab("validate", path, "--json")
        assert done.returncode == BAD_INPUT and str(path) in done.stderr and place in done.stderr, (bad, done.stderr)
        assert not done.stdout
    path = folder / "bad.json"
    for text in ("[", '[{"a": 1, "a": 2}]', "[NaN]", "[1e999]", "{}"):
        path.write_text(text)
        by_lab, by_planner = lab("validate", path), planner("validate", path)
        assert (by_lab.returncode, by_lab.stderr) == (by_planner.returncode, by_planner.stderr), (text, by_lab, by_planner)
        assert by_lab.returncode == BAD_INPUT


def outputs_are_written_where_they_were_asked_for(folder):
    """Also in place of a file of rows. A planner that is missing is named."""
    rows = [row(f"own-{i}", "github:somebody/log", f"line {i}") for i in range(8)]
    for i, run in enumerate(rows):
        run["model"] = {**run["model"], "layers": 4 + 4 * (i % 2)}
        run["parallel"] = {"tp": 1 + i // 4, "pp": 1, "dp": 8 // (1 + i // 4)}
        run["batch"] = {"micro": 1, "global": 16 * (i + 1)}
        run["measured"] = {"step_time_s": 0.1 * (i + 1)}
    raw, output = write_json(folder / "fitted.json", rows), write_json(folder / "old.json", rows)
    done = lab("fit", raw, "--cluster", "hgx-b200", "--framework", "megatron-lm", "-o", output)
    assert done.returncode == OK and "fitted" in json.loads(output.read_text()), done.stderr
    done = lab("validate", "--bin", folder, raw)
    assert done.returncode == ENVIRONMENT and str(folder / "planner") in done.stderr, done


def goals_and_traces_pass_through(folder):
    trace = {"id": "t", "initial": {"segments": [], "live": []}, "events": [["S", 2097152, 4096], ["a", 1, 1000, 4096]]}
    goals = write_json(folder / "goals.json", {"goals": [{"family": "few", "of": "time", "most_mean_abs_pct": 0.001}]})
    done = lab("validate", write_json(folder / "few.json", [row("a", "github:somebody/runs", "page")]),
               write_json(folder / "traces.json", [trace]), "--goals", goals, "--json")
    found = json.loads(done.stdout)
    assert done.returncode == OUTSIDE_TOLERANCE and not found["goals"][0]["met"] and found["allocator_traces"], done
    assert found["families"][0]["name"] == "few", found["families"]


def bad_statements_are_refused(folder):
    for stated, word in (({"framework": "ours"}, "/0/stated/framework"), ({"cluster": "ours"}, "/0/stated/cluster"),
                         ({"recompute": "some"}, "/0/stated/recompute"), ({"framewerk": "x"}, "framework")):
        done = lab("validate", write_json(folder / "bad.json", [row("a", "doc", "page", stated=stated)]))
        assert done.returncode == BAD_INPUT and word in done.stderr, (stated, done.stderr)


def what_runs_are_taken_for_is_printed(folder):
    """A name of nvidia-smi, with its memory, is not another GPU; a cluster that no run is on is named with those that are."""
    gpu = {"gpu": "NVIDIA A100-SXM4-80GB", "gpu_mem_gb": 80, "gpus": 8, "gpus_per_node": 8}
    rows = write_json(folder / "own.json", [row(f"own-{i}", "github:somebody/log", "line 1", hardware=gpu) for i in range(2)])
    done = lab("validate", rows)
    assert done.returncode == OK and "2 rows  dgx-a100-80gb, megatron-lm, " in done.stdout, done.stdout
    assert "own-1: dgx-a100-80gb, megatron-lm, " in done.stdout and "mp=2" in done.stdout, done.stdout
    fit = ("fit", rows, "--cluster")
    for cluster, framework, returncode, words in (
            ("dgx-a100-80gb", "megatroon", USAGE, 'no framework is called "megatroon"'),
            ("dgx-a100-80gb", "megatron-lm-flex", USAGE, "--framework megatron-lm"),
            ("dgx-a100-40gb", "megatron-lm", INFEASIBLE, "2 on dgx-a100-80gb with megatron-lm"),
            ("no-such-cluster", "megatron-lm", BAD_INPUT, "no-such-cluster")):
        done = lab(*fit, cluster, "--framework", framework)
        assert done.returncode == returncode and words in done.stderr, (cluster, framework, done.stderr)


def main():
    with tempfile.TemporaryDirectory() as folder:
        stated_runs_are_predicted_alike(pathlib.Path(folder))
        raw_rows_are_refused(pathlib.Path(folder))
        messages_name_the_raw_file(pathlib.Path(folder))
        outputs_are_written_where_they_were_asked_for(pathlib.Path(folder))
        goals_and_traces_pass_through(pathlib.Path(folder))
        bad_statements_are_refused(pathlib.Path(folder))
        what_runs_are_taken_for_is_printed(pathlib.Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
