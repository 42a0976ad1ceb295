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


def _number(value: Any) -> Any:
    return f"{value:,.4g}" if isinstance(value, float) else value


class Result(dict):
    """A plan or a simulation: a dictionary that a notebook shows in the few lines that the command prints."""

    #: What the command prints of it, without the next commands.
    lines: str

    def __init__(self, values: Mapping[str, Any], lines: str) -> None:
        super().__init__(values)
        self.lines = lines

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.lines)}</pre>"


class Plan(Result):
    """A plan. Its timeline, which is most of a plan file, is an attribute; save() writes the whole file."""

    #: What a plan file has as "timeline".
    timeline: dict[str, Any]

    def __init__(self, values: Mapping[str, Any], lines: str) -> None:
        super().__init__(values, lines)
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
