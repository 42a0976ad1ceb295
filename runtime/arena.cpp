// Arena: one allocation, guard zones and poison in checking mode.
#include "runtime/arena.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "base/error.h"

namespace plimsoll {
namespace {

constexpr int kPoison = 0xFF;  // every float is NaN, every index -1
constexpr std::byte kGuardByte{0xA5};
constexpr std::size_t kPage = 4096;

}  // namespace

void Arena::Free::operator()(std::byte* memory) const { std::free(memory); }

Arena::Arena(const Program& program, bool checking) : program_(program), checking_(checking) {
  // The last block's guard zone lies behind the extent of the blocks.
  const Bytes size = round_up(program.arena_bytes + kGuard, Bytes(kPage));
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, std::size_t(size.count()))));
  if (memory_ == nullptr) {
    throw EnvironmentError(fmt::format("cannot allocate the arena of {} bytes", size.count()));
  }
  // Also touches every page now, on the thread that will use it.
  std::memset(memory_.get(), 0, std::size_t(size.count()));
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& buffer = program.buffers[i];
    INVARIANT(buffer.offset >= Bytes(0) && buffer.offset + buffer.bytes <= program.arena_bytes,
              "buffer " + buffer.name + " lies outside the arena");
  }
}

std::byte* Arena::at(BufferId id) const { return base() + program_.at(id).offset.count(); }

// The guard zone starts at the first byte the block does not own: rounding up is no licence.
void Arena::acquire(BufferId id) {
  if (!checking_) return;
  const Buffer& buffer = program_.at(id);
  std::byte* const begin = at(id);
  std::byte* const end = begin + buffer.bytes.count();
  if (!buffer.persistent) std::memset(begin, kPoison, std::size_t(end - begin));
  std::byte* const guard_end = begin + (round_up(buffer.bytes, kBlockAlignment) + kGuard).count();
  std::fill(end, guard_end, kGuardByte);
}

void Arena::release(BufferId id) {
  if (!checking_) return;
  verify_guard(id);
  const Buffer& buffer = program_.at(id);
  if (!buffer.persistent) std::memset(at(id), kPoison, std::size_t(buffer.bytes.count()));
}

void Arena::verify_guard(BufferId id) const {
  const Buffer& buffer = program_.at(id);
  const std::byte* const end = at(id) + buffer.bytes.count();
  const std::byte* const guard_end =
      at(id) + (round_up(buffer.bytes, kBlockAlignment) + kGuard).count();
  const auto* const broken =
      std::find_if(end, guard_end, [](std::byte value) { return value != kGuardByte; });
  if (broken == guard_end) return;
  throw std::runtime_error(fmt::format("buffer {} was written {} bytes behind its end ({} bytes)",
                                       buffer.name, broken - end + 1, buffer.bytes.count()));
}

void Arena::verify_persistent() const {
  if (!checking_) return;
  for (std::size_t i = 0; i < program_.buffers.size(); ++i) {
    if (program_.buffers[i].persistent) verify_guard(BufferId(i));
  }
}

}  // namespace plimsoll
