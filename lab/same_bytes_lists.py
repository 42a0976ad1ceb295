"""Lists of commands whose outputs lab/same-bytes holds against each other.

A list has the words of each command by name, with PARTS. They may name files of INPUTS and of earlier commands of the list.
"""

import itertools
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
INPUTS = ["tests/gpt-nano.json", "tests/expert-nano.json", "tests/llama-nano.json", "tests/fuzz/examples/cpu-cluster.json",
          "tests/interop/gpt3-175b.sh", "tests/interop/data/qwen3-30b-a3b.json", "tests/fuzz/examples/import/torchtitan.toml",
          "tests/fuzz/examples/import/deepspeed.json", "tests/fuzz/examples/import/accelerate.yaml",
          "tests/fuzz/examples/published_runs/rows.json",
          "tests/interop/nccl-tests/current.txt", "tests/interop/topology/hgx-h100.txt"]

# Commands have this in common.
PARTS = {"cpu": "--cluster cpu-cluster.json", "h100": "--cluster dgx-h100-80gb", "a100": "--cluster dgx-a100-80gb",
         "of_1b": "llama3.2-1b --cluster dgx-h100-80gb --devices 2 --global-batch 4"}
# REPEATED has plans of a dense job, of experts, of context parallelism and without bubbles, and what is made of them.
REPEATED = {
    "plan dense": "plan gpt-nano.json {cpu} --devices 2 --fix cp=1 --fix recompute=none --max micro_batch=2 -o dense.json",
    "plan experts": "plan expert-nano.json {h100} --devices 4 --fix ep=2 --fix micro_batch=1 -o experts.json",
    "plan context": "plan llama-nano.json {h100} --devices 4 --fix cp=2 --fix recompute=none --top 3 -o context.json",
    "plan zero bubble": "plan gpt-nano.json {cpu} --devices 2 --fix schedule=zb_h1 --fix pp=2 --fix recompute=none"
                        " -o zero-bubble.json",
    "plan megatron": "plan {of_1b} --fix mp=2 --fix micro_batch=1 --fix recompute=none -o megatron-plan.json",
    "report": "report dense.json {cpu} -o report.html",
    "simulate": "simulate gpt-nano.json pp=2,micro_batch=2,schedule=zb_h1 {cpu} --devices 2 --trace trace.json",
    "simulate, JSON": "simulate expert-nano.json dp=4,ep=2 {h100} --devices 4 --unfolded --json",
    "export megatron": "export megatron-plan.json --to megatron --allow-lossy -o train.sh",
    "export megatron-bridge": "export megatron-plan.json --to megatron-bridge --allow-lossy -o bridge.yaml",
    "export slurm": "export dense.json --to slurm --data gpt-nano.json --time 30 -o job.sh",
}
OTHERS = {
    "plan, JSON": "plan gpt-nano.json {cpu} --devices 2 --fix schedule=zb_h1 --fix pp=2 --fix micro_batch=2 --json",
    "plan experts": REPEATED["plan experts"],
    "plan zero bubble": REPEATED["plan zero bubble"],
    "plan deepspeed": "plan {of_1b} --framework deepspeed --fix recompute=full --fix micro_batch=1 -o deepspeed-plan.json",
    "plan fsdp": "plan {of_1b} --framework pytorch-fsdp --fix recompute=none --fix micro_batch=1 -o fsdp-plan.json",
    "plan torchtitan": "plan llama3-8b {h100} --devices 8 --global-batch 8 --framework torchtitan --fix mp=8"
                       " --fix micro_batch=1 --fix recompute=none -o torchtitan-plan.json",
    "plan paddle": "plan {of_1b} --framework paddlenlp --fix recompute=none --fix micro_batch=1 -o paddle-plan.json",
    "export torchtitan": "export torchtitan-plan.json --to torchtitan --allow-lossy -o train.toml",
    "export torchtitan, script": "export torchtitan-plan.json --to torchtitan --target-version 2026-02-23 --allow-lossy",
    "export deepspeed": "export deepspeed-plan.json --to deepspeed --allow-lossy -o ds.json",
    "export fsdp": "export fsdp-plan.json --to fsdp --allow-lossy -o fsdp.py",
    "export accelerate": "export fsdp-plan.json --to accelerate --allow-lossy -o accelerate-config.yaml",
    "export paddle": "export paddle-plan.json --to paddle --allow-lossy -o paddle.json",
    "report experts": "report experts.json --plan-only -o experts.html",
    "report measured": "report zero-bubble.json measured.json {cpu} --plan-only -o measured.html",
    "compare": "compare zero-bubble.json measured.json",
    "compare, JSON": "compare zero-bubble.json measured.json --json",
    "explain": "explain experts.json",
    "explain, JSON": "explain zero-bubble.json {cpu} --json",
    "explain why not": "explain zero-bubble.json --why-not pp=1,dp=2 {cpu}",
    "check": "check experts.json --json",
    "simulate context": "simulate llama-nano.json cp=2,mp=2 {h100} --devices 4 --trace context-trace.json --json",
    "sweep": "sweep llama-nano.json {h100} --devices 1,2 --tokens 1B --price 2.5/h --fix micro_batch=2"
             " --csv sweep.csv --html sweep.html",
    "sweep, JSON": "sweep gpt-nano.json {cpu} --devices 1,2 --fix micro_batch=2 --fix recompute=none --fix cp=1 --json",
    "space": "space expert-nano.json --devices 4 --framework megatron-lm --fix pp=1 --fix ep=2 --max micro_batch=1 --list",
    "passes": "passes gpt-nano.json mp=2",
    "passes, Program": "passes expert-nano.json dp=4,ep=2 --after plan_memory --framework megatron-lm",
    "import config.json": "import qwen3-30b-a3b.json --global-batch 64 -o qwen.json",
    "import Megatron-LM": "import gpt3-175b.sh -o gpt3.json --strategy-out gpt3-strategy.json"
                          " --framework-out gpt3-framework.json",
    "import torchtitan": "import torchtitan.toml --devices 8 --json",
    "import nccl-tests": "import nccl-tests current.txt --cluster dgx-h100-80gb --date 2026-11-20 -o nccl.json",
    "import topology": "import topology hgx-h100.txt --device dgx-h100-80gb --date 2026-11-20"
                       " --nic-bandwidth '400 Gbit/s' -o wired.json",
    "describe cluster": "describe gb200-nvl72",
    "describe job": "describe qwen.json --json",
    "describe plan": "describe experts.json",
    "init job": "init job --based-on llama3-8b --sequence 4096 -o new-job.json",
    "init cluster": "init cluster --based-on rtx-4090 --devices-per-node 4 --nodes 2 --network '25 Gbit/s' --date 2026-11-20",
    "fit": "fit runs.json --cluster dgx-a100-80gb --framework megatron-lm -o fitted.json",
    "validate": "validate rows.json",
    "help": "plan --help",
    "refuse": "describe deepspeed.json",
}
LARGE = {
    "plan what does not fit": "plan gpt3-175b --cluster dgx-a100-80gb --devices 32 --global-batch 64 --fix mp=4",
    "plan llama3-8b": "plan llama3-8b {h100} --devices 8 --global-batch 16 -o llama.json",
    "report llama3-8b": "report llama.json -o llama.html",
    "explain llama3-8b": "explain llama.json",
    "plan mixtral-8x7b": "plan mixtral-8x7b {h100} --devices 16 --global-batch 64 --fix pp=1 --fix mp=2 -o mixtral.json",
    "plan deepseek-v2-lite": "plan deepseek-v2-lite {h100} --devices 8 --global-batch 32 --fix pp=2 --fix mp=1"
                             " -o deepseek.json",
    "simulate gpt3-175b": "simulate gpt3-175b mp=8,pp=8,dp=2,micro_batch=1 --cluster dgx-a100-80gb --devices 128"
                          " --global-batch 96 --json",
    "sweep llama3-8b": "sweep llama3-8b {h100} --devices 8,16 --fix micro_batch=1 --tokens 1T --csv llama.csv"
                       " --html llama-sweep.html",
    "fit": "fit runs.json --cluster dgx-a100-80gb --framework megatron-lm -o fitted.json",
    "validate": "validate runs.json --calibration fitted.json --json",
}
# A change of the code leaves these as they were: plans, timelines, memory and exports over models, clusters, frameworks,
# schedules, experts, contexts, 8-bit types, offload and whole tensors owned by ranks. Three minutes of one core for two builds.
SIXTY = {
    "plan dense": "plan llama3-8b {h100} --devices 16 --global-batch 64 -o dense.json",
    "plan five": "plan llama3-70b {h100} --devices 64 --max micro_batch=2 --top 5 --tokens 1T --price 2.5/h -o five.json",
    "plan, JSON": "plan gpt3-175b {a100} --devices 64 --global-batch 64 --json",
    "plan virtual stages": "plan gpt3-175b {a100} --devices 64 --global-batch 64 --fix virtual_stages=2 --fix mp=8 -o virtual.json",
    "plan fastest": "plan gpt2-xl {a100} --devices 16 --fastest -o fastest.json",
    "plan experts": "plan mixtral-8x7b {h100} --devices 16 --global-batch 64 --fix pp=1 -o experts.json",
    "plan latent": "plan deepseek-v2-lite {h100} --devices 8 --global-batch 32 --fix pp=2 --fix mp=1 -o latent.json",
    "plan deepseek-v3": "plan deepseek-v3 {h100} --devices 256 --fix mp=1 --fix pp=8 --fix ep=32 --fix sharding_degree=32"
                        " --fix micro_batch=1 -o deepseek-v3.json",
    "plan context": "plan llama3-8b --sequence 32k --global-batch 16 {h100} --devices 16 --fix cp=4 --fix pp=1 -o context.json",
    "plan zero bubble": "plan gpt-nano.json {cpu} --devices 2 --fix schedule=zb_h1 --fix pp=2 -o zero-bubble.json",
    "plan dual pipe": "plan llama3.2-1b {h100} --devices 4 --global-batch 16 --try schedule=zb_v,dualpipe_v --fix pp=2"
                      " --fix recompute=none --framework megatron-lm-zero-bubble",
    "plan deepspeed": "plan gpt2-xl {a100} --devices 16 --framework deepspeed -o deepspeed.json",
    "plan fsdp": "plan llama3-8b {h100} --devices 8 --global-batch 16 --framework pytorch-fsdp --fix sharding_degree=8"
                 " -o fsdp.json",
    "plan torchtitan": "plan llama3-8b {h100} --devices 8 --global-batch 16 --framework torchtitan -o torchtitan.json",
    "plan paddlenlp": "plan llama3-8b {h100} --devices 8 --global-batch 16 --framework paddlenlp -o paddlenlp.json",
    "plan owners": "plan gpt2-xl {a100} --devices 8 --global-batch 64 --framework paddle-2.1 --fix pp=2 --max micro_batch=4"
                   " -o owners.json",
    "plan 8 bits": "plan llama3.2-1b {h100} --devices 8 --global-batch 32 --try fp8=delayed,tensorwise --max micro_batch=2"
                   " --fix recompute=none -o eight.json",
    "plan offload": "plan gpt3-1.3b --cluster rtx-4090 --devices 4 --global-batch 32 --try offload_optimizer_percent=50,100"
                    " --fix pp=1 -o offload.json",
    "plan AMD": "plan gpt3-6.7b --cluster mi300x-192gb --devices 16 --framework megatron-deepspeed -o amd.json",
    "plan encoder": "plan bert-large --cluster dgx-a100-40gb --devices 8 --fix recompute=none -o encoder.json",
    "plan windows": "plan gemma2-9b {h100} --devices 8 --global-batch 16 --fix mp=4 -o windows.json",
    "plan other devices": "plan gpt-nano.json --cluster mixed-cluster.json --devices 4 --fix recompute=none -o mixed.json",
    "plan what does not fit": "plan gpt3-175b --cluster dgx-a100-80gb --devices 32 --global-batch 64 --fix mp=4",
    "simulate 1F1B": "simulate gpt3-175b mp=8,pp=8,dp=2,micro_batch=1 {a100} --devices 128 --global-batch 96 --trace 1f1b.json"
                     " --json",
    "simulate virtual stages": "simulate gpt3-175b mp=8,pp=8,virtual_stages=4,micro_batch=1,recompute=full {a100} --devices 64"
                               " --global-batch 64 --trace virtual-trace.json --json",
    "simulate GPipe": "simulate gpt2-medium pp=4,dp=2,micro_batch=2,schedule=gpipe {a100} --devices 8 --global-batch 64 --json"
                      " --framework bundled-cuda --trace gpipe.json",
    "simulate zero bubble": "simulate gpt2-medium pp=4,micro_batch=2,schedule=zb_h2 {a100} --devices 4 --global-batch 32 --json"
                            " --framework megatron-lm-zero-bubble --trace zb-h2.json",
    "simulate dual pipe": "simulate llama-nano.json pp=2,virtual_stages=2,schedule=dualpipe_v,micro_batch=1 {cpu} --devices 2"
                          " --json --trace dual-pipe.json",
    "simulate uneven stages": "simulate llama2-7b pp=4,dp=2,micro_batch=1,layer_split=7+9+9+7 {h100} --devices 8"
                              " --global-batch 32 --json --trace uneven.json",
    "simulate experts": "simulate mixtral-8x7b mp=2,sharding_degree=8,sharding_stage=1,ep=8,micro_batch=1,recompute=full {h100}"
                        " --devices 16 --global-batch 64 --json --trace experts-trace.json",
    "simulate deepseek-v3": "simulate deepseek-v3 pp=16,sharding_degree=64,sharding_stage=1,ep=64,micro_batch=1,recompute=full"
                            " {h100} --devices 1024 --global-batch 4096 --json",
    "simulate context": "simulate llama3-8b cp=4,mp=2,sharding_degree=2,sharding_stage=1,micro_batch=1,sequence_parallel=true"
                        " --sequence 32k {h100} --devices 16 --global-batch 16 --json --trace context-trace.json",
    "simulate stage 2": "simulate gpt2-xl sharding_degree=8,sharding_stage=2,micro_batch=4 {a100} --devices 8 --global-batch 64"
                        " --framework deepspeed --json --trace stage-2.json",
    "simulate stage 3": "simulate gpt2-xl sharding_degree=16,sharding_stage=3,micro_batch=4,recompute=full"
                        " --cluster dgx-a100-40gb --devices 16 --framework deepspeed-zero3-2021 --json --trace stage-3.json",
    "simulate stage 3, flat": "simulate gpt2-xl sharding_degree=16,sharding_stage=3,micro_batch=4,recompute=full {a100}"
                              " --devices 16 --framework deepspeed-zero3-1188-flat --json",
    "simulate fsdp": "simulate llama3-8b sharding_degree=8,sharding_stage=3,micro_batch=1,recompute=full,prefetch_depth=1 {h100}"
                     " --devices 8 --global-batch 16 --framework pytorch-fsdp --json --trace fsdp-trace.json",
    "simulate owners": "simulate gpt2-xl sharding_degree=8,sharding_stage=1,sharding_owner=greedy,micro_batch=4 {a100}"
                       " --devices 8 --global-batch 64 --framework paddle-2.2 --json --trace owners-trace.json",
    "simulate 8 bits": "simulate llama3-8b mp=2,sharding_degree=4,sharding_stage=1,micro_batch=1,fp8=delayed {h100} --devices 8"
                       " --global-batch 32 --json --trace eight-trace.json",
    "simulate offload": "simulate gpt3-1.3b sharding_degree=4,sharding_stage=1,micro_batch=1,offload_optimizer_percent=50"
                        " --cluster rtx-4090 --devices 4 --global-batch 32 --json --trace offload-trace.json",
    "simulate all ranks": "simulate gpt2-small mp=2,pp=2,dp=2,micro_batch=4 {a100} --devices 8 --unfolded --json"
                          " --trace all-ranks.json",
    "simulate other devices": "simulate gpt-nano.json pp=2,dp=2,micro_batch=2 --cluster mixed-cluster.json --devices 4 --json",
    "explain": "explain dense.json --verbose",
    "explain, JSON": "explain latent.json --json",
    "explain why not": "explain dense.json --why-not mp=8,micro_batch=2",
    "explain a script": "explain --from gpt3-175b.sh {a100} --devices 1024 --json",
    "sweep": "sweep llama3-8b {h100} --devices 8,16 --fix micro_batch=1 --fix recompute=none --tokens 1T --price 2.5/h"
             " --csv sweep.csv --html sweep.html",
    "export megatron": "export dense.json --to megatron --allow-lossy -o train.sh",
    "export megatron, experts": "export experts.json --to megatron --allow-lossy -o train-experts.sh",
    "export megatron-bridge": "export latent.json --to megatron-bridge --allow-lossy -o bridge.yaml",
    "export torchtitan": "export torchtitan.json --to torchtitan --allow-lossy -o train.toml",
    "export deepspeed": "export deepspeed.json --to deepspeed --allow-lossy -o ds.json",
    "export fsdp": "export fsdp.json --to fsdp --allow-lossy -o fsdp.py",
    "export accelerate": "export fsdp.json --to accelerate --allow-lossy -o accelerate-config.yaml",
    "export paddle": "export paddlenlp.json --to paddle --allow-lossy -o paddle.json",
    "export slurm": "export zero-bubble.json --to slurm --data gpt-nano.json --time 30 -o job.sh",
    "import Megatron-LM": "import gpt3-175b.sh -o gpt3.json --strategy-out gpt3-strategy.json"
                          " --framework-out gpt3-framework.json",
    "import torchtitan": "import torchtitan.toml --devices 8 --json",
    "import config.json": "import qwen3-30b-a3b.json --global-batch 64 -o qwen.json",
    "report": "report dense.json -o report.html",
    "check": "check experts.json --json",
}
# Strategies that "programs" lowers in each framework, whose Programs say what a rank runs and where its buffers lie.
STRATEGIES = [
    "micro_batch=4",
    "dp=4,micro_batch=2",
    "dp=4,micro_batch=1,grad_bucket_bytes=64KiB,overlap_grad_reduce=true",
    "dp=2,micro_batch=2,grad_reduction=per_micro_batch",
    "dp=2,micro_batch=2,gradient_merge=fused",
    "mp=2,dp=2,micro_batch=2",
    "mp=2,dp=2,micro_batch=2,sequence_parallel=true",
    "mp=2,pp=2,micro_batch=1,sequence_parallel=true,recompute=selective",
    "mp=2,pp=2,micro_batch=2,split_boundary=true",
    "pp=4,micro_batch=1",
    "pp=2,dp=2,micro_batch=2,schedule=gpipe",
    "pp=2,micro_batch=1,virtual_stages=2,recompute=full",
    "pp=2,micro_batch=2,recompute=full,recompute_layers=1",
    "pp=2,micro_batch=2,recompute=modules,recompute_modules=norms+mlp",
    "pp=2,micro_batch=2,recompute=per_op",
    "pp=2,micro_batch=1,schedule=zb_h1",
    "pp=2,dp=2,micro_batch=1,schedule=zb_h2",
    "pp=2,micro_batch=1,virtual_stages=2,schedule=zb_v",
    "pp=2,dp=2,micro_batch=1,virtual_stages=2,schedule=dualpipe_v",
    "pp=2,micro_batch=2,layer_split=1+3",
    "sharding_degree=4,sharding_stage=1,micro_batch=2",
    "sharding_degree=4,sharding_stage=1,micro_batch=2,sharding_owner=greedy",
    "pp=2,sharding_degree=2,sharding_stage=2,micro_batch=1,recompute=full",
    "sharding_degree=4,sharding_stage=3,micro_batch=1",
    "dp=2,sharding_degree=2,sharding_stage=3,micro_batch=2,recompute=full",
    "mp=2,sharding_degree=2,sharding_stage=3,micro_batch=2,prefetch_depth=2",
    "cp=2,dp=2,micro_batch=2",
    "cp=2,mp=2,micro_batch=1,context_exchange=all_gather",
    "cp=2,pp=2,micro_batch=1,context_exchange=all_to_all",
    "dp=4,ep=2,micro_batch=2",
    "sharding_degree=4,sharding_stage=1,ep=4,micro_batch=1,recompute=full",
    "mp=2,dp=2,ep=2,etp=2,micro_batch=2,sequence_parallel=true",
    "pp=2,dp=2,ep=2,micro_batch=1,expert_dispatch=all_gather",
    "dp=2,ep=2,micro_batch=1,overlap_expert_exchange=true",
    "pp=2,sharding_degree=2,sharding_stage=1,micro_batch=1,offload_optimizer_percent=50",
    "pp=2,sharding_degree=2,sharding_stage=1,micro_batch=1,offload_activations_percent=50",
    "dp=2,micro_batch=2,fp8=delayed",
    "mp=2,micro_batch=2,fp8=rowwise",
    "sharding_degree=2,sharding_stage=1,micro_batch=2,gradient_type=computed,moment_type=bf16",
    "dp=2,micro_batch=2,flatten=none,cast_placement=every_use",
]


def programs():
    """A framework need not have every strategy: what it lacks is refused, and that is held, too."""
    frameworks = sorted(path.stem for path in (ROOT / "models/presets/frameworks").glob("*.json"))
    jobs = ["expert-nano.json", "bf16-gpt-nano.json", "llama-nano.json"]
    for framework, (at, strategy) in itertools.product(frameworks, enumerate(STRATEGIES)):
        job = jobs[0] if ",ep=" in strategy else "bf16-gpt-nano.json" if "fp8" in strategy else jobs[1 + at % 2]
        yield f"{framework} {strategy}", f"passes {job} {strategy} --after plan_memory --framework {framework}"


LISTS = {"repeated": REPEATED, "others": OTHERS, "large": LARGE, "sixty": SIXTY, "programs": dict(programs())}
