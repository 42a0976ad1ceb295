"""planner import: what other tools wrote becomes a calibration, a cluster or a job that planner plans with."""

import json
import pathlib
import sys
import tempfile

from programs import BAD_INPUT, ENVIRONMENT, OK, SOURCE, USAGE, planner

SAMPLES = SOURCE / "tests" / "interop" / "nccl-tests"
H100 = SOURCE / "models" / "presets" / "clusters" / "dgx-h100-80gb.json"
JOB = SOURCE / "models" / "presets" / "jobs" / "gpt3-1.3b.json"


def refused(what, code, *words, command):
    """One line that holds every word, the documented code, nothing on stdout."""
    done = planner("import", *command)
    assert done.returncode == code, (what, done)
    assert not done.stdout and len(done.stderr.splitlines()) == 1, (what, done)
    for word in words:
        assert word in done.stderr, (what, word, done.stderr)


def nccl_tests(folder):
    output = folder / "calibration.json"
    files = [SAMPLES / name for name in ("current.txt", "two-runs.txt", "all-gather.json")]
    command = ("nccl-tests", *files, "--cluster", H100)
    refused("no date", BAD_INPUT, "current.txt", "--date", command=(*command, "-o", output))
    assert not output.exists()
    command = (*command, "--date", "2026-07-09")
    done = planner("import", *command, "-o", output, "--json")
    assert done.returncode == OK, done.stderr
    said = json.loads(done.stdout)
    assert [run["collective"] for run in said["runs"]] == [
        "all_reduce", "all_gather", "reduce_scatter", "all_gather"], said
    assert said["runs"][0]["versions"] == ["nccl-tests 2.18.3", "NCCL 2.28.9"], said

    calibration = json.loads(output.read_text())
    assert calibration["device"] == "NVIDIA H100 SXM5 80GB", calibration["device"]
    assert calibration["communicator"] == "nccl" and "dispatch_op" not in calibration
    assert "API_TOKEN" not in output.read_text()
    points = calibration["collectives"]
    assert len(points) == said["points"] == 8, points
    largest = [p for p in points if p["kind"] == "all_reduce"][-1]
    expected = {"ranks": 16, "nodes": 2, "payload_bytes": 8589934592, "median_s": 43001.2 / 1e6,
                "communicator": "nccl", "samples": 20}
    assert expected.items() <= largest.items(), largest
    assert largest["imported"] == {"file": "current.txt", "date": "2026-07-09"}, largest

    # Equal bytes come out again, also on top of a calibration that has other points.
    first = output.read_bytes()
    assert planner("import", *command, "-o", output).returncode == OK
    assert output.read_bytes() == first
    more = folder / "more.json"
    done = planner("import", "nccl-tests", SAMPLES / "per-iteration.txt", "--cluster", H100,
                   "--calibration", output, "-o", more)
    assert done.returncode == OK, done.stderr
    joined = json.loads(more.read_text())
    assert len(joined["collectives"]) == 10
    assert joined["date"] == json.loads(first)["date"], joined["date"]
    done = planner("simulate", JOB, "mp=8", "--cluster", H100, "--devices", 8, "--calibration", more)
    assert done.returncode == OK, done.stderr


def over_a_fit(folder):
    """An imported measurement goes before a fit: chosen by --calibration, or in one file."""
    fit = "dgx-h100-80gb--megatron-lm"
    files = [SAMPLES / name for name in ("current.txt", "two-runs.txt", "all-gather.json")]
    command = ("import", "nccl-tests", *files, "--cluster", H100, "--date", "2026-07-09")
    points, both, own = (folder / name for name in ("points.json", "both.json", "own.json"))
    for output, rest in ((points, ()), (both, ("--calibration", fit))):
        done = planner(*command, *rest, "-o", output)
        assert done.returncode == OK, done.stderr
    assert set(json.loads(both.read_text())) == set(json.loads(points.read_text())) | {"fitted"}
    # Over a file of the fit, and once more over what that gave.
    own.write_text(json.dumps({"fitted": json.loads(both.read_text())["fitted"]}))
    again = folder / "again.json"
    for over in (own, both):
        done = planner(*command, "--calibration", over, "-o", again)
        assert done.returncode == OK, done.stderr
        assert json.loads(again.read_text()) == json.loads(both.read_text()), over

    def step(*calibrations):
        done = planner("simulate", JOB, "mp=8,dp=2", "--cluster", H100, "--devices", 16, "--json",
                       *(word for one in calibrations for word in ("--calibration", one)))
        assert done.returncode == OK, done.stderr
        return json.loads(done.stdout)["prediction"]

    joined = step(points)
    assert joined == step(both) == step(points, fit) == step(own, points), joined
    assert joined["share_by_provenance"]["fitted"] > 0.3, joined["share_by_provenance"]
    assert joined["step_time_s"] != step()["step_time_s"]
    assert step(points, "typical")["share_by_provenance"]["typical"] > 0.3
    assert step(points, "none")["share_by_provenance"]["fitted"] == 0

    refused("typical over points", USAGE, "typical", "planner plan",
            command=(*command[1:], "--calibration", "typical", "-o", again))
    refused("a fit of another device", BAD_INPUT, "/fitted/device", "A100",
            command=(*command[1:], "--calibration", "dgx-a100-80gb--pytorch-fsdp", "-o", again))

    # The plan names both, and its report shows them.
    plan, page = folder / "plan.json", folder / "plan.html"
    done = planner("plan", JOB, "--cluster", H100, "--devices", 8, "--calibration", points,
                   "--calibration", fit, "--fix", "mp=8", "--fix", "micro_batch=1", "-o", plan)
    assert done.returncode == OK, done.stderr
    written = json.loads(plan.read_text())
    assert len(written["calibration_rest_digest"]) == 64
    assert f"--calibration calibration.json --calibration {fit}" in written["origin"]["command"]
    assert planner("check", plan).returncode == OK
    done = planner("report", plan, "-o", page)
    assert done.returncode == OK, done.stderr
    html = page.read_text()
    assert 'class="swatch fitted"' in html and "for the rest calibration fitted on" in html


def nccl_refusals(folder):
    output = folder / "none.json"
    good = SAMPLES / "current.txt"
    cluster = json.loads(H100.read_text())
    small = folder / "small.json"
    cluster["nodes"] = 1
    cluster["source"]["/nodes"] = {"document": "none", "where": "chosen", "date": "2026"}
    small.write_text(json.dumps(cluster))
    a100 = SOURCE / "models" / "presets" / "clusters" / "dgx-a100-80gb.json"
    cpu = SOURCE / "tests" / "gpt-nano.json"
    date = ("--date", "2026-07-09")
    for what, code, words, command in (
            ("another device", BAD_INPUT, ("H100", "A100"), (good, "--cluster", a100)),
            ("too many nodes", BAD_INPUT, ("2 nodes", "small.json"), (good, "--cluster", small)),
            ("a job as cluster", BAD_INPUT, ("gpt-nano.json",), (good, "--cluster", cpu)),
            ("missing file", BAD_INPUT, ("nowhere",), (folder / "nowhere", "--cluster", H100)),
            ("nothing to import", BAD_INPUT, ("nothing", "host"),
             (SAMPLES / "cpu-time.txt", "--cluster", H100, *date)),
            ("old", BAD_INPUT, ("--collective",),
             (SAMPLES / "old-all-gather.txt", "--cluster", H100)),
            ("bad date", USAGE, ("--date", "yesterday"),
             (good, "--cluster", H100, "--date", "yesterday")),
            ("bad name", USAGE, ("--collective", "all_produce"),
             (good, "--cluster", H100, "--collective", "all_produce")),
            ("misspelt flag", USAGE, ("--clutser", "--cluster?"), (good, "--clutser", H100)),
            ("input as output", USAGE, ("current.txt",), (good, "--cluster", H100, "-o", good)),
            ("no such folder", ENVIRONMENT, ("nowhere",),
             (good, "--cluster", H100, "-o", folder / "nowhere" / "c.json"))):
        rest = () if "-o" in command else ("-o", output)
        refused(what, code, *words, command=("nccl-tests", *command, *rest))
        assert not output.exists(), what
    refused("what it is not for", USAGE, "nccl-tets", "nccl-tests?", command=("nccl-tets",))


def topology(folder):
    """A node's wiring becomes a cluster that planner plans for; what is missing is named."""
    dump = SOURCE / "tests" / "interop" / "topology" / "hgx-h100.xml"
    matrix = dump.with_suffix(".txt")
    rest = ("--device", H100, "--date", "2026-11-20")
    done = planner("import", "topology", dump, *rest)
    assert done.returncode == OK, done.stderr
    cluster = json.loads(done.stdout)
    assert [level["bandwidth"] for level in cluster["levels"]] == ["450 GB/s", "50 GB/s"], cluster
    assert cluster["name"] == "hgx-h100", cluster
    output = folder / "cluster.json"
    done = planner("import", "topology", matrix, *rest, "--nic-bandwidth", "400 Gbit/s", "-o", output)
    assert done.returncode == OK and not done.stdout, done
    again = json.loads(output.read_text())
    assert again["levels"] == cluster["levels"], again["levels"]
    done = planner("simulate", JOB, "mp=8,dp=2", "--cluster", output, "--devices", 16)
    assert done.returncode == OK, done.stderr

    for what, code, words, command in (
            ("no rate", BAD_INPUT, ("--nic-bandwidth", "mlx5_0"), (matrix, *rest)),
            ("bad rate", USAGE, ("--nic-bandwidth", "fast"),
             (matrix, *rest, "--nic-bandwidth", "fast")),
            ("no device", USAGE, ("--device",), (matrix, "--date", "2026-11-20")),
            ("no date", USAGE, ("--date",), (matrix, "--device", H100)),
            ("a cluster as topology", BAD_INPUT, ("dgx-h100-80gb.json", "no matrix"), (H100, *rest)),
            ("input as output", USAGE, ("hgx-h100.xml",), (dump, *rest, "-o", dump))):
        refused(what, code, *words, command=("topology", *command))


def models(folder):
    """A config.json becomes a job that commands take; they take the config.json itself just so."""
    config = SOURCE / "tests" / "interop" / "data" / "llama-3.2-1b.json"
    output = folder / "job.json"
    rest = ("--sequence", 2048, "--global-batch", 64, "--precision", "fp32", "--name", "small")
    done = planner("import", config, "-o", output, "--json", *rest)
    assert done.returncode == OK, done.stderr
    said, job = json.loads(done.stdout), json.loads(output.read_text())
    assert said["job"] == job and said["parameters"] == 1235814400, said
    assert said["kind"] == "Hugging Face config.json" and said["unread"] == [], said
    assert (job["sequence"], job["global_batch"], job["precision"], job["name"]) == (2048, 64, "fp32", "small")
    assert said["strategy"] is said["framework"] is said["devices"] is None, said
    done = planner("import", config)
    assert done.returncode == OK and "1,235,814,400" in done.stdout, done

    # Other commands read from the file itself what import writes without flags.
    assert planner("import", config, "-o", output).returncode == OK
    where = ("mp=2", "--cluster", H100, "--devices", 2, "--json")
    by_file, direct = planner("simulate", output, *where), planner("simulate", config, *where)
    assert direct.returncode == OK and direct.stdout == by_file.stdout, direct.stderr
    assert "optimizer AdamW" in direct.stderr and not by_file.stderr, direct.stderr
    by_file, direct = (planner("space", file, "--devices", 2, "--json") for file in (output, config))
    assert direct.returncode == OK and direct.stdout == by_file.stdout, direct.stderr
    assert direct.stderr.count("optimizer AdamW") == 1, direct.stderr

    changed = json.loads(config.read_text())
    bad = folder / "bad.json"
    bad.write_text(json.dumps({**changed, "head_dim": 127}))
    for what, code, words, command in (
            ("no file", USAGE, ("FILE is required",), ()),
            ("missing file", BAD_INPUT, ("nowhere.json",), (folder / "nowhere.json",)),
            ("an odd width", BAD_INPUT, ("bad.json", "/head_dim", "127"), (bad,)),
            ("a job file", BAD_INPUT, ("gpt3-1.3b.json", "config.json"), (JOB,)),
            ("no strategy", BAD_INPUT, ("--strategy-out",), (config, "--strategy-out", folder / "s.json")),
            ("no framework", BAD_INPUT, ("--framework-out",), (config, "--framework-out", folder / "f.json")),
            ("unknown family", USAGE, ("--family", "llama"), (config, "--family", "lama")),
            ("bad precision", USAGE, ("--precision", "fp8"), (config, "--precision", "fp8")),
            ("bad sequence", USAGE, ("--sequence", "0"), (config, "--sequence", 0)),
            ("input as output", USAGE, ("bad.json",), (bad, "-o", bad)),
            ("outputs that are one", USAGE, ("same.json",),
             (config, "-o", folder / "same.json", "--strategy-out", folder / "same.json"))):
        refused(what, code, *words, command=command)
    assert not (folder / "s.json").exists() and not (folder / "same.json").exists()


FORK = """torchrun --nproc_per_node 8 --nnodes 2 pretrain_ourlab.py --num-layers 4 --hidden-size 512 \\
  --num-attention-heads 8 --seq-length 512 --max-position-embeddings 512 --vocab-size 50304 --bf16 \\
  --micro-batch-size 1 --global-batch-size 64 --train-iters 10 --use-conv-gate --OurNorm
"""


def unknown_flags(folder):
    """A fork's flags are never nothing of the job: commands name all of them, and go on where they are told to."""
    script = folder / "fork.sh"
    script.write_text(FORK)
    done = planner("import", script, "--json")
    assert done.returncode == OK, done.stderr
    said = json.loads(done.stdout)
    assert [one["option"] for one in said["unknown"]] == ["--OurNorm", "--use-conv-gate", "pretrain_ourlab.py"], said
    assert [one["line"] for one in said["unknown"]] == [3, 3, 1] and said["unread"] == ["--train-iters"], said
    on = ("--from", script, "--cluster", "dgx-h100-80gb")
    for command in (("simulate", *on), ("plan", *on), ("explain", *on), ("simulate", script, "mp=1", *on[2:], "--devices", 16)):
        done = planner(*command)
        assert done.returncode == BAD_INPUT and not done.stdout, (command, done)
        for one in said["unknown"]:
            assert one["option"] in done.stderr, (command, done.stderr)
        assert "--ignore-unknown" in done.stderr, done.stderr
    done = planner("simulate", *on, "--ignore-unknown")
    assert done.returncode == OK and "--OurNorm (line 3) is not known and left out" in done.stderr, done.stderr
    # A vocabulary that no flag states.
    script.write_text(FORK.replace("pretrain_ourlab", "pretrain_gpt").replace("--use-conv-gate --OurNorm", "")
                      .replace("--vocab-size 50304", ""))
    done = planner("simulate", *on)
    assert done.returncode == BAD_INPUT and "--vocab" in done.stderr, done.stderr
    done = planner("simulate", *on, "--vocab", 50304)
    assert done.returncode == OK, done.stderr


def deepspeed(folder):
    """A DeepSpeed file on a cluster with a count; a plan keeps its offload, which no search tries by itself."""
    file = folder / "offload.json"
    file.write_text(json.dumps({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True},
                                "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}))
    asked = ("--from", file, "llama3.2-1b", "--cluster", "4xa100-40gb", "--json")
    done = planner("plan", *asked)
    assert done.returncode == OK, done.stderr
    found = json.loads(done.stdout)
    assert found["devices"] == 4 and found["strategy"]["offload_optimizer_percent"] == 100, found["strategy"]
    assert "held as in the script: offload_optimizer_percent=100" in done.stderr, done.stderr
    done = planner("plan", *asked, "--fix", "offload_optimizer_percent=0")
    assert json.loads(done.stdout)["strategy"]["offload_optimizer_percent"] == 0, done.stderr
    cluster = folder / "two-nodes.json"
    assert planner("init", "cluster", "--based-on", "dgx-a100-40gb", "--nodes", 2, "-o", cluster).returncode == OK
    done = planner("simulate", "--from", file, "llama3.2-1b", "--cluster", cluster, "--json")
    assert done.returncode == OK and json.loads(done.stdout)["devices"] == 16, done.stderr


def adapters(folder):
    """An adapter's file with a preset, a job file and a model's config; a trainer's file with its model's name alone."""
    samples = SOURCE / "tests" / "fuzz" / "examples" / "import"
    config, job = samples / "adapter_config.json", folder / "adapted.json"
    llama = SOURCE / "tests" / "interop" / "data" / "llama-3-8b.json"
    for base in ("llama3-8b", SOURCE / "models" / "presets" / "jobs" / "llama3-8b.json", llama):
        done = planner("import", config, base, "--sequence", 2048, "--global-batch", 16, "-o", job, "--json")
        assert done.returncode == OK, done.stderr
        assert json.loads(done.stdout)["trained"] == 32 * 16 * (4096 + 4096 + 4096 + 1024), base
        written = json.loads(job.read_text())
        assert written["adapters"] == {"rank": 16, "scale": 2, "dropout": 0.05, "targets": ["query", "value"]}, written
        assert (written["sequence"], written["global_batch"]) == (2048, 16), written
    found = planner("simulate", job, "dp=2,micro_batch=1", "--cluster", "2xh100", "--json")
    assert found.returncode == OK and json.loads(found.stdout)["fits"], found.stderr
    refused("JOB of a model", USAGE, "llama3-8b", "describes the model", command=(llama, "llama3-8b"))
    refused("no JOB", BAD_INPUT, "no model", "JOB", command=(unnamed(config, folder), "-o", job))
    run = json.loads(planner("import", samples / "axolotl.yaml", "--devices", 8, "--json").stdout)
    assert (run["job"]["adapters"]["rank"], run["job"]["frozen_weights"]) == (16, "nf4_nested"), run["job"]
    assert (run["job"]["global_batch"], run["strategy"]["sharding_stage"]) == (64, 3), run["strategy"]
    done = planner("simulate", "--from", samples / "axolotl.yaml", "--cluster", "8xh100", "--json")
    assert done.returncode == OK, done.stderr
    assert json.loads(done.stdout)["strategy"] == run["strategy"], done.stdout


def unnamed(config, folder):
    """The file of an adapter whose model no preset has."""
    file = folder / "adapter_config.json"
    file.write_text(config.read_text().replace("meta-llama/Meta-Llama-3-8B", "ours/8b"))
    return file


def main():
    with tempfile.TemporaryDirectory() as name:
        nccl_tests(pathlib.Path(name))
        over_a_fit(pathlib.Path(name))
        nccl_refusals(pathlib.Path(name))
        topology(pathlib.Path(name))
        models(pathlib.Path(name))
        unknown_flags(pathlib.Path(name))
        deepspeed(pathlib.Path(name))
        adapters(pathlib.Path(name))
    print("imports as documented")
    return 0


if __name__ == "__main__":
    sys.exit(main())
