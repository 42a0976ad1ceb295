"""scripts/search-speed: one row, of the smallest problem."""

import re
import subprocess

from programs import BIN, OK, SOURCE

done = subprocess.run([SOURCE / "scripts" / "search-speed", "--bin", BIN, "--only", "gpt2-xl"],
                      capture_output=True, text=True, timeout=500)
assert done.returncode == OK, done.stderr
header, _, row = done.stdout.splitlines()
cells = [cell.strip() for cell in row.strip("|").split("|")]
assert len(cells) == header.strip("|").count("|") + 1, row
assert cells[:3] == ["gpt2-xl", "dgx-a100-80gb", "16"], row
assert cells[5] == "yes" and re.fullmatch(r"\d+\.\d s", cells[6]), row
