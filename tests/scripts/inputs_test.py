"""planner describe and planner init: every kind of input, and files that the planner takes."""

import gzip
import json
import os
import pathlib
import pty
import subprocess
import sys
import tempfile

from programs import BAD_INPUT, BIN, CLUSTER, NANO, OK, SOURCE, USAGE, planner, write_json


def describe(name, kind):
    """The description as JSON, after a look at its text."""
    text = planner("describe", name)
    assert text.returncode == OK and not text.stderr, text
    assert text.stdout.startswith(f"{kind} "), text.stdout[:200]
    done = planner("describe", name, "--json")
    assert done.returncode == OK, done
    said = json.loads(done.stdout)
    assert said["kind"] == kind, said
    return said


def descriptions(folder):
    cluster = write_json(folder / "cluster.json", CLUSTER)
    plan = folder / "plan.json"
    done = planner("plan", NANO, "--cluster", cluster, "--devices", 2, "-o", plan)
    assert done.returncode == OK, done.stderr
    job = describe(NANO, "job")
    counted = sum(job["parameters"][kind] for kind in
                  ("embeddings", "weights_of_linear_layers", "biases", "norms"))
    assert counted == job["parameters"]["all"] > 0, job
    assert describe(cluster, "cluster")["size"]["devices"] == 4
    assert describe("megatron-lm", "framework")["can"]["whole_owners"]["value"] is False
    assert describe("dgx-h100-80gb--megatron-lm", "calibration")["fitted"]["runs"] > 0
    assert describe("mp=2,pp=2", "strategy")["ranks"]["devices"] == 4
    said = describe(plan, "plan")
    stated = json.loads(plan.read_text())
    assert said["prediction"] == stated["prediction"], said
    assert said["for"]["devices"] == 2, said
    assert "step time" in planner("describe", plan).stdout
    logs(folder)
    for wrong, word in (("llama3-8", "llama3-8b"), (write_json(folder / "x.json", {"a": 1}), "x.json")):
        done = planner("describe", wrong)
        assert done.returncode == BAD_INPUT and word in done.stderr and not done.stdout, done


def logs(folder):
    """Logs and traces, also compressed, and files that are neither."""
    line = "iteration {}/9 | elapsed time per iteration (ms): {} | lm loss: 2.5 |\n"
    text = "".join(line.format(step, time) for step, time in ((1, 9000.0), (2, 1250.0), (3, 1250.0), (4, 5000.0)))
    for name, data in (("train.log", text.encode()), ("train.log.gz", gzip.compress(text.encode()))):
        (folder / name).write_bytes(data)
        read = describe(folder / name, "training log")
        assert read["step_time"]["median_s"] == 1.25 and read["step_time"]["steps"] == 2, read
        assert read["left_out"] == {"first": [{"step": 1, "line": 1}], "outlier": [{"step": 4, "line": 4}]}, read
    state = describe(write_json(folder / "trainer_state.json", {"log_history": [{"step": 1, "loss": 2.5}]}), "training log")
    assert state["step_time"] == {} and any("no time" in doubt for doubt in state["doubts"]), state
    trace = describe(SOURCE / "tests/interop/traces/three-steps.pt.trace.json", "training log")
    assert [one["bytes"] for one in trace["collectives"]] == [16000], trace
    (folder / "cut.json.gz").write_bytes(gzip.compress(text.encode() * 1000)[:-40])
    (folder / "notes.txt").write_text("no step\n")
    for wrong, word in (("cut.json.gz", "ends early"), ("notes.txt", "Megatron-LM")):
        done = planner("describe", folder / wrong)
        assert done.returncode == BAD_INPUT and word in done.stderr and not done.stdout, done


def by_flags(folder):
    job, cluster = folder / "job.json", folder / "own.json"
    done = planner("init", "job", "--based-on", NANO, "--layers", 3, "-o", job)
    assert done.returncode == OK and not done.stdout and "planner schema job" in done.stderr, done
    assert json.loads(job.read_text())["layers"] == 3
    done = planner("init", "cluster", "--based-on", "rtx-4090", "--devices-per-node", 2, "--nodes", 2,
                   "--network", "25 Gbit/s", "--date", "2026-06-30", "-o", cluster)
    assert done.returncode == OK, done
    done = planner("simulate", job, "mp=2,dp=2", "--cluster", cluster, "--calibration", "none")
    assert done.returncode == OK, done.stderr
    framework = folder / "framework.json"
    done = planner("init", "framework", "--based-on", "torchtitan", "--name", "ours")
    assert done.returncode == OK, done
    framework.write_text(done.stdout)
    assert describe(framework, "framework")["facts"]["based_on"] == "torchtitan"
    done = planner("init", "cluster", "--nodes", 2)
    assert done.returncode == USAGE and "--based-on is required" in done.stderr, done
    done = planner("init", "job", "--based-on", job, "-o", job)
    assert done.returncode == USAGE, "the file that it starts from"
    before = job.read_text()
    done = planner("init", "job", "--based-on", NANO, "--layers", 4, "-o", job)
    assert done.returncode == USAGE and "--force replaces it" in done.stderr and job.read_text() == before, done
    done = planner("init", "job", "--based-on", NANO, "--layers", 4, "-o", job, "--force")
    assert done.returncode == OK and json.loads(job.read_text())["layers"] == 4, done


def on_a_terminal(folder):
    """An empty line takes the answer in brackets; a wrong answer is asked for again."""
    output = folder / "asked.json"
    ours, theirs = pty.openpty()
    process = subprocess.Popen([str(BIN / "planner"), "init", "job", "-o", str(output)],
                               stdin=theirs, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    os.write(ours, b"llama2-7b\n\nmany\n32\n\nasked\n")
    process.wait(timeout=60)
    assert process.returncode == OK
    job = json.loads(output.read_text())
    assert (job["name"], job["global_batch"], job["sequence"]) == ("asked", 32, 4096), job
    said = os.read(ours, 65536).decode()
    assert "tokens of a sequence [4096]" in said and "found many" in said, said
    os.close(ours)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        descriptions(folder)
        by_flags(folder)
        on_a_terminal(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
