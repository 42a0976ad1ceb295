"""scripts/fit-efficiency: its formulas are those of the C++ tests, and it finds the parameters that
made-up measurements were made from."""

import pathlib
import subprocess
import sys
import tempfile

from programs import SOURCE, load_script


def near(found, right, tolerance, what):
    assert abs(found - right) <= tolerance * abs(right), f"{what}: {found}, not {right}"


def same_formulas(fit):
    """The cases of tests/simulator/efficiency_curves_test.cpp and collective_cost_test.cpp."""
    four = fit.Device(1e12, 1e30, 4)
    p = {"peak_fraction": 0.5, "added_depth": 0, "half_rate_reuse": 0, "fixed_time": 0}
    ideal = lambda shape: 2 * shape[0] * shape[1] * shape[2] * shape[3] / 0.5e12
    row = lambda *shape: {"shape": shape, "output_bytes": 2}
    near(fit.matmul_time(row(1, 512, 256, 1000), p, four), ideal((1, 512, 256, 1000)), 1e-9, "whole")
    near(fit.matmul_time(row(5, 64, 64, 100), p, four), ideal((8, 64, 64, 100)), 1e-9, "two waves")
    near(fit.matmul_time(row(1, 64, 64, 4096), p, four), ideal((1, 64, 64, 4096)), 1e-9, "split")
    small = ideal((4, 64, 64, 100))
    near(fit.matmul_time(row(4, 64, 64, 100), {**p, "half_rate_reuse": 32}, four),
         small * 2 * (256 * 128 / 384) / (256 * 128 / 384 + 32), 1e-9, "small tiles")
    attention = {"flops": 1e8, "heads": 40, "sequence": 128}
    near(fit.attention_time(attention, {"peak_fraction": 0.5, "fixed_time": 5e-6}, four),
         115e-6, 1e-9, "attention")
    ring = {"fixed_time": 0, "latency": 1e-6, "bandwidth_fraction": 1}
    reduce = {"ranks": 8, "bytes": 10**9}
    near(fit.all_reduce_time(reduce, ring, {"bandwidth": 100e9}), 17.514e-3, 1e-9, "ring")
    near(fit.all_reduce_time(reduce, ring, {"bandwidth": 100e9, "switch": True}), 11.264e-3, 1e-9,
         "switch")
    small = {"ranks": 8, "bytes": 8}
    near(fit.all_reduce_time(small, {**ring, "fixed_time": 8.4e-6}, {"bandwidth": 100e9}),
         14 * 0.6e-6 / 3.4 + 6.6e-6, 1e-4, "protocol")


def finds_parameters(fit):
    truth = {"peak_fraction": 0.7, "added_depth": 80, "half_rate_reuse": 20, "fixed_time": 3e-6}
    rows = [{"shape": (1, m, n, k), "output_bytes": 2}
            for m in (512, 4096, 8192) for n in (1024, 5000, 16384) for k in (256, 1024, 4096)]
    for row in rows:
        row["time"] = fit.matmul_time(row, truth, fit.A100_PCIE)
    start = {"peak_fraction": 0.9, "added_depth": 200, "half_rate_reuse": 60, "fixed_time": 3e-6}
    bounds = {"peak_fraction": (0.5, 0.95), "added_depth": (1, 300), "half_rate_reuse": (1, 100)}
    found = fit.fit(rows, fit.matmul_time, start, bounds, fit.A100_PCIE)
    near(found["peak_fraction"], 0.7, 0.03, "peak_fraction")
    worst = fit.errors(rows, fit.matmul_time, found, fit.A100_PCIE)[-1]
    assert worst < 0.05, f"the fit is off by {worst} on its own measurements"


def refuses_bad_arguments():
    """Each with one line and the exit code of the planner's own commands."""
    script = SOURCE / "scripts" / "fit-efficiency"
    with tempfile.TemporaryDirectory() as folder:
        broken = pathlib.Path(folder) / "broken"
        broken.mkdir()
        (broken / "gemm_ops.json").write_text("{")
        for arguments, code, words in (([], 2, "one argument"), (["--fast"], 2, "one argument"),
                                       ([folder], 3, "gemm_ops.json: cannot read"),
                                       ([str(broken)], 3, "gemm_ops.json: not JSON")):
            done = subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True)
            assert done.returncode == code and words in done.stderr, (arguments, done)
            assert done.stderr.count("\n") == 1 and not done.stdout, (arguments, done)


def main():
    fit = load_script("fit-efficiency")
    refuses_bad_arguments()
    same_formulas(fit)
    finds_parameters(fit)
    return 0


if __name__ == "__main__":
    sys.exit(main())
