"""Published runs by document, and those of mixtures of experts in what `planner validate --json` says: for lab/accuracy."""

import collections
import json
import re
import statistics


def title_of(source):
    """The words of a source up to its version or its remark, for tables: github:x/y@1 (2026) is x/y."""
    return re.split(r"@| \(", source)[0].removeprefix("github:")


def documents_of(files):
    """The titles of the documents of each file of runs, by the file's name, which follows them if several files are of the same ones."""
    found = {name: ", ".join(sorted({title_of(row["source"]["repo_or_doc"]) for row in json.loads(path.read_text())}))
             for name, path in files.items()}
    count = collections.Counter(found.values())
    return {name: text if count[text] == 1 else f"{text} ({name})" for name, text in found.items()}


def models_of(files):
    """Returns the model of each run that has experts, by the run's id."""
    return {row["id"]: row["model"]["name"] for path in files.values() for row in json.loads(path.read_text())
            if row["model"].get("experts")}


def written(files, folder):
    """Writes files of the runs with experts alone, and returns them as `files` are."""
    found = {}
    for name, path in files.items():
        rows = [row for row in json.loads(path.read_text()) if row["model"].get("experts")]
        if rows:
            found[name] = folder / path.name
            found[name].write_text(json.dumps(rows))
    return found


def holds(row):
    predicted, measured = row["predicted"], row["measured"]["step_time_s"]
    return predicted["step_time_low_s"] <= measured <= predicted["step_time_high_s"]


def memory_errors(rows):
    """Relative errors of allocated memory, where it was measured."""
    pairs = [(row["predicted"]["memory_allocated_bytes"], row["measured"]["memory_allocated_bytes"]) for row in rows]
    return [100 * (predicted / measured - 1) for predicted, measured in pairs if measured]


def table_row(document, models, rows):
    errors = [row["time_error_pct"] for row in rows]
    memory = memory_errors(rows)
    return {"document": document, "models": ", ".join(sorted(models)), "rows": len(rows), "signed": statistics.mean(errors),
            "mean": statistics.mean(map(abs, errors)), "median": statistics.median(map(abs, errors)),
            "worst": max(errors, key=abs), "held": 100 * statistics.mean(map(holds, rows)),
            "memory": statistics.mean(map(abs, memory)) if memory else None}


def expert_rows(files, rows):
    """Step times by document, then of all."""
    models = models_of(files)
    of = collections.defaultdict(list)
    for row in rows:
        if row["id"] in models and "time_error_pct" in row:
            of[title_of(row["source"])].append(row)
    found = [table_row(document, {models[run["id"]] for run in runs}, runs) for document, runs in sorted(of.items())]
    everything = [run for runs in of.values() for run in runs]
    return [*found, table_row("all", [], everything)] if everything else []


def with_mean(fits):
    """Appends what the rows of fits (lab/accuracy, fit_rows) have in the mean, by their runs."""
    judged = [fit for fit in fits if "layout" in fit]
    if not judged:
        return fits
    runs = sum(fit["rows"] for fit in judged)

    def mean(what):
        return sum(fit["rows"] * fit[what] for fit in judged) / runs
    return [*fits, {"runs": "all", "cluster": None, "framework": None, "rows": runs, "layout": mean("layout"), "held": mean("held")}]
