"""scripts/sanitize runs the tests of the folders that changed, and threads under the thread sanitizer."""

import os
import pathlib
import subprocess
import sys
import tempfile

import programs

sanitize = programs.load_script("sanitize")
TESTED = {"passes", "runtime", "base", "reports", "cuda"}


FAULTS = """#include <cstdlib>
int main(int count, char**) {
  if (count > 1) return 2147483647 + count;
  int* one = new int(1);
  delete one;
  return *one;
}
"""


def require_results(folder):
    """Tests pass, fail, are skipped or end too late; what is resumed runs those that failed again."""
    results = folder / "sanitized.jsonl"

    def test(*command, seconds=60):
        return {"command": command, "properties": {"ENVIRONMENT": ["SEEN=yes"], "WORKING_DIRECTORY": folder, "TIMEOUT": seconds,
                                                   "SKIP_RETURN_CODE": 77}}

    tests = {"a.good": test("sh", "-c", "test $SEEN = yes"), "a.bad": test("sh", "-c", "echo bad; exit 1"),
             "a.skipped": test("sh", "-c", "exit 77"), "a.late": test("sleep", "600", seconds=0.1)}
    sanitize.run_tests(tests, 2, results)
    found = sanitize.read_results(results)
    assert found == {"a.good": "passed", "a.bad": "failed", "a.skipped": "skipped", "a.late": "failed"}, found
    (folder / "none").mkdir()
    assert sanitize.counts(found, folder / "none") == {"tests": 3, "skipped": 1, "failed": ["a.bad", "a.late"], "reports": 0}
    sanitize.run_tests({"a.bad": test("true")}, 1, results)
    assert sanitize.counts(sanitize.read_results(results), folder / "none")["failed"] == ["a.late"]


def require_reports_in_files(folder):
    """A program of two sanitizers says nothing, and its reports are counted. Afterwards it has its messages again."""
    (folder / "faults.cpp").write_text(FAULTS)
    program = folder / "faults"
    subprocess.run(["g++", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-static-libasan", "-static-libubsan",
                    folder / "faults.cpp", "-o", program], check=True)
    options = f"include_if_exists={folder}/reports.options"
    variables = {**os.environ, "ASAN_OPTIONS": options, "UBSAN_OPTIONS": options}
    with sanitize.reports_in_files(folder) as reports:
        for number, words in enumerate([[], ["overflow"]]):
            done = subprocess.run([program, *words], env=variables, capture_output=True, text=True)
            assert done.returncode and not done.stderr, done
            assert sanitize.counts({}, reports)["reports"] == number + 1, number
        (reports / "report.1").write_text("==1==WARNING: ASan is ignoring requested __asan_handle_no_return")
        assert sanitize.counts({}, reports)["reports"] == 2
    assert "heap-use-after-free" in subprocess.run([program], env=variables, capture_output=True, text=True).stderr


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
    with tempfile.TemporaryDirectory() as name:
        require_results(pathlib.Path(name))
        require_reports_in_files(pathlib.Path(name))
    print("scripts/sanitize runs what changed")


if __name__ == "__main__":
    sys.exit(main())
