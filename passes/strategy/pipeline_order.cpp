// Lists the actions of each pipeline schedule.
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
                                std::int64_t m) {
  INVARIANT(m % stages == 0, "a legal strategy interleaves whole groups of micro-batches");
  const std::int64_t total = m * chunks;
  const std::int64_t warm_up = std::min(total, 2 * (stages - stage - 1) + (chunks - 1) * stages);
  Visits forwards(ActionKind::forward, stages, chunks);
  Visits backwards(ActionKind::backward, stages, chunks);
  std::vector<Action> order;
  order.reserve(std::size_t(2 * total));
  for (std::int64_t k = 0; k < total + warm_up; ++k) {
    if (k < total) order.push_back(forwards.next());
    if (k >= warm_up) order.push_back(backwards.next());
  }
  return order;
}

std::vector<Action> one_f_one_b(std::int64_t stages, std::int64_t stage, std::int64_t m) {
  const std::int64_t warm_up = std::min(m, stages - stage - 1);
  std::vector<Action> order;
  order.reserve(std::size_t(2 * m));
  for (std::int64_t i = 0; i < m + warm_up; ++i) {
    if (i < m) order.push_back({ActionKind::forward, 0, i});
    if (i >= warm_up) order.push_back({ActionKind::backward, 0, i - warm_up});
  }
  return order;
}

std::vector<Action> zb_h1(std::int64_t stages, std::int64_t stage, std::int64_t m) {
  std::vector<Action> order;
  order.reserve(std::size_t(3 * m));
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
