// A framework's own flags for what a strategy asks of it.
#include "interop/flags/framework_flags.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

std::string flags(const char* framework, DType precision, const char* fields) {
  Job job;
  job.precision = precision;
  job.layers = 4;
  return framework_flags(framework_by_name(framework), job, parse_strategy(fields));
}

TEST(FrameworkFlags, NameRecomputeAndPrecision) {
  EXPECT_EQ(flags("megatron-lm", DType::bf16, "mp=2"), "");
  EXPECT_EQ(flags("megatron-lm", DType::bf16, "recompute=full"),
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1");
  EXPECT_EQ(flags("megatron-lm", DType::bf16, "recompute=full,recompute_layers=3,fp8=delayed"),
            "--recompute-granularity full --recompute-method block --recompute-num-layers 3 "
            "--fp8-format hybrid --fp8-recipe delayed");
  EXPECT_EQ(flags("megatron-lm", DType::bf16,
                  "sharding_degree=2,gradient_type=computed,main_gradient_type=computed,"
                  "main_parameter_type=f16,moment_type=bf16"),
            "--main-grads-dtype bf16 --grad-reduce-in-bf16 --use-precision-aware-optimizer "
            "--main-params-dtype fp16 --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16");
  EXPECT_EQ(flags("megatron-lm", DType::bf16, "main_parameter_type=remainder,moment_type=fp8"),
            "--use-precision-aware-optimizer --exp-avg-dtype fp8 --exp-avg-sq-dtype fp8");
  EXPECT_EQ(flags("megatron-lm", DType::bf16,
                  "sharding_degree=2,offload_optimizer_percent=35,overlap_offload=true"),
            "--optimizer-cpu-offload --optimizer-offload-fraction 0.35 "
            "--overlap-cpu-optimizer-d2h-h2d --use-precision-aware-optimizer");
  EXPECT_EQ(flags("megatron-lm", DType::bf16, "pp=4,layer_split=3+4+2+0"),
            "--pipeline-model-parallel-layout 'Et*3|t*4|t*2|L'");
  EXPECT_EQ(flags("megatron-lm", DType::bf16, "pp=2,virtual_stages=2,layer_split=4+0+3+2"),
            "--pipeline-model-parallel-layout 'Et*4||t*3|t*2L'");
  EXPECT_EQ(flags("megatron-lm", DType::bf16, "pp=2,dp=2,rank_order=mp-cp-pp-sharding-dp"),
            "--use-tp-pp-dp-mapping");
  EXPECT_EQ(flags("megatron-lm", DType::f16, "gradient_type=computed"), "");
  EXPECT_EQ(flags("megatron-lm", DType::f16, "mp=2"), "--accumulate-allreduce-grads-in-fp32");
  EXPECT_EQ(flags("megatron-lm-2022", DType::f16, "recompute=selective"),
            "--recompute-granularity selective");
  EXPECT_EQ(flags("pytorch-fsdp", DType::bf16, "dp=2,sharding_degree=2,sharding_stage=3"),
            "ShardingStrategy.HYBRID_SHARD");
  EXPECT_EQ(flags("torchtitan", DType::bf16, "recompute=full,recompute_list=1+3"),
            "--activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option 2");
  EXPECT_EQ(
      flags("torchtitan", DType::bf16, "recompute=per_op,fp8=rowwise"),
      "--activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option op "
      "--model.converters quantize.linear.float8 --quantize.linear.float8.recipe_name rowwise");
  EXPECT_EQ(flags("bundled", DType::bf16, "recompute=full"), "");
}

}  // namespace
}  // namespace plimsoll
