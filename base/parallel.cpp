// Threads take the indices of parallel work from a shared counter.
#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

namespace plimsoll {

std::int64_t resolve_threads(std::int64_t threads) {
  if (threads > 0) return threads;
  return std::max<std::int64_t>(1, std::thread::hardware_concurrency());
}

void for_each_index(std::size_t count, std::int64_t threads,
                    const std::function<void(std::size_t)>& work) {
  std::vector<std::exception_ptr> failures(count);
  std::atomic<std::size_t> next = 0;
  const auto run = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        failures[i] = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    const auto most = std::min<std::int64_t>(resolve_threads(threads), std::int64_t(count));
    for (std::int64_t i = 1; i < most; ++i) helpers.emplace_back(run);
    run();
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace plimsoll
