from typing import Any

version: str

def job(name: str, texts: dict[str, str]) -> str: ...
def cluster(name: str, texts: dict[str, str]) -> str: ...
def framework(name: str, texts: dict[str, str]) -> str: ...
def presets() -> str: ...
def plan(
    target: dict[str, Any],
    held: dict[str, list[str]],
    reserve: str,
    time_limit: str,
    threads: int | None,
    top: int | None,
    fastest: bool,
) -> tuple[str, list[str], str]: ...
def sweep(
    target: dict[str, Any],
    lists: dict[str, list[str]],
    held: dict[str, list[str]],
    texts: dict[str, str],
    threads: int | None,
) -> tuple[str, list[str]]: ...
def simulate(target: dict[str, Any], strategy: str, reserve: str) -> tuple[str, list[str], str]: ...
def learn(
    target: dict[str, Any], scripts: list[str], logs: list[str], output: str
) -> tuple[str, list[str], str]: ...
def explain(
    plan: str,
    why_not: str,
    from_script: str,
    cluster: str,
    calibration: list[str],
    texts: dict[str, str],
    time_limit: str,
    threads: int | None,
) -> str: ...
def import_file(
    file: str,
    sequence: int | None,
    global_batch: int | None,
    precision: str,
    dropout: float | None,
    devices: int | None,
    name: str,
    family: str,
) -> str: ...
def report(
    plan: str,
    measured: str,
    tolerance: float,
    plan_only: bool,
    cluster: str,
    calibration: list[str],
    texts: dict[str, str],
    time_limit: str,
    threads: int | None,
) -> str: ...
def describe(name: str, texts: dict[str, str]) -> str: ...
def validate(files: list[str], calibration: list[str], leave_out_sources: bool) -> str: ...
def fit(files: list[str], cluster: str, framework: str) -> str: ...
def export(plan: str, to: str, allow_lossy: bool) -> str: ...
