// Updates by the host take the time of their bytes: on the link out, in the host's memory, and on
// the link back.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "graph/op_table.h"
#include "passes/pipeline.h"
#include "simulator/memory/allocation_replay.h"
#include "simulator/simulate.h"

namespace plimsoll {
namespace {

/// Rates far apart, so that each term shows.
Cluster cluster() {
  Cluster cluster;
  cluster.name = "by hand";
  cluster.nodes = 1;
  cluster.devices_per_node = 8;
  cluster.device.name = "device";
  cluster.device.memory = Bytes(std::int64_t{1} << 34);
  cluster.device.memory_bandwidth = BytesPerSecond(1e12);
  cluster.device.peak_fp32 = cluster.device.peak_bf16 = FlopsPerSecond(1e14);
  cluster.levels = {{"link", 8, BytesPerSecond(1e11), Seconds(0)}};
  cluster.host = Host{BytesPerSecond(1e10), BytesPerSecond(2e10), BytesPerSecond(1e11)};
  cluster.source = "by hand";
  return cluster;
}

constexpr double kOut = 1e10, kBack = 2e10, kMemory = 0.43 * 1e11, kDevice = 1e12;

struct Result {
  double step = 0;           ///< seconds
  std::int64_t updated = 0;  ///< elements of a rank
  std::int64_t parts = 0;    ///< into which the host's share is cut
};

Result run(const std::string& fields, DType precision = DType::bf16) {
  Job job = read_job(std::filesystem::path(PLIMSOLL_SOURCE_DIR) / "tests/gpt-nano.json");
  job.precision = precision;
  Framework framework = framework_by_name("megatron-lm");
  framework.host.dispatch.op = framework.host.waits.time = Seconds(0);
  const auto programs = lower({job, parse_strategy(fields), framework});
  Result result;
  const CostModel costs(cluster(), std::nullopt, framework);
  result.step = simulate(programs, costs).step_time.value();
  result.updated = owned_elements(programs[0]);
  for (const Call& call : programs[0].calls) {
    for (const Op& op : programs[0].at(call.routine).ops)
      result.parts += op.kind == OpKind::host_adamw;
  }
  return result;
}

/// Times are rounded to picoseconds op by op, and hosts take one for each op.
constexpr double kRounding = 1e-8;

TEST(Offload, AWholeUpdateByTheHostIsThreeTerms) {
  for (const char* fields : {"dp=1", "dp=2", "sharding_degree=2", "pp=2"}) {
    SCOPED_TRACE(fields);
    const Result plain = run(fields),
                 host = run(std::string(fields) + ",offload_optimizer_percent=100");
    const auto n = double(plain.updated);
    if (std::string(fields) == "pp=2") {  // the stage with more parameters takes longer
      EXPECT_GT(host.step, plain.step + 0.4 * n * 28 / kMemory);
      continue;
    }
    const double terms = n * (4 / kOut + 28 / kMemory + 2 / kBack);
    EXPECT_NEAR(host.step - plain.step, terms - n * 30 / kDevice, kRounding);
  }
}

TEST(Offload, TheDeviceUpdatesItsShareBesideTheHost) {
  const Result plain = run("sharding_degree=2"),
               half = run("sharding_degree=2,offload_optimizer_percent=50");
  const auto n = double(plain.updated) / 2;
  EXPECT_NEAR(half.step - plain.step, n * (4 / kOut + 28 / kMemory + 2 / kBack - 60 / kDevice),
              kRounding);
}

TEST(Offload, ParametersOfF32TravelWhole) {
  const Result plain = run("dp=1", DType::f32),
               host = run("dp=1,offload_optimizer_percent=100", DType::f32);
  const auto n = double(plain.updated);
  EXPECT_NEAR(host.step - plain.step, n * (4 / kOut + 28 / kMemory + 4 / kBack - 28 / kDevice),
              kRounding);
}

// The host is the slowest of the three: of the copies the first part out and the last part back
// remain.
TEST(Offload, OverlappedCopiesLeaveTheirFirstAndLastPart) {
  const Result plain = run("dp=1"),
               parts = run("dp=1,offload_optimizer_percent=100,overlap_offload=true");
  ASSERT_GT(parts.parts, 10);
  const auto n = double(plain.updated), each = n / double(parts.parts);
  EXPECT_NEAR(parts.step - plain.step,
              each * 4 / kOut + n * 28 / kMemory + each * 2 / kBack - n * 30 / kDevice,
              0.001 * plain.step);
}

// One link is slower than the computation by far, so the step is its bytes: all that layers keep
// but what the first copy out waits for, and what follows the last copy back.
TEST(Offload, CopiesOfActivationsOverlapAndShowWhereTheLinkIsSlow) {
  const auto step = [](double rate, const std::string& fields) {
    Job job = read_job(std::filesystem::path(PLIMSOLL_SOURCE_DIR) / "tests/gpt-nano.json");
    Framework framework = framework_by_name("bundled-cuda");
    framework.host.dispatch.op = framework.host.waits.time = Seconds(0);
    const auto programs = lower({job, parse_strategy(fields), framework});
    Cluster slow = cluster();
    slow.host->to_host = slow.host->to_device = BytesPerSecond(rate);
    Bytes copied;
    for (const Call& call : programs[0].calls) {
      for (const Op& op : programs[0].at(call.routine).ops) {
        if (is_of_host(op.kind)) copied += bytes_moved(op, programs[0].at(call.routine).tensors);
      }
    }
    const double time =
        simulate(programs, CostModel(slow, std::nullopt, framework)).step_time.value();
    return std::pair(time, double(copied.count()));
  };
  const std::string fields = "micro_batch=2", offload = fields + ",offload_activations_percent=100";
  const double plain = step(1e9, fields).first;
  EXPECT_EQ(step(1e9, fields).second, 0);
  const auto [fast, copied] = step(1e15, offload);
  EXPECT_NEAR(fast, plain, 1e-6 * plain);
  const double rate = copied / (1000 * plain);  // copies take a thousand steps
  EXPECT_NEAR(step(rate, offload).first, copied / rate, 0.01 * copied / rate);
  // Copies that take as long as the computation are partly under it.
  const double even = step(copied / plain, offload).first;
  EXPECT_LT(even, 1.6 * plain);
  EXPECT_GT(even, plain);
}

/// In a caching allocator memory is freed at the same points as in the arena.
TEST(Offload, ActivationsInTheHostsMemoryTakeNoBlocks) {
  const auto peaks = [](const std::string& fields) {
    Job job = read_job(std::filesystem::path(PLIMSOLL_SOURCE_DIR) / "tests/gpt-nano.json");
    job.layers = 12;
    const Framework framework = framework_by_name("megatron-lm");
    const Program program = lower({job, parse_strategy(fields), framework}).front();
    const AllocatorUse use = replay_allocations(program, framework, Bytes(std::int64_t{1} << 40));
    return std::pair(double(use.allocated.count()), double(memory_peak(program).peak.count()));
  };
  const auto [allocated, planned] = peaks("micro_batch=4");
  const auto [allocated_less, planned_less] =
      peaks("micro_batch=4,offload_activations_percent=100,offload_activations_layers=9");
  EXPECT_LT(planned_less, planned);
  EXPECT_NEAR(allocated - allocated_less, planned - planned_less, 0.1 * (planned - planned_less));
}

TEST(Offload, WithoutAHostPcie4IsAssumed) {
  Op op;
  op.kind = OpKind::copy_to_host;
  op.inputs = {TensorId(0)};
  op.outputs = {TensorId(1)};
  std::vector<Tensor> tensors(2);
  for (Tensor& tensor : tensors) tensor.shape = {1'000'000};
  Cluster without = cluster();
  without.host.reset();
  const CostModel costs(without, std::nullopt, framework_by_name("megatron-lm"));
  const Estimate estimate = costs.local(op, tensors);
  EXPECT_DOUBLE_EQ(estimate.time.value(), 4e6 / 25e9);
  EXPECT_EQ(estimate.provenance, Provenance::datasheet);
}

}  // namespace
}  // namespace plimsoll
