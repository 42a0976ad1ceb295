"""lab/published-choices: which rows it takes, what it says of them, and one made-up run planned."""

import copy
import json
import pathlib
import re
import subprocess
import tempfile

from programs import BIN, OK, SOURCE, USAGE, load_script, planner, write_json

script = load_script("published-choices")
CASE = {
    "id": "made_up/0", "use": "public", "source": {"repo_or_doc": "made:up@1 (2026)", "path_or_issue": "page 1"},
    "hardware": {"gpu": "A100-80GB", "gpus": 8, "gpus_per_node": 8, "interconnect": "NVLink"},
    "model": {"name": "MPT", "hidden": 2048, "layers": 4, "heads": 16, "kv_heads": 16, "ffn_hidden": 8192,
              "vocab": 50368, "seq_len": 1024},
    "parallel": {"tp": 1, "pp": 1, "dp": 8, "zero_stage": 3}, "batch": {"micro": 1, "global": 16},
    "precision": "bf16", "recompute": "full", "attention": "flash", "measured": {"step_time_s": 1.0},
    "framework": "pytorch-fsdp", "needs": [],
}


def changed(case, **changes):
    other = copy.deepcopy(case)
    for path, value in changes.items():
        *folders, key = path.split("__")
        part = other
        for folder in folders:
            part = part[folder]
        part[key] = value
    return other


def check_rows():
    assert script.states_its_split(CASE, 1024)
    for path, value in (("recompute", "unknown"), ("recompute", None), ("batch__micro", None),
                        ("parallel__pp", None), ("hardware__gpus", 4), ("hardware__gpus", 2048)):
        assert not script.states_its_split(changed(CASE, **{path: value}), 1024), (path, value)


def target_of(case, document, cluster, step):
    row = {"source": document, "cluster": cluster, "framework": "any", "measured": {"step_time_s": step}}
    return script.Target(case["id"], row, case, None, None)


def check_order():
    few, many = changed(CASE, id="few"), changed(CASE, id="many", hardware__gpus=16)
    slow = changed(many, id="slow")
    documents = script.in_turn([target_of(few, "b", "x", 1.0), target_of(slow, "b", "x", 3.0),
                                target_of(many, "b", "x", 2.0), target_of(few, "a", "y", 1.0)])
    assert [[[target.id for target in group] for group in of] for of in documents.values()] == [
        [["few"]], [["many", "slow", "few"]]], documents
    assert list(documents) == ["a", "b"]


def check_words():
    done = planner("simulate", "gpt2-medium", "sharding_degree=8", "--cluster", "dgx-a100-80gb", "--devices", 8,
                   "--global-batch", 64, "--json")
    assert done.returncode == OK, done.stderr
    strategy = json.loads(done.stdout)["strategy"]
    assert script.words(strategy) == "sharding_degree=8 sharding_stage=1"
    terms = {f"{part}_ps": 0 for part in script.PARTS}
    stage = {"reserved_bytes": 40, "outside_program_bytes": 10, "capacity_bytes": 100}
    waits = [{"collective": "all-reduce", "link": "network", "wait_ps": 100, "transfer_ps": 300, "hidden_ps": 900}] * 2
    one = {"strategy": strategy, "terms": {**terms, "forward_ps": 200, "step_time_ps": 1000, "communication": waits},
           "memory": {"stages": [{**stage, "reserved_bytes": 20}, stage]}}
    other = {"strategy": {**strategy, "mp": 2}, "memory": {"stages": [{**stage, "reserved_bytes": 87}]},
             "terms": {**terms, "forward_ps": 205, "step_time_ps": 205, "communication": []}}
    assert script.gains(one, other) == "all-reduce on network 80.0" and script.gains(one, one) == "-"
    assert script.filled(one) == 0.5 and script.filled(other) == 0.97
    assert script.doubts(one, other, 1) == "over 95% full, mp across nodes"
    assert script.doubts(one, one, 8) == "-"


def run(*arguments):
    command = [SOURCE / "lab/published-choices", *map(str, arguments), "--bin", BIN]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def check_run():
    with tempfile.TemporaryDirectory() as folder:
        write_json(pathlib.Path(folder) / "made_up.json", [CASE, changed(CASE, id="made_up/1", recompute="unknown")])
        done = run(folder)
        assert done.returncode == OK, done.stdout + done.stderr
        head, _, row, empty, last = done.stdout.splitlines()
        cells = [cell.strip() for cell in row.split("|")][1:-1]
        assert len(cells) == len(head.split("|")) - 2 and cells[0] == "made_up/0", row
        assert "recompute=full" in cells[2] and "recompute" not in cells[5] and cells[9] == "proven", row
        ratio, low, high = (float(number) for number in re.match(r"(\S+) \((\S+) to (\S+)\), ", cells[7]).groups())
        assert low < ratio < high and ratio < 1, row
        assert not empty and last.startswith("1 rows: 1 searches proven;"), last
    with tempfile.TemporaryDirectory() as folder:
        assert "no run that ran" in run(folder).stderr
    assert run(SOURCE, "--rows", "many").returncode == USAGE


check_rows()
check_order()
check_words()
check_run()
