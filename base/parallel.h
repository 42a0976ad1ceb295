// Parallel: the same work for each index, on several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace plimsoll {

/// Cores of the machine where `threads` is 0.
std::int64_t resolve_threads(std::int64_t threads);

/// Calls work(0) to work(count - 1), each once, on up to `threads` threads; of the exceptions the
/// one of the lowest index is thrown when all are done.
void for_each_index(std::size_t count, std::int64_t threads,
                    const std::function<void(std::size_t)>& work);

}  // namespace plimsoll
