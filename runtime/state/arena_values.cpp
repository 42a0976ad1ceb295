// Values of an arena are filled, and read in any type.
#include "runtime/state/arena_values.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"
#include "runtime/backend.h"
#include "runtime/half.h"
#include "runtime/packed_weights.h"
#include "runtime/prepare.h"
#include "runtime/rank_device.h"
#include "runtime/state/initialize.h"

namespace plimsoll {

std::optional<BufferId> persistent_of(const Program& program, TensorRole role) {
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    if (program.buffers[i].persistent && program.buffers[i].role == role) return BufferId(i);
  }
  return std::nullopt;
}

std::vector<BufferId> masters_of(const Program& program) {
  std::vector<BufferId> masters;
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& buffer = program.buffers[i];
    if (!buffer.persistent || buffer.role != TensorRole::master_parameter) continue;
    masters.insert(buffer.on_host ? masters.end() : masters.begin(), BufferId(i));
  }
  return masters;
}

std::vector<TypedRange> parameter_ranges(const Program& program, Bytes arena) {
  std::vector<TypedRange> ranges;
  if (program.segments.empty()) return ranges;
  const auto& segments = program.segments;
  const auto same = [&](const Segment& s) { return s.dtype == segments[0].dtype; };
  if (std::all_of(segments.begin(), segments.end(), same)) {
    const DType type = segments[0].dtype;
    return {{0, arena.count() / bytes_of(type).count(), type, {}}};
  }
  Bytes offset;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    TypedRange range{segments[i].offset, 0, segments[i].dtype, offset};
    const Bytes element = bytes_of(range.type);
    range.elements = i + 1 < segments.size() ? segments[i + 1].offset - range.begin
                                             : (arena - offset).count() / element.count();
    offset += range.elements * element;
    ranges.push_back(range);
  }
  INVARIANT(offset == arena, "parameters of several types fill their arena");
  return ranges;
}

bool is_whole(const Program& program, std::int64_t elements) {
  if (program.segments.empty()) return true;
  const Segment& last = program.segments.back();
  return last.offset + last.elements <= elements;
}

void fill_segments(const Program& program, const Coordinates& at, std::span<float> arena,
                   std::int64_t threads, const FillSegment& fill) {
  if (program.segments.empty()) return;
  if (is_whole(program, std::int64_t(arena.size()))) {
    for_each_index(program.segments.size(), threads, [&](std::size_t i) {
      const Segment& segment = program.segments[i];
      fill(segment, 0, arena.subspan(std::size_t(segment.offset), std::size_t(segment.elements)));
    });
    return;
  }
  const std::vector<OwnedRange> ranges = owned_ranges(program, at);
  for_each_index(ranges.size(), threads, [&](std::size_t i) {
    const OwnedRange& range = ranges[i];
    const Segment& segment = program.segments[std::size_t(range.segment)];
    const bool inside = std::size_t(range.state_offset + range.elements) <= arena.size();
    // Beside others f32 parameters come last, and have no masters.
    if (!inside && segment.dtype == DType::f32) return;
    INVARIANT(inside, "a part of the parameters lies outside their arena");
    fill(segment, range.arena_offset - segment.offset,
         arena.subspan(std::size_t(range.state_offset), std::size_t(range.elements)));
  });
}

std::vector<float> parameter_values(const Program& program, const Arena& arena) {
  const auto id = persistent_of(program, TensorRole::parameter);
  if (!id) return {};
  std::vector<float> values;
  std::vector<std::byte> copy;
  const std::byte* const stored = arena.on_host(*id, copy);
  for (const TypedRange& range : parameter_ranges(program, program.at(*id).bytes)) {
    values.resize(std::size_t(range.begin + range.elements));
    to_f32(range.type, stored + range.offset.count(), values.data() + range.begin, range.elements);
  }
  return values;
}

void fill_parameters(const Program& program, Arena& arena, const Coordinates& at,
                     std::int64_t threads, const FillSegment& fill) {
  std::vector<float> values = parameter_values(program, arena);
  if (values.empty()) return;
  fill_segments(program, at, values, threads, fill);
  const BufferId parameters = *persistent_of(program, TensorRole::parameter);
  arena.change(parameters, [&](std::byte* stored) {
    for (const TypedRange& range : parameter_ranges(program, program.at(parameters).bytes)) {
      from_f32(range.type, values.data() + range.begin, stored + range.offset.count(),
               range.elements);
    }
  });
  const std::vector<BufferId> masters = masters_of(program);
  if (masters.empty()) return;
  const auto count_of = [&](BufferId id) {
    return std::size_t(program.at(id).bytes.count()) / sizeof(float);
  };
  const bool on_host = program.at(masters.back()).on_host;
  values.assign(on_host ? std::size_t(owned_elements(program)) : count_of(masters.back()), 0.0f);
  fill_segments(program, at, values, threads, fill);
  for (const BufferId id : masters) {
    const auto begin =
        program.at(id).on_host ? values.end() - std::ptrdiff_t(count_of(id)) : values.begin();
    arena.change(id, [&](std::byte* stored) {
      std::copy_n(begin, count_of(id), reinterpret_cast<float*>(stored));
    });
  }
}

namespace {

/// Returns whether scales of weights in 4 bits have 8 bits.
bool packs_nested(const Program& program) {
  for (const Routine& routine : program.routines) {
    for (const Op& op : routine.ops) {
      if (op.kind == OpKind::unpack_weight) return std::get<PackParams>(op.params).nested;
    }
  }
  return false;
}

/// Writes the initial values of the frozen parameters from byte `begin` to `end` of their arena, as
/// they lie in memory.
void initialize_bytes(const Program& program, const Coordinates& at, std::int64_t seed,
                      std::int64_t begin, std::int64_t end, std::int64_t threads,
                      std::byte* stored) {
  const bool nested = packs_nested(program);
  for_each_index(program.frozen.size(), threads, [&](std::size_t i) {
    const Segment& segment = program.frozen[i];
    if (segment.offset < begin || segment.offset >= end) return;
    Segment whole = segment;
    if (!segment.packed.empty()) whole.shape = segment.packed;
    std::vector<float> values(std::size_t(elements(whole.shape)));
    initialize_segment(whole, 0, at, seed, values);
    std::byte* const to = stored + (segment.offset - begin);
    if (segment.packed.empty()) {
      from_f32(segment.dtype, values.data(), to, segment.elements);
    } else {
      pack_weight(values, nested, to);
    }
  });
}

}  // namespace

void initialize_frozen(const Program& program, Arena& arena, const Coordinates& at,
                       std::int64_t seed) {
  const auto id = persistent_of(program, TensorRole::frozen_parameter);
  if (!id) return;
  const std::int64_t threads = arena.in_host_memory() ? 1 : resolve_threads(0);
  arena.change(*id, [&](std::byte* stored) {
    if (program.frozen_ranges.empty()) {
      initialize_bytes(program, at, seed, 0, program.at(*id).bytes.count(), threads, stored);
    }
    for (const Bucket& range : program.frozen_ranges) {
      std::vector<std::byte> whole(std::size_t(range.elements));
      initialize_bytes(program, at, seed, range.begin, range.begin + range.elements, threads,
                       whole.data());
      const std::int64_t part = range.elements / program.sharding_degree;
      std::copy_n(whole.data() + shard_index(program.grid, at) * part, part, stored);
      stored += part;
    }
  });
}

void initialize_arena(const Program& program, Arena& arena, const Coordinates& at,
                      std::int64_t seed) {
  const std::int64_t threads = arena.in_host_memory() ? 1 : resolve_threads(0);
  const auto fill = [&](const Segment& segment, std::int64_t first, std::span<float> values) {
    initialize_segment(segment, first, at, seed, values);
  };
  fill_parameters(program, arena, at, threads, fill);
  initialize_frozen(program, arena, at, seed);
}

namespace {

/// Finds the arena that a buffer is: the op that zeroes it says so.
DType type_of(const Program& program, BufferId id) {
  for (const Call& call : program.calls) {
    const Routine& routine = program.at(call.routine);
    for (std::size_t i = 0; i < routine.tensors.size(); ++i) {
      const auto& slot = routine.places[i].slot;
      const bool arena = slot && routine.slots[*slot].kind == SlotKind::gradient_arena;
      if (arena && call.bindings[*slot].buffer == id) return routine.tensors[i].dtype;
    }
  }
  return DType::f32;
}

}  // namespace

std::vector<float> gradient_values(const Program& program, const Arena& arena) {
  const auto id = persistent_of(program, TensorRole::gradient);
  if (!id) return {};
  const DType type = type_of(program, *id);
  std::vector<std::byte> copy;
  const std::byte* const stored = arena.on_host(*id, copy);
  std::vector<float> values(std::size_t(program.at(*id).bytes.count() / element_bytes(type)));
  to_f32(type, stored, values.data(), std::int64_t(values.size()));
  return values;
}

std::vector<BufferCopy> copy_changed_without_update(const Program& program, const Arena& arena) {
  std::set<std::size_t> buffers;
  for (const Call& call : program.calls) {
    const std::vector<Slot>& slots = program.at(call.routine).slots;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const SlotKind kind = slots[i].kind;
      if (kind == SlotKind::scalars || kind == SlotKind::selection_bias ||
          kind == SlotKind::expert_load)
        buffers.insert(call.bindings[i].buffer.index());
    }
  }
  std::vector<BufferCopy> copies;
  for (const std::size_t index : buffers) {
    const BufferId id(index);
    std::vector<std::byte> copy;
    const std::byte* const stored = arena.on_host(id, copy);
    copies.push_back({id, std::vector(stored, stored + program.at(id).bytes.count())});
  }
  return copies;
}

void restore(const std::vector<BufferCopy>& copies, Arena& arena) {
  for (const BufferCopy& copy : copies) {
    arena.change(copy.id, [&](std::byte* stored) { std::ranges::copy(copy.bytes, stored); });
  }
}

namespace {

/// Returns the buffer that holds the step's scalars, and where in it they begin.
std::optional<std::pair<BufferId, Bytes>> place_of_scalars(const Program& program,
                                                           const Coordinates& at) {
  for (const Call& call : program.calls) {
    const auto& slots = program.at(call.routine).slots;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (slots[i].kind != SlotKind::scalars) continue;
      const Binding& binding = call.bindings[i];
      return std::pair(binding.buffer, slot_offset(program.grid, binding, at));
    }
  }
  return std::nullopt;
}

}  // namespace

const std::byte* find_scalars(const Program& program, const Arena& arena, const Coordinates& at) {
  const auto place = place_of_scalars(program, at);
  return place ? arena.at(place->first) + place->second.count() : nullptr;
}

Scalars read_scalars(const std::byte* scalars, RankDevice* device) {
  Scalars values = {};
  if (scalars == nullptr) return values;
  if (device != nullptr) {
    device->read(scalars, std::as_writable_bytes(std::span(values)));
  } else {
    std::memcpy(values.data(), scalars, sizeof(values));
  }
  return values;
}

void change_scalars(const Program& program, Arena& arena, const Coordinates& at,
                    const Scalars& scalars) {
  const auto place = place_of_scalars(program, at);
  if (!place) return;
  arena.change(place->first, [&](std::byte* stored) {
    std::memcpy(stored + place->second.count(), scalars.data(), sizeof(scalars));
  });
}

}  // namespace plimsoll
