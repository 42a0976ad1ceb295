// Framework presets: found by name, sourced, consistent.
#include "models/framework/framework.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "models/calibration/calibration.h"
#include "models/calibration/measured_framework.h"
#include "models/framework/op_by_op.h"
#include "tests/states.h"

namespace plimsoll {
namespace {

TEST(Framework, PresetsAreFoundByNameAndSourced) {
  for (const Framework& framework : all_frameworks()) {
    EXPECT_EQ(framework_by_name(framework.name), framework);
    EXPECT_GT(framework.host.dispatch.op, Seconds(0)) << framework.name;
    EXPECT_GT(framework.memory.process.workspace, Bytes(0)) << framework.name;
    EXPECT_GE(framework.memory.process.communicator, framework.memory.process.pair_communicator);
    for (const std::string* source :
         {&framework.sources.kernels, &framework.sources.parallelism, &framework.sources.dispatch,
          &framework.sources.memory, &framework.sources.allocator}) {
      EXPECT_FALSE(source->empty()) << framework.name;
    }
    const bool waits = framework.host.waits.transfers_hold != TransfersHold::nothing ||
                       framework.host.waits.for_norm || framework.host.waits.for_batch ||
                       framework.host.waits.for_gathers || framework.host.waits.before_exchange ||
                       framework.host.waits.before_products;
    EXPECT_EQ(waits, !framework.sources.waits.empty()) << framework.name;
    // The gathers that overlap are those of the distributed optimizer.
    EXPECT_TRUE(!framework.can.ranks.sharding_stages.value.empty() ||
                !framework.parallelism.overlap.param_gather)
        << framework.name;
  }
}

TEST(Framework, GeluWithItsBiasIsOneKernelWhereverOtherFormulasAreSeveralOps) {
  const Framework framework = framework_by_name("megatron-deepspeed");
  EXPECT_TRUE(runs_by_op(framework, OpKind::swiglu));
  EXPECT_TRUE(runs_by_op(framework, OpKind::rotary));
  for (const OpKind one : {OpKind::bias_gelu, OpKind::bias_gelu_backward, OpKind::rms_norm,
                           OpKind::softmax, OpKind::softmax_backward})
    EXPECT_FALSE(runs_by_op(framework, one));
}

TEST(Framework, VocabulariesArePadded) {
  EXPECT_EQ(padded_vocabulary(50257, framework_by_name("megatron-lm"), 8), 51200);
  EXPECT_EQ(padded_vocabulary(51200, framework_by_name("megatron-lm-2021"), 8), 51200);
  EXPECT_EQ(padded_vocabulary(50257, framework_by_name("bundled"), 1), 50257);
  EXPECT_EQ(padded_vocabulary(50257, framework_by_name("bundled"), 8), 50264);
}

TEST(Framework, AnUnknownNameIsRefusedWithTheNearest) {
  try {
    framework_by_name("torchtitn");
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_TRUE(states(error.what(), {"\"torchtitn\"", "torchtitan?", "planner list frameworks"}));
  }
  EXPECT_EQ(read_framework("megatron").name, "megatron-lm");
  EXPECT_EQ(read_framework("fsdp").name, "pytorch-fsdp");
}

TEST(MeasuredMemory, ReplacesTheBundledRuntimesAndNoOthers) {
  Calibration calibration;
  calibration.date = "2026-11-21";
  calibration.communicator = CommunicatorKind::nccl;
  calibration.context_memory = Bytes(500);
  calibration.communicator_memory = {{CommunicatorKind::nccl, 2, Bytes(20)},
                                     {CommunicatorKind::nccl, 8, Bytes(80)},
                                     {CommunicatorKind::nccl, 4, Bytes(40)},
                                     {CommunicatorKind::mpi, 16, Bytes(1)}};
  const Framework bundled = bundled_cuda_framework();
  const Framework measured = with_measured_memory(bundled, calibration);
  EXPECT_EQ(measured.memory.process.context, Bytes(500));
  EXPECT_EQ(measured.memory.process.pair_communicator, Bytes(20));
  EXPECT_EQ(measured.memory.process.communicator, Bytes(80));
  EXPECT_NE(measured.sources.memory.find("measured on 2026-11-21"), std::string::npos);
  EXPECT_TRUE(lowers_alike(measured, bundled));
  Framework fitted = framework_by_name("megatron-lm-2021");
  fitted.host.dispatch.op = Seconds(1);
  fitted.host.waits.time = Seconds(1);
  fitted.host.dispatch.backward = 2;
  EXPECT_TRUE(lowers_alike(fitted, framework_by_name("megatron-lm-2021")));
  EXPECT_FALSE(lowers_alike(measured, bundled_framework()));
  Framework other = measured;
  other.memory.process.workspace = Bytes(1);
  EXPECT_FALSE(lowers_alike(other, bundled));

  const Framework megatron = framework_by_name("megatron-lm");
  EXPECT_EQ(with_measured_memory(megatron, calibration), megatron);
  EXPECT_EQ(with_measured_memory(bundled, Calibration()), bundled);
}

}  // namespace
}  // namespace plimsoll
