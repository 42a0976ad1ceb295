#!/usr/bin/env python3
"""scripts/memory_spreads.py ROWS.json ... [--output FILE]: half widths of intervals of memory, models/presets/spreads/memory.json.

ROWS is what `planner validate --leave-out-sources --json` prints of published runs. The script finds the relative half widths
that nine in ten runs need, each document once (plan/memory_interval.h): first of temporary bytes, by allocated memory; then of
what allocators keep, by reserved memory; then of context and communicators, by device memory. Each is what a run needs in
addition to the ones before. The power of the share of temporary bytes stays. Without --output the file is printed, with the
share of runs that the intervals hold by kind and document.
"""

import argparse
import collections
import json
import math
import pathlib
import statistics

from spread_model import quantile90

PRESET = pathlib.Path(__file__).resolve().parent.parent / "models/presets/spreads/memory.json"
KINDS = ("allocated", "reserved", "device")


class Run:
    """A run whose memory of one kind was measured. `error` is relative to the prediction."""

    def __init__(self, row, kind, known):
        predicted = row["predicted"]
        halves = {of: predicted[f"memory_{of}_half_width"] for of in KINDS}
        self.kind, self.document = kind, row["source"]
        self.error = abs(row["measured"][f"memory_{kind}_bytes"] / predicted[f"memory_{kind}_bytes"] - 1)
        self.passing = halves["allocated"] / known["passing"]  # the share of temporary bytes, to its power
        rest = halves["reserved"] ** 2 - halves["allocated"] ** 2 - known["kept"] ** 2
        self.has_pools = rest > known["flat_copies"] ** 2 / 2
        self.outside = 1 - predicted["memory_reserved_bytes"] / predicted["memory_device_bytes"]
        self.is_arena = halves["reserved"] == 0

    def half_width(self, spread):
        parts = [spread["passing"] * self.passing]
        if self.kind != "allocated":
            parts += [spread["kept"], spread["flat_copies"] * self.has_pools]
        reserved = math.hypot(*parts)
        if self.kind != "device":
            return reserved
        return math.hypot(reserved * (1 - self.outside), spread["outside"] * self.outside)

    def needs(self, spread):
        """Returns the half width that the run needs in addition to the parts that are known."""
        return math.sqrt(max(0.0, self.error ** 2 - self.half_width(spread) ** 2))


def runs_of(files, known):
    for file in files:
        for row in json.loads(file.read_text())["rows"]:
            for kind in KINDS if "predicted" in row and not row["measured"]["oom"] else ():
                if row["measured"][f"memory_{kind}_bytes"]:
                    run = Run(row, kind, known)
                    if not run.is_arena:
                        yield run


def by_document(runs):
    documents = collections.defaultdict(list)
    for run in runs:
        documents[run.document].append(run)
    return documents


def least(runs, needs):
    """The value that nine tenths of the runs' needs are not above, each document once."""
    of = by_document(runs)
    return quantile90([(needs(run), 1 / len(own)) for own in of.values() for run in own]) if of else 0.0


def spread_of(runs, power):
    spread = {"passing": 0.0, "power": power, "kept": 0.0, "flat_copies": 0.0, "outside": 0.0}
    kinds = {kind: [run for run in runs if run.kind == kind] for kind in KINDS}
    spread["passing"] = least([run for run in kinds["allocated"] if run.passing > 0], lambda run: run.error / run.passing)
    spread["kept"] = least([run for run in kinds["reserved"] if not run.has_pools], lambda run: run.needs(spread))
    spread["flat_copies"] = least([run for run in kinds["reserved"] if run.has_pools], lambda run: run.needs(spread))
    spread["outside"] = least(kinds["device"], lambda run: run.needs(spread) / run.outside)
    return spread


def held(runs, spread):
    for (kind, document), of in sorted(by_kind_and_document(runs).items()):
        share = statistics.mean(run.error <= run.half_width(spread) for run in of)
        width = statistics.mean(run.half_width(spread) for run in of)
        yield f"{kind:10}{document[:60]:62}{len(of):4} runs  +-{100 * width:5.1f} %  holds {100 * share:3.0f} %"


def by_kind_and_document(runs):
    found = collections.defaultdict(list)
    for run in runs:
        found[run.kind, run.document].append(run)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("rows", type=pathlib.Path, nargs="+")
    parser.add_argument("--output", type=pathlib.Path)
    options = parser.parse_args()
    known = json.loads(PRESET.read_text())
    runs = list(runs_of(options.rows, known))
    spread = {name: round(value, 4) for name, value in spread_of(runs, known["power"]).items()}
    documents = sorted(by_document(runs))
    result = {"source": f"scripts/memory_spreads.py, of {len(runs)} peaks in {len(documents)} documents", **spread}
    if options.output:
        options.output.write_text(json.dumps(result, indent=2) + "\n")
    else:
        print(json.dumps(result, indent=2), *held(runs, spread), sep="\n")


if __name__ == "__main__":
    main()
