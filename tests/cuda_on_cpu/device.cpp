// Fibers that stand for the threads of a block.
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

#include "device_emulation.h"
#include "races.h"

namespace cuda_on_cpu {

namespace {

constexpr std::size_t kGuardBytes = 64;
constexpr unsigned kWarp = 32;

enum class State { not_started, running, at_block_barrier, at_warp_barrier, done };

/// A stack as the address sanitizer knows it.
struct KnownStack {
  const void* lowest = nullptr;
  std::size_t bytes = 0;
  void* returned = nullptr;  ///< its own record of functions that have returned
};

// The address sanitizer has to be told of each jump to another stack. Otherwise it takes the jump
// for an exception that ends all functions between the stacks, and slowly clears what it knows.
#ifdef __SANITIZE_ADDRESS__
void leave_stack(KnownStack& from, const KnownStack& to) {
  __sanitizer_start_switch_fiber(&from.returned, to.lowest, to.bytes);
}
void arrive_on(const KnownStack& stack, KnownStack& from) {
  __sanitizer_finish_switch_fiber(stack.returned, &from.lowest, &from.bytes);
}
#else
void leave_stack(KnownStack&, const KnownStack&) {}
void arrive_on(const KnownStack&, KnownStack&) {}
#endif

/// A stack on which threads run, one after the other until one has to wait there.
struct Fiber {
  std::unique_ptr<std::byte[]> stack;
  KnownStack known;
  ucontext_t start;
  jmp_buf at;
  bool started = false;
};

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
  std::uint32_t started;  ///< in warp operations of its thread
  bool committed;
};

struct Thread {
  State state = State::not_started;
  Fiber* fiber = nullptr;
  unsigned mask = 0;                  ///< of the warp operation it waits in
  std::uint32_t warp_barriers = 0;    ///< that it has passed
  std::uint32_t warp_operations = 0;  ///< likewise
  std::vector<Copy> copies;
};

struct Warp {
  /// Two meetings, so that a lane which runs ahead to the next leaves what the others still read.
  std::array<std::array<std::byte, kWarp * kHandOver>, 2> values;
  unsigned meeting = 0;
};

unsigned default_seed() {
  const char* given = std::getenv("PLIMSOLL_EMULATION_SEED");
  return given == nullptr ? 1u : unsigned(std::atoi(given));
}

struct Block {
  const std::function<void()>* body = nullptr;
  dim3 size;
  unsigned count = 0, unstarted = 0, done = 0;
  unsigned current = 0;  ///< the thread that runs
  Runner runner;         ///< the same, for its accesses to shared memory
  unsigned seed = default_seed();
  std::minstd_rand numbers{seed};
  std::vector<unsigned> order;  ///< of its threads
  unsigned turn = 0;            ///< where in `order` this round starts
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::vector<std::byte> shared;
  std::size_t shared_bytes = 0;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Fiber*> idle;
  Fiber* fiber = nullptr;  ///< that runs
  jmp_buf scheduler;
  KnownStack scheduler_stack;
  std::string error;
};

/// The block of the calling thread. Through a pointer: a variable with a constructor is checked at
/// each use, of which there are several for each operation of a warp.
constinit thread_local Block* block_of_thread = nullptr;
Block& make_block() {
  static thread_local Block made;
  block_of_thread = &made;
  return made;
}
inline Block& block() { return block_of_thread != nullptr ? *block_of_thread : make_block(); }

thread_local CopyCounts counts;

void make_current(unsigned index) {
  block().current = index;
  block().runner.thread = index;
  block().runner.warp_barriers = block().threads[index].warp_barriers;
  block().runner.stack = block().fiber->stack.get();
  threadIdx = {index % block().size.x, index / block().size.x % block().size.y,
               index / (block().size.x * block().size.y)};
}

unsigned in_order(unsigned i) {
  const unsigned at = block().turn + i;
  return block().order[at < block().count ? at : at - block().count];
}

/// The threads of the next block run in this order.
void draw_order() {
  block().order.resize(block().count);
  std::iota(block().order.begin(), block().order.end(), 0u);
  if (block().seed != 0) std::shuffle(block().order.begin(), block().order.end(), block().numbers);
  block().turn = 0;
}

/// Back to the scheduler; returns when the fiber is resumed.
__attribute__((noipa)) void leave_fiber() {
  if (_setjmp(block().fiber->at) == 0) {
    leave_stack(block().fiber->known, block().scheduler_stack);
    _longjmp(block().scheduler, 1);
  }
  arrive_on(block().fiber->known, block().scheduler_stack);
}

/// Runs threads until none is left to start, over and over.
void fiber_main() {
  arrive_on(block().fiber->known, block().scheduler_stack);
  while (true) {
    Fiber* self = block().fiber;
    while (block().unstarted > 0) {
      const unsigned index = in_order(block().count - block().unstarted);
      --block().unstarted;
      make_current(index);
      block().threads[index].state = State::running;
      block().threads[index].fiber = self;
      (*block().body)();
      block().threads[block().current].state = State::done;
      ++block().done;
      // Whoever was suspended and resumed here goes on first; then this stack may start others.
    }
    block().idle.push_back(self);
    leave_fiber();
  }
}

/// Without variables that getcontext could bring back.
__attribute__((noipa)) void make_context() {
  getcontext(&block().fibers.back()->start);
  ucontext_t& start = block().fibers.back()->start;
  start.uc_stack.ss_sp = block().fibers.back()->stack.get();
  start.uc_stack.ss_size = kStackBytes;
  start.uc_link = nullptr;
  makecontext(&start, fiber_main, 0);
}

Fiber* take_fiber() {
  if (block().idle.empty()) {
    block().fibers.push_back(std::make_unique<Fiber>());
    Fiber& fiber = *block().fibers.back();
    fiber.stack = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
    fiber.known = {fiber.stack.get(), kStackBytes};
    make_context();
    return block().fibers.back().get();
  }
  Fiber* fiber = block().idle.back();
  block().idle.pop_back();
  return fiber;
}

__attribute__((noipa)) void enter_fiber() {
  if (_setjmp(block().scheduler) != 0) {
    KnownStack left;
    arrive_on(block().scheduler_stack, left);
    return;
  }
  leave_stack(block().scheduler_stack, block().fiber->known);
  if (block().fiber->started) _longjmp(block().fiber->at, 1);
  block().fiber->started = true;
  setcontext(&block().fiber->start);
}

/// Returns when the fiber waits or has nothing to start.
void resume(Fiber* fiber) {
  block().fiber = fiber;
  enter_fiber();
}

/// Lets the threads of a barrier go that all have reached.
bool release_barriers() {
  bool released = false;
  unsigned waiting = 0;
  for (const Thread& thread : block().threads) {
    if (thread.state == State::at_block_barrier) ++waiting;
  }
  if (waiting == block().count) {
    for (Thread& thread : block().threads) thread.state = State::running;
    ++block().runner.block_barriers;
    return true;
  }
  for (unsigned first = 0; first < block().count; first += kWarp) {
    for (unsigned lane = 0; lane < kWarp && first + lane < block().count; ++lane) {
      const Thread& thread = block().threads[first + lane];
      if (thread.state != State::at_warp_barrier) continue;
      bool all = true;
      for (unsigned other = 0; other < kWarp; ++other) {
        if ((thread.mask >> other & 1u) == 0) continue;
        if (first + other >= block().count) {
          all = false;
          break;
        }
        const Thread& peer = block().threads[first + other];
        if (peer.state != State::at_warp_barrier || peer.mask != thread.mask) all = false;
      }
      if (!all) continue;
      const unsigned mask = thread.mask;
      for (unsigned other = 0; other < kWarp; ++other) {
        if ((mask >> other & 1u) != 0) block().threads[first + other].state = State::running;
      }
      ++block().warps[first / kWarp].meeting;
      released = true;
    }
  }
  return released;
}

std::string divergence() {
  unsigned at_block = 0, at_warp = 0;
  for (const Thread& thread : block().threads) {
    if (thread.state == State::at_block_barrier) ++at_block;
    if (thread.state == State::at_warp_barrier) ++at_warp;
  }
  return "block (" + std::to_string(blockIdx.x) + ", " + std::to_string(blockIdx.y) + ", " +
         std::to_string(blockIdx.z) + "): of " + std::to_string(block().count) + " threads " +
         std::to_string(block().done) + " are over, " + std::to_string(at_block) +
         " wait in __syncthreads and " + std::to_string(at_warp) + " in a warp operation" +
         block().error;
}

void run_block() {
  block().threads.assign(block().count, {});
  block().unstarted = block().count;
  block().done = 0;
  draw_order();
  forget_accesses(++block().runner.block_barriers);
  std::fill_n(reinterpret_cast<float*>(block().shared.data()),
              block().shared.size() / sizeof(float), std::numeric_limits<float>::quiet_NaN());
  while (block().done < block().count) {
    if (block().unstarted > 0) {
      resume(take_fiber());
      continue;
    }
    bool ran = false;
    if (block().seed != 0) block().turn = unsigned(block().numbers() >> 8) % block().count;
    for (unsigned i = 0; i < block().count; ++i) {
      const unsigned index = in_order(i);
      Thread& thread = block().threads[index];
      if (thread.state != State::running) continue;
      block().fiber = thread.fiber;
      make_current(index);
      resume(thread.fiber);
      ran = true;
    }
    if (block().error.empty() && (ran || release_barriers())) continue;
    // Suspended stacks are given up with what they hold.
    const std::string message = divergence();
    block().error.clear();
    block().fibers.clear();
    block().idle.clear();
    throw std::logic_error(message);
  }
  if (!block().error.empty()) throw std::logic_error(std::exchange(block().error, {}));
  if (const std::string race = take_race(); !race.empty()) {
    throw std::logic_error("block (" + std::to_string(blockIdx.x) + ", " +
                           std::to_string(blockIdx.y) + ", " + std::to_string(blockIdx.z) +
                           "): " + race);
  }
  const auto* guard = reinterpret_cast<const float*>(block().shared.data() + block().shared_bytes);
  for (std::size_t i = 0; i < kGuardBytes / sizeof(float); ++i) {
    if (std::isnan(guard[i])) continue;
    throw std::logic_error("a block writes behind its " + std::to_string(block().shared_bytes) +
                           " bytes of dynamic shared memory");
  }
}

}  // namespace

void set_thread_order(unsigned seed) {
  block().seed = seed;
  block().numbers.seed(seed);
}

void run_grid(dim3 grid, dim3 size, std::size_t shared_bytes, const std::function<void()>& thread) {
  block().body = &thread;
  block().size = size;
  block().count = size.x * size.y * size.z;
  if (block().count == 0 || block().count > 1024 || grid.x == 0 || grid.y == 0 || grid.z == 0 ||
      grid.y > 65535 || grid.z > 65535) {
    throw std::logic_error("a launch of " + std::to_string(block().count) + " threads in " +
                           std::to_string(grid.x) + " x " + std::to_string(grid.y) + " x " +
                           std::to_string(grid.z) + " blocks");
  }
  block().warps.resize((block().count + kWarp - 1) / kWarp);
  block().shared_bytes = (shared_bytes + 15) / 16 * 16;
  block().shared.resize(block().shared_bytes + kGuardBytes);
  gridDim = grid;
  blockDim = size;
  // Also where the launch fails.
  struct Observation {
    Observation() { observe(&block().runner, block().shared.data(), block().shared_bytes); }
    ~Observation() { observe(nullptr, nullptr, 0); }
  } const observation;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = {x, y, z};
        run_block();
      }
    }
  }
}

std::byte* dynamic_shared() { return block().shared.data(); }
std::size_t dynamic_shared_bytes() { return block().shared_bytes; }

void defer_copy(void* to, const void* from, std::size_t bytes) {
  const auto misaligned = [&](const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) % bytes != 0;
  };
  if (misaligned(to) || misaligned(from)) block().error = "; a copy of 16 bytes is not aligned";
  block().threads[block().current].copies.push_back(
      {to, from, bytes, block().threads[block().current].warp_operations, false});
  note_access(to, bytes, Access::start_of_copy);
}

void commit_copies() {
  for (Copy& copy : block().threads[block().current].copies) copy.committed = true;
}

void finish_copies() {
  std::vector<Copy>& copies = block().threads[block().current].copies;
  for (const Copy& copy : copies) {
    if (!copy.committed) continue;
    note_access(copy.to, copy.bytes, Access::end_of_copy);
    ++counts.all;
    if (copy.started < block().threads[block().current].warp_operations) ++counts.hidden;
    if (copy.from != nullptr) {
      std::memcpy(copy.to, copy.from, copy.bytes);
    } else {
      std::memset(copy.to, 0, copy.bytes);
    }
  }
  std::erase_if(copies, [](const Copy& copy) { return copy.committed; });
}

CopyCounts copy_counts() { return counts; }

unsigned lane() { return block().current % kWarp; }

const std::byte* meet_warp(unsigned mask, const void* value, std::size_t bytes) {
  Warp& warp = block().warps[block().current / kWarp];
  auto& values = warp.values[warp.meeting % 2];
  if (bytes > 0) std::memcpy(values.data() + lane() * kHandOver, value, bytes);
  Thread& thread = block().threads[block().current];
  if (mask != 0xffffffffu) block().error = "; a warp operation of some lanes only";
  thread.mask = mask;
  thread.state = State::at_warp_barrier;
  ++thread.warp_operations;
  leave_fiber();
  return values.data();
}

}  // namespace cuda_on_cpu

void __syncwarp(unsigned mask) {
  using namespace cuda_on_cpu;
  meet_warp(mask, nullptr, 0);
  block().runner.warp_barriers = ++block().threads[block().current].warp_barriers;
}

void __syncthreads() {
  using namespace cuda_on_cpu;
  block().threads[block().current].state = State::at_block_barrier;
  leave_fiber();
}
