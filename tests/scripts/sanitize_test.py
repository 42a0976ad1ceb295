"""scripts/sanitize runs the tests of the folders that changed, and threads under the thread sanitizer."""

import os
import pathlib
import subprocess
import sys
import tempfile

import programs

sanitize = programs.load_script("sanitize")
TESTED = {"passes", "runtime", "base", "reports", "cuda"}


JUNIT = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="Linux" tests="4" failures="1" disabled="0" skipped="1">
 <testcase name="base.text" classname="base.text" time="0.1" status="run"/>
 <testcase name="base.files" classname="base.files" time="0.2" status="run"/>
 <testcase name="scripts.faults" classname="scripts.faults" time="1.2" status="fail"><failure message="Failed"/></testcase>
 <testcase name="scripts.hosts" classname="scripts.hosts" time="0.1" status="notrun"><skipped message="SKIP"/></testcase>
</testsuite>
"""


def require_counts():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        junit, reports = folder / "suite.xml", folder / "reports"
        junit.write_text(JUNIT)
        reports.mkdir()
        (reports / "report.123").write_text("ERROR: AddressSanitizer: heap-use-after-free")
        found = sanitize.counts(junit, reports)
        assert found == {"tests": 3, "skipped": 1, "failed": ["scripts.faults"], "reports": 1}, found


def require_reports_in_files():
    """A program that says nothing on its own is counted, and has its messages again afterwards."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "fault.cpp").write_text("int main() { int* one = new int(1); delete one; return *one; }")
        fault = [folder / "fault"]
        subprocess.run(["g++", "-fsanitize=address", folder / "fault.cpp", "-o", *fault], check=True)
        variables = {**os.environ, "ASAN_OPTIONS": f"include_if_exists={folder}/reports.options"}
        with sanitize.reports_in_files(folder) as reports:
            done = subprocess.run(fault, env=variables, capture_output=True, text=True)
            assert not done.stderr, done.stderr
            assert len(list(reports.iterdir())) == 1
        assert "heap-use-after-free" in subprocess.run(fault, env=variables, capture_output=True, text=True).stderr


def main():
    numstat = "\n".join(["3\t1\tpasses/graph/fold.cpp", "1\t0\ttests/passes/fold_test.cpp",
                         "90\t0\tdocs/architecture.md", "2\t0\truntime/executor.cpp", "-\t-\tdata/picture.png",
                         "1\t1\truntime/cuda/norm.cu", "5\t5\tscripts/check", "7\t0\tunknown/thing.cpp"])
    folders = sanitize.changed_folders(numstat, TESTED)
    assert folders == ["passes", "runtime", "cuda"], folders
    steps = sanitize.steps_for(folders)
    assert steps == [("asan", "passes"), ("tsan", "runtime"), ("asan", "runtime"), ("asan", "cuda")], steps
    assert sanitize.steps_for(sanitize.changed_folders("90\t0\tdocs/architecture.md", TESTED)) == []
    assert sanitize.run(["true"], 60) is True
    assert sanitize.run(["false"], 60) is False
    assert sanitize.run(["sleep", "600"], 0.1) is None
    require_counts()
    require_reports_in_files()
    print("scripts/sanitize runs what changed")


if __name__ == "__main__":
    sys.exit(main())
