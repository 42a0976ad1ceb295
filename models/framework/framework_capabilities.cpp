// The limits of each framework preset, with the document or code that says so.
#include "models/framework/framework_families.h"

namespace plimsoll {
namespace {

using Stages = SetOf<std::int64_t>;
using Schedules = SetOf<Schedule>;
using Recomputes = SetOf<Recompute>;
using Layers = SetOf<RecomputedLayers>;
constexpr Recomputes kNoneOrFull = {Recompute::none, Recompute::full};
constexpr SetOf<RankOrder> kUsualOrder = {RankOrder::sharding_dp_pp};
constexpr SetOf<GradientType> kBothGradients = {GradientType::f32, GradientType::computed};

constexpr const char* kMegatronArguments = "Megatron-LM megatron/arguments.py";
constexpr const char* kPrecisionAware =
    "Megatron-LM core/optimizer/optimizer_config.py: --use-precision-aware-optimizer";

/// Schedules of every Megatron-LM.
void use_megatron_schedules(Capabilities& can) {
  can.schedules = {Schedules{Schedule::one_f_one_b},
                   "Megatron-LM schedules.py, forward_backward_pipelining_with_interleaving and "
                   "_without_interleaving; zero bubble is a fork"};
}

/// DeepSpeed's pipeline, and its ZeRO beside it.
void use_deepspeed_pipeline(Capabilities& can) {
  can.rank_orders = {kUsualOrder,
                     "DeepSpeed runtime/pipe/topology.py, PipeModelDataParallelTopology: pipe, "
                     "data, model, from outer to inner"};
  can.pipeline_sharding_stages = {
      Stages{1},
      "DeepSpeed runtime/pipe/engine.py: \"ZeRO-2 and ZeRO-3 are incompatible with "
      "pipeline parallelism\""};
  can.schedules = {Schedules{Schedule::one_f_one_b},
                   "DeepSpeed runtime/pipe/schedule.py, TrainSchedule"};
  can.virtual_stages = {false, "DeepSpeed runtime/pipe/schedule.py: a stage is one part"};
  can.uneven_split = can.empty_parts = {true, "DeepSpeed runtime/pipe/module.py, partition_method"};
  can.split_boundary = {true, "DeepSpeed runtime/pipe/engine.py, is_pipe_partitioned"};
  can.recomputed_layers = {
      Layers{RecomputedLayers::all},
      "DeepSpeed runtime/pipe/module.py: activation_checkpoint_interval is of all layers"};
}

/// ZeRO of DeepSpeed before MiCS and hpZ.
void use_deepspeed_zero(Capabilities& can) {
  can.sharding_stages = {Stages{1, 2, 3}, "DeepSpeed runtime/zero: stage_1_and_2.py and stage3.py"};
  can.replicated_shards = {false, "DeepSpeed runtime/zero: all data-parallel ranks share one copy"};
  can.whole_owners = {false, "DeepSpeed runtime/zero: flat ranges of elements"};
  can.keeps_gathered = {false,
                        "DeepSpeed runtime/zero/config.py: stage3_max_reuse_distance says "
                        "what is kept"};
}

}  // namespace

Capabilities megatron_lm_2021_can() {
  Capabilities can;
  can.sharding_stages = can.pipeline_sharding_stages = {
      Stages{}, "Megatron-LM model/distributed.py: gradients are summed whole"};
  can.whole_owners = {false, "Megatron-LM megatron/optimizer: a rank updates all that it has"};
  can.rank_orders = {kUsualOrder,
                     "Megatron-LM megatron/mpu/initialize.py, initialize_model_parallel: tensor, "
                     "data, pipeline, from inner to outer"};
  use_megatron_schedules(can);
  can.virtual_stages = {true, kMegatronArguments};
  can.uneven_split = {false,
                      "Megatron-LM model/transformer.py: num_layers must be divisible by "
                      "pipeline_model_parallel_size"};
  can.empty_parts = {false, can.uneven_split.source};
  can.split_boundary = {true, "Megatron-LM p2p_communication.py, scatter_gather_tensors"};
  can.recompute = {kNoneOrFull,
                   "Megatron-LM megatron/arguments.py: --activations-checkpoint-method "
                   "uniform and block, of whole layers"};
  can.recomputed_layers = {Layers{RecomputedLayers::all, RecomputedLayers::first},
                           "Megatron-LM megatron/arguments.py: --activations-checkpoint-num-layers "
                           "counts from the first of a stage"};
  can.context_exchange = {{}, "Megatron-LM megatron/arguments.py of then has none"};
  can.fp8 = {{Fp8::none}, "Megatron-LM megatron/arguments.py of then has none"};
  can.gradient_types = {kBothGradients,
                        "Megatron-LM megatron/arguments.py: --accumulate-allreduce-grads-in-fp32, "
                        "which bf16 always has and fp16 where it is asked for"};
  can.computed_by_default = {{DType::f16}, can.gradient_types.source};
  return can;
}

Capabilities megatron_lm_2022_can() {
  Capabilities can = megatron_lm_2021_can();
  can.sharding_stages = can.pipeline_sharding_stages = {
      Stages{1}, "Megatron-LM optimizer/distrib_optimizer.py: it shards states alone"};
  can.replicated_shards = {
      false,
      "Megatron-LM optimizer/distrib_optimizer.py of then: all data-parallel ranks share "
      "one copy"};
  can.whole_owners = {false, "Megatron-LM optimizer/distrib_optimizer.py: flat ranges of elements"};
  can.recompute = {Recomputes{Recompute::none, Recompute::selective, Recompute::full},
                   "Megatron-LM megatron/arguments.py: --recompute-granularity"};
  can.recomputed_layers = {Layers{RecomputedLayers::all, RecomputedLayers::first},
                           "Megatron-LM megatron/arguments.py: --recompute-method block, "
                           "--recompute-num-layers; selective takes no count"};
  return can;
}

Capabilities megatron_lm_can() {
  Capabilities can = megatron_lm_2022_can();
  can.replicated_shards = {true,
                           "Megatron-LM megatron/arguments.py: "
                           "--num-distributed-optimizer-instances"};
  can.rank_orders = {{RankOrder::sharding_dp_pp, RankOrder::pp_sharding_dp},
                     "Megatron-LM megatron/training/initialize.py, initialize_model_parallel: "
                     "order tp-cp-ep-dp-pp, with --use-tp-pp-dp-mapping tp-cp-ep-pp-dp"};
  can.uneven_split = can.empty_parts = {
      true, "Megatron-LM megatron/arguments.py: --pipeline-model-parallel-layout"};
  can.split_boundary = {false,
                        "Megatron-LM core/pipeline_parallel/p2p_communication.py sends tensors "
                        "whole; --sequence-parallel splits them"};
  can.context_exchange = {
      {ContextExchange::ring, ContextExchange::all_gather, ContextExchange::all_to_all},
      "Megatron-LM megatron/arguments.py: --cp-comm-type p2p, allgather, a2a"};
  can.fp8 = {{Fp8::none, Fp8::delayed, Fp8::current},
             "Megatron-LM megatron/arguments.py: --fp8-format, --fp8-recipe delayed and "
             "tensorwise, by Transformer Engine"};
  can.gradient_types = {kBothGradients,
                        "Megatron-LM megatron/arguments.py: --grad-reduce-in-bf16; fp16 unless "
                        "--accumulate-allreduce-grads-in-fp32"};
  can.main_gradient_types = {kBothGradients, std::string(kPrecisionAware) + ", --main-grads-dtype"};
  can.master_types = {
      {MasterType::f32, MasterType::f16, MasterType::remainder},
      std::string(kPrecisionAware) + ", --main-params-dtype; store_param_remainders"};
  can.moment_types = {{MomentType::f32, MomentType::bf16, MomentType::f16, MomentType::fp8},
                      std::string(kPrecisionAware) + ", --exp-avg-dtype, --exp-avg-sq-dtype"};
  can.fp8_parameters = {true, "Megatron-LM megatron/arguments.py: --fp8-param-gather"};
  can.narrow_states_unsharded = {
      false,
      std::string(kPrecisionAware) + ", and --fp8-param-gather: only with distributed optimizer"};
  return can;
}

Capabilities megatron_fsdp_can() {
  Capabilities can = megatron_lm_can();
  can.pipeline = {false,
                  "Megatron Core documentation, Megatron FSDP: tensor, expert and context "
                  "parallelism beside it"};
  can.sharding_stages = {Stages{1, 2, 3},
                         "Megatron-LM megatron/arguments.py: --data-parallel-sharding-strategy "
                         "optim, optim_grads, optim_grads_params"};
  return can;
}

Capabilities megatron_deepspeed_can() {
  Capabilities can = megatron_lm_2021_can();
  use_deepspeed_zero(can);
  use_deepspeed_pipeline(can);
  can.gradient_types = {kBothGradients,
                        "DeepSpeed runtime/engine.py, communication_data_type: that of the model, "
                        "or f32"};
  can.computed_by_default = {{DType::f16}, "DeepSpeed runtime/bf16_optimizer.py adds up in f32"};
  return can;
}

Capabilities megatron_deepspeed_2020_can() {
  Capabilities can = megatron_deepspeed_can();
  can.sharding_stages = {Stages{1}, can.pipeline_sharding_stages.source};
  return can;
}

Capabilities deepspeed_zero3_can() {
  Capabilities can;
  use_deepspeed_zero(can);
  can.pipeline = {false,
                  "DeepSpeed runtime/pipe/engine.py: \"ZeRO-2 and ZeRO-3 are incompatible with "
                  "pipeline parallelism\""};
  can.tensor_parallel = {false, "DeepSpeedExamples bing_bert: a model that has none"};
  can.recompute = {kNoneOrFull, "DeepSpeedExamples bing_bert: checkpoint_activations"};
  can.recomputed_layers = {Layers{RecomputedLayers::all}, can.recompute.source};
  can.context_exchange = {{}, "DeepSpeedExamples bing_bert: a model that has none"};
  can.fp8 = {{Fp8::none}, "DeepSpeedExamples bing_bert: a model that has none"};
  can.gradient_types = {kBothGradients,
                        "DeepSpeed runtime/engine.py, communication_data_type: that of the model, "
                        "or f32"};
  can.computed_by_default = {{DType::f16}, "DeepSpeed runtime/bf16_optimizer.py adds up in f32"};
  return can;
}

Capabilities pytorch_fsdp_can() {
  Capabilities can;
  can.pipeline = {false,
                  "torch.distributed.fsdp shards over data-parallel ranks; pipelines are "
                  "torch.distributed.pipelining"};
  can.tensor_parallel = {false,
                         "torch.distributed.fsdp shards over data-parallel ranks; tensors are "
                         "split by torch.distributed.tensor.parallel"};
  can.sharding_stages = {Stages{2, 3},
                         "torch.distributed.fsdp, ShardingStrategy: SHARD_GRAD_OP and FULL_SHARD"};
  can.replicas = {true, "torch.distributed.fsdp, ShardingStrategy: NO_SHARD"};
  can.replicated_shards = {true, "torch.distributed.fsdp, ShardingStrategy: HYBRID_SHARD"};
  can.whole_owners = {false, "torch.distributed.fsdp: equal parts of flat parameters"};
  can.rank_orders = {kUsualOrder,
                     "torch.distributed.fsdp, ShardingStrategy: HYBRID_SHARD shards within a node "
                     "and replicates across nodes"};
  can.recompute = {kNoneOrFull,
                   "torch.distributed.algorithms._checkpoint, "
                   "apply_activation_checkpointing: modules that a check picks"};
  can.context_exchange = {{ContextExchange::ring, ContextExchange::all_gather},
                          "torch.distributed.tensor.experimental, context_parallel: rotate_method "
                          "alltoall passes parts around, allgather gathers"};
  can.fp8 = {{Fp8::none, Fp8::delayed, Fp8::current, Fp8::tensorwise, Fp8::rowwise},
             "torchao.float8, or Transformer Engine as in llm-foundry"};
  can.gradient_types = {kBothGradients, "torch.distributed.fsdp, MixedPrecision: reduce_dtype"};
  can.most_prefetch_depth = {
      1, "torch.distributed.fsdp, backward_prefetch and forward_prefetch: the next one"};
  can.keeps_gathered = {true, "torch.distributed.fsdp, ShardingStrategy: SHARD_GRAD_OP"};
  can.live_limits = {false, "torch.distributed.fsdp has limit_all_gathers alone"};
  return can;
}

Capabilities torchtitan_can() {
  Capabilities can = pytorch_fsdp_can();
  can.pipeline = {true, "torchtitan parallelisms/pipeline_llama.py"};
  can.tensor_parallel = {true, "torchtitan parallelisms/parallelize_llama.py, apply_tp"};
  can.sharding_stages = {Stages{2, 3},
                         "torch.distributed.fsdp fully_shard: reshard_after_forward false and "
                         "true"};
  can.pipeline_sharding_stages = {
      Stages{1},
      "torch/distributed/pipelining/stage.py, backward_maybe_with_nosync: gradients are whole and "
      "parameters gathered until the last micro-batch"};
  can.replicas = {true, "torchtitan parallelisms/parallelize_llama.py, apply_ddp"};
  can.replicas_beside_others = {
      false, "torchtitan parallelisms/parallelize_llama.py: apply_ddp where nothing else is split"};
  can.replicated_shards = {true, "torchtitan job_config: data_parallel_replicate_degree"};
  can.rank_orders = {kUsualOrder,
                     "torchtitan parallelisms/parallel_dims.py, build_mesh: pp, dp_replicate, "
                     "dp_shard, cp, tp, from outer to inner"};
  can.whole_owners = {false, "torch.distributed.fsdp fully_shard: equal parts of each parameter"};
  can.schedules = {{Schedule::one_f_one_b, Schedule::gpipe},
                   "torch/distributed/pipelining/schedules.py; its zero bubble is interleaved"};
  can.uneven_split =
      can.empty_parts = {true, "torchtitan job_config: pipeline_parallel_split_points"};
  can.split_boundary = {false, "torch/distributed/pipelining/stage.py sends tensors whole"};
  can.recompute = {{Recompute::none, Recompute::full, Recompute::per_op},
                   "torchtitan job_config: activation_checkpoint.mode none, full, selective"};
  can.recomputed_layers = {Layers{RecomputedLayers::all, RecomputedLayers::every_nth},
                           "torchtitan job_config: activation_checkpoint.selective_ac_option"};
  can.fp8 = {{Fp8::none, Fp8::tensorwise, Fp8::rowwise}, "torchtitan docs/float8.md: torchao"};
  can.gradient_types = {{GradientType::f32},
                        "torchtitan job_config: training.mixed_precision_reduce is float32"};
  can.most_prefetch_depth = {Capabilities().most_prefetch_depth.value,
                             "torch.distributed.fsdp fully_shard: set_modules_to_forward_prefetch"};
  can.keeps_gathered = {true, "torch.distributed.fsdp fully_shard: reshard_after_forward false"};
  can.live_limits = {false, "torch.distributed.fsdp fully_shard has none"};
  return can;
}

Capabilities pytorch_autocast_can() {
  constexpr const char* kReplicas =
      "torch.nn.parallel.DistributedDataParallel: each rank has the whole model";
  Capabilities can;
  can.pipeline = can.tensor_parallel = {false, kReplicas};
  can.sharding_stages = {Stages{}, kReplicas};
  can.recompute = {kNoneOrFull, "DeepLearningExamples BERT/modeling.py: checkpoint_activations"};
  can.recomputed_layers = {Layers{RecomputedLayers::all}, can.recompute.source};
  can.context_exchange = {{}, kReplicas};
  can.fp8 = {{Fp8::none}, "torch.autocast op reference"};
  can.gradient_types = {{GradientType::f32}, "torch.autocast: parameters and gradients are f32"};
  return can;
}

Capabilities paddle_can() {
  Capabilities can;
  can.sharding_stages = can.pipeline_sharding_stages = {
      Stages{1, 2, 3},
      "Paddle fleet/meta_optimizers/sharding_optimizer.py, with or without a pipeline"};
  can.rank_orders = {SetOf<RankOrder>{RankOrder::sharding_pp_dp},
                     "Paddle fleet/meta_optimizers/sharding_optimizer.py, _build_groups: only mp, "
                     "sharding, pp, dp, from inner to outer"};
  can.schedules = {{Schedule::one_f_one_b, Schedule::gpipe},
                   "Paddle fluid/optimizer.py, PipelineOptimizer: schedule_mode"};
  can.virtual_stages = {false, "Paddle fluid/optimizer.py, PipelineOptimizer: a device is a stage"};
  can.uneven_split = can.empty_parts = {true, "Paddle device_guard: each op says its stage"};
  can.recompute = {kNoneOrFull, "Paddle fluid/optimizer.py, RecomputeOptimizer: checkpoints"};
  can.context_exchange = {{}, "Paddle fleet/meta_optimizers has none"};
  can.fp8 = {{Fp8::none}, "Paddle contrib/mixed_precision has none"};
  can.gradient_types = {kBothGradients,
                        "Paddle fluid/optimizer.py: gradients of micro-batches are merged in f32, "
                        "with fp16_allreduce in f16"};
  return can;
}

}  // namespace plimsoll
