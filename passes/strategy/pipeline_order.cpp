// Lists the actions of each pipeline schedule.
#include "passes/strategy/pipeline_order.h"

#include <algorithm>
#include <array>
#include <deque>
#include <utility>

#include "base/error.h"

namespace plimsoll {

namespace {

std::vector<Action> gpipe(std::int64_t m) {
  std::vector<Action> order;
  for (std::int64_t i = 0; i < m; ++i) order.push_back({ActionKind::forward, 0, i});
  for (std::int64_t i = m; i-- > 0;) order.push_back({ActionKind::backward, 0, i});
  return order;
}

/// The forwards or the backwards of the interleaved order, one after the other: groups of as many
/// micro-batches as there are stages visit one chunk after another.
class Visits {
 public:
  Visits(ActionKind kind, std::int64_t stages, std::int64_t chunks)
      : kind_(kind), stages_(stages), chunks_(chunks) {}

  Action next() {
    const std::int64_t chunk = kind_ == ActionKind::forward ? visit_ : chunks_ - 1 - visit_;
    const Action action{kind_, chunk, group_begin_ + within_group_};
    if (++within_group_ == stages_) {
      within_group_ = 0;
      if (++visit_ == chunks_) {
        visit_ = 0;
        group_begin_ += stages_;
      }
    }
    return action;
  }

 private:
  ActionKind kind_;
  std::int64_t stages_, chunks_;
  std::int64_t group_begin_ = 0, within_group_ = 0;  ///< micro-batches
  std::int64_t visit_ = 0;                           ///< chunks that the group has visited
};

std::vector<Action> interleaved(std::int64_t stages, std::int64_t stage, std::int64_t chunks,
                                std::int64_t m, bool in_pairs) {
  INVARIANT(m % stages == 0, "a legal strategy interleaves whole groups of micro-batches");
  const std::int64_t total = m * chunks;
  const std::int64_t warm_up =
      std::min(total, 2 * (stages - stage - 1) + (chunks - 1) * stages + std::int64_t(in_pairs));
  Visits forwards(ActionKind::forward, stages, chunks);
  Visits backwards(ActionKind::backward, stages, chunks);
  std::vector<Action> order;
  order.reserve(std::size_t(2 * total));
  for (std::int64_t k = 0; k < total + warm_up; ++k) {
    if (k < total) order.push_back(forwards.next());
    order.back().in_turns = in_pairs && k < total && k >= warm_up;
    if (k >= warm_up) order.push_back(backwards.next());
  }
  return order;
}

std::vector<Action> one_f_one_b(std::int64_t stages, std::int64_t stage, std::int64_t m,
                                bool in_pairs) {
  const std::int64_t warm_up = std::min(m, stages - stage - 1 + std::int64_t(in_pairs));
  std::vector<Action> order;
  order.reserve(std::size_t(2 * m));
  for (std::int64_t i = 0; i < m + warm_up; ++i) {
    if (i < m) order.push_back({ActionKind::forward, 0, i, in_pairs && i >= warm_up});
    if (i >= warm_up) order.push_back({ActionKind::backward, 0, i - warm_up});
  }
  return order;
}

/// 1F1B with `depth` times as many forwards first, whose weight gradients come late: those of stage
/// s by depth x s micro-batches.
std::vector<Action> zero_bubble(std::int64_t stages, std::int64_t stage, std::int64_t m,
                                std::int64_t depth) {
  const std::int64_t warm_up = std::min(m, depth * (stages - stage - 1));
  const std::int64_t delay = std::min(m, depth * stage);
  std::vector<Action> order;
  order.reserve(std::size_t(3 * m));
  for (std::int64_t i = 0; i < m + warm_up; ++i) {
    if (i < m) order.push_back({ActionKind::forward, 0, i});
    if (i < warm_up) continue;
    const std::int64_t backward = i - warm_up;
    order.push_back({ActionKind::input_gradient, 0, backward});
    if (backward >= delay) {
      order.push_back({ActionKind::weight_gradient, 0, backward - delay});
    }
  }
  for (std::int64_t i = m - delay; i < m; ++i) {
    order.push_back({ActionKind::weight_gradient, 0, i});
  }
  return order;
}

/// The order of a stage with two chunks. Actions of one kind and chunk take micro-batches in order.
class TwoChunks {
 public:
  void forward(std::int64_t chunk, bool in_turns = false) {
    add(ActionKind::forward, chunk, in_turns);
  }
  void input(std::int64_t chunk) {
    add(ActionKind::input_gradient, chunk);
    delayed_.push_back(chunk);
  }
  /// Weight gradients of a chunk, or of the chunk whose input gradient is the longest ago.
  void weight(std::int64_t chunk) {
    delayed_.erase(std::find(delayed_.begin(), delayed_.end(), chunk));
    add(ActionKind::weight_gradient, chunk);
  }
  void weight() { weight(delayed_.front()); }
  void backward(std::int64_t chunk) {
    input(chunk);
    weight(chunk);
  }
  bool delays() const { return !delayed_.empty(); }
  bool delays(std::int64_t chunk) const {
    return std::find(delayed_.begin(), delayed_.end(), chunk) != delayed_.end();
  }
  std::int64_t forwards(std::int64_t chunk) const { return next_[0][std::size_t(chunk)]; }

  /// Returns the order without the micro-batches from `m` on.
  std::vector<Action> first(std::int64_t m) && {
    std::erase_if(order_, [&](const Action& action) { return action.micro_batch >= m; });
    return std::move(order_);
  }

 private:
  void add(ActionKind kind, std::int64_t chunk, bool in_turns = false) {
    const std::size_t row = kind == ActionKind::forward          ? 0
                            : kind == ActionKind::input_gradient ? 1
                                                                 : 2;
    order_.push_back({kind, chunk, next_[row][std::size_t(chunk)]++, in_turns});
  }
  std::vector<Action> order_;
  std::int64_t next_[3][2] = {};           ///< micro-batch, by kind and chunk
  std::deque<std::int64_t> delayed_ = {};  ///< chunks whose weight gradients are to come
};

/// Fewer micro-batches than fill the pipeline are the first ones of as many as do.
std::vector<Action> zb_v(std::int64_t stages, std::int64_t stage, std::int64_t micro_batches) {
  const std::int64_t m = std::max(micro_batches, 2 * stages - 1), left = stages - stage;
  TwoChunks order;
  for (std::int64_t i = 0; i < 2 * left - 1; ++i) order.forward(0);
  for (std::int64_t i = 0; i < stage; ++i) {
    order.forward(1);
    order.forward(0);
  }
  for (std::int64_t i = 0; i < left; ++i) {
    order.forward(1);
    order.backward(1);
  }
  while (order.forwards(1) < m) {
    if (order.forwards(0) < m) order.forward(0);
    order.backward(0);
    order.forward(1);
    order.backward(1);
  }
  for (std::int64_t i = 0; i < stage; ++i) {
    order.input(0);
    order.input(1);
  }
  for (std::int64_t i = 0; i < left; ++i) {
    order.input(0);
    order.weight(0);
  }
  while (order.delays(1)) order.weight(1);
  while (order.delays(0)) order.weight(0);
  return std::move(order).first(micro_batches);
}

std::vector<Action> dualpipe_v(std::int64_t stages, std::int64_t stage, std::int64_t micro_batches,
                               bool in_pairs) {
  const std::int64_t m = std::max(micro_batches, 2 * stages), behind = stages - stage - 1;
  TwoChunks order;
  const auto pair = [&](std::int64_t forward, std::int64_t backward) {
    order.forward(forward, in_pairs);
    order.backward(backward);
  };
  for (std::int64_t i = 0; i < 2 * behind; ++i) order.forward(0);
  for (std::int64_t i = 0; i < stage + 1; ++i) {
    order.forward(0);
    order.forward(1);
  }
  for (std::int64_t i = 0; i < behind; ++i) {
    order.backward(1);
    order.forward(1);
  }
  for (std::int64_t i = 0; i < m - 2 * stages + stage + 1; ++i) {
    pair(0, 1);
    pair(1, 0);
  }
  for (std::int64_t i = 0; i < behind; ++i) {
    order.backward(1);
    pair(1, 0);
  }
  // The second half of the backwards that remain put weight gradients off.
  const std::int64_t half = stage + 1;
  for (std::int64_t i = 0; i < 2 * (stage + 1); ++i) {
    const std::int64_t chunk = 1 - i % 2;
    i < half ? order.backward(chunk) : order.input(chunk);
  }
  for (std::int64_t i = 0; i < behind; ++i) {
    order.weight();
    order.input(0);
  }
  while (order.delays()) order.weight();
  return std::move(order).first(micro_batches);
}

/// The passes of a micro-batch on one stage, by their times in units of one pass: forwards of chunk
/// 0 and 1, input gradients of chunk 1 and 0.
using PassTimes = std::array<std::int64_t, 4>;

/// The authors' blocks (sail-sg/zero-bubble-pipeline-parallelism, scheduler/zbv_greedy.py), with
/// the turn of v_half one pass later and the gap behind its gradients' turn one shorter.
PassTimes v_half(std::int64_t stages, std::int64_t stage) {
  const std::int64_t gap = stages % 2 == 0 ? 3 : 0;  // else two passes would fall together
  return {2 * stage, 3 * stages - stage - 1, 3 * stages + gap + 2 * stage,
          6 * stages + gap - stage - 2};
}

PassTimes v_min(std::int64_t stages, std::int64_t stage) {
  const std::int64_t gap = stages % 3 == 0 ? 2 : 0;
  return {stage, 2 * stages - stage - 1, 2 * stages + gap + stage, 4 * stages + gap - stage - 1};
}

std::vector<Action> repeated_blocks(const PassTimes& block, std::int64_t m) {
  constexpr std::int64_t kPasses = 6;  // of a micro-batch: also between two of them
  constexpr std::pair<ActionKind, std::int64_t> kPassesOfBlock[] = {
      {ActionKind::forward, 0},
      {ActionKind::forward, 1},
      {ActionKind::input_gradient, 1},
      {ActionKind::input_gradient, 0}};
  std::array<std::int64_t, 4> done = {};  // micro-batches, by pass of the block
  TwoChunks order;
  for (std::int64_t time = 0; done[3] < m; ++time) {
    const auto comes = [&](std::size_t pass) {
      return done[pass] < m && block[pass] + kPasses * done[pass] == time;
    };
    std::size_t pass = 0;
    while (pass < 4 && !comes(pass)) ++pass;
    if (pass == 4) {
      if (order.delays()) order.weight();
      continue;
    }
    const auto [kind, chunk] = kPassesOfBlock[pass];
    kind == ActionKind::forward ? order.forward(chunk) : order.input(chunk);
    ++done[pass];
  }
  while (order.delays()) order.weight();
  return std::move(order).first(m);
}

}  // namespace

std::vector<Action> pipeline_order(Schedule schedule, std::int64_t stages, std::int64_t stage,
                                   std::int64_t virtual_stages, std::int64_t micro_batches,
                                   bool in_pairs) {
  const std::int64_t m = micro_batches;
  INVARIANT(
      schedule == Schedule::one_f_one_b || virtual_stages == (is_placed_as_v(schedule) ? 2 : 1),
      "a legal strategy has as many virtual stages as its schedule");
  switch (schedule) {
    case Schedule::gpipe:
      return gpipe(m);
    case Schedule::zb_h1:
      return zero_bubble(stages, stage, m, 1);
    case Schedule::zb_h2:
      return zero_bubble(stages, stage, m, 2);
    case Schedule::zb_v:
      return zb_v(stages, stage, m);
    case Schedule::v_half:
      return repeated_blocks(v_half(stages, stage), m);
    case Schedule::v_min:
      return repeated_blocks(v_min(stages, stage), m);
    case Schedule::dualpipe_v:
    case Schedule::dualpipe:
      return dualpipe_v(stages, stage, m, in_pairs);
    case Schedule::one_f_one_b:
      break;
  }
  if (virtual_stages == 1) return one_f_one_b(stages, stage, m, in_pairs);
  return interleaved(stages, stage, virtual_stages, m, in_pairs);
}

std::vector<Action> stage_order(const Strategy& strategy, std::int64_t stage,
                                std::int64_t micro_batches) {
  return pipeline_order(strategy.schedule, strategy.pp, stage, strategy.pipeline.virtual_stages,
                        micro_batches, strategy.experts.overlap_exchange);
}

RepeatedActions repeated_actions(std::span<const Action> order, std::int64_t micro_batches,
                                 std::int64_t per_cycle) {
  // Every micro-batch has as many actions.
  const std::size_t length = order.size() / std::size_t(micro_batches) * std::size_t(per_cycle);
  if (order.size() < 2 * length) return {};
  const auto is_repeated = [&](std::size_t i) {
    Action later = order[i];
    later.micro_batch += per_cycle;
    return order[i + length] == later;
  };
  std::size_t first = (order.size() - length) / 2, last = first;
  while (first > 0 && is_repeated(first - 1)) --first;
  while (last + length < order.size() && is_repeated(last)) ++last;
  if (first == last) return {};
  return {first, length, (last + length - first) / length};
}

std::int64_t stage_of_head(const Strategy& strategy) {
  return place_of(strategy.schedule, strategy.pp,
                  strategy.pp * strategy.pipeline.virtual_stages - 1)
      .stage;
}

bool receives_ahead(const Framework& framework, const Strategy& strategy) {
  return framework.parallelism.overlap.receives_ahead && strategy.pipeline.virtual_stages > 1;
}

}  // namespace plimsoll
