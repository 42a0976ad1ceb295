"""Ranks as MPI processes: the results of threads bit by bit, and failures that end all of them."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import programs

# Open MPI refuses root, and more processes than cores, unless told otherwise; MPICH does neither.
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                   OMPI_MCA_rmaps_base_oversubscribe="1", OMP_NUM_THREADS="1")
DRAWS = {2: 10, 4: 6, 8: 3}  # by number of processes
TEXT = programs.SOURCE / "data" / "training-text.txt"
SKIPPED = 77


def run(*command, timeout=300):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          env=ENVIRONMENT, timeout=timeout, check=False)


def draws(failures):
    """The fixed subset of random strategies, over MPI and over threads."""
    program = programs.BIN.parent / "tests" / "mpi.draws"
    for processes, count in DRAWS.items():
        done = run("mpirun", "-n", processes, program, 1, count)
        equal = done.stdout.count("equal: draw") == count and "equal: rows that are dropped" in done.stdout
        if done.returncode != 0 or not equal:
            failures.append(f"{processes} processes: exit {done.returncode}\n{done.stdout}{done.stderr}")


def plan(folder, devices, *fixed):
    cluster = programs.write_json(folder / "cluster.json", programs.CLUSTER)
    path = folder / f"plan{devices}.json"
    done = programs.planner("plan", programs.NANO, "--cluster", cluster, "--devices", devices,
                            "--global-batch", 8, "-o", path,
                            *[word for choice in fixed for word in ("--fix", choice)])
    assert done.returncode == programs.OK, done.stderr
    return path


def losses(path):
    measured = json.loads(path.read_text())
    memory = [(rank["rank"], rank["peak_bytes"]) for rank in measured["timeline"]["memory"]]
    return measured["losses"], memory, measured["communicator"]


def launcher(folder, failures):
    """`planner run --launcher mpirun` measures what `planner run` does."""
    path = plan(folder, 2, "sharding_degree=2", "sharding_stage=1")
    found = {}
    for name in ("local", "mpirun"):
        output = folder / f"{name}.json"
        done = run(programs.BIN / "planner", "run", path, "--data", TEXT, "--steps", 5,
                   "--launcher", name, "-o", output)
        if done.returncode != programs.OK:
            failures.append(f"--launcher {name}: exit {done.returncode}\n{done.stderr}")
            return
        found[name] = losses(output)
    if found["local"][:2] != found["mpirun"][:2] or found["mpirun"][2] != "mpi":
        failures.append(f"threads and processes differ: {found}")
    done = programs.planner("compare", path, folder / "mpirun.json", "--tolerance", 100)
    if done.returncode != programs.OK:
        failures.append(f"compare: exit {done.returncode}\n{done.stdout}{done.stderr}")


def calibration(folder, failures):
    """Processes of one host measure every group shape there; the planner reads what they write."""
    output, cluster = folder / "calibration.json", folder / "measured-cluster.json"
    done = run(programs.BIN / "planner", "calibrate", "--launcher", "mpirun", "--devices", 4,
               "--quick", "--budget", 1, "-o", output, "--cluster-out", cluster)
    if done.returncode != programs.OK:
        failures.append(f"calibrate: exit {done.returncode}\n{done.stderr}")
        return
    measured = json.loads(output.read_text())
    shapes = {(point["kind"], point["ranks"], point["nodes"], point["groups_per_node"])
              for point in measured["collectives"] if point["communicator"] == "mpi"}
    kinds = ("all_reduce", "reduce_scatter", "all_gather")
    wanted = {(kind, *shape) for kind in kinds for shape in ((2, 1, 1), (2, 1, 2), (4, 1, 1))}
    wanted |= {("send", 2, 1, 1), ("send", 2, 1, 2)}
    if shapes != wanted or measured["communicator"] != "mpi" or measured["busy_cores"] != 4:
        failures.append(f"shapes measured: {sorted(shapes)}")
    cores = len(os.sched_getaffinity(0))
    shared = [version for version in measured["versions"] if "processes share" in version]
    if cores >= 4 and shared:
        failures.append(f"4 processes on {cores} cores share none: {shared}")
    if any(f"4 processes share {cores} cores: " not in version for version in shared):
        failures.append(f"4 processes on {cores} cores: {shared}")
    pairs = {(point["compute"], point["communication"]) for point in measured["overlaps"]}
    if not {("matmul", kind) for kind in (*kinds, "send")} <= pairs:
        failures.append(f"overlaps measured: {sorted(pairs)}")
    if {point["ranks"] for point in measured["communicator_memory"]} != {2, 4}:
        failures.append("memory of communicators: not of 2 and 4 ranks")
    done = programs.planner("plan", programs.NANO, "--cluster", cluster, "--calibration", output,
                            "--devices", 4, "--global-batch", 8)
    if done.returncode != programs.OK:
        failures.append(f"plan with it: exit {done.returncode}\n{done.stderr}")
    done = run("mpirun", "-n", 1, programs.BIN / "planner-calibrate-mpi", "--quick")
    if done.returncode != programs.USAGE or "two processes" not in done.stderr:
        failures.append(f"one process: exit {done.returncode}\n{done.stderr}")
    done = programs.planner("calibrate", "--launcher", "mpirun", "--quick")
    if done.returncode != programs.USAGE or "--devices" not in done.stderr:
        failures.append(f"no --devices: exit {done.returncode}\n{done.stderr}")


def resumed(folder, failures):
    """Ranks are killed while they calibrate; the next run keeps what was finished."""
    output = folder / "resumed.json"
    journal = pathlib.Path(f"{output}.journal")
    command = ("mpirun", "-n", "2", str(programs.BIN / "planner-calibrate-mpi"), "--quick", "--budget", "5m",
               "-o", str(output))
    started = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    end = time.monotonic() + 120
    while time.monotonic() < end and started.poll() is None:
        if journal.exists() and journal.read_bytes().count(b"\n") > 20:
            break
        time.sleep(0.05)
    started.kill()
    started.wait()
    with open(journal, "ab") as file:
        file.write(b'{"test": "half a li')
    if output.exists():
        failures.append("a killed calibration wrote its file")
    for _ in range(60):  # until the ranks have noticed that they are alone
        done = run(*command[:4], "--resume", "-o", output)
        if "another calibration" not in done.stderr:
            break
        time.sleep(0.5)
    if done.returncode != programs.BAD_INPUT or "--resume" not in done.stderr:
        failures.append(f"the journal of another calibration: exit {done.returncode}\n{done.stderr}")
    lines = [json.loads(line) for line in journal.read_bytes().split(b"\n")[1:-1]]
    done = run(*command[:5], "--budget", 0.001, "--resume", "-o", output)
    if done.returncode != programs.OK or "taken from an earlier run" not in done.stdout:
        failures.append(f"--resume: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return
    measured = json.loads(output.read_text())
    # A test that was measured again, since the reference slowed down, has two lines; the last counts.
    # A test that it says is discarded does not count, unless it was measured since.
    last = {}
    for line in lines:
        for test in line.get("discarded", ()):
            last.pop(test, None)
        if "test" in line:
            last[line["test"]] = line
    def points(tests):
        return [(kind, point) for line in tests
                for kind in ("collectives", "ops", "matmuls", "overlaps")
                for point in line["measured"][kind]]

    # On a busy machine most may have been discarded.
    written, kept = points(line for line in lines if "test" in line), points(last.values())
    lost = [point for kind, point in kept if point not in measured[kind]]
    if len(written) < 10 or lost:
        failures.append(f"of {len(kept)} points, {len(written)} before, these were lost: {lost}")
    if journal.exists():
        failures.append("the journal is left behind")


def refusals(folder, failures):
    path = plan(folder, 2, "mp=2")
    binary = programs.BIN / "planner-run-mpi"
    hanging = folder / "mpirun"
    hanging.write_text("#!/bin/sh\n(exit 3) &\nexec sleep 600\n")
    hanging.chmod(0o755)
    cases = [
        ("another number of processes", programs.USAGE, "is for 2 devices",
         ("mpirun", "-n", 4, binary, path, "--data", TEXT)),
        ("a launcher that is none", programs.USAGE, "mpirun and srun are allowed",
         (programs.BIN / "planner", "run", path, "--data", TEXT, "--launcher", "sh -c")),
        ("a deadline that no rank can keep", programs.ENVIRONMENT, "deadline",
         (programs.BIN / "planner", "run", path, "--launcher", "mpirun", "--data", TEXT, "--deadline", 0.001)),
        ("a launcher that hangs after its ranks have ended", programs.ENVIRONMENT, "mpirun hung, and was killed",
         (programs.BIN / "planner", "run", path, "--launcher", hanging, "--data", TEXT)),
        ("a missing text", programs.BAD_INPUT, "none.txt",
         ("mpirun", "-n", 2, binary, path, "--data", folder / "none.txt")),
    ]
    for name, code, words, command in cases:
        done = run(*command, timeout=120)
        if done.returncode != code or words not in done.stderr:
            failures.append(f"{name}: exit {done.returncode}, not {code}, or without \"{words}\"\n"
                            f"{done.stderr}")


def unready(folder, failures):
    """A process whose text never comes, so that it never gets to its first step: the others end the run and say who it was."""
    path = plan(folder, 2, "mp=2")
    never = folder / "never.txt"
    os.mkfifo(never)
    first, second = (("-n", 1, programs.BIN / "planner-run-mpi", path, "--data", text, "--deadline", 2) for text in (TEXT, never))
    done = run("mpirun", *first, ":", *second, timeout=120)
    if done.returncode != programs.ENVIRONMENT or "rank 1 still computes" not in done.stderr:
        failures.append(f"a rank that is not ready: exit {done.returncode}\n{done.stderr}")
    try:
        os.close(os.open(never, os.O_WRONLY | os.O_NONBLOCK))
        failures.append("a process still waits for its text")
    except OSError:
        pass  # nobody reads


def failing(failures):
    """A process that is killed, stopped or late: the others end or go on, and say who it was."""
    for program, ranks in (("run", 3), ("calibrate", 2)):
        done = run(programs.SOURCE / "lab/rank-failures", "--program", program, "--ranks", ranks, "--rank", 1, "--deadline", 15,
                   "--bin", programs.BIN, timeout=300)
        if done.returncode != programs.OK:
            failures.append(f"a failing rank of {program}: {done.stdout}{done.stderr}")


def main():
    if not shutil.which("mpirun") or not (programs.BIN / "planner-run-mpi").exists():
        print("skipped: no MPI on this machine")
        return SKIPPED
    failures = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        draws(failures)
        launcher(folder, failures)
        calibration(folder, failures)
        resumed(folder, failures)
        refusals(folder, failures)
        unready(folder, failures)
        failing(failures)
    print("\n".join(failures) or "ok")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
