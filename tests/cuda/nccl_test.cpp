// The NCCL communicator on emulated GPUs and after NCCL's manual: every kind moves what the local
// communicator does, whole runs train as on threads, and what does not come is named. That is a
// test of sources: NCCL itself runs on no machine without GPUs.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "graph/op_table.h"
#include "host_emulation.h"
#include "passes/pipeline.h"
#include "runtime/cuda/backend.h"
#include "runtime/half.h"
#include "tests/cuda/four_gpus.h"
#include "tests/runtime/nano.h"
#include "tests/runtime/patience.h"
#include "tests/runtime/thread_processes.h"

namespace plimsoll {
namespace {

using std::chrono::milliseconds;

class Nccl : public FourGpus {};

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

/// How many rows rank `rank` gives expert `expert`: for some pairs none.
std::int64_t rows_given(std::int64_t rank, std::int64_t expert) { return (3 * rank + expert) % 3; }

/// Every rank's ends of the rows that it gives each of `experts`.
std::vector<std::int32_t> ends_of_all(std::int64_t ranks, std::int64_t experts) {
  std::vector<std::int32_t> all_ends;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    std::int32_t end = 0;
    for (std::int64_t e = 0; e < experts; ++e)
      all_ends.push_back(end += std::int32_t(rows_given(rank, e)));
  }
  return all_ends;
}

/// Programs that name collectives of rows.
std::vector<Program> programs_of_rows(const Grid& grid, const Group& group) {
  std::vector<Program> programs = programs_of(grid, group);
  programs[0].routines[0].ops[0].stream = Stream::experts;
  return programs;
}

// 4 ranks of 300 experts each exchange more at once than a group of NCCL takes.
TEST_F(Nccl, RowsGoToTheRanksOfTheirExpertsAndBack) {
  const Grid grid = grid_of(4, 1, 1);
  const Group group{{Axis::mp}, false};
  constexpr std::int64_t kRanks = 4, kExperts = 1200, kColumns = 2, kMost = 2000;
  const std::vector<std::int32_t> all_ends = ends_of_all(kRanks, kExperts);
  on_gpus(kRanks, [&](Processes& processes, RankDevice& device) {
    const auto communicator =
        processes.make_communicator(programs_of_rows(grid, group), kPatient, &device);
    const std::int64_t rank = processes.index();
    const auto allocate = [&](std::int64_t values) { return device.allocate(Bytes(values * 4)); };
    std::byte *const ends = allocate(kRanks * kExperts), *const own = allocate(kMost * kColumns),
                     *const got = allocate(kMost * kColumns);
    device.write(ends, std::as_bytes(std::span(all_ends)));
    const std::vector<float> before = values_of(rank, kMost * kColumns);
    device.write(own, std::as_bytes(std::span(before)));
    CommunicationLabel label{0, "test", 0};
    label.stream = Stream::experts;
    const auto run = [&](OpKind kind, bool shared, std::byte* from, std::byte* to) {
      CollectiveOperand operand{DType::f32, kMost * kColumns, from, to};
      operand.rows = {reinterpret_cast<const std::int32_t*>(ends), kExperts, kColumns, shared,
                      kMost};
      communicator->wait(
          communicator->post_collective(kind, CollectiveParams{group}, operand, label));
      return read(device, to, kMost * kColumns);
    };
    /// Rows of experts [first, last), by expert and then by rank.
    const auto sorted = [&](std::int64_t first, std::int64_t last) {
      std::vector<float> values;
      for (std::int64_t e = first; e < last; ++e) {
        for (std::int64_t from = 0; from < kRanks; ++from) {
          const std::vector<float> rows = values_of(from, kMost * kColumns);
          const std::int64_t end = all_ends[std::size_t(from * kExperts + e)] * kColumns;
          const std::int64_t begin = end - rows_given(from, e) * kColumns;
          values.insert(values.end(), rows.begin() + begin, rows.begin() + end);
        }
      }
      return values;
    };
    const auto expect_begins = [&](const std::vector<float>& values,
                                   const std::vector<float>& expected) {
      ASSERT_LE(expected.size(), values.size());
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), values.begin())) << "rank " << rank;
    };
    const std::int64_t mine = kExperts / kRanks;
    expect_begins(run(OpKind::exchange_rows, false, own, got),
                  sorted(rank * mine, rank * mine + mine));
    std::vector<float> given = before;
    given.resize(std::size_t(all_ends[std::size_t((rank + 1) * kExperts - 1)] * kColumns));
    device.fill(own, 0, Bytes(kMost * kColumns * 4));
    expect_begins(run(OpKind::return_rows, false, got, own), given);
    for (std::byte* memory : {ends, own, got}) device.free(memory);
  });
}

TEST_F(Nccl, RowsOfAllRanksAreGatheredAndSummed) {
  const Grid grid = grid_of(3, 1, 1);
  const Group group{{Axis::mp}, false};
  constexpr std::int64_t kRanks = 3, kExperts = 4, kMost = 16;
  const std::vector<std::int32_t> all_ends = ends_of_all(kRanks, kExperts);
  on_gpus(kRanks, [&](Processes& processes, RankDevice& device) {
    const auto communicator =
        processes.make_communicator(programs_of_rows(grid, group), kPatient, &device);
    const std::int64_t rank = processes.index();
    std::byte *const ends = device.allocate(Bytes(kRanks * kExperts * 4)),
                     *const own = device.allocate(Bytes(kMost * 4)),
                     *const all = device.allocate(Bytes(kMost * 4));
    device.write(ends, std::as_bytes(std::span(all_ends)));
    const std::vector<float> before = values_of(rank, kMost);
    device.write(own, std::as_bytes(std::span(before)));
    CommunicationLabel label{0, "test", 0};
    label.stream = Stream::experts;
    label.call = 1;  // ends are read once
    const auto run = [&](OpKind kind, std::byte* from, std::byte* to) {
      CollectiveOperand operand{DType::f32, kMost, from, to};
      operand.rows = {reinterpret_cast<const std::int32_t*>(ends), kExperts, 1, true, kMost};
      communicator->wait(
          communicator->post_collective(kind, CollectiveParams{group}, operand, label));
      return read(device, to, kMost);
    };
    const std::vector<float> together = run(OpKind::all_gather_rows, own, all);
    std::size_t row = 0;
    for (std::int64_t e = 0; e < kExperts; ++e) {
      for (std::int64_t from = 0; from < kRanks; ++from) {
        const std::int64_t end = all_ends[std::size_t(from * kExperts + e)];
        for (std::int64_t i = end - rows_given(from, e); i < end; ++i)
          EXPECT_EQ(together[row++], values_of(from, kMost)[std::size_t(i)]) << "rank " << rank;
      }
    }
    const std::vector<float> sums = run(OpKind::reduce_scatter_rows, all, own);
    const std::int64_t count = all_ends[std::size_t((rank + 1) * kExperts - 1)];
    for (std::int64_t i = 0; i < count; ++i)
      EXPECT_EQ(sums[std::size_t(i)], kRanks * values_of(rank, kMost)[std::size_t(i)]);
    for (std::byte* memory : {ends, own, all}) device.free(memory);
  });
}

TEST_F(Nccl, RowsWaitForTheirNumberUpToTheDeadline) {
  const Grid grid = grid_of(2, 1, 1);
  const Group group{{Axis::mp}, false};
  std::string said;
  on_gpus(2, [&](Processes& processes, RankDevice& device) {
    const auto communicator =
        processes.make_communicator(programs_of_rows(grid, group), milliseconds(200), &device);
    if (processes.index() == 1) return;
    std::byte* const data = device.allocate(Bytes(64));
    CommunicationLabel label{0, "test", 0};
    label.stream = Stream::experts;
    communicator->post_collective(OpKind::all_gather, CollectiveParams{group},
                                  {DType::i32, 8, data}, label);
    CollectiveOperand operand{DType::f32, 4, data, data};
    operand.rows = {reinterpret_cast<const std::int32_t*>(data), 4, 1, false, 4};
    try {
      communicator->post_collective(OpKind::exchange_rows, CollectiveParams{group}, operand, label);
    } catch (const EnvironmentError& error) {
      said = error.what();
    }
    communicator->abort("test");
    device.free(data);
  });
  EXPECT_NE(said.find("rank 0 waited longer than the deadline of 0.2 s"), std::string::npos)
      << said;
  EXPECT_NE(said.find("exchange_rows of 4 elements"), std::string::npos) << said;
}

TEST_F(Nccl, TransfersBothWaysBetweenStages) {
  const Grid grid = grid_of(1, 2, 2);
  on_gpus(4, [&](Processes& processes, RankDevice& device) {
    const auto communicator =
        processes.make_communicator(programs_of(grid, Group{{Axis::dp}}), kPatient, &device);
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
    device.free(data);
  });
  EXPECT_NE(said.find("rank 0 waited longer than the deadline of 0.2 s"), std::string::npos)
      << said;
  EXPECT_NE(said.find("all_reduce of 16 elements"), std::string::npos) << said;
  EXPECT_NE(said.find("post 1 of rank 0: rank 1 still computes (rank 0: waits, step 1, post 1: "),
            std::string::npos)
      << said;
}

TEST_F(Nccl, TwoRanksOnOneGpuAreRefused) {
  cuda_on_cpu::set_device_count(1);
  std::string said;
  try {
    on_gpus(2, [&](Processes& processes, RankDevice& device) {
      processes.make_communicator(programs_of(grid_of(1, 2, 1), Group{{Axis::dp}}), kPatient,
                                  &device);
    });
  } catch (const EnvironmentError& error) {
    said = error.what();
  }
  EXPECT_NE(said.find("each needs a separate GPU"), std::string::npos) << said;
  EXPECT_NE(said.find("Duplicate GPU"), std::string::npos) << said;
}

struct TrainedCase {
  std::string name, strategy, model = "gpt-nano";
  double capacity = 0;
  bool drops = false;  ///< rows for which ranks have no memory
};

class NcclTraining : public Nccl, public testing::WithParamInterface<TrainedCase> {};

INSTANTIATE_TEST_SUITE_P(
    Strategies, NcclTraining,
    testing::Values(
        TrainedCase{"Mp", "mp=2"}, TrainedCase{"Pp", "pp=2"},
        TrainedCase{"DualPipe", "pp=2,dp=2,schedule=dualpipe"}, TrainedCase{"MpPp", "mp=2,pp=2"},
        TrainedCase{"Sharding3Mp", "mp=2,sharding_degree=2,sharding_stage=3"},
        TrainedCase{"Ring", "cp=4"},
        TrainedCase{"HeadsExchanged", "mp=2,cp=2,context_exchange=all_to_all"},
        TrainedCase{"Experts", "dp=2,ep=2,expert_rows_percent=200", "expert-nano"},
        TrainedCase{"ExpertsOfFourGathered", "dp=4,ep=4,expert_dispatch=all_gather", "expert-nano"},
        TrainedCase{"ExpertsCapacity", "dp=4,ep=4,expert_rows_percent=400", "expert-nano", 0.75},
        TrainedCase{"ExpertsDropping", "dp=4,ep=4,expert_rows_percent=100", "expert-nano", 0, true},
        TrainedCase{"ExpertsTogether",
                    "mp=2,dp=2,ep=2,etp=2,sequence_parallel=true,expert_rows_percent=200",
                    "expert-nano"},
        TrainedCase{"ExpertsInTurns",
                    "dp=2,ep=2,expert_rows_percent=200,overlap_expert_exchange=true",
                    "expert-nano"}),
    [](const auto& info) { return info.param.name; });

/// Losses of one rank.
std::vector<double> losses_of_one(const Job& job, TrainOptions options) {
  static std::map<double, std::vector<double>> by_capacity;
  std::vector<double>& losses = by_capacity[job.experts->capacity];
  if (!losses.empty()) return losses;
  options.checking = false;
  const Framework framework = bundled_framework();
  const auto one = lower({job, parse_strategy("micro_batch=4"), framework});
  return losses = train(one, job, framework, nano_text(), options).measured.losses;
}

// The emulation sums in rank order, too: bit by bit what ranks that share a GPU compute.
TEST_P(NcclTraining, LosesAndBytesOfTheLocalCommunicator) {
  const TrainedCase& c = GetParam();
  Strategy strategy = parse_strategy(c.strategy);
  strategy.gradients.bucket_bytes = Bytes(64 << 10);
  Job job = read_job(tests_folder() / (c.model + ".json"));
  job.global_batch = job.experts ? 8 : 4;
  job.layers = c.name == "DualPipe" ? 4 : 2;  // there ranks have a stage of both directions
  if (job.experts) {
    job.experts->capacity = c.capacity;
    job.experts->drop_overflow = c.drops;
    job.experts->shared_ffn_hidden = 8;
  }
  strategy.micro_batch = job.global_batch / (strategy.dp * strategy.sharding_degree * 2);
  const Framework framework = bundled_framework();
  const std::vector<Program> programs = lower({job, strategy, framework});
  TrainOptions options;
  options.steps = 3;
  options.warm_up_steps = 0;
  options.checking = true;
  options.deadline = kPatient;
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
  EXPECT_EQ(nccl.experts, local.experts);
  if (job.experts && !c.drops) {  // every way of sharing experts out trains the same model
    const std::vector<double> one = losses_of_one(job, options);
    for (std::size_t step = 0; step < 3; ++step)
      EXPECT_NEAR(nccl.losses[step], one[step], 1e-5 * one[step]);
  }
  EXPECT_EQ(nccl.gradient_norms, local.gradient_norms);
  ASSERT_EQ(nccl.timeline.memory.size(), local.timeline.memory.size());
  for (std::size_t i = 0; i < nccl.timeline.memory.size(); ++i)
    EXPECT_EQ(nccl.timeline.memory[i].peak, local.timeline.memory[i].peak);
}

}  // namespace
}  // namespace plimsoll
