"""Public models have the published parameters, and the forward FLOPs of a formula over their config.json.

tests/interop/data/parameters.json has the counts and their sources; published_shapes.py has the formula, which shares
nothing with the product.
"""

import json
import pathlib
import tempfile

from programs import OK, SOURCE, planner
from published_shapes import published

DATA = SOURCE / "tests" / "interop" / "data"
SEQUENCE = 4096  # beyond the windows of some models, within those of others


def decoders():
    """The models whose head reads every token; an encoder's reads those that are predicted."""
    for row in json.loads((DATA / "parameters.json").read_text()):
        if "file" in row and not row["file"].startswith("bert"):
            yield row, json.loads((DATA / row["file"]).read_text())


def the_formula_has_the_published_counts():
    counted = 0
    for row, config in decoders():
        parameters, read, _ = published(config, SEQUENCE)
        assert parameters == row["parameters"], (row, parameters)
        assert read == row.get("active", parameters), (row, read)
        assert row["source"], row
        counted += 1
    assert counted >= 100, counted


def imported_jobs_have_the_counts_and_the_flops(folder):
    for row, config in decoders():
        sequence = min(SEQUENCE, config.get("n_positions") or SEQUENCE)
        job = folder / row["file"]
        dropout = ["--dropout", row["dropout"]] if "dropout" in row else []
        done = planner("import", DATA / row["file"], "--sequence", sequence, *dropout, "-o", job)
        assert done.returncode == OK, done.stderr
        stated = json.loads(job.read_text())
        if "mtp" in row:  # the formula knows no MTP modules
            said = json.loads(planner("describe", job, "--json").stdout)
            assert said["parameters"]["all"] == row["parameters"] + row["mtp"], (row, said["parameters"])
            del stated["mtp"]
            job.write_text(json.dumps(stated))
        said = json.loads(planner("describe", job, "--json").stdout)
        parameters, read, flops = published(config, sequence)
        # A gpt job has a row of positions for each of its tokens.
        fewer = 0
        if stated["family"] == "gpt":
            fewer = (config.get("n_positions", 1024) - sequence) * stated["hidden"]
        assert said["parameters"]["all"] == parameters - fewer, (row, said["parameters"])
        assert said["parameters"].get("of_one_token", parameters) in (read, parameters - fewer), (row, said["parameters"])
        forward = said["work"]["FLOPs_per_token"] * sequence / 3  # backward is twice that
        assert abs(forward / flops - 1) < 1e-12, (row["file"], forward, flops)


the_formula_has_the_published_counts()
with tempfile.TemporaryDirectory() as scratch:
    imported_jobs_have_the_counts_and_the_flops(pathlib.Path(scratch))
