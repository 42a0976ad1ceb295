"""Benchmarks of the simulator in the page speed: what lab/bench --out writes of Google Benchmark's JSON."""

import argparse
import json
import pathlib

import result_pages

# Name of a benchmark, or how it begins: (what it does, its limit, time per op instead of per run).
SHOWN = {
    "EngineOps": ("16 ranks, a rendezvous every tenth op", "50 ns", True),
    "EngineContended": ("4 of 5 ops share a link with another", "200 ns", True),
    "Step1T/unfolded:1/detail:3/slowed:0": ("Megatron 1T on 64 stages, 512 micro-batches, the times of all 2.6 M ops", "2 s",
                                            False),
    "Step1T/unfolded:0/detail:0/slowed:0": ("the same, ranks folded, step time alone", "20 ms", False),
    "ThousandRanks/unfolded:1": ("818,176 ops on 1,024 ranks, each rank by itself", "0.3 s", False),
}
TO_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


def duration(seconds):
    unit = next((unit for unit in ("s", "ms", "us", "ns") if seconds >= TO_SECONDS[unit]), "ns")
    return f"{seconds / TO_SECONDS[unit]:.3g} {unit}"


def rows_of(results):
    """`results`: Google Benchmark's documents, of one program each."""
    for one in (one for document in results for one in document["benchmarks"]):
        if one["name"] in SHOWN:
            what, limit, per_op = SHOWN[one["name"]]
            seconds = one["cpu_time"] * TO_SECONDS[one["time_unit"]]
            time = f"{duration(1 / one['ops/s'])} per op" if per_op else duration(seconds)
            yield {"benchmark": f"`{one['name']}`", "what": what, "time": time, "limit": limit}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", nargs="+", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    results = [json.loads(path.read_text()) for path in options.results if path.stat().st_size]
    section = result_pages.section(rows_of(results), on=result_pages.machine())
    result_pages.put(options.out, "speed", {"programs": section})


if __name__ == "__main__":
    main()
