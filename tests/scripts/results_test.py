"""Pages of docs/results say what their data says: each is its template, filled from its JSON file by scripts/results."""

import pathlib
import subprocess
import sys
import tempfile

from programs import OK, SOURCE, load_script

RESULTS = SOURCE / "docs" / "results"
NOT_OF_A_PAGE = {"goals.json"}


def main():
    load_script("results")  # puts scripts/ on the path
    import result_pages
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-B", SOURCE / "scripts" / "results", "--out", folder],
                              capture_output=True, text=True)
        assert done.returncode == OK, done.stderr
        written = {path.name: path.read_text() for path in pathlib.Path(folder).iterdir()}
    stale = [name for name, text in sorted(written.items()) if (RESULTS / name).read_text() != text]
    assert not stale, f"{', '.join(stale)}: not what the data says; scripts/results writes them"
    expected = {f"{name}.{suffix}" for name in result_pages.TABLES for suffix in ("md", "json")} | NOT_OF_A_PAGE
    assert {path.name for path in RESULTS.iterdir()} == expected, expected
    # The test can fail: a number that changes shows in the page.
    data = result_pages.data_of("speed")
    data["searches"]["rows"][0]["devices"] += 1
    assert result_pages.render("speed", data) != written["speed.md"]
    assert result_pages.cell("{a} of {b:.1f}", {"a": 1, "b": 2}) == "1 of 2.0"
    assert result_pages.cell("{a} of {b:.1f}", {"a": 1, "b": None}) == ""
    # Missed goals of one kind are a row, which names each run with what was found.
    missed = [{"judged_by": "x", "of": "error", "goal": 2.0, "runs": runs, "found": found} for runs, found in (("a", 3), ("b", 2.55))]
    assert result_pages.missed_together(missed) == [{"judged_by": "x", "of": "error", "goal": 2.0, "found": "a 3, b 2.55"}]
    print(f"{len(written)} pages say what their data says")


if __name__ == "__main__":
    main()
