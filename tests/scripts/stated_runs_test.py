"""lab/state writes runs that are predicted as their raw rows are by lab/validate, each fact with its source. planner refuses raw rows."""

import errno
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from programs import BAD_INPUT, BIN, ENVIRONMENT, INFEASIBLE, OK, OUTSIDE_TOLERANCE, SOURCE, USAGE, lab, planner, write_json


def row(name, document, place, **more):
    return {
        "id": name, "use": "public", "source": {"repo_or_doc": document, "path_or_issue": place},
        "hardware": {"gpu": "B200-SXM", "gpus": 8, "gpus_per_node": 8},
        "model": {"name": "llama3", "hidden": 1024, "layers": 4, "heads": 16, "vocab": 128256, "seq_len": 1024},
        "parallel": {"tp": 2, "pp": 1, "dp": 4}, "batch": {"micro": 1, "global": 16}, "precision": "bf16",
        "recompute": "none", "attention": "flash", "measured": {"step_time_s": 0.1}, "framework": "megatron-core",
        **more,
    }


def validated(run, path, *arguments):
    done = run("validate", path, "--json", *arguments)
    assert done.returncode == OK, done.stderr
    return json.loads(done.stdout)["rows"]


def stated_runs_are_predicted_alike(folder):
    rows = [row("known", "github:MooreThreads/SimuMax@4dcaae5 (Apache-2.0)", "case llama3_405b_l4"),
            row("unknown", "github:somebody/runs", "page 1"),
            row("own", "github:somebody/runs", "page 2", stated={"framework": "torchtitan"},
                parallel={"tp": 1, "pp": 1, "dp": 8, "zero_stage": 3})]
    raw = write_json(folder / "runs.json", rows)
    stated = folder / "made" / "stated"  # -o makes its folder
    before = validated(lab, raw)
    assert [run["framework"] for run in before] == ["megatron-lm", "megatron-lm", "torchtitan"], before
    assert lab("state", raw, "-o", stated).returncode == OK
    assert validated(planner, stated / "runs.json") == before
    assert validated(lab, stated / "runs.json") == before, "a stated row is read as it is"
    first, second, _ = json.loads((stated / "runs.json").read_text())
    vocabulary, = [said for said in first["statements"] if said["field"] == "model.vocab"]
    assert vocabulary["value"] == 128257 and "NullTokenizer" in vocabulary["source"], vocabulary
    assert not [said for said in second["statements"] if said["field"] == "model.vocab"]
    assert any(said["settled_by_results"] for said in first["statements"])
    done = lab("state", raw, "-o", folder)
    assert done.returncode == USAGE and json.loads(raw.read_text()) == rows, "it overwrites no input"


def runs_of_adapters_are_predicted(folder):
    """LoRA as the job has it; a run without a rank names it. Packs of MLPerf's configuration are whole sequences."""
    lora = {"rank": 16, "alpha": 32, "dropout": 0.1, "targets": ["linear_qkv", "linear_proj"]}
    tuned = {"finetuning": "lora", "needs": ["finetuning", "lora", "packed sequences"]}
    place = "github:mlcommons/training_results_v4.0@6fe9543 (Apache-2.0)"
    rows = [row("whole", place, "a"), row("tuned", place, "b", **tuned, lora=lora), row("bare", place, "c", **tuned),
            row("packed", "github:somebody/runs", "d", **tuned, lora=lora), row("full", place, "e", finetuning="sft", needs=["finetuning"])]
    made = folder / "inputs"
    whole, adapted, bare, packed, full = validated(lab, write_json(folder / "tuned.json", rows), "--inputs", made)
    assert (bare["missing"], packed["missing"]) == ("rank of adapters", "packed sequences")
    assert full["predicted"]["step_time_s"] == whole["predicted"]["step_time_s"], "all parameters are trained"
    memory = [run["predicted"]["memory_allocated_bytes"] for run in (adapted, whole)]
    assert memory[0] < memory[1], "frozen weights have neither gradients nor states"
    jobs = [json.loads(file.read_text()) for file in made.glob("*.job.json")]
    of_job = [job["adapters"] for job in jobs if "adapters" in job]
    assert of_job == [{"rank": 16, "scale": 2.0, "dropout": 0.1, "targets": ["qkv", "out"]}], of_job


def raw_rows_are_refused(folder):
    """The message names the row, and the command that states it."""
    raw = write_json(folder / "raw.json", [row("a", "github:somebody/runs", "page")])
    for command in (("validate", raw), ("fit", raw, "--cluster", "hgx-b200", "--framework", "megatron-lm")):
        done = planner(*command)
        assert done.returncode == BAD_INPUT and f"{raw}: at /0/statements" in done.stderr, done.stderr
        assert all(name in done.stderr for name in ("lab/state", "lab/validate", "lab/fit")), done.stderr


def messages_name_the_raw_file(folder):
    for bad, place in ((row("a", "doc", "page", precision=3), "/0/precision"), (row("a", "doc", "page", parallel=[2]), "/0/parallel"), ({"id": "a"}, "/0"), (3, "/0")):
        path = write_json(folder / "bad.json", [bad])
        done = lab("validate", path, "--json")
        assert done.returncode == BAD_INPUT and str(path) in done.stderr and place in done.stderr, (bad, done.stderr)
        assert not done.stdout
    path = folder / "bad.json"
    for text in ("[", '[{"a": 1, "a": 2}]', "[NaN]", "[1e999]", "{}"):
        path.write_text(text)
        by_lab, by_planner = lab("validate", path), planner("validate", path)
        assert (by_lab.returncode, by_lab.stderr) == (by_planner.returncode, by_planner.stderr), (text, by_lab, by_planner)
        assert by_lab.returncode == BAD_INPUT


def outputs_are_written_where_they_were_asked_for(folder):
    """Also in place of a file of rows. A planner that is missing is named."""
    rows = [row(f"own-{i}", "github:somebody/log", f"line {i}") for i in range(8)]
    for i, run in enumerate(rows):
        run["model"] = {**run["model"], "layers": 4 + 4 * (i % 2)}
        run["parallel"] = {"tp": 1 + i // 4, "pp": 1, "dp": 8 // (1 + i // 4)}
        run["batch"] = {"micro": 1, "global": 16 * (i + 1)}
        run["measured"] = {"step_time_s": 0.1 * (i + 1)}
    raw, output = write_json(folder / "fitted.json", rows), write_json(folder / "old.json", rows)
    done = lab("fit", raw, "--cluster", "hgx-b200", "--framework", "megatron-lm", "-o", output)
    assert done.returncode == OK and "fitted" in json.loads(output.read_text()), done.stderr
    for bin_option in (("--bin", folder), (f"--bin={folder}",)):
        done = lab("validate", *bin_option, raw)
        assert done.returncode == ENVIRONMENT and str(folder / "planner") in done.stderr, done


def runs_are_not_overwritten(folder):
    raw, link = write_json(folder / "kept.json", [row("a", "github:somebody/runs", "page")]), folder / "link.json"
    link.symlink_to(raw)
    before = raw.read_bytes()
    for output in (("-o", raw), ("-o", link), (f"-o{raw}",), (f"--output={raw}",), ("--output", folder / "." / "kept.json")):
        done = lab("fit", raw, "--cluster", "hgx-b200", "--framework", "megatron-lm", *output)
        assert done.returncode == USAGE and f"this command uses the same file as {raw}" in done.stderr, (output, done.stderr)
        assert raw.read_bytes() == before, output


def files_are_told_by_their_content(folder):
    """A pipe, and a file without the ending .json."""
    raw = write_json(folder / "rows", [row("a", "github:somebody/runs", "page")])
    expected = [run["predicted"] for run in validated(lab, raw)]
    done = subprocess.run(["bash", "-c", f"'{SOURCE}/lab/validate' <(cat '{raw}') --json --bin='{BIN}'"], capture_output=True, text=True)
    assert done.returncode == OK and [run["predicted"] for run in json.loads(done.stdout)["rows"]] == expected, done.stderr
    done = lab("validate", raw, "--calibration", "x" * 5000)
    assert done.returncode == BAD_INPUT and done.stderr.startswith("planner: "), done.stderr[-300:]
    raw.write_bytes(b"\xef\xbb\xbf" + raw.read_bytes())
    assert [run["predicted"] for run in validated(lab, raw)] == expected


def bad_files_are_named_with_place_and_cause(folder):
    good, broken, output = folder / "good.json", folder / "broken.json", folder / "stated-files"
    write_json(good, [row("a", "github:somebody/runs", "page")])
    assert lab("state", good, "-o", output).returncode == OK
    for text, words in (('[\n {"a": 1,}]', "at 2:"), ('[{"a": 1, "a": 2}]', "key a stands twice"), ("[1e999]", "1e999 is not a finite number"),
                        ("{}", "expected an array of rows"), ("[" * 100000, "nested"), ('[{"id": 1}]', "at /0: ")):
        broken.write_text(text)
        done = lab("state", broken, "-o", output)
        assert done.returncode == BAD_INPUT and f"{broken}: " in done.stderr and words in done.stderr, (text[:20], done.stderr[-300:])
    done = lab("state", folder / "none.json", "-o", output)
    assert done.returncode == BAD_INPUT and f"{folder / 'none.json'}: cannot open: No such file" in done.stderr, done.stderr
    (folder / "other").mkdir()
    same = write_json(folder / "other/good.json", [])
    done = lab("state", good, same, "-o", output)
    assert done.returncode == USAGE and str(good) in done.stderr and str(same) in done.stderr, done.stderr
    done = lab("state", good, "-o", good / "below")
    assert done.returncode == ENVIRONMENT and f"cannot write {good / 'below'}: Not a directory" in done.stderr, done.stderr
    assert [path.name for path in output.iterdir()] == ["good.json"]


def a_line_is_refused_with_its_number():
    good = json.dumps(row("a", "github:somebody/runs", "page"))
    for bad, words in ((json.dumps(row("a", "doc", "page", precision=3)), "/precision: text is required"), ("[", "Expecting"), ("3", "an object")):
        done = subprocess.run([SOURCE / "lab/state", "--lines"], input=f"{good}\n{bad}\n", capture_output=True, text=True)
        assert done.returncode == BAD_INPUT and len(done.stdout.splitlines()) == 1, done
        assert "line 2" in done.stderr and words in done.stderr and "Traceback" not in done.stderr, done.stderr


def help_has_both_commands():
    for name in ("validate", "fit"):
        done = lab(name, "--help")
        assert done.returncode == OK and done.stdout.startswith(f"lab/{name} [--bin DIR]"), done
        assert planner(name, "--help").stdout in done.stdout


def signals_end_both_programs(folder):
    """planner waits for its goals in a pipe that nobody writes."""
    raw, pipe, temporary = write_json(folder / "some.json", [row("a", "github:somebody/runs", "page")]), folder / "pipe", folder / "temporary"
    temporary.mkdir()
    os.mkfifo(pipe)
    for number in (signal.SIGINT, signal.SIGTERM):
        with subprocess.Popen([SOURCE / "lab/validate", raw, f"--goals={pipe}"], stderr=subprocess.PIPE, text=True,
                              env={**os.environ, "TMPDIR": str(temporary)}) as running:
            writer = opened(pipe, running)
            assert list(temporary.iterdir())
            running.send_signal(number)
            messages = running.stderr.read()
        assert (running.returncode, messages) == (128 + number, ""), (running.returncode, messages)
        assert not list(temporary.iterdir())
        try:
            os.write(writer, b"{}")
            raise AssertionError("planner still reads")
        except BrokenPipeError:
            os.close(writer)


def opened(pipe, running):
    """The pipe, as soon as it has a reader."""
    while True:
        assert running.poll() is None, running.stderr.read()
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            assert error.errno == errno.ENXIO, error
            time.sleep(0.02)


def terminals_get_messages_about_the_raw_file(folder):
    """planner has a terminal, too. Pieces of a message wait for a whole name, progress does not wait."""
    raw = write_json(folder / "shown.json", [row("a", "doc", "page", stated={"cluster": "ours"})])
    ours, its = os.openpty()
    done = subprocess.run([SOURCE / "lab/validate", raw], stdout=subprocess.DEVNULL, stderr=its, check=False)
    os.close(its)
    assert done.returncode == BAD_INPUT and f"{raw}: at /0/stated/cluster" in os.read(ours, 1 << 16).decode()
    os.close(ours)
    sys.path.insert(0, str(SOURCE / "lab"))
    import stated_files
    pieces, said = iter([b"\r\x1b[Kruns 1 of 2", b"\r\x1b[Kplanner: /new", b"/a.js", b"on: x\n", b"end", b""]), []
    stated_files.read_some, stated_files.say = lambda _: next(pieces), lambda text, _: said.append(text)
    stated_files.pass_on(0, [])
    assert [text for text in said if text] == [b"\r\x1b[Kruns 1 of 2", b"\r", b"\x1b[Kplanner: /new/a.json: x\n", b"end"], said


def goals_and_traces_pass_through(folder):
    trace = {"id": "t", "initial": {"segments": [], "live": []}, "events": [["S", 2097152, 4096], ["a", 1, 1000, 4096]]}
    goals = write_json(folder / "goals.json", {"goals": [{"family": "few", "of": "time", "most_mean_abs_pct": 0.001}]})
    done = lab("validate", write_json(folder / "few.json", [row("a", "github:somebody/runs", "page")]),
               write_json(folder / "traces.json", [trace]), "--goals", goals, "--json")
    found = json.loads(done.stdout)
    assert done.returncode == OUTSIDE_TOLERANCE and not found["goals"][0]["met"] and found["allocator_traces"], done
    assert found["families"][0]["name"] == "few", found["families"]


def timed_ops_are_stated(folder):
    """Shapes in words, a share of a peak, and products of column-major matrices. Ops that no fit reads are skipped."""
    source = {"gpu": "A100-PCIe-80GB", "source": {"repo_or_doc": "doc", "path_or_issue": "table 1"}}
    of_peak = {"peak_tflops": 312, "efficiency": 0.5}
    attention = {**source, **of_peak, "shape": "batch=1, seq_len=1024, head_num=8, qk_head_dim=128, v_head_dim=128"}
    gemm = {**source, "op": "gemm", "m": 512, "n": 256, "k": 1024, "transA": "T", "transB": "N", "batch": 1, "tflops": 50}
    rows = [{**source, **of_peak, "op": "matmul", "shape": "b=2, m=4096, k=512, n=1024, layout=TN, accumulate=True, out_dtype=fp32"},
            {**attention, "op": "sdp_fwd"}, {**attention, "op": "sdp_bwd"}, {**gemm, "dtype": "fp16_in_fp32_acc_tensor_core"},
            {**gemm, "dtype": "fp32"}]
    raw = write_json(folder / "ops.json", rows)
    done = subprocess.run([SOURCE / "lab/state", raw, "-o", folder / "stated"], capture_output=True, text=True, timeout=60)
    assert done.returncode == OK, done.stderr
    product, forward, backward, column_major, other = json.loads((folder / "stated/ops.json").read_text())
    assert {key: product[key] for key in ("batch", "m", "n", "k", "transpose_a", "transpose_b", "output_bytes")} == {
        "batch": 2, "m": 4096, "n": 1024, "k": 512, "transpose_a": False, "transpose_b": True, "output_bytes": 8}, product
    assert product["time_s"] == 2.0 * 2 * 4096 * 512 * 1024 / 156e12 and product["devices"] == ["NVIDIA A100 PCIe 80GB"], product
    assert forward["op"] == "flash_attention" and forward["time_s"] == 4.0 * 8 * 1024 * 1024 * 128 / 156e12, forward
    assert backward["op"] == "flash_attention_backward" and backward["time_s"] == 2.5 * forward["time_s"], backward
    assert column_major["op"] == "matmul" and (column_major["m"], column_major["n"], column_major["dtype"]) == (256, 512, "f16")
    assert not column_major["transpose_a"] and column_major["transpose_b"], column_major
    assert column_major["time_s"] == 2.0 * 256 * 512 * 1024 / 50e12 and "time_s" not in other, other
    done = planner("fit", raw, "--cluster", "a100-pcie-80gb", "--framework", "megatron-lm")
    assert done.returncode == BAD_INPUT and "/0/time_s" in done.stderr and "lab/fit" in done.stderr, done.stderr
    write_json(raw, [{**rows[0], "shape": "b=1, m=0, k=1, n=1"}])
    done = lab("fit", raw, "--cluster", "a100-pcie-80gb", "--framework", "megatron-lm")
    assert done.returncode == BAD_INPUT and "/0/shape" in done.stderr, done.stderr


def bad_statements_are_refused(folder):
    for stated, word in (({"framework": "ours"}, "/0/stated/framework"), ({"cluster": "ours"}, "/0/stated/cluster"),
                         ({"recompute": "some"}, "/0/stated/recompute"), ({"framewerk": "x"}, "framework")):
        done = lab("validate", write_json(folder / "bad.json", [row("a", "doc", "page", stated=stated)]))
        assert done.returncode == BAD_INPUT and word in done.stderr, (stated, done.stderr)


def what_runs_are_taken_for_is_printed(folder):
    """A name of nvidia-smi, with its memory, is not another GPU; a cluster that no run is on is named with those that are."""
    gpu = {"gpu": "NVIDIA A100-SXM4-80GB", "gpu_mem_gb": 80, "gpus": 8, "gpus_per_node": 8}
    rows = write_json(folder / "own.json", [row(f"own-{i}", "github:somebody/log", "line 1", hardware=gpu) for i in range(2)])
    done = lab("validate", rows)
    assert done.returncode == OK and "2 rows  dgx-a100-80gb, megatron-lm, " in done.stdout, done.stdout
    assert "own-1: dgx-a100-80gb, megatron-lm, " in done.stdout and "mp=2" in done.stdout, done.stdout
    fit = ("fit", rows, "--cluster")
    for cluster, framework, returncode, words in (
            ("dgx-a100-80gb", "megatroon", USAGE, 'no framework is called "megatroon"'),
            ("dgx-a100-80gb", "megatron-lm-flex", USAGE, "--framework megatron-lm"),
            ("dgx-a100-40gb", "megatron-lm", INFEASIBLE, "2 on dgx-a100-80gb with megatron-lm"),
            ("no-such-cluster", "megatron-lm", BAD_INPUT, "no-such-cluster")):
        done = lab(*fit, cluster, "--framework", framework)
        assert done.returncode == returncode and words in done.stderr, (cluster, framework, done.stderr)


def main():
    with tempfile.TemporaryDirectory() as folder:
        stated_runs_are_predicted_alike(pathlib.Path(folder))
        runs_of_adapters_are_predicted(pathlib.Path(folder))
        raw_rows_are_refused(pathlib.Path(folder))
        messages_name_the_raw_file(pathlib.Path(folder))
        outputs_are_written_where_they_were_asked_for(pathlib.Path(folder))
        goals_and_traces_pass_through(pathlib.Path(folder))
        timed_ops_are_stated(pathlib.Path(folder))
        bad_statements_are_refused(pathlib.Path(folder))
        what_runs_are_taken_for_is_printed(pathlib.Path(folder))
        runs_are_not_overwritten(pathlib.Path(folder))
        files_are_told_by_their_content(pathlib.Path(folder))
        bad_files_are_named_with_place_and_cause(pathlib.Path(folder))
        signals_end_both_programs(pathlib.Path(folder))
        terminals_get_messages_about_the_raw_file(pathlib.Path(folder))
    a_line_is_refused_with_its_number()
    help_has_both_commands()
    return 0


if __name__ == "__main__":
    sys.exit(main())
