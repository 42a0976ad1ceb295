// Finds the neighbours of a stage's chunks.
#include "passes/schedule/stage_borders.h"

namespace plimsoll {
namespace {

/// Returns how many parts of the model an action's border goes on.
std::int64_t onward(const Action& action) { return action.kind == ActionKind::forward ? 1 : -1; }

}  // namespace

std::size_t StageBorders::part(const Action& action) const {
  return stages_.stages[std::size_t(layout_.stage)][std::size_t(action.chunk)];
}

/// Returns the place of the part that lies `by` parts behind the action's.
const ModelPart& StageBorders::place_behind(const Action& action, std::int64_t by) const {
  return stages_.parts[std::size_t(std::int64_t(part(action)) + by)];
}

/// Without a V transfers go round the pipeline.
std::int64_t StageBorders::stage_offset(const Action& action, std::int64_t by) const {
  if (!is_placed_as_v(context_.strategy.schedule)) return by;
  return place_behind(action, by).stage - layout_.stage;
}

std::optional<StageBorders::Border> StageBorders::before(const Action& action,
                                                         StageTransfers& transfers) {
  if (action.kind == ActionKind::weight_gradient) return std::nullopt;
  if (const auto comes = incoming(action)) {
    const auto received = transfers.receive(*comes);
    return Border{received.payload, {received.arrived}};
  }
  auto left = left_.extract({direction_of(action), action.micro_batch});
  if (left.empty()) return std::nullopt;
  return std::move(left.mapped());
}

void StageBorders::leave(const Action& action, BufferId payload, std::vector<Wait> waits) {
  if (hand_over(action) != HandOver::local) return;
  left_[{direction_of(action), action.micro_batch}] = {payload, std::move(waits)};
}

void StageBorders::pass_on(const Action& action, Border border, StageTransfers& transfers) {
  if (hand_over(action) == HandOver::transfer) {
    transfers.send(direction_of(action), action, sent_to(action), border.payload, border.waits);
    transfers.free_excess();
  }
  leave(action, border.payload, std::move(border.waits));
}

HandOver StageBorders::hand_over(const Action& action) const {
  const bool ends =
      action.kind == ActionKind::forward ? is_last_part(action) : is_first_part(action);
  if (ends || action.kind == ActionKind::weight_gradient) return HandOver::none;
  return hand_over_to(place_behind(action, onward(action)));
}

/// Where halves of the data ranks swap their micro-batches, the other chunk of the partner reads.
HandOver StageBorders::hand_over_to(const ModelPart& place) const {
  const bool same = place.stage == layout_.stage && !swaps_halves(context_.strategy.schedule);
  return same ? HandOver::local : HandOver::transfer;
}

std::vector<Action> StageBorders::numbered(std::vector<Action> actions) const {
  if (!swaps_halves(context_.strategy.schedule)) return actions;
  const std::int64_t own = micro_batches(context_.job, context_.strategy);
  for (Action& action : actions) action.micro_batch += action.chunk * own;
  return actions;
}

std::int64_t StageBorders::sent_to(const Action& action) const {
  return stage_offset(action, onward(action));
}

std::optional<std::pair<std::size_t, std::size_t>> StageBorders::reader(
    const Action& action) const {
  if (hand_over(action) != HandOver::local) return std::nullopt;
  const auto instances = layout_.chunks[std::size_t(place_behind(action, onward(action)).chunk)];
  if (instances.first == instances.second) return std::nullopt;
  return instances;
}

/// Returns what an action's chunk gets from the one before: the output of the block before it.
TensorId StageBorders::border_before(const Action& action) const {
  for (std::size_t before = part(action); before-- > 0;) {
    const std::vector<BlockRange>& ranges = stages_.parts[before].blocks;
    for (std::size_t b = ranges.size(); b-- > 0;) {
      if (ranges[b].count > 0) return *graph_.blocks[b].output;
    }
  }
  INVARIANT(false, "the first part has the embedding");
}

std::optional<StageTransfers::Incoming> StageBorders::incoming(const Action& action) const {
  if (action.kind == ActionKind::weight_gradient) return std::nullopt;
  const bool forward = action.kind == ActionKind::forward;
  if (forward ? is_first_part(action) : is_last_part(action)) return std::nullopt;
  if (hand_over_to(place_behind(action, -onward(action))) == HandOver::local) return std::nullopt;
  const std::int64_t offset = stage_offset(action, -onward(action));
  const auto [begin, end] = layout_.chunks[std::size_t(action.chunk)];
  const TensorId border = forward || begin == end
                              ? border_before(action)
                              : *graph_.at(layout_.instances[end - 1].block).output;
  return {{direction_of(action), offset, bytes_of(graph_.at(border)), action.chunk,
           action.micro_batch}};
}

std::vector<StageTransfers::Incoming> StageBorders::expected() const {
  std::vector<StageTransfers::Incoming> all;
  const Schedule schedule = context_.strategy.schedule;
  if (!is_placed_as_v(schedule)) return all;
  const std::int64_t own = micro_batches(context_.job, context_.strategy);
  for (const std::int64_t peer : {layout_.stage - 1, layout_.stage, layout_.stage + 1}) {
    if (peer < 0 || peer == std::int64_t(stages_.stages.size())) continue;
    std::vector<Action> order = numbered(stage_order(context_.strategy, peer, own));
    // The backward of a pair ends first.
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (order[i].in_turns) std::swap(order[i], order[i + 1]), ++i;
    }
    for (const Action& sent : order) {
      if (sent.kind == ActionKind::weight_gradient) continue;
      const std::size_t from = stages_.stages[std::size_t(peer)][std::size_t(sent.chunk)];
      const std::int64_t to = std::int64_t(from) + onward(sent);
      if (to < 0 || to == std::int64_t(stages_.parts.size())) continue;
      const ModelPart& place = stages_.parts[std::size_t(to)];
      if (place.stage != layout_.stage) continue;
      // A micro-batch that changes sides is numbered from the other side.
      const bool swapped = place.chunk != sent.chunk && swaps_halves(schedule);
      const std::int64_t number =
          sent.micro_batch + (swapped ? own * (place.chunk - sent.chunk) : 0);
      if (const auto comes = incoming({sent.kind, place.chunk, number})) all.push_back(*comes);
    }
  }
  return all;
}

}  // namespace plimsoll
