// An arena allocates its memory once; in checking mode it sets guard zones and poisons blocks.
#include "runtime/arena.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "base/error.h"
#include "graph/program.h"

namespace plimsoll {
namespace {

constexpr std::byte kPoison{0xFF};  // every float is NaN, every index -1
constexpr std::byte kGuardByte{0xA5};
constexpr std::size_t kPage = 4096;

// The last block's guard zone lies behind the extent of the blocks.
Bytes room_for(Bytes extent) { return round_up(extent + kGuard, Bytes(kPage)); }

// Zeroed; of the host it also touches every page now, on the thread that will use it.
std::byte* allocate(Bytes size, RankDevice* device) {
  if (device != nullptr) return device->allocate(size);
  auto* const memory =
      static_cast<std::byte*>(std::aligned_alloc(kPage, std::size_t(size.count())));
  if (memory == nullptr) {
    throw EnvironmentError(fmt::format("cannot allocate the arena of {} bytes", size.count()));
  }
  std::memset(memory, 0, std::size_t(size.count()));
  return memory;
}

}  // namespace

void Arena::Free::operator()(std::byte* memory) const {
  if (device == nullptr) return std::free(memory);
  on_host ? device->free_on_host(memory) : device->free(memory);
}

Arena::Arena(const Program& program, bool checking, RankDevice* device)
    : program_(program),
      checking_(checking),
      device_(device),
      memory_(allocate(room_for(program.arena_bytes), device), Free{device, false}) {
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& buffer = program.buffers[i];
    if (buffer.on_host) continue;
    INVARIANT(buffer.offset >= Bytes(0) && buffer.offset + buffer.bytes <= program.arena_bytes,
              "buffer " + buffer.name + " lies outside the arena");
  }
  const Bytes of_host = host_bytes(program);
  if (of_host == Bytes(0)) return;
  std::byte* const memory = device != nullptr ? device->allocate_on_host(room_for(of_host))
                                              : allocate(room_for(of_host), nullptr);
  host_ = {memory, Free{device, true}};
}

void Arena::set(std::byte* begin, std::byte value, std::byte* end) {
  if (device_ != nullptr) {
    device_->fill(begin, int(value), Bytes(end - begin));
  } else {
    std::fill(begin, end, value);
  }
}

const std::byte* Arena::on_host(BufferId id, std::vector<std::byte>& copy) const {
  if (device_ == nullptr) return at(id);
  copy.resize(std::size_t(program_.at(id).bytes.count()));
  device_->read(at(id), copy);
  return copy.data();
}

void Arena::change(BufferId id, const std::function<void(std::byte* stored)>& work) {
  if (device_ == nullptr) return work(at(id));
  std::vector<std::byte> copy;
  on_host(id, copy);
  work(copy.data());
  device_->write(at(id), copy);
}

std::byte* Arena::at(BufferId id) const {
  const Buffer& buffer = program_.at(id);
  if (!buffer.on_host) return base() + buffer.offset.count();
  return host_.get() + (buffer.offset - program_.arena_bytes).count();
}

// The guard zone starts at the first byte the block does not own: rounding up is no licence.
void Arena::acquire(BufferId id) {
  const Buffer& buffer = program_.at(id);
  if (!checks(buffer)) return;
  std::byte* const begin = at(id);
  std::byte* const end = begin + buffer.bytes.count();
  if (!buffer.persistent) set(begin, kPoison, end);
  std::byte* const guard_end = begin + (round_up(buffer.bytes, kBlockAlignment) + kGuard).count();
  set(end, kGuardByte, guard_end);
}

void Arena::release(BufferId id) {
  const Buffer& buffer = program_.at(id);
  if (!checks(buffer)) return;
  verify_guard(id);
  if (!buffer.persistent) set(at(id), kPoison, at(id) + buffer.bytes.count());
}

void Arena::verify_guard(BufferId id) const {
  const Buffer& buffer = program_.at(id);
  const std::byte* end = at(id) + buffer.bytes.count();
  const Bytes zone = round_up(buffer.bytes, kBlockAlignment) + kGuard - buffer.bytes;
  std::vector<std::byte> copy;
  if (device_ != nullptr) {
    copy.resize(std::size_t(zone.count()));
    device_->read(end, copy);
    end = copy.data();
  }
  const std::byte* const guard_end = end + zone.count();
  const auto* const broken =
      std::find_if(end, guard_end, [](std::byte value) { return value != kGuardByte; });
  if (broken == guard_end) return;
  throw std::runtime_error(fmt::format("buffer {} was written {} bytes behind its end ({} bytes)",
                                       buffer.name, broken - end + 1, buffer.bytes.count()));
}

void Arena::verify_persistent() const {
  if (!checking_) return;
  for (std::size_t i = 0; i < program_.buffers.size(); ++i) {
    const Buffer& buffer = program_.buffers[i];
    if (buffer.persistent && checks(buffer)) verify_guard(BufferId(i));
  }
}

std::vector<OwnedRange> ranges_of(const Tensor& operand, const RankContext& context,
                                  std::optional<std::int64_t> group) {
  if (!operand.arena) {
    OwnedRange whole;
    whole.elements = elements(operand.shape);
    whole.decay = true;
    return {whole};
  }
  INVARIANT(context.program != nullptr, "arena ops need a program");
  std::vector<OwnedRange> ranges = owned_ranges(*context.program, context.at);
  if (group) std::erase_if(ranges, [&](const OwnedRange& range) { return range.group != *group; });
  return ranges;
}

void keep_updated(const Tensor& state, std::int64_t begin, std::int64_t end,
                  std::vector<OwnedRange>& ranges) {
  std::int64_t first = 0, last = elements(state.shape);
  if (state.on_host || (!state.arena && end > 0)) {
    first = begin;
    last = end > 0 ? end : last;
  } else if (end > 0) {
    std::erase_if(ranges, [&](const OwnedRange& range) {
      return range.arena_offset < begin || range.arena_offset >= end;
    });
  }
  for (OwnedRange& range : ranges) {
    const std::int64_t behind = std::min(range.state_offset + range.elements, last),
                       cut = std::max<std::int64_t>(first - range.state_offset, 0);
    range.arena_offset += cut;
    range.elements = behind - range.state_offset - cut;
    range.state_offset += cut - first;
  }
  std::erase_if(ranges, [](const OwnedRange& range) { return range.elements <= 0; });
}

bool keeps_part(const Tensor& operand, const RankContext& context) {
  if (!operand.arena) return false;
  if (operand.on_host || operand.role == TensorRole::master_parameter) return true;
  INVARIANT(context.program != nullptr, "arena ops need a program");
  return elements(operand.shape) == owned_elements(*context.program);
}

/// A range of the arenas begins and ends with a bucket.
GradientPlace gradient_place(const Tensor& gradients, const RankContext& context,
                             std::int64_t begin, std::int64_t end) {
  if (end == 0) return {keeps_part(gradients, context), 0};
  INVARIANT(context.program != nullptr, "arena ops need a program");
  std::int64_t before = 0, own = 0;
  for (const Bucket& bucket : context.program->buckets) {
    const std::int64_t part = owned_part(*context.program, bucket, context.at).elements;
    if (bucket.begin < begin) before += part;
    if (bucket.begin >= begin && bucket.begin < end) own += part;
  }
  const bool part = elements(gradients.shape) == own;
  return {part, part ? before : begin};
}

void MemoryAccount::acquire(TensorRole role, Bytes needed) {
  const Bytes size = round_up(needed, kBlockAlignment);
  by_role_[std::size_t(role)] += size;
  live_ += size;
  if (live_ > peak_) {
    peak_ = live_;
    peak_by_role_ = by_role_;
  }
}

void MemoryAccount::release(TensorRole role, Bytes needed) {
  const Bytes size = round_up(needed, kBlockAlignment);
  by_role_[std::size_t(role)] -= size;
  live_ -= size;
  INVARIANT(by_role_[std::size_t(role)] >= Bytes(0), "more memory released than acquired");
}

}  // namespace plimsoll
