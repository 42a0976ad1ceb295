// Only the emulation can show these facts about the cuda backend: graphs are launched, and messages
// say that there is no GPU or no memory.
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "device_emulation.h"
#include "host_emulation.h"
#include "runtime/cuda/backend.h"
#include "tests/runtime/attention_cases.h"
#include "tests/runtime/nano.h"
#include "tests/runtime/op_runner.h"
#include "tests/states.h"

namespace plimsoll {
namespace {

std::int64_t launches_of_run(bool replay) {
  TrainOptions options;
  options.steps = 3;  // one by one, captured, traced
  options.warm_up_steps = 0;
  options.replay = replay;
  options.backend_of_rank = make_cuda_backend;
  const std::int64_t before = cuda_on_cpu::graph_launches();
  Job job = nano_job();
  job.layers = 1;
  train_nano(nano_programs(nano_strategy("", 4, Recompute::none), job), options, job);
  return cuda_on_cpu::graph_launches() - before;
}

TEST(CudaEmulation, KernelsAreReplayedAsGraphsUnlessAskedNotTo) {
  EXPECT_EQ(launches_of_run(false), 0);
  EXPECT_GT(launches_of_run(true), 10);
}

/// Two streams write to one place, the second behind an event of the first or not. Returns the
/// values that they leave.
std::set<int> left_by_streams(bool waits) {
  std::set<int> left;
  cudaStream_t first = nullptr, second = nullptr;
  cudaEvent_t written = nullptr;
  EXPECT_EQ(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking), cudaSuccess);
  EXPECT_EQ(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking), cudaSuccess);
  EXPECT_EQ(cudaEventCreateWithFlags(&written, cudaEventDisableTiming), cudaSuccess);
  for (unsigned seed = 1; seed < 20; ++seed) {
    cuda_on_cpu::set_stream_order(seed);
    int value = 0;
    cuda_on_cpu::enqueue(first, [&] { value = 1; });
    EXPECT_EQ(cudaEventRecord(written, first), cudaSuccess);
    if (waits) {
      EXPECT_EQ(cudaStreamWaitEvent(second, written, 0), cudaSuccess);
    }
    cuda_on_cpu::enqueue(second, [&] { value = 2; });
    EXPECT_EQ(value, 0);  // nobody has asked
    for (cudaStream_t stream : {first, second})
      EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    left.insert(value);
  }
  cuda_on_cpu::set_stream_order(1);
  EXPECT_EQ(cudaEventDestroy(written), cudaSuccess);
  for (cudaStream_t stream : {first, second}) EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  return left;
}

TEST(CudaEmulation, StreamsGoOnInAnyOrderUnlessTheyWait) {
  EXPECT_EQ(left_by_streams(false), (std::set<int>{1, 2}));
  EXPECT_EQ(left_by_streams(true), (std::set<int>{2}));
}

TEST(CudaEmulation, AStreamIsNotUsedBeforeNcclHasEnqueuedOnIt) {
  cudaStream_t stream = nullptr;
  EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  cuda_on_cpu::promise(stream);
  EXPECT_THROW(cuda_on_cpu::enqueue(stream, [] {}), std::logic_error);
  cuda_on_cpu::enqueue_promised(stream, nullptr);
  cuda_on_cpu::enqueue(stream, [] {});
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

// A copy that starts late changes no result: kernels only wait longer.
TEST(CudaEmulation, TilesOfAttentionAreCopiedDuringProducts) {
  const auto backend = make_cuda_backend(0);
  std::vector<double> hidden;
  for (const OpCase& c : flash_attention_cases({1, 400, 1, 1, 64})) {
    const cuda_on_cpu::CopyCounts before = cuda_on_cpu::copy_counts();
    run_case(*backend, *in_type(c, DType::bf16));
    const cuda_on_cpu::CopyCounts after = cuda_on_cpu::copy_counts();
    ASSERT_GT(after.all, before.all);
    hidden.push_back(double(after.hidden - before.hidden) / double(after.all - before.all));
  }
  ASSERT_EQ(hidden.size(), 2u);
  EXPECT_GT(hidden[0], 0.5);
  EXPECT_GT(hidden[1], 0.5);
}

TEST(CudaEmulation, SaysWhyThereIsNoGpu) {
  cuda_on_cpu::set_device_count(0);
  try {
    make_cuda_backend(0);
    ADD_FAILURE() << "made a backend";
  } catch (const EnvironmentError& error) {
    EXPECT_TRUE(states(error.what(), {"GPU", "cudaErrorNoDevice"}));
  }
  cuda_on_cpu::set_device_count(1);
}

TEST(CudaEmulation, SaysHowManyBytesDoNotFit) {
  const auto backend = make_cuda_backend(0);
  const auto bytes = std::int64_t(2 * cuda_on_cpu::kDeviceMemory);
  try {
    backend->device()->allocate(Bytes(bytes));
    ADD_FAILURE() << "allocated";
  } catch (const EnvironmentError& error) {
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with("cannot allocate 8589934592 bytes on GPU 0, where "))
        << message;
    EXPECT_TRUE(message.ends_with("out of memory (cudaErrorMemoryAllocation)")) << message;
  }
}

}  // namespace
}  // namespace plimsoll
