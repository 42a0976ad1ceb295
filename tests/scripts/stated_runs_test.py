"""planner validate --stated writes runs that are predicted as their raw rows are, each fact with its source."""

import json
import pathlib
import sys
import tempfile

from programs import BAD_INPUT, INFEASIBLE, OK, USAGE, planner, write_json


def row(name, document, place, **more):
    return {
        "id": name, "use": "public", "source": {"repo_or_doc": document, "path_or_issue": place},
        "hardware": {"gpu": "B200-SXM", "gpus": 8, "gpus_per_node": 8},
        "model": {"name": "llama3", "hidden": 1024, "layers": 4, "heads": 16, "vocab": 128256, "seq_len": 1024},
        "parallel": {"tp": 2, "pp": 1, "dp": 4}, "batch": {"micro": 1, "global": 16}, "precision": "bf16",
        "recompute": "none", "attention": "flash", "measured": {"step_time_s": 0.1}, "framework": "megatron-core",
        **more,
    }


def validated(path, *arguments):
    done = planner("validate", path, "--json", *arguments)
    assert done.returncode == OK, done.stderr
    return json.loads(done.stdout)["rows"]


def stated_runs_are_predicted_alike(folder):
    rows = [row("known", "github:MooreThreads/SimuMax@4dcaae5 (Apache-2.0)", "case llama3_405b_l4"),
            row("unknown", "github:somebody/runs", "page 1"),
            row("own", "github:somebody/runs", "page 2", stated={"framework": "torchtitan"},
                parallel={"tp": 1, "pp": 1, "dp": 8, "zero_stage": 3})]
    raw = write_json(folder / "runs.json", rows)
    stated = folder / "made" / "stated"  # --stated makes its folder
    before = validated(raw, "--stated", stated)
    assert [run["framework"] for run in before] == ["megatron-lm", "megatron-lm", "torchtitan"], before
    assert validated(stated / "runs.json") == before
    first, second, _ = json.loads((stated / "runs.json").read_text())
    vocabulary, = [said for said in first["statements"] if said["field"] == "model.vocab"]
    assert vocabulary["value"] == 128257 and "NullTokenizer" in vocabulary["source"], vocabulary
    assert not [said for said in second["statements"] if said["field"] == "model.vocab"]
    assert any(said["settled_by_results"] for said in first["statements"])
    done = planner("validate", raw, "--stated", folder)
    assert done.returncode in (USAGE, BAD_INPUT) and json.loads(raw.read_text()) == rows, "it overwrites no input"


def bad_statements_are_refused(folder):
    for stated, word in (({"framework": "ours"}, "/0/stated/framework"), ({"cluster": "ours"}, "/0/stated/cluster"),
                         ({"recompute": "some"}, "/0/stated/recompute"), ({"framewerk": "x"}, "framework")):
        done = planner("validate", write_json(folder / "bad.json", [row("a", "doc", "page", stated=stated)]))
        assert done.returncode == BAD_INPUT and word in done.stderr, (stated, done.stderr)


def what_runs_are_taken_for_is_printed(folder):
    """A name of nvidia-smi, with its memory, is not another GPU; a cluster that no run is on is named with those that are."""
    gpu = {"gpu": "NVIDIA A100-SXM4-80GB", "gpu_mem_gb": 80, "gpus": 8, "gpus_per_node": 8}
    rows = write_json(folder / "own.json", [row(f"own-{i}", "github:somebody/log", "line 1", hardware=gpu) for i in range(2)])
    done = planner("validate", rows)
    assert done.returncode == OK and "2 rows  dgx-a100-80gb, megatron-lm, " in done.stdout, done.stdout
    assert "own-1: dgx-a100-80gb, megatron-lm, " in done.stdout and "mp=2" in done.stdout, done.stdout
    fit = ("fit", rows, "--cluster")
    for cluster, framework, returncode, words in (
            ("dgx-a100-80gb", "megatroon", USAGE, 'no framework is called "megatroon"'),
            ("dgx-a100-80gb", "megatron-lm-flex", USAGE, "--framework megatron-lm"),
            ("dgx-a100-40gb", "megatron-lm", INFEASIBLE, "2 on dgx-a100-80gb with megatron-lm"),
            ("no-such-cluster", "megatron-lm", BAD_INPUT, "no-such-cluster")):
        done = planner(*fit, cluster, "--framework", framework)
        assert done.returncode == returncode and words in done.stderr, (cluster, framework, done.stderr)


def main():
    with tempfile.TemporaryDirectory() as folder:
        stated_runs_are_predicted_alike(pathlib.Path(folder))
        bad_statements_are_refused(pathlib.Path(folder))
        what_runs_are_taken_for_is_printed(pathlib.Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
