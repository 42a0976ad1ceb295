"""Bad input: one clear message, the contract's exit code, and nothing written."""

import json
import pathlib
import sys
import tempfile

from programs import (BAD_INPUT, CLUSTER, INFEASIBLE, NANO, OK, USAGE, nano_job, planner, write_json)


class Cases:
    """Runs `planner plan` on variations of a good request and collects what is wrong."""

    def __init__(self, folder):
        self.folder = folder
        self.cluster = write_json(folder / "cluster.json", CLUSTER)
        self.output = folder / "plan.json"
        self.count = 0
        self.failures = []

    def refuses(self, what, job, code, *words, arguments=(), devices=2):
        """The request must end with `code`, a message holding every word, and no other trace."""
        before = sorted(self.folder.iterdir())
        done = planner("plan", job, "--cluster", self.cluster, "--devices", devices, "-o",
                       self.output, *arguments)
        self.judge(what, done, code, words)
        if sorted(self.folder.iterdir()) != before:
            self.failures.append(f"{what}: wrote {set(self.folder.iterdir()) - set(before)}")

    def judge(self, what, done, code, words):
        self.count += 1
        if done.returncode != code:
            self.failures.append(f"{what}: exit {done.returncode}, not {code}: {done.stderr}")
        if done.stdout:
            self.failures.append(f"{what}: stdout is not empty: {done.stdout[:200]}")
        if not done.stderr.startswith("planner: ") or done.stderr.count("planner:") != 1:
            self.failures.append(f"{what}: not one message: {done.stderr!r}")
        for word in words:
            if word not in done.stderr:
                self.failures.append(f"{what}: the message lacks {word!r}: {done.stderr!r}")

    def job(self, name, text):
        path = self.folder / f"{name}.json"
        path.write_text(text if isinstance(text, str) else json.dumps(text))
        return path


def bad_jobs(cases):
    cases.refuses("unknown key", cases.job("a", nano_job(layerz=4)), BAD_INPUT, "a.json", "layerz",
                  "layers")
    cases.refuses("negative layers", cases.job("b", nano_job(layers=-4)), BAD_INPUT, "b.json",
                  "/layers", "-4")
    cases.refuses("fractional layers", cases.job("c", nano_job(layers=2.5)), BAD_INPUT, "/layers",
                  "2.5")
    cases.refuses("missing key", cases.job("d", nano_job(layers=None)), BAD_INPUT, "layers")
    cases.refuses("wrong type", cases.job("e", nano_job(layers="4")), BAD_INPUT, "/layers")
    text = json.dumps(nano_job())
    cases.refuses("duplicate key", cases.job("f", text.replace("{", '{"layers": 2, ', 1)), BAD_INPUT,
                  "f.json", "layers")
    cases.refuses("deep nesting", cases.job("g", '{"name": ' + "[" * 100_000), BAD_INPUT, "g.json")
    cases.refuses("truncated file", cases.job("h", text[: len(text) // 2]), BAD_INPUT, "h.json")
    cases.refuses("empty file", cases.job("i", ""), BAD_INPUT, "i.json")
    cases.refuses("not an object", cases.job("j", "[1, 2]"), BAD_INPUT, "j.json")
    cases.refuses("missing file", cases.folder / "nowhere.json", BAD_INPUT, "nowhere.json")
    cases.refuses("a folder", cases.folder, BAD_INPUT, str(cases.folder))
    cases.refuses("overflowing number", cases.job("k", text.replace('"hidden": 64', '"hidden": 1e400')),
                  BAD_INPUT, "k.json")


def infeasible_jobs(cases):
    seven = cases.job("seven", nano_job(hidden=56, heads=7, kv_heads=7, ffn_hidden=224))
    cases.refuses("7 heads, mp 2", seven, INFEASIBLE, "heads", "7", "mp",
                  arguments=("--fix", "mp=2"))
    odd = cases.job("odd", nano_job(global_batch=3))
    cases.refuses("batch not divisible", odd, INFEASIBLE, "batch", "3",
                  arguments=("--fix", "dp=2"))
    cases.refuses("batch not divisible by the micro-batch", NANO, INFEASIBLE, "batch",
                  arguments=("--fix", "micro_batch=3"))
    cases.refuses("degrees that do not multiply", NANO, INFEASIBLE, "devices",
                  arguments=("--fix", "mp=4", "--fix", "pp=4"))
    # Five layers of 16384: 16 GB of parameters alone, four times that with gradients and moments.
    huge = cases.job("huge", nano_job(hidden=16384, heads=16, kv_heads=16, ffn_hidden=65536,
                                      global_batch=2))
    cases.refuses("a job that cannot fit", huge, INFEASIBLE, "does not fit", "stage", "bytes")


def bad_command_lines(cases):
    cases.refuses("unknown flag", NANO, USAGE, "--devises", "--devices", arguments=("--devises", 2))
    cases.refuses("unknown flag with a value", NANO, USAGE, "--calibraton", "--calibration",
                  arguments=("--calibraton=x",))
    cases.refuses("unknown --fix key", NANO, USAGE, "micro_bach", "micro_batch",
                  arguments=("--fix", "micro_bach=2"))
    cases.refuses("bad --fix value", NANO, USAGE, "mp", "two", arguments=("--fix", "mp=two"))
    cases.refuses("--fix without value", NANO, USAGE, "KEY=VALUE", arguments=("--fix", "mp"))
    cases.refuses("--fix twice", NANO, USAGE, "mp", "twice",
                  arguments=("--fix", "mp=1", "--fix", "mp=2"))
    cases.refuses("no devices", NANO, USAGE, "--devices", devices=0)
    cases.refuses("devices not a number", NANO, USAGE, "--devices", devices="two")
    cases.refuses("bad reserve", NANO, USAGE, "--reserve", arguments=("--reserve", "1"))
    cases.refuses("unknown framework", NANO, USAGE, "no-such", arguments=("--framework", "no-such"))
    cases.refuses("surplus argument", NANO, USAGE, "surplus", arguments=("surplus",))
    cases.judge("unknown command", planner("plann"), USAGE, ["plann"])
    cases.judge("no command", planner(), USAGE, ["subcommand"])
    cases.judge("missing --cluster", planner("plan", NANO, "--devices", 2), USAGE, ["--cluster"])
    cases.judge("unknown stage", planner("passes", NANO, "mp=1", "--stage", "backwards"), USAGE,
                ["backwards", "backward"])


def other_commands(cases):
    cases.judge("plan is not a plan", planner("check", NANO), BAD_INPUT, ["gpt-nano.json"])
    cases.judge("compare without files", planner("compare", cases.folder / "p", cases.folder / "m"),
                BAD_INPUT, [str(cases.folder / "p")])
    cases.judge("simulate an illegal strategy",
                planner("simulate", NANO, "mp=3", "--cluster", cases.cluster, "--devices", 3),
                INFEASIBLE, ["heads"])


def still_works(cases):
    """The good request that the others vary passes, so each refusal is about its own fault."""
    done = planner("plan", NANO, "--cluster", cases.cluster, "--devices", 2, "-o", cases.output)
    assert done.returncode == OK, done.stderr
    assert done.stdout.startswith("gpt-nano on 2 devices of test-cpu"), done.stdout
    assert planner("check", cases.output).returncode == OK
    assert planner("--help").returncode == OK
    assert planner("plan", "--help").returncode == OK


def main():
    with tempfile.TemporaryDirectory() as name:
        cases = Cases(pathlib.Path(name))
        bad_jobs(cases)
        infeasible_jobs(cases)
        bad_command_lines(cases)
        other_commands(cases)
        still_works(cases)
    print("\n".join(cases.failures) or f"{cases.count} requests refused as documented")
    return 1 if cases.failures else 0


if __name__ == "__main__":
    sys.exit(main())
