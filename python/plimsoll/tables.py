"""Tables of results: one row for each plan or simulation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def _row(result: Mapping[str, Any]) -> dict[str, Any]:
    prediction = result["prediction"]
    numbers = {key: value for key, value in prediction.items() if isinstance(value, (int, float))}
    job = result["job"]
    row = {
        "job": job["name"] if isinstance(job, Mapping) else job,
        "cluster": result.get("cluster_name"),
        "devices": result["devices"],
        "global_batch": job.get("global_batch") if isinstance(job, Mapping) else None,
        **numbers,
        "reserved_bytes": max(stage["reserved_bytes"] for stage in prediction["stages"]),
        **result["strategy"],
    }
    return _stated(row)


def _stated(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if value is not None}


def _point(point: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {key: value for key, value in point.items() if key != "strategy"}
    return _stated({**numbers, **(point["strategy"] or {})})


def rows(results: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns a flat row for each result of plan() or simulate(), and for each point of a sweep(): numbers and strategy."""
    if isinstance(results, Mapping):
        return [_point(point) for point in results["points"]] if "points" in results else [_row(results)]
    return [_row(result) for result in results]


def frame(results: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> Any:
    """Returns rows() as a data frame. Needs pandas, which nothing else here does."""
    import pandas  # noqa: PLC0415

    return pandas.DataFrame(rows(results))
