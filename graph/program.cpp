// Memory peaks, owned parts and classes of ranks are computed from Programs.
#include "graph/program.h"

#include "base/error.h"

namespace plimsoll {

namespace {
constexpr auto kSlotKinds = std::to_array<std::string_view>({"parameters",
                                                             "resident_parameters",
                                                             "frozen_parameters",
                                                             "gradients",
                                                             "tied_parameters",
                                                             "tied_gradients",
                                                             "input",
                                                             "output",
                                                             "input_gradient",
                                                             "output_gradient",
                                                             "saved",
                                                             "saved_for_weights",
                                                             "offloaded",
                                                             "deferred",
                                                             "carried",
                                                             "weight_copies",
                                                             "scalars",
                                                             "parameter_arena",
                                                             "master_parameter_arena",
                                                             "gradient_arena",
                                                             "first_moment_arena",
                                                             "second_moment_arena",
                                                             "moment_scale_arena",
                                                             "host_parameter_arena",
                                                             "host_gradient_arena",
                                                             "host_first_moment_arena",
                                                             "host_second_moment_arena",
                                                             "main_gradients",
                                                             "squared_norms",
                                                             "tensor_norms",
                                                             "squares",
                                                             "scaled_gradients",
                                                             "payload",
                                                             "selection_bias",
                                                             "expert_load",
                                                             "layer_choices"});
}  // namespace

MemoryPeak memory_peak(const Program& program) {
  const std::size_t calls = program.calls.size();
  std::vector<Bytes> grows(calls + 1);  // before each call; negative where more is released
  for (const Buffer& buffer : program.buffers) {
    if (buffer.on_host) continue;
    const Bytes size = round_up(buffer.bytes, kBlockAlignment);
    grows[buffer.begin] += size;
    grows[buffer.end] -= size;
  }
  MemoryPeak result;
  Bytes live;
  for (std::size_t call = 0; call < calls; ++call) {
    live += grows[call];
    if (live <= result.peak) continue;
    result.peak = live;
    result.call = call;
  }
  for (const Buffer& buffer : program.buffers) {
    if (!buffer.on_host && buffer.begin <= result.call && result.call < buffer.end)
      result.by_role[std::size_t(buffer.role)] += round_up(buffer.bytes, kBlockAlignment);
  }
  return result;
}

std::vector<BytesByRole> live_bytes(const Program& program) {
  std::vector<BytesByRole> acquired(program.calls.size() + 1), released(program.calls.size() + 1);
  for (const Buffer& buffer : program.buffers) {
    if (buffer.on_host) continue;
    const Bytes size = round_up(buffer.bytes, kBlockAlignment);
    acquired[buffer.begin][std::size_t(buffer.role)] += size;
    released[buffer.end][std::size_t(buffer.role)] += size;
  }
  std::vector<BytesByRole> all;
  all.reserve(program.calls.size());
  BytesByRole live = {};
  for (std::size_t call = 0; call < program.calls.size(); ++call) {
    for (std::size_t role = 0; role < kTensorRoles; ++role)
      live[role] = live[role] - released[call][role] + acquired[call][role];
    all.push_back(live);
  }
  return all;
}

Bytes host_bytes(const Program& program) {
  Bytes end = program.arena_bytes;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.on_host)
      end = std::max(end, buffer.offset + round_up(buffer.bytes, kBlockAlignment));
  }
  return end - program.arena_bytes;
}

std::int64_t shard_index(const Grid& grid, const Coordinates& at) {
  return at[std::size_t(Axis::cp)] + grid[Axis::cp] * at[std::size_t(Axis::sharding)];
}

std::int64_t shards(const Program& program, const Bucket& bucket) {
  const bool sharded = program.sharding_degree > 1;
  return sharded && bucket.experts ? program.grid[Axis::edp] : program.sharding_degree;
}

std::int64_t owned_elements(const Program& program) {
  std::int64_t owned = 0;
  for (const Bucket& bucket : program.buckets) {
    if (bucket.owner == program.owner) owned += bucket.elements / shards(program, bucket);
  }
  return owned;
}

Bytes reach(const Program& program, const Binding& binding, Bytes bytes) {
  const Grid& grid = program.grid;
  const std::int64_t parts =
      grid[binding.stride_axis] * (binding.stride_axis == Axis::sharding ? grid[Axis::cp] : 1);
  return binding.offset + binding.shard_stride * (parts - 1) + bytes;
}

Bucket owned_part(const Program& program, const Bucket& bucket, const Coordinates& at) {
  const std::int64_t index = shard_index(program.grid, at);
  if (bucket.owner)
    return {bucket.begin, bucket.owner == index ? bucket.elements : 0, bucket.owner};
  const std::int64_t parts = shards(program, bucket), part = bucket.elements / parts;
  const std::int64_t own = bucket.experts ? at[std::size_t(Axis::edp)] : index;
  return {bucket.begin + (parts > 1 ? own * part : 0), part, {}, bucket.experts};
}

std::size_t class_of(const Grid& grid, bool by_owner, const Coordinates& at) {
  const auto stage = std::size_t(at[std::size_t(Axis::pp)]);
  if (!by_owner) return stage;
  return stage * std::size_t(grid[Axis::sharding]) + std::size_t(at[std::size_t(Axis::sharding)]);
}

std::size_t class_of(std::span<const Program> programs, const Coordinates& at) {
  const Program& first = programs.front();
  const std::size_t index = class_of(first.grid, first.owner.has_value(), at);
  INVARIANT(index < programs.size(), "no Program for a class of ranks");
  return index;
}

std::int64_t ranks_per_class(std::span<const Program> programs) {
  return programs.front().grid.world_size() / std::int64_t(programs.size());
}

std::string class_name(const Program& program) {
  std::string name = "stage " + std::to_string(program.stage);
  if (program.owner) name += " owner " + std::to_string(*program.owner);
  return name;
}

std::string_view to_text(SlotKind kind) { return kSlotKinds[std::size_t(kind)]; }

}  // namespace plimsoll
