"""How the script tests find and run the executables."""

import importlib.machinery
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(os.environ["PLIMSOLL_SOURCE_DIR"])
BIN = pathlib.Path(os.environ["PLIMSOLL_BIN_DIR"])
NANO = SOURCE / "tests" / "gpt-nano.json"

# The folders of the product's code, in which tests of the tree look.
PRODUCT = sorted({line.split("/")[0].split(":")[0]
                  for line in (SOURCE / "cmake" / "folders.txt").read_text().splitlines()
                  if line and not line.startswith("#")})

# Documented in docs/reference/exit-codes.md.
OK, INTERNAL, USAGE, BAD_INPUT, INFEASIBLE, STOPPED_EARLY, ENVIRONMENT, OUTSIDE_TOLERANCE = range(8)

# A machine that exists only for tests: figures chosen, not measured.
CLUSTER = {
    "name": "test-cpu",
    "nodes": 1,
    "devices_per_node": 4,
    "device": {
        "name": "test-core",
        "kind": "cpu_core",
        "memory": "4 GiB",
        "memory_bandwidth": "10 GB/s",
        "peak": {"fp32": "100 GFLOP/s"},
    },
    "levels": [{"name": "memory", "devices": None, "bandwidth": "5 GB/s", "latency": "2 us"}],
    "source": "chosen for tests, not measured",
}


def planner(*arguments, timeout=300):
    """Runs `planner ARGUMENTS`; returns the completed process with text output."""
    command = [str(BIN / "planner"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout)


def lab(name, *arguments, timeout=600):
    """Runs `lab/NAME ARGUMENTS`: lab/validate and lab/fit take raw rows of published runs."""
    command = [str(SOURCE / "lab" / name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout)


def catches(process, number):
    """Whether a process has a handler for a signal."""
    with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
        caught = next(line.split()[1] for line in status if line.startswith("SigCgt:"))
    return int(caught, 16) >> (number - 1) & 1 == 1


def load_script(name):
    """A script of scripts/ or lab/ without .py, as a module."""
    sys.dont_write_bytecode = True
    folder = next(SOURCE / folder for folder in ("scripts", "lab") if (SOURCE / folder / name).exists())
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))  # what scripts share is beside them
    loader = importlib.machinery.SourceFileLoader(name, str(folder / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")
    return path


def nano_job(**changes):
    """The tests' job with some keys changed; None removes a key."""
    job = json.loads(NANO.read_text())
    job.update(changes)
    return {key: value for key, value in job.items() if value is not None}
