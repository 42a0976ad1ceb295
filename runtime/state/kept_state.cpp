// The state of a rank is copied from and to whole tensors, through the mapping of parts.h.
#include "runtime/state/kept_state.h"

#include <algorithm>
#include <array>
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

constexpr KeptKind kKeptKinds[] = {KeptKind::parameter, KeptKind::first_moment,
                                   KeptKind::second_moment};

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

/// A moment of a tensor that is updated on its own.
struct KeptMoment {
  std::int64_t begin = 0;  ///< element of the arena
  Shape shape;
  std::optional<Split> split;
};

/// The arenas of first and second moments, as far as there are some. Each is in the device's
/// memory, in the host's, or in both: then the host's has the last elements.
struct MomentArenas {
  std::vector<std::vector<BufferId>> buffers;
  DType type = DType::f32;  ///< u8: codes, with scales, in one buffer
  BufferId scales;
  /// Where tensors are updated one by one: their moments by whole_name().
  std::map<std::string, std::array<std::optional<KeptMoment>, 2>> of_tensors = {};

  std::int64_t elements(const Program& program, std::size_t which) const {
    std::int64_t count = 0;
    for (const BufferId id : buffers[which]) count += elements(program, id);
    return count;
  }
  std::int64_t elements(const Program& program, BufferId id) const {
    return program.at(id).bytes.count() / element_bytes(type);
  }
};

/// Finds the moments of the tensor that a call updates, whose names are the tensor's and a suffix.
void add_moments(const Program& program, const Routine& routine, const Call& call,
                 MomentArenas& arenas) {
  for (std::size_t i = 0; i < routine.tensors.size(); ++i) {
    const auto& slot = routine.places[i].slot;
    const Tensor& tensor = routine.tensors[i];
    if (!slot || tensor.role != TensorRole::optimizer_state || tensor.arena || tensor.on_host ||
        !program.at(call.bindings[*slot].buffer).persistent)
      continue;
    const std::string parameter = tensor.name.substr(0, tensor.name.rfind('.'));
    const std::size_t which = routine.slots[*slot].kind == SlotKind::first_moment_arena ? 0 : 1;
    arenas.of_tensors[whole_name(parameter, call.layer.value_or(0))][which] = {
        call.bindings[*slot].offset.count() / element_bytes(tensor.dtype), tensor.shape,
        tensor.split};
  }
}

MomentArenas moment_arenas(const Program& program) {
  std::map<SlotKind, BufferId> found;
  MomentArenas arenas;
  for (const Call& call : program.calls) {
    const Routine& routine = program.at(call.routine);
    add_moments(program, routine, call, arenas);
    for (std::size_t i = 0; i < routine.tensors.size(); ++i) {
      const auto& slot = routine.places[i].slot;
      if (!slot || routine.tensors[i].role != TensorRole::optimizer_state) continue;
      const SlotKind kind = routine.slots[*slot].kind;
      const BufferId buffer = call.bindings[*slot].buffer;
      if (program.at(buffer).persistent) found.try_emplace(kind, buffer);
      if (kind == SlotKind::first_moment_arena) arenas.type = routine.tensors[i].dtype;
    }
  }
  for (const auto& [device, host] :
       {std::pair(SlotKind::first_moment_arena, SlotKind::host_first_moment_arena),
        std::pair(SlotKind::second_moment_arena, SlotKind::host_second_moment_arena)}) {
    std::vector<BufferId> buffers;
    for (const SlotKind kind : {device, host})
      if (found.contains(kind)) buffers.push_back(found[kind]);
    if (!buffers.empty()) arenas.buffers.push_back(std::move(buffers));
  }
  arenas.scales = found[SlotKind::moment_scale_arena];
  return arenas;
}

/// A KeptRange is a part of a value that a rank keeps. The segment has the shape of the value, and
/// the range the place of the part in it and in its arena.
struct KeptRange {
  Segment segment;
  OwnedRange range;
};

/// Returns what a rank keeps of a kind, in ascending order.
std::vector<KeptRange> kept_ranges(const Program& program, const Coordinates& at,
                                   const MomentArenas& moments, KeptKind kind) {
  std::vector<KeptRange> kept;
  if (kind > KeptKind(moments.buffers.size())) return kept;
  const bool whole = kind != KeptKind::parameter && !moments.of_tensors.empty();
  for (const OwnedRange& range : owned_ranges(program, at)) {
    KeptRange one{program.segments[std::size_t(range.segment)], range};
    // Whole tensors may be cut where buckets are.
    if (whole && !kept.empty() && kept.back().range.segment == range.segment) continue;
    if (whole) {
      const auto found =
          moments.of_tensors.find(whole_name(one.segment.parameter, one.segment.layer));
      if (found == moments.of_tensors.end()) continue;
      const auto& moment = found->second[std::size_t(kind) - 1];
      if (!moment) continue;
      one.segment.shape = moment->shape;
      one.segment.split = moment->split;
      one.segment.offset = one.range.arena_offset = 0;
      one.range.state_offset = moment->begin;
      one.range.elements = elements(moment->shape);
    }
    kept.push_back(std::move(one));
  }
  return kept;
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
  const std::int64_t count = moments.elements(program, which);
  std::vector<float> values(std::size_t(count), 0.0f);
  std::vector<std::byte> copy, copied_scales;
  float* to = values.data();
  for (const BufferId id : moments.buffers[which]) {
    const std::int64_t part = moments.elements(program, id);
    if (moments.type != DType::u8) to_f32(moments.type, arena.on_host(id, copy), to, part);
    to += part;
  }
  if (moments.type != DType::u8) return values;
  const std::byte* const stored = arena.on_host(moments.buffers[which][0], copy);
  const auto* scales = reinterpret_cast<const float*>(arena.on_host(moments.scales, copied_scales));
  for_each_block(which, count, scales, [&](std::int64_t first, std::size_t block, float scale) {
    decode_kept_moments(which == 0, stored + first, scale, {values.data() + first, block});
  });
  return values;
}

void set_moment(const Program& program, Arena& arena, const MomentArenas& moments,
                std::size_t which, const FillSegment& fill, const Coordinates& at) {
  std::vector<float> values(std::size_t(moments.elements(program, which)), 0.0f);
  if (moments.of_tensors.empty()) {
    fill_segments(program, at, values, 1, fill);
  } else {
    for (const auto& [segment, range] : kept_ranges(program, at, moments, KeptKind(which + 1)))
      fill(segment, 0,
           std::span(values).subspan(std::size_t(range.state_offset), std::size_t(range.elements)));
  }
  const float* from = values.data();
  for (const BufferId id : moments.buffers[which]) {
    if (moments.type == DType::u8) break;
    const std::int64_t part = moments.elements(program, id);
    arena.change(id, [&](std::byte* stored) { from_f32(moments.type, from, stored, part); });
    from += part;
  }
  if (moments.type != DType::u8) return;
  arena.change(moments.buffers[which][0], [&](std::byte* stored) {
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
  HostValues(const Program& program, const Arena& arena, const std::vector<BufferId>& masters) {
    for (const BufferId id : masters) {
      const auto* const part = reinterpret_cast<const float*>(arena.on_host(id, copy_));
      values_.insert(values_.end(), part,
                     part + program.at(id).bytes.count() / std::int64_t(sizeof(float)));
    }
    data_ = values_.empty() ? nullptr : values_.data();
    whole_ = is_whole(program, std::int64_t(values_.size()));
  }
  HostValues(const Program& program, const Arena& arena, const MomentArenas& moments,
             std::size_t which) {
    if (which >= moments.buffers.size()) return;
    if (moments.type == DType::f32 && moments.buffers[which].size() == 1) {
      data_ = reinterpret_cast<const float*>(arena.on_host(moments.buffers[which][0], copy_));
    } else {
      values_ = moment_values(program, arena, moments, which);
      data_ = values_.data();
    }
    whole_ = moments.of_tensors.empty() && is_whole(program, moments.elements(program, which));
  }
  HostValues(const Program& program, std::vector<float> values) : values_(std::move(values)) {
    data_ = values_.data();
    whole_ = !values_.empty() && is_whole(program, std::int64_t(values_.size()));
  }
  HostValues(const HostValues&) = delete;
  HostValues& operator=(const HostValues&) = delete;

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
  std::vector<MomentArenas> moments;
  for (const Program& program : programs) moments.push_back(moment_arenas(program));
  const bool alike =
      std::ranges::all_of(moments, [](const MomentArenas& one) { return one.of_tensors.empty(); });
  const std::size_t count = alike ? kept_moments(programs) : 0;
  for (const Program& program : programs) {
    for (const Segment& segment : program.segments) {
      const std::string name = whole_name(segment.parameter, segment.layer);
      const Shape shape = whole_shape(segment.shape, segment.split);
      all[name] = {name, shape, std::vector(count, shape)};
    }
    for (const KeptBias& bias : kept_biases(program))
      all[bias.name] = {bias.name, {bias.elements}, {}};
  }
  for (const MomentArenas& one : moments) {
    for (const auto& [name, of_tensor] : one.of_tensors) {
      std::vector<Shape> shapes;
      for (const auto& moment : of_tensor)
        if (moment) shapes.push_back(whole_shape(moment->shape, moment->split));
      all[name].moments = shapes;
    }
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
  std::set<std::tuple<KeptKind, std::string, std::int64_t, std::int64_t>> taken;
  std::set<std::string> taken_biases;
  std::vector<WriteShare> shares;
  for (std::int64_t rank = 0; rank <= last; ++rank) {
    const Coordinates at = grid.coordinates(rank);
    const Program& program = programs[class_of(programs, at)];
    const MomentArenas moments = moment_arenas(program);
    WriteShare& share = shares.emplace_back();
    for (const KeptKind kind : kKeptKinds) {
      for (const auto& [segment, range] : kept_ranges(program, at, moments, kind)) {
        const std::int64_t first =
            global_index(segment.shape, segment.split, at, range.arena_offset - segment.offset);
        // A tied copy may be cut elsewhere; the stage that counts the tensor writes it.
        const bool own =
            segment.norm_weight != 0 &&
            taken.emplace(kind, whole_name(segment.parameter, segment.layer), first, range.elements)
                .second;
        share.ranges.push_back(own);
      }
    }
    for (const KeptBias& bias : kept_biases(program))
      share.biases.push_back(taken_biases.insert(bias.name).second);
  }
  return shares;
}

void save_state(const Program& program, const Arena& arena, const Coordinates& at,
                const WriteShare& share, StateWriter& writer) {
  const std::vector<BufferId> master_buffers = masters_of(program);
  const HostValues masters(program, arena, master_buffers),
      parameters(program, parameter_values(program, arena));
  const MomentArenas moments = moment_arenas(program);
  const HostValues first(program, arena, moments, 0), second(program, arena, moments, 1);
  auto own = share.ranges.begin();
  for (const KeptKind kind : kKeptKinds) {
    for (const auto& [segment, range] : kept_ranges(program, at, moments, kind)) {
      if (!*own++) continue;
      // Beside others f32 parameters have no masters.
      const bool has_master = !master_buffers.empty() && segment.dtype != DType::f32;
      const HostValues& values = kind == KeptKind::first_moment    ? first
                                 : kind == KeptKind::second_moment ? second
                                 : has_master                      ? masters
                                                                   : parameters;
      write_range(segment, at, range, kind, values.at(range), writer);
    }
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
