"""Pages of docs/results say what their data says: each is its template, filled from its JSON file by lab/results."""

import copy
import pathlib
import subprocess
import sys
import tempfile

from programs import OK, SOURCE, load_script

RESULTS = SOURCE / "docs" / "results"
NOT_OF_A_PAGE = {"goals.json"}


class Row(dict):
    """A row that notes which of its keys are read."""

    def __init__(self, row, read):
        super().__init__(row)
        self.read = read

    def __getitem__(self, key):
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key, default=None):
        return self[key] if key in self else default


def unread(result_pages, name, data):
    """Yields the keys of rows that a page does not read, and the facts that its text does not name."""
    data, read = copy.deepcopy(data), {section: set() for section in data}
    for section, of in data.items():
        of["rows"] = [Row(row, read[section]) for row in of["rows"]]
    result_pages.render(name, data)
    text = (result_pages.TEMPLATES / f"{name}.md.in").read_text()
    for section, of in data.items():
        keys = set().union(*(row.keys() for row in of["rows"]))
        facts = [fact for fact in of.get("facts", {}) if f"${{{section}_{fact}}}" not in text]
        yield from (f"{name}.json: {section}: nothing reads {key}" for key in [*sorted(keys - read[section]), *facts])


def main():
    load_script("results")  # puts lab/ on the path
    import result_pages
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-B", SOURCE / "lab" / "results", "--out", folder],
                              capture_output=True, text=True)
        assert done.returncode == OK, done.stderr
        written = {path.name: path.read_text() for path in pathlib.Path(folder).iterdir()}
    stale = [name for name, text in sorted(written.items()) if (RESULTS / name).read_text() != text]
    assert not stale, f"{', '.join(stale)}: not what the data says; lab/results writes them"
    expected = {f"{name}.{suffix}" for name in result_pages.TABLES for suffix in ("md", "json")} | NOT_OF_A_PAGE
    assert {path.name for path in RESULTS.iterdir()} == expected, expected
    found = [message for name in result_pages.TABLES for message in unread(result_pages, name, result_pages.data_of(name))]
    assert not found, "\n".join(found)
    # The test can fail: a number that changes shows in the page, and a number that nobody reads is found.
    data = result_pages.data_of("speed")
    data["searches"].update(rows=[{**row, "x": 1} for row in data["searches"]["rows"]], facts={"y": 2})
    assert len(list(unread(result_pages, "speed", data))) == 2, list(unread(result_pages, "speed", data))
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
