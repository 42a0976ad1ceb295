"""PyTorch times kernels whose cost published training runs leave open.

gpu_kernels.py OUT: writes a JSON file of timed cases, and prints a line for each class of cases.
gpu_kernels.py --list: prints the cases, without PyTorch or a GPU.

Each case has a class, sizes, FLOPs and bytes of one run; a timed case also has seconds. Classes:
launch (host time of an eager op, alone and with its backward), replay (a CUDA graph), grouped
(products of experts: few, many and uneven rows), permute (rows to experts and back), attention
(heads of 64 and 128), width (products whose width is no multiple of 128).
"""

import json
import statistics
import sys
import time

BYTES = 2  # bf16
LAUNCHES = 400
# hidden, columns of the first product, experts on a rank, experts of a token: gpt-oss-120b over 8
# ranks, Qwen3-30B-A3B over 8, DeepSeek-V3 over 32 (their config.json files).
EXPERTS = {"gpt-oss-120b": (2880, 5760, 16, 4), "qwen3-30b": (2048, 1536, 16, 8),
           "deepseek-v3": (7168, 4096, 8, 8)}
ROWS = (64, 256, 1024, 4096)  # of an expert, on average
TOKENS = 8192


def rows_of(experts, mean, uneven):
    """Rows of each expert. Uneven: the first has about 4 times the mean, then ever fewer (rows / i)."""
    if not uneven:
        return [mean] * experts
    shares = [1 / (i + 1) for i in range(experts)]
    rows = [int(experts * mean * share / sum(shares)) for share in shares]
    rows[0] += experts * mean - sum(rows)
    return rows


def product(rows, inner, columns):
    return {"flops": 2 * rows * inner * columns,
            "bytes": BYTES * (rows * inner + inner * columns + rows * columns)}


def cases():
    """All cases, in the order in which they are timed: what costs least time first."""
    found = [{"class": "launch", "name": name, "ops": LAUNCHES}
             for name in ("add", "linear", "linear and backward")]
    found.append({"class": "replay", "name": "add", "ops": LAUNCHES})
    for name, (hidden, columns, experts, top) in EXPERTS.items():
        moved = BYTES * TOKENS * hidden
        found.append({"class": "permute", "name": f"{name} to experts", "tokens": TOKENS,
                      "hidden": hidden, "top": top, "bytes": moved * (1 + top)})
        found.append({"class": "permute", "name": f"{name} back", "tokens": TOKENS,
                      "hidden": hidden, "top": top, "bytes": moved * (1 + top)})
        for mean in ROWS:
            for uneven in (False, True):
                case = {"class": "grouped", "name": name, "rows": rows_of(experts, mean, uneven),
                        "hidden": hidden, "columns": columns}
                case["flops"] = 2 * sum(case["rows"]) * hidden * columns
                case["bytes"] = BYTES * (sum(case["rows"]) * (hidden + columns)
                                         + experts * hidden * columns)
                found.append(case)
    for head in (64, 128):
        for sequence in (1024, 4096, 8192):
            for backward in (False, True):
                heads = 4096 // head
                # Half of the scores; 2 products forward, 5 backward (Dao et al. 2022).
                flops = (7 if backward else 2) * sequence * sequence * heads * head
                found.append({"class": "attention", "name": "causal", "head": head, "heads": heads,
                              "kv_heads": 8, "sequence": sequence, "backward": backward,
                              "flops": flops * (TOKENS // sequence)})
    for width in (2816, 2880, 2944, 3072):
        for inner, columns in ((width, 5120), (4096, width)):
            found.append({"class": "width", "name": f"{inner} to {columns}", "rows": TOKENS,
                          "inner": inner, "columns": columns, **product(TOKENS, inner, columns)})
    return found


def host_seconds(torch, run):
    """Host time of one of LAUNCHES runs that the GPU has not finished when the last is issued."""
    times = []
    for _ in range(8):
        torch.cuda.synchronize()
        began = time.perf_counter()
        run()
        times.append((time.perf_counter() - began) / LAUNCHES)
    torch.cuda.synchronize()
    return statistics.median(times[1:])


def device_seconds(torch, run):
    for _ in range(3):
        run()
    times = []
    for _ in range(10):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times)


def launches(torch, case):
    x = torch.zeros(16, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    weight = torch.zeros(64, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    linear = torch.nn.functional.linear

    def run():
        for _ in range(LAUNCHES):
            if case["name"] == "add":
                x + x
            elif case["name"] == "linear":
                linear(x, weight)
            else:
                linear(x, weight).backward(x)
    return {"seconds": host_seconds(torch, run)}


def replay(torch):
    x = torch.zeros(16, 64, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAUNCHES):
            x.add_(1)
    return {"seconds": host_seconds(torch, graph.replay),
            "device_seconds": device_seconds(torch, graph.replay) / LAUNCHES}


def grouped(torch, case):
    rows = case["rows"]
    x = torch.randn(sum(rows), case["hidden"], device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(len(rows), case["hidden"], case["columns"], device="cuda",
                         dtype=torch.bfloat16)
    result = {}
    if hasattr(torch, "_grouped_mm"):
        ends = torch.tensor(rows, device="cuda").cumsum(0).to(torch.int32)
        result["seconds"] = device_seconds(torch, lambda: torch._grouped_mm(x, weight, offs=ends))
    result["one_by_one_seconds"] = device_seconds(
        torch, lambda: [part @ weight[i] for i, part in enumerate(x.split(rows))])
    return result


def permute(torch, case):
    tokens, top = case["tokens"], case["top"]
    order = torch.randperm(tokens * top, device="cuda")
    wide = torch.randn(tokens * top, case["hidden"], device="cuda", dtype=torch.bfloat16)
    if case["name"].endswith("back"):
        return {"seconds": device_seconds(
            torch, lambda: torch.zeros_like(wide[:tokens]).index_add_(0, order // top, wide))}
    x = wide[:tokens].clone()
    return {"seconds": device_seconds(torch, lambda: x.index_select(0, order // top))}


def attention(torch, case):
    batch = TOKENS // case["sequence"]

    def tensor(heads):
        return torch.randn(batch, heads, case["sequence"], case["head"], device="cuda",
                           dtype=torch.bfloat16, requires_grad=case["backward"])
    q, k, v = tensor(case["heads"]), tensor(case["kv_heads"]), tensor(case["kv_heads"])

    def run():
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True,
                                                             enable_gqa=True)
        if case["backward"]:
            y.backward(q)
    return {"seconds": device_seconds(torch, run)}


def width(torch, case):
    x = torch.randn(case["rows"], case["inner"], device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(case["columns"], case["inner"], device="cuda", dtype=torch.bfloat16)
    return {"seconds": device_seconds(torch, lambda: torch.nn.functional.linear(x, weight))}


def timed(torch, case):
    work = {"launch": launches, "grouped": grouped, "permute": permute, "attention": attention,
            "width": width}
    try:
        times = replay(torch) if case["class"] == "replay" else work[case["class"]](torch, case)
    except (RuntimeError, TypeError) as error:  # a release of PyTorch without this kernel
        return {**case, "error": str(error).splitlines()[0]}
    return {**case, **times}


def summary(found):
    """A line for each class: host times in us, else the range of rates."""
    lines = []
    for kind in dict.fromkeys(case["class"] for case in found):
        of_kind = [case for case in found if case["class"] == kind and "seconds" in case]
        if not of_kind:
            lines.append(f"{kind}: not timed")
        elif kind in ("launch", "replay"):
            lines.append(f"{kind}: " + ", ".join(f"{case['name']} {case['seconds'] * 1e6:.1f} us"
                                                 for case in of_kind))
        else:
            unit, key, scale = (("GB/s", "bytes", 1e9) if kind == "permute" else
                                ("TFLOP/s", "flops", 1e12))
            rates = [case[key] / case["seconds"] / scale for case in of_kind]
            lines.append(f"{kind}: {min(rates):.0f} to {max(rates):.0f} {unit} "
                         f"over {len(rates)} cases")
    return lines


def main():
    if sys.argv[1:] == ["--list"]:
        print(json.dumps(cases(), indent=1))
        return
    import torch
    found = [timed(torch, case) for case in cases()]
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        json.dump({"device": torch.cuda.get_device_name(), "torch": torch.__version__,
                   "cases": found}, out, indent=1)
    print("\n".join(summary(found)))


if __name__ == "__main__":
    main()
