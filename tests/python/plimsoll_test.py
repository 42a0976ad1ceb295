"""The Python package answers what the command line prints, in dictionaries; what it refuses, it refuses with the same text."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(os.environ["PLIMSOLL_SOURCE_DIR"]) / "tests" / "scripts"))

import plimsoll  # noqa: E402
from made_up_runs import megatron_log, stated  # noqa: E402
from programs import BIN, CLUSTER, NANO, write_json  # noqa: E402

JOB = json.loads(NANO.read_text())
TINY = {**CLUSTER, "name": "tiny", "device": {**CLUSTER["device"], "memory": "2 MiB"}}
CONFIG = {"model_type": "llama", "hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 4,
          "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 256}
SCRIPT = """torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 256 \\
  --max-position-embeddings 256 --micro-batch-size 1 --global-batch-size 64 --tensor-model-parallel-size {tensor} --vocab-size 1024 --bf16
"""
GPUS = {"cluster": "dgx-a100-80gb", "devices": 8}


class CommandLine(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def printed(self, *arguments):
        done = subprocess.run([BIN / "planner", *map(str, arguments)], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def refused(self, *arguments):
        done = subprocess.run([BIN / "planner", *map(str, arguments)], capture_output=True, text=True, check=False)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        return done.stderr.strip().removeprefix("planner: ")


class Answers(CommandLine):
    def test_version_and_presets(self):
        self.assertEqual(f"planner {plimsoll.__version__}\n", self.printed("--version"))
        names = plimsoll.presets()
        for kind, read in (("jobs", plimsoll.job), ("clusters", plimsoll.cluster)):
            self.assertEqual(read(names[kind][0])["name"], names[kind][0])

    def test_sources_may_be_names_files_and_dictionaries(self):
        self.assertEqual(plimsoll.job(NANO), plimsoll.job(JOB))
        cluster = write_json(self.folder / "cluster.json", CLUSTER)
        self.assertEqual(plimsoll.cluster(cluster), plimsoll.cluster(CLUSTER))
        again = plimsoll.cluster("dgx-a100-80gb")
        self.assertEqual(plimsoll.cluster(again), again)
        framework = {**plimsoll.framework("megatron-lm"), "name": "mine"}
        self.assertEqual(plimsoll.framework(framework)["based_on"], framework["based_on"])
        self.assertEqual(plimsoll.simulate(JOB, "dp=8", framework=framework, **GPUS)["prediction"],
                         plimsoll.simulate(JOB, "dp=8", framework="megatron-lm", **GPUS)["prediction"])

    def test_plan_is_the_plan_file(self):
        cluster = write_json(self.folder / "cluster.json", CLUSTER)
        printed = self.printed("plan", NANO, "--cluster", cluster, "--devices", "4", "--fix", "pp=2",
                               "--fix", "sequence_parallel=false", "--json")
        found = plimsoll.plan(JOB, CLUSTER, devices=4, fix={"pp": 2, "sequence_parallel": False})
        plan = json.loads(found.text())
        self.assertEqual(json.loads(printed)["strategy"]["pp"], 2)
        digest = plan.pop("cluster_digest")  # of the dictionary's text, which differs from the file's
        wanted = json.loads(printed)
        self.assertEqual(len(digest), len(wanted.pop("cluster_digest")))
        self.assertEqual(plan, wanted)

    def test_simulation(self):
        printed = json.loads(self.printed("simulate", "gpt-mini", "mp=2,pp=2,dp=2", "--cluster", "dgx-a100-80gb",
                                          "--devices", "8", "--json"))
        self.assertEqual(plimsoll.simulate("gpt-mini", "mp=2,pp=2,dp=2", **GPUS), printed)
        self.assertEqual(plimsoll.simulate("gpt-mini", printed["strategy"], **GPUS), printed)

    def test_explanation(self):
        plan = plimsoll.plan("gpt-mini", **GPUS)
        file = self.folder / "plan.json"
        plan.save(file)
        for flags, options in ((["--why-not", "mp=2"], {"why_not": {"mp": 2}}), ([], {})):
            with self.subTest(flags):
                printed = self.printed("explain", file, *flags, "--json")
                self.assertEqual(plimsoll.explain(plan, **options), json.loads(printed))

    def test_import_and_export(self):
        file = write_json(self.folder / "config.json", CONFIG)
        imported = plimsoll.import_file(file, global_batch=16)
        self.assertEqual(imported, json.loads(self.printed("import", file, "--global-batch", "16", "--json")))
        plan = plimsoll.plan(imported["job"], framework="megatron-lm", **GPUS)
        saved = self.folder / "plan.json"
        plan.save(saved)
        script = plimsoll.export(plan, "megatron", allow_lossy=True)
        self.assertEqual(script, self.printed("export", saved, "--to", "megatron", "--allow-lossy"))

    def test_notes_go_to_the_log(self):
        file = write_json(self.folder / "config.json", CONFIG)
        with self.assertLogs("plimsoll") as log:
            plimsoll.simulate(file, "dp=8", **GPUS)
        self.assertIn("as planner import reads it", log.output[0])

    def test_limits_and_listed_plans(self):
        limits = {"max": {"mp": 4}, "min": ["pp=2"], "exclude": {"recompute": ["full", "selective"]}}
        flags = ["--max", "mp=4", "--min", "pp=2", "--exclude", "recompute=full", "--exclude", "recompute=selective", "--top", "3"]
        printed = json.loads(self.printed("plan", "gpt-mini", "--cluster", "dgx-a100-80gb", "--devices", "8", *flags, "--json"))
        plan = plimsoll.plan("gpt-mini", **GPUS, **limits, top=3)
        self.assertEqual({**plan, "timeline": plan.timeline}, printed)
        self.assertGreaterEqual(plan["strategy"]["pp"], 2)
        self.assertEqual(len(plan["runners_up"]), 2)

    def test_tried_values(self):
        flags = ["--try", "overlap_grad_reduce=false", "--try", "send_slots=1,3"]
        printed = json.loads(self.printed("plan", "gpt-mini", "--cluster", "dgx-a100-80gb", "--devices", "8", *flags, "--json"))
        for tried in ({"overlap_grad_reduce": False, "send_slots": [1, 3]}, ["overlap_grad_reduce=false", "send_slots=1,3"]):
            self.assertEqual(json.loads(plimsoll.plan("gpt-mini", **GPUS, tried=tried).text()), printed)
        free = plimsoll.plan("gpt-mini", **GPUS)
        self.assertGreater(printed["search"]["space"], free["search"]["space"])

    def test_sweep_is_that_of_the_command_line(self):
        cluster = write_json(self.folder / "cluster.json", CLUSTER)
        flags = ["--devices", "2..4x2", "--devices", "7", "--global-batch", "8", "--tokens", "1B", "--price", "test-cpu=0.5/h",
                 "--price", "dgx-a100-80gb=2.5/h", "--deadline", "30d", "--max", "mp=2"]
        printed = json.loads(self.printed("sweep", NANO, "--cluster", cluster, "--cluster", "dgx-a100-80gb", *flags, "--json"))
        found = plimsoll.sweep(JOB, [CLUSTER, "dgx-a100-80gb"], devices=["2..4x2", 7], global_batch=8, tokens=1e9, deadline="30d",
                               price={"test-cpu": 0.5, "dgx-a100-80gb": "2.5/h"}, max={"mp": 2})
        self.assertNotEqual(found.pop("command"), printed.pop("command"))  # dictionaries have no file names
        self.assertEqual(found, printed)
        rows = plimsoll.rows(found)
        self.assertEqual([row["devices"] for row in rows], [2, 4, 7, 2, 4, 7])
        self.assertEqual(rows[1]["mp"], printed["points"][1]["strategy"]["mp"])
        self.assertEqual(rows[1]["cost"], printed["points"][1]["cost"])
        self.assertIn("reason", rows[2])

    @unittest.skipIf(find_spec("pandas") is None, "pandas is not installed")
    def test_frames_have_a_column_for_each_key(self):
        found = plimsoll.sweep(JOB, CLUSTER, devices=[2, 4, 7])
        frame = plimsoll.frame(found)
        self.assertEqual(list(frame["devices"]), [2, 4, 7])
        self.assertEqual(frame["step_time_s"][1], found["points"][1]["step_time_s"])
        self.assertEqual(list(frame["reason"].isna()), [True, True, False])
        both = plimsoll.frame([plimsoll.simulate("gpt-mini", "dp=8", **GPUS), plimsoll.plan("gpt-mini", **GPUS)])
        self.assertEqual(both["dp"][0], 8)


    def test_plans_are_shown_without_their_timeline(self):
        plan = plimsoll.plan("gpt-mini", **GPUS, tokens="1B", price=2.5, sequence=128)
        self.assertNotIn("timeline", plan)
        self.assertGreater(len(plan.text()), 2 * len(json.dumps(plan)))
        self.assertEqual(plan["job"]["sequence"], 128)
        self.assertEqual(plan["training"]["cost"], 2.5 * plan["training"]["device_hours"])
        shown = plan._repr_html_()
        for wanted in ("on 8 GPUs of dgx-a100-80gb", "TP 1", "MFU", "1 B tokens", "cost", ": safe"):
            self.assertIn(wanted, shown)
        self.assertLess(len(shown), 2000)
        fastest = plimsoll.plan("gpt-mini", **GPUS, fastest=True)
        self.assertIsNone(fastest["fastest"])
        printed = self.printed("plan", "gpt-mini", "--fastest", "--cluster", GPUS["cluster"], "--devices", 8)
        answer = printed[:printed.index("\nnext ")].splitlines()  # lines of next leave less room for what stands instead
        self.assertGreater(len(answer), 10)
        self.assertEqual(answer, [line for line in fastest.lines.splitlines() if line in answer])
        with self.assertRaisesRegex(plimsoll.UsageError, "timeline"):
            plimsoll.explain(dict(plan))
        simulated = plimsoll.simulate("gpt-mini", "dp=8", **GPUS, tokens=1e9)
        self.assertIn(": safe", simulated._repr_html_())
        self.assertIsNone(simulated["training"]["cost"])
        swept = plimsoll.sweep("gpt-mini", "8xa100-80gb", network=[100, 200], fix={"dp": 8})
        self.assertEqual([point["network_bytes_per_s"] for point in swept["points"]], [12.5e9, 25e9])
        self.assertIn("<th>step_time_s</th>", swept._repr_html_())

    def test_reports_are_pages(self):
        plan = plimsoll.plan("gpt-mini", **GPUS)
        page = plimsoll.report(plan, plan_only=True)
        self.assertTrue(page.startswith("<!doctype html>") or page.startswith("<!DOCTYPE html>"), page[:40])
        saved = self.folder / "plan.json"
        plan.save(saved)
        self.printed("report", saved, "--plan-only", "-o", self.folder / "page.html")
        self.assertEqual(plimsoll.report(saved, plan_only=True), (self.folder / "page.html").read_text())
        self.assertIn('id="sensitivity"', plimsoll.report(plan, threads=1))

    def test_descriptions(self):
        described = json.loads(self.printed("describe", "dgx-a100-80gb", "--json"))
        self.assertEqual(plimsoll.describe("a100-80gb"), described)
        self.assertEqual(plimsoll.describe("mp=2")["kind"], "strategy")
        self.assertEqual(plimsoll.describe(JOB)["kind"], "job")
        self.assertEqual(plimsoll.describe(plimsoll.plan("gpt-mini", **GPUS))["kind"], "plan")

    def test_learning_is_that_of_the_command_line(self):
        runs = []
        for tensor in (1, 2):
            script, log = self.folder / f"tp{tensor}.sh", self.folder / f"tp{tensor}.log"
            script.write_text(SCRIPT.format(tensor=tensor))
            step = plimsoll.simulate(from_script=script, calibration="built-in", **GPUS)["prediction"]["step_time_s"]
            runs.append((script, megatron_log(log, 1.2 * step, 64)))
        scripts, logs = zip(*runs)
        flags = [word for script, log in runs for word in ("--from", script, "--log", log)]
        printed = self.printed("learn", *flags, "--cluster", GPUS["cluster"], "--devices", GPUS["devices"], "--json")
        found = plimsoll.learn(scripts, logs, **GPUS)
        self.assertEqual(found, json.loads(printed))
        self.assertIn(str(logs[1]), found.lines)
        file = self.folder / "mine.json"
        one = plimsoll.learn(scripts[0], logs[0], **GPUS, output=file)
        self.assertEqual((one["output"], one["runs"][0]["before_s"]), (str(file), found["runs"][0]["before_s"]))
        after = plimsoll.simulate(from_script=scripts[0], calibration=file, **GPUS)["prediction"]["step_time_s"]
        self.assertAlmostEqual(after, one["runs"][0]["after_s"], delta=1e-6 * after)
        with self.assertRaises(plimsoll.UsageError) as caught:
            plimsoll.learn(scripts, logs[0], **GPUS)
        self.assertEqual(str(caught.exception), self.refused("learn", *flags[:6], "--cluster", GPUS["cluster"]))
        with self.assertRaises(plimsoll.UsageError):
            plimsoll.learn(scripts[0], logs[0], **GPUS, output=logs[0])

    def test_published_runs_are_validated_and_fitted(self):
        runs = write_json(self.folder / "runs.json", stated([
            {"id": f"run-{tensor}", "source": {"repo_or_doc": "github:NVIDIA/Megatron-LM@50a4b5fa02", "path_or_issue": "images/cases_april2021.png"},
             "hardware": {"gpu": "A100-80GB", "gpus": 32 * tensor, "gpus_per_node": 8},
             "model": {"name": "gpt", "hidden": hidden, "layers": layers, "heads": heads, "vocab": 51200, "seq_len": 2048},
             "parallel": {"tp": tensor, "pp": 1, "dp": 32}, "batch": {"micro": 8, "global": 512}, "precision": "fp16",
             "recompute": "full", "attention": "unfused", "framework": "megatron-lm", "measured": {"step_time_s": seconds}}
            for tensor, layers, hidden, heads, seconds in ((1, 24, 2304, 24, 3.528), (4, 36, 4096, 32, 3.6963))]))
        validated = plimsoll.validate(runs)
        self.assertEqual(validated, json.loads(self.printed("validate", runs, "--json")))
        self.assertEqual(len(validated["rows"]), 2)
        fitted = plimsoll.fit(runs, cluster="dgx-a100-80gb", framework="megatron-lm-2021")
        self.assertEqual(fitted, json.loads(self.printed("fit", runs, "--cluster", "dgx-a100-80gb", "--framework", "megatron-lm-2021", "--json")))


class Refusals(CommandLine):
    def test_texts_are_those_of_the_command_line(self):
        bad = write_json(self.folder / "bad.json", {**JOB, "layers": -1})
        with self.assertRaises(plimsoll.InputError) as caught:
            plimsoll.job(bad)
        self.assertEqual(str(caught.exception), self.refused("plan", bad, "--cluster", "dgx-a100-80gb", "--devices", "2"))
        self.assertEqual((caught.exception.file, caught.exception.pointer), (str(bad), "/layers"))
        with self.assertRaises(plimsoll.InputError) as caught:
            plimsoll.job({**JOB, "layers": -1})
        self.assertEqual(caught.exception.file, "job")
        with self.assertRaises(plimsoll.Infeasible) as caught:
            plimsoll.simulate("gpt-mini", "mp=3,dp=1", cluster="dgx-a100-80gb", devices=8)
        self.assertEqual(str(caught.exception),
                         self.refused("simulate", "gpt-mini", "mp=3,dp=1", "--cluster", "dgx-a100-80gb", "--devices", "8"))

    def test_what_does_not_fit_says_what_would(self):
        cluster = write_json(self.folder / "tiny.json", TINY)
        with self.assertRaises(plimsoll.DoesNotFit) as caught:
            plimsoll.plan(JOB, TINY, devices=2, reserve="0 B")
        self.assertEqual(str(caught.exception),
                         self.refused("plan", NANO, "--cluster", cluster, "--devices", "2", "--reserve", "0 B"))
        self.assertTrue(caught.exception.changes)

    def test_numbers_outside_their_range(self):
        for options in ({"max": "mp"}, {"top": 0}, {"min": {"colour": 3}}, {"devices": 0}, {"devices": 1 << 40}, {"global_batch": -1}, {"threads": 0},
                        {"time_limit": -1}, {"fix": "mp"}, {"fix": {"colour": 3}}, {"reserve": "much"}):
            with self.subTest(options), self.assertRaises(plimsoll.UsageError):
                plimsoll.plan("gpt-mini", **{**GPUS, **options})
        for options in ({"sequence": 0}, {"dropout": 2.0}, {"precision": "int3"}, {"devices": -3}):
            with self.subTest(options), self.assertRaises(plimsoll.UsageError):
                plimsoll.import_file(write_json(self.folder / "config.json", CONFIG), **options)
        with self.assertRaises(plimsoll.UsageError):
            plimsoll.export(plimsoll.plan("gpt-mini", **GPUS), "no-such-target")


class Interrupts(unittest.TestCase):
    """The thread that interrupts runs beside the search, so the search does not hold Python's lock."""

    def setUp(self):
        # A shell lets commands in its background ignore Ctrl-C, and Python then has no handler.
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupted(self, ask):
        """Returns what was found until an interrupt, or None where it raised KeyboardInterrupt."""
        def interrupt():
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        try:
            return ask()
        except KeyboardInterrupt:
            return None

    def test_control_c_ends_a_search(self):
        plan = self.interrupted(lambda: plimsoll.plan("llama3-405b", "dgx-h100-80gb", devices=16384, threads=1))
        if plan:
            self.assertFalse(plan["search"]["proven"])

    def test_control_c_ends_an_explanation(self):
        fixed = {"mp": 8, "pp": 16, "dp": 1, "cp": 1, "micro_batch": 1, "sharding_stage": 1, "recompute": "full", "schedule": "1f1b"}
        plan = plimsoll.plan("llama3-405b", "dgx-h100-80gb", devices=16384, fix=fixed)
        begin = time.process_time()
        answer = self.interrupted(lambda: plimsoll.explain(plan, threads=1))
        if answer:
            self.assertFalse(answer["twice_the_memory"]["proven"])
        self.assertLess(time.process_time() - begin, 60)  # a whole explanation takes minutes

    def test_control_c_ends_a_sweep(self):
        found = self.interrupted(lambda: plimsoll.sweep("gpt3-175b", "dgx-a100-80gb", devices="512..4096+8", threads=1))
        if found:
            self.assertGreater(found["points_left"], 0)
            self.assertEqual(found["points_left"] + len(found["points"]), 449)


if __name__ == "__main__":
    unittest.main()
