"""Facts that follow from several fields of a row, which no rule can state: shares of a layout, rates and sizes in one unit.

derive(row) adds them to a row whose rules were applied, with their source.
"""

import re

from row_rules import field_of, is_number, lower, set_field

RATE = re.compile(r"(?:(\d+)\s?(?:x|NICs of|ports of|links of)\s?(?:[A-Za-z]+(?:-[0-9]+)? |[A-Za-z]+){0,3})?(\d+(?:\.\d+)?)\s?([GT])b(?:/s|ps|(?= ))")
PEAK_UNITS = {"GB": 1e9, "GiB": float(1 << 30)}
UNITS = {"B": 1, "kB": 10 ** 3, "MB": 10 ** 6, "GB": 10 ** 9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
SIZE = re.compile(rf"(\d{{1,12}}(?:\.\d{{1,12}})?) ?({'|'.join(UNITS)})", re.ASCII)
# Fields of `stated` that only rules state and only this file reads.
OF_RULES = ("network_as_stated", "handle_workspace", "engine_workspace", "layers_of_ends", "parts_before_layers", "parts_after_layers",
            "spreads_parts", "micro_is_local_batch", "mfu_of_tflops", "meets")
KINDS = ("allocated", "reserved", "device")
FULL, ADAPTERS = ("full", "sft"), ("lora", "qlora")  # words of `finetuning`: all parameters are trained, or adapters
OF_ADAPTERS = ("finetuning", "lora", "qlora", "lora rank unknown")  # needs that stated adapters meet
PROJECTIONS = ["query", "key", "value", "out", "gate", "up", "down"]
# Targets of adapters in the words of Megatron Core and NeMo, of Hugging Face's models and of torchtune. The word experts alone names
# no product.
TARGETS = {"linear_qkv": ["qkv"], "attention_qkv": ["qkv"], "qkv_proj": ["qkv"], "linear_proj": ["out"], "attention_dense": ["out"],
           "attention": ["qkv", "out"], "linear_fc1": ["gate_up"], "mlp_fc1": ["gate_up"], "linear_fc2": ["down"], "mlp_fc2": ["down"],
           "q_proj": ["query"], "k_proj": ["key"], "v_proj": ["value"], "o_proj": ["out"], "output_proj": ["out"], "gate_proj": ["gate"],
           "up_proj": ["up"], "down_proj": ["down"], "w1": ["gate"], "w2": ["down"], "w3": ["up"], "*_proj": PROJECTIONS,
           "all-linear": PROJECTIONS, "experts": []}


def network_rate(interconnect, devices_per_node):
    """Bytes per second of a device between nodes: "8x100 Gb/s", "1600 Gbps node-node", "400 Gb/s RDMA per GPU". The number is that
    of a node unless the text up to the next semicolon has "per GPU". None: there is no number."""
    found = RATE.search(interconnect)
    if not found:
        return None
    gigabits = float(found[2]) * (1000 if found[3] == "T" else 1)
    if found[1]:
        gigabits *= float(found[1])
    return gigabits * 1e9 / 8 / (1 if "per GPU" in interconnect[found.end():].split(";")[0] else devices_per_node)


def even_parts(parts, stages):
    """Where each stage begins. The first stages have the parts that are left over."""
    cuts = [0]
    for stage in range(stages):
        cuts.append(cuts[-1] + parts // stages + (stage < parts % stages))
    return cuts


def layers_of_parts(cuts, stages, before, layers, after):
    """The layers of each stage, of cuts of the source's list of the model's parts; None: they cut no such list into the stages."""
    if len(cuts) != stages + 1 or cuts[0] != 0 or cuts[-1] != before + layers + after or cuts != sorted(cuts):
        return None
    layers_before = [min(max(part - before, 0), layers) for part in cuts]
    return [end - begin for begin, end in zip(layers_before, layers_before[1:])]


def is_integer(value):
    return isinstance(value, int) and not isinstance(value, bool)


class BadFact(Exception):
    """A field has a wrong type or value. The message begins with the field's pointer."""


class Facts:
    def __init__(self, row):
        self.row = row

    def fact(self, path, default, holds, kind):
        """The value of a field. Raises BadFact if it is of another kind."""
        value = field_of(self.row, path)
        if value is None:
            return default
        if not holds(value):
            raise BadFact(f"/{path.replace('.', '/')}: {kind} is required")
        return value

    def number(self, path):
        return self.fact(path, None, lambda value: is_number(value) and 0 <= value <= 1e30, "a number from 0 to 1e+30")

    def text(self, path):
        return self.fact(path, "", lambda value: isinstance(value, str), "text")

    def boolean(self, path):
        return self.fact(path, False, lambda value: isinstance(value, bool), "true or false")

    def integer(self, path, default=None, least=1):
        return self.fact(path, default, lambda value: is_integer(value) and least <= value <= 1 << 24, f"an integer from {least} to 16777216")

    def texts(self, path):
        return self.fact(path, [], lambda values: isinstance(values, list) and all(isinstance(one, str) for one in values), "a list of texts")

    def integers(self, path):
        return self.fact(path, [], lambda values: isinstance(values, list) and all(is_integer(one) and one >= 0 for one in values),
                         "a list of integers from 0 on")

    def size(self, path):
        """Bytes of "8.5 MiB"."""
        text = self.fact(path, "0 B", lambda value: isinstance(value, str) and SIZE.fullmatch(value), "a size such as \"32 MiB\"")
        number, unit = SIZE.fullmatch(text).groups()
        return int(float(number) * UNITS[unit] + 0.5)

    def get(self, path):
        return field_of(self.row, path)

    def set(self, path, value, source):
        set_field(self.row, path, value)
        self.row["statements"].append({"field": path, "value": value, "source": source, "settled_by_results": False})

    def degree(self, name):
        return self.integer(f"parallel.{name}", 1)

    def network(self):
        as_stated, interconnect = self.boolean("stated.network_as_stated"), self.text("hardware.interconnect")
        rate = network_rate(interconnect, self.integer("hardware.gpus_per_node", 8)) if as_stated else None
        if rate is not None:
            self.set("stated.network_bytes_per_s", rate, "hardware.interconnect")

    def gpus(self):
        """Without a number of GPUs and of replicas: one node, as many replicas as there is room for; without a number of GPUs
        alone, those that the layout needs."""
        if self.integer("hardware.gpus"):
            return
        of_one, per_node = self.degree("tp") * self.degree("pp") * self.degree("cp"), self.integer("hardware.gpus_per_node", 0)
        if self.get("parallel.dp") is None and per_node % of_one == 0:
            self.set("parallel.dp", max(1, per_node // of_one), "neither GPUs nor replicas are stated: one node")
        self.set("hardware.gpus", of_one * self.degree("dp"), "the GPUs that the layout needs")

    def stages(self):
        """`layers_per_stage`, from the stages' parts of the model, or from the layers of the ends."""
        before, after = self.integer("stated.parts_before_layers", None, 0), self.integer("stated.parts_after_layers", 0, 0)
        spread, ends = self.boolean("stated.spreads_parts"), self.integer("stated.layers_of_ends", 0, 0)
        stages, layers = self.degree("pp"), self.integer("model.layers", 0)
        partition = self.integers("partition")
        if before is not None and (partition or spread):
            cuts = partition or even_parts(before + layers + after, stages)
            found = layers_of_parts(cuts, stages, before, layers, after)
            if found is None:
                return "partition: a cut of the model's parts into pp stages"
            self.set("layers_per_stage", found, "the stages' parts of the model")
        elif ends and not self.get("layers_per_stage") and stages > 2 and (layers - 2 * ends) % (stages - 2) == 0:
            inner = (layers - 2 * ends) // (stages - 2)
            self.set("layers_per_stage", [ends, *[inner] * (stages - 2), ends], "the layers of the first and of the last stage")
        return None

    def micro_batch(self):
        micro, stages = self.integer("batch.micro"), self.degree("pp")
        if self.boolean("stated.micro_is_local_batch") and micro and micro % stages == 0:
            self.set("batch.micro", micro // stages, "the local batch has a micro-batch for each stage")

    def memory(self):
        if (unit := self.text("measured.peak_mem_unit") or "GB") not in PEAK_UNITS:
            raise BadFact(f"/measured/peak_mem_unit: {' or '.join(PEAK_UNITS)} is required")
        kind = next((kind for kind in KINDS if self.text("measured.peak_mem_kind").startswith(kind)), None)
        found = {kind: (self.number("measured.peak_mem_gb"), PEAK_UNITS[unit])} if kind else {}
        for kind in KINDS[:2]:
            if (gib := self.number(f"measured.peak_mem_{kind}_gib")) is not None:
                found[kind] = (gib, PEAK_UNITS["GiB"])
        for kind, (size, unit) in found.items():
            if size is not None:
                self.set(f"measured.memory_{kind}_bytes", int(size * unit + 0.5), f"measured.peak_mem of {kind} memory")

    def rate(self):
        peak, share, tflops = self.number("stated.mfu_of_tflops"), self.number("measured.mfu"), self.number("measured.tflops_per_gpu")
        if tflops is not None:
            self.set("measured.flops_per_s", tflops * 1e12, "measured.tflops_per_gpu")
        elif share is not None and peak:
            self.set("measured.flops_per_s", share * (peak * 1e12), "measured.mfu of the peak that the source means")

    def workspace(self):
        handle, engine = self.size("stated.handle_workspace"), self.size("stated.engine_workspace")
        if handle and self.get("stated.framework"):
            self.set("stated.framework_fields.workspace_bytes", 2 * handle + engine, "workspaces of two cuBLAS handles and of an engine")

    def offload(self):
        if ratio := self.number("offload.activation_ratio"):
            self.set("stated.offload_activations_percent", int(100 * ratio + 0.5), "the share of activations in the host's memory")

    def targets(self):
        """Products of a layer that have adapters. None: the source does not name them, or in words that are unknown."""
        words = [lower(word) for word in self.texts("lora.targets")]
        if not words or any(word not in TARGETS for word in words):
            return None
        named = list(dict.fromkeys(name for word in words for name in TARGETS[word]))
        if self.get("stated.family") == "llama" and self.get("stated.activation") in (None, "swiglu", "geglu"):
            return named
        return [{"gate_up": "up"}.get(name, name) for name in named if name != "gate"]

    def adapters(self):
        """States adapters. Returns what of them is missing; None: nothing is, or all parameters are trained."""
        kind, rank, alpha = lower(self.text("finetuning")), self.integer("lora.rank"), self.number("lora.alpha")
        if not kind or kind in FULL or self.get("stated.adapters"):
            return None
        if kind not in ADAPTERS:
            return "finetuning"
        targets = self.targets()
        if not rank or not targets:
            return "targets of adapters" if rank else "rank of adapters"
        of_experts = self.integer("model.experts", 1) > 1 and not {"gate", "up", "gate_up", "down"}.isdisjoint(targets)
        alike = any(lower(word).startswith(("linear_", "mlp_", "all-")) for word in self.texts("lora.targets"))
        if of_experts and (alike or self.number("lora.dropout")):  # one for all experts, or routers' too
            return "adapters of experts"
        if kind == "qlora" and not self.get("stated.frozen_weights"):
            return "type of frozen weights"
        scale = {"scale": alpha / rank} if alpha is not None else {}
        stated = {"rank": rank, **scale, "dropout": self.number("lora.dropout") or 0, "targets": targets}
        self.set("stated.adapters", stated, "lora: scale is alpha / rank, and targets are the job's names of these products")
        return None

    def meet_needs(self, lack):
        """Removes needs that facts meet from the row's own. `lack`: what of adapters is missing."""
        needs, met = self.texts("needs"), self.texts("stated.meets")
        if lack != "finetuning":
            met = [*met, *OF_ADAPTERS]
        kept = [need for need in needs if need not in met]
        if kept != needs:
            self.set("needs", [lack, *kept] if lack and lack not in kept else kept, "the row, without needs that its facts meet")

    def needs(self, partition, lack):
        """The first fact without which the row cannot be predicted."""
        needs = [self.get("stated.needs"), lack,
                 None if self.get("stated.precision") else f"precision {self.text('precision')}",
                 None if self.get("stated.framework") else f"framework {self.text('framework')}", partition]
        first = next((need for need in needs if need), None)
        if first and first != self.get("stated.needs"):
            self.set("stated.needs", first, "the row")


def derive(row):
    facts = Facts(row)
    facts.network()
    facts.gpus()
    facts.micro_batch()
    partition = facts.stages()
    facts.memory()
    facts.rate()
    facts.workspace()
    facts.offload()
    lack = facts.adapters()
    facts.meet_needs(lack)
    facts.needs(partition, lack)
    for field in OF_RULES:
        (facts.get("stated") or {}).pop(field, None)
    return row
