"""scripts/sanitize runs the tests of the folders that changed, and threads under the thread sanitizer."""

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


def made_test(folder, *command, seconds=60, variables=()):
    return {"command": command, "properties": {"ENVIRONMENT": ["SEEN=yes", *variables], "WORKING_DIRECTORY": folder,
                                               "TIMEOUT": seconds, "SKIP_RETURN_CODE": 77}}


def require_results(folder):
    """Tests pass, fail, are skipped or end too late; the last run of a test counts."""
    results, reports = folder / "sanitized.jsonl", folder / "reports"
    sanitize.run_tests({"a.good": made_test(folder, "sh", "-c", "test $SEEN = yes"),
                        "a.bad": made_test(folder, "sh", "-c", "echo bad; exit 1"),
                        "a.skipped": made_test(folder, "sh", "-c", "exit 77"),
                        "a.late": made_test(folder, "sleep", "600", seconds=0.1)}, 2, results, reports)
    found = sanitize.counts(sanitize.read_results(results).values())
    assert found == {"tests": 3, "skipped": 1, "failed": ["a.bad", "a.late"], "reports": 0}, found
    sanitize.run_tests({"a.bad": made_test(folder, "true")}, 1, results, reports)
    assert sanitize.counts(sanitize.read_results(results).values())["failed"] == ["a.late"]


def require_reports(folder):
    """Reports of two sanitizers are counted, also where a test throws away what its program says; those of an earlier run and
    hints of a sanitizer are not."""
    results, reports = folder / "reported.jsonl", folder / "reports"
    (folder / "faults.cpp").write_text(FAULTS)
    program = folder / "faults"
    subprocess.run(["g++", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-static-libasan", "-static-libubsan",
                    folder / "faults.cpp", "-o", program], check=True)

    def found_by(command):
        variables = ["ASAN_OPTIONS=detect_leaks=1", "UBSAN_OPTIONS=print_stacktrace=1"]
        sanitize.run_tests({"a.program": made_test(folder, "sh", "-c", command, variables=variables)}, 1, results, reports)
        return sanitize.counts(sanitize.read_results(results).values())["reports"]

    assert found_by(f"{program} 2>/dev/null || true") == 1
    assert found_by(f"{program} 2>/dev/null || {program} overflow 2>/dev/null || true") == 2
    assert found_by("true") == 0
    (folder / "hints").mkdir()
    (folder / "hints/report.1").write_text("==1==WARNING: ASan is ignoring requested __asan_handle_no_return")
    assert sanitize.count_reports(folder / "hints") == 0


def main():
    numstat = "\n".join(["3\t1\tpasses/graph/fold.cpp", "1\t0\ttests/passes/fold_test.cpp",
                         "90\t0\tdocs/architecture.md", "2\t0\truntime/executor.cpp", "-\t-\tdata/picture.png",
                         "1\t1\truntime/cuda/norm.cu", "5\t5\tscripts/check", "7\t0\tunknown/thing.cpp"])
    folders = sanitize.changed_folders(numstat, TESTED)
    assert folders == ["passes", "runtime", "cuda"], folders
    steps = sanitize.steps_for(folders)
    assert steps == [("asan", "passes"), ("tsan", "passes"), ("tsan", "runtime"), ("asan", "runtime"), ("asan", "cuda")], steps
    assert sanitize.steps_for(sanitize.changed_folders("90\t0\tdocs/architecture.md", TESTED)) == []
    assert sanitize.run(["true"], 60) is True
    assert sanitize.run(["false"], 60) is False
    assert sanitize.run(["sleep", "600"], 0.1) is None
    with tempfile.TemporaryDirectory() as name:
        require_results(pathlib.Path(name))
        require_reports(pathlib.Path(name))
    print("scripts/sanitize runs what changed")


if __name__ == "__main__":
    sys.exit(main())
