"""The loader in docs/reference/fsdp.md is Python, and the page names each key that the export writes."""

import ast
import json
import re

from programs import SOURCE


def main():
    page = (SOURCE / "docs/reference/fsdp.md").read_text()
    code = re.search(r"```python\n(.*?)```", page, re.S)[1]
    functions = {node.name for node in ast.parse(code).body if isinstance(node, ast.FunctionDef)}
    assert functions == {"load", "parallelize", "before_micro_batch"}, functions
    table = json.loads((SOURCE / "models/presets/flags/fsdp.json").read_text())
    keys = {row["flag"] for row in table["flags"] if "flag" in row}
    for key in sorted(keys):
        section, name = key.split(".")
        row = re.search(rf"^\| `{section}` \|.*$", page, re.M)
        assert row and f"`{name}`" in row[0], f"the page has no {key}"
    # Each key that the loader reads is written.
    read = set(re.findall(r'settings\["(\w+)"\]\["(\w+)"\]', code))
    for names in (("mesh", "mesh"), ("shard", "fully_shard"), ("types", "mixed_precision")):
        read |= {(names[1], name) for name in re.findall(rf'\b{names[0]}\["(\w+)"\]', code)}
    missing = {".".join(pair) for pair in read} - keys
    assert len(read) > 10 and not missing, missing
    print(f"the loader reads {len(read)} of {len(keys)} keys")


main()
