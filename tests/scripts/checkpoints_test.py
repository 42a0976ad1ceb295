"""Training that is kept: signals and kills at any moment lose no whole checkpoint, and what goes on does so with the same bits.

PLIMSOLL_KILLS says how often a run is killed while it saves. A reader of safetensors that knows nothing of the product reads
what was saved."""

import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import pathlib

from programs import BAD_INPUT, BIN, CLUSTER, ENVIRONMENT, NANO, OK, SOURCE, USAGE, nano_job, planner, write_json

KILLS = int(os.environ.get("PLIMSOLL_KILLS", "20"))
TEXT = SOURCE / "data" / "training-text.txt"
RUN = BIN / "planner-run"
ONE_THREAD = dict(os.environ, OMP_NUM_THREADS="1")
SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8}


def read_safetensors(path):
    """The tensors of a file by the format's own words: name -> (type, shape, bytes)."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    assert data[8:9] == b"{" and all(isinstance(note, str) for note in header.pop("__metadata__", {}).values())
    values, end, tensors = data[8 + length:], 0, {}
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, stop = entry["data_offsets"]
        count = 1
        for size in entry["shape"]:
            count *= size
        assert begin == end and stop - begin == count * SIZES[entry["dtype"]], (path, name, entry)
        tensors[name] = entry["dtype"], entry["shape"], values[begin:stop]
        end = stop
    assert end == len(values), (path, end, len(values))
    return tensors


def make_plan(folder, name, job, devices, *fixed):
    path = folder / f"{name}.json"
    done = planner("plan", job, "--cluster", write_json(folder / "cluster.json", CLUSTER), "--devices", devices, "-o", path,
                   *[word for choice in fixed for word in ("--fix", choice)])
    assert done.returncode == OK, done.stderr
    return path


def train(*arguments, code=OK):
    done = subprocess.run([str(RUN), *map(str, arguments)], capture_output=True, text=True, timeout=300, env=ONE_THREAD, check=False)
    assert done.returncode == code, (arguments, done.returncode, done.stderr[-2000:])
    return done


def losses_of(output):
    """Loss by step, as the summary prints it."""
    return dict(re.findall(r"^ +(\d+)  +(\d+\.\d+)  ", output, re.M))


def whole_checkpoints(folder):
    return sorted((path for path in folder.glob("step-*")), key=lambda path: int(path.name.split("-")[1]))


def formats(folder, plan):
    """Files have all tensors of the job, whole."""
    saved = folder / "format"
    train(plan, "--data", TEXT, "--steps", 4, "--checkpoint", saved)
    job = json.loads(NANO.read_text())
    model = read_safetensors(saved / "step-4" / "model.safetensors")
    assert {kind for kind, _, _ in model.values()} == {"F32"}
    assert model["embedding.0.word"][1] == [job["vocab"], job["hidden"]]
    assert model["layer.3.fc1.weight"][1] == [job["hidden"], job["ffn_hidden"]]
    assert {name.split(".")[1] for name in model if name.startswith("layer.")} == {str(layer) for layer in range(job["layers"])}
    for moment in ("exp_avg", "exp_avg_sq"):
        other = read_safetensors(saved / "step-4" / f"{moment}.safetensors")
        assert [(name, kind, shape) for name, (kind, shape, _) in other.items()] == \
            [(name, kind, shape) for name, (kind, shape, _) in model.items()]
    squares = struct.unpack(f"<{len(other['layer.0.fc1.weight'][2]) // 4}f", other["layer.0.fc1.weight"][2])
    assert all(0 <= value < 1 for value in squares) and any(squares)
    assert read_safetensors(saved / "step-4" / "model.safetensors")["head.0.norm.gamma"][1] == [job["hidden"]]
    try:
        import safetensors.numpy  # where it is there, it agrees
        assert set(safetensors.numpy.load_file(saved / "step-4" / "model.safetensors")) == set(model)
    except ImportError:
        pass


def other_plans(folder, job, plans):
    """One job is handed from plan to plan, threads and processes, and trains as one of them alone does."""
    whole = losses_of(train(plans[0], "--data", TEXT, "--steps", 4 * len(plans)).stdout)
    saved, found = folder / "handed", {}
    for index, plan in enumerate(plans):
        more = ("--resume", saved) if index else ()
        found.update(losses_of(train(plan, "--data", TEXT, "--steps", 4 * (index + 1), "--checkpoint", saved, *more).stdout))
    assert found.keys() == whole.keys()
    for step, loss in whole.items():
        assert abs(float(found[step]) - float(loss)) <= 2e-5 * float(loss), (step, found[step], loss)
    assert [path.name for path in whole_checkpoints(saved)] == ["step-4", "step-8", "step-12"][-2:] or len(plans) != 3
    other = write_json(folder / "other.json", {**job, "ffn_hidden": 128})
    done = train(make_plan(folder, "other-plan", other, 1), "--data", TEXT, "--resume", saved, code=BAD_INPUT)
    assert "/job/ffn_hidden" in done.stderr and "another job" in done.stderr, done.stderr


def adapted(folder):
    """Checkpoints have adapters alone; weights of 4 bits are what they were, also in other shards."""
    inner = folder / "adapted"
    inner.mkdir()
    job = {**nano_job(global_batch=8), "adapters": {"rank": 2, "targets": ["qkv", "down"]}, "frozen_weights": "nf4"}
    path = write_json(inner / "job.json", job)
    sharded = make_plan(inner, "sharded", path, 2, "sharding_degree=2", "sharding_stage=3")
    other_plans(inner, job, [make_plan(inner, "one", path, 1), sharded, make_plan(inner, "stages", path, 2, "pp=2")])
    model = read_safetensors(inner / "handed" / "step-12" / "model.safetensors")
    assert {name.split(".")[-1] for name in model} == {"adapter_a", "adapter_b"}, sorted(model)


def freed(folder, job):
    """Backward that frees gradients computes no norm of them: the summary has a stroke, and JSON null."""
    plan = make_plan(folder, "freed", write_json(folder / "unclipped.json", {**job, "clip_norm": 0}), 1, "micro_batch=8",
                     "release_gradients=true")
    summary = train(plan, "--data", TEXT, "--steps", 4).stdout
    assert len(re.findall(r"^ +\d+ +\d+\.\d+ +-$", summary, re.M)) == 4, summary
    assert json.loads(train(plan, "--data", TEXT, "--steps", 4, "--json").stdout)["gradient_norms"] == [None] * 4


def stopped_by(folder, plan, number, name):
    """The running step ends, a checkpoint is written, and the exit code is the shell's for the signal."""
    saved = folder / name
    whole = losses_of(train(plan, "--data", TEXT, "--steps", 400).stdout)
    running = subprocess.Popen([RUN, plan, "--data", TEXT, "--steps", "400", "--checkpoint", saved], stderr=subprocess.PIPE, text=True,
                               stdout=subprocess.DEVNULL, env=ONE_THREAD)
    for line in running.stderr:
        if line.startswith("step 3/"):
            break
    running.send_signal(number)
    said = running.stderr.read()
    assert running.wait(60) == 128 + number, (running.returncode, said)
    step = int(re.search(rf"stopped by {name} behind step (\d+) of 400; --resume", said)[1])
    assert [path.name for path in whole_checkpoints(saved)] == [f"step-{step}"], said
    resumed = losses_of(train(plan, "--data", TEXT, "--steps", 400, "--resume", saved).stdout)
    assert resumed == {key: value for key, value in whole.items() if int(key) > step}


def killed(folder, plan):
    """Runs that do little but save are killed; the latest checkpoint is always whole, and the losses are those of one run."""
    draws, saved, steps, found = random.Random(1), folder / "killed", 100_000, {}
    kills = halves = 0
    while kills < KILLS:
        more = ("--resume", saved) if whole_checkpoints(saved) else ()
        running = subprocess.Popen([RUN, plan, "--data", TEXT, "--steps", str(steps), "--checkpoint", saved, "--checkpoint-every", "1",
                                    *more], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=ONE_THREAD)
        lines = []
        for line in running.stderr:
            lines.append(line)
            if line.startswith("checkpoint"):
                break
        assert lines and lines[-1].startswith("checkpoint"), lines
        time.sleep(draws.uniform(0, 0.03))
        running.kill()
        lines += running.stderr
        running.wait()
        kills += 1
        halves += any(path.name.endswith(".part") for path in saved.iterdir())
        # The last line may be cut.
        found.update({step: loss for step, loss in re.findall(r"^step (\d+)/\d+  loss (\d+\.\d{4})  ", "".join(lines), re.M)})
        for path in whole_checkpoints(saved):
            for file in ("model", "exp_avg", "exp_avg_sq"):
                read_safetensors(path / f"{file}.safetensors")
    last = int(whole_checkpoints(saved)[-1].name.split("-")[1])
    resumed = train(plan, "--data", TEXT, "--steps", last + 4, "--checkpoint", saved, "--resume", saved)
    whole = train(plan, "--data", TEXT, "--steps", last + 4)
    expected = dict(re.findall(r"^step (\d+)/\d+  loss (\d+\.\d{4})  ", whole.stderr, re.M))
    wrong = {step: (loss, expected.get(step)) for step, loss in found.items() if int(step) <= last and expected.get(step) != loss}
    assert not wrong, wrong
    assert losses_of(resumed.stdout) == {step: loss for step, loss in losses_of(whole.stdout).items() if int(step) > last}
    assert not list(saved.glob(".step-*")), "halves are left"
    print(f"{kills} kills, {halves} of them within a save, after {last} steps: 0 checkpoints unusable")


def refusals(folder, plan):
    saved = folder / "refused"
    train(plan, "--data", TEXT, "--steps", 4, "--checkpoint", saved)
    model = saved / "step-4" / "model.safetensors"
    for what, code, words, arguments in (
            ("a checkpoint of another run", BAD_INPUT, "has step-4", ("--steps", 8, "--checkpoint", saved)),
            ("every without a folder", USAGE, "--checkpoint", ("--checkpoint-every", 2)),
            ("none to keep", USAGE, "from 1", ("--checkpoint", saved, "--checkpoint-keep", 0)),
            ("no checkpoint", BAD_INPUT, "no checkpoint", ("--resume", folder)),
            ("a file as a folder", ENVIRONMENT, "text.txt", ("--checkpoint", shutil.copy(TEXT, folder / "text.txt"))),
            ("a missing folder", BAD_INPUT, "none", ("--resume", folder / "none"))):
        done = train(plan, "--data", TEXT, *arguments, code=code)
        assert words in done.stderr, (what, done.stderr)
    done = train(plan, "--data", TEXT, "--steps", 4, "--resume", saved)
    assert "nothing is left" in done.stderr, done.stderr
    whole = model.read_bytes()
    for what, damaged, words in (("cut off", whole[:-1], "cut off"), ("a bit", whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:], "at /")):
        model.write_bytes(damaged)
        done = train(plan, "--data", TEXT, "--steps", 8, "--resume", saved, code=BAD_INPUT)
        assert f"{model}: " in done.stderr and words in done.stderr, (what, done.stderr)


def rates_and_held_out_text(folder, plan):
    """A schedule goes on where it was, the line of a step has the loss of a text that is held out, and wrong flags are refused."""
    saved = folder / "rates"
    flags = ("--lr-warmup-steps", 2, "--lr-decay-style", "cosine", "--lr-decay-steps", 8, "--min-lr", "1e-5", "--eval-data", TEXT,
             "--eval-interval", 2, "--eval-iters", 2)
    whole = train(plan, "--data", TEXT, "--steps", 8, *flags)
    train(plan, "--data", TEXT, "--steps", 4, "--checkpoint", saved, *flags)
    resumed = train(plan, "--data", TEXT, "--steps", 8, "--resume", saved, *flags)
    held_out = [re.findall(r"held-out loss (\d+\.\d+)$", run.stderr, re.M) for run in (whole, resumed)]
    assert len(held_out[0]) == 4 and held_out[1] == held_out[0][2:], held_out
    assert losses_of(resumed.stdout) == {key: value for key, value in losses_of(whole.stdout).items() if int(key) > 4}
    assert losses_of(whole.stdout) != losses_of(train(plan, "--data", TEXT, "--steps", 8).stdout)
    other = train(plan, "--data", TEXT, "--steps", 8, "--resume", saved)
    assert re.search(r"learning rate was: .*\b2 steps.* cosine .*\b0\.01 .*step 8", other.stderr), other.stderr
    for words, arguments in (("go with --lr-decay-style", ("--min-lr", "1e-5")), ("--eval-data", ("--eval-iters", 2)),
                             ("more than the 9", ("--lr-warmup-steps", 9, "--lr-decay-style", "linear", "--steps", 9)),
                             ("at most the job's", ("--lr-decay-style", "linear", "--min-lr", 1)),
                             ("constant, linear or cosine", ("--lr-decay-style", "square"))):
        done = train(plan, "--data", TEXT, *arguments, code=USAGE)
        assert words in done.stderr, (words, done.stderr)


def processes(folder, plan, local_plan):
    """MPI processes save and go on as threads do, also where one of them gets a signal."""
    environment = dict(ONE_THREAD, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1")
    command = ["mpirun", "-n", "2", str(BIN / "planner-run-mpi"), str(plan), "--data", str(TEXT)]
    whole = losses_of(train(plan, "--data", TEXT, "--steps", 400).stdout)
    saved = folder / "processes"
    # One process sends itself the signal, when there is a checkpoint: launchers treat signals of their own in different ways.
    waiting = 'while kill -0 $$ && ! ls "$0"/step-*; do sleep 0.1; done; kill -TERM $$'
    script = f'[ "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" = 1 ] && ({waiting}) > "$0.log" 2>&1 & exec "$@"'
    done = subprocess.run([*command[:3], "sh", "-c", script, saved, *command[3:], "--steps", "1000000", "--checkpoint", str(saved),
                           "--checkpoint-every", "50"], capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert done.returncode == 128 + signal.SIGTERM and "stopped by SIGTERM" in done.stderr, (done.returncode, done.stderr[-2000:])
    step = int(whole_checkpoints(saved)[-1].name.split("-")[1])
    more = ("--steps", str(step + 4), "--resume", str(saved))
    by_processes = subprocess.run([*command, *more], capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert by_processes.returncode == OK, by_processes.stderr
    by_threads = train(plan, "--data", TEXT, *more)
    assert losses_of(by_processes.stdout) == losses_of(by_threads.stdout)
    if step + 4 <= 400:
        assert losses_of(by_threads.stdout) == {str(i): whole[str(i)] for i in range(step + 1, step + 5)}
    train(local_plan, "--data", TEXT, *more)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        job = nano_job(global_batch=8)
        nano = write_json(folder / "job.json", job)
        one = make_plan(folder, "one", nano, 1)
        plans = [one, make_plan(folder, "split", nano, 2, "mp=2"),
                 make_plan(folder, "sharded", nano, 4, "pp=2", "sharding_degree=2", "sharding_stage=3")]
        formats(folder, plans[1])
        other_plans(folder, job, plans)
        tiny = write_json(folder / "tiny.json", {**job, "layers": 2, "hidden": 16, "heads": 2, "kv_heads": 2, "ffn_hidden": 16})
        tiny_plan = make_plan(folder, "tiny-plan", tiny, 2, "dp=2")
        stopped_by(folder, tiny_plan, signal.SIGTERM, "SIGTERM")
        adapted(folder)
        freed(folder, job)
        stopped_by(folder, tiny_plan, signal.SIGINT, "SIGINT")
        refusals(folder, tiny_plan)
        rates_and_held_out_text(folder, tiny_plan)
        killed(folder, tiny_plan)
        if shutil.which("mpirun") and (BIN / "planner-run-mpi").exists():
            processes(folder, make_plan(folder, "two", tiny, 2, "pp=2"), tiny_plan)
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
