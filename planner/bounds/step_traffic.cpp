// Reads the collectives off a Program of one layer, and gives them the bytes of a stage.
#include "planner/bounds/step_traffic.h"

#include <algorithm>

#include "graph/op_table.h"
#include "models/job/layer_forms.h"
#include "passes/cut/cut_blocks.h"
#include "passes/pipeline.h"
#include "passes/schedule/schedule.h"
#include "passes/strategy/pipeline_order.h"
#include "planner/bounds/call_path.h"

namespace plimsoll {
namespace {

/// Returns a strategy with the same collectives over as few ranks as have them.
Strategy smallest(const Strategy& strategy) {
  Strategy small = without(strategy, FIELD(mp), FIELD(pp), FIELD(pipeline.virtual_stages),
                           FIELD(tokens.sequence_parallel), FIELD(pipeline.split_boundary),
                           FIELD(schedule), FIELD(pipeline.layer_split),
                           FIELD(pipeline.embedding_as_layers), FIELD(pipeline.loss_as_layers),
                           FIELD(ep), FIELD(experts.etp), FIELD(micro_batch), FIELD(rank_order));
  for (std::int64_t* degree : {&small.cp, &small.dp, &small.sharding_degree})
    *degree = std::min<std::int64_t>(*degree, 2);
  if (strategy.ep > 1 && grid_of(strategy)[Axis::edp] > 1) {  // two ranks with the same experts
    small.ep = 2;
    while (strategy.ep % small.ep != 0) ++small.ep;
    (small.sharding_degree > 1 ? small.sharding_degree
     : small.cp > 1            ? small.cp
                               : small.dp) = 2 * small.ep;
  }
  small.gradients.bucket_bytes = Bytes(std::int64_t{1} << 50);
  drop_recompute(small);
  return small;
}

/// Whether collectives have measured times. A sum of such times may be less than the time of all
/// bytes at once.
bool are_measured(const Target& target) {
  const std::optional<Calibration>& calibration = target.costs->calibration();
  return calibration && !calibration->collectives.empty();
}

constexpr Bytes kFewBytes{std::int64_t{1} << 16};

Bytes payload_of(const Routine& routine) { return bytes_of(routine.tensors[0]); }

/// Returns the routine with a payload of so many bytes.
Routine with_payload(Routine routine, Bytes bytes) {
  Tensor& payload = routine.tensors[0];
  payload.shape = {bytes.count() / bytes_of(payload.dtype).count()};
  routine.slots[0].bytes = bytes;
  return routine;
}

bool is_over_experts(const Routine& routine) {
  return std::get<CollectiveParams>(routine.ops[0].params).group.axes.has(Axis::edp);
}

/// Whether a call exchanges gradients or parameters once per step. Without shards, ranks with the
/// same experts add up gradients on a stream of blocks.
bool is_step_traffic(const Program& program, const Call& call) {
  const Routine& routine = program.at(call.routine);
  if (call.micro_batch || routine.ops.size() != 1) return false;
  const Op& op = routine.ops[0];
  if (!communicates(op.kind) || op.phase != Phase::optimizer) return false;
  if (op.stream != Stream::data && !(op.stream == Stream::mp && is_over_experts(routine)))
    return false;
  const TensorRole role = routine.tensors[0].role;
  return role == TensorRole::gradient || role == TensorRole::parameter;
}

/// Lets tokens and heads split over the ranks that share sequences. There may be more of them than
/// in the strategy itself (smallest()), and bytes of collectives are not taken from this job.
void widen(Job& job, const Strategy& small) {
  job.sequence *= small.cp;
  if (small.tokens.context_exchange != ContextExchange::all_to_all) return;
  if (job.head_size == 0 && !job.latent) job.hidden *= small.cp;
  job.heads *= small.cp;
  job.kv_heads *= small.cp;
}

}  // namespace

Picoseconds step_traffic_bound(const Strategy& strategy, std::int64_t micro_batches,
                               const StageTraffic& traffic, Picoseconds work, Picoseconds on_last) {
  const Picoseconds sum = traffic.gathers + traffic.reductions;
  if (is_placed_as_v(strategy.schedule)) return sum;
  const std::int64_t put_off = (splits_backward(strategy.schedule) ? 2 * strategy.pp + 1 : 0) +
                               (strategy.experts.overlap_exchange ? 2 : 0);
  const Picoseconds beside =
      on_last + repeated(work - on_last, strategy.pp) + repeated(work, put_off);
  return sum + std::max(repeated(work, micro_batches) - beside, Picoseconds());
}

StepTraffic::Collectives StepTraffic::find(const Strategy& small) const {
  Job job = target_.job;
  job.global_batch = small.dp * small.sharding_degree;
  if (small.cp > 2) widen(job, small);
  if (!layers_differ(job)) job.layers = 1;
  const PassContext context{job, small, target_.framework()};
  const Graph graph = lower_graph(context, {}, Proof::none);
  const CutGraph cut = cut_blocks(graph, arena_alignment(job, small), cut_choices(small));
  const StageLayout stages = stage_layout(job, small, block_shapes(graph));
  const Program program = schedule_stage(graph, cut, context, stages, 0).front();
  // Elements of the largest buckets, without experts and of experts. There are more where types
  // differ.
  std::array<std::int64_t, 2> whole = {};
  for (const Bucket& bucket : program.buckets)
    whole[bucket.experts] = std::max(whole[bucket.experts], bucket.elements);
  Collectives found;
  for (const Call& call : program.calls) {
    if (!is_step_traffic(program, call)) continue;
    const Routine& routine = program.at(call.routine);
    const bool of_gradients = routine.tensors[0].role == TensorRole::gradient;
    const auto same = std::ranges::find_if(found, [&](const Collective& other) {
      return other.of_gradients == of_gradients && other.routine.name == routine.name;
    });
    if (same == found.end()) {
      found.push_back({routine, of_gradients, is_over_experts(routine)});
    } else if (payload_of(routine) > payload_of(same->routine)) {
      same->routine = routine;
    }
  }
  for (Collective& one : found)
    one.of_part = elements(one.routine.tensors[0].shape) < whole[one.of_experts];
  return found;
}

Bytes StepTraffic::Collective::of(const WeightBytes& weights) const {
  if (of_experts) return of_gradients ? weights.expert_gradients : weights.expert_parameters;
  return of_gradients ? weights.gradients : weights.parameters;
}

StageTraffic StepTraffic::of(const Strategy& strategy, const WeightBytes& weights,
                             const LeastCosts& costs) const {
  if (classes_by_owner(strategy) || are_measured(target_)) return {};
  const Grid grid = grid_of(strategy);
  const std::int64_t shards = optimizer_shards(strategy);
  const Strategy small = smallest(strategy);
  const Collectives& all = known_.of({small}, [&] { return find(small); });
  const Key key(&all, &costs, grid.degree, grid.order, shards, weights);
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = times_.find(key); known != times_.end()) return known->second;
  }
  const StageTraffic found = times(all, grid, shards, weights, costs);
  const std::lock_guard lock(mutex_);
  return times_.try_emplace(key, found).first->second;
}

StageTraffic StepTraffic::times(const Collectives& collectives, const Grid& grid,
                                std::int64_t shards, const WeightBytes& weights,
                                const LeastCosts& costs) const {
  StageTraffic traffic;
  Picoseconds beside;  // reductions on streams of blocks
  for (const Collective& one : collectives) {
    const Bytes whole = one.of(weights);
    const Bytes bytes = one.of_part ? Bytes(whole.count() / shards) : whole;
    const Routine routine = with_payload(one.routine, bytes);
    const Picoseconds time = costs.of(routine, grid, 0)[0];
    if (routine.ops[0].stream != Stream::data) {
      beside += time;
      continue;
    }
    (one.of_gradients ? traffic.reductions : traffic.gathers) += time;
    // A small bucket may have another algorithm, to which another level is the slowest.
    LinkTimes links = costs.on_links(routine, grid, 0);
    const LinkTimes few = costs.on_links(with_payload(one.routine, kFewBytes), grid, 0);
    for (std::size_t level = 0; level < kMostLevels; ++level) {
      if (few.at_level[level] == Picoseconds()) links.at_level[level] = {};
    }
    traffic.links.add(links, 1);
  }
  traffic.reductions = std::max(traffic.reductions, beside);
  return traffic;
}

}  // namespace plimsoll
