"""Published runs that nobody measured, for tests of fits and of pages."""

import json
import sys

from programs import OK, SOURCE, lab, write_json


def row(hidden, sequence, gpus, framework, gpu, gpu_mem_gb):
    return {
        "id": f"made up/{hidden}-{sequence}-{gpus}", "use": "public",
        "source": {"repo_or_doc": "made up", "path_or_issue": "tests/scripts/made_up_runs.py"},
        "hardware": {"gpu": gpu, "gpu_mem_gb": gpu_mem_gb, "gpus": gpus, "gpus_per_node": 8, "interconnect": "NVLink"},
        "model": {"name": "MPT", "hidden": hidden, "layers": 4, "heads": hidden // 128,
                  "kv_heads": hidden // 128, "ffn_hidden": 4 * hidden, "vocab": 50368,
                  "seq_len": sequence, "params": None},
        "parallel": {"tp": 1, "pp": 1, "dp": gpus, "vpp": 1, "cp": 1, "zero_stage": 3 if "fsdp" in framework else 1,
                     "sequence_parallel": False},
        "batch": {"micro": 2, "global": 2 * gpus}, "precision": "bf16", "recompute": "none",
        "attention": "flash", "measured": {"step_time_s": 1.0}, "framework": framework, "needs": [],
    }


def stated(rows):
    """Raw rows with the facts that the rules of lab/ state, as planner reads them."""
    if (folder := str(SOURCE / "lab")) not in sys.path:
        sys.path.insert(0, folder)
    import stated_files
    return stated_files.Stater().rows(rows, "rows")


def stated_runs(path, framework, gpu, gpu_mem_gb):
    """Writes the runs of made_up_runs() as stated rows."""
    return write_json(path, stated(json.loads(made_up_runs(path, framework, gpu, gpu_mem_gb).read_text())))


def made_up_runs(path, framework, gpu, gpu_mem_gb):
    """Writes twelve runs, 20 and, of the larger model, 30 % slower than the presets' own numbers say."""
    rows = [row(hidden, sequence, gpus, framework, gpu, gpu_mem_gb) for hidden in (2048, 4096)
            for sequence in (1024, 4096) for gpus in (2, 4, 8)]
    write_json(path, rows)
    done = lab("validate", path, "--json", "--calibration", "none")
    assert done.returncode == OK, done.stderr
    found = {one["id"]: one for one in json.loads(done.stdout)["rows"]}
    for one in rows:
        time = found[one["id"]]["predicted"]["step_time_s"]
        slower = 1.3 if one["model"]["hidden"] == 4096 else 1.2
        one["measured"]["step_time_s"] = slower * time
    return write_json(path, rows)


def megatron_log(path, step_s, global_batch, steps=40, factor=lambda step: 1):
    """Writes the lines that Megatron-LM prints of steps that take as long, times a factor; the first one takes five times that."""
    lines = []
    for step in range(1, steps + 1):
        time = step_s * factor(step) * (5 if step == 1 else 1 + (step % 3 - 1) * 0.002)
        lines.append(f" iteration {step:8d}/{1000:8d} | consumed samples: {step * global_batch:12d} | elapsed time per iteration (ms): "
                     f"{1000 * time:.1f} | learning rate: 1.500000E-04 | global batch size: {global_batch:5d} | lm loss: 9.0E+00 | "
                     "number of skipped iterations:   0 | number of nan iterations:   0 |\n")
    path.write_text("".join(lines))
    return path
