// On emulated GPUs and NCCL, each rank in turn keeps the others waiting: its host posts nothing, or
// its GPU has a kernel that does not end. The rank whose deadline passes names it.
#include <gtest/gtest.h>

#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "host_emulation.h"
#include "runtime/comm/rank_status.h"
#include "runtime/cuda/backend.h"
#include "runtime/cuda/queue.h"
#include "tests/cuda/four_gpus.h"
#include "tests/runtime/patience.h"
#include "tests/runtime/thread_processes.h"
#include "tests/states.h"

namespace plimsoll {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kDeadline{20};
const std::string kOp = "run all_reduce of 16 elements";

/// One rank of a data-parallel job, which sums 16 elements in each step.
class Rank {
 public:
  Rank(Processes& processes, CudaQueue& queue) : processes_(processes), queue_(queue) {
    Program program;
    program.grid.degree[std::size_t(Axis::dp)] = processes.size();
    program.routines.emplace_back().ops.emplace_back().kind = OpKind::all_reduce;
    program.routines[0].ops[0].params = CollectiveParams{group_};
    communicator_ = processes.make_communicator(std::vector{program}, kPatient, &queue);
    data_ = queue.allocate(Bytes(64));
  }
  ~Rank() { queue_.free(data_); }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void post(std::int64_t step) {
    communicator_->wait(communicator_->post_collective(OpKind::all_reduce, CollectiveParams{group_},
                                                       {DType::f32, 16, data_}, {step, "test", 0}));
  }
  void finish(milliseconds deadline) { queue_.finish(deadline, "the kernels of the step"); }
  std::string statuses() const { return processes_.status_board()->describe(kPatient); }

 private:
  const Group group_{{Axis::dp}, false};
  Processes& processes_;
  CudaQueue& queue_;
  std::unique_ptr<Communicator> communicator_;
  std::byte* data_ = nullptr;
};

struct FailureCase {
  std::int64_t ranks = 2, bad = 0;
  bool on_gpu = false;
};

class NcclFailures : public FourGpus, public testing::WithParamInterface<FailureCase> {};

std::vector<FailureCase> all_failures() {
  std::vector<FailureCase> all;
  for (std::int64_t ranks = 2; ranks <= 8; ++ranks) {
    for (std::int64_t bad = 0; bad < ranks; ++bad) {
      for (const bool on_gpu : {false, true}) all.push_back({ranks, bad, on_gpu});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, NcclFailures, testing::ValuesIn(all_failures()),
                         [](const auto& info) {
                           return std::to_string(info.param.bad) + "Of" +
                                  std::to_string(info.param.ranks) +
                                  (info.param.on_gpu ? "Gpu" : "Host");
                         });

/// Waits until the statuses of all ranks have `text` so often.
void wait_for(const Rank& rank, const std::string& text, std::int64_t times) {
  const auto count = [&] {
    std::int64_t found = 0;
    const std::string all = rank.statuses();
    for (auto at = all.find(text); at != std::string::npos; at = all.find(text, at + 1)) ++found;
    return found;
  };
  const auto until = std::chrono::steady_clock::now() + kPatient;
  while (count() < times) {
    ASSERT_LT(std::chrono::steady_clock::now(), until) << rank.statuses();
    std::this_thread::yield();
  }
}

// The rank whose deadline passes begins to wait when all others are where they stay.
TEST_P(NcclFailures, OfEachRankAreNamed) {
  const auto [ranks, bad, on_gpu] = GetParam();
  cuda_on_cpu::set_device_count(int(ranks));
  const std::int64_t first = bad == 0 ? 1 : 0;  // its deadline passes
  const auto endless = std::make_shared<cuda_on_cpu::Together>();
  std::latch expired(1);
  std::string said;
  const auto run = [&, bad = bad, ranks = ranks, on_gpu = on_gpu](Processes& processes,
                                                                  CudaQueue& queue) {
    Rank rank(processes, queue);
    rank.post(0);
    rank.finish(kPatient);
    const bool is_bad = processes.index() == bad;
    if (is_bad && on_gpu) {
      cuda_on_cpu::promise(queue.device().stream);
      cuda_on_cpu::enqueue_promised(queue.device().stream, [&] { return std::vector{endless}; });
    }
    if (is_bad && !on_gpu) expired.wait();
    rank.post(1);
    if (processes.index() == first) {
      wait_for(rank, "waits, step 2, post 2: to " + kOp, ranks - 2);
      if (on_gpu) wait_for(rank, "step 2, post 2: kernels before it is to " + kOp, 1);
      try {
        rank.finish(kDeadline);
      } catch (const EnvironmentError& error) {
        said = error.what();
      }
      cuda_on_cpu::finish(*endless);
      expired.count_down();
    }
    rank.finish(kPatient);
  };
  run_as_processes(std::vector<std::string>(std::size_t(ranks), "host"), over_nccl,
                   [&](Processes& processes) {
                     const auto backend = make_cuda_backend(processes.index());
                     backend->enter_thread();
                     run(processes, dynamic_cast<CudaQueue&>(*backend->device()));
                   });

  const std::string who = std::to_string(bad), in = kOp + " in routine test";
  EXPECT_TRUE(states(said, {"0.02 s", "step 2", "routine test", kOp,
                            "post 2 of rank " + std::to_string(first), "rank " + who + " still"}));
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const std::string state = rank != bad ? "waits, step 2, post 2: to "
                              : on_gpu    ? "computes, step 2, post 2: kernels before it is to "
                                          : "computes, step 1, post 1: to ";
    EXPECT_NE(said.find("rank " + std::to_string(rank) + ": " + state + in), std::string::npos)
        << said;
  }
}

// A receive that is posted before the kernel is no reason for the rank to wait.
TEST_F(FourGpus, AKernelBehindAPostedReceiveIsNamed) {
  Grid grid;
  grid.degree[std::size_t(Axis::pp)] = 2;
  std::vector<Program> programs(2);
  for (std::int64_t stage = 0; stage < 2; ++stage) {
    Program& program = programs[std::size_t(stage)];
    program.grid = grid;
    program.stage = stage;
    for (const OpKind kind : {OpKind::send, OpKind::recv}) {
      Op& op = program.routines.emplace_back().ops.emplace_back();
      op.kind = kind;
      op.params = TransferParams{stage == 0 ? 1 : -1};
    }
  }
  const auto endless = std::make_shared<cuda_on_cpu::Together>();
  std::string said;
  run_as_processes({"host", "host"}, over_nccl, [&](Processes& processes) {
    const auto backend = make_cuda_backend(processes.index());
    backend->enter_thread();
    auto& queue = dynamic_cast<CudaQueue&>(*backend->device());
    const auto communicator = processes.make_communicator(programs, kPatient, &queue);
    std::byte* const data = queue.allocate(Bytes(64));
    const bool first = processes.index() == 0;
    const std::int64_t offset = first ? 1 : -1;
    CommunicationLabel to{0, "test", 0}, from{0, "test", 0};
    to.stream = first ? Stream::send_next : Stream::send_previous;
    from.stream = first ? Stream::recv_next : Stream::recv_previous;
    // Stage 0 sends what it got, behind a kernel that does not end; stage 1 sends behind that.
    const auto received = communicator->post_recv(offset, Bytes(64), data, from);
    if (first) {
      cuda_on_cpu::promise(queue.device().stream);
      cuda_on_cpu::enqueue_promised(queue.device().stream, [&] { return std::vector{endless}; });
    } else {
      communicator->wait(received);
    }
    const auto sent = communicator->post_send(offset, Bytes(64), data, to);
    if (first) communicator->wait(received);
    communicator->wait(sent);
    if (!first) {
      const auto until = std::chrono::steady_clock::now() + kPatient;
      const auto states = [&] { return processes.status_board()->describe(kPatient); };
      while (states().find("kernels before it") == std::string::npos) {
        ASSERT_LT(std::chrono::steady_clock::now(), until) << states();
        std::this_thread::yield();
      }
      try {
        queue.finish(kDeadline, "the kernels of the step");
      } catch (const EnvironmentError& error) {
        said = error.what();
      }
      cuda_on_cpu::finish(*endless);
    }
    queue.finish(kPatient, "the kernels of the step");
    queue.free(data);
  });
  EXPECT_TRUE(plimsoll::states(
      said, {"64 bytes", "post 1 of rank 1", "rank 0: computes", "step 1", "kernels before it"}));
}

}  // namespace
}  // namespace plimsoll
