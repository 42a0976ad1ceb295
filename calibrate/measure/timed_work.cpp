// Threads run the same work in step, and their timings are collected.
#include "calibrate/measure/timed_work.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cmath>
#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "calibrate/measure/statistics.h"

namespace plimsoll {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kAlignment = 64;
constexpr std::int64_t kMostRepeats = 10'000;

/// Mean over some runs.
Seconds time_runs(const TimedWork& work, std::int64_t& run, std::int64_t repeats) {
  Seconds sum;
  for (std::int64_t i = 0; i < repeats; ++i) sum += work(run++);
  return sum / double(repeats);
}

/// Timings of one member; the barrier keeps the members in step. Every member runs the same number
/// of samples, and as many repeats as the slowest needs.
std::vector<Seconds> member_timings(const TimedWork& work, const Sampling& sampling,
                                    std::barrier<>& together, std::atomic<std::int64_t>& repeats) {
  std::int64_t run = 0;
  together.arrive_and_wait();
  time_runs(work, run, 1);  // caches, page tables, lazy set-up inside libraries
  together.arrive_and_wait();
  const Seconds once = time_runs(work, run, 1);
  const double wanted = std::ceil(sampling.sample_time / std::max(once, Seconds(1e-9)));
  const auto own = std::clamp(std::int64_t(std::min(wanted, 1e9)), std::int64_t{1}, kMostRepeats);
  std::int64_t known = repeats.load();
  while (own > known && !repeats.compare_exchange_weak(known, own)) {
  }
  std::vector<Seconds> timings;
  for (std::int64_t sample = 0; sample <= sampling.samples; ++sample) {
    together.arrive_and_wait();
    const Seconds time = time_runs(work, run, repeats.load());
    if (sample > 0) timings.push_back(time);  // the first is warm-up too
  }
  return timings;
}

Sample measure_once(std::int64_t members, const PrepareWork& prepare, const Sampling& sampling) {
  std::barrier<> together(members);
  std::atomic<std::int64_t> repeats{1};
  std::mutex lock;
  std::vector<Seconds> timings;
  run_together(members, [&](std::int64_t member) {
    try {
      const std::vector<Seconds> own = member_timings(prepare(member), sampling, together, repeats);
      const std::lock_guard guard(lock);
      timings.insert(timings.end(), own.begin(), own.end());
    } catch (...) {
      together.arrive_and_drop();  // the others need not wait for this one
      throw;
    }
  });
  return summarize(timings);
}

}  // namespace

void run_together(std::int64_t size, const std::function<void(std::int64_t member)>& work) {
  std::vector<std::exception_ptr> errors{std::size_t(size)};
  // Members wait for each other, so none begins before all have a thread.
  std::promise<bool> begins;
  const std::shared_future<bool> all_begin(begins.get_future());
  {
    std::vector<std::jthread> threads;
    threads.reserve(std::size_t(size));
    try {
      for (std::int64_t member = 0; member < size; ++member) {
        threads.emplace_back([&, member, all_begin] {
          if (!all_begin.get()) return;
          try {
            work(member);
          } catch (...) {
            errors[std::size_t(member)] = std::current_exception();
          }
        });
      }
    } catch (...) {
      begins.set_value(false);
      throw;
    }
    begins.set_value(true);
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

AlignedMemory::AlignedMemory(Bytes size)
    : storage_(new std::byte[std::size_t(size.count()) + kAlignment]), size_(size) {
  void* start = storage_.get();
  std::size_t space = std::size_t(size.count()) + kAlignment;
  aligned_ =
      static_cast<std::byte*>(std::align(kAlignment, std::size_t(size.count()), start, space));
}

Seconds clock_overhead() {
  double least = 1;
  for (int i = 0; i < 1000; ++i) {
    const auto start = Clock::now();
    least = std::min(least, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return Seconds(least);
}

Sample measure_together(std::int64_t members, const PrepareWork& prepare,
                        const Sampling& sampling) {
  const Sample first = measure_once(members, prepare, sampling);
  if (!first.unsteady) return first;
  const Sample second = measure_once(members, prepare, sampling);
  return second.spread / second.median < first.spread / first.median ? second : first;
}

}  // namespace plimsoll
