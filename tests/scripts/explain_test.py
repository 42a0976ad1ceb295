"""`planner explain`: its exit codes, the files that it finds again, and the JSON beside the text."""

import json
import pathlib
import re
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
    assert "would run   with " in done.stdout, done.stdout
    whole = explain(INFEASIBLE, plan, *asked, "mp=3", "--verbose").stdout
    assert "least change that makes it run" in whole, whole
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


def with_flags(script, changes):
    """The script's text with such changes as "--x 1 -> 2", "add --y 3" and "drop --z"."""
    for change in changes:
        if change.startswith("add "):
            script = script.replace("--num-layers", f"{change[4:]} --num-layers", 1)
        elif change.startswith("drop "):
            script = re.sub(rf"{change[5:]}\b( +[^-\s]\S*)*", "", script)
        else:
            flag, value = change.split(" -> ")
            assert flag in script, (flag, script)
            script = script.replace(flag, f"{flag.split()[0]} {value}")
    return script


def check_first_changes(folder):
    """The flags that a running job is told to change give the step that is promised."""
    plan, script = folder / "slow.json", folder / "slow.sh"
    machine = ("--cluster", "dgx-a100-80gb")
    slow = ("--fix", "mp=2", "--fix", "micro_batch=1", "--fix", "recompute=full")
    assert planner("plan", "gpt2-small", *machine, "--devices", 8, *slow, "-o", plan).returncode == OK
    assert planner("export", plan, "--to", "megatron", "-o", script).returncode == OK
    told = explain(OK, "--from", script, *machine)
    assert "\nchange      -" in told.stdout and "--micro-batch-size 1 -> " in told.stdout, told.stdout
    whole = explain(OK, "--from", script, *machine, "--verbose").stdout
    assert "one choice changed, best first" in whole, whole
    found = json.loads(explain(OK, "--from", script, *machine, "--json").stdout)
    before = found["step"]["step_time_s"]
    for changes in ("one_choice_changed", "two_choices_changed"):
        best = found[changes][0]
        assert best["step_time_s"] < before, best
        before = best["step_time_s"]
        other = folder / "faster.sh"
        other.write_text(with_flags(script.read_text(), best["flags"]))
        done = planner("simulate", "--from", other, *machine, "--json")
        assert done.returncode == OK, (best["flags"], done.stderr)
        assert json.loads(done.stdout)["prediction"]["step_time_s"] == before, (best["flags"], before)
    assert "--cluster is required" in explain(USAGE, "--from", script).stderr
    assert "PLAN or --from is required" in explain(USAGE, *machine).stderr
    assert "--devices is of a script alone" in explain(USAGE, plan, "--devices", 8).stderr


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
        check_first_changes(folder)
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
