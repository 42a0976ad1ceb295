"""Presets are listed, and have other names: h100, 8xh100, names of Hugging Face. A plan takes tokens, a price
and another sequence."""

import json
import pathlib
import tempfile

from programs import BAD_INPUT, NANO, OK, SOURCE, USAGE, planner

PRESETS = SOURCE / "models" / "presets"
KINDS = ("jobs", "clusters", "frameworks", "calibrations")


def printed(*arguments):
    done = planner(*arguments)
    assert done.returncode == OK, (arguments, done.stderr)
    return done


def refused(code, *arguments):
    done = planner(*arguments)
    assert done.returncode == code and not done.stdout, (arguments, done)
    return done.stderr


def check_list():
    """Every preset is listed with its facts, in lines that a terminal holds."""
    everything = json.loads(printed("list", "--json").stdout)
    names = printed("list").stdout
    for kind in KINDS:
        files = [path.stem for path in sorted((PRESETS / kind).glob("*.json"))]
        assert [preset["name"] for preset in everything[kind]] == files, kind
        table = printed("list", kind).stdout.splitlines()
        assert [line.split()[0] for line in table[1:]] == files, kind
        assert json.loads(printed("list", kind, "--json").stdout) == {kind: everything[kind]}
        assert all(f"  {name}" in names for name in files), kind
        assert max(map(len, [*table, *names.splitlines()])) <= 100, kind
    llama = next(job for job in everything["jobs"] if job["name"] == "llama3-8b")
    assert llama["parameters"] == 8030261248 and llama["layers"] == 32, llama
    h100 = next(cluster for cluster in everything["clusters"] if cluster["name"] == "dgx-h100-80gb")
    assert h100["network_bytes_per_s"] == 50e9 and "h100" in h100["other_names"], h100
    assert "clusters" in refused(USAGE, "list", "gpus")


def check_names():
    """Other names are noted with the preset that they mean, and the result is that of the preset."""
    asked = ("mp=2,sharding_degree=4,sequence_parallel=true", "--global-batch", "8", "--json")
    plain = printed("simulate", "qwen3-8b", *asked, "--cluster", "dgx-h100-80gb", "--devices", 8)
    assert plain.stderr == "", plain.stderr
    for job, cluster in (("Qwen/Qwen3-8B", ("8xh100",)), ("qwen3-8b", ("h100", "--devices", 8)), ("Qwen/Qwen3-8B-Base", ("8xH100", "--devices", 8))):
        other = printed("simulate", job, *asked, "--cluster", *cluster)
        assert other.stdout == plain.stdout, (job, cluster)
        assert "cluster" in other.stderr and "the preset dgx-h100-80gb" in other.stderr, other.stderr
        assert ("the preset qwen3-8b" in other.stderr) == ("/" in job), other.stderr
    assert printed("describe", "h100").stdout == printed("describe", "dgx-h100-80gb").stdout
    fsdp = json.loads(printed("simulate", "gpt-mini", "sharding_degree=8,sharding_stage=3", "--cluster", "8xa100-80gb", "--framework", "fsdp",
                              "--json").stdout)
    assert fsdp["strategy"]["sharding_stage"] == 3


def check_refusals():
    both = refused(BAD_INPUT, "plan", "llama3-8b", "--cluster", "a100", "--devices", 8)
    assert "dgx-a100-40gb" in both and "dgx-a100-80gb" in both, both
    missing = refused(USAGE, "plan", "llama3-8b", "--devices", 8)
    assert "--cluster" in missing and "planner list clusters" in missing, missing
    assert "planner list clusters" in refused(USAGE, "sweep", "llama3-8b", "--devices", 8)
    unknown = refused(BAD_INPUT, "plan", "llama3-80b", "--cluster", "h100", "--devices", 8)
    assert "llama3-70b" in unknown and "planner list jobs" in unknown and len(unknown) < 160, unknown
    small = refused(BAD_INPUT, "plan", "Qwen/Qwen3-0.6B", "--cluster", "8xh100")
    assert "qwen3-8b" in small and "planner list jobs" in small, small
    assert "16 devices" in refused(USAGE, "plan", "llama3-8b", "--cluster", "16xh100", "--devices", 8)
    assert "--cluster" in refused(USAGE, "plan", "llama3-8b", "--cluster", "0xh100")
    refused(BAD_INPUT, "plan", "somebody/llama3-8b", "--cluster", "8xh100")


def check_counts():
    """A count in front of a machine's name is of machines, in front of a device's name of devices, as results print them."""
    simulated = ("simulate", "gpt-mini", "--json", "--global-batch", 32, "--cluster")
    for cluster, devices in (("16xh100", 16), ("2xdgx-h100-80gb", 16), ("2x8xh100", 16), ("4xrtx-4090", 4), ("2xgb200-nvl4", 8)):
        assert json.loads(printed(*simulated, cluster, f"sharding_degree={devices}").stdout)["devices"] == devices, cluster
    assert "(2 x dgx-h100-80gb)" in printed("plan", "gpt-mini", "--cluster", "2xdgx-h100-80gb", "--global-batch", 32, "--fix", "pp=1").stdout
    assert "8 devices, not 4" in refused(USAGE, *simulated, "2x4xh100", "dp=8")
    assert "16 devices" in refused(USAGE, *simulated, "2xdgx-h100-80gb", "dp=8", "--devices", 8)


def check_words():
    """Choices have the words that results print: TP, DP, ZeRO. DP is all replicas, with and without shards."""
    asked = ("plan", "gpt-mini", "--cluster", "8xa100-80gb", "--fix", "TP=2", "--json")
    strategy = json.loads(printed(*asked, "--fix", "ZeRO=1", "--fix", "vpp=1").stdout)["strategy"]
    assert strategy["mp"] == 2 and strategy["sharding_stage"] == 1, strategy
    assert json.loads(printed(*asked, "--fix", "ZeRO=1,vpp=1").stdout)["strategy"] == strategy
    simulated = ("simulate", "gpt-mini", "--cluster", "8xa100-80gb", "--json")
    for words, keys in (("TP=2,DP=4,ZeRO=1", "mp=2,sharding_degree=4"), ("TP=2,DP=4", "mp=2,dp=4")):
        assert printed(*simulated, words).stdout == printed(*simulated, keys).stdout, words
    done = printed(*asked, "--fix", "DP=2", "--time-limit", "2 min", "--sequence", "1k", "--tokens", "1B", "--price", 2)
    plan = json.loads(done.stdout)
    assert plan["strategy"]["dp"] * plan["strategy"]["sharding_degree"] == 2 and "no ZeRO" not in done.stderr, done.stderr
    assert plan["job"]["sequence"] == 1024 and plan["training"]["cost"] == 2 * plan["training"]["device_hours"]
    assert "DP=2" in printed(*asked, "--fix", "dp=2").stderr
    unknown = refused(USAGE, "simulate", "gpt-mini", "colour=3", "--cluster", "8xa100-80gb")
    assert "planner schema strategy" in unknown and len(unknown.splitlines()) == 2, unknown


def check_training():
    """--tokens adds days, device-hours and cost to a plan, its file and its command; --sequence changes the job."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "plan.json"
        asked = ("gpt-mini", "--cluster", "8xa100-80gb", "--sequence", 256, "--fix", "dp=8")
        done = printed("plan", *asked, "--tokens", "10B", "--price", "2.5/h", "-o", file)
        plan = json.loads(file.read_text())
        training, step = plan["training"], plan["prediction"]["step_time_s"]
        assert plan["job"]["sequence"] == 256
        steps = -(-10**10 // (256 * plan["job"]["global_batch"]))
        assert training["steps"] == steps and training["tokens"] == 1e10
        assert abs(training["days"] - steps * step / 86400) < 1e-9 * training["days"]
        assert abs(training["device_hours"] - 8 * 24 * training["days"]) < 1e-9 * training["device_hours"]
        assert abs(training["cost_high"] - 2.5 * training["device_hours_high"]) < 1e-9 * training["cost_high"]
        line = next(one for one in done.stdout.splitlines() if one.split()[:1] == ["days"])
        assert "10 B tokens" in line and "GPU-hours" in line and "cost" in line, line
        command = plan["origin"]["command"]
        assert all(words in command for words in ("--sequence 256", "--tokens 10B", "--price 2.5/h", "--devices 8")), command
        simulated = json.loads(printed("simulate", "gpt-mini", "dp=8", *asked[1:5], "--tokens", "10B", "--json").stdout)
        assert simulated["training"]["steps"] == steps and simulated["training"]["cost"] is None
        assert "training" not in json.loads(printed("plan", *asked, "--json").stdout)
        printed("check", file)
        page = pathlib.Path(folder) / "page.html"
        printed("report", file, "--plan-only", "-o", page)
        assert "10 B tokens" in page.read_text() and "torchrun" in page.read_text()
    for wrong in (("--price", "2/h"), ("--tokens", "many"), ("--tokens", "1B", "--price", "2/day"), ("--tokens", "1B", "--price", "h100=2/h"),
                  ("--sequence", 0), ("--sequence", "9999999999k"), ("--time-limit", "2 weeks")):
        refused(USAGE, "plan", NANO, "--cluster", "8xa100-80gb", *wrong)


if __name__ == "__main__":
    check_list()
    check_names()
    check_refusals()
    check_counts()
    check_words()
    check_training()
