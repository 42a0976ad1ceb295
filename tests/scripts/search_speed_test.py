"""lab/search-speed: one row, of the smallest problem; and what --growth writes about searches that were run before."""

import argparse
import json
import pathlib
import re
import subprocess
import tempfile

from programs import BIN, OK, SOURCE, load_script

done = subprocess.run([SOURCE / "lab" / "search-speed", "--bin", BIN, "--only", "gpt2-xl"],
                      capture_output=True, text=True, timeout=500)
assert done.returncode == OK, done.stderr
header, _, row = done.stdout.splitlines()
cells = [cell.strip() for cell in row.strip("|").split("|")]
assert len(cells) == header.strip("|").count("|") + 1, row
assert cells[:3] == ["gpt2-xl", "dgx-a100-80gb", "16"], row
assert cells[5] == "yes" and re.fullmatch(r"\d+\.\d s", cells[6]), row

search_speed = load_script("search-speed")
# The choices that are held for Calculon leave a space of the size of Calculon's, 84,280 configurations.
problem = next(one for one in search_speed.PROBLEMS if one.held and one.devices == 512)
command = [BIN / "planner", "space", problem.job, "--cluster", problem.cluster, "--devices", str(problem.devices),
           "--global-batch", str(problem.batch), "--json"]
for choice in problem.held:
    command += ["--fix", choice]
space = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
assert 0.9 * 84280 < space["enumerated"] < 84280, space["enumerated"]


def found(problem, _options, _folder):
    """As if each search took longer on more devices, and that of the most was stopped."""
    proven = problem.devices < 131072
    return {"search": {"space": 1000, "evaluated": 5, "gap": 0.01}, "proven": proven, "cpu": problem.devices / 100,
            "wall": 1, "memory": 64, "step": 2}


search_speed.run = found
with tempfile.TemporaryDirectory() as name:
    out = pathlib.Path(name)
    search_speed.growth(argparse.Namespace(out=out, threads=1, time_limit=60))
    page = (out / "speed.md").read_text()
assert "| 131,072 | 1,000 | 5 | within 1.0 % | 1310.7 s | 1.0 s | 64 MiB | 2 s |" in page, page
assert "| 128 | 1,000 | 5 | yes |" in page, page
