"""Rows of timed ops get shapes, types and seconds in place of the words of their sources."""

import re

import derived_facts

MOST = 1 << 24
ATTENTION = {"sdp_fwd": ("flash_attention", 1), "sdp_bwd": ("flash_attention_backward", 2.5)}  # products, relative to forward


def stated(row):
    """The row with its op as planner fit reads it (docs/reference/calibration.md); another op stays as it is."""
    op = str(row["op"])
    if op == "matmul" and "time_s" not in row:
        return {**row, **matmul(row)}
    if op in ATTENTION:
        return {**row, **attention(row)}
    return {**row, **gemm(row)} if op == "gemm" else row


class Shape:
    """The parts of a text such as "b=1, m=4096, k=5120"."""

    def __init__(self, row):
        if not isinstance(row.get("shape"), str):
            raise derived_facts.BadFact("/shape: a text is required")
        self.parts = dict(part.split("=", 1) for part in row["shape"].split(", ") if "=" in part)

    def number(self, key):
        value = self.parts.get(key, "")
        if not re.fullmatch("[0-9]{1,8}", value) or not 1 <= int(value) <= MOST:
            raise derived_facts.BadFact(f"/shape: a number from 1 to {MOST} is needed for {key}")
        return int(value)


def positive(row, key):
    if isinstance(row.get(key), bool) or not isinstance(row.get(key), (int, float)) or row[key] <= 0:
        raise derived_facts.BadFact(f"/{key}: a number above 0 is required")
    return row[key]


def seconds(row, flops):
    """The row states its efficiency relative to a peak."""
    return flops / (positive(row, "peak_tflops") * 1e12 * positive(row, "efficiency"))


def matmul(row):
    """The layout names what is transposed of weights and of activations, in column-major order: "TN" is a linear layer's forward,
    "NN" its input gradient, "NT" its weight gradient."""
    shape = Shape(row)
    sizes = {"batch": shape.number("b"), "m": shape.number("m"), "n": shape.number("n"), "k": shape.number("k")}
    layout = shape.parts.get("layout", "")
    return {**sizes, "dtype": "bf16", "transpose_a": layout == "NT", "transpose_b": layout == "TN",
            "output_bytes": 8 if shape.parts.get("accumulate") == "True" else 2, "time_s": seconds(row, products(sizes))}


def attention(row):
    op, times = ATTENTION[row["op"]]
    shape = Shape(row)
    sizes = {"batch": shape.number("batch"), "sequence": shape.number("seq_len"), "heads": shape.number("head_num"),
             "head_size": shape.number("qk_head_dim")}
    if shape.number("v_head_dim") != sizes["head_size"]:
        return {}
    scores = float(sizes["batch"]) * float(sizes["heads"]) * float(sizes["sequence"] ** 2)
    return {**sizes, "op": op, "dtype": "bf16", "time_s": seconds(row, 4 * times * scores * float(sizes["head_size"]))}


def gemm(row):
    """DeepBench's, in column-major order: C^T = B^T A^T is what planner multiplies."""
    if {"m", "tflops", "transA", "transB"} - row.keys() or not str(row.get("dtype")).startswith("fp16_in_fp32_acc") or not row["tflops"]:
        return {}
    sizes = {"batch": row.get("batch") or 1, "m": positive(row, "n"), "n": positive(row, "m"), "k": positive(row, "k")}
    return {**sizes, "op": "matmul", "dtype": "f16", "transpose_a": row["transB"] == "T", "transpose_b": row["transA"] == "T",
            "output_bytes": 2, "time_s": products(sizes) / (positive(row, "tflops") * 1e12)}


def products(sizes):
    return 2.0 * float(sizes["batch"]) * float(sizes["m"]) * float(sizes["n"]) * float(sizes["k"])
