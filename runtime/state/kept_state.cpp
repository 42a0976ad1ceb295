// The state of a rank is copied from and to whole tensors, through the mapping of parts.h.
#include "runtime/state/kept_state.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "runtime/backend.h"
#include "runtime/half.h"
#include "runtime/state/moment_codes.h"
#include "runtime/state/parts.h"

namespace plimsoll {
namespace {

/// A KeptBias is the selection bias of one router. All ranks of a stage have the same.
struct KeptBias {
  std::string name;
  std::int64_t elements = 0;
  BufferId buffer;
  std::int64_t offset = 0;  ///< bytes from the start of the buffer
};

std::vector<KeptBias> kept_biases(const Program& program) {
  std::vector<KeptBias> biases;
  std::set<std::string> known;
  for (const Call& call : program.calls) {
    const Routine& routine = program.at(call.routine);
    if (routine.phase != Phase::forward) continue;
    for (std::size_t i = 0; i < routine.tensors.size(); ++i) {
      const Place& place = routine.places[i];
      if (!place.slot || routine.slots[*place.slot].kind != SlotKind::selection_bias) continue;
      const Binding& binding = call.bindings[*place.slot];
      const std::string name = whole_name(routine.tensors[i].name, call.layer.value_or(0));
      if (!known.insert(name).second) continue;
      biases.push_back({name, elements(routine.tensors[i].shape), binding.buffer,
                        (binding.offset + place.offset).count()});
    }
  }
  return biases;
}

/// The arenas of first and second moments, as far as there are some.
struct MomentArenas {
  std::vector<BufferId> buffers;
  DType type = DType::f32;  ///< u8: codes, with scales
  BufferId scales;

  std::int64_t elements(const Program& program) const {
    return program.at(buffers[0]).bytes.count() / element_bytes(type);
  }
};

MomentArenas moment_arenas(const Program& program) {
  std::map<SlotKind, BufferId> found;
  MomentArenas arenas;
  for (const Call& call : program.calls) {
    const Routine& routine = program.at(call.routine);
    for (std::size_t i = 0; i < routine.tensors.size(); ++i) {
      const auto& slot = routine.places[i].slot;
      if (!slot || routine.tensors[i].role != TensorRole::optimizer_state) continue;
      const SlotKind kind = routine.slots[*slot].kind;
      if (found.try_emplace(kind, call.bindings[*slot].buffer).second &&
          kind == SlotKind::first_moment_arena)
        arenas.type = routine.tensors[i].dtype;
    }
  }
  for (const SlotKind kind : {SlotKind::first_moment_arena, SlotKind::second_moment_arena})
    if (found.contains(kind)) arenas.buffers.push_back(found[kind]);
  arenas.scales = found[SlotKind::moment_scale_arena];
  return arenas;
}

/// Calls work(first element, elements, scale) for each block of a moment in 8 bits.
template <class Scale, class Work>
void for_each_block(std::size_t moment, std::int64_t count, Scale* scales, const Work& work) {
  Scale* scale = scales + std::int64_t(moment) * moment_blocks(count);
  for (std::int64_t first = 0; first < count; first += kMomentBlock)
    work(first, std::size_t(std::min(kMomentBlock, count - first)), *scale++);
}

/// Returns the values of a moment in the order of its arena.
std::vector<float> moment_values(const Program& program, const Arena& arena,
                                 const MomentArenas& moments, std::size_t which) {
  const std::int64_t count = moments.elements(program);
  std::vector<float> values(std::size_t(count), 0.0f);
  std::vector<std::byte> copy, copied_scales;
  const std::byte* const stored = arena.on_host(moments.buffers[which], copy);
  if (moments.type != DType::u8) {
    to_f32(moments.type, stored, values.data(), count);
    return values;
  }
  const auto* scales = reinterpret_cast<const float*>(arena.on_host(moments.scales, copied_scales));
  for_each_block(which, count, scales, [&](std::int64_t first, std::size_t block, float scale) {
    decode_kept_moments(which == 0, stored + first, scale, {values.data() + first, block});
  });
  return values;
}

void set_moment(const Program& program, Arena& arena, const MomentArenas& moments,
                std::size_t which, const FillSegment& fill, const Coordinates& at) {
  std::vector<float> values(std::size_t(moments.elements(program)), 0.0f);
  fill_segments(program, at, values, 1, fill);
  arena.change(moments.buffers[which], [&](std::byte* stored) {
    if (moments.type != DType::u8)
      return from_f32(moments.type, values.data(), stored, std::int64_t(values.size()));
    arena.change(moments.scales, [&](std::byte* scales) {
      for_each_block(
          which, std::int64_t(values.size()), reinterpret_cast<float*>(scales),
          [&](std::int64_t first, std::size_t block, float& scale) {
            scale = encode_moments(which == 0, {values.data() + first, block}, stored + first);
          });
    });
  });
}

FillSegment fill_from(StateReader& reader, KeptKind kind, const Coordinates& at) {
  return [&reader, kind, at](const Segment& segment, std::int64_t first, std::span<float> values) {
    const std::string name = whole_name(segment.parameter, segment.layer);
    const std::int64_t real = whole_elements(segment.shape, segment.split);
    const auto run = [&](std::int64_t begin, std::int64_t whole, std::int64_t length) {
      const std::int64_t wanted = std::clamp<std::int64_t>(real - whole, 0, length);
      const auto all = values.subspan(std::size_t(begin), std::size_t(length));
      if (wanted > 0) reader.read(kind, name, whole, all.first(std::size_t(wanted)));
      std::fill(all.begin() + wanted, all.end(), 0.0f);
    };
    for_each_run(segment.shape, segment.split, at, first, std::int64_t(values.size()), run);
  };
}

/// The values of an arena on the host, which may be whole or the parts that a rank owns.
class HostValues {
 public:
  HostValues(const Program& program, const Arena& arena, std::optional<BufferId> id) {
    if (!id) return;
    data_ = reinterpret_cast<const float*>(arena.on_host(*id, copy_));
    whole_ = is_whole(program, program.at(*id).bytes.count() / std::int64_t(sizeof(float)));
  }
  HostValues(const Program& program, const Arena& arena, const MomentArenas& moments,
             std::size_t which) {
    if (which >= moments.buffers.size()) return;
    if (moments.type == DType::f32) {
      data_ = reinterpret_cast<const float*>(arena.on_host(moments.buffers[which], copy_));
    } else {
      values_ = moment_values(program, arena, moments, which);
      data_ = values_.data();
    }
    whole_ = is_whole(program, moments.elements(program));
  }
  HostValues(const Program& program, std::vector<float> values) : values_(std::move(values)) {
    data_ = values_.data();
    whole_ = !values_.empty() && is_whole(program, std::int64_t(values_.size()));
  }
  HostValues(const HostValues&) = delete;
  HostValues& operator=(const HostValues&) = delete;

  bool empty() const { return data_ == nullptr; }
  std::span<const float> at(const OwnedRange& range) const {
    return {data_ + (whole_ ? range.arena_offset : range.state_offset),
            std::size_t(range.elements)};
  }

 private:
  std::vector<std::byte> copy_;
  std::vector<float> values_;
  const float* data_ = nullptr;
  bool whole_ = false;
};

void write_range(const Segment& segment, const Coordinates& at, const OwnedRange& range,
                 KeptKind kind, std::span<const float> values, StateWriter& writer) {
  const std::string name = whole_name(segment.parameter, segment.layer);
  const std::int64_t real = whole_elements(segment.shape, segment.split);
  const auto run = [&](std::int64_t begin, std::int64_t whole, std::int64_t length) {
    const std::int64_t wanted = std::clamp<std::int64_t>(real - whole, 0, length);
    if (wanted == 0) return;
    writer.write(kind, name, whole, values.subspan(std::size_t(begin), std::size_t(wanted)));
  };
  for_each_run(segment.shape, segment.split, at, range.arena_offset - segment.offset,
               range.elements, run);
}

}  // namespace

std::vector<WholeTensor> whole_tensors(std::span<const Program> programs) {
  std::map<std::string, WholeTensor> all;
  for (const Program& program : programs) {
    for (const Segment& segment : program.segments) {
      const std::string name = whole_name(segment.parameter, segment.layer);
      all[name] = {name, whole_shape(segment.shape, segment.split)};
    }
    for (const KeptBias& bias : kept_biases(program))
      all[bias.name] = {bias.name, {bias.elements}, false};
  }
  std::vector<WholeTensor> tensors;
  for (auto& [name, tensor] : all) tensors.push_back(std::move(tensor));
  return tensors;
}

std::size_t kept_moments(std::span<const Program> programs) {
  std::size_t moments = 0;
  for (const Program& program : programs)
    moments = std::max(moments, moment_arenas(program).buffers.size());
  return moments;
}

void load_state(const Program& program, Arena& arena, const Coordinates& at, StateReader& reader) {
  fill_parameters(program, arena, at, 1, fill_from(reader, KeptKind::parameter, at));
  const MomentArenas moments = moment_arenas(program);
  for (std::size_t i = 0; i < moments.buffers.size(); ++i) {
    const auto kind = KeptKind(std::size_t(KeptKind::first_moment) + i);
    set_moment(program, arena, moments, i, fill_from(reader, kind, at), at);
  }
  for (const KeptBias& bias : kept_biases(program)) {
    arena.change(bias.buffer, [&](std::byte* stored) {
      auto* const values = reinterpret_cast<float*>(stored + bias.offset);
      reader.read(KeptKind::parameter, bias.name, 0, {values, std::size_t(bias.elements)});
    });
  }
  change_scalars(program, arena, at, reader.scalars());
}

std::vector<WriteShare> write_shares(std::span<const Program> programs, std::int64_t last) {
  const Grid& grid = programs[0].grid;
  std::set<std::tuple<std::string, std::int64_t, std::int64_t>> taken;
  std::set<std::string> taken_biases;
  std::vector<WriteShare> shares;
  for (std::int64_t rank = 0; rank <= last; ++rank) {
    const Coordinates at = grid.coordinates(rank);
    const Program& program = programs[class_of(programs, at)];
    WriteShare& share = shares.emplace_back();
    for (const OwnedRange& range : owned_ranges(program, at)) {
      const Segment& segment = program.segments[std::size_t(range.segment)];
      const std::int64_t first =
          global_index(segment.shape, segment.split, at, range.arena_offset - segment.offset);
      // A tied copy may be cut elsewhere; the stage that counts the tensor writes it.
      const bool own =
          segment.norm_weight != 0 &&
          taken.emplace(whole_name(segment.parameter, segment.layer), first, range.elements).second;
      share.ranges.push_back(own);
    }
    for (const KeptBias& bias : kept_biases(program))
      share.biases.push_back(taken_biases.insert(bias.name).second);
  }
  return shares;
}

void save_state(const Program& program, const Arena& arena, const Coordinates& at,
                const WriteShare& share, StateWriter& writer) {
  const auto master_buffer = persistent_of(program, TensorRole::master_parameter);
  const HostValues masters(program, arena, master_buffer),
      parameters(program, parameter_values(program, arena));
  const MomentArenas moments = moment_arenas(program);
  const HostValues first(program, arena, moments, 0), second(program, arena, moments, 1);
  const std::vector<OwnedRange> ranges = owned_ranges(program, at);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (!share.ranges[i]) continue;
    const OwnedRange& range = ranges[i];
    const Segment& segment = program.segments[std::size_t(range.segment)];
    const auto write = [&](KeptKind kind, const HostValues& values) {
      if (!values.empty()) write_range(segment, at, range, kind, values.at(range), writer);
    };
    // Beside others f32 parameters have no masters.
    const bool has_master = !masters.empty() && segment.dtype != DType::f32;
    write(KeptKind::parameter, has_master ? masters : parameters);
    write(KeptKind::first_moment, first);
    write(KeptKind::second_moment, second);
  }
  const std::vector<KeptBias> biases = kept_biases(program);
  std::vector<std::byte> copy;
  for (std::size_t i = 0; i < biases.size(); ++i) {
    if (!share.biases[i]) continue;
    const std::byte* const stored = arena.on_host(biases[i].buffer, copy) + biases[i].offset;
    writer.write(KeptKind::parameter, biases[i].name, 0,
                 {reinterpret_cast<const float*>(stored), std::size_t(biases[i].elements)});
  }
}

}  // namespace plimsoll
