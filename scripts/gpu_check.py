"""The checks of scripts/gpu-check: each runs the programs and compares what they say."""

import argparse
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

BIN = pathlib.Path(os.environ["PLIMSOLL_BIN_DIR"])
SOURCE = pathlib.Path(os.environ["PLIMSOLL_SOURCE_DIR"])
TEXT = SOURCE / "data" / "training-text.txt"
GPUS = SOURCE / "models" / "presets" / "clusters" / "hgx-h200.json"
NO_GPU = 6

# Sums are taken in another order, and f32 products of 1024 values differ by some 1e-6; a loss is a
# mean over hundreds of tokens. bf16 rounds every result to 2^-9; the loss averages that out to a few
# thousandths in the first steps.
F32_TOLERANCE, BF16_TOLERANCE = 2e-4, 1e-2
MEMORY_TOLERANCE = 0.02
TIME_TOLERANCE = 0.05

ADAMW = {"kind": "adamw", "learning_rate": 3e-4, "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8,
         "weight_decay": 0.1}
GPT2_345M = {"name": "gpt2-345m", "family": "gpt", "layers": 24, "hidden": 1024, "heads": 16,
             "kv_heads": 16, "ffn_hidden": 4096, "vocab": 50304, "sequence": 1024,
             "tied_embeddings": True, "global_batch": 32, "precision": "bf16", "optimizer": ADAMW,
             "clip_norm": 1.0, "dropout": 0.0, "seed": 1}
LLAMA_1B = {"name": "llama-1b", "family": "llama", "layers": 16, "hidden": 2048, "heads": 32,
            "kv_heads": 8, "ffn_hidden": 8192, "vocab": 32000, "sequence": 1024,
            "tied_embeddings": True, "rotary_base": 500000.0, "global_batch": 16,
            "precision": "bf16", "optimizer": ADAMW, "clip_norm": 1.0, "dropout": 0.0, "seed": 1}
# Four layers of gpt-oss-20b (its config.json) without biases: a hidden size that is no multiple of
# 128, heads of 64 with sinks, 32 experts with few and uneven rows.
EXPERTS = {"name": "gpt-oss-4-layers", "family": "llama", "layers": 4, "hidden": 2880, "heads": 64,
           "kv_heads": 8, "head_size": 64, "sinks": True, "ffn_hidden": 2880, "vocab": 32000,
           "sequence": 1024, "tied_embeddings": False, "rotary_base": 150000.0, "global_batch": 8,
           "experts": {"count": 32, "chosen": 4}, "precision": "bf16", "optimizer": ADAMW,
           "clip_norm": 1.0, "dropout": 0.0, "seed": 1}
SMALL = dict(GPT2_345M, name="gpt-small", layers=8, hidden=512, heads=8, kv_heads=8,
             ffn_hidden=2048, vocab=8192, sequence=256, global_batch=16, precision="fp32")
HOST = {"name": "this host", "nodes": 1, "devices_per_node": 64,
        "device": {"name": "a core", "kind": "cpu_core", "memory": "64 GiB",
                   "memory_bandwidth": "10 GB/s",
                   "peak": {"fp32": "100 GFLOP/s", "bf16": "100 GFLOP/s"}},
        "levels": [{"name": "shared memory", "devices": None, "bandwidth": "10 GB/s",
                    "latency": "1 us"}],
        "source": "stated for scripts/gpu-check, where only the losses of this host are read"}


class Failed(Exception):
    """A check that did not hold, with what was found."""


class Skipped(Exception):
    """A check that cannot be made here, with the reason."""


class Checker:
    def __init__(self, out, seconds):
        self.out = pathlib.Path(out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.until = time.monotonic() + seconds
        self.rows = []
        self.runs = {}

    def left(self):
        return self.until - time.monotonic()

    def execute(self, *command):
        """Its result; what it printed is in the log."""
        words = [str(word) for word in command]
        if self.left() < 5:
            raise Skipped("out of time")
        began = time.monotonic()
        environment = dict(os.environ)
        if words[0].startswith(str(SOURCE)):
            environment["LD_LIBRARY_PATH"] = os.environ.get("PLIMSOLL_LIBRARY_PATH", "")
        try:
            result = subprocess.run(words, capture_output=True, text=True, timeout=self.left(),
                                    check=False, env=environment)
        except subprocess.TimeoutExpired as late:
            raise Failed(f"{words[0]} was not done after {late.timeout:.0f} s") from late
        with open(self.out / "log.txt", "a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(words)}\n{result.stdout[-20000:]}{result.stderr[-20000:]}"
                      f"-- exit {result.returncode}, {time.monotonic() - began:.1f} s\n")
        return result

    def run_plan(self, name, job, strategy, backend="cuda", devices=1, steps=6, calibration=None,
                 more=(), cluster=None):
        """Plans one strategy, trains by it, and returns plan and measurement."""
        if name in self.runs:
            return self.runs[name]
        files = {kind: self.out / f"{name}.{kind}.json" for kind in ("job", "cluster", "plan", "run")}
        files["job"].write_text(json.dumps(job))
        files["cluster"].write_text(json.dumps(HOST))
        fixed = [word for field in strategy.split(",") if field for word in ("--fix", field)]
        command = [BIN / "planner", "plan", files["job"], "--devices", devices, "-o", files["plan"],
                   "--cluster", (cluster or GPUS) if backend == "cuda" else files["cluster"], *fixed]
        if backend == "cuda":
            command += ["--framework", "bundled-cuda"]
        if calibration:
            command += ["--calibration", calibration]
        self.demand(self.execute(*command))
        self.demand(self.execute(BIN / "planner-run", files["plan"], "--data", TEXT, "--steps",
                                 steps, "--backend", backend, "--deadline", "120", "-o",
                                 files["run"], *more))
        self.runs[name] = (json.loads(files["plan"].read_text()),
                           json.loads(files["run"].read_text()))
        return self.runs[name]

    @staticmethod
    def demand(result):
        if result.returncode in (0, 5):
            return
        lines = (result.stderr or result.stdout).strip().splitlines()
        raise Failed(lines[-1][:300] if lines else f"exit {result.returncode}")

    def check(self, name, work):
        began = time.monotonic()
        try:
            verdict, detail = "ok", work()
        except Skipped as reason:
            verdict, detail = "skipped", str(reason)
        except Failed as found:
            verdict, detail = "FAIL", str(found)
        except Exception as error:  # the table is printed whatever happens
            verdict, detail = "FAIL", f"{type(error).__name__}: {error}"
        self.rows.append((name, verdict, detail))
        print(f"{verdict:8} {name}: {detail} ({time.monotonic() - began:.0f} s)", file=sys.stderr,
              flush=True)


def losses_differ(found, expected, tolerance):
    """The largest relative difference of two loss curves."""
    if len(found) != len(expected) or None in found or None in expected:
        raise Failed(f"losses {found} beside {expected}")
    worst = max(abs(a - b) / abs(b) for a, b in zip(found, expected))
    text = f"losses differ by {worst:.2g} at most (allowed {tolerance:g})"
    if not worst <= tolerance:
        raise Failed(text)
    return text


def bytes_agree(plan, run):
    """Counted peaks against predicted ones, exactly."""
    # On one host pp is the outermost axis, and no run here has classes by owner.
    peaks = [stage["peak_bytes"] for stage in plan["prediction"]["stages"]]
    ranks_per_stage = plan["devices"] // len(peaks)
    for memory in run["timeline"]["memory"]:
        expected = peaks[memory["rank"] // ranks_per_stage]
        if memory["peak_bytes"] != expected:
            raise Failed(f"rank {memory['rank']} took {memory['peak_bytes']} bytes, "
                         f"predicted {expected}")
    return f"peak {max(m['peak_bytes'] for m in run['timeline']['memory']) / 2**30:.2f} GiB as predicted"


def gtest(checker, program):
    """All tests of a program built for GPUs."""
    path = BIN / program if (BIN / program).exists() else BIN.parent / "tests" / program
    if not path.exists():
        raise Skipped(f"{program} is not in this build")
    result = checker.execute(path)
    passed = [line for line in result.stdout.splitlines() if "[  PASSED  ]" in line]
    failed = [line.split("]")[1].strip() for line in result.stdout.splitlines()
              if line.startswith("[  FAILED  ]") and "," in line]
    if result.returncode != 0 or not passed:
        last = (result.stderr or result.stdout).strip().splitlines()[-1:]
        raise Failed(f"{len(failed)} tests failed: {'; '.join(failed[:3]) or last}")
    return passed[-1].split("]")[1].strip()


def small_batch(job, precision):
    return dict(job, sequence=min(job["sequence"], 256), global_batch=2, precision=precision)


def cpu_losses(checker, name, job):
    """On this host's cores, each a rank."""
    cores = len(os.sched_getaffinity(0))
    ranks = max(n for n in (1, 2, 4, 8) if n <= cores)
    _, run = checker.run_plan(f"{name}-cpu", small_batch(job, "fp32"), f"mp={ranks},micro_batch=1",
                              backend="cpu", devices=ranks, steps=4)
    return run["losses"]


def against_cpu(checker, name, job, precision, tolerance):
    plan, run = checker.run_plan(f"{name}-{precision}", small_batch(job, precision),
                                 "micro_batch=1", steps=4)
    return f"{losses_differ(run['losses'], cpu_losses(checker, name, job), tolerance)}; " \
           f"{bytes_agree(plan, run)}"


def full_run(checker, name, job, micro_batch):
    return checker.run_plan(name, job, f"micro_batch={micro_batch}", steps=8)


def device_memory(checker, name, job, micro_batch):
    plan, run = full_run(checker, name, job, micro_batch)
    arena = run["timeline"]["memory"][0]["arena_bytes"]
    taken = run["device_memory_bytes"] - run["device_memory_before_bytes"]
    error = taken / arena - 1
    text = f"device gave {taken / 2**30:.3f} GiB, the arena is {arena / 2**30:.3f} ({error:+.2%})"
    if abs(error) > MEMORY_TOLERANCE:
        raise Failed(text)
    return f"{bytes_agree(plan, run)}; {text}"


def step_time(plan, run):
    tokens = plan["job"]["global_batch"] * plan["job"]["sequence"]
    seconds = run["median_step_time_s"]
    predicted = plan["prediction"]["step_time_s"]
    return f"{seconds * 1e3:.1f} ms per step, {tokens / seconds:,.0f} tokens/s; predicted " \
           f"{predicted * 1e3:.1f} ms ({predicted / seconds - 1:+.1%})"


def calibrated_step(checker, name, job, micro_batch):
    """Predicted by what was measured on this GPU, if the calibration was made before."""
    if "calibrated" not in checker.runs:
        return step_time(*full_run(checker, name, job, micro_batch))
    return step_time(*checker.run_plan(name, job, f"micro_batch={micro_batch}", steps=8,
                                       calibration=checker.out / "calibration.json",
                                       cluster=checker.out / "calibrated-cluster.json"))


def launch_costs(checker):
    """Host time of a kernel that is launched alone, and what replayed graphs save of a step."""
    path = checker.out / "calibration.json"
    if not path.exists():
        raise Skipped("no calibration was made")
    launch = json.loads(path.read_text())["launch"]["median_s"]
    _, graphs = full_run(checker, "gpt2-345m-full", GPT2_345M, 8)
    _, alone = checker.run_plan("no-graphs", GPT2_345M, "micro_batch=8", steps=6,
                                more=("--no-graphs",))
    saved = alone["median_step_time_s"] - graphs["median_step_time_s"]
    return f"{launch * 1e6:.1f} us for a kernel launched alone; graphs save {saved * 1e3:+.2f} ms " \
           f"of a step of {alone['median_step_time_s'] * 1e3:.1f} ms"


def open_kernels(checker):
    """Kernels of PyTorch whose cost published runs leave open: kernels.json has each."""
    if not has_torch(checker):
        raise Skipped("python3 has no PyTorch that sees the GPU")
    script = pathlib.Path(__file__).with_name("gpu_kernels.py")
    result = checker.execute(sys.executable, script, checker.out / "kernels.json")
    checker.demand(result)
    return "; ".join(result.stdout.strip().splitlines())


def has_torch(checker):
    probe = "import torch; assert torch.cuda.is_available(); print(torch.__version__)"
    return checker.execute(sys.executable, "-c", probe).returncode == 0


def torch_seconds(checker, mode, job, micro_batch):
    path = checker.out / "torch-job.json"
    path.write_text(json.dumps(job))
    script = pathlib.Path(__file__).with_name("gpu_reference.py")
    result = checker.execute(sys.executable, script, path, micro_batch,
                             job["global_batch"] // micro_batch, 8, mode)
    checker.demand(result)
    return float(result.stdout.strip().splitlines()[-1])


def beside_torch(checker, mode, least):
    if not has_torch(checker):
        raise Skipped("python3 has no PyTorch that sees the GPU")
    micro_batch = 8
    _, run = full_run(checker, "gpt2-345m-full", GPT2_345M, micro_batch)
    theirs = torch_seconds(checker, mode, GPT2_345M, micro_batch)
    ratio = theirs / run["median_step_time_s"]
    text = f"{ratio:.2f} of PyTorch's speed ({theirs * 1e3:.1f} ms per step); at least {least} asked"
    if ratio < least:
        raise Failed(text)
    return text


def sharing(checker, name, strategy):
    _, alone = checker.run_plan("share-1", SMALL, "micro_batch=4", steps=5)
    plan, run = checker.run_plan(f"share-{name}", SMALL, strategy, devices=4, steps=5)
    return f"{losses_differ(run['losses'], alone['losses'], F32_TOLERANCE)}; {bytes_agree(plan, run)}"


def switch(checker, name, strategy):
    """The switch against its default, measured and predicted, by the calibration if there is one."""
    costs = {}
    if "calibrated" in checker.runs:
        base_plan, base = checker.runs["calibrated"]
        costs = {"calibration": checker.out / "calibration.json",
                 "cluster": checker.out / "calibrated-cluster.json"}
    else:
        base_plan, base = full_run(checker, "gpt2-345m-full", GPT2_345M, 8)
    plan, run = checker.run_plan(f"switch-{name}", GPT2_345M, f"micro_batch=8,{strategy}", steps=6,
                                 **costs)
    measured = run["median_step_time_s"] / base["median_step_time_s"] - 1
    predicted = plan["prediction"]["step_time_s"] / base_plan["prediction"]["step_time_s"] - 1
    peak = [p["prediction"]["stages"][0]["peak_bytes"] for p in (plan, base_plan)]
    return f"step time {measured:+.1%} measured, {predicted:+.1%} predicted; peak " \
           f"{peak[0] / peak[1] - 1:+.1%}; {bytes_agree(plan, run)}"


def without_graphs(checker):
    _, base = full_run(checker, "gpt2-345m-full", GPT2_345M, 8)
    _, run = checker.run_plan("no-graphs", GPT2_345M, "micro_batch=8", steps=6,
                              more=("--no-graphs",))
    slower = run["median_step_time_s"] / base["median_step_time_s"] - 1
    return f"launched one by one: step time {slower:+.1%}; " \
           f"{losses_differ(run['losses'], base['losses'][:6], 0)}"


def calibrated(checker):
    helps = checker.execute(BIN / "planner-calibrate", "--help").stdout
    if "cuda" not in helps:
        raise Skipped("planner-calibrate has no backend cuda")
    costs, cluster = checker.out / "calibration.json", checker.out / "calibrated-cluster.json"
    checker.demand(checker.execute(BIN / "planner-calibrate", "--backend", "cuda", "--precision",
                                   "bf16", "--budget", "80s", "-o", costs, "--cluster-out", cluster))
    plan, run = checker.run_plan("calibrated", GPT2_345M, "micro_batch=8", calibration=costs,
                                 cluster=cluster, steps=8)
    text = step_time(plan, run)
    if abs(plan["prediction"]["step_time_s"] / run["median_step_time_s"] - 1) > TIME_TOLERANCE:
        raise Failed(text)
    return text


def calibrated_together(checker):
    """Collectives over NCCL, a process and a GPU each: wrong data ends it."""
    shown = shutil.which("nvidia-smi") and checker.execute("nvidia-smi", "-L").stdout
    gpus = (shown or "").count("GPU ")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:  # those before the first that is none count
        named = itertools.takewhile(lambda one: one and not one.startswith("-"),
                                    (one.strip() for one in visible.split(",")))
        gpus = min(gpus, len(list(named)))
    if gpus < 2:
        raise Skipped("one GPU: a group of one exchanges nothing (planner calibrate --backend cuda "
                      "--launcher mpirun --devices N needs two)")
    if not shutil.which("mpirun") or not (BIN / "planner-calibrate-mpi").exists():
        raise Skipped(f"{gpus} GPUs, but no mpirun or no planner-calibrate-mpi")
    costs = checker.out / "nccl.json"
    checker.demand(checker.execute(BIN / "planner-calibrate", "--launcher", "mpirun", "--devices",
                                   gpus, "--backend", "cuda", "--precision", "bf16", "--budget",
                                   "30s", "-o", costs))
    points = json.loads(costs.read_text())["collectives"]
    best = max(point["payload_bytes"] / point["median_s"] for point in points
               if point["kind"] == "all_reduce" and point["ranks"] == gpus)
    return f"{len(points)} points over {gpus} GPUs; largest all-reduce {best / 1e9:.0f} GB/s"


def find_gpu(checker):
    """The device's description; leaves without one."""
    files = [checker.out / f"probe.{kind}.json" for kind in ("job", "plan")]
    files[0].write_text(json.dumps(dict(SMALL, global_batch=2, layers=1)))
    checker.demand(checker.execute(BIN / "planner", "plan", files[0], "--cluster", GPUS, "--devices",
                                   1, "--framework", "bundled-cuda", "--fix", "micro_batch=1", "-o",
                                   files[1]))
    run = checker.out / "probe.run.json"
    result = checker.execute(BIN / "planner-run", files[1], "--data", TEXT, "--steps", 4, "--backend",
                             "cuda", "-o", run)
    if result.returncode == NO_GPU:
        print(f"scripts/gpu-check: nothing was checked: {result.stderr.strip()}", file=sys.stderr)
        sys.exit(NO_GPU)
    checker.demand(result)
    return json.loads(run.read_text())["device"]


def check_all(checker):
    def steps(name, job, micro_batch):
        return lambda: step_time(*full_run(checker, name, job, micro_batch))

    checker.check("kernels: op cases", lambda: gtest(checker, "gpu.ops"))
    checker.check("kernels: flash attention", lambda: gtest(checker, "gpu.attention"))
    checker.check("exchange on one GPU", lambda: gtest(checker, "gpu.move"))
    checker.check("training of small models", lambda: gtest(checker, "gpu.train"))
    checker.check("random strategies", lambda: gtest(checker, "gpu.random"))
    for name, job in (("gpt2-345m", GPT2_345M), ("llama-1b", LLAMA_1B)):
        for precision, allowed in (("fp32", F32_TOLERANCE), ("bf16", BF16_TOLERANCE)):
            checker.check(f"{name} {precision} against the CPU backend",
                          lambda n=name, j=job, p=precision, a=allowed: against_cpu(checker, n, j, p, a))
    checker.check("gpt2-345m step", steps("gpt2-345m-full", GPT2_345M, 8))
    checker.check("gpt2-345m memory",
                  lambda: device_memory(checker, "gpt2-345m-full", GPT2_345M, 8))
    checker.check("gpt2-345m beside PyTorch, eager", lambda: beside_torch(checker, "eager", 1.0))
    checker.check("4 ranks on one GPU: mp=2,pp=2",
                  lambda: sharing(checker, "mp-pp", "mp=2,pp=2,micro_batch=4"))
    checker.check("4 ranks on one GPU: mp=2, sharding 3 over 2",
                  lambda: sharing(checker, "sharding",
                                  "mp=2,sharding_degree=2,sharding_stage=3,micro_batch=4"))
    checker.check("calibrated prediction", lambda: calibrated(checker))
    checker.check("calibration of GPUs together", lambda: calibrated_together(checker))
    for name, strategy in (("cast after update", "cast_placement=after_update"),
                           ("cast in every use", "cast_placement=every_use"),
                           ("update tensor by tensor", "flatten=none"),
                           ("full recompute", "recompute=full")):
        checker.check(f"switch: {name}",
                      lambda n=name, s=strategy: switch(checker, n.replace(" ", "-"), s))
    checker.check("graphs off", lambda: without_graphs(checker))
    checker.check("launches", lambda: launch_costs(checker))
    checker.check("experts, width 2880, heads of 64",
                  lambda: calibrated_step(checker, "gpt-oss-4-layers", EXPERTS, 2))
    checker.check("kernels that published runs leave open", lambda: open_kernels(checker))
    checker.check("gpt2-345m beside PyTorch, compiled",
                  lambda: beside_torch(checker, "compiled", 0.9))
    checker.check("llama-1b step", steps("llama-1b-full", LLAMA_1B, 4))
    checker.check("llama-1b memory", lambda: device_memory(checker, "llama-1b-full", LLAMA_1B, 4))


def main():
    parser = argparse.ArgumentParser(prog="scripts/gpu-check")
    parser.add_argument("--out", default="gpu-check-out", help="folder for plans, runs and the log")
    parser.add_argument("--time", type=float, default=460, help="seconds in all")
    parser.add_argument("--small", action="store_true", help="tiny models: tests the script")
    arguments = parser.parse_args()
    if arguments.small:
        for job in (GPT2_345M, LLAMA_1B, SMALL, EXPERTS):
            job.update(layers=4, hidden=64, heads=4, kv_heads=4, ffn_hidden=128, vocab=256,
                       sequence=32, global_batch=8)
        EXPERTS.update(head_size=32, experts={"count": 4, "chosen": 2})
    checker = Checker(arguments.out, arguments.time)
    try:
        device = find_gpu(checker)
    except Failed as found:
        sys.exit(f"scripts/gpu-check: {found}")
    check_all(checker)
    (checker.out / "table.json").write_text(json.dumps({"device": device, "rows": checker.rows}))
    print(f"{device}, {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}")
    width = max(len(row[0]) for row in checker.rows)
    for name, verdict, detail in checker.rows:
        print(f"{verdict:8} {name:{width}}  {detail}")
    failed = any(verdict == "FAIL" for _, verdict, _ in checker.rows)
    sys.exit(7 if failed else 0)


if __name__ == "__main__":
    main()
