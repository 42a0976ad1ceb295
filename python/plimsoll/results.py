"""Results: dictionaries that a notebook shows as a short table."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

_SWEEP_ROWS = 30
_SWEEP_COLUMNS = ("cluster", "framework", "devices", "global_batch", "sequence", "step_time_s", "days", "device_hours", "cost",
                  "tokens_per_second", "mfu", "mp", "pp", "reason")


def _table(rows: Iterable[Iterable[Any]], head: bool = False) -> str:
    lines = []
    for i, row in enumerate(rows):
        tag = "th" if head and i == 0 else "td"
        lines.append("<tr>" + "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in row) + "</tr>")
    return "<table>" + "".join(lines) + "</table>"


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def _number(value: Any) -> Any:
    return f"{value:,.4g}" if isinstance(value, float) else value


def _range(values: Mapping[str, Any], key: str, end: str = "") -> str:
    low, high = values[f"{key}_low{end}"], values[f"{key}_high{end}"]
    return f"{_number(float(values[key + end]))} ({_number(float(low))} to {_number(float(high))})"


def _training_rows(training: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = [("days", f"{_range(training, 'days')} for {training['tokens']:.3g} tokens"),
             ("device-hours", _range(training, "device_hours"))]
    if training["cost"] is not None:
        found.append(("cost", _range(training, "cost")))
    return found


class Result(dict):
    """A plan or a simulation: a dictionary that a notebook shows as a short table."""

    def _title(self) -> str:
        job = self["job"]
        name = job["name"] if isinstance(job, Mapping) else job
        cluster = f" of {self['cluster_name']}" if "cluster_name" in self else ""
        return f"{name} on {self['devices']} devices{cluster}"

    def _repr_html_(self) -> str:
        prediction, strategy = self["prediction"], self["strategy"]
        degrees = {key: value for key, value in strategy.items() if key in _DEGREES and value != 1}
        if strategy["sharding_degree"] > 1:
            degrees["sharding_stage"] = strategy["sharding_stage"]
        interval = f"{_time(prediction['step_time_low_s'])} to {_time(prediction['step_time_high_s'])}"
        fullest = max(prediction["stages"], key=lambda stage: stage["reserved_bytes"] / stage["capacity_bytes"])
        facts: list[tuple[str, str]] = [
            ("layout", ", ".join(f"{key}={value}" for key, value in degrees.items()) or "one device"),
            ("micro-batch", f"{strategy['micro_batch']}, recompute {strategy['recompute']}"),
            ("step", f"{_time(prediction['step_time_s'])} ({interval})"),
            ("tokens/s", f"{prediction['tokens_per_s']:,.0f}"),
            ("MFU", f"{100 * prediction['mfu']:.1f} %"),
            ("memory", f"{prediction['memory']['taken_bytes'] / 2**30:.1f} of {fullest['capacity_bytes'] / 2**30:.1f} GiB"),
            *(_training_rows(self["training"]) if "training" in self else []),
        ]
        if "fits" in self:
            facts.append(("fits", "yes" if self["fits"] else "no"))
        if "search" in self:
            facts.append(("proven", "yes" if self["search"]["proven"] else f"no, within {100 * self['search']['gap']:.1f} %"))
        return f"<p>{html.escape(self._title())}</p>" + _table(facts)


_DEGREES = ("mp", "pp", "dp", "sharding_degree", "cp", "ep", "virtual_stages")


class Plan(Result):
    """A plan. Its timeline, which is most of a plan file, is an attribute; save() writes the whole file."""

    #: What a plan file has as "timeline".
    timeline: dict[str, Any]

    def __init__(self, plan: Mapping[str, Any]) -> None:
        super().__init__(plan)
        self.timeline = self.pop("timeline")

    def text(self) -> str:
        """Returns the text of the plan file."""
        return json.dumps({**self, "timeline": self.timeline})

    def save(self, path: str | os.PathLike) -> None:
        """Writes the plan file, which every command reads."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.text())


class Sweep(dict):
    """A sweep: a dictionary that a notebook shows as a table of its points."""

    def _repr_html_(self) -> str:
        points = [{**point, **(point["strategy"] or {})} for point in self["points"]]
        columns = [key for key in _SWEEP_COLUMNS if any(point.get(key) is not None for point in points)]
        shown = [[_number(point.get(key, "")) if point.get(key) is not None else "" for key in columns]
                 for point in points[:_SWEEP_ROWS]]
        left = len(points) - len(shown)
        rest = f"<p>and {left} more points: plimsoll.rows()</p>" if left > 0 else ""
        return f"<p>{html.escape(self['job'])}</p>" + _table([columns, *shown], head=True) + rest
