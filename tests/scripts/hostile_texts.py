"""Texts that would do something where a program took them for more than text, and what finds that they did.

Whoever is planted takes part: a payload that works makes an element, a file, a cell or an option with this word.
"""

import csv
import io
import itertools
import re
import shlex
import subprocess

from programs import OK, USAGE, BAD_INPUT

WORD = "planted"

# All but ends of lines and tabs; then what overrides the reading direction.
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

# Readers may refuse some. All that they let pass must stay text wherever it is shown.
PAYLOADS = {
    "script": f"<script>window.{WORD}=1;document.body.id='{WORD}'</script>",
    "end of a script": f"</script><script>alert('{WORD}')</script>",
    "end of a comment": f"--><img id={WORD} src=http://127.0.0.1:9/{WORD}.png>",
    "image": f"<img id={WORD} src=x onerror=alert('{WORD}')>",
    "svg": f"</title></style></textarea><svg id={WORD} onload=alert('{WORD}')>",
    "attribute": f"\" {WORD}=1 onmouseover=\"alert('{WORD}')\" x=\"",
    "single attribute": f"' {WORD}=1 autofocus onfocus='alert(1)' x='",
    "link": f"javascript:alert('{WORD}')",
    "entity": f"&lt;b id={WORD}&gt;&#60;b id={WORD}&#62;",
    "template": f"${{alert('{WORD}')}} {{{{{WORD}}}}} `${{{WORD}}}`",
    "script string": f"\\\"];alert('{WORD}');[\\\"\\u003cscript\\u003e",
    "substitution": f"$(touch {WORD})",
    "backticks": f"`touch {WORD}`",
    "commands": f"x; touch {WORD} & touch {WORD} | touch {WORD} > {WORD}",
    "end of a quote": f"'; touch {WORD}; '\" ; touch {WORD}; \"",
    "expansion": f"${{x:-$(touch {WORD})}} ~ * !! {{a,b}} \\",
    "option of a batch": f"{WORD} --nodes=99 --wrap=touch",
    "batch line": f"#SBATCH --nodes=99 {WORD}",
    "option": f"--nodes=99,{WORD}",
    "formula": f"=cmd|' /C calc'!{WORD}",
    "plus formula": f"+{WORD}+cmd|'/C calc'!A0",
    "minus formula": f"-{WORD}+cmd|'/C calc'!A0",
    "function": f"@SUM({WORD})",
    "cells": f"{WORD},\"=1+1\",x",
    "path": f"../../{WORD}",
    "root": f"/{WORD}/../{WORD}",
    "format": f"%s%n%x {{}} {{0}} {{:>999999999}} {WORD}",
    "yaml": f"{WORD}: !!python/object/apply:os.system ['touch {WORD}'] # [x] {{y}}",
    "line separator": f"{WORD}\u2028alert(1)\u2029#SBATCH --nodes=99",
    "long": WORD + "<b>'\"$" * 660,
    "too long": WORD + "<b>'\"$" * 2000,
    # With controls (HIDDEN below), as they stand in names of files and, where a format has an escape, in files.
    "lines": f"{WORD}\n#SBATCH --nodes=99\ntouch {WORD}\n",
    "return": f"{WORD}\r=1+1",
    "escape": f"{WORD}\x1b[2J\x1b]0;{WORD}\x07",
    "C1": f"{WORD}\x9b2J\x9d0;x\x9c",
    "overrides": f"{WORD}\u202egnp.\u2066x",
    "deleted": f"{WORD}\x7f\x08\x08",
}
# A byte that is no UTF-8 is a control of eight-bit terminals.
HIDDEN = ("lines", "return", "escape", "C1", "overrides", "deleted")
# A page could take these for markup or for a script.
MARKUP = tuple(itertools.takewhile(lambda name: name != "substitution", PAYLOADS)) + ("all together",)
PAYLOADS["all together"] = " ".join(text for name, text in PAYLOADS.items() if name not in HIDDEN and len(text) < 400)
BYTES = WORD.encode() + b"\x9b2J\xff\x1b[31m"

STRAY = re.compile("[\udc80-\udc9f]")  # a byte of its own, as surrogateescape reads it


def raw_controls(data):
    """Returns the characters that a terminal would act on."""
    text = data.decode("utf-8", "surrogateescape")
    return [hex(ord(c)) for c in CONTROLS.findall(text) + STRAY.findall(text)]


def judged(done):
    """Fails unless a program ended with an answer or a refusal, and wrote nothing a terminal acts on."""
    assert done.returncode not in (1,) and done.returncode >= 0, (done.args, done.returncode, done.stderr)
    for stream in (done.stdout, done.stderr):
        assert not raw_controls(stream), (done.args, raw_controls(stream), stream[:2000])
    if done.returncode in (USAGE, BAD_INPUT):
        assert done.stderr.strip(), (done.args, "a refusal without a word")
    return done


def formulas(text):
    """Cells of a CSV file that a spreadsheet would compute."""
    found = []
    for row in csv.reader(io.StringIO(text, newline="")):
        found += [cell for cell in row if re.match(r"[=+\-@\t\r]", cell) and not is_number(cell)]
    return found


def is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


# Each puts its own name and its words into the file of words, each with a zero byte behind it.
STUB = """#!/bin/bash
printf '%s\\0' "${0##*/}" "$@" >> "$WORDS"
"""
STUBS = ("srun", "sbatch", "mpirun", "torchrun", "python", "python3", "deepspeed", "accelerate", "planner-run-mpi")


class Shell:
    """A folder that scripts run in, with stubs of what they would start."""

    def __init__(self, out):
        self.folder, self.bin, self.words = out / "shell", out / "stubs", out / "words"
        self.folder.mkdir()
        self.bin.mkdir()
        for name in STUBS:
            (self.bin / name).write_text(STUB)
            (self.bin / name).chmod(0o755)

    def run(self, script):
        """The words that a script starts its program with. Fails where it does anything else."""
        self.words.write_bytes(b"")
        done = subprocess.run(["/bin/bash", "-c", 'script=$1; shift; . "$script"', "bash", script],
                              cwd=self.folder, capture_output=True, timeout=60, check=False,
                              env={"PATH": f"{self.bin}:/usr/bin:/bin", "WORDS": str(self.words)})
        assert done.returncode == OK and not done.stderr, (script.read_text(), done.returncode, done.stderr)
        made = list(self.folder.iterdir())
        assert not made, (script.read_text(), "made files", made)
        return [word.decode("utf-8", "surrogateescape") for word in self.words.read_bytes().split(b"\0")[:-1]]


def batch_options(script):
    """Returns the words of all #SBATCH lines up to the first command, where sbatch stops reading."""
    words = []
    for line in script.splitlines():
        if line.startswith("#SBATCH"):
            words += shlex.split(line)[1:]
        elif line and not line.startswith("#"):
            break
    return words


# True where something of a payload is more than text in a page.
PLANTED = """(() => {
  const odd = (a) => /^on|^%(word)s$/i.test(a.name) || /^\\s*javascript:/i.test(a.value) && a.name === 'href' ||
      (a.name === 'id' || a.name === 'class') && a.value.includes('%(word)s');
  return '%(word)s' in window ||
      [...document.querySelectorAll('*')].some((one) => [...one.attributes].some(odd)) ||
      document.querySelectorAll('img, iframe, object, embed, base, meta[http-equiv=refresh]').length > 0;
})()""" % {"word": WORD}


def effects_in(browser, page):
    """Returns the effects of payloads in a page, whose text has to have the word."""
    shown = browser.open(page.as_uri())
    found = [f"fault: {fault}" for fault in shown.faults()]
    found += [f"request: {url}" for url in shown.requests() if not url.startswith((page.as_uri(), "data:"))]
    found += ["dialog" for event in browser.events if event["method"] == "Page.javascriptDialogOpening"]
    if shown.evaluate(PLANTED):
        found.append("an element or attribute of a payload")
    if not shown.evaluate(f"document.documentElement.textContent.includes('{WORD}')"):
        found.append("no payload is shown: nothing was tested")
    shown.close()
    return found
