"""scripts/sanitize runs the tests of the folders that changed, and threads under the thread sanitizer."""

import sys

import programs

sanitize = programs.load_script("sanitize")
TESTED = {"passes", "runtime", "base", "reports", "cuda"}


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
    print("scripts/sanitize runs what changed")


if __name__ == "__main__":
    sys.exit(main())
