"""Which calibration a command predicts with: one rule, said in the first line of the whole result, and shortly in "rests on"."""

import json
import pathlib
import sys
import tempfile

from programs import BAD_INPUT, OK, USAGE, planner, write_json

H100 = ("--cluster", "dgx-h100-80gb")
LLAMA = ("llama3-8b", "sharding_degree=8,sharding_stage=3,recompute=full", "--devices", 8,
         "--framework", "pytorch-fsdp")


def said(*command):
    done = planner(*command)
    assert done.returncode == OK, done.stderr
    return done.stdout


def refused(code, *words, command):
    done = planner(*command)
    assert done.returncode == code and not done.stdout, done
    assert len(done.stderr.splitlines()) == 1, done.stderr
    for word in words:
        assert word in done.stderr, (word, done.stderr)


def named():
    for words, text in (
            ((*LLAMA, *H100), "calibration fitted on "),
            ((*LLAMA, *H100, "--calibration", "built-in"), "calibration fitted on "),
            ((*LLAMA, *H100, "--calibration", "dgx-h100-80gb--pytorch-fsdp"), "fitted on "),
            ((*LLAMA, *H100, "--calibration", "typical"), "rates typical of training, "),
            ((*LLAMA, *H100, "--calibration", "none"),
             "no calibration, efficiency of the cluster file"),
            ((*LLAMA, "--cluster", "hgx-h200"), "rates typical of training, "),
            (("gpt3-1.3b", "mp=8", "--cluster", "dgx-a100-80gb", "--devices", 8),
             "--framework megatron-lm-2021")):
        assert text in said("simulate", *words, "--verbose").splitlines()[0], (words, text)
    for calibration, text in (("built-in", " published runs of pytorch-fsdp on dgx-h100-80gb, "),
                              ("typical", "rates typical of training, "), ("none", "kernel rates of the cluster file")):
        lines = said("simulate", *LLAMA, *H100, "--calibration", calibration)
        assert f"\nrests on {text.strip()}" in lines or f" {text.strip()}" in lines, (calibration, lines)
    refused(BAD_INPUT, "nowhere.json", "typical", "planner list calibrations",
            command=("simulate", *LLAMA, *H100, "--calibration", "nowhere.json"))


def labelled():
    """Each number says what it rests on."""
    for calibration, label in (("built-in", "fitted"), ("typical", "typical"),
                               ("none", "datasheet")):
        found = json.loads(said("simulate", *LLAMA, *H100, "--calibration", calibration, "--json"))
        shares = found["prediction"]["share_by_provenance"]
        assert shares[label] > 0.3, (calibration, shares)
        others = {"fitted", "typical"} - {label}
        assert not any(shares[other] for other in others), (calibration, shares)


def one_rule():
    """plan, simulate and space take the same calibration where none is named."""
    words = {}
    for command in ("simulate", "plan", "space"):
        strategy = LLAMA[1:2] if command == "simulate" else ()
        narrow = ("--fix", "sharding_degree=8", "--fix", "micro_batch=1") if command == "plan" else ()
        whole = () if command == "space" else ("--verbose",)
        text = said(command, "gpt2-small", *strategy, *LLAMA[2:], *narrow, *H100, *whole)
        words[command] = text.splitlines()[0].split("; ")[2]
    assert len(set(words.values())) == 1 and "calibration fitted on" in words["plan"], words


def own_cluster(folder):
    """A cluster file by hand, of GPUs that no preset has: rates typical of training, all devices."""
    device = {"name": "NVIDIA L40S", "kind": "gpu", "memory": "46068 MiB",
              "memory_bandwidth": "864 GB/s", "peak": {"bf16": "362 TFLOP/s"}}
    network = [{"name": "PCIe", "devices": 8, "bandwidth": "25 GB/s", "latency": "4 us"}]
    cluster = write_json(folder / "ours.json",
                         {"name": "ours", "nodes": 1, "devices_per_node": 8, "device": device,
                          "levels": network, "source": "datasheet"})
    command = ("simulate", "gpt3-1.3b", "mp=8", "--cluster", cluster)
    times = {}
    for name in ("built-in", "typical", "none"):
        found = json.loads(said(*command, "--calibration", name, "--json"))
        times[name] = found["prediction"]["step_time_s"]
    assert times["built-in"] == times["typical"] > 1.1 * times["none"], times
    text = said(*command, "--verbose")
    assert "on 8 devices of ours" in text and "efficiency  not stated" in text, text
    refused(USAGE, "--devices is required", "dgx-h100-80gb",
            command=("simulate", "gpt3-1.3b", "mp=8", *H100))


def main():
    named()
    labelled()
    one_rule()
    with tempfile.TemporaryDirectory() as folder:
        own_cluster(pathlib.Path(folder))
    print("calibrations: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
