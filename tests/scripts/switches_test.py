"""lab/switches: every field of a strategy has a row, and a row is simulated and executed."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

from programs import BIN, CLUSTER, NANO, OK, SOURCE, planner, write_json

sys.path.insert(0, str(SOURCE / "lab"))
import switch_rows  # noqa: E402  (the script under test)
import switches  # noqa: E402


def every_field_of_a_strategy_has_a_row(scratch):
    cluster = write_json(scratch / "cluster.json", CLUSTER)
    done = planner("simulate", NANO, "mp=1", "--cluster", cluster, "--devices", 1, "--json")
    assert done.returncode == OK, done.stderr
    named = set().union(*(switches.keys_of(row) for row in switch_rows.ROWS))
    missing = set(json.loads(done.stdout)["strategy"]) - named
    # The bundled runtime refuses some of these, so a row could not show them executed; random draws
    # run the others, and a rank order changes nothing on threads of one machine.
    assert missing == {"fp8", "fp8_parameters", "cp", "context_exchange", "main_gradient_type", "loss_chunks",
                       "release_gradients",
                       "main_parameter_type", "moment_type", "stochastic_rounding",
                       "rank_order", "ep", "etp", "expert_dispatch", "expert_rows_percent", "overlap_shared_experts",
                       "overlap_expert_exchange", "recompute_modules",
                       "offload_optimizer_percent", "overlap_offload", "paged_states", "offload_parameters"}, missing


def a_row_is_simulated_and_executed():
    script = [sys.executable, "-B", SOURCE / "lab" / "switches.py", "--bin", BIN, "--only",
              "grad_reduction"]
    done = subprocess.run(script, capture_output=True, text=True, timeout=300)
    assert done.returncode == OK, done.stderr
    row = next(line for line in done.stdout.splitlines() if line.startswith("| 1 |"))
    assert re.search(r"step [0-9,.]+ m?s → ", row), row
    # Gradients of 4 micro-batches are sent each, instead of their sum.
    sent = re.search(r"; sent ([0-9,]+) → ([0-9,]+) B;", row)
    once, each = (int(text.replace(",", "")) for text in sent.groups())
    assert each > 3 * once, row


def main():
    with tempfile.TemporaryDirectory() as folder:
        every_field_of_a_strategy_has_a_row(pathlib.Path(folder))
    a_row_is_simulated_and_executed()


if __name__ == "__main__":
    main()
