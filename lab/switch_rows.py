"""Rows of lab/switches: a switch, what is published about it, and where it is tried here."""

import dataclasses

JOBS, CLUSTERS = "models/presets/jobs/", "models/presets/clusters/"


@dataclasses.dataclass
class Size:
    """A job (a file, with other values for some keys) on devices of a cluster, by a framework."""
    job: str
    devices: int
    cluster: str = CLUSTERS + "dgx-a100-80gb.json"
    framework: str = "megatron-lm"
    changes: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Row:
    switch: str
    published: str
    source: str
    size: Size
    variants: list
    small: Size
    small_variants: list
    note: str = ""  # where the effect here is another, and why
    stage: int | None = None  # whose memory; else the fullest
    per_micro_batch: bool = False


def preset(name, devices, **options):
    return Size(JOBS + name + ".json", devices, **options)


def nano(devices, **changes):
    return Size("tests/gpt-nano.json", devices, changes=changes)


V100 = CLUSTERS + "dgx1-v100-32gb.json"
A100_40 = CLUSTERS + "dgx-a100-40gb.json"
# ERNIE 3.0 as in Paddle PR 35878, and the smaller one of 34965; fp16, which V100s have.
ERNIE = {"precision": "fp16"}
ERNIE_BASE = {"precision": "fp16", "layers": 12, "hidden": 768, "heads": 12, "kv_heads": 12,
              "ffn_hidden": 3072}
# gpt2-medium-en of PaddleNLP as in Paddle PR 34230, which fits its memory table in fp32.
MEDIUM = {"precision": "fp32", "vocab": 50304, "global_batch": 2048, "dropout": 0.1}
# The BERT of DeepSpeed PR 1188; its batch is not stated.
BING = {"layers": 64, "hidden": 2560, "heads": 40, "kv_heads": 40, "ffn_hidden": 10240,
        "vocab": 32003, "sequence": 128, "global_batch": 64, "precision": "fp16"}
PADDLE = ("Paddle takes 15 to 20 us to dispatch an op, as its own numbers imply, which "
          "`paddle-2.2` has. ")
ZERO3 = preset("bert-large", 8, cluster=A100_40, framework="bundled", changes=BING)
ZERO3_BASE = "sharding_degree=8,sharding_stage=3,micro_batch=8"
SMALL_ZERO3 = "sharding_degree=2,sharding_stage=3,micro_batch=2"

ROWS = [
    Row("mp, dp", "weights, gradients and states 1/mp per rank, for two all-reduces in forward and two "
        "in backward of each layer", "Shoeybi 2019, arXiv 1909.08053, section 3",
        preset("gpt3-6.7b", 8), ["dp=8,micro_batch=1", "mp=8,micro_batch=8"],
        nano(2), ["dp=2,micro_batch=8", "mp=2,micro_batch=8"]),
    Row("pp, dp", "layers, and what they keep, 1/pp per rank; a share of (pp - 1)/m of the compute is "
        "bubble", "Narayanan 2021, arXiv 2104.04473, section 2.2",
        preset("gpt3-6.7b", 8), ["dp=8,micro_batch=1", "pp=8,micro_batch=1"],
        nano(2), ["dp=2,micro_batch=2", "pp=2,micro_batch=2"]),
    Row("micro_batch", "larger ones use the device better, and make more bubble: the best one is in "
        "between", "Narayanan 2021, section 3.4",
        preset("gpt3-6.7b", 8, changes={"global_batch": 64}),
        ["pp=8,micro_batch=1", "pp=8,micro_batch=2", "pp=8,micro_batch=8"],
        nano(2), ["pp=2,micro_batch=1", "pp=2,micro_batch=4"]),
    Row("virtual_stages", "10 % and more of throughput, at comparable memory",
        "Narayanan 2021, abstract",
        preset("gpt3-175b", 96, changes={"global_batch": 48}),
        ["mp=8,pp=12,micro_batch=1,recompute=full",
         "mp=8,pp=12,micro_batch=1,recompute=full,virtual_stages=2",
         "mp=8,pp=12,micro_batch=1,recompute=full,virtual_stages=8"],
        nano(2), ["pp=2,micro_batch=2", "pp=2,micro_batch=2,virtual_stages=2"]),
    Row("split_boundary", "with the interleaved schedule up to 11 % of throughput (the scatter/gather "
        "optimisation)", "Narayanan 2021, section 4.1",
        preset("gpt3-175b", 96, framework="megatron-lm-2021", changes={"global_batch": 48}),
        ["mp=8,pp=12,micro_batch=1,recompute=full,virtual_stages=2",
         "mp=8,pp=12,micro_batch=1,recompute=full,virtual_stages=2,split_boundary=true"],
        nano(4), ["mp=2,pp=2,micro_batch=2", "mp=2,pp=2,micro_batch=2,split_boundary=true"]),
    Row("schedule: gpipe → 1f1b", "the same bubble; activations of pp instead of all micro-batches",
        "Narayanan 2021, section 2.2.1",
        preset("gpt3-6.7b", 8, framework="bundled", changes={"global_batch": 64}),
        ["pp=8,micro_batch=1,schedule=gpipe", "pp=8,micro_batch=1"],
        nano(2), ["pp=2,micro_batch=2,schedule=gpipe", "pp=2,micro_batch=2"]),
    Row("schedule: 1f1b → zb_h1", "zero-bubble schedules up to 23 % of throughput at about the same "
        "memory", "Qi 2023, arXiv 2401.10241, abstract",
        preset("gpt3-6.7b", 8, framework="bundled", changes={"global_batch": 24}),
        ["pp=8,micro_batch=1", "pp=8,micro_batch=1,schedule=zb_h1"],
        nano(2), ["pp=2,micro_batch=2", "pp=2,micro_batch=2,schedule=zb_h1"]),
    Row("layer_split", "none: stages with the embedding or the head get fewer layers in published "
        "runs", "Megatron-Core, num_layers_in_first and last_pipeline_stage",
        preset("gpt3-6.7b", 8, changes={"global_batch": 64}),
        ["pp=8,micro_batch=1", "pp=8,micro_batch=1,layer_split=4+4+4+4+4+4+5+3"],
        nano(2), ["pp=2,micro_batch=2", "pp=2,micro_batch=2,layer_split=3+1"]),
    Row("send_lifetime", "memory of a stage no longer grows with the micro-batches: stage 1 29,632 → "
        "21,380 MiB at 512 of them", "Paddle PR 34230, memory table",
        preset("gpt2-medium", 8, cluster=V100, framework="megatron-lm-2021", changes=MEDIUM),
        ["pp=8,micro_batch=4,send_lifetime=held", "pp=8,micro_batch=4,send_lifetime=published",
         "pp=8,micro_batch=4"],
        nano(4), ["pp=4,micro_batch=1,send_lifetime=held",
                  "pp=4,micro_batch=1,send_lifetime=published", "pp=4,micro_batch=1"],
        "what is no longer held is m - (pp - 1 - s) - 2 boundary tensors of 16 MiB each; the published "
        "levels also have a context, and an allocator whose chunks simulator.paddle_memory replays",
        stage=1),
    Row("send_slots", "none: 34230 holds two sends in its steady state", "Paddle PR 34230",
        preset("gpt2-medium", 8, cluster=V100, framework="megatron-lm-2021", changes=MEDIUM),
        ["pp=8,micro_batch=4,send_slots=1", "pp=8,micro_batch=4", "pp=8,micro_batch=4,send_slots=8"],
        nano(2), ["pp=2,micro_batch=1,send_slots=1", "pp=2,micro_batch=1",
                  "pp=2,micro_batch=1,send_slots=4"]),
    Row("recompute", "full recompute costs 30 to 40 % of time; selective with sequence parallelism "
        "saves a factor of 5 of activations and over 90 % of that cost",
        "Korthikanti 2022, arXiv 2205.05198, abstract and introduction",
        preset("megatron-22b", 8, framework="megatron-lm-2022", changes={"global_batch": 4}),
        ["mp=8,micro_batch=4", "mp=8,micro_batch=4,recompute=selective",
         "mp=8,micro_batch=4,recompute=full"],
        nano(2), ["mp=2,micro_batch=8", "mp=2,micro_batch=8,recompute=selective",
                  "mp=2,micro_batch=8,recompute=full"]),
    Row("recompute_layers", "the block method: as many layers as memory requires",
        "Megatron-LM, recompute-method block",
        preset("megatron-22b", 8, framework="megatron-lm-2022", changes={"global_batch": 4}),
        ["mp=8,micro_batch=4,recompute=full", "mp=8,micro_batch=4,recompute=full,recompute_layers=24"],
        nano(2), ["mp=2,micro_batch=8,recompute=full",
                  "mp=2,micro_batch=8,recompute=full,recompute_layers=2"]),
    Row("recompute_list", "none: any set of layers", "own",
        preset("megatron-22b", 8, framework="bundled", changes={"global_batch": 4}),
        ["mp=8,micro_batch=4,recompute=full",
         "mp=8,micro_batch=4,recompute=full,recompute_list=0+1+2+3+4+5+6+7"],
        nano(2), ["mp=2,micro_batch=8,recompute=full",
                  "mp=2,micro_batch=8,recompute=full,recompute_list=0+3"]),
    Row("sequence_parallel", "activations between the split layers 1/mp, for the same bytes sent",
        "Korthikanti 2022, section 4.2.2",
        preset("megatron-22b", 8, framework="megatron-lm-2022", changes={"global_batch": 4}),
        ["mp=8,micro_batch=4,recompute=selective",
         "mp=8,micro_batch=4,recompute=selective,sequence_parallel=true"],
        nano(2), ["mp=2,micro_batch=8", "mp=2,micro_batch=8,sequence_parallel=true"]),
    Row("cast_placement (ERNIE 3.0)", "6,421 → 6,868 tokens/s, +6.96 %, with optimizer sharding",
        "Paddle PR 35878",
        preset("ernie3-4b", 8, cluster=V100, framework="bundled", changes=ERNIE),
        [f"mp=2,pp=2,sharding_degree=2,micro_batch=2,recompute=full,sharding_owner=prefix{cast}"
         for cast in (",cast_placement=every_use", ",cast_placement=after_update", "")],
        nano(2, precision="bf16"),
        [f"dp=2,micro_batch=2,cast_placement={cast}"
         for cast in ("every_use", "after_update", "fused")],
        "the time saved per micro-batch is what counts: published 20.8 ms, with the micro-batch of 2 "
        "that its siblings state and a sequence of 512, which is assumed. The published step is longer: " + PADDLE +
        "The PR names neither GPU, batch nor sequence.", per_micro_batch=True),
    Row("cast_placement (ERNIE base)", "41,450 → 44,543 tokens/s, +7.46 %, replicas that all keep "
        "fp32", "Paddle PR 34965",
        preset("ernie3-4b", 8, cluster=V100, framework="megatron-deepspeed", changes=ERNIE_BASE),
        [f"mp=2,pp=2,dp=2,micro_batch=2,cast_placement={cast}"
         for cast in ("every_use", "after_update", "fused")],
        nano(1, precision="bf16"),
        [f"micro_batch=2,cast_placement={cast}" for cast in ("every_use", "after_update", "fused")],
        "published 3.4 ms saved per micro-batch, by the same reckoning. Both are bound by dispatch, "
        "and the executor here, Megatron-LM of 2021 in DeepSpeed's pipeline, takes several times as "
        "long for an op as Paddle's 15 to 20 us",
        per_micro_batch=True),
    Row("sharding_degree, sharding_stage", "16 bytes per parameter → 4 + 12/d (stage 1) → 2 + 14/d "
        "(stage 2) → 16/d (stage 3); stage 3 sends half as much again",
        "Rajbhandari 2020, arXiv 1910.02054, sections 5 and 7",
        preset("gpt3-6.7b", 8, framework="bundled"),
        ["dp=8,micro_batch=1"] + [f"sharding_degree=8,sharding_stage={stage},micro_batch=1"
                                  for stage in (1, 2, 3)],
        nano(2), ["dp=2,micro_batch=2"] + [f"sharding_degree=2,sharding_stage={stage},micro_batch=2"
                                           for stage in (1, 2, 3)],
        "gradients are kept and reduced in fp32 (6 + 12/d, as Megatron-Core), and from stage 2 on in "
        "every micro-batch"),
    Row("sharding_owner", "owners by a walk in order, or greedily, from the largest on; equal ranges "
        "of elements balance exactly",
        "Paddle PR 35878 (prefix), sharding pass (greedy) and stage 1 v1 (sorted); Megatron-Core",
        preset("gpt3-1.3b", 8, framework="bundled"),
        [f"sharding_degree=8,micro_batch=1,sharding_owner={owner}"
         for owner in ("prefix", "greedy", "sorted_greedy", "elements")],
        nano(2), [f"sharding_degree=2,micro_batch=2,sharding_owner={owner}"
                  for owner in ("prefix", "greedy", "sorted_greedy", "elements")]),
    Row("collective_fusion", "57 → 15 all-reduces, 135,503 → 138,892 tokens/s, +2.5 %",
        "Paddle PR 34480 (GPT, 8 V100, dp 4, sharding 2, 32 MiB)",
        preset("gpt2-medium", 8, cluster=V100, framework="bundled",
               changes={"precision": "fp32", "vocab": 50304}),
        [f"dp=4,sharding_degree=2,micro_batch=4,sharding_owner=prefix,grad_bucket_bytes=32MiB,"
         f"param_bucket_bytes=32MiB,collective_fusion={fusion}"
         for fusion in ("none", "coalesced", "arena")],
        nano(2), [f"sharding_degree=2,micro_batch=2,sharding_owner=prefix,collective_fusion={fusion}"
                  for fusion in ("none", "coalesced", "arena")],
        "model and batch of the PR are not stated; here a step is long against its collectives"),
    Row("param_bucket_bytes", "none by itself: the limit of a fused broadcast is 32 MiB",
        "Paddle, fuse_grad_size_in_MB",
        preset("gpt2-medium", 8, cluster=V100, framework="bundled",
               changes={"precision": "fp32", "vocab": 50304}),
        [f"dp=4,sharding_degree=2,micro_batch=4,sharding_owner=prefix,param_bucket_bytes={size}"
         for size in ("1MiB", "32MiB", "128MiB")],
        nano(2), [f"sharding_degree=2,micro_batch=2,sharding_owner=prefix,param_bucket_bytes={size}"
                  for size in ("16KiB", "256KiB")]),
    Row("flatten", "20,684 → 23,583 tokens/s, +14.0 %, where an op costs 102 us to dispatch; 4n + 5 "
        "ops → 11", "Paddle PR 33461 (ERNIE 3.0 on NPUs)",
        preset("bert-large", 8, changes={"global_batch": 64}),
        [f"dp=8,micro_batch=8,flatten={form}" for form in ("none", "coalesced", "fused")],
        nano(1), [f"micro_batch=4,flatten={form}" for form in ("none", "coalesced", "fused")],
        "a GPU's dispatch is a tenth of that NPU's; with 102 us per op the optimizer phase falls by "
        "the published 121.8 ms (test SeedsG of runtime.flatten)"),
    Row("gradient_merge", "336 coalesce ops of a dp group → 36; a cast and an add for each tensor and "
        "micro-batch → for each group", "Paddle PR 35070",
        preset("ernie3-4b", 8, cluster=V100, changes=ERNIE),
        [f"mp=2,pp=2,dp=2,micro_batch=2,recompute=full,grad_bucket_bytes=32MiB,gradient_merge={merge}"
         for merge in ("tensor", "fused", "direct")],
        nano(2, precision="bf16"), [f"dp=2,micro_batch=2,gradient_merge={merge}"
                                    for merge in ("tensor", "fused", "direct")],
        "the fused form saves dispatch; casts and adds move the same bytes"),
    Row("gradient_type", "34,285 → 35,228 tokens/s, +2.7 %, and with fused merges 36,144 → 35,596, -1.5 %",
        "Paddle PR 35004, fp16_allreduce (8 V100)",
        preset("ernie3-4b", 8, cluster=V100, changes=ERNIE),
        [f"mp=2,pp=2,dp=2,micro_batch=2,recompute=full,gradient_type={kind}"
         for kind in ("f32", "computed")],
        nano(2, precision="bf16"), [f"dp=2,micro_batch=2,gradient_type={kind}"
                                    for kind in ("f32", "computed")],
        "the rows of the PR itself, with Paddle's merges and dispatch, are in docs/results/kernels.md"),
    Row("grad_bucket_bytes", "PyTorch DDP 25 MB, Megatron-Core at least 40e6 elements",
        "their configuration defaults",
        preset("gpt3-1.3b", 8), [f"dp=8,micro_batch=1,grad_bucket_bytes={size}"
                                 for size in ("1MiB", "25MiB", "160MiB")],
        nano(2), [f"dp=2,micro_batch=2,grad_bucket_bytes={size}" for size in ("16KiB", "1MiB")]),
    Row("overlap_grad_reduce", "none by itself", "Megatron-Core, overlap_grad_reduce",
        preset("gpt3-1.3b", 8),
        ["dp=8,micro_batch=1,overlap_grad_reduce=false", "dp=8,micro_batch=1"],
        nano(2), ["dp=2,micro_batch=2,overlap_grad_reduce=false", "dp=2,micro_batch=2"],
        "a CPU core does everything in turn: nothing can overlap in the executed run"),
    Row("overlap_param_gather", "7,834 → 8,243 tokens/s, +5.2 %, with fused buffers",
        "Paddle PR 64103 (llama-7B, sharding 8)",
        preset("llama2-7b", 8, changes={"global_batch": 64}),
        ["sharding_degree=8,micro_batch=1,recompute=full,overlap_param_gather=false",
         "sharding_degree=8,micro_batch=1,recompute=full"],
        nano(2), ["sharding_degree=2,micro_batch=2,overlap_param_gather=false",
                  "sharding_degree=2,micro_batch=2"],
        "the PR also fused what was a broadcast per tensor; only the overlap is switched here, between "
        "GPUs on NVSwitch. A CPU core does everything in turn: nothing overlaps when executed"),
    Row("grad_reduction", "none by itself: stages 2 and 3 of ZeRO reduce in every micro-batch",
        "DeepSpeed ZeRO-2",
        preset("gpt3-1.3b", 8, changes={"global_batch": 64}),
        ["dp=8,micro_batch=1", "dp=8,micro_batch=1,grad_reduction=per_micro_batch"],
        nano(2), ["dp=2,micro_batch=2", "dp=2,micro_batch=2,grad_reduction=per_micro_batch"]),
    Row("gather", "forward 470 → 270 ms from one gather per tensor to one per module; the model's "
        "wire time is 37.5 ms", "DeepSpeed PR 1188 (5.1e9 parameters, 8 A100)",
        ZERO3, [f"{ZERO3_BASE},gather={gather}" for gather in ("tensor", "module", "layer")],
        nano(2), [f"{SMALL_ZERO3},gather={gather}" for gather in ("tensor", "module", "layer")],
        "the published 0.40 ms per gather is Python and a device synchronisation each, not the "
        "network: with it the test simulator.gather_time predicts 470 and 265 ms. The whole step is "
        "shown here"),
    Row("gather: use → segment → layer", "one broadcast of a tensor for each op that reads it → one "
        "per segment of the step, 32 MiB by default",
        "Paddle, _shard_parameter and ShardingOptimizer",
        ZERO3, [f"{ZERO3_BASE},sharding_owner=prefix,gather={gather}"
                for gather in ("use", "segment", "layer")],
        nano(2), [f"{SMALL_ZERO3},sharding_owner=prefix,gather={gather}"
                  for gather in ("use", "segment", "layer")]),
    Row("segment_broadcast_bytes", "none by itself: 32 MiB", "Paddle, segment_broadcast_MB",
        ZERO3, [f"{ZERO3_BASE},sharding_owner=prefix,gather=segment,segment_broadcast_bytes={size}"
                for size in ("32MiB", "128MiB")],
        nano(2), [f"{SMALL_ZERO3},sharding_owner=prefix,gather=segment,segment_broadcast_bytes={size}"
                  for size in ("16KiB", "256KiB")]),
    Row("prefetch_depth", "none by itself: DeepSpeed prefetches 5e7 elements ahead",
        "DeepSpeed, stage3_prefetch_bucket_size",
        ZERO3, [f"{ZERO3_BASE},prefetch_depth={depth}" for depth in (0, 1, 4)],
        nano(2), [f"{SMALL_ZERO3},prefetch_depth={depth}" for depth in (0, 1, 2)],
        "fewer bytes are sent, too: what is fetched ahead across the turn from forward to backward is "
        "the layer that was just used, and stays"),
    Row("max_live_bytes", "none by itself: DeepSpeed keeps at most 1e9 elements",
        "DeepSpeed, stage3_max_live_parameters",
        ZERO3, [f"{ZERO3_BASE},prefetch_depth=8{limit}"
                for limit in ("", ",max_live_bytes=400MiB")],
        nano(2), [f"{SMALL_ZERO3},prefetch_depth=2{limit}"
                  for limit in ("", ",max_live_bytes=256KiB")]),
    Row("reuse_distance_bytes", "none by itself: DeepSpeed keeps what is used again within 1e9 "
        "elements", "DeepSpeed, stage3_max_reuse_distance",
        ZERO3, [f"{ZERO3_BASE}{distance}" for distance in ("", ",reuse_distance_bytes=2GiB")],
        nano(2), [f"{SMALL_ZERO3}{distance}" for distance in ("", ",reuse_distance_bytes=512KiB")]),
    Row("persistence_threshold", "none by itself: tensors of up to 1e5 elements stay whole",
        "DeepSpeed, stage3_param_persistence_threshold",
        ZERO3, [f"{ZERO3_BASE},gather=tensor{threshold}"
                for threshold in ("", ",persistence_threshold=100000")],
        nano(2), [f"{SMALL_ZERO3},gather=tensor{threshold}"
                  for threshold in ("", ",persistence_threshold=1000")]),
    Row("keep_gathered", "a third fewer bytes gathered and sent, for whole parameters in memory",
        "PyTorch FSDP2, reshard_after_forward=False",
        ZERO3, [ZERO3_BASE, f"{ZERO3_BASE},keep_gathered=true"],
        nano(2), [SMALL_ZERO3, f"{SMALL_ZERO3},keep_gathered=true"]),
    Row("embedding_as_layers, loss_as_layers", "none: with both, a model whose layers are two short of "
        "equal parts interleaves", "Megatron-LM, account_for_embedding_in_pipeline_split and "
        "account_for_loss_in_pipeline_split",
        preset("gpt3-6.7b", 8, changes={"global_batch": 64}),
        ["pp=8,micro_batch=1", "pp=8,micro_batch=1,embedding_as_layers=1,loss_as_layers=1"],
        nano(2), ["pp=2,micro_batch=2", "pp=2,micro_batch=2,loss_as_layers=1"]),
    Row("offload_activations_percent, offload_activations_layers",
        "none by itself: what the first layers keep lies in the host's memory",
        "Megatron-LM, --cpu-offloading-num-layers",
        preset("gpt3-1.3b", 8),
        [f"dp=8,micro_batch=1{offload}" for offload in
         ("", ",offload_activations_percent=100,offload_activations_layers=12")],
        nano(2), [f"dp=2,micro_batch=2{offload}" for offload in
                  ("", ",offload_activations_percent=100,offload_activations_layers=3")]),
]
