// Tests on four GPUs of the emulation, whose subject is what runs around kernels.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <span>

#include "host_emulation.h"
#include "races.h"
#include "runtime/comm/nccl/communicator.h"

namespace plimsoll {

/// Makes the communicator of one process (tests/runtime/thread_processes.h).
inline std::unique_ptr<Communicator> over_nccl(Processes& processes,
                                               std::span<const Program> programs,
                                               std::chrono::milliseconds deadline,
                                               RankDevice* device) {
  return make_nccl_communicator(processes, programs, deadline, *device);
}

/// Nobody looks for races here: tests of ops and of training on one GPU look at the same kernels.
class FourGpus : public testing::Test {
 protected:
  void SetUp() override {
    cuda_on_cpu::set_device_count(4);
    cuda_on_cpu::look_for_races(false);
  }
  void TearDown() override {
    cuda_on_cpu::look_for_races(true);
    cuda_on_cpu::set_device_count(1);
  }
};

}  // namespace plimsoll
