// The function that libFuzzer calls (scripts/fuzz): the entry point that PLIMSOLL_ENTRY names reads
// each input.
#include <cstdint>
#include <cstdlib>

#include "tests/fuzz/entry_points.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const plimsoll::EntryPoint& entry = []() -> const plimsoll::EntryPoint& {
    const char* name = std::getenv("PLIMSOLL_ENTRY");
    return plimsoll::entry_point(name == nullptr ? "job" : name);
  }();
  plimsoll::takes(entry, {reinterpret_cast<const char*>(data), size});
  return 0;
}
