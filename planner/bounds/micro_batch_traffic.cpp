// Reads traffic off a Program of up to three micro-batches.
#include "planner/bounds/micro_batch_traffic.h"

#include <algorithm>

#include "passes/cut/cut_blocks.h"
#include "passes/pipeline.h"
#include "passes/schedule/schedule.h"
#include "passes/strategy/sharding_rules.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kEveryKind = 3;  // a first, a middle and a last micro-batch

Picoseconds on_stream(const CostedProgram& costed, const Call& call, Stream stream) {
  const std::vector<Op>& ops = costed.program->at(call.routine).ops;
  Picoseconds sum;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].stream == stream) sum += costed.durations[call.routine.index()][i];
  }
  return sum;
}

}  // namespace

bool has_micro_batch_traffic(const Strategy& strategy) {
  return reduces_per_micro_batch(strategy) && strategy.pp == 1 &&
         strategy.schedule == Schedule::one_f_one_b && !classes_by_owner(strategy);
}

Picoseconds MicroBatchTraffic::step(std::int64_t micro_batches) const {
  Picoseconds sum = last + after;
  if (micro_batches > 1) sum += first;
  if (micro_batches > 2) sum += repeated(middle, micro_batches - 2);
  return sum;
}

MicroBatchTraffic micro_batch_traffic(const PassContext& whole, const LeastCosts& costs) {
  Strategy small = whole.strategy;
  small.micro_batch = 1;
  drop_recompute(small);
  const std::int64_t m = std::min(micro_batches(whole.job, whole.strategy), kEveryKind);
  Job few = whole.job;
  few.global_batch = m * small.dp * small.sharding_degree;
  const PassContext context{few, small, whole.framework};
  const Graph graph = lower_graph(context, {}, Proof::none);
  CutChoices choices = cut_choices(small);
  choices.backward = BackwardCut::whole;
  const CutGraph cut = cut_blocks(graph, arena_alignment(few, small), choices);
  const StageLayout stages = stage_layout(few, small, block_shapes(graph));
  const Program program = schedule_stage(graph, cut, context, stages, 0).front();
  const CostedProgram costed = cost_of(program, costs);

  MicroBatchTraffic traffic;
  std::size_t last_of_micro_batches = 0;
  for (std::size_t i = 0; i < program.calls.size(); ++i) {
    const Call& call = program.calls[i];
    if (!call.micro_batch) continue;
    last_of_micro_batches = i;
    const Picoseconds data = on_stream(costed, call, Stream::data);
    const bool is_last = *call.micro_batch + 1 == m;
    (is_last ? traffic.last : *call.micro_batch == 0 ? traffic.first : traffic.middle) += data;
  }
  for (std::size_t i = last_of_micro_batches + 1; i < program.calls.size(); ++i) {
    traffic.after += on_stream(costed, program.calls[i], Stream::compute);
  }
  return traffic;
}

}  // namespace plimsoll
