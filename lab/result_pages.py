"""Pages of docs/results, each from its data and its template: what lab/results and the scripts that measure share.

docs/results/NAME.json has the data of a page, by section: `date`, `machine` where it matters, `rows`, and numbers that the
text names (`facts`). lab/pages/NAME.md.in is its text. In it $SECTION is the table of a section, ${SECTION_when} the
date and the machine, ${SECTION_FACT} a fact, and ${claim_...} a number that follows from the tables (CLAIMS). TABLES says what
the columns of a table are, PRINTED those of tables that scripts only print.
"""

import datetime
import json
import os
import pathlib
import statistics
import string

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEMPLATES = ROOT / "lab" / "pages"
RESULTS = ROOT / "docs" / "results"

SEARCH_COLUMNS = [("candidates", "{candidates:,}"), ("evaluated", "{evaluated:,}"), ("proven", "{proven}"),
                  ("CPU", "{cpu_s:.1f} s"), ("wall", "{wall_s:.1f} s"), ("memory", "{memory_mib:,.0f} MiB"),
                  ("step", "{step_s:.4g} s")]
MOST_REASONS = 5  # that the text of the page accuracy names

# By page and section: (head, how a cell follows from its row). A cell is empty where the row has null for one of its keys.
TABLES = {
    "accuracy": {
        "fits": [("runs", "{runs}"), ("cluster", "{cluster}"), ("framework", "{framework}"), ("rows", "{rows}"),
                 ("own numbers", "{before:.1f} %"), ("fitted", "{fitted:.1f} %"), ("layouts left out", "{layout:.1f} %"),
                 ("90th percentile", "{p90:.1f} %"), ("Spearman", "{spearman:.3f}"),
                 ("90 % interval, holds", "±{width:.0f} %, {held:.0f} %"), ("model sizes left out", "{size:.1f} %"),
                 ("90 % interval, holds", "±{size_width:.0f} %, {size_held:.0f} %")],
        "families": [("runs", "{runs}"), ("rows", "{rows}"), ("not predicted", "{skipped}"), ("mean error", "{mean:.1f} %"),
                     ("median", "{median:.1f} %"), ("worst", "{worst:.1f} %"), ("Spearman", "{spearman:.3f}"),
                     ("90 % interval", "±{width:.0f} %"), ("holds", "{held:.0f} %")],
        "experts": [("document", "{document}"), ("models", "{models}"), ("rows", "{rows}"), ("bias", "{signed:+.1f} %"),
                    ("mean error", "{mean:.1f} %"), ("median", "{median:.1f} %"), ("worst", "{worst:+.1f} %"),
                    ("90 % interval holds", "{held:.0f} %"), ("allocated memory, mean error", "{memory:.1f} %")],
        "intervals": [("basis", "`{basis}`"), ("documents", "{documents}"), ("rows", "{rows:,}"), ("mean error", "{error:.1f} %"),
                      ("interval holds", "{held:.0f} %"), ("documents with pairs", "{ratio_documents}"),
                      ("mean error of ratios", "{ratio_error:.1f} %"), ("interval of ratios holds", "{ratio_held:.0f} %")],
        "goals": [("judged by", "{judged_by}"), ("of", "{of}"), ("goal", "{goal:.3g}"), ("found", "{found}")],
    },
    "memory": {
        "families": [("runs", "{runs}"), ("quantity", "{what}"), ("rows", "{rows}"), ("mean error", "{mean:.2f} %"),
                     ("worst", "{worst:.1f} %"), ("90 % interval", "±{width:.1f} %"), ("holds", "{held:.0f} %")],
        "verdicts": [("runs", "{runs}"), ("ran", "{ran:,}"), ("predicted not to fit", "{called_too_large}"),
                     ("out of memory", "{out_of_memory}"), ("predicted to fit", "{called_to_fit}")],
        "traces": [("trace", "{trace}"), ("allocations", "{allocations:,}"), ("at the same address", "{equal_addresses:,}"),
                   ("segments", "{segments:,}"), ("equal", "{equal_segments:,}"),
                   ("reserved peak, predicted", "{predicted_bytes:,}"), ("measured", "{measured_bytes:,}")],
    },
    "recommended": {
        "learning": [("runs learned from", "{learned}"), ("sources", "{groups}"), ("mean error of the others", "{error:.1f} %"),
                     ("90 % interval", "±{half_width:.0f} %"), ("holds", "{held:.0f} %"), ("worse by 1 % or more", "{worse}"),
                     ("regret", "{regret:.2f} %")],
        "choices": [("unusual choice", "`{choice}`"), ("has to gain", "{gain:g} %"), ("least regret at", "{fitted:g} %"),
                    ("groups that have it and do not", "{groups}"), ("published runs that have it", "{published:.1f} %")],
        "sources": [("source", "{source}"), ("groups", "{groups}"), ("recommended: mean", "{recommended_mean:.2f} %"),
                    ("worst", "{recommended_worst:.1f} %"), ("best of three", "{recommended_best_of_three:.2f} %"),
                    ("after trials", "{recommended_after_trials:.2f} %"), ("runs", "{recommended_trials:.1f}"),
                    ("failed starts", "{recommended_failed_starts}"), ("fastest: mean", "{fastest_mean:.2f} %"),
                    ("worst", "{fastest_worst:.1f} %"), ("failed starts", "{fastest_failed_starts}"),
                    ("gains of other sources: mean", "{fitted_mean:.2f} %"), ("worst", "{fitted_worst:.1f} %"),
                    ("failed starts", "{fitted_failed_starts}"), ("Spearman", "{spearman:.2f}")],
        "worst": [("source", "{source}"), ("job, machine and program", "{what}"), ("layouts", "{layouts}"),
                  ("regret", "{regret:.1f} %"), ("best of three", "{best_of_three:.1f} %"), ("Spearman", "{spearman:.2f}")],
        "goals": [("goal", "{goal}"), ("found", "{found:.3g}"), ("at most", "{bound:g}")],
        "expert_plans": [("job", "{job}"), ("published by, GPUs", "{by}, {on:,}"), ("split", "`{split}`"), ("as asked", "{asked}"),
                         ("best with", "{best}"), ("source", "{source}"), ("note", "{note}")],
    },
    "speed": {
        "searches": [("problem", "{problem}"), ("cluster", "{cluster}"), ("devices", "{devices:,}"), *SEARCH_COLUMNS],
        "other_tools": [("problem", "{problem}"), ("other tool", "{tool}"), ("its time", "{other_s:g} s"),
                        ("Plimsoll's time", "{own_s:g} s"), ("compared", "{what}")],
        "programs": [("benchmark", "{benchmark}"), ("what", "{what}"), ("time", "{time}"), ("limit", "{limit}")],
        "held_choices": [("problems", "{problems}"), ("searches", "{searches:,}"), ("no plan", "{infeasible}"),
                         ("proven no faster", "{proven}"), ("none faster when stopped", "{open}"),
                         ("faster", "{faster}")],
        "devices": [("devices", "{x:,}"), *SEARCH_COLUMNS],
        "layers": [("layers", "{x:,}"), *SEARCH_COLUMNS],
        "reports": [("GPUs", "{devices:,}"), ("plan of", "`{job}`"), ("intervals", "{intervals:,}"), ("size", "{mb:.2f} MB"),
                    ("first paint", "{paint_s:.2f} s"), ("loaded", "{loaded_s:.2f} s"), ("CPU until then", "{cpu_s:.2f} s"),
                    ("frames per second when moved", "{frames:.0f}"), ("`planner report`", "{report_s:.1f} CPU-s")],
    },
    "kernels": {
        "fits": [("parameters", "{parameters}"), ("fitted on", "{fitted_on}"), ("median error in the fit", "{median}"),
                 ("left out", "{unseen}")],
        "effects": [("pull request", "{pull_request}"), ("before and after, as strategies", "{change}"),
                    ("published", "{published}"), ("predicted", "{predicted}"), ("difference", "{apart}"), ("test", "`{test}`")],
        "constants": [("constant", "{constant}"), ("value", "{value}"), ("source", "{source}")],
        "strategies": [("machine", "{machine}"), ("rounds", "{rounds}"), ("median error", "{median:.1f} %"),
                       ("mean", "{mean:.1f} %"), ("signed median", "{signed:+.1f} %"), ("rank correlation", "{spearman:.3f}"),
                       ("90 % interval, mean", "±{width:.0f} %"), ("holds", "{held:.0f} %")],
        "hosts": [("hosts and ranks", "{hosts}"), ("plans", "{plans}"), ("median error", "{median:.1f} %"),
                  ("worst", "{worst:.1f} %")],
        "ranking": [("what", "{what}"), ("found", "{found}"), ("goal", "{goal}")],
        "planners": [("OPT-350M on GH200", "{what}"), ("Plimsoll, nothing seen", "{unseen:.1f} %"),
                     ("Plimsoll, layers seen", "{layers_seen:.1f} %"), ("Sailor", "{sailor:.1f} %"),
                     ("Varuna", "{varuna:.1f} %"), ("Metis", "{metis:.1f} %"), ("FlashFlex", "{flashflex:.1f} %")],
    },
}

# Tables that scripts print, and that no page has.
PRINTED = {
    "coverage of intervals": [
        ("runs", "{runs}"), ("document left out", "{document}"), ("rows", "{rows}"), ("bias", "{bias:+.1f} %"),
        ("mean error", "{error:.1f} %"), ("interval", "×{centre:.2f} ±{width:.0f} %"), ("holds", "{held:.0f} %")],
    "coverage of ratios": [
        ("document left out", "{document}"), ("pairs", "{pairs}"), ("mean error of the ratio", "{error:.1f} %"),
        ("interval", "±{width:.0f} %"), ("holds", "{held:.0f} %")],
    "fits of experts": [
        ("runs", "{runs}"), ("cluster", "{cluster}"), ("framework", "{framework}"), ("rows", "{rows}"),
        ("layouts left out", "{layout:.1f} %"), ("90 % interval holds", "{held:.0f} %")],
    "expert plans": [
        ("job", "{job}"), ("sequences", "{batch:,}"), ("fixed", "{held}"), ("plan", "{words}"),
        ("step", "{step_s:.4g} s ({low_s:.3g} to {high_s:.3g} s)"), ("MFU", "{mfu:.1f} %"),
        ("candidates", "{candidates:,}"), ("evaluated", "{evaluated:,}"), ("search", "{search}"),
        ("CPU", "{cpu_s:.0f} s"), ("wall", "{wall_s:.0f} s")],
    "published choices": [
        ("row", "{row}"), ("job", "{job}, {devices} of {cluster}, {framework}"), ("published", "`{published}`"),
        ("measured", "{measured_s:.4g} s"), ("predicted", "{predicted_s:.4g} s"), ("ours", "`{ours}`"),
        ("predicted", "{ours_s:.4g} s"), ("ratio", "{ratio:.3f} ({interval}), {verdict}"),
        ("device filled", "{filled:.0f} → {ours_filled:.0f} %"), ("search", "{search}"),
        ("gains, % of the step", "{gains}"), ("questions of an expert", "{doubts}")],
    "inputs": [("entry point", "{entry}"), ("texts", "{inputs:,}"), ("accepted", "{taken:,}"),
               ("slowest", "{slowest:.0f} ms"), ("memory", "{peak:.0f} MiB")],
    "fuzz": [("entry point", "{entry}"), ("executions", "{executions:,}"), ("under sanitizers", "{checked:,}"),
             ("edges of code", "{edges:,}"), ("memory", "{peak} MiB"), ("open findings", "{open}")],
    "kills": [("command", "{command}"), ("calls", "{calls}"), ("runs", "{runs:,}"), ("kills", "{kills:,}"),
              ("wrong outcomes", "{wrong}")],
    "memory": [("command", "{command}"), ("requests", "{requests:,}"), ("runs", "{runs:,}"), ("wrong outcomes", "{wrong}")],
    "bytes": [("build", "{build}"), ("commands", "{list}, {commands}"), ("runs", "{runs:,}"), ("outputs", "{outputs:,}"),
              ("runs that differ", "{wrong}")],
    "ranks": [("of", "{launcher}"), ("ranks", "{ranks}"), ("each rank in turn is", "{how}"), ("runs", "{runs}"),
              ("wrong outcomes", "{wrong}"), ("slowest end", "{slowest:.1f} s")],
    "checkpoints": [("pairs of plans", "{pairs}"), ("different losses", "{wrong}")],
    "effects": [("payloads", "{payloads}"), ("pages", "{pages}"), ("exports", "{exports}"), ("effects", "{effects}")],
    "sanitizers": [("preset", "`{preset}`"), ("tests", "{of}"), ("run", "{tests}"), ("failed", "{failed}"),
                   ("skipped", "{skipped}"), ("reports", "{reports}")],
    "coverage": [("folder", "`{folder}`"), ("lines", "{lines:,}"), ("run", "{line_percent:.1f} %"),
                 ("branches", "{branches:,}"), ("run", "{branch_percent:.1f} %")],
    "mutants": [("area", "{area}"), ("sources", "{sources}"), ("mutants", "{mutants:,}"), ("drawn", "{sampled}"),
                ("killed", "{killed}"), ("survived", "{survived}"), ("not reached", "{unreached}"), ("score", "{score:.0f} %")],
    "gpu_mutants": [("source", "`{source}`"), ("faults", "{mutants}"), ("detected", "{killed}"),
                    ("change no result", "{equal}"), ("other outcomes", "{wrong}")],
    "switches": [("", "{number}"), ("switch", "{switch}"), ("published", "{published}"),
                 ("simulated at that size", "{simulated}"), ("executed at a small one", "{executed}"), ("source", "{source}")],
    "runs of switches": [("", "{number}"), ("simulated", "{job}"), ("strategies", "{strategies}"), ("executed", "{small_job}"),
                         ("strategies", "{small_strategies}")],
}


def accuracy_claims(data):
    errors = sorted(row["layout"] for row in data["fits"]["rows"] if row.get("layout") is not None)
    held = {row["basis"]: row["held"] for row in data["intervals"]["rows"]}
    everything = data["experts"]["rows"][-1]
    reasons = sorted(data["skipped"]["rows"], key=lambda row: -row["rows"])[:MOST_REASONS]
    return {"claim_families": len(errors), "claim_median": f"{statistics.median(errors or [0]):.1f}",
            "claim_nine_in_ten": f"{errors[int(0.9 * len(errors))] if errors else 0:.0f}",
            "claim_held": " to ".join(f"{end(held.values()):.0f}" for end in (min, max)),
            "claim_experts": f"{everything['mean']:.1f}", "claim_expert_rows": everything["rows"],
            "claim_reasons": ", ".join(f"{row['why']} ({row['rows']})" for row in reasons)}


def memory_claims(data):
    errors = [row["mean"] for row in data["families"]["rows"]]
    return {"claim_tables": len(errors), "claim_median": f"{statistics.median(errors or [0]):.1f}",
            "claim_worst": f"{max(errors, default=0):.0f}"}


def speed_claims(data):
    most = max((row for row in data["searches"]["rows"] if row["proven"] == "yes"), key=lambda row: row["candidates"])
    page = data["reports"]["rows"][-1]
    claims = {"claim_candidates": f"{most['candidates']:,}", "claim_devices": f"{most['devices']:,}",
              "claim_cpu": f"{most['cpu_s']:.1f}", "claim_page_devices": f"{page['devices']:,}",
              "claim_page_size": f"{page['mb']:.1f}", "claim_page_paint": f"{page['paint_s']:.1f}"}
    for what in ("devices", "layers"):
        rows = [row for row in data[what]["rows"] if row["proven"] == "yes"]
        first, last = rows[0], rows[-1]
        claims[f"claim_times_{what}"] = f"{last['x'] / first['x']:,.0f}"
        claims[f"claim_times_{what}_cpu"] = f"{last['cpu_s'] / first['cpu_s']:.0f}"
    return claims


def kernel_claims(data):
    errors = [row["median"] for row in data["strategies"]["rows"]]
    return {"claim_least": f"{min(errors):.0f}", "claim_most": f"{max(errors):.0f}"}


# Numbers of a page's text that follow from its tables.
CLAIMS = {"accuracy": accuracy_claims, "memory": memory_claims, "speed": speed_claims, "kernels": kernel_claims}


def missed_together(rows):
    """Missed goals with one judge, quantity and bound as one row, which names all runs."""
    found = {}
    for row in rows:
        found.setdefault((row["judged_by"], row["of"], row["goal"]), []).append(f"{row['runs']} {row['found']:.3g}")
    return [{"judged_by": judge, "of": of, "goal": goal, "found": ", ".join(runs)} for (judge, of, goal), runs in found.items()]


# How the rows of a section are shown, if not one by one.
SHOWN = {("accuracy", "goals"): missed_together}


def cell(form, row):
    keys = [key for _, key, _, _ in string.Formatter().parse(form) if key]
    return "" if any(row.get(key) is None for key in keys) else form.format(**row)


def table(columns, rows):
    lines = [[head for head, _ in columns], ["---"] * len(columns),
             *([cell(form, row) for _, form in columns] for row in rows)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def when(section):
    date = datetime.date.fromisoformat(section["date"])
    text = f"{date.day} {date:%B %Y}"
    return f"{text}, {section['machine']}" if section.get("machine") else text


def render(name, data):
    """The page of docs/results/NAME.json."""
    words = CLAIMS[name](data) if name in CLAIMS else {}
    for key, section in data.items():
        if key in TABLES[name]:
            words[key] = table(TABLES[name][key], SHOWN.get((name, key), list)(section["rows"]))
        words[f"{key}_when"] = when(section)
        words |= {f"{key}_{fact}": value for fact, value in section.get("facts", {}).items()}
    template = string.Template((TEMPLATES / f"{name}.md.in").read_text(encoding="utf-8"))
    return template.substitute(words)


def processor():
    names = [line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    return names[0] if names else "a processor"


def machine():
    """The processor, its cores and what else it does."""
    return f"{processor()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"


def section(rows, facts=None, on=""):
    """Returns the data of a section measured today; `on` says the machine where results depend on it."""
    made = {"date": str(datetime.date.today())}
    return {**made, **({"machine": on} if on else {}), "rows": list(rows), **({"facts": facts} if facts else {})}


def data_of(name, folder=RESULTS):
    path = folder / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def put(folder, name, sections):
    """Writes NAME.json with these sections, its other ones kept, and NAME.md; without a folder it prints the page."""
    if not folder:
        print(render(name, {**data_of(name), **sections}))
        return
    folder = pathlib.Path(folder)
    path = folder / f"{name}.json"
    data = {**data_of(name, folder if path.exists() else RESULTS), **sections}
    path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (folder / f"{name}.md").write_text(render(name, data), encoding="utf-8")
