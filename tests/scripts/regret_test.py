"""lab/regret: what policies lose on made-up tables, of which the right answer is known."""

import json
import pathlib
import subprocess
import tempfile

from programs import BIN, OK, OUTSIDE_TOLERANCE, SOURCE, lab, load_script, write_json


def row(source, tp, micro, measured=1.0):
    """A layout on one node. Micro-batches of 6 are unusual."""
    return {
        "id": f"{source}/{tp}-{micro}", "use": "public", "source": {"repo_or_doc": f"{source}@1 (2026)", "path_or_issue": "page 1"},
        "hardware": {"gpu": "A100-80GB", "gpus": 8, "gpus_per_node": 8, "interconnect": "NVLink"},
        "model": {"name": "GPT", "hidden": 2048, "layers": 4, "heads": 16, "kv_heads": 16, "ffn_hidden": 8192, "vocab": 50304,
                  "seq_len": 1024},
        "parallel": {"tp": tp, "pp": 1, "dp": 8 // tp, "zero_stage": 1}, "batch": {"micro": micro, "global": 96},
        "precision": "bf16", "recompute": "none", "attention": "flash", "measured": {"step_time_s": measured},
        "framework": "megatron-lm", "needs": [],
    }


def regrets(folder, rows):
    path = write_json(folder / "made_up.json", rows)
    command = [SOURCE / "lab/regret", path, "--bin", BIN, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode in (OK, OUTSIDE_TOLERANCE), done.stderr
    return done.returncode, json.loads(done.stdout)


def predicted(folder, rows):
    done = lab("validate", write_json(folder / "predicted.json", rows), "--leave-out-sources", "--json")
    assert done.returncode == OK, done.stderr
    return {one["id"]: one for one in json.loads(done.stdout)["rows"]}


def finds_what_was_made_up(folder):
    """The fastest prediction has the odd micro-batch; where it was slower in truth, following it costs that much."""
    rows = [row(source, 1, micro) for source in ("made:up-a", "made:up-b") for micro in (2, 4, 6)]
    found = predicted(folder, rows)
    odd, even = (found[f"made:up-a/1-{micro}"] for micro in (6, 4))
    assert [one["choice"] for one in odd["unusual"]] == ["odd_micro_batch"] and not even["unusual"], (odd, even)
    gain = even["predicted"]["step_time_s"] / odd["predicted"]["step_time_s"] - 1
    assert 0 < gain < 0.03, gain  # else the table is no example
    for one in rows:
        one["measured"]["step_time_s"] = {2: 2.0, 4: 1.0, 6: 1.25}[one["batch"]["micro"]]
    code, result = regrets(folder, rows)
    assert code == OK, result
    *sources, everything = result["sources"]
    assert [one["source"] for one in sources] == ["made:up-a", "made:up-b"], sources
    assert everything["groups"] == 2, everything
    assert abs(everything["fastest_mean"] - 25) < 1e-9 and everything["recommended_worst"] == 0, everything
    assert everything["recommended_best_of_three"] == everything["recommended_after_trials"] == 0 and everything["spearman"] == 0.5, everything
    assert result["large"]["count"] == 0, result["large"]  # tables of three layouts
    assert {goal["goal"].split()[0] for goal in result["goals"]} == {"regret"} and all(goal["met"] for goal in result["goals"])
    choices = {one["choice"]: one for one in result["choices"]}
    assert choices["odd_micro_batch"]["groups"] == 2 and choices["context_split"]["groups"] == 0, choices
    assert choices["context_split"]["fitted"] == choices["context_split"]["gain"], choices
    # Where the odd micro-batch is faster in truth, too, the recommended plan loses, and the script says so.
    for one in rows:
        one["measured"]["step_time_s"] = {2: 2.0, 4: 1.25, 6: 1.0}[one["batch"]["micro"]]
    code, result = regrets(folder, rows)
    assert code == OUTSIDE_TOLERANCE and result["sources"][-1]["recommended_mean"] > 24.9, result
    assert not result["goals"][0]["met"] and result["worst"][0]["regret"] > 24.9, result
    choices = {one["choice"]: one for one in result["choices"]}
    assert choices["odd_micro_batch"]["fitted"] < choices["odd_micro_batch"]["gain"], choices


def gains_are_fitted_on_other_sources():
    regret = load_script("regret")

    in_force = {"odd": 0.03, "tight": 1}

    def layout(step, measured, **unusual):
        return {"predicted_s": step, "measured_s": measured, "fits": True,
                "unusual": [{"choice": choice, "gain": gain} for choice, gain in unusual.items()]}

    def group(*layouts):
        return regret.Group([regret.Layout(one, in_force) for one in layouts])

    def source(name):
        return {"source": name, "groups": 1, "recommended": {}, "fastest": {}, "spearman": None}

    slower = group(layout(1.0, 1.5, odd=0.03), layout(1.04, 1.0), layout(2, 2))
    faster = group(layout(1.0, 1.0, odd=0.03), layout(1.04, 1.5), layout(2, 2))
    assert regret.fitted({"a": [slower]}, in_force) == {**in_force, "odd": 0.06}
    assert regret.fitted({"b": [faster]}, in_force) == in_force
    both = {"a": [slower], "b": [faster]}
    assert abs(regret.source_row(source("b"), both, in_force)["fitted_mean"] - 50) < 1e-9
    assert abs(regret.source_row(source("a"), both, in_force)["fitted_mean"] - 50) < 1e-9

    # A layout that ran out of memory costs a failed start, and the next one its regret over the best.
    failing = group(layout(1.0, None, tight=0.5), layout(1.2, 1.1), layout(1.3, 1.0), layout(2, 2))
    assert abs(failing.cost({}) - (regret.FAILED_START + 0.1)) < 1e-9
    assert abs(failing.cost(in_force) - 0.1) < 1e-9
    assert regret.fitted({"a": [failing]}, {**in_force, "tight": 0.1})["tight"] == 0.1  # twice that does not help


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        finds_what_was_made_up(pathlib.Path(temporary))
    gains_are_fitted_on_other_sources()
