"""Plimsoll plans the training of transformers on clusters: the commands of `planner` as functions.

A job, cluster or framework is the name of a preset, the path of a file, or a dictionary with the keys of such a file.
Results are dictionaries with the keys that `planner COMMAND --json` prints. What the command line notes on stderr goes to the
logger "plimsoll". Errors are those of plimsoll.errors.

    plan = plimsoll.plan("llama3-8b", "dgx-h100-80gb", devices=64)
    plan["strategy"], plan["prediction"]["step_time_s"]
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Union

from plimsoll import _core
from plimsoll.errors import (
    DoesNotFit,
    Error,
    Infeasible,
    InputError,
    MachineError,
    StoppedEarly,
    UsageError,
)
from plimsoll.results import Plan, Result, Sweep
from plimsoll.tables import frame, rows

__version__: str = _core.version
__all__ = [
    "DoesNotFit",
    "Error",
    "Infeasible",
    "InputError",
    "MachineError",
    "Plan",
    "Result",
    "StoppedEarly",
    "Sweep",
    "UsageError",
    "cluster",
    "describe",
    "explain",
    "export",
    "fit",
    "frame",
    "framework",
    "import_file",
    "job",
    "learn",
    "plan",
    "presets",
    "report",
    "rows",
    "simulate",
    "sweep",
    "validate",
]

#: The name of a preset, the path of a file, or what such a file has.
Source = Union[str, os.PathLike, Mapping[str, Any]]
#: Choices of a strategy: {"mp": 2, "recompute": "full"}, or "mp=2,recompute=full".
Choices = Union[str, Mapping[str, Any]]
#: A time as text with its unit ("30 s"), or in seconds.
Time = Union[str, float]
#: One number, several, or a list as `planner sweep` takes it: "64..1024x2".
Numbers = Union[int, str, Iterable[int]]
#: Values that a search tries, too: {"fp8": ["delayed"]}, "fp8=delayed,current", or a list of such texts.
Tried = Union[str, Mapping[str, Any], Iterable[str]]
#: Limits of a search: {"pp": 8}, or ["pp=8"]. Of `exclude`, a key may have several values: {"mp": [1, 2]}.
Limits = Union[str, Mapping[str, Any], Iterable[str]]
#: One file, or several.
Files = Union[str, os.PathLike, Iterable[Union[str, os.PathLike]]]
#: Names or files of calibrations, as `--calibration` takes them.
Calibration = Union[str, os.PathLike, Sequence[Union[str, os.PathLike]]]

_log = logging.getLogger("plimsoll")


def _named(source: Source | None, argument: str, texts: dict[str, str]) -> str:
    """Returns the name by which the core finds a source. A dictionary has the name of its argument."""
    if source is None:
        return ""
    if isinstance(source, Mapping):
        texts[argument] = json.dumps(source)
        return argument
    return os.fspath(source)


def _names(calibration: Calibration | None) -> list[str]:
    if calibration is None:
        return []
    one = isinstance(calibration, (str, os.PathLike))
    return [os.fspath(name) for name in ([calibration] if one else calibration)]


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    one = isinstance(value, (str, int, float, os.PathLike, Mapping))
    return [value] if one else list(value)


def _files(files: Files) -> list[str]:
    return [os.fspath(file) for file in _list(files)]


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _pairs(choices: Limits | None) -> list[str]:
    if not choices:
        return []
    if isinstance(choices, str):
        return choices.split(",")
    if not isinstance(choices, Mapping):
        return list(choices)
    return [f"{key}={_value(value)}" for key, values in choices.items() for value in _list(values)]


def _tries(tried: Tried | None) -> list[str]:
    if not tried:
        return []
    if isinstance(tried, str):
        return [tried]
    if not isinstance(tried, Mapping):
        return list(tried)
    return [f"{key}={','.join(_value(value) for value in _list(values))}" for key, values in tried.items()]


def _held(fix, most, least, exclude, tried) -> dict[str, list[str]]:
    return {
        "fix": _pairs(fix),
        "max": _pairs(most),
        "min": _pairs(least),
        "exclude": _pairs(exclude),
        "try": _tries(tried),
    }


def _time(time: Time | None) -> str:
    if time is None:
        return ""
    return time if isinstance(time, str) else f"{time} s"


def _target(
    job,
    cluster,
    devices,
    global_batch,
    framework,
    calibration,
    from_script,
    texts,
    sequence=None,
    tokens=None,
    price=None,
) -> dict[str, Any]:
    return {
        "job": _named(job, "job", texts),
        "cluster": _named(cluster, "cluster", texts),
        "framework": _named(framework, "framework", texts),
        "from_script": _named(from_script, "from_script", {}),
        "calibration": _names(calibration),
        "devices": devices,
        "global_batch": global_batch,
        "sequence": sequence,
        "tokens": "" if tokens is None else str(tokens),
        "price": "" if price is None else price if isinstance(price, str) else f"{price}/h",
        "texts": texts,
    }


def _answer(answer: tuple[str, list[str]]) -> dict[str, Any]:
    text, notes = answer
    for note in notes:
        _log.warning(note.rstrip())
    return json.loads(text)


def presets() -> dict[str, list[str]]:
    """Returns the names of built-in "jobs", "clusters", "frameworks" and "calibrations"."""
    return json.loads(_core.presets())


def job(source: Source) -> dict[str, Any]:
    """Returns a job with every key. A Hugging Face config.json is read as import_file() reads it."""
    texts: dict[str, str] = {}
    return json.loads(_core.job(_named(source, "job", texts), texts))


def cluster(source: Source) -> dict[str, Any]:
    """Returns a cluster with every key."""
    texts: dict[str, str] = {}
    return json.loads(_core.cluster(_named(source, "cluster", texts), texts))


def framework(source: Source) -> dict[str, Any]:
    """Returns a framework as a file that describes it.

    The name of a built-in one gets an ending, since the framework of a file needs another name.
    """
    texts: dict[str, str] = {}
    return json.loads(_core.framework(_named(source, "framework", texts), texts))


def plan(
    job: Source | None = None,
    cluster: Source | None = None,
    *,
    devices: int | None = None,
    global_batch: int | None = None,
    sequence: int | None = None,
    framework: Source | None = None,
    calibration: Calibration | None = None,
    tokens: str | float | None = None,
    price: str | float | None = None,
    fix: Choices | None = None,
    max: Limits | None = None,  # noqa: A002 - the command's word
    min: Limits | None = None,  # noqa: A002
    exclude: Limits | None = None,
    tried: Tried | None = None,
    reserve: str = "",
    time_limit: Time | None = None,
    threads: int | None = None,
    top: int | None = None,
    fastest: bool = False,
    from_script: str | os.PathLike | None = None,
) -> Plan:
    """Returns the best plan of a job: what a plan file has, with the timeline apart (Plan.timeline).

    `tokens` ("100B" or 1e11) adds result["training"]: days, device-hours and, with the `price` of a device for an hour, cost.
    `fix` holds choices; `max`, `min` and `exclude` limit them; `tried` (--try) adds values of keys that no search varies by
    itself. With `top`, so many plans that split the job otherwise are listed. `fastest` takes the fastest prediction, whatever
    unusual choices it has. `from_script` is a script that states the job, instead of `job`. Without `devices` the plan is for the whole cluster. A search that a time limit or Ctrl-C ends returns the best plan so far, with result["search"]["proven"]
    false. Raises DoesNotFit, with what would help, where no strategy fits.
    """
    target = _target(
        job, cluster, devices, global_batch, framework, calibration, from_script, {}, sequence, tokens, price
    )
    held = _held(fix, max, min, exclude, tried)
    values, notes, lines = _core.plan(target, held, reserve, _time(time_limit), threads, top, fastest)
    return Plan(_answer((values, notes)), lines)


def simulate(
    job: Source | None = None,
    strategy: Choices | os.PathLike | None = None,
    cluster: Source | None = None,
    *,
    devices: int | None = None,
    global_batch: int | None = None,
    sequence: int | None = None,
    framework: Source | None = None,
    calibration: Calibration | None = None,
    tokens: str | float | None = None,
    price: str | float | None = None,
    reserve: str = "",
    from_script: str | os.PathLike | None = None,
) -> Result:
    """Returns the prediction of one strategy, whether it fits or not (result["fits"]).

    The strategy is pairs ("mp=2,pp=2"), a dictionary (of a plan, say) or a file. `from_script` is a script that states job
    and strategy. Raises Infeasible, with the rule, where the strategy is not legal.
    """
    texts: dict[str, str] = {}
    name = _named(strategy, "strategy", texts)
    target = _target(
        job, cluster, devices, global_batch, framework, calibration, from_script, texts, sequence, tokens, price
    )
    values, notes, lines = _core.simulate(target, name, reserve)
    return Result(_answer((values, notes)), lines)


def learn(
    script: Files,
    log: Files,
    cluster: Source | None = None,
    *,
    job: Source | None = None,
    devices: int | None = None,
    global_batch: int | None = None,
    sequence: int | None = None,
    framework: Source | None = None,
    calibration: Calibration | None = None,
    output: str | os.PathLike | None = None,
) -> Result:
    """Learns a cluster's numbers from runs of one's own: what `planner learn --json` prints.

    `script` and `log` are files of one run, or lists of as many. `output` is the calibration to write. Predictions before rest
    on what is built in, unless a `calibration` is given. `job` is for scripts without a model.
    """
    texts: dict[str, str] = {}
    target = _target(job, cluster, devices, global_batch, framework, calibration, None, texts, sequence)
    written = "" if output is None else os.fspath(output)
    values, notes, lines = _core.learn(target, _files(script), _files(log), written)
    return Result(_answer((values, notes)), lines)


def _plan_text(plan: Source) -> str:
    if isinstance(plan, Plan):
        return plan.text()
    if isinstance(plan, Mapping):
        if "timeline" not in plan:
            raise UsageError("a plan without its timeline: give what plan() returned, or json.loads(plan.text())")
        return json.dumps(plan)
    with open(plan, encoding="utf-8") as file:
        return file.read()


def explain(
    plan: Source,
    *,
    why_not: Choices | None = None,
    from_script: str | os.PathLike | None = None,
    cluster: Source | None = None,
    calibration: Calibration | None = None,
    time_limit: Time | None = None,
    threads: int | None = None,
) -> dict[str, Any]:
    """Says why a plan is best and what would help; with `why_not` or `from_script`, what other choices cost.

    `plan` is what plan() returned, or a plan file. Where its cluster or calibration is not built in, it is given again.
    Ctrl-C in a search leaves the best so far, which the result says is not proven; before that it raises KeyboardInterrupt.
    """
    texts: dict[str, str] = {}
    return json.loads(
        _core.explain(
            _plan_text(plan),
            ",".join(_pairs(why_not)),
            _named(from_script, "from_script", {}),
            _named(cluster, "cluster", texts),
            _names(calibration),
            texts,
            _time(time_limit),
            threads,
        )
    )


def import_file(
    path: str | os.PathLike,
    *,
    sequence: int | None = None,
    global_batch: int | None = None,
    precision: str = "",
    dropout: float | None = None,
    devices: int | None = None,
    name: str = "",
    family: str = "",
    vocab: int | None = None,
) -> dict[str, Any]:
    """Reads a file of another tool: "kind", "job", "strategy", "framework", "notes", and what was "unread".

    Flags that are "unknown" may change the model, memory and time.

    The other arguments state what the file does not, as those of `planner import` do.
    """
    answer = _core.import_file(
        os.fspath(path), sequence, global_batch, precision, dropout, devices, name, family, vocab
    )
    return json.loads(answer)


def export(plan: Source, to: str, *, allow_lossy: bool = False) -> str:
    """Returns the script that starts a plan in a framework, by all of its flags.

    Raises Infeasible where the flags cannot state all of the plan, unless `allow_lossy` is set.
    """
    return _core.export(_plan_text(plan), to, allow_lossy)


def report(
    plan: Source,
    measured: str | os.PathLike | None = None,
    *,
    cluster: Source | None = None,
    calibration: Calibration | None = None,
    tolerance: float = 0.30,
    plan_only: bool = False,
    time_limit: Time | None = None,
    threads: int | None = None,
) -> str:
    """Returns a plan as one HTML page, which loads nothing: what `planner report` writes.

    `measured` is a file of `planner run`. Where the plan's cluster or calibration is not built in, it is given again, or the
    page shows the plan alone. `plan_only` simulates and searches nothing.
    """
    texts: dict[str, str] = {}
    return _core.report(
        _plan_text(plan),
        "" if measured is None else os.fspath(measured),
        tolerance,
        plan_only,
        _named(cluster, "cluster", texts),
        _names(calibration),
        texts,
        _time(time_limit),
        threads,
    )


def describe(source: Source) -> dict[str, Any]:
    """Says what a job, a cluster, a framework, a calibration, a plan or a strategy has, with derived figures.

    `source` is a file, the name of a preset, a strategy as text, or a dictionary.
    """
    if isinstance(source, Plan):
        return json.loads(_core.describe("plan", {"plan": source.text()}))
    texts: dict[str, str] = {}
    return json.loads(_core.describe(_named(source, "description", texts), texts))


def validate(
    files: Files,
    *,
    calibration: Calibration | None = None,
    leave_out_sources: bool = False,
) -> dict[str, Any]:
    """Predicts published runs, files of stated rows, and returns their errors: what `planner validate --json` prints.

    With `leave_out_sources`, each run is predicted without the built-in fits that have runs of its document.
    """
    return json.loads(_core.validate(_files(files), _names(calibration), leave_out_sources))


def fit(files: Files, *, cluster: str, framework: str) -> dict[str, Any]:
    """Fits the numbers of a cluster and a framework on files of stated rows: the calibration that `planner fit -o` writes.

    Saved as a file, the result is a `calibration` of the other functions.
    """
    return json.loads(_core.fit(_files(files), cluster, framework))


def _texts(values: Any) -> list[str]:
    return [str(value) for value in _list(values)]


def _prices(price: Any) -> list[str]:
    if isinstance(price, Mapping):
        return [f"{cluster}={one}" for cluster, value in price.items() for one in _prices(value)]
    return [value if isinstance(value, str) else f"{value}/h" for value in _list(price)]


def sweep(
    job: Source,
    cluster: Source | Iterable[Source],
    *,
    devices: Numbers | None = None,
    global_batch: Numbers | None = None,
    sequence: Numbers | None = None,
    network: str | float | Iterable[float] | None = None,
    framework: Source | Iterable[Source] | None = None,
    calibration: Calibration | None = None,
    tokens: str | float | None = None,
    price: str | float | Mapping[str, str | float] | None = None,
    deadline: Time | None = None,
    fix: Choices | None = None,
    max: Limits | None = None,  # noqa: A002 - the command's word
    min: Limits | None = None,  # noqa: A002
    exclude: Limits | None = None,
    tried: Tried | None = None,
    reserve: str = "",
    time_limit: Time | None = None,
    point_time_limit: Time | None = None,
    threads: int | None = None,
) -> Sweep:
    """Plans a job at each of many points: what `planner sweep --json` prints. rows() makes a table of its "points".

    Points are all combinations of clusters, frameworks, devices, batches, sequences and networks. `network` is in Gbit/s
    between nodes of each device, instead of the cluster's. `price` is that of a device for an
    hour: a number, or one for each cluster by name. Other arguments are those of plan(). Ctrl-C leaves the points so far, and
    result["points_left"] says how many are missing.
    """
    texts: dict[str, str] = {}
    several = {"cluster": _list(cluster), "framework": _list(framework)}
    lists = {
        "devices": _texts(devices),
        "global_batch": _texts(global_batch),
        "sequence": _texts(sequence),
        "network": _texts(network),
        "price": _prices(price),
    }
    for argument, sources in several.items():
        names = [f"{argument} {i + 1}" if len(sources) > 1 else argument for i in range(len(sources))]
        lists[argument] = [_named(source, name, texts) for source, name in zip(sources, names)]
    target = _target(job, None, None, None, None, calibration, None, texts)
    words = {
        "tokens": "" if tokens is None else str(tokens),
        "deadline": _time(deadline),
        "reserve": reserve,
        "time_limit": _time(time_limit),
        "point_time_limit": _time(point_time_limit),
    }
    return Sweep(_answer(_core.sweep(target, lists, _held(fix, max, min, exclude, tried), words, threads)))
