// Parallel work calls one function for each index, on several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace plimsoll {

/// Returns `threads`, or the number of cores of the machine where `threads` is 0.
std::int64_t resolve_threads(std::int64_t threads);

/// Calls work(0) to work(count - 1), each once, on up to `threads` threads, or on as many as the
/// machine starts. When all calls are done, the exception of the lowest index is thrown, if there
/// is any. After a std::bad_alloc no further call begins.
void for_each_index(std::size_t count, std::int64_t threads,
                    const std::function<void(std::size_t)>& work);

}  // namespace plimsoll
