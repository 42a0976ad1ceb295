"""scripts/memory_spreads.py: half widths of memory that made-up peaks need, part after part."""

import json
import math
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

from programs import OK, SOURCE, write_json

GIB = 1 << 30
KNOWN = json.loads((SOURCE / "models/presets/spreads/memory.json").read_text())


def row(document, kind, error, passing, pools, outside):
    """`error`: of measured over predicted; `passing`: share of temporary bytes, to its power; `outside`: share of the device."""
    allocated = KNOWN["passing"] * passing
    reserved = math.hypot(allocated, KNOWN["kept"], KNOWN["flat_copies"] * pools)
    device = math.hypot(reserved * (1 - outside), KNOWN["outside"] * outside)
    predicted = {"memory_allocated_bytes": 30 * GIB, "memory_reserved_bytes": 40 * GIB,
                 "memory_device_bytes": int(40 * GIB / (1 - outside)), "memory_allocated_half_width": allocated,
                 "memory_reserved_half_width": reserved, "memory_device_half_width": device}
    measured = {f"memory_{one}_bytes": None for one in ("allocated", "reserved", "device")}
    measured[f"memory_{kind}_bytes"] = int(predicted[f"memory_{kind}_bytes"] * (1 + error))
    return {"id": document, "source": document, "predicted": predicted, "measured": {**measured, "oom": False}}


def main():
    drawn = random.Random(3)
    rows = []
    for document in "abcdefgh":
        for _ in range(40):
            passing, outside, pools = drawn.uniform(0.2, 0.6), drawn.uniform(0.05, 0.1), drawn.random() < 0.5
            allocated = passing * drawn.gauss(0, 0.12)
            kept = allocated + drawn.gauss(0, 0.05)
            reserved = kept + pools * drawn.gauss(0, 0.1)
            rows += [row(document, "allocated", allocated, passing, pools, outside),
                     row(document, "reserved", reserved, passing, pools, outside),
                     row(document, "device", reserved * (1 - outside) + outside * drawn.gauss(0, 0.6), passing, pools, outside)]
    rows += [{"id": "x", "missing": "gpu"}, {**rows[0], "measured": {**rows[0]["measured"], "oom": True}}]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        output = folder / "memory.json"
        command = [sys.executable, SOURCE / "scripts/memory_spreads.py", write_json(folder / "rows.json", {"rows": rows})]
        done = subprocess.run([*command, "--output", output], capture_output=True, text=True)
        assert done.returncode == OK, done.stderr
        found = json.loads(output.read_text())
        printed = subprocess.run(command, capture_output=True, text=True).stdout
    assert set(found) == set(KNOWN) and found["power"] == KNOWN["power"], found
    # 1.645 deviations of a normal distribution hold nine in ten.
    assert abs(found["passing"] - 1.645 * 0.12) < 0.03, found
    for part, deviation in (("kept", 0.05), ("flat_copies", 0.1)):  # a little less: other parts hold some of them by chance
        assert 1.2 * deviation < found[part] < 1.8 * deviation, (part, found)
    assert 0.3 < found["outside"] < 1.6, found
    shares = [int(line.split()[-2]) for line in printed.splitlines() if " holds " in line]
    assert len(shares) == 24 and 85 <= statistics.mean(shares) <= 97, shares
    return 0


if __name__ == "__main__":
    sys.exit(main())
