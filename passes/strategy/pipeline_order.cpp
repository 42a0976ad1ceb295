#include "passes/strategy/pipeline_order.h"

#include <algorithm>

#include "base/error.h"

namespace plimsoll {

namespace {

std::vector<Action> gpipe(std::int64_t m) {
  std::vector<Action> order;
  for (std::int64_t i = 0; i < m; ++i) order.push_back({ActionKind::forward, 0, i});
  for (std::int64_t i = m; i-- > 0;) order.push_back({ActionKind::backward, 0, i});
  return order;
}

/// The k-th forward or backward of the interleaved order.
Action interleaved_action(ActionKind kind, std::int64_t stages, std::int64_t chunks,
                          std::int64_t k) {
  const std::int64_t group = k / (stages * chunks), visit = k % (stages * chunks) / stages;
  const std::int64_t chunk = kind == ActionKind::forward ? visit : chunks - 1 - visit;
  return {kind, chunk, group * stages + k % stages};
}

std::vector<Action> interleaved(std::int64_t stages, std::int64_t stage, std::int64_t chunks,
                                std::int64_t m) {
  INVARIANT(m % stages == 0, "a legal strategy interleaves whole groups of micro-batches");
  const std::int64_t total = m * chunks;
  const std::int64_t warm_up = std::min(total, 2 * (stages - stage - 1) + (chunks - 1) * stages);
  std::vector<Action> order;
  for (std::int64_t k = 0; k < total + warm_up; ++k) {
    if (k < total) order.push_back(interleaved_action(ActionKind::forward, stages, chunks, k));
    if (k < warm_up) continue;
    order.push_back(interleaved_action(ActionKind::backward, stages, chunks, k - warm_up));
  }
  return order;
}

std::vector<Action> one_f_one_b(std::int64_t stages, std::int64_t stage, std::int64_t m) {
  const std::int64_t warm_up = std::min(m, stages - stage - 1);
  std::vector<Action> order;
  for (std::int64_t i = 0; i < m + warm_up; ++i) {
    if (i < m) order.push_back({ActionKind::forward, 0, i});
    if (i >= warm_up) order.push_back({ActionKind::backward, 0, i - warm_up});
  }
  return order;
}

std::vector<Action> zb_h1(std::int64_t stages, std::int64_t stage, std::int64_t m) {
  std::vector<Action> order;
  for (const Action& action : one_f_one_b(stages, stage, m)) {
    if (action.kind == ActionKind::forward) {
      order.push_back(action);
      continue;
    }
    order.push_back({ActionKind::input_gradient, 0, action.micro_batch});
    const std::int64_t due = action.micro_batch - stage;
    if (due >= 0) order.push_back({ActionKind::weight_gradient, 0, due});
  }
  for (std::int64_t i = std::max<std::int64_t>(0, m - stage); i < m; ++i) {
    order.push_back({ActionKind::weight_gradient, 0, i});
  }
  return order;
}

}  // namespace

std::vector<Action> pipeline_order(Schedule schedule, std::int64_t stages, std::int64_t stage,
                                   std::int64_t virtual_stages, std::int64_t micro_batches) {
  INVARIANT(virtual_stages == 1 || schedule == Schedule::one_f_one_b,
            "a legal strategy interleaves 1F1B only");
  switch (schedule) {
    case Schedule::gpipe:
      return gpipe(micro_batches);
    case Schedule::zb_h1:
      return zb_h1(stages, stage, micro_batches);
    case Schedule::one_f_one_b:
      break;
  }
  if (virtual_stages == 1) return one_f_one_b(stages, stage, micro_batches);
  return interleaved(stages, stage, virtual_stages, micro_batches);
}

bool receives_ahead(const Framework& framework, const Strategy& strategy) {
  return framework.receives_ahead && strategy.virtual_stages > 1;
}

}  // namespace plimsoll
