// Accesses of kernels are compared with those before: to shared memory with all of the block, to
// device memory with those that a table of limited size still holds.
#include "races.h"

#include <link.h>

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

namespace cuda_on_cpu {

namespace {

constexpr std::size_t kGranule =
    2;  // bytes that are looked at together: no kernel shares smaller values
constexpr std::uint16_t kNobody = 0xffff;

/// The last write of a place, and the last reads by two threads. Within a warp later reads come
/// after at least as many barriers; of other warps it is enough that there was one.
struct Place {
  std::uint32_t written_at = 0, read_at = 0;  ///< in barriers of the block
  std::uint32_t writers_warp_barriers = 0;
  struct Reader {
    std::uint32_t warp_barriers = 0;
    std::uint16_t thread = kNobody;
  } readers[2];
  std::uint16_t writer = kNobody;
  std::uint16_t other_warp = kNobody;  ///< a reader of another warp than the last
  std::uint16_t copier = kNobody;      ///< whose copy is on its way
};

struct Memory {
  const std::byte* begin = nullptr;
  std::size_t bytes = 0;
  std::vector<Place> places;

  void set(const std::byte* from, std::size_t size) {
    begin = from;
    bytes = size;
    if (places.size() < size / kGranule + 1) places.resize(size / kGranule + 1);
  }
  bool has(const std::byte* address) const { return std::size_t(address - begin) < bytes; }
};

/// A place of device memory. Which one an entry is about changes.
struct DevicePlace {
  const std::byte* at = nullptr;
  Place place;
};
constexpr std::size_t kDevicePlaces = std::size_t{1} << 15;

struct Observer {
  const Runner* runner = nullptr;
  std::uint32_t first_barrier = 0;      ///< of the block
  std::uint32_t barrier_of_launch = 0;  ///< the first of its first block
  std::vector<DevicePlace> device{kDevicePlaces};
  Memory dynamic, variables;
  std::string race;
};
constinit thread_local Observer* observer = nullptr;
std::atomic<bool> looks = true;

/// The thread-local variables of the program, among which are those that are __shared__.
std::pair<const std::byte*, std::size_t> variables_of_thread() {
  std::pair<const std::byte*, std::size_t> found;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* into) {
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          if (info->dlpi_phdr[i].p_type != PT_TLS) continue;
          *static_cast<std::pair<const std::byte*, std::size_t>*>(into) = {
              static_cast<const std::byte*>(info->dlpi_tls_data), info->dlpi_phdr[i].p_memsz};
        }
        return 1;  // the program comes first
      },
      &found);
  return found;
}

/// Only the first is kept. `memory`: null for that of the device.
void report(const Memory* memory, const std::byte* at, bool writes, const std::string& what) {
  Observer& o = *observer;
  if (!o.race.empty()) return;
  o.race = "thread " + std::to_string(o.runner->thread) + (writes ? " writes " : " reads ") +
           (memory == nullptr
                ? "device memory"
                : "byte " + std::to_string(at - memory->begin) + " of " +
                      (memory == &o.dynamic ? "dynamic shared memory" : "shared variables")) +
           ", which " + what;
}
void report(const Memory* memory, const std::byte* at, bool writes, unsigned other,
            const char* did) {
  report(memory, at, writes, "thread " + std::to_string(other) + " " + did);
}

/// Whether an access of `thread` comes before what the runner does now.
bool before(const Runner& now, unsigned thread, std::uint32_t warp_barriers) {
  return thread == now.thread ||
         (thread / 32 == now.thread / 32 && warp_barriers < now.warp_barriers);
}

void look_at(const Memory* memory, Place& place, const std::byte* at, Access access) {
  Observer& o = *observer;
  const Runner& now = *o.runner;
  const bool writes = access != Access::read;
  if (place.copier != kNobody && place.written_at >= o.first_barrier &&
      access != Access::end_of_copy) {
    report(memory, at, writes, place.copier, "copies to, and has not waited for that");
  }
  if (place.written_at == now.block_barriers && place.writer != kNobody &&
      !before(now, place.writer, place.writers_warp_barriers)) {
    report(memory, at, writes, place.writer, "has written since the last barrier");
  }
  if (memory == nullptr) {
    const auto of_other_block = [&](std::uint32_t when) {
      return when >= o.barrier_of_launch && when < o.first_barrier;
    };
    if (of_other_block(place.written_at))
      report(memory, at, writes, "another block of the launch has written");
    if (writes && of_other_block(place.read_at))
      report(memory, at, writes, "another block of the launch has read");
  } else if (!writes && place.written_at < o.first_barrier &&
             (memory == &o.dynamic || place.written_at != 0)) {
    report(memory, at, writes, "its block has not written");
  }
  const bool read = place.read_at == now.block_barriers;
  if (!writes) {
    if (!read) place.readers[0].thread = place.readers[1].thread = place.other_warp = kNobody;
    place.read_at = now.block_barriers;
    const auto thread = std::uint16_t(now.thread);
    if (place.readers[0].thread != thread) {
      const std::uint16_t last = place.readers[0].thread;
      if (last != kNobody && last / 32 != thread / 32) place.other_warp = last;
      place.readers[1] = std::exchange(place.readers[0], {0, thread});
    }
    place.readers[0].warp_barriers = now.warp_barriers;
    return;
  }
  if (read) {
    for (const Place::Reader& reader : place.readers) {
      if (reader.thread != kNobody && !before(now, reader.thread, reader.warp_barriers))
        report(memory, at, writes, reader.thread, "has read since the last barrier");
    }
    if (place.other_warp != kNobody)
      report(memory, at, writes, place.other_warp, "has read since the last barrier");
  }
  place.written_at = now.block_barriers;
  place.writers_warp_barriers = now.warp_barriers;
  place.writer = std::uint16_t(now.thread);
  place.copier = access == Access::start_of_copy ? place.writer : kNobody;
}

void look_at(Memory& memory, const std::byte* address, std::size_t bytes, Access access) {
  const auto offset = std::size_t(address - memory.begin);
  for (std::size_t i = offset / kGranule; i <= (offset + bytes - 1) / kGranule; ++i)
    look_at(&memory, memory.places[i], memory.begin + i * kGranule, access);
}

void look_at_device(const std::byte* address, std::size_t bytes, Access access) {
  const auto number = reinterpret_cast<std::uintptr_t>(address);
  for (std::size_t i = number / kGranule; i <= (number + bytes - 1) / kGranule; ++i) {
    DevicePlace& entry = observer->device[i % kDevicePlaces];
    const auto* at = reinterpret_cast<const std::byte*>(i * kGranule);
    if (entry.at != at) entry = {at, {}};
    look_at(nullptr, entry.place, at, access);
  }
}

}  // namespace

void observe(const Runner* runner, const std::byte* shared, std::size_t bytes) {
  static thread_local Observer own;
  observer = nullptr;
  if (runner == nullptr || !looks) return;
  if (own.variables.begin == nullptr) {
    const auto [begin, size] = variables_of_thread();
    own.variables.set(begin, size);
  }
  own.dynamic.set(shared, bytes);
  own.runner = runner;
  own.barrier_of_launch = runner->block_barriers + 1;
  own.race.clear();
  observer = &own;
}

void forget_accesses(std::uint32_t block_barriers) {
  if (observer != nullptr) observer->first_barrier = block_barriers;
}

void look_for_races(bool look) { looks = look; }

void note_access(const void* address, std::size_t bytes, Access access) {
  if (observer == nullptr) return;
  const auto* at = static_cast<const std::byte*>(address);
  if (std::size_t(at - observer->runner->stack) < kStackBytes) return;
  if (observer->dynamic.has(at)) return look_at(observer->dynamic, at, bytes, access);
  if (observer->variables.has(at)) return look_at(observer->variables, at, bytes, access);
  look_at_device(at, bytes, access);
}

std::string take_race() { return observer == nullptr ? "" : std::exchange(observer->race, {}); }

}  // namespace cuda_on_cpu

#ifdef PLIMSOLL_SANITIZED
bool cuda_on_cpu::sees_races() { return false; }
#else
bool cuda_on_cpu::sees_races() { return true; }

// g++ -fsanitize=thread calls these functions (gcc/sanitizer.def), here without its library.
#define OBSERVED(bytes)                                                   \
  extern "C" void __tsan_read##bytes(const void* address) {               \
    cuda_on_cpu::note_access(address, bytes, cuda_on_cpu::Access::read);  \
  }                                                                       \
  extern "C" void __tsan_write##bytes(const void* address) {              \
    cuda_on_cpu::note_access(address, bytes, cuda_on_cpu::Access::write); \
  }                                                                       \
  extern "C" void __tsan_unaligned_read##bytes(const void* address) {     \
    cuda_on_cpu::note_access(address, bytes, cuda_on_cpu::Access::read);  \
  }                                                                       \
  extern "C" void __tsan_unaligned_write##bytes(const void* address) {    \
    cuda_on_cpu::note_access(address, bytes, cuda_on_cpu::Access::write); \
  }
OBSERVED(1)
OBSERVED(2)
OBSERVED(4)
OBSERVED(8)
OBSERVED(16)
extern "C" {
void __tsan_read_range(const void* address, std::size_t bytes) {
  cuda_on_cpu::note_access(address, bytes, cuda_on_cpu::Access::read);
}
void __tsan_write_range(const void* address, std::size_t bytes) {
  cuda_on_cpu::note_access(address, bytes, cuda_on_cpu::Access::write);
}
// The host's parts of the sources count references.
int __tsan_atomic32_fetch_add(volatile int* value, int more, int) {
  return __atomic_fetch_add(value, more, __ATOMIC_SEQ_CST);
}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_init() {}
}
#endif
