"""scripts/gpu_kernels.py has the cases that published runs leave open, with the work of each."""

import importlib.util
import json
import subprocess
import sys

from programs import SOURCE

SCRIPT = SOURCE / "scripts/gpu_kernels.py"


def load():
    spec = importlib.util.spec_from_file_location("gpu_kernels", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    kernels = load()
    listed = json.loads(subprocess.run([sys.executable, "-B", SCRIPT, "--list"], check=True,
                                       capture_output=True, text=True).stdout)
    assert listed == kernels.cases(), "the list is what is timed"
    by_class = {}
    for case in listed:
        by_class.setdefault(case["class"], []).append(case)
    assert set(by_class) == {"launch", "replay", "grouped", "permute", "attention", "width"}

    for case in by_class["grouped"]:
        rows, hidden, columns = case["rows"], case["hidden"], case["columns"]
        assert case["flops"] == sum(2 * n * hidden * columns for n in rows), case
        read = sum(n * hidden for n in rows) + len(rows) * hidden * columns
        assert case["bytes"] == 2 * (read + sum(n * columns for n in rows)), case
    even = {(case["name"], sum(case["rows"])) for case in by_class["grouped"] if len(set(case["rows"])) == 1}
    uneven = {(case["name"], sum(case["rows"])) for case in by_class["grouped"] if len(set(case["rows"])) > 1}
    assert even == uneven, "the same rows, shared evenly and not"
    assert min(n for case in by_class["grouped"] for n in case["rows"]) < 64, "few rows"
    assert max(max(case["rows"]) / min(case["rows"]) for case in by_class["grouped"]) > 8

    heads = {case["head"] for case in by_class["attention"]}
    assert heads == {64, 128}
    for case in by_class["attention"]:
        # A product of all scores is 2 s^2 FLOPs for each column of a head; the mask leaves half.
        product = 2 * case["sequence"] ** 2 * case["heads"] * case["head"] / 2
        batch = kernels.TOKENS // case["sequence"]
        assert case["flops"] == batch * product * (7 if case["backward"] else 2), case
    widths = {size for case in by_class["width"] for size in (case["inner"], case["columns"])}
    assert any(size % 128 and size % 64 == 0 for size in widths)

    timed = [{**case, "seconds": case.get("flops", case.get("bytes", 0)) / 1e14 or 3e-6}
             for case in listed if case["class"] != "replay"]
    lines = kernels.summary([*timed, *by_class["replay"]])
    assert lines[0] == "launch: add 3.0 us, linear 3.0 us, linear and backward 3.0 us", lines
    assert "replay: not timed" in lines
    assert any(line.startswith("width: 100 to 100 TFLOP/s over 8 cases") for line in lines), lines

    check = (SOURCE / "scripts/gpu_check.py").read_text()
    assert "gpu_kernels.py" in check
    bundle = (SOURCE / "scripts/gpu-check").read_text()
    assert "gpu_{check,reference,kernels}.py" in bundle, "a bundle has the script, too"
    return 0


if __name__ == "__main__":
    sys.exit(main())
