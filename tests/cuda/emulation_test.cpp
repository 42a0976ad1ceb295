// Only the emulation can show these facts about the cuda backend: graphs are launched, and messages
// say that there is no GPU or no memory.
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "host_emulation.h"
#include "runtime/cuda/backend.h"
#include "tests/runtime/nano.h"

namespace plimsoll {
namespace {

std::int64_t launches_of_run(bool replay) {
  TrainOptions options;
  options.steps = 3;  // one by one, captured, traced
  options.warm_up_steps = 0;
  options.replay = replay;
  options.backend_of_rank = make_cuda_backend;
  const std::int64_t before = cuda_on_cpu::graph_launches();
  train_nano(nano_programs(nano_strategy("", 4, Recompute::none)), options);
  return cuda_on_cpu::graph_launches() - before;
}

TEST(CudaEmulation, KernelsAreReplayedAsGraphsUnlessAskedNotTo) {
  EXPECT_EQ(launches_of_run(false), 0);
  EXPECT_GT(launches_of_run(true), 10);
}

TEST(CudaEmulation, SaysWhyThereIsNoGpu) {
  cuda_on_cpu::set_device_count(0);
  try {
    make_cuda_backend(0);
    ADD_FAILURE() << "made a backend";
  } catch (const EnvironmentError& error) {
    EXPECT_STREQ(error.what(),
                 "no GPU can be used: no CUDA-capable device is detected (cudaErrorNoDevice)");
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
