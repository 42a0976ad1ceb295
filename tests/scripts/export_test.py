"""A plan exported for Megatron-LM starts torchrun with every flag, and is predicted from its script alike."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from programs import BAD_INPUT, NANO, OK, SOURCE, USAGE, planner

A100 = "dgx-a100-80gb"
INFEASIBLE = 4
TORCHRUN = """#!/bin/bash
printf '%s\\n' "CUDA_DEVICE_MAX_CONNECTIONS=$CUDA_DEVICE_MAX_CONNECTIONS" "$@"
"""


def plan(folder, *flags, framework="megatron-lm"):
    path = folder / "plan.json"
    done = planner("plan", NANO, "--cluster", A100, "--devices", 4, "--global-batch", 8, "--framework",
                   framework, *flags, "-o", path)
    assert done.returncode == OK, done.stderr
    return path


def started(folder, script, *arguments):
    """Returns the words that the script gives to torchrun."""
    stub = folder / "torchrun"
    stub.write_text(TORCHRUN)
    stub.chmod(0o755)
    done = subprocess.run(["bash", script, *arguments], capture_output=True, text=True, check=True,
                          env=dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}"))
    return done.stdout.splitlines()


def hold_precision(folder):
    """A search does not vary the precision and the CUDA graphs of a script that it starts from."""
    script, better = folder / "bf16.sh", folder / "held.json"
    done = planner("plan", "gpt2-small", "--cluster", A100, "--devices", 2, "--fix", "mp=1", "-o", better)
    assert done.returncode == OK, done.stderr
    assert planner("export", better, "--to", "megatron", "-o", script).returncode == OK
    text = script.read_text()
    assert "--accumulate-allreduce-grads-in-fp32" in text, text
    script.write_text(text.replace("--accumulate-allreduce-grads-in-fp32", "--grad-reduce-in-bf16"))
    for fixed, value in (((), "computed"), (("--fix", "gradient_type=f32"), "f32")):
        done = planner("plan", "--from", script, "--cluster", A100, *fixed, "-o", better)
        assert done.returncode == OK, done.stderr
        assert ("held as in the script: gradient_type=computed" in done.stderr) == (not fixed), done.stderr
        assert json.loads(better.read_text())["strategy"]["gradient_type"] == value
    for graphs, stated in (("--cuda-graph-impl full_iteration", True), ("--cuda-graph-impl transformer_engine", False)):
        script.write_text(text.replace("--accumulate-allreduce-grads-in-fp32", graphs))
        done = planner("plan", "--from", script, "--cluster", A100, "-o", better)
        assert done.returncode == OK, done.stderr
        done = planner("export", better, "--to", "megatron")
        assert (done.returncode == OK and graphs in done.stdout) == stated, done.stdout + done.stderr
        assert ("framework.graphs" in done.stdout + done.stderr) != stated, done.stdout + done.stderr


def states_searched_choices(folder):
    """A framework's search takes no choice that the framework's own files cannot state."""
    for framework, *choices in (("torchtitan", "sharding_stage=3"), ("pytorch-fsdp", "recompute=full"), ("pytorch-fsdp", "sharding_stage=3"),
                                ("megatron-fsdp", "sharding_stage=3", "mp=1"), ("deepspeed", "sharding_stage=3")):
        held = [word for choice in ("cp=1", "micro_batch=1", *choices) for word in ("--fix", choice)]
        done = planner("plan", "llama3-8b", "--cluster", "dgx-h100-80gb", "--devices", 8, "--framework", framework, *held,
                       "-o", folder / "searched.json")
        assert done.returncode == OK, done.stderr
        assert "planner export" in done.stdout and "--allow-lossy" not in done.stdout, (framework, choices, done.stdout)


def rows_of_the_page(folder):
    """Rows that the page of flag tables shows are rows of tables; they are written and read as it explains."""
    tables = "".join(path.read_text() for path in sorted((SOURCE / "models/presets/flags").glob("*.json")))
    shown = [line.strip() for line in (SOURCE / "docs/reference/flags.md").read_text().splitlines() if line.startswith("    {")]
    assert len(shown) == 4 and all(row in tables for row in shown), shown
    path = plan(folder, "--fix", "mp=2,micro_batch=1,sequence_parallel=true")
    text = planner("export", path, "--to", "megatron").stdout
    for given, gone, mp, sequence_parallel in ((text, "", 2, True), (text, "--sequence-parallel", 2, False),
                                               (text.replace("--sequence-parallel", ""), "--tensor-model-parallel-size 2", 1, False)):
        assert gone in given, gone
        (folder / "changed.sh").write_text(given.replace(gone, "") if gone else given)
        done = planner("import", folder / "changed.sh", "--json")
        assert done.returncode == OK, done.stderr
        strategy = {"mp": 1, "sequence_parallel": False, **json.loads(done.stdout)["strategy"]}
        assert (strategy["mp"], strategy["sequence_parallel"]) == (mp, sequence_parallel), strategy


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        path = plan(folder, "--fix", "mp=2", "--fix", "pp=2")
        script = folder / "train.sh"
        done = planner("export", path, "--to", "megatron", "-o", script)
        assert done.returncode == OK, done.stderr
        words = started(folder, script, "--data-path", "a b")
        assert words[0] == "CUDA_DEVICE_MAX_CONNECTIONS=1", words
        assert words[-2:] == ["--data-path", "a b"], words
        for flag, value in (("--tensor-model-parallel-size", "2"), ("--pipeline-model-parallel-size", "2"),
                            ("--global-batch-size", "8"), ("--nproc_per_node", "4"), ("--nnodes", "1")):
            assert words[words.index(flag) + 1] == value, (flag, words)
        # The script says what the plan says.
        strategy = folder / "strategy.json"
        strategy.write_text(json.dumps(json.loads(path.read_text())["strategy"]))
        of_plan = planner("simulate", NANO, strategy, "--cluster", A100, "--devices", 4, "--global-batch", 8,
                          "--framework", "megatron-lm", "--verbose")
        of_script = planner("simulate", "--from", script, "--cluster", A100, "--verbose")
        assert of_plan.returncode == of_script.returncode == OK, of_plan.stderr + of_script.stderr
        after_headline = [done.stdout.split("\n", 1)[1] for done in (of_plan, of_script)]
        assert after_headline[0] == after_headline[1], "\n".join(after_headline)
        better = planner("plan", "--from", script, "--cluster", A100, "--fix", "pp=1", "-o", folder / "better.json")
        assert better.returncode == OK and "PP 1" in better.stdout, better.stderr
        # Flags cannot state these.
        path = plan(folder, "--fix", "mp=2", "--fix", "pp=2", "--fix", "flatten=none")
        done = planner("export", path, "--to", "megatron")
        assert done.returncode == INFEASIBLE and not done.stdout, done.stdout
        assert "flatten is none; the flags give fused" in done.stderr, done.stderr
        assert "planned:  step" in done.stderr and "exported: step" in done.stderr, done.stderr
        done = planner("export", path, "--to", "megatron", "--allow-lossy")
        assert done.returncode == OK and done.stdout.startswith("#!/bin/bash"), done.stderr
        done = planner("export", path, "--to", "megatron", "--target-version", "2019")
        assert done.returncode == USAGE and "2025-11" in done.stderr, done.stderr
        path = plan(folder, framework="torchtitan")
        done = planner("export", path, "--to", "megatron")
        assert done.returncode == BAD_INPUT and "plan with --framework megatron-lm" in done.stderr, done.stderr
        # Misuse.
        for arguments in ((NANO, "--from", script), (), (NANO,)):
            done = planner("simulate", *arguments, "--cluster", A100)
            assert done.returncode == USAGE, done.stderr
        done = planner("simulate", "--from", NANO, "--cluster", A100)
        assert done.returncode == BAD_INPUT and "script or flags of a framework" in done.stderr, done.stderr
        rows_of_the_page(folder)
        hold_precision(folder)
        states_searched_choices(folder)
    print("plans are exported for Megatron-LM, and its scripts are predicted")


if __name__ == "__main__":
    sys.exit(main())
