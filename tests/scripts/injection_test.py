"""Names, paths and units of other people stay text: in pages, traces, tables, scripts, exports and terminals.

Payloads go through every text that a plan, a job, a cluster, a framework or a fit carries, through names of files and words of
the command line, and through files that are imported. Effects are looked for where they would happen: a page is opened in
a browser, a script is run by bash among stubs, a table is read cell by cell, and what reaches a terminal is read byte by byte.
"""

import copy
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from hostile_texts import (BYTES, HIDDEN, MARKUP, PAYLOADS, WORD, Shell, batch_options, effects_in, formulas, judged, raw_controls)
from programs import BAD_INPUT, BIN, CLUSTER, NANO, OK, SOURCE, USAGE, load_script, nano_job

load_script("results")  # puts lab/ on the path
import browser  # noqa: E402

PRESETS = SOURCE / "models" / "presets"
FIT = "dgx-a100-80gb--megatron-lm-2021"
A100 = "dgx-a100-80gb"
QUICK = ("--fix", "mp=1", "--fix", "recompute=none", "--fix", "micro_batch=4", "--fix", "cp=1")
# Pages of sweeps share the functions of reports: fewer of them are opened.
IN_SWEEPS = ("end of a script", "attribute", "single attribute", "all together")
# Each target takes a plan of this framework; slurm takes one of the bundled runtime.
TARGETS = {"megatron": "megatron-lm", "torchtitan": "torchtitan", "deepspeed": "deepspeed", "fsdp": "pytorch-fsdp",
           "accelerate": "pytorch-fsdp", "megatron-bridge": "megatron-lm", "paddle": "paddlenlp"}


def planner(*arguments, cwd):
    """Runs `planner`, and looks at its end and at what it wrote."""
    words = [one if isinstance(one, bytes) else str(one).encode() for one in (BIN / "planner", *arguments)]
    return judged(subprocess.run(words, capture_output=True, timeout=300, check=False, cwd=cwd))


def must(done):
    assert done.returncode == OK, (done.args, done.returncode, done.stderr)
    return done


def write(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
    return path


def places(value, path=()):
    """Places of all texts, those in arrays by `None`: what holds for one element holds for all."""
    if isinstance(value, dict):
        return {place for key, one in value.items() for place in places(one, path + (key,))}
    if isinstance(value, list):
        return {place for one in value for place in places(one, path + (None,))}
    return {path} if isinstance(value, str) else set()


def put(value, chosen, text, path=()):
    """The value with `text` at the chosen places."""
    if isinstance(value, dict):
        return {key: put(one, chosen, text, path + (key,)) for key, one in value.items()}
    if isinstance(value, list):
        return [put(one, chosen, text, path + (None,)) for one in value]
    return text if isinstance(value, str) and path in chosen else value


def place_of(message):
    """The place that a refusal names, or None."""
    found = re.search(r"at (/\S*): ", message)
    if not found:
        return None
    keys = [key.replace("~1", "/").replace("~0", "~") for key in found[1].split("/")[1:]]
    return tuple(None if key.isdigit() else key for key in keys)


def free_places(value, file, folder):
    """Places where any text is allowed. The reader itself says which are not: it names the first one that it refuses."""
    chosen = places(value)
    while True:
        done = planner("describe", write(file, put(value, chosen, WORD)), cwd=folder)
        if done.returncode == OK:
            return chosen
        assert done.returncode == BAD_INPUT, (done.returncode, done.stderr)
        place = place_of(done.stderr.decode())
        # A refusal may name an object, or a key that none of the texts has.
        refused = {one for one in chosen if place is not None and one[:len(place)] == place}
        assert refused, (file, place, done.stderr)
        chosen -= refused


class Carrier:
    """A file with the places where it takes any text."""

    def __init__(self, file, value, folder, least):
        self.file, self.value = file, value
        self.free = free_places(value, file, folder)
        assert len(self.free) >= least, (file, sorted(map(str, self.free)))

    def put(self, text):
        return write(self.file, put(self.value, self.free, text))


def make_carriers(folder):
    cluster = write(folder / "c.json", CLUSTER)
    must(planner("plan", NANO, "--cluster", cluster, "--devices", 2, *QUICK, "--fix", "pp=2", "-o", "p.json", cwd=folder))
    plan = json.loads((folder / "p.json").read_text())
    framework = json.loads((PRESETS / "frameworks" / "bundled.json").read_text())
    framework["name"] = WORD
    fit = json.loads((PRESETS / "calibrations" / f"{FIT}.json").read_text())
    return {"plan": Carrier(folder / "plan.json", plan, folder, 40),
            "job": Carrier(folder / "job.json", nano_job(), folder, 1),
            "cluster": Carrier(folder / "cluster.json", CLUSTER, folder, 4),
            "framework": Carrier(folder / "framework.json", framework, folder, 4),
            "fit": Carrier(folder / "fit.json", fit, folder, 1)}


def in_a_plan(name, plan, folder, pages):
    """A plan of a stranger: its page, its scripts and its words."""
    described = planner("describe", plan, cwd=folder)
    assert described.returncode in (OK, BAD_INPUT), (name, described.stderr)
    read = described.returncode == OK
    page = folder / f"plan {len(pages)}.html"
    codes = [planner(*words, cwd=folder).returncode for words in
             (("check", plan, "--json"), ("explain", plan, "--why-not", "pp=1"), ("report", plan, "--plan-only", "-o", page))]
    if not read:
        assert set(codes) == {BAD_INPUT}, (name, codes)
    elif name in MARKUP:
        pages.append((name, page))


def in_the_inputs(name, files, folder, pages):
    """Job, cluster and framework of strangers: tables, pages, traces and the plan that is made of them."""
    common = ("--cluster", files["cluster"], "--framework", files["framework"], "--devices", 2)
    for old in ("trace.json", "sweep.csv", "sweep.html", "made.json"):
        (folder / old).unlink(missing_ok=True)
    done = planner("simulate", files["job"], "pp=2,micro_batch=4", *common, "--trace", "trace.json", cwd=folder)
    assert done.returncode in (OK, BAD_INPUT), (name, done.stderr)
    page = folder / f"sweep {len(pages)}.html"
    swept = planner("sweep", files["job"], *common, *QUICK, "--fix", "pp=2", "--price", f"{files['cluster']}=2.5/h", "--tokens", "1B", "--csv",
                    "sweep.csv", "--html", page, cwd=folder)
    assert swept.returncode == done.returncode, (name, swept.stderr)
    planner("simulate", "gpt2-small", "mp=1", "--cluster", A100, "--devices", 1, "--calibration", files["fit"], cwd=folder)
    if done.returncode != OK:
        return
    trace = (folder / "trace.json").read_bytes()
    json.loads(trace)
    table = (folder / "sweep.csv").read_bytes()
    assert not raw_controls(trace) and not raw_controls(table), name
    assert WORD.encode() in table and not formulas(table.decode()), (name, formulas(table.decode()))
    if name in IN_SWEEPS:
        pages.append((name, page))
    must(planner("plan", files["job"], *common, *QUICK, "--fix", "pp=2", "-o", "made.json", cwd=folder))
    must(planner("check", "made.json", cwd=folder))  # a plan that was written can be read


def export_plans(folder):
    """A plan for each target."""
    plans = {"slurm": json.loads((folder / "p.json").read_text())}
    for framework in sorted(set(TARGETS.values())):
        must(planner("plan", "llama3-8b", "--cluster", A100, "--devices", 8, "--framework", framework, "--fix", "mp=1", "--fix",
                     "pp=1", "--fix", "micro_batch=1", "--fix", "recompute=full", "--fix", "cp=1", "-o", "x.json", cwd=folder))
        plan = json.loads((folder / "x.json").read_text())
        plans.update({target: plan for target, wanted in TARGETS.items() if wanted == framework})
    return plans


def exported(target, plan, text, folder):
    """The export of a plan whose job, cluster and origin have names of a stranger."""
    plan = copy.deepcopy(plan)
    plan["job"]["name"] = plan["cluster_name"] = plan["origin"]["calibration_provenance"] = text
    write(folder / "x.json", plan)
    out = folder / "exported"
    out.unlink(missing_ok=True)
    more = ("--data", text, "--measured", text) if target == "slurm" else ("--allow-lossy",)
    done = planner("export", "x.json", "--to", target, *more, "-o", out, cwd=folder)
    return (out if done.returncode == OK else None), done


def in_exports(name, text, target, plan, plain, folder, shell):
    """Exports a stranger's plan, runs a script, and compares a document with that of a plain name. Returns how many were made."""
    out, done = exported(target, plan, text, folder)
    if out is None:
        assert done.returncode in (USAGE, BAD_INPUT) and name in (*HIDDEN, "too long"), (name, done.stderr)
        return 0
    data = out.read_bytes()
    assert not raw_controls(data), (name, target)
    script = data.decode()
    if not plain[target].startswith("#!"):  # a document: the name is in comments alone
        assert without_comments(script) == without_comments(plain[target]), (name, target, script)
        return 1
    words = shell.run(out)
    assert batch_options(script) == batch_options(plain[target]) or target == "slurm", (name, script)
    if target == "slurm":
        options = batch_options(script)
        assert [one.split("=")[0] for one in options] == [one.split("=")[0] for one in batch_options(plain[target])], options
        assert not any("99" in one for one in options if not one.startswith("--job-name=")), options
        assert words[0] == "srun", words
        assert words[words.index("--data") + 1] == text and words[words.index("-o") + 1] == text, (name, words)
    else:
        assert words[0] == "torchrun" and not any(WORD in word for word in words), (name, words)
    return 1


def without_comments(text):
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def as_words(name, text, folder, shell):
    """A payload as a word of the command line, and as a file's name where the system takes it."""
    every = (("plan", text, "--cluster", A100), ("describe", text), ("check", text), ("import", text),
                  ("plan", "gpt2-small", "--cluster", A100, "--devices", 1, "--fix", text),
                  ("sweep", "gpt2-small", "--cluster", A100, "--devices", text, "--price", text),
                  ("simulate", "gpt2-small", text, "--cluster", A100), (text,), ("schema", text),
                  ("export", folder / "p.json", "--to", text), ("plan", "gpt2-small", "--calibration", text, "--cluster", A100))
    for words in every if name in HIDDEN else every[len(name) % 6::6]:
        done = planner(*words, cwd=folder)
        assert done.returncode in (USAGE, BAD_INPUT), (name, words[0], done.returncode, done.stdout, done.stderr)
    stem = text if isinstance(text, bytes) else text.encode()
    file = stem.replace(b"/", b"_")[:200] + b".json"
    if file.startswith(b"-"):
        file = b"./" + file
    (folder / "names").mkdir(exist_ok=True)
    names = folder / "names"
    shutil.copy(folder / "p.json", os.fsencode(names) + b"/" + file)
    must(planner("check", file, cwd=names))
    must(planner("report", file, "--plan-only", "-o", file + b".html", "--json", cwd=names))
    done = planner("export", file, "--to", "slurm", "--data", file, cwd=names)
    if done.returncode == OK:
        script = folder / "exported"
        script.write_bytes(done.stdout)
        words = shell.run(script)
        assert words[words.index("--data") + 1] == os.fsdecode(file), (name, words)
    else:
        assert done.returncode == USAGE and b"control character" in done.stderr, (name, done.stderr)
    if name in (*HIDDEN, "bytes"):
        shutil.copy(NANO, os.fsencode(names) + b"/" + file)
        must(planner("plan", file, "--cluster", folder / "c.json", "--devices", 2, *QUICK, "--fix", "pp=2", "-o", "o.json",
                     cwd=names))
        must(planner("check", "o.json", cwd=names))
        must(planner("describe", file, "--json", cwd=names))
    shutil.rmtree(names)


SCRIPT = """torchrun --nproc_per_node 2 pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 \\
  --micro-batch-size 2 --global-batch-size 8 --vocab-size 256 --max-position-embeddings 32 --bf16 \\
  --{option} {word} --save {word} --tokenizer-model {word}
"""


def in_imports(name, text, folder):
    """Payloads in files of other trainers: as values, as keys, and as words of a shell, quoted and not."""
    quoted = "'" + text.replace("'", "'\\''") + "'"
    config = json.loads((SOURCE / "tests" / "interop" / "data" / "gpt2.json").read_text())
    hostile = put(config, places(config) - {("model_type",)}, text)
    hostile[text] = text
    hostile["_name_or_path"] = text
    files = {"quoted.sh": SCRIPT.format(option="tokenizer-type", word=quoted),
             "bare.sh": SCRIPT.format(option="tokenizer-type", word=text),
             "option.sh": SCRIPT.format(option=text, word="1"),
             "config.json": json.dumps(hostile, ensure_ascii=False),
             "type.json": json.dumps(dict(config, model_type=text, architectures=[text]), ensure_ascii=False),
             "job.toml": f"[model]\nname = {json.dumps(text, ensure_ascii=False)}\nflavor = '''{text}'''\n[training]\nseq_len = 32\n",
             "ds.json": json.dumps({"train_batch_size": 8, "zero_optimization": {"stage": text}, text: 1}, ensure_ascii=False),
             "run.yaml": f"compute_environment: {text}\ndistributed_type: {text}\n{text}: 1\n"}
    chosen = slice(None) if name in HIDDEN else slice(len(name) % 3, None, 3)
    for file, content in list(files.items())[chosen]:
        (folder / file).write_bytes(content.encode("utf-8", "surrogateescape"))
        job = folder / "imported.json"
        job.unlink(missing_ok=True)
        done = planner("import", file, "--name", text, "-o", job, cwd=folder)
        assert done.returncode in (OK, USAGE, BAD_INPUT), (name, file, done.returncode, done.stderr)
        if job.exists() and done.returncode == OK:
            must(planner("describe", job, cwd=folder))


def check_that_effects_are_seen(folder, shell):
    """Nothing of this test means anything where an effect would go unseen."""
    assert formulas("a,=1\n,@x\n") == ["=1", "@x"] and not formulas("-1,+2.5e3,a=b\n")
    assert raw_controls(b"\x1b[1m") and raw_controls(b"a\x9b") and raw_controls("\u202e".encode()) and not raw_controls("ä\n".encode())
    script = folder / "bad.sh"
    script.write_text(f"srun {PAYLOADS['substitution']}\n")
    try:
        shell.run(script)
    except AssertionError:
        (shell.folder / WORD).unlink()
    else:
        raise AssertionError("a file that a script made went unseen")
    assert batch_options("#!/bin/bash\n#SBATCH --a=1 --nodes=99\nx\n#SBATCH --b\n") == ["--a=1", "--nodes=99"]


def check_pages(pages, folder):
    with browser.Browser(folder / "profile", longest=60) as opened:
        for payload in ("image", "attribute", "single attribute"):
            page = folder / "bad.html"
            text = PAYLOADS[payload].replace("alert", "void ")
            page.write_text(f"<!DOCTYPE html><meta charset=utf-8><p title=\"{text}\">{WORD}</p><p title='{text}'>{text}</p>")
            assert effects_in(opened, page), f"{payload} went unseen"
        for name, page in pages:
            found = effects_in(opened, page)
            assert not found, (name, page.name, found)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name) / "work"
        folder.mkdir()
        shell, pages = Shell(pathlib.Path(name)), []
        check_that_effects_are_seen(folder, shell)
        carriers = make_carriers(folder)
        plans = export_plans(folder)
        plain = {target: exported(target, plan, "plain", folder)[0].read_text() for target, plan in plans.items()}
        others = itertools.cycle(target for target in plans if target not in ("slurm", "megatron"))
        scripts = 0
        for payload, text in PAYLOADS.items():
            files = {kind: carrier.put(text) for kind, carrier in carriers.items()}
            in_a_plan(payload, files["plan"], folder, pages)
            in_the_inputs(payload, files, folder, pages)
            for target in ("slurm", "megatron", next(others)):
                scripts += in_exports(payload, text, target, plans[target], plain, folder, shell)
            as_words(payload, text, folder, shell)
            in_imports(payload, text, folder)
        as_words("bytes", BYTES, folder, shell)
        made = [path for path in pathlib.Path(name).rglob(f"*{WORD}*")] + list(shell.folder.iterdir())
        assert not made and not pathlib.Path(f"/{WORD}").exists(), made
        assert len(pages) == len(MARKUP) + len(IN_SWEEPS) and scripts >= 60, (len(pages), scripts)
        opened = len(pages) if shutil.which(browser.PROGRAM) else 0  # only what a browser opened was tried
        if opened:
            check_pages(pages, folder)
    print(f"{len(PAYLOADS)} payloads: no effect in {opened} pages and {scripts} exports")


if __name__ == "__main__":
    sys.exit(main())
