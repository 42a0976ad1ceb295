"""Shell completion knows commands, flags, presets, keys of strategies and their values; bash, zsh and fish ask for them.

zsh and fish are tested where they are installed."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from programs import BIN, OK, USAGE, planner

ENV = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}

# Words before the cursor, and what is among the answers. ":files" stands for names of files.
ANSWERS = [
    (("",), ["plan", "run", "calibrate", "import", "completion"]),
    (("pl",), ["plan"]),
    (("plan", ""), ["llama3-70b", ":files"]),
    (("plan", "--dev"), ["--devices"]),
    (("plan", "llama3-8b", "--cluster", "dgx-h"), ["dgx-h100-80gb"]),
    (("plan", "llama3-8b", "--cluster=dgx-h"), ["--cluster=dgx-h100-80gb"]),
    (("plan", "--framework", "megatron-lm-20"), ["megatron-lm-2021", "megatron-lm-2022"]),
    (("plan", "--calibration", "t"), ["typical"]),
    (("plan", "--calibration", "dgx-h100"), ["dgx-h100-80gb--megatron-lm"]),
    (("plan", "--fix", "m"), ["mp=", "micro_batch=", "moment_type="]),
    (("plan", "--fix", "mp="), ["mp=1", "mp=8"]),
    (("plan", "--fix", "recompute="), ["recompute=none", "recompute=full", "recompute=selective"]),
    (("plan", "--fix", "sharding_stage="), ["sharding_stage=0", "sharding_stage=3"]),
    (("plan", "--output", ""), [":files"]),
    (("simulate", "llama3-8b", "mp=2,sched"), ["mp=2,schedule="]),
    (("simulate", "llama3-8b", "mp=2,schedule=z"), ["mp=2,schedule=zb_h1"]),
    (("explain", "plan.json", "--why-not", "mp=4,p"), ["mp=4,pp="]),
    (("export", "plan.json", "--to", ""), ["slurm", "megatron"]),
    (("import", "nccl-tests", "x.txt", "--collective", "all_r"), ["all_reduce"]),
    (("import", ""), ["nccl-tests", "topology", ":files"]),
    (("import", "config.json", "--precision", ""), ["fp32", "bf16", "fp16"]),
    (("init", "cluster", "--based-on", "rtx"), ["rtx-4090", "rtx-5090"]),
    (("init", "framework", "--based-on", "pyt"), ["pytorch-fsdp"]),
    (("passes", "gpt-mini", "mp=2", "--after", "sch"), ["schedule"]),
    (("describe", "hgx"), ["hgx-b200"]),
    (("schema", "j"), ["job"]),
    (("man", "pl"), ["plan"]),
    (("completion", ""), ["bash", "zsh", "fish"]),
    (("calibrate", "--bud"), ["--budget"]),
    (("calibrate", "--cluster", "dgx-a"), ["dgx-a100-40gb"]),
    (("run", "plan.json", "--da"), ["--data"]),
    (("run", ""), [":files"]),
]
# Nothing is to be offered: numbers, sizes, a value that is given, an unknown command's words.
NOTHING = [("plan", "--devices", ""), ("plan", "--reserve", ""), ("plan", "--time-limit", ""), ("plan", "--fix", "no_such_key="),
           ("compare", "plan.json", "measured.json", "a", "b", ""), ("plan", "llama3-8b", "--cluster", "x", "--clus")]


def answer(*words):
    done = planner("complete", "--", *words)
    assert done.returncode == OK and not done.stderr, done
    return [line.split("\t")[0] for line in done.stdout.splitlines()]


def wrong_answers():
    for words, wanted in ANSWERS:
        found = answer(*words)
        if missing := [word for word in wanted if word not in found]:
            yield f"planner {' '.join(words)}: lacks {missing} of {found}"
        if bad := [word for word in found if not word.startswith((words[-1], ":"))]:
            yield f"planner {' '.join(words)}: {bad} do not begin so"
    for words in NOTHING:
        if found := answer(*words):
            yield f"planner {' '.join(words)}: offers {found}"


def of_bash(line, folder):
    """Returns what bash would offer for a line, by its own splitting of words."""
    script = f"""
source <(planner completion bash)
COMP_LINE={line!r}
COMP_POINT=${{#COMP_LINE}}
# As readline does: split at blanks and at the characters of COMP_WORDBREAKS, which are words themselves.
COMP_WORDS=($(sed -E 's/([=:])/ \\1 /g' <<< "$COMP_LINE"))
[[ $COMP_LINE == *' ' || $COMP_LINE == *= ]] && COMP_WORDS+=('')
[[ $COMP_LINE == *= ]] && unset 'COMP_WORDS[-1]' && COMP_WORDS+=('')
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_planner
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=ENV, cwd=folder, timeout=60)
    assert done.returncode == OK, done
    return done.stdout.split()


def of_zsh(words, folder):
    """The function with a stub in place of zsh's compadd, which works in a line editor only."""
    script = """
source <(planner completion zsh)
compadd() { local -a all; eval "all=(\\"\\${${@[-1]}[@]}\\")"; print -rl -- $all }
_files() { print -r -- :files }
words=("$@"); CURRENT=$#words; PREFIX=$words[-1]
_planner
"""
    done = subprocess.run(["zsh", "-f", "-c", script, "zsh", *words], capture_output=True, text=True, env=ENV, cwd=folder,
                          timeout=60)
    return done.stdout.split()


def of_fish(line, folder):
    script = f"planner completion fish | source; complete -C '{line}'"
    done = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True, env=ENV, cwd=folder, timeout=60)
    assert done.returncode == OK, done
    return [one.split("\t")[0] for one in done.stdout.splitlines()]


# A line, and what a shell offers in place of its last word, or of what follows the last = of it.
LINES = [("planner pla", ["plan"], "plan"), ("planner plan --fix mp=", ["1", "8"], "mp=8"),
         ("planner plan --cluster rtx-", ["rtx-4090"], "rtx-4090"), ("planner describe my-j", ["my-job.json"], "my-job.json"),
         ("planner simulate llama3-8b mp=2,schedule=z", ["zb_h1"], "mp=2,schedule=zb_h1"),
         ("planner run my-", ["my-job.json"], "my-job.json")]


def in_shells():
    tested = ["bash"]
    failures = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "my-job.json").write_text("{}")
        for line, values, whole in LINES:
            found = of_bash(line, folder)
            if missing := [value for value in values if (value if "=" in line else whole) not in found]:
                failures.append(f"bash: {line}: lacks {missing} of {found}")
            if shutil.which("zsh"):
                found = of_zsh(line.split(), folder)
                if whole not in found and not (":files" in found and whole.endswith(".json")):
                    failures.append(f"zsh: {line}: lacks {whole} of {found}")
            if shutil.which("fish"):
                found = of_fish(line, folder)
                if whole not in found:
                    failures.append(f"fish: {line}: lacks {whole} of {found}")
        for shell in ("zsh", "fish"):
            if shutil.which(shell):
                tested.append(shell)
                script = folder / shell
                script.write_text(planner("completion", shell).stdout)
                done = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True)
                if done.returncode != OK or done.stderr:
                    failures.append(f"{shell}: {done.stderr}")
    return tested, failures


def main():
    failures = list(wrong_answers())
    tested, wrong = in_shells()
    failures += wrong
    done = planner("completion", "csh")
    if done.returncode != USAGE or "bash" not in done.stderr:
        failures.append(f"an unknown shell: {done}")
    print("\n".join(failures) or f"{len(ANSWERS)} completions, and those of {', '.join(tested)}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
