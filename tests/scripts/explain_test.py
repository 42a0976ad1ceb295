"""`planner explain`: its exit codes, the files that it finds again, and the JSON beside the text."""

import json
import pathlib
import sys
import tempfile

from programs import (BAD_INPUT, CLUSTER, INFEASIBLE, NANO, OK, STOPPED_EARLY, USAGE, planner,
                      write_json)


def explain(expected, *arguments):
    done = planner("explain", *arguments)
    assert done.returncode == expected, (arguments, done.returncode, done.stderr)
    return done


def parts_sum(step):
    """The sum of the terms of a step, all but its whole."""
    terms = step["terms"]
    parts = ("forward_ps", "recompute_ps", "backward_ps", "optimizer_ps", "bubble_ps", "dispatch_ps")
    return (sum(terms[part] for part in parts)
            + sum(one["wait_ps"] + one["transfer_ps"] for one in terms["communication"]))


def check_files(folder, plan, cluster):
    """A cluster that is not built in must be given, and must be the plan's own."""
    done = explain(USAGE, plan)
    assert "--cluster is required" in done.stderr, done.stderr
    other = write_json(folder / "other.json", {**CLUSTER, "nodes": 2})
    done = explain(BAD_INPUT, plan, "--cluster", other)
    assert "digest" in done.stderr, done.stderr
    changed = json.loads(plan.read_text())
    changed["prediction"]["step_time_s"] *= 1.5
    done = explain(BAD_INPUT, write_json(folder / "changed.json", changed), "--cluster", cluster)
    assert "step_time_s" in done.stderr, done.stderr
    for wrong in ("mp", "mp=x", "mq=2", "mp=2,mp=4"):
        explain(USAGE, plan, "--cluster", cluster, "--why-not", wrong)


def check_why_not(plan, cluster):
    asked = ("--cluster", cluster, "--why-not")
    answer = json.loads(explain(OK, plan, *asked, "mp=4", "--json").stdout)
    step = json.loads(plan.read_text())["prediction"]["step_time_s"]
    assert answer["plan"]["step_time_s"] == step
    for one in (answer["plan"], answer["best"], answer["changed"]["step"]):
        assert parts_sum(one) == one["terms"]["step_time_ps"], one["terms"]
    assert answer["best"]["strategy"]["mp"] == 4
    own = json.loads(plan.read_text())["strategy"]
    assert "this is the plan" in explain(OK, plan, *asked, f"mp={own['mp']}").stdout
    done = explain(INFEASIBLE, plan, *asked, "mp=3")
    assert "cannot run: mp 3" in done.stdout, done.stdout
    assert "least change that makes it run" in done.stdout, done.stdout
    explain(STOPPED_EARLY, plan, *asked, "mp=2", "--time-limit", "1 us")


def check_script(folder):
    """A script that runs already is asked for by its choices; a script of another job is refused."""
    plan, script = folder / "gpt2.json", folder / "train.sh"
    target = ("gpt2-small", "--cluster", "dgx-a100-80gb", "--devices", 8, "--fix", "mp=1")
    assert planner("plan", *target, "-o", plan).returncode == OK
    assert planner("export", plan, "--to", "megatron", "-o", script).returncode == OK
    own = script.read_text()
    assert "this is the plan" in explain(OK, plan, "--from", script).stdout
    script.write_text(own.replace("--tensor-model-parallel-size 1", "--tensor-model-parallel-size 2"))
    asked = explain(OK, plan, "--from", script).stdout
    assert "mp=2" in asked.splitlines()[1], asked
    script.write_text(own.replace("--num-layers 12", "--num-layers 24"))
    done = explain(BAD_INPUT, plan, "--from", script)
    assert "another job than the plan's: layers 24, not 12" in done.stderr, done.stderr
    explain(USAGE, plan, "--from", script, "--why-not", "mp=2")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        cluster = write_json(folder / "cluster.json", CLUSTER)
        plan = folder / "plan.json"
        done = planner("plan", NANO, "--cluster", cluster, "--devices", 4, "-o", plan)
        assert done.returncode == OK, done.stderr
        check_files(folder, plan, cluster)
        check_why_not(plan, cluster)
        check_script(folder)
        text = explain(OK, plan, "--cluster", cluster).stdout
        assert "would help" in text, text
        found = json.loads(explain(OK, plan, "--cluster", cluster, "--json").stdout)
        assert parts_sum(found["plan"]) == found["plan"]["terms"]["step_time_ps"]
        assert {one["rate"] for one in found["rates"]} == {
            "arithmetic", "memory bandwidth", "links within a node", "host"}  # there is one node
        # A plan of a built-in cluster names its calibration, so that no file is needed.
        preset = folder / "preset.json"
        done = planner("plan", "llama3-8b", "--cluster", "dgx-h100-80gb", "--devices", 8,
                       "--fix", "pp=1", "--fix", "micro_batch=1", "-o", preset)
        assert done.returncode == OK, done.stderr
        answer = json.loads(explain(OK, preset, "--why-not", "mp=8", "--json").stdout)
        assert answer["best"]["strategy"]["micro_batch"] == 1, "the plan held it"
    print("explained")
    return 0


if __name__ == "__main__":
    sys.exit(main())
