// A pause is for loops that poll for something that another thread or process will do.
#pragma once

#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace plimsoll {

/// Tells the core that this loop polls.
inline void pause_core() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace plimsoll
