"""lab/soak: what scripts print becomes rows and counts of wrong outcomes."""

from programs import load_script

soak = load_script("soak")


def kills():
    """The line of a whole run, and lines of single ones, are no commands."""
    text = ("plan, call 3 of 40, after: the old file is gone\n"
            "plan: 58 of 60 as they should, 20 kills, 40 calls, 0 requests of memory\n"
            "run-rank-0: 150 of 150 as they should, 149 kills, 300 calls, 7 requests of memory\n"
            "208 of 210 as they should, 169 kills\n")
    rows, wrong = soak.kills_rows(text, 1)
    assert rows == [{"command": "plan", "runs": 60, "kills": 20, "wrong": 2, "calls": 40, "requests": 0},
                    {"command": "run-rank-0", "runs": 150, "kills": 149, "wrong": 0, "calls": 300, "requests": 7},
                    {"command": "all", "runs": 210, "kills": 169, "wrong": 3, "calls": None, "requests": None}], rows
    assert wrong == 3


def ranks():
    """A launcher and a fault are a row; ranks of tests follow."""
    text = ("2 ranks, rank 0, killed: as it should, 1.5 s\n"
            "4 ranks, rank 3, killed: rank 3 is not named; exit 1, 12.0 s\n"
            "2 ranks, rank 1, late: as it should, 0.7 s\n"
            "2 of 3 as they should; the slowest ended after 12.0 s, with a deadline of 5 s\n")
    tested = {"launcher": "threads", "ranks": "2 to 8", "how": "made to throw", "runs": 9, "wrong": 1, "slowest": 2.0}
    rows, wrong = soak.ranks_rows([("training", text, False), ("calibration", "", True)], [tested])
    assert rows == [{"launcher": "training", "ranks": "2 to 4", "how": "killed", "runs": 2, "wrong": 1, "slowest": 12.0},
                    {"launcher": "training", "ranks": "2", "how": "late", "runs": 1, "wrong": 0, "slowest": 0.7}, tested], rows
    assert wrong == 3, wrong  # a run, a test, and a script that failed itself


def outputs():
    text = ("debug, large, 2 threads: plan: stdout differs at byte 0 of 8\n"
            "release, repeated: 8 of 8 runs the same, 40 commands, 63 outputs\n"
            "debug, large: 3 of 4 runs the same, 5 commands, 9 outputs\n")
    rows, wrong = soak.bytes_rows(text, False)
    assert rows == [{"build": "release", "list": "repeated", "runs": 8, "commands": 40, "outputs": 504, "wrong": 0},
                    {"build": "debug", "list": "large", "runs": 4, "commands": 5, "outputs": 36, "wrong": 1}], rows
    assert wrong == 1


def faults_for_gpus():
    found = [{"source": "a.cu", "mutants": 3, "killed": 2, "equal": 1, "wrong": 0},
             {"source": "b.cu", "mutants": 2, "killed": 1, "equal": 0, "wrong": 1}]
    rows, wrong = soak.gpu_mutants_rows(found)
    assert rows == [*found, {"source": "all", "mutants": 5, "killed": 3, "equal": 1, "wrong": 1}] and wrong == 1, rows


kills()
ranks()
outputs()
faults_for_gpus()
