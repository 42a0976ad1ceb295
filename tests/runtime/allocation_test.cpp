// During steps 2..n nothing allocates more than 4 KiB: every allocation function of this process is
// replaced by one that remembers large requests while it is armed (operator new calls malloc or
// aligned_alloc, and the tests of the hook would show if it did not).
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <barrier>
#include <cerrno>
#include <cstddef>
#include <functional>
#include <new>
#include <thread>

#include "graph/op_table.h"
#include "runtime/cpu/backend.h"
#include "runtime/executor.h"
#include "tests/runtime/hand_built.h"
#include "tests/runtime/nano.h"
#include "tests/runtime/patience.h"

// Sanitizers bring allocation functions of their own.
#ifndef PLIMSOLL_SANITIZED

namespace {

constexpr std::size_t kLargest = 4096;
std::atomic<bool> armed{false};
std::atomic<std::int64_t> large{0};
std::atomic<std::size_t> largest{0};

void note(std::size_t size) {
  if (!armed.load(std::memory_order_relaxed)) return;
  std::size_t before = largest.load();
  while (size > before && !largest.compare_exchange_weak(before, size)) {
  }
  if (size > kLargest) ++large;
}

}  // namespace

// glibc's own names for the functions that are replaced below.
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* old, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);

void* malloc(std::size_t size) {
  note(size);
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  note(count * size);
  return __libc_calloc(count, size);
}
void* realloc(void* old, std::size_t size) {
  note(size);
  return __libc_realloc(old, size);
}
void* memalign(std::size_t alignment, std::size_t size) {
  note(size);
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  note(size);
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** result, std::size_t alignment, std::size_t size) {
  note(size);
  *result = __libc_memalign(alignment, size);
  return *result == nullptr ? ENOMEM : 0;
}
}

namespace plimsoll {
namespace {

/// Counts while it lives.
class Watch {
 public:
  Watch() {
    large = 0;
    largest = 0;
    armed = true;
  }
  ~Watch() { armed = false; }
};

/// Keeps the compiler from leaving a pair of allocation and release out.
void touch(void* memory) { asm volatile("" : : "g"(memory) : "memory"); }

template <class Allocate>
void expect_caught(Allocate allocate) {
  {
    const Watch watch;
    allocate(8192);
  }
  EXPECT_EQ(large, 1);
  EXPECT_EQ(largest, 8192u);
  {
    const Watch watch;
    allocate(4096);
  }
  EXPECT_EQ(large, 0);
  EXPECT_EQ(largest, 4096u);
}

TEST(Hook, CatchesOneAllocationOf8KiBByAnyFunction) {
  const auto drop = [](void* memory) {
    touch(memory);
    free(memory);
  };
  expect_caught([&](std::size_t size) { drop(malloc(size)); });
  expect_caught([&](std::size_t size) { drop(calloc(size / 8, 8)); });
  expect_caught([&](std::size_t size) { drop(realloc(nullptr, size)); });
  expect_caught([&](std::size_t size) { drop(aligned_alloc(64, size)); });
  expect_caught([&](std::size_t size) {
    void* memory = nullptr;
    if (posix_memalign(&memory, 64, size) == 0) drop(memory);
  });
  expect_caught([&](std::size_t size) {
    void* memory = ::operator new(size);
    touch(memory);
    ::operator delete(memory);
  });
  expect_caught([&](std::size_t size) {
    void* memory = ::operator new(size, std::align_val_t(64));
    touch(memory);
    ::operator delete(memory, std::align_val_t(64));
  });
  expect_caught([&](std::size_t size) {
    std::jthread([&] { drop(malloc(size)); }).join();  // other threads are watched too
  });
}

/// The first matmul that oneDNN does not run with its brgemm kernels, or empty.
std::string without_brgemm(const std::vector<Program>& programs) {
  for (const Program& program : programs) {
    for (const Routine& routine : program.routines) {
      for (const Op& op : routine.ops) {
        if (row(op.kind).op_class != OpClass::matmul) continue;
        const std::string implementation = cpu_matmul_implementation(op, routine.tensors);
        if (implementation.starts_with("brg")) continue;
        return "oneDNN runs a matmul of " + routine.name + " with " + implementation +
               ", not with its brgemm kernels: it allocates inside execution";
      }
    }
  }
  return "";
}

/// Runs `steps` steps, watching all but the first; the last one is traced.
void run_watched(const std::vector<Program>& programs, std::int64_t steps,
                 const std::function<std::unique_ptr<Backend>()>& backend_of = make_cpu_backend) {
  const Job job = nano_job();
  const Grid& grid = programs[0].grid;
  ExecutorOptions options;
  options.seed = job.seed;
  options.workspace = bundled_framework().memory.process.workspace;
  options.epoch = std::chrono::steady_clock::now();
  auto communicators = make_local_communicators(grid, kPatient, options.epoch);
  std::barrier meeting(std::ptrdiff_t(communicators.size()));
  std::vector<std::jthread> threads;
  for (std::int64_t rank = 0; rank < grid.world_size(); ++rank) {
    threads.emplace_back([&, rank] {
      auto backend = backend_of();
      backend->enter_thread();
      ExecutorOptions mine = options;
      mine.rank = rank;
      const std::size_t stage = class_of(programs, grid.coordinates(rank));
      Executor executor(programs[stage], *backend, *communicators[std::size_t(rank)],
                        {nano_text(), job.global_batch}, mine);
      Timeline trace;
      executor.reserve_trace(trace);
      executor.step(0);
      meeting.arrive_and_wait();
      if (rank == 0) {
        large = 0;
        largest = 0;
        armed = true;
      }
      meeting.arrive_and_wait();
      for (std::int64_t step = 1; step < steps; ++step) {
        executor.step(step, step + 1 == steps ? &trace : nullptr);
      }
      meeting.arrive_and_wait();
      armed = false;
    });
  }
}

TEST(Watching, FindsAKernelThatAllocates) {
  const auto allocating = [] {
    return make_watched_backend([](const Op& op, const RunPosition& position) {
      if (op.kind == OpKind::adamw && position.step == 2) {
        void* const memory = malloc(8192);
        touch(memory);
        free(memory);
      }
    });
  };
  const auto programs = nano_programs(nano_strategy("mp=2", 4, Recompute::none));
  if (const std::string why = without_brgemm(programs); !why.empty()) GTEST_SKIP() << why;
  run_watched(programs, 4, allocating);
  EXPECT_EQ(large, 2);  // once on each rank
  EXPECT_EQ(largest, 8192u);
}

class AllocationOf : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Nano, AllocationOf,
                         testing::Values("", "mp=2", "pp=2", "dp=2", "sharding_degree=2",
                                         "mp=2,pp=2", "dp=2,pp=2"));

TEST_P(AllocationOf, LaterStepsAllocateNothingLarge) {
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    const Strategy strategy = nano_strategy(GetParam(), 4, recompute);
    const std::vector<Program> programs = nano_programs(strategy);
    if (const std::string why = without_brgemm(programs); !why.empty()) GTEST_SKIP() << why;
    run_watched(programs, 5);
    EXPECT_EQ(large, 0) << strategy_summary(strategy) << ": up to " << largest << " bytes";
  }
}

}  // namespace
}  // namespace plimsoll

#else

TEST(Hook, NeedsTheSystemAllocator) { GTEST_SKIP() << "sanitizers replace the allocator"; }

#endif
