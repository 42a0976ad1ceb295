// The NCCL communicator on emulated GPUs and after NCCL's manual: every kind moves what the local
// communicator does, whole runs train as on threads, and what does not come is named. That is a
// test of sources: NCCL itself runs on no machine without GPUs.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "graph/op_table.h"
#include "host_emulation.h"
#include "passes/pipeline.h"
#include "runtime/comm/nccl/communicator.h"
#include "runtime/cuda/backend.h"
#include "runtime/half.h"
#include "tests/runtime/nano.h"
#include "tests/runtime/thread_processes.h"

namespace plimsoll {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kPatient{60'000};

std::unique_ptr<Communicator> over_nccl(Processes& processes, std::span<const Program> programs,
                                        milliseconds deadline, RankDevice* device) {
  return make_nccl_communicator(processes, programs, deadline, *device);
}

class Nccl : public testing::Test {
 protected:
  void SetUp() override { cuda_on_cpu::set_device_count(4); }
  void TearDown() override { cuda_on_cpu::set_device_count(1); }
};

/// Runs `work` on `ranks` GPUs of one host.
void on_gpus(std::int64_t ranks, const std::function<void(Processes&, RankDevice&)>& work) {
  run_as_processes(std::vector<std::string>(std::size_t(ranks), "host"), over_nccl,
                   [&](Processes& processes) {
                     const auto backend = make_cuda_backend(processes.index());
                     backend->enter_thread();
                     work(processes, *backend->device());
                   });
}

Grid grid_of(std::int64_t mp, std::int64_t dp, std::int64_t pp) {
  Grid grid;
  grid.degree[std::size_t(Axis::mp)] = mp;
  grid.degree[std::size_t(Axis::dp)] = dp;
  grid.degree[std::size_t(Axis::pp)] = pp;
  return grid;
}

/// Names a group, and the transfers between neighbouring stages.
std::vector<Program> programs_of(const Grid& grid, const Group& group) {
  std::vector<Program> programs;
  for (std::int64_t stage = 0; stage < grid[Axis::pp]; ++stage) {
    Program& program = programs.emplace_back();
    program.grid = grid;
    program.stage = stage;
    Routine& routine = program.routines.emplace_back();
    routine.ops.emplace_back().kind = OpKind::all_reduce;
    routine.ops.back().params = CollectiveParams{group};
    if (stage + 1 == grid[Axis::pp]) continue;
    for (const OpKind kind : {OpKind::send, OpKind::recv}) {
      routine.ops.emplace_back().kind = kind;
      routine.ops.back().params = TransferParams{1};
    }
  }
  return programs;
}

std::vector<float> values_of(std::int64_t rank, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), float(100 * (rank + 1)));
  return values;
}

std::vector<float> read(RankDevice& device, const std::byte* from, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  device.read(from, std::as_writable_bytes(std::span(values)));
  return values;
}

TEST_F(Nccl, EveryCollectiveOverPartsOfTheRanks) {
  const Grid grid = grid_of(2, 2, 1);
  const Group group{{Axis::dp}, false};
  constexpr std::int64_t kCount = 8;
  on_gpus(4, [&](Processes& processes, RankDevice& device) {
    const std::vector<Program> programs = programs_of(grid, group);
    const auto communicator = processes.make_communicator(programs, kPatient, &device);
    EXPECT_EQ(communicator->name(), "nccl");
    EXPECT_EQ(communicator->library().rfind("NCCL 2.", 0), 0u) << communicator->library();
    const std::int64_t rank = processes.index();
    const std::vector<std::int64_t> ranks = members(grid, group, rank);
    const auto index = std::int64_t(rank != ranks[0]);
    std::byte* const data = device.allocate(Bytes(kCount * 4));
    for (const OpKind kind : {OpKind::all_reduce, OpKind::reduce_scatter, OpKind::all_gather,
                              OpKind::reduce, OpKind::broadcast}) {
      const std::vector<float> before = values_of(rank, kCount);
      device.write(data, std::as_bytes(std::span(before)));
      CollectiveParams params{group};
      params.root = 1;
      CommunicationLabel label{0, "test", 0};
      label.described = true;
      const CommunicationTimes times = communicator->wait(
          communicator->post_collective(kind, params, {DType::f32, kCount, data}, label));
      EXPECT_LE(times.begin, times.end);
      std::vector<float> expected = before;
      for (std::int64_t i = 0; i < kCount; ++i) {
        const float first = values_of(ranks[0], kCount)[std::size_t(i)];
        const float second = values_of(ranks[1], kCount)[std::size_t(i)];
        const bool mine = i / (kCount / 2) == index;
        float& value = expected[std::size_t(i)];
        if (kind == OpKind::all_reduce) value = first + second;
        if (kind == OpKind::reduce_scatter && mine) value = first + second;
        if (kind == OpKind::all_gather) value = i < kCount / 2 ? first : second;
        if (kind == OpKind::reduce && index == 1) value = first + second;
        if (kind == OpKind::broadcast) value = second;
      }
      EXPECT_EQ(read(device, data, kCount), expected) << to_text(kind) << " rank " << rank;
    }
    device.free(data);
  });
}

TEST_F(Nccl, RingsAndExchangesOfParts) {
  const Grid grid = grid_of(4, 1, 1);
  constexpr std::int64_t kCount = 8;
  on_gpus(4, [&](Processes& processes, RankDevice& device) {
    const Group group{{Axis::mp}, false};
    const auto communicator =
        processes.make_communicator(programs_of(grid, group), kPatient, &device);
    const std::int64_t rank = processes.index();
    std::byte *const data = device.allocate(Bytes(kCount * 4)), *const got = device.allocate(
                                                                    Bytes(kCount * 4));
    const std::vector<float> before = values_of(rank, kCount);
    device.write(data, std::as_bytes(std::span(before)));
    const CollectiveOperand operand{DType::f32, kCount, data, got};
    const auto run = [&](OpKind kind, std::int64_t shift) {
      CollectiveParams params{group};
      params.shift = shift;
      communicator->wait(communicator->post_collective(kind, params, operand, {0, "test", 0}));
      return read(device, got, kCount);
    };
    EXPECT_EQ(run(OpKind::ring_shift, 1), values_of((rank + 3) % 4, kCount));
    EXPECT_EQ(run(OpKind::ring_shift, -1), values_of((rank + 1) % 4, kCount));
    std::vector<float> expected;
    for (std::int64_t other = 0; other < 4; ++other) {
      for (std::int64_t i = 0; i < 2; ++i)
        expected.push_back(values_of(other, kCount)[std::size_t(2 * rank + i)]);
    }
    EXPECT_EQ(run(OpKind::all_to_all, 1), expected);
    EXPECT_EQ(read(device, data, kCount), before);
    device.free(data);
    device.free(got);
  });
}

TEST_F(Nccl, TransfersBothWaysBetweenStages) {
  const Grid grid = grid_of(1, 2, 2);
  on_gpus(4, [&](Processes& processes, RankDevice& device) {
    const auto communicator =
        processes.make_communicator(programs_of(grid, Group{{Axis::dp}, false}), kPatient, &device);
    const std::int64_t rank = processes.index();
    const std::int64_t stage = grid.coordinates(rank)[std::size_t(Axis::pp)];
    const std::int64_t other = pipeline_peer(grid, rank, stage == 0 ? 1 : -1);
    std::byte* const data = device.allocate(Bytes(64));
    std::byte* const got = device.allocate(Bytes(64));
    const std::vector<float> values = values_of(rank, 16);
    device.write(data, std::as_bytes(std::span(values)));
    const std::int64_t offset = stage == 0 ? 1 : -1;
    CommunicationLabel to{0, "test", 0}, from{0, "test", 0};
    to.stream = stage == 0 ? Stream::send_next : Stream::send_previous;
    from.stream = stage == 0 ? Stream::recv_next : Stream::recv_previous;
    const auto sent = communicator->post_send(offset, Bytes(64), data, to);
    const auto received = communicator->post_recv(offset, Bytes(64), got, from);
    communicator->wait(sent);
    communicator->wait(received);
    EXPECT_EQ(read(device, got, 16), values_of(other, 16)) << "rank " << rank;
    device.free(data);
    device.free(got);
  });
}

TEST_F(Nccl, ARankThatDoesNotComeIsNamedAfterTheDeadline) {
  const Grid grid = grid_of(1, 2, 1);
  const Group group{{Axis::dp}, false};
  std::string said;
  on_gpus(2, [&](Processes& processes, RankDevice& device) {
    const auto communicator =
        processes.make_communicator(programs_of(grid, group), milliseconds(200), &device);
    if (processes.index() == 1) return;
    std::byte* const data = device.allocate(Bytes(64));
    CommunicationLabel label{0, "test", 0};
    label.described = true;
    const auto ticket = communicator->post_collective(OpKind::all_reduce, CollectiveParams{group},
                                                      {DType::f32, 16, data}, label);
    try {
      communicator->wait(ticket);
    } catch (const EnvironmentError& error) {
      said = error.what();
    }
    communicator->abort("test");
  });
  EXPECT_NE(said.find("rank 0 waited longer than the deadline of 0.2 s"), std::string::npos)
      << said;
  EXPECT_NE(said.find("all_reduce of 16 elements"), std::string::npos) << said;
}

TEST_F(Nccl, TwoRanksOnOneGpuAreRefused) {
  cuda_on_cpu::set_device_count(1);
  std::string said;
  try {
    on_gpus(2, [&](Processes& processes, RankDevice& device) {
      processes.make_communicator(programs_of(grid_of(1, 2, 1), Group{{Axis::dp}, false}), kPatient,
                                  &device);
    });
  } catch (const EnvironmentError& error) {
    said = error.what();
  }
  EXPECT_NE(said.find("each needs a GPU of its own"), std::string::npos) << said;
  EXPECT_NE(said.find("Duplicate GPU"), std::string::npos) << said;
}

struct Case {
  std::string name, strategy;
};

class NcclTraining : public Nccl, public testing::WithParamInterface<Case> {};

INSTANTIATE_TEST_SUITE_P(
    Strategies, NcclTraining,
    testing::Values(Case{"Mp", "mp=2"}, Case{"Pp", "pp=2"}, Case{"MpPp", "mp=2,pp=2"},
                    Case{"Sharding3Mp", "mp=2,sharding_degree=2,sharding_stage=3"},
                    Case{"Ring", "cp=4"},
                    Case{"HeadsExchanged", "mp=2,cp=2,context_exchange=all_to_all"}),
    [](const auto& info) { return info.param.name; });

// The emulation sums in rank order, too: bit by bit what ranks that share a GPU compute.
TEST_P(NcclTraining, LosesAndBytesOfTheLocalCommunicator) {
  Strategy strategy = parse_strategy(GetParam().strategy);
  strategy.grad_bucket_bytes = Bytes(64 << 10);
  strategy.micro_batch = 4 / (strategy.dp * strategy.sharding_degree * 2);
  Job job = read_job(tests_folder() / "gpt-nano.json");
  job.global_batch = 4;
  const Framework framework = bundled_framework();
  const std::vector<Program> programs = lower({job, strategy, framework});
  TrainOptions options;
  options.steps = 3;
  options.warm_up_steps = 0;
  options.checking = true;
  options.backend_of_rank = make_cuda_backend;
  const Measured local = train(programs, job, framework, nano_text(), options).measured;
  Measured nccl;
  run_as_processes(std::vector<std::string>(std::size_t(programs[0].grid.world_size()), "host"),
                   over_nccl, [&](Processes& processes) {
                     TrainOptions own = options;
                     own.processes = &processes;
                     TrainResult result = train(programs, job, framework, nano_text(), own);
                     if (processes.index() == 0) nccl = result.measured;
                   });
  EXPECT_EQ(nccl.communicator, "nccl");
  EXPECT_EQ(nccl.losses, local.losses);
  EXPECT_EQ(nccl.gradient_norms, local.gradient_norms);
  ASSERT_EQ(nccl.timeline.memory.size(), local.timeline.memory.size());
  for (std::size_t i = 0; i < nccl.timeline.memory.size(); ++i)
    EXPECT_EQ(nccl.timeline.memory[i].peak, local.timeline.memory[i].peak);
}

}  // namespace
}  // namespace plimsoll
