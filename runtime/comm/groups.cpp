// Groups and channels are collected from Programs.
#include "runtime/comm/groups.h"

#include "graph/grid.h"
#include "graph/op.h"
#include "graph/op_table.h"

namespace plimsoll {

namespace {

template <class Work>
void for_each_op(std::span<const Program> programs, const Work& work) {
  for (const Program& program : programs) {
    for (const Routine& routine : program.routines) {
      for (const Op& op : routine.ops) work(program, op);
    }
  }
}

std::int64_t stage_of(const Grid& grid, std::int64_t rank) {
  return grid.coordinates(rank)[std::size_t(Axis::pp)];
}

}  // namespace

std::set<std::pair<Group, Stream>> groups_of(std::span<const Program> programs) {
  std::set<std::pair<Group, Stream>> groups;
  for_each_op(programs, [&](const Program&, const Op& op) {
    const auto* params = std::get_if<CollectiveParams>(&op.params);
    if (params != nullptr && communicates(op.kind)) groups.emplace(params->group, op.stream);
  });
  return groups;
}

std::vector<std::int64_t> part_of(const Grid& grid, const Group& group, std::int64_t rank) {
  const bool inside = has_stage(grid, group, stage_of(grid, rank));
  return inside ? members(grid, group, rank) : std::vector<std::int64_t>();
}

std::set<TransferChannel> transfer_channels(std::span<const Program> programs) {
  std::set<TransferChannel> channels;
  for_each_op(programs, [&](const Program& program, const Op& op) {
    const auto* params = std::get_if<TransferParams>(&op.params);
    if (params == nullptr) return;
    const std::int64_t stages = program.grid[Axis::pp], offset = params->stage_offset;
    if (offset == 0) {
      for (const bool second : {false, true}) channels.insert({program.stage, 0, second});
      return;
    }
    const auto further = [&](std::int64_t by) {
      return ((program.stage + by) % stages + stages) % stages;
    };
    // A receive names where its data comes from: it is the sender's transfer the other way.
    channels.insert(op.kind == OpKind::send ? TransferChannel{program.stage, offset, false}
                                            : TransferChannel{further(offset), -offset, false});
  });
  return channels;
}

TransferChannel channel_from(const Grid& grid, std::int64_t sender, std::int64_t offset) {
  const bool second = offset == 0 && pipeline_peer(grid, sender, 0) < sender;
  return {stage_of(grid, sender), offset, second};
}

std::vector<std::int64_t> ends_of(const Grid& grid, const TransferChannel& channel,
                                  std::int64_t rank) {
  if (channel_from(grid, rank, channel.offset) == channel)
    return {rank, pipeline_peer(grid, rank, channel.offset)};
  const std::int64_t sender = pipeline_peer(grid, rank, -channel.offset);
  if (channel_from(grid, sender, channel.offset) == channel) return {sender, rank};
  return {};
}

}  // namespace plimsoll
