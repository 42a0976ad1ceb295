// Threads take the indices of parallel work from a shared counter.
#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace plimsoll {

std::int64_t resolve_threads(std::int64_t threads) {
  if (threads > 0) return threads;
  return std::max<std::int64_t>(1, std::thread::hardware_concurrency());
}

void for_each_index(std::size_t count, std::int64_t threads,
                    const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  // One failure is kept: where memory is out, exceptions lie in a pool of some hundred.
  std::mutex lock;
  std::exception_ptr failure;
  std::size_t failed = count;
  const auto keep_lowest = [&](std::size_t i) {
    const std::lock_guard guard(lock);
    if (i >= failed) return;
    failed = i;
    failure = std::current_exception();
  };
  const auto run = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (const std::bad_alloc&) {
        keep_lowest(i);
        next = count;
      } catch (...) {
        keep_lowest(i);
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    const auto most = std::min<std::int64_t>(resolve_threads(threads), std::int64_t(count));
    try {
      for (std::int64_t i = 1; i < most; ++i) helpers.emplace_back(run);
    } catch (const std::system_error&) {
      // The machine has no more threads for us. Fewer do the same work.
    }
    run();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace plimsoll
