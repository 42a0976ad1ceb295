"""Ctrl-C, a closed terminal and SIGTERM end commands in order: a run without checkpoints and a calibration say how far they came and
what is kept, and a search writes the best plan so far."""

import contextlib
import errno
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import programs
from programs import BIN, CLUSTER, OK, SOURCE, STOPPED_EARLY, catches, nano_job, planner, write_json

TEXT = SOURCE / "data" / "training-text.txt"
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                   OMPI_MCA_rmaps_base_oversubscribe="1")
ENDLESS = "1000000"  # steps
PATIENCE = 600  # seconds for what has to end well
DEADLINE = 8  # seconds, of runs that are stopped for longer
MPI = shutil.which("mpirun") and (BIN / "planner-run-mpi").exists()


def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=PATIENCE, env=ENVIRONMENT, check=False)


@contextlib.contextmanager
def ended(command, **pipes):
    """A command that runs no longer than the block does."""
    running = subprocess.Popen(command, env=ENVIRONMENT, **pipes)
    try:
        yield running
    finally:
        running.kill()
        running.wait()


def wait_until(holds, running, said):
    end = time.monotonic() + PATIENCE
    while not holds():
        assert running.poll() is None and time.monotonic() < end, (running.args, running.returncode, said.read_text())
        time.sleep(0.02)


def interrupted(number, begun, *command, one_of_two=False):
    """Starts a command, sends it a signal once `begun` holds for it and what it has said, and returns all that it says. With `one_of_two` it is
    run as two processes of mpirun, and only the second gets the signal: launchers treat signals of their own in different ways."""
    command = [str(word) for word in command]
    with tempfile.TemporaryDirectory() as name:
        said, second = pathlib.Path(name) / "said", pathlib.Path(name) / "second"
        if one_of_two:
            script = f'[ "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" = 1 ] && echo $$ > {second}; exec "$@"'
            command = ["mpirun", "-n", "2", "sh", "-c", script, "sh", *command]
        with open(said, "w", encoding="utf-8") as file, ended(command, stderr=file, stdout=subprocess.DEVNULL) as running:
            wait_until(lambda: begun(running, said.read_text()), running, said)
            for _ in range(2 if number == signal.SIGHUP else 1):  # a closed terminal may send it twice
                with contextlib.suppress(ProcessLookupError):  # it may have ended behind the first
                    os.kill(int(second.read_text()) if one_of_two else running.pid, number)
                time.sleep(0.01)
            codes = {128 + number, 128 + (signal.SIGTERM if one_of_two else number)}  # mpirun gives that of the rank that ends first
            assert running.wait(PATIENCE) in codes, (command, running.returncode, said.read_text())
        return said.read_text()


def make_plan(folder, name, *fixed):
    job = write_json(folder / "job.json", {**nano_job(global_batch=8), "layers": 2, "hidden": 16, "heads": 2, "kv_heads": 2,
                                           "ffn_hidden": 16})
    path = folder / f"{name}.json"
    done = planner("plan", job, "--cluster", write_json(folder / "cluster.json", CLUSTER), "--devices", 2, "-o", path,
                   *[word for choice in fixed for word in ("--fix", choice)])
    assert done.returncode == OK, done.stderr
    return path


def says_where_it_stopped(said, name, output):
    found = re.search(rf"^stopped by {name} behind step (\d+) of {ENDLESS}; .* --checkpoint; {output} is not written", said, re.M)
    assert found, said
    assert found[1] == re.findall(r"^step (\d+)/", said, re.M)[-1], said
    assert not output.exists()


def runs(folder, plan):
    output = folder / "measured.json"
    command = (plan, "--data", TEXT, "--steps", ENDLESS, "-o", output)
    def begun(_, said):
        return "\nstep 3/" in said
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        says_where_it_stopped(interrupted(number, begun, BIN / "planner-run", *command), number.name, output)
    if MPI:
        for number in (signal.SIGTERM, signal.SIGHUP):
            said = interrupted(number, begun, BIN / "planner-run-mpi", *command, one_of_two=True)
            says_where_it_stopped(said, "SIGTERM", output)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            said = interrupted(number, begun, BIN / "planner-run", *command, "--launcher", "mpirun --oversubscribe")
            assert "a second signal ends them" in said, said
            says_where_it_stopped(said, "SIGUSR1", output)


def calibrations(folder):
    """A calibration that is stopped leaves a whole journal, and the next one takes over its tests."""
    output = folder / "calibration.json"
    journal = pathlib.Path(f"{output}.journal")
    def begun(*_):
        return journal.exists() and journal.read_bytes().count(b"\n") > 3
    for launcher in ((), ("mpirun", "-n", 2)) if MPI else ((),):
        program = BIN / ("planner-calibrate-mpi" if launcher else "planner-calibrate")
        said = interrupted(signal.SIGTERM, begun, program, "--quick", "--budget", "5m", "-o", output, one_of_two=bool(launcher))
        assert re.search(rf"^stopped by SIGTERM; {output} .*{journal} .*--resume", said, re.M), said
        assert not output.exists()
        text = journal.read_bytes()
        assert text.endswith(b"\n"), text[-100:]
        tests = {line["test"] for line in map(json.loads, text.splitlines()) if "test" in line}
        done = run(*launcher, program, "--quick", "--budget", 0.001, "--resume", "-o", output)
        assert done.returncode == OK, done.stderr
        taken = re.search(r"^(\d+) tests were taken from an earlier run$", done.stdout, re.M)
        # Tests that a slower reference discarded are measured again.
        assert taken and 0 < int(taken[1]) <= len(tests), (done.stdout, len(tests))
        assert output.exists() and not journal.exists()
        output.unlink()
    for number in (signal.SIGINT, signal.SIGHUP):
        said = interrupted(number, lambda running, _, number=number: catches(running, number), BIN / "planner-calibrate")
        assert re.search(rf"^stopped by {number.name}; nothing was written.* -o ", said, re.M), said


def stopped_search(number, patience, output):
    """Sends a signal `patience` seconds after the search can note it. Returns what the search says."""
    command = [BIN / "planner", "plan", "gpt3-175b", "--cluster", "dgx-a100-80gb", "--devices", "1536", "-o", output]
    with subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        while running.poll() is None and not catches(running, number):
            time.sleep(0.001)
        time.sleep(patience)
        running.send_signal(number)
        _, said = running.communicate(timeout=PATIENCE)
    assert running.returncode == STOPPED_EARLY, (running.returncode, said)
    return said


def searches(folder):
    """A search that is stopped before it has found a plan writes none. One that is stopped later writes its best."""
    patience = 0
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        output = folder / f"best-{number}.json"
        while "none fits so far" in (said := stopped_search(number, patience, output)):
            assert not output.exists(), said
            patience = 2 * patience + 0.5
        assert "stopped by an interrupt" in said, said
        assert planner("check", output).returncode == OK


def hang_up_of_nohup(folder, plan):
    """Who starts a command by nohup wants it to go on when the terminal is closed."""
    said = folder / "nohup.txt"
    for launcher in ([], ["--launcher", "mpirun --oversubscribe"]) if MPI else ([],):
        command = ["nohup", BIN / "planner-run", plan, "--data", TEXT, "--steps", ENDLESS, *launcher]
        with open(said, "w", encoding="utf-8") as file, \
                ended(command, stderr=file, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL) as running:
            wait_until(lambda: "\nstep 2/" in said.read_text(), running, said)
            running.send_signal(signal.SIGHUP)
            steps = len(said.read_text().splitlines())
            wait_until(lambda: len(said.read_text().splitlines()) > steps + 4, running, said)


def read_until(terminal, words):
    """Reads what a terminal shows until it has one of the words."""
    said, end = b"", time.monotonic() + PATIENCE
    while not any(word in said for word in words):
        assert time.monotonic() < end and select.select([terminal], [], [], PATIENCE)[0], said
        said += os.read(terminal, 4096)
    return said


def closed_terminals(folder, plan):
    """The terminal of a command is closed, so that it gets SIGHUP and can say nothing more."""
    training, output, best = folder / "training", folder / "closed.json", folder / "best.json"
    search = ["planner", "plan", "gpt3-175b", "--cluster", "dgx-a100-80gb", "--devices", "1536", "--threads", "1", "-o", best]
    for kept, code, begun, command in (
            (lambda: any(training.glob("step-*")), 128 + signal.SIGHUP, [b"step 3/"],
             ["planner-run", plan, "--data", TEXT, "--steps", ENDLESS, "--checkpoint", training]),
            (pathlib.Path(f"{output}.journal").exists, 128 + signal.SIGHUP, [b"calibrating 2/"],
             ["planner-calibrate", "--quick", "--budget", "5m", "-o", output]),
            (best.exists, programs.ENVIRONMENT, [b"strategies done"], search)):
        running, terminal = pty.fork()
        if running == 0:
            os.execve(BIN / command[0], [str(word) for word in command], ENVIRONMENT)
        try:
            said = read_until(terminal, begun)
            os.close(terminal)
            end = time.monotonic() + PATIENCE
            while (found := os.waitpid(running, os.WNOHANG)) == (0, 0):
                assert time.monotonic() < end, (command, said)
                time.sleep(0.02)
            running = 0
        finally:
            if running:
                os.kill(running, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(found[1]) == code, (command, found, said)
        assert kept(), command


def suspended_runs(folder, plan):
    """A run that is stopped as a whole, for longer than its deadlines, goes on."""
    said = folder / "suspended.txt"
    threads, processes = [BIN / "planner-run"], ["mpirun", "--oversubscribe", "-n", "2", BIN / "planner-run-mpi"]
    for program in (threads, processes) if MPI else (threads,):
        command = [*program, plan, "--data", TEXT, "--steps", ENDLESS, "--deadline", str(DEADLINE)]
        with open(said, "w", encoding="utf-8") as file, ended(command, stderr=file, stdout=subprocess.DEVNULL) as running:
            wait_until(lambda: "\nstep 3/" in said.read_text(), running, said)
            ranks = subprocess.run(["pgrep", "-P", str(running.pid)], capture_output=True, text=True, check=False).stdout.split()
            everything = [running.pid, *map(int, ranks)]
            for process in everything:
                os.kill(process, signal.SIGSTOP)
            time.sleep(2.5 * DEADLINE)  # a rank within a step may be silent for twice the deadline
            for process in everything:
                os.kill(process, signal.SIGCONT)
            steps = len(said.read_text().splitlines())
            wait_until(lambda: len(said.read_text().splitlines()) > steps + 4, running, said)
            running.terminate()
            running.wait(PATIENCE)


def open_for_writing(pipe):
    """Returns a descriptor, or nothing where nobody reads from the pipe."""
    try:
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        assert error.errno == errno.ENXIO, error
        return None


def pipes(folder):
    """A command that waits for an input file has nothing to show, and ends at once."""
    pipe = folder / "pipe.json"
    os.mkfifo(pipe)
    for number, command in ((signal.SIGINT, "plan"), (signal.SIGTERM, "sweep")):
        with ended([BIN / "planner", command, pipe, "--cluster", "dgx-h100-80gb", "--devices", "2"], stderr=subprocess.DEVNULL) as running:
            writers = []
            wait_until(lambda writers=writers: (writer := open_for_writing(pipe)) is not None and not writers.append(writer), running, pipe)
            running.send_signal(number)
            assert running.wait(PATIENCE) == -number, running.returncode
            os.close(writers[0])


def main():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests may run where these are ignored
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        plan = make_plan(folder, "plan", "dp=2")
        runs(folder, plan)
        hang_up_of_nohup(folder, plan)
        closed_terminals(folder, plan)
        suspended_runs(folder, plan)
        pipes(folder)
        calibrations(folder)
        searches(folder)
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
