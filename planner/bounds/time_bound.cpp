// Adds up block facts to the spans of actions, and these to bounds of a step.
#include "planner/bounds/time_bound.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "passes/strategy/pipeline_order.h"
#include "simulator/costs/host_dispatch.h"

namespace plimsoll {

namespace {

/// Appends `count` calls of a block to the calls of an action.
void add_host(const CallFacts& call, std::int64_t count, ActionSpans& action) {
  if (!call.host || count == 0) return;
  if (action.last_host) action.until_last = then(*action.until_last, *action.last_host, 1);
  action.until_last = then(action.until_last.value_or(no_call()), *call.host, count - 1);
  action.last_host = call.host;
}

/// Returns the spans of the chunk's block calls in a row. With `sent_first` the first block's call
/// sends on, else the last's.
ActionSpans in_a_row(const MicroBatchFacts& facts, const Chunk& chunk,
                     const CallFacts BlockFacts::*call, bool sent_first) {
  ActionSpans action;
  for (const BlockRun& run : chunk) {
    const CallFacts& one = facts.blocks[run.block].*call;
    action.span += repeated(one.span, run.count);
    action.computes += repeated(one.computes, run.count);
    action.dispatch += repeated(one.dispatch, run.count);
  }
  const auto add = [&](const BlockRun& run) {
    add_host(facts.blocks[run.block].*call, run.count, action);
  };
  if (sent_first) {
    std::for_each(chunk.rbegin(), chunk.rend(), add);
  } else {
    std::ranges::for_each(chunk, add);
  }
  const CallFacts& sender = facts.blocks[(sent_first ? chunk.front() : chunk.back()).block].*call;
  const Chunk::value_type& first = sent_first ? chunk.back() : chunk.front();
  action.first_computes = (facts.blocks[first.block].*call).computes;
  action.last = sender.span;
  action.sent = sender.sends;
  return action;
}

class Spans {
 public:
  Spans(const Strategy& strategy, const MicroBatchFacts& facts, std::span<const StageChunks> stages,
        const LeastCosts& costs)
      : strategy_(strategy),
        facts_(facts),
        stages_(stages),
        costs_(costs),
        grid_(grid_of(strategy)),
        post_(dispatch_of_transfer(costs.model()) + costs.model().dispatch_call()) {}

  StageSpans of(std::int64_t stage) const {
    StageSpans spans;
    if (costs_.model().host_executes()) spans.post = post_;
    spans.receives_ahead =
        receives_ahead(costs_.model().framework(), strategy_) || strategy_.experts.overlap_exchange;
    const StageChunks& chunks = stages_[std::size_t(stage)];
    for (std::size_t c = 0; c < chunks.size(); ++c) {
      const std::int64_t part = part_of(strategy_.schedule, strategy_.pp, stage, std::int64_t(c));
      ChunkSpans chunk;
      chunk.forward = in_a_row(facts_, chunks[c], &BlockFacts::forward, false);
      chunk.backward = in_a_row(facts_, chunks[c], &BlockFacts::backward, true);
      chunk.weights = in_a_row(facts_, chunks[c], &BlockFacts::weights, true);
      const std::int64_t parts = strategy_.pp * strategy_.pipeline.virtual_stages;
      // Chunks of one stage hand over without a transfer.
      const auto apart = [&](std::int64_t other) { return place(other).stage != stage; };
      if (part > 0 && apart(part - 1)) {
        receive(chunk.forward, facts_.blocks[chunk_at(part - 1).back().block].send_output,
                {part - 1, part});
        spans.sends.add(
            send(chunk.backward, facts_.blocks[chunks[c].front().block].send_input_gradient,
                 {part, part - 1}),
            1);
      }
      if (part + 1 < parts && apart(part + 1)) {
        receive(chunk.backward, facts_.blocks[chunk_at(part + 1).front().block].send_input_gradient,
                {part + 1, part});
        spans.sends.add(send(chunk.forward, facts_.blocks[chunks[c].back().block].send_output,
                             {part, part + 1}),
                        1);
      }
      spans.chunks.push_back(chunk);
    }
    return spans;
  }

 private:
  const Chunk& chunk_at(std::int64_t part) const {
    return stages_[std::size_t(place(part).stage)][std::size_t(place(part).chunk)];
  }
  PartPlace place(std::int64_t part) const {
    return place_of(strategy_.schedule, strategy_.pp, part);
  }

  /// Parts of the model.
  struct Border {
    std::int64_t from, to;
  };

  void receive(ActionSpans& action, const std::optional<BorderTransfer>& transfer,
               Border border) const {
    action.receives = true;
    action.dispatch += post_;
    action.receive_dispatch = post_;
    const BorderCost& cost = cost_of(*transfer, border);
    action.transfer = cost.transfer;
    action.transfer_slowdown = cost.slowdown;
    action.complete = cost.gather;
  }
  /// Returns the times on the links out of the stage.
  const LinkTimes& send(ActionSpans& action, const std::optional<BorderTransfer>& transfer,
                        Border border) const {
    action.sends = true;
    action.send_dispatch = post_;
    const BorderCost& cost = cost_of(*transfer, border);
    action.sending = cost.transfer;
    action.sending_slowdown = cost.slowdown;
    return cost.links;
  }

  /// A transfer that leaves a stage, and the gather behind it.
  struct BorderCost {
    Picoseconds transfer, gather;
    double slowdown = 1;  ///< of kernels beside the transfer
    LinkTimes links;
  };
  const BorderCost& cost_of(const BorderTransfer& transfer, Border border) const {
    const std::int64_t stage = place(border.from).stage;
    const bool v = is_placed_as_v(strategy_.schedule);
    // The second chunk of a V sends towards stage 0 what the first one sends away from it.
    const std::int64_t offset = v ? place(border.to).stage - stage : 0;
    const auto [known, fresh] = border_costs_.try_emplace({&transfer, stage, offset});
    if (!fresh) return known->second;
    Routine send = transfer.send;
    if (v) std::get<TransferParams>(send.ops[0].params).stage_offset = offset;
    known->second.transfer = costs_.of(send, grid_, stage)[0];
    known->second.links = costs_.on_links(send, grid_, stage);
    // In a V it is open what runs beside a transfer: nothing is counted.
    if (!v) known->second.slowdown = costs_.slowdown(send, grid_, stage);
    if (transfer.gather) known->second.gather = costs_.of(*transfer.gather, grid_, stage)[0];
    return known->second;
  }

  const Strategy& strategy_;
  const MicroBatchFacts& facts_;
  std::span<const StageChunks> stages_;
  const LeastCosts& costs_;
  Grid grid_;
  Picoseconds post_;
  /// By transfer, stage that sends, and offset in a V, looked up only: chunks of a stage share
  /// them.
  mutable std::map<std::tuple<const BorderTransfer*, std::int64_t, std::int64_t>, BorderCost>
      border_costs_;
};

}  // namespace

std::vector<StageSpans> stage_spans(const Strategy& strategy, const MicroBatchFacts& facts,
                                    std::span<const StageChunks> stages, const LeastCosts& costs) {
  const Spans spans(strategy, facts, stages, costs);
  std::vector<StageSpans> found;
  for (std::size_t s = 0; s < stages.size(); ++s) found.push_back(spans.of(std::int64_t(s)));
  return found;
}

Picoseconds bottleneck_bound(const Strategy& strategy, std::span<const StageSpans> stages,
                             std::int64_t micro_batches) {
  const bool delays = splits_backward(strategy.schedule), v = is_placed_as_v(strategy.schedule);
  const std::int64_t depth = strategy.schedule == Schedule::zb_h2 ? 2 : 1;
  Picoseconds longest, there, back;  // to stage s and from it
  for (std::size_t s = 0; s < stages.size(); ++s) {
    Picoseconds work, weights, dispatch, received, returned;
    for (const ChunkSpans& chunk : stages[s].chunks) {
      const bool ahead = stages[s].receives_ahead;
      work += ahead ? chunk.forward.span + chunk.backward.span
                    : chunk.forward.whole() + chunk.backward.whole();
      weights += chunk.weights.span;
      received += chunk.forward.transfer;
      returned += chunk.backward.transfer;
      dispatch += chunk.forward.dispatch + chunk.backward.dispatch + chunk.weights.dispatch;
    }
    const ChunkSpans& front = stages[s].chunks.front();
    // The gradient leaves before the last backward is over, and before the weight gradients that
    // are put off: of stage s, s + 1 micro-batches', or 2 s + 1 in ZB-H2. Of stage 0 all of it
    // counts. In a V the last gradient comes through the other chunks, which are not followed.
    const bool first = s == 0;
    const Picoseconds early = first ? Picoseconds() : front.backward.last - front.backward.sent;
    const std::int64_t put_off =
        delays ? std::min<std::int64_t>(micro_batches, depth * std::int64_t(s) + 1) : 0;
    const Picoseconds all = repeated(work + weights, micro_batches);
    longest = std::max(longest, there + all);
    const Picoseconds until_sent = all - repeated(weights, first ? 0 : put_off) - early;
    if (!v) longest = std::max(longest, there + until_sent + back);
    longest = std::max(longest, repeated(dispatch, micro_batches));
    // Transfers of one direction follow each other.
    if (!v) longest = std::max(longest, repeated(std::max(received, returned), micro_batches));
    LinkTimes links = stages[s].traffic.links;
    links.add(stages[s].sends, micro_batches);
    longest = std::max(longest, links.longest());
    there += front.forward.whole() - front.forward.last + front.forward.sent;
    back += front.backward.whole() - early + (first && delays ? weights : Picoseconds());
  }
  return longest;
}

}  // namespace plimsoll
