"""Rules of raw rows (lab/row_rules.py): what they state, where it is from, and rules that cannot be; and the facts that follow
from several fields (lab/derived_facts.py)."""

import copy
import json
import sys

from programs import SOURCE

sys.path.insert(0, str(SOURCE / "lab"))
import derived_facts  # noqa: E402
import row_rules  # noqa: E402
import typical_rates  # noqa: E402

ROW = {"id": "test/1", "source": {"repo_or_doc": "github:somebody/runs", "path_or_issue": "page"},
       "parallel": {"tp": 2, "pp": 2, "dp": 4}, "batch": {"micro": 2}, "precision": "FP8 Current-Scaling"}


def rule(says, when=None, **more):
    return {**({"when": when} if when else {}), "says": says, "source": "a page", **more}


def stated(row, words, own=(), document="github:a/b"):
    """A row as these rules state it: `words` are about all rows, `own` about rows of a document."""
    files = [row_rules.read_rules(json.dumps({"rules": list(words)}), "words.json"),
             row_rules.read_rules(json.dumps({"document": document, "rules": list(own)}), "own.json")]
    rules = row_rules.Rules(files).of(row_rules.document_of(row["source"]["repo_or_doc"]))
    return row_rules.Statement(row, rules).stated()


def of(document, **more):
    row = copy.deepcopy(ROW)
    row["source"]["repo_or_doc"] = document
    return {**row, **more}


def conditions_are_about_words_in_any_case_and_numbers():
    for field, condition, expected in (
            ("precision", "fp8 current-scaling", True), ("precision", "fp8", False), ("precision", {"contains": "fp8"}, True),
            ("precision", {"contains": ["fp8", "scaling"]}, True), ("precision", {"contains": ["scaling", "fp8"]}, False),
            ("precision", {"contains_letters": "currentscaling"}, True),
            ("precision", {"starts_with": "FP8", "contains": "scaling"}, True),
            ("precision", {"starts_with": "fp8", "not": {"contains": "scaling"}}, False),
            ("precision", [{"contains": "bf16"}, {"contains": "fp8"}], True), ("precision", None, False),
            ("parallel.tp", 2, True), ("parallel.tp", {"least": 2, "most": 2}, True), ("parallel.tp", {"least": 3}, False),
            ("parallel.vpp", {"most": 9}, False), ("parallel.vpp", None, True), ("nothing.at.all", None, True),
            ("parallel.vpp", [None, 1], True), ("flag", True, True), ("flag", 1, False), ("one", True, False),
            ("list", {"has": "b"}, True), ("list", {"has": {"contains": "c"}}, False)):
        row = {**ROW, "flag": True, "one": 1, "list": ["a", "b"]}
        found = "x" in stated(row, [rule({"x": True}, {field: condition})])
        assert found == expected, (field, condition)
    either = rule({"x": True}, [{"parallel.tp": 9}, {"parallel.pp": 2, "parallel.dp": 4}])
    assert stated(ROW, [either])["x"]


def the_first_rule_that_holds_applies():
    words = [rule({"batch.micro": 7}, {"parallel.tp": 2}), rule({"batch.micro": 8}, {"parallel.tp": 2})]
    own = [rule({"batch.micro": 9}, {"parallel.tp": 2})]
    for document, micro in (("github:somebody/runs", 7), ("github:a/b@1234 (MIT)", 9), ("github:a/b2@1234", 7)):
        assert stated(of(document), words, own)["batch"]["micro"] == micro, document


def rules_see_what_other_rules_state():
    words = [rule({"c": {"of": "b", "plus": 4}}, {"b": 1}), rule({"b": 1}, {"parallel.tp": 2})]
    assert stated(ROW, words)["c"] == 5
    one_more = rule({"parallel.tp": {"of": "parallel.tp", "plus": 1}}, {"parallel.tp": 2})
    assert stated(ROW, [one_more])["parallel"]["tp"] == 3, "a rule sees the row's own word for its field"


def statements_have_their_source():
    row = stated(ROW, [rule({"stated.family": "bert"}, settled_by_results=True)])
    assert row["statements"] == [{"field": "stated.family", "value": "bert", "source": "a page", "settled_by_results": True}]
    assert row["stated"]["family"] == "bert"
    own = {**ROW, "stated": {"family": "gpt"}}
    assert stated(own, [rule({"stated.family": "bert"})])["stated"]["family"] == "gpt", "a row's own statement counts"


def documents_have_no_version_and_no_place():
    for source in ("github:a/b@1234 (MIT)", "github:a/b, page 1", "github:a/b(2026)", "github:a/b"):
        assert row_rules.document_of(source) == typical_rates.document_of(source) == "github:a/b", source


def refused(words):
    try:
        stated(ROW, words)
    except row_rules.BadRule:
        return True
    return False


def rules_that_cannot_be_are_refused():
    assert refused([rule({"b": 1}, {"a": None}), rule({"a": 1}, {"b": None})]), "they need each other"
    for when in ({"a": {"holds": "x"}}, {"a": {"least": "x"}}, {"a": {"contains": 1}}, {"a": {}}):
        assert refused([rule({"b": 1}, when)]), when
    for bad in ({"says": {"b": 1}}, {"source": "s"}, {"wen": {}, "says": {"b": 1}, "source": "s"},
                {"says": {"b": {"of": "a", "times": 2}}, "source": "s"}):
        assert refused([bad]), bad


def built_in_rules_are_read():
    """A file of documents names its document, a file of words none."""
    rules = 0
    for folder, named in (("documents", True), ("words", False)):
        files = sorted((row_rules.FOLDER / folder).glob("*.json"))
        assert len(files) > 4
        for file in files:
            document, found = row_rules.read_rules(file.read_text(), file.name)
            assert (document is not None) == named, file
            rules += len(found)
    assert rules > 100


def networks_are_read():
    """Gbit/s of a device, where a node has eight."""
    for text, gigabits in (
            ("8x100 Gb/s (800 Gb/s) between nodes", 100), ("Selene: 8x HDR IB 200Gb/s per node", 200),
            ("NVLink3; 8 x InfiniBand HDR 200 Gb/s", 200), ("NVLink 400 GB/s; 8 NICs of 100 Gb/s a node", 100),
            ("4 x 100 Gb RoCE per node", 50), ("NVLink3 intra-node; 1600 Gbps node-node RoCE", 200),
            ("NVLink intra-node; 400 Gb/s RDMA per GPU", 400), ("8x NDR400 Gb/s", 400),
            # A communicator has one of the links: Lucie's all-reduces of a whole node reach 85 Gbit/s.
            ("Omni-Path 100 Gb/s, 4 links per node", 12.5), ("NVLink + 32 EFA per node, about 3.2 Tb/s", 400),
            ("8x CX-7 400 Gb/s", 400), ("NVSwitch", None)):
        found = derived_facts.network_rate(text, 8)
        assert (found and found * 8 / 1e9) == gigabits, (text, found)


def derived(**fields):
    row = {"parallel": {"tp": 2, "pp": 4, "dp": 3}, "hardware": {"gpus_per_node": 8}, "model": {"layers": 10}, "precision": "bf16",
           "framework": "x", "measured": {}, "batch": {}, "stated": {"precision": "bf16", "framework": "x"}, "statements": []}
    for path, value in fields.items():
        row_rules.set_field(row, path.replace("__", "."), value)
    return derived_facts.derive(row)


def sizes_are_derived():
    assert derived()["hardware"]["gpus"] == 24, "those that the layout needs"
    alone = derived(parallel={"tp": 2, "pp": 2})
    assert (alone["hardware"]["gpus"], alone["parallel"]["dp"]) == (8, 2), "one node"
    memory = {"peak_mem_gb": 2.5, "peak_mem_kind": "reserved (max)", "peak_mem_allocated_gib": 1}
    assert derived(measured=dict(memory))["measured"]["memory_reserved_bytes"] == 2_500_000_000
    assert derived(measured={**memory, "peak_mem_unit": "GiB"})["measured"]["memory_reserved_bytes"] == 5 << 29
    assert derived(measured=dict(memory))["measured"]["memory_allocated_bytes"] == 1 << 30
    assert derived(measured={"mfu": 0.5}, stated__mfu_of_tflops=312)["measured"]["flops_per_s"] == 156e12
    assert derived(measured={"mfu": 0.5, "tflops_per_gpu": 100})["measured"]["flops_per_s"] == 100e12
    assert "flops_per_s" not in derived(measured={"mfu": 0.5})["measured"], "of an unknown peak"
    assert derived(batch={"micro": 8}, stated__micro_is_local_batch=True)["batch"]["micro"] == 2
    assert derived(batch={"micro": 6}, stated__micro_is_local_batch=True)["batch"]["micro"] == 6, "4 stages do not divide it"
    spaces = derived(stated__handle_workspace="8320 KiB", stated__engine_workspace="4 MiB")["stated"]
    assert spaces["framework_fields"]["workspace_bytes"] == (2 * 8320 + 4096) << 10 and "handle_workspace" not in spaces
    for text, size in (("32MiB", 32 << 20), ("8.5 MiB", 17 << 19), ("32 MB", 32_000_000)):
        assert derived(stated__handle_workspace=text)["stated"]["framework_fields"]["workspace_bytes"] == 2 * size, text


def stages_are_derived():
    parts = {"stated__parts_before_layers": 2, "stated__parts_after_layers": 4}
    assert derived(partition=[0, 3, 8, 8, 16], **parts)["layers_per_stage"] == [1, 5, 0, 4]
    assert derived(stated__spreads_parts=True, **parts)["layers_per_stage"] == [2, 4, 4, 0]
    assert "layers_per_stage" not in derived(**parts), "nothing is cut"
    for cuts in ([0, 3, 8, 16], [0, 3, 8, 8, 15], [1, 3, 8, 8, 16], [0, 8, 3, 8, 16]):
        assert derived(partition=cuts, **parts)["stated"]["needs"].startswith("partition"), cuts
    assert derived(stated__layers_of_ends=1)["layers_per_stage"] == [1, 4, 4, 1]
    assert "layers_per_stage" not in derived(stated__layers_of_ends=2, model__layers=11), "inner stages would differ"
    assert derived(stated__layers_of_ends=1, layers_per_stage=[2, 3, 3, 2])["layers_per_stage"] == [2, 3, 3, 2]


LORA = {"finetuning": "LoRA", "stated__family": "llama", "lora": {"rank": 16, "alpha": 32, "dropout": 0.1, "targets": ["linear_qkv"]}}


def adapters_are_derived():
    """Scale is alpha / rank. Products have the job's names, and an MLP without gates has one product before its activation."""
    assert derived(**LORA)["stated"]["adapters"] == {"rank": 16, "scale": 2.0, "dropout": 0.1, "targets": ["qkv"]}
    words = {("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"): ["qkv", "out", "gate_up", "down"],
             ("attention",): ["qkv", "out"], ("Q_proj", "v_proj", "output_proj", "w1"): ["query", "value", "out", "gate"],
             ("all-linear",): ["query", "key", "value", "out", "gate", "up", "down"], ("o_proj", "experts"): ["out"]}
    for targets, names in words.items():
        row = {**LORA, "lora": {"rank": 8, "targets": list(targets)}}
        assert derived(**row)["stated"]["adapters"] == {"rank": 8, "dropout": 0, "targets": names}, targets
        plain = derived(**{**row, "stated__family": "gpt"})["stated"]["adapters"]["targets"]
        assert plain == [{"gate_up": "up"}.get(name, name) for name in names if name != "gate"], targets
    own = {"rank": 4, "targets": ["down"]}
    assert derived(finetuning="lora", stated__adapters=dict(own), needs=["lora"])["stated"]["adapters"] == own, "a row's own statement"
    assert "adapters" not in derived(finetuning="sft", lora=LORA["lora"])["stated"], "all parameters are trained"


def needs_of_adapters_name_what_is_missing():
    """A need stands in the place of the row's own words for it. Other needs stay."""
    words = ["finetuning", "fp8", "lora", "lora rank unknown"]
    assert derived(**LORA, needs=words)["needs"] == ["fp8"]
    assert derived(finetuning="full", needs=["finetuning", "offload"])["needs"] == ["offload"]
    assert derived(needs=["fp8"])["needs"] == ["fp8"] and "needs" not in derived()
    for more, lack in (({"lora": {"targets": ["linear_qkv"]}}, "rank of adapters"), ({"lora": None}, "rank of adapters"),
                       ({"lora": {"rank": 16}}, "targets of adapters"), ({"lora": {"rank": 16, "targets": ["router"]}}, "targets of adapters"),
                       ({"lora": {"rank": 16, "dropout": 0.1, "targets": ["down_proj"]}, "model__experts": 8}, "adapters of experts"),
                       ({"lora": {"rank": 16, "targets": ["linear_fc1"]}, "model__experts": 8}, "adapters of experts"),
                       ({"finetuning": "qlora"}, "type of frozen weights"), ({"finetuning": "dora"}, "finetuning")):
        row = derived(**{**LORA, **more}, needs=["finetuning", "fp8"])
        assert row["needs"] == [lack, "fp8"] and row["stated"]["needs"] == lack and "adapters" not in row["stated"], (more, row)
    quantized = derived(**{**LORA, "finetuning": "qlora"}, stated__frozen_weights="nf4_nested", needs=["qlora"])
    assert quantized["needs"] == [] and quantized["stated"]["adapters"]["rank"] == 16
    packed = derived(needs=["packed sequences", "fp8"], stated__meets=["packed sequences"])
    assert packed["needs"] == ["fp8"] and "meets" not in packed["stated"]


def the_first_need_is_stated():
    for fields, need in (({}, None), ({"finetuning": "SQuAD"}, "finetuning"), ({"stated__precision": None}, "precision bf16"),
                         ({"stated__framework": None, "framework": "jax"}, "framework jax"),
                         ({"stated__needs": "encoder-decoder", "finetuning": "SQuAD"}, "encoder-decoder")):
        assert derived(**fields)["stated"].get("needs") == need, fields


def fields_of_another_kind_are_refused():
    for path, value in (("measured.peak_mem_gb", "large"), ("parallel.tp", 0), ("measured.mfu", -1), ("partition", [1.5]),
                        ("measured.peak_mem_unit", "MB"), ("hardware.interconnect", 3), ("finetuning", True),
                        ("needs", "finetuning"), ("lora.rank", 0), ("lora.targets", ["q_proj", 1]), ("lora.dropout", "much")):
        try:
            others = {} if path.startswith("measured") else {"stated__network_as_stated": True}
            adapters = {"finetuning": "lora", "lora__rank": 8, "lora__targets": ["q_proj"]} if path.startswith("lora") else {}
            derived(**others, **{**adapters, path.replace(".", "__"): value, "measured__peak_mem_kind": "device"})
        except derived_facts.BadFact as error:
            assert str(error).startswith("/" + path.replace(".", "/")), error
            continue
        raise AssertionError(f"{path}: {value} is taken")


def statements_of_another_kind_are_refused():
    for field, values in (("network_as_stated", ("false", 1)), ("spreads_parts", ("no",)), ("micro_is_local_batch", ("false", [])),
                          ("layers_of_ends", ("2", True, 1.5, -1)), ("parts_before_layers", ("1", {})), ("parts_after_layers", (2.5, False)),
                          ("mfu_of_tflops", ("312", True, -1)), ("handle_workspace", (5, "32", "MiB", "32 parsec", "-1 MiB")),
                          ("engine_workspace", (True, "4 miles", ["4 MiB"])), ("meets", ("packed sequences", [1]))):
        for value in values:
            try:
                derived(**{f"stated__{field}": value})
            except derived_facts.BadFact as error:
                assert str(error).startswith(f"/stated/{field}: ") and str(error).endswith(" is required"), error
                continue
            raise AssertionError(f"stated.{field}: {value!r} is taken")


def main():
    conditions_are_about_words_in_any_case_and_numbers()
    the_first_rule_that_holds_applies()
    rules_see_what_other_rules_state()
    statements_have_their_source()
    documents_have_no_version_and_no_place()
    rules_that_cannot_be_are_refused()
    built_in_rules_are_read()
    networks_are_read()
    sizes_are_derived()
    stages_are_derived()
    adapters_are_derived()
    needs_of_adapters_name_what_is_missing()
    the_first_need_is_stated()
    fields_of_another_kind_are_refused()
    statements_of_another_kind_are_refused()
    return 0


if __name__ == "__main__":
    sys.exit(main())
