#!/usr/bin/env python3
"""lab/memory_spreads.py CASES [--bin DIR] [--output FILE]: half widths of intervals of memory, by documents left out.

CASES is a folder of published runs, raw or stated (lab/README.md). Each peak of memory is predicted, and the script finds the
relative half widths that nine in ten runs need, each document once (plan/memory_interval.h): of allocated bytes; then what
reserved bytes need in addition; then what bytes of the device need in addition. Runs whose micro-batch is not stated are left
out, since their layout is a guess. The numbers are printed, and how often intervals hold for a document whose runs were left out.
--output also writes them, as models/presets/spreads/memory.json has them.
"""

import argparse
import collections
import json
import math
import pathlib
import statistics
import subprocess
import sys

from spread_model import quantile90

SOURCE = pathlib.Path(__file__).resolve().parent.parent
PRESET = SOURCE / "models/presets/spreads/memory.json"
KINDS = ("allocated", "reserved", "device")
LEAST_NOISE = 1e-3  # of a logarithm: smaller ones are roundings of printed bytes
PARTS = ("allocated", "kept", "device")  # of the preset, as the kinds


class Peak:
    """A peak of memory of one kind. `error` is relative to the prediction."""

    def __init__(self, row, kind):
        self.kind, self.document = kind, row["source"]
        self.ratio = row["measured"][f"memory_{kind}_bytes"] / row["predicted"][f"memory_{kind}_bytes"]
        self.error = abs(self.ratio - 1)


def peaks_of(planner, cases):
    files = sorted(path for path in cases.glob("*.json") if "measured" in path.read_text())
    for path in files:
        stated = {row["id"] for row in json.loads(path.read_text())
                  if isinstance(row, dict) and row.get("batch", {}).get("micro")}
        done = subprocess.run([SOURCE / "lab/validate", "--bin", planner.parent, path, "--json", "--leave-out-sources"], capture_output=True, text=True,
                              timeout=3600)
        if done.returncode not in (0, 7):
            sys.exit(f"lab/validate {path}: exit {done.returncode}\n{done.stderr}")
        for row in json.loads(done.stdout)["rows"]:
            for kind in KINDS if "predicted" in row and row["id"] in stated and not row["measured"]["oom"] else ():
                if row["measured"][f"memory_{kind}_bytes"]:
                    yield Peak(row, kind)


def by_document(peaks):
    documents = collections.defaultdict(list)
    for peak in peaks:
        documents[peak.document].append(peak)
    return documents


def half_width(parts, kind):
    return math.hypot(*parts[:KINDS.index(kind) + 1])


def parts_of(peaks):
    """The half widths of PARTS that nine tenths of the peaks need, each document once."""
    parts = []
    for kind in KINDS:
        known = math.hypot(*parts)
        documents = by_document(peak for peak in peaks if peak.kind == kind)
        needs = [(math.sqrt(max(0.0, peak.error ** 2 - known ** 2)), 1 / len(own)) for own in documents.values() for peak in own]
        parts.append(quantile90(needs) if needs else 0.0)
    return parts


def shared_of(peaks):
    """Deviations of logarithms of allocated and reserved peaks: of what a document's peaks have in common, for both of PARTS; of a
    peak around the others of its document, median over documents, and of the logarithm of that number. The mean of a document has
    its noise over the number of its peaks, which is taken out."""
    groups = {kind: [[math.log(peak.ratio) for peak in own] for own in by_document(peak for peak in peaks if peak.kind == kind).values()]
              for kind in KINDS[:2]}
    noises = [max(statistics.stdev(own), LEAST_NOISE) for of in groups.values() for own in of if len(own) >= 3]
    noise = statistics.median(noises)
    common = {kind: max(statistics.mean(statistics.mean(own) ** 2 - (statistics.stdev(own) if len(own) >= 3 else noise) ** 2 / len(own)
                                        for own in of), LEAST_NOISE ** 2) for kind, of in groups.items()}
    kept = max(common["reserved"] - common["allocated"], LEAST_NOISE ** 2)
    return {"allocated_of_source": math.sqrt(common["allocated"]), "kept_of_source": math.sqrt(kept), "noise": noise,
            "noise_spread": statistics.stdev(map(math.log, noises))}


def held(peaks):
    """How often the intervals hold, by kind and document, each with the half widths that the other documents need."""
    for document, own in sorted(by_document(peaks).items()):
        parts = parts_of([peak for peak in peaks if peak.document != document])
        for kind in KINDS:
            of = [peak for peak in own if peak.kind == kind]
            if of:
                half = half_width(parts, kind)
                yield kind, document, len(of), half, statistics.mean(peak.error <= half for peak in of)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("cases", type=pathlib.Path)
    parser.add_argument("--bin", type=pathlib.Path, default=SOURCE / "build/bin")
    parser.add_argument("--output", type=pathlib.Path)
    options = parser.parse_args()
    peaks = list(peaks_of(options.bin / "planner", options.cases))
    shares = list(held(peaks))
    coverage = {kind: statistics.mean(share for of, *_, share in shares if of == kind)
                for kind in KINDS if any(of == kind for of, *_ in shares)}
    result = {"source": f"lab/memory_spreads.py, of {len(peaks)} peaks in {len(by_document(peaks))} documents; documents that were "
              "left out are held by " + ", ".join(f"{100 * share:.0f} % ({kind})" for kind, share in coverage.items()),
              **{part: round(half, 4) for part, half in zip(PARTS, parts_of(peaks))},
              **{name: round(number, 4) for name, number in shared_of(peaks).items()},
              "outside": json.loads(PRESET.read_text())["outside"]}
    print(json.dumps(result, indent=2))
    for kind, document, count, half, share in shares:
        print(f"{kind:10}{document[:60]:62}{count:4} runs  +-{100 * half:5.1f} %  holds {100 * share:3.0f} %")
    if options.output:
        options.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
