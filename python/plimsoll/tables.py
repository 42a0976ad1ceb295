"""Tables of results: one row for each plan or simulation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def _row(result: Mapping[str, Any]) -> dict[str, Any]:
    if "plan" in result or "error" in result:  # of a sweep
        plan = result.get("plan")
        asked = {key: result[key] for key in ("devices", "global_batch") if result.get(key) is not None}
        return _row(plan) if plan else {**asked, "error": result["error"]}
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
    return {key: value for key, value in row.items() if value is not None}


def rows(results: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns a flat row for each result of plan(), simulate() or sweep(): its predicted numbers and its strategy."""
    return [_row(result) for result in ([results] if isinstance(results, Mapping) else results)]


def frame(results: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> Any:
    """Returns rows() as a data frame. Needs pandas, which nothing else here does."""
    import pandas  # noqa: PLC0415

    return pandas.DataFrame(rows(results))
