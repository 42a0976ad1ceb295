"""Emulated hosts: two hosts on a link of 1 Gbit/s train what one process trains."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import programs

TEXT = programs.SOURCE / "data" / "training-text.txt"
HOSTS = programs.SOURCE / "scripts" / "hosts"
STEPS = 6
SKIPPED = 77


def run(*command, timeout=240):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          env=dict(os.environ, OMP_NUM_THREADS="1"), timeout=timeout, check=False)


def measure(folder, name, plan, *launcher):
    output = folder / f"{name}.json"
    done = run(*launcher, plan, "--data", TEXT, "--steps", STEPS, "-o", output)
    assert done.returncode == programs.OK, f"{name}: exit {done.returncode}\n{done.stderr}"
    return json.loads(output.read_text())


def results(measured):
    memory = [(rank["rank"], rank["peak_bytes"]) for rank in measured["timeline"]["memory"]]
    return measured["losses"], measured["gradient_norms"], memory


def plan(folder, devices, per_node, *fixed):
    cluster = dict(programs.CLUSTER, nodes=2, devices_per_node=per_node)
    network = {"name": "network", "devices": None, "bandwidth": "125 MB/s", "latency": "50 us"}
    inside = [dict(programs.CLUSTER["levels"][0], devices=per_node)] if per_node > 1 else []
    cluster["levels"] = [*inside, network]
    cluster = programs.write_json(folder / "cluster.json", cluster)
    path = folder / f"plan{devices}.json"
    done = programs.planner("plan", programs.NANO, "--cluster", cluster, "--devices", devices,
                            "--global-batch", 8, "-o", path,
                            *[word for choice in fixed for word in ("--fix", choice)])
    assert done.returncode == programs.OK, done.stderr
    return path


def across(folder, failures):
    """Results do not depend on where ranks are."""
    binary = programs.BIN / "planner-run-mpi"
    for slots, fixed in ((1, ["dp=2"]), (2, ["mp=2", "sharding_degree=2"])):
        ranks = 2 * slots
        path = plan(folder, ranks, slots, *fixed)
        threads = measure(folder, "threads", path, programs.BIN / "planner-run")
        hosts = measure(folder, "hosts", path, HOSTS, "--slots", slots, "mpirun", "-n", ranks, binary)
        if results(hosts) != results(threads):
            failures.append(f"{ranks} ranks on two hosts do not train what threads train")


def planned(folder, failures):
    """Two hosts with two ranks each, measured and planned for: no tensor parallelism over the link,
    and what the plan trains there is what threads train. How fast is not looked at."""
    calibration, cluster = folder / "calibration.json", folder / "measured-cluster.json"
    done = run(HOSTS, "--slots", 2, programs.BIN / "planner", "calibrate", "--launcher", "mpirun",
               "--devices", 4, "--quick", "--budget", 1, "-o", calibration, "--cluster-out", cluster)
    if done.returncode != programs.OK:
        failures.append(f"calibrate: exit {done.returncode}\n{done.stderr}")
        return
    found = json.loads(calibration.read_text())
    across = {(point["kind"], point["ranks"], point["groups_per_node"])
              for point in found["collectives"] if point["nodes"] == 2}
    kinds = ("all_reduce", "reduce_scatter", "all_gather")
    wanted = {(kind, *shape) for kind in kinds for shape in ((2, 1), (2, 2), (4, 1))}
    if across != wanted | {("send", 2, 1), ("send", 2, 2)}:
        failures.append(f"shapes across hosts: {sorted(across)}")
    measured = json.loads(cluster.read_text())
    levels = [level["name"] for level in measured["levels"]]
    if (measured["nodes"], measured["devices_per_node"], levels) != (2, 2, ["node", "network"]):
        failures.append(f"cluster: {measured}")
    path = folder / "chosen.json"
    done = programs.planner("plan", programs.NANO, "--cluster", cluster, "--calibration", calibration,
                            "--devices", 4, "--global-batch", 8, "-o", path, "--verbose")
    assert done.returncode == programs.OK, done.stderr
    chosen = json.loads(path.read_text())
    if chosen["strategy"]["mp"] > 2:  # ranks of a host are 0, 1 and 2, 3
        failures.append(f"tensor parallelism over the link: {chosen['strategy']}")
    if chosen["communicator"] != "mpi" or "processes over MPI" not in done.stdout:
        failures.append(f"the plan does not say what its times hold for\n{done.stdout}")
    threads = measure(folder, "chosen-threads", path, programs.BIN / "planner-run")
    hosts = measure(folder, "chosen-hosts", path, HOSTS, "--slots", 2, "mpirun", "-n", 4,
                    programs.BIN / "planner-run-mpi")
    if results(hosts) != results(threads):
        failures.append("the chosen plan trains something else on hosts than threads do")
    done = programs.planner("compare", path, folder / "chosen-hosts.json", "--tolerance", 100)
    if done.returncode != programs.OK or "measured with the mpi communicator" not in done.stdout:
        failures.append(f"compare: exit {done.returncode}\n{done.stdout}{done.stderr}")


def accuracy(folder, failures):
    """The script that holds predictions against runs, as small as can be and without a goal."""
    done = run(programs.SOURCE / "lab" / "hosts-accuracy", "--bin", programs.BIN, "--quick",
               "--budget", 1, "--job", programs.NANO, "--plan", "dp=2", "--repeats", 1, "--steps", 5,
               "--out", folder / "accuracy")
    if done.returncode != programs.OK or "median error" not in done.stdout:
        failures.append(f"hosts-accuracy: exit {done.returncode}\n{done.stdout}{done.stderr}")


def refuses(folder, failures):
    """Ranks where the plan has other nodes."""
    path = plan(folder, 2, 2, "dp=2")
    run_it = (HOSTS, "mpirun", "-n", 2, programs.BIN / "planner-run-mpi", path, "--data", TEXT,
              "--steps", STEPS)
    done = run(*run_it)
    if done.returncode != programs.USAGE or "hosts host0 and host1" not in done.stderr:
        failures.append(f"one node over two hosts: exit {done.returncode}\n{done.stderr}")
    if run(*run_it, "--any-hosts").returncode != programs.OK:
        failures.append("--any-hosts: refused")


def fails(failures):
    """A rank of the other host is killed, stopped or late: those of this one say who it was."""
    done = run(HOSTS, "--slots", 2, programs.SOURCE / "lab/rank-failures", "--ranks", 4, "--rank", 2, "--deadline", 15,
               "--bin", programs.BIN, "--launcher", "mpirun")
    if done.returncode != programs.OK:
        failures.append(f"a rank of another host fails: {done.stdout}{done.stderr}")


def shapes(failures):
    """Both ends of a link are as slow as asked for, and hosts have names of their own."""
    done = run(HOSTS, "--bandwidth", "50mbit", "sh", "-c",
               "tc qdisc show dev eth0; mpirun -n 2 sh -c 'hostname'")
    for words in ("tbf", "rate 50Mbit", "host0", "host1"):
        if words not in done.stdout:
            failures.append(f"{words} is missing in:\n{done.stdout}{done.stderr}")


def leaves_nothing(failures):
    before = run("ip", "netns", "list").stdout
    done = run(HOSTS, "--count", 3, "sh", "-c", "exit 5")
    if done.returncode != 5:
        failures.append(f"exit {done.returncode} for a command that ended with 5\n{done.stderr}")
    if run("ip", "netns", "list").stdout != before:
        failures.append("namespaces are left behind")
    for arguments in (("--count", "x", "true"), ("--nodes", "2", "true"), ("--bandwidth",), ()):
        if run(HOSTS, *arguments).returncode != programs.USAGE:
            failures.append(f"accepted: {arguments}")


def main():
    if not shutil.which("mpirun") or not (programs.BIN / "planner-run-mpi").exists():
        print("skipped: no MPI on this machine")
        return SKIPPED
    done = run(HOSTS, "true")
    if done.returncode == programs.ENVIRONMENT:
        print(f"skipped: {done.stderr.strip()}")
        return SKIPPED
    failures = []
    with tempfile.TemporaryDirectory() as name:
        leaves_nothing(failures)
        shapes(failures)
        across(pathlib.Path(name), failures)
        planned(pathlib.Path(name), failures)
        accuracy(pathlib.Path(name), failures)
        refuses(pathlib.Path(name), failures)
        fails(failures)
    print("\n".join(failures) or "ok")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
