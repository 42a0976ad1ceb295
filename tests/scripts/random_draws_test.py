"""lab/sweep: draws strategies and trains by them; and what scripts build before they begin is something to build."""

import re
import subprocess
import sys

from programs import BIN, ENVIRONMENT, OK, OUTSIDE_TOLERANCE, SOURCE


def sweep(test, first, count):
    return subprocess.run([sys.executable, "-B", SOURCE / "lab/sweep.py", "--seed", str(first), "--count", str(count), "--test", test],
                          capture_output=True, text=True, timeout=900)


done = sweep(BIN.parent / "tests/runtime", 4, 3)
assert done.returncode == OK, done
assert done.stdout == "3 draws from 4: 3 passed, 0 failed\n", done
assert done.stderr == "3 of 3 draws, 0 failed\n", done

# A program that ends at once has run no draw.
done = sweep("/bin/true", 4, 2)
assert done.returncode == OUTSIDE_TOLERANCE and done.stdout.endswith("2 draws from 4: 0 passed, 2 failed\n"), done
done = sweep("/no/program", 4, 2)
assert done.returncode == ENVIRONMENT and "/no/program: No such file" in done.stderr, done

# Each target that a script gives to scripts/build exists. lab/bench makes its list as it runs, which is not seen here.
targets = {target for folder in ("scripts", "lab") for path in (SOURCE / folder).iterdir() if path.is_file()
           for words in re.findall(r'^ *(?:"\$here/\.\./scripts/|scripts/)build"? release((?: [a-z_.-]+)+)', path.read_text(), re.MULTILINE)
           for target in words.split()}
assert {"planner", "tests.runtime"} <= targets, targets
built = set(re.findall(r"^build (\S+): phony", (BIN.parent / "build.ninja").read_text(), re.MULTILINE))
assert targets <= built, targets - built
