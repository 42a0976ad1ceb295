"""lab/expert-plans: its published splits can be simulated, and what it says of a step."""

import json

from programs import OK, load_script, planner

INFEASIBLE = 4  # a split may take more than the device has
script = load_script("expert-plans")


def check_splits():
    """Every split is a legal strategy of its job on the page's devices, and says where it is from."""
    published = json.loads(script.SPLITS.read_text())
    jobs = {split["job"] for split in published["splits"]}
    assert jobs == set(published["held"]) and len(jobs) >= 3
    for split in published["splits"]:
        assert split["source"] and split["by"] and split["devices"] > 0
        held = "".join(f",{key}={value}" for key, value in published["held"][split["job"]].items())
        done = planner("simulate", split["job"], script.choices_of(split) + held, "--cluster", script.CLUSTER, "--devices",
                       script.DEVICES, "--framework", published["framework"], "--json")
        assert done.returncode in (OK, INFEASIBLE), done.stderr
        strategy = json.loads(done.stdout)["strategy"]
        assert strategy["ep"] == split["strategy"]["ep"] > 1, strategy


def check_words():
    step = {"step_s": 2.2, "low": 0.98, "high": 1.25, "filled": 91.4, "fits": True, "tied": True}
    assert script.told(step, 2.0) == "2.2 s, +10.0 % (-2 to +25 %), tied; 91 % full"
    assert script.told({**step, "tied": False}, 2.0).endswith("slower; 91 % full")
    assert script.told({**step, "tied": False}, 2.4).endswith("faster; 91 % full")
    assert "does not fit" in script.told({**step, "fits": False}, 2.0)
    assert script.told(None, 2.0) == "none fits"
    assert script.proven({"proven": True}) == "proven" and script.proven({"proven": False, "gap": 0.021}) == "within 2.1 %"


check_splits()
check_words()
