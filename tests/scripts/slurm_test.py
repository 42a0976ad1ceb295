"""A plan exported for Slurm runs as a batch job of two tasks and writes its measurement."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import programs

TEXT = programs.SOURCE / "data" / "training-text.txt"
SLURM = programs.SOURCE / "scripts" / "slurm"
SKIPPED = 77


def run(*command, folder, timeout=240):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=folder,
                          env=dict(os.environ, OMP_NUM_THREADS="1"), timeout=timeout, check=False)


def plan(folder, devices, cluster):
    path = folder / "plan.json"
    done = programs.planner("plan", programs.NANO, "--cluster", cluster, "--devices", devices,
                            "--global-batch", 8, "-o", path)
    assert done.returncode == programs.OK, done.stderr
    return path


def batch(folder, cluster, failures):
    path = plan(folder, 2, cluster)
    script = folder / "job's script.sh"
    done = programs.planner("export", path, "--to", "slurm", "--data", TEXT, "--steps", 5, "--measured",
                            folder / "measured.json", "--time", "5", "-o", script)
    assert done.returncode == programs.OK, done.stderr
    done = run(SLURM, "--tasks", 2, "sbatch", "--wait", script, folder=folder)
    logs = "".join(log.read_text() for log in folder.glob("slurm-*.out"))
    if done.returncode != programs.OK:
        failures.append(f"sbatch: exit {done.returncode}\n{done.stdout}{done.stderr}{logs}")
        return
    local = run(programs.BIN / "planner-run", path, "--data", TEXT, "--steps", 5, "-o",
                folder / "local.json", folder=folder)
    assert local.returncode == programs.OK, local.stderr
    found, expected = (json.loads((folder / name).read_text())
                       for name in ("measured.json", "local.json"))
    if found["losses"] != expected["losses"] or found["communicator"] != "mpi":
        failures.append(f"the job measured {found['losses']}, threads {expected['losses']}")
    done = run(SLURM, "--tasks", 2, programs.BIN / "planner", "run", path, "--data", TEXT, "--steps", 5,
               "--launcher", "srun", "-o", folder / "srun.json", folder=folder)
    if done.returncode != programs.OK:
        failures.append(f"--launcher srun: exit {done.returncode}\n{done.stderr}")
    elif json.loads((folder / "srun.json").read_text())["losses"] != expected["losses"]:
        failures.append("srun and threads differ")


def scripts(folder, cluster, failures):
    """The script asks Slurm for two nodes of four."""
    path = plan(folder, 8, cluster)
    text = programs.planner("export", path, "--to", "slurm", "--data", "text").stdout
    for line in ("#SBATCH --nodes=2", "#SBATCH --ntasks=8", "#SBATCH --ntasks-per-node=4"):
        if f"{line}\n" not in text:
            failures.append(f"{line} is missing in:\n{text}")
    for arguments in (("--to", "pbs"), ("--to", "slurm", "--time", "1h"), ()):
        done = programs.planner("export", path, "--data", "text", *arguments)
        if done.returncode != programs.USAGE:
            failures.append(f"export {arguments}: exit {done.returncode}")


def main():
    if not (programs.BIN / "planner-run-mpi").exists():
        print("skipped: no MPI on this machine")
        return SKIPPED
    failures = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        cluster = dict(programs.CLUSTER, nodes=None)
        cluster["levels"] = [dict(programs.CLUSTER["levels"][0], devices=4),
                             {"name": "network", "devices": None, "bandwidth": "1 GB/s",
                              "latency": "30 us"}]
        cluster = programs.write_json(folder / "cluster.json", cluster)
        scripts(folder, cluster, failures)
        done = run(SLURM, "true", folder=folder)
        if done.returncode == programs.OK:
            batch(folder, cluster, failures)
        elif done.returncode == programs.ENVIRONMENT and not failures:
            print(f"skipped: {done.stderr.strip()}")
            return SKIPPED
        else:
            failures.append(f"scripts/slurm: exit {done.returncode}\n{done.stderr}")
    print("\n".join(failures) or "ok")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
