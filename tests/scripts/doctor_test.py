"""planner doctor: the same lines as text and as JSON, and the exit code that they call for."""

import json
import sys

from programs import ENVIRONMENT, OK, planner


def main():
    done = planner("doctor", "--json")
    said = json.loads(done.stdout)
    expected = ENVIRONMENT if said["worst"] == "fail" else OK
    assert done.returncode == expected, (done.returncode, said)
    checks = [finding["check"] for finding in said["findings"]]
    assert {"cores", "memory", "GPUs", "programs", "output"} <= set(checks), checks
    for finding in said["findings"]:
        assert (finding["fix"] is None) == (finding["health"] == "ok"), finding

    done = planner("doctor")
    assert done.returncode in (OK, ENVIRONMENT) and not done.stderr, done
    lines = [line for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert len(lines) == len(checks), done.stdout
    assert all(line.split()[0] in ("ok", "warn", "fail") for line in lines), done.stdout
    print(f"{len(checks)} checks")
    return 0


if __name__ == "__main__":
    sys.exit(main())
