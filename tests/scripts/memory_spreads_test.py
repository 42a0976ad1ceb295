"""lab/memory_spreads.py: half widths of made-up peaks, and the file that it wrote."""

import json
import math
import pathlib
import tempfile

from programs import BAD_INPUT, BIN, SOURCE, lab, load_script, write_json

spreads = load_script("memory_spreads.py")


def peak(kind, document, error):
    row = {"source": document, "measured": {f"memory_{kind}_bytes": 100 * (1 + error)},
           "predicted": {f"memory_{kind}_bytes": 100}}
    return spreads.Peak(row, kind)


def each_kind_adds_what_it_needs():
    peaks = [peak("allocated", "a", 0.03), peak("reserved", "a", -0.05), peak("device", "a", 0.13)]
    allocated, kept, device = spreads.parts_of(peaks)
    assert math.isclose(allocated, 0.03) and math.isclose(kept, 0.04) and math.isclose(device, 0.12), (allocated, kept, device)


def each_document_counts_once():
    many = [peak("allocated", "many", 0.01) for _ in range(100)]
    assert math.isclose(spreads.parts_of([*many, peak("allocated", "one", 0.2)])[0], 0.2)


def a_document_is_held_by_the_others():
    peaks = [peak("allocated", "near", 0.01), peak("allocated", "far", 0.2)]
    shares = {document: share for _, document, _, _, share in spreads.held(peaks)}
    assert shares == {"near": 1, "far": 0}, shares


def the_file_has_the_parts():
    preset = json.loads(spreads.PRESET.read_text())
    assert preset["source"].startswith("lab/memory_spreads.py, of "), preset
    shared = spreads.shared_of([peak(kind, document, error) for kind in ("allocated", "reserved")
                                for document, error in (("a", 0.01), ("a", 0.03), ("a", 0.02), ("b", -0.02), ("b", -0.05), ("b", 0.01))])
    assert set(preset) == {"source", *spreads.PARTS, *shared, "outside"}, preset
    page = (SOURCE / "docs/how-it-works/intervals.md").read_text()
    for part in spreads.PARTS:
        assert f"| {100 * preset[part]:.1f} % |" in page, part


def errors_name_the_command_that_failed():
    with tempfile.TemporaryDirectory() as folder:
        bad = write_json(pathlib.Path(folder) / "bad.json", [{"measured": 1, "batch": {}}])
        done = lab("memory_spreads.py", folder, "--bin", BIN)
        assert done.returncode == 1 and done.stderr.startswith(f"lab/validate {bad}: exit {BAD_INPUT}\n"), done.stderr


if __name__ == "__main__":
    each_kind_adds_what_it_needs()
    each_document_counts_once()
    a_document_is_held_by_the_others()
    the_file_has_the_parts()
    errors_name_the_command_that_failed()
