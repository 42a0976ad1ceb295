// Adds up, op by op, what a framework's host does to issue it.
#include "simulator/costs/host_dispatch.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>

#include "graph/op_table.h"
#include "models/framework/op_by_op.h"
#include "simulator/costs/expert_kernels.h"

namespace plimsoll {
namespace {

bool is_gradient(const Routine& routine, TensorId id) {
  const std::optional<std::size_t>& slot = routine.places[id.index()].slot;
  if (!slot) return false;
  const SlotKind kind = routine.slots[*slot].kind;
  return kind == SlotKind::gradients || kind == SlotKind::tied_gradients;
}

/// Returns the number of parameter gradients that the op completes: no later op of the routine
/// writes to them.
std::int64_t completed_gradients(const Routine& routine, std::size_t index) {
  const Op& op = routine.ops[index];
  if (op.phase == Phase::optimizer || op.kind == OpKind::fill) return 0;
  return std::count_if(op.outputs.begin(), op.outputs.end(), [&](TensorId id) {
    if (!is_gradient(routine, id)) return false;
    return std::none_of(
        routine.ops.begin() + std::int64_t(index) + 1, routine.ops.end(), [&](const Op& later) {
          return std::find(later.outputs.begin(), later.outputs.end(), id) != later.outputs.end();
        });
  });
}

/// Returns the number of parameter tensors that a rank updates. Shards are ranges of all elements,
/// so that each rank has about its share of the tensors. A weight of all experts of a rank is one
/// tensor for each if the framework multiplies them apart.
std::int64_t updated_tensors(const Program& program, bool experts_apart) {
  std::int64_t dense = 0, of_experts = 0;
  for (const Segment& segment : program.segments) {
    if (segment.owner && segment.owner != program.owner) continue;
    const auto& split = segment.split;
    const bool expert = split && (split->axis == Axis::ep || split->axis == Axis::etp);
    (expert ? of_experts : dense) += expert && experts_apart ? segment.shape[0] : 1;
  }
  if (program.owner || program.sharding_degree == 1) return dense + of_experts;
  const auto share = [](std::int64_t tensors, std::int64_t ranks) {
    return (tensors + ranks - 1) / ranks;
  };
  return share(dense, program.sharding_degree) + share(of_experts, program.grid[Axis::edp]);
}

/// Returns the first op of the kinds, in the order of the kinds, at or after an index.
std::optional<std::size_t> first_of(const Routine& routine, std::span<const OpKind> kinds,
                                    std::size_t from = 0) {
  for (const OpKind kind : kinds) {
    const auto found = std::find_if(routine.ops.begin() + std::int64_t(from), routine.ops.end(),
                                    [&](const Op& op) { return op.kind == kind; });
    if (found != routine.ops.end()) return std::size_t(found - routine.ops.begin());
  }
  return std::nullopt;
}

/// Ops [begin, end) of a routine.
struct Part {
  std::size_t begin = 0, end = 0;
};

/// Returns the ops of a layer's routine up to its router, or without one up to its attention, as
/// they are in forward. Backward has them after the same point.
Part up_to_router(const Routine& routine, bool backward) {
  constexpr std::array kForward = {OpKind::dispatch_rows, OpKind::flash_attention, OpKind::softmax};
  constexpr std::array kBackward = {OpKind::dispatch_rows_backward,
                                    OpKind::flash_attention_backward, OpKind::softmax_backward};
  const auto end = first_of(routine, backward ? kBackward : kForward);
  if (!end) return {};
  return backward ? Part{*end + 1, routine.ops.size()} : Part{0, *end};
}

/// Returns the router's ops of a layer with experts, with the norm before them.
Part router(const Routine& routine, bool backward) {
  constexpr std::array kSent = {OpKind::dispatch_rows, OpKind::dispatch_rows_backward};
  constexpr std::array kNorms = {OpKind::rms_norm, OpKind::layer_norm};
  constexpr std::array kNormsBackward = {OpKind::rms_norm_backward, OpKind::layer_norm_backward};
  const auto sent = first_of(routine, std::span(kSent).subspan(backward ? 1 : 0, 1));
  if (!sent) return {};
  if (backward) {
    const auto norm = first_of(routine, kNormsBackward, *sent);
    return {*sent + 1, norm ? *norm + 1 : *sent + 1};
  }
  std::size_t begin = *sent;
  for (auto norm = first_of(routine, kNorms); norm && *norm < *sent;
       norm = first_of(routine, kNorms, *norm + 1)) {
    begin = *norm;
  }
  return {begin, *sent};
}

/// Whether attention in this routine goes over parts of sequences that pass round a ring.
bool attends_to_parts(const Routine& routine) {
  return std::ranges::any_of(routine.ops,
                             [](const Op& op) { return op.kind == OpKind::ring_shift; });
}

/// Returns for each op whether a graph contains it.
std::vector<bool> captured_ops(const Routine& routine, Graphs graphs) {
  std::vector<bool> captured(routine.ops.size());
  Part part;
  const bool backward = routine.phase != Phase::forward;
  if (graphs == Graphs::layers || graphs == Graphs::step) part = {0, captured.size()};
  if (graphs == Graphs::attention) part = up_to_router(routine, backward);
  if (graphs == Graphs::router) part = router(routine, backward);
  for (std::size_t i = part.begin; i < part.end; ++i)
    captured[i] = routine.ops[i].phase != Phase::optimizer;
  return captured;
}

}  // namespace

bool gathers_parameters(const Op& op) {
  return op.stream == Stream::data &&
         (op.kind == OpKind::all_gather || op.kind == OpKind::broadcast);
}

bool is_kernel(const Routine& routine, const Op& op) {
  if (op.phase == Phase::optimizer || communicates(op.kind)) return false;
  if (row(op.kind).one_op_everywhere) return false;
  return op.kind != OpKind::add || !is_gradient(routine, op.outputs[0]);
}

std::vector<Picoseconds> host_dispatch(const Program& program, const Routine& routine,
                                       const CostModel& costs) {
  const Framework& framework = costs.framework();
  const std::vector<bool> captured = captured_ops(routine, framework.host.dispatch.graphs);
  const bool parts = attends_to_parts(routine);
  std::vector<Picoseconds> times;
  for (std::size_t i = 0; i < routine.ops.size(); ++i) {
    const Op& op = routine.ops[i];
    if (costs.dispatch_is_measured()) {
      times.push_back(costs.dispatch_op());
      continue;
    }
    // The first op of a graph replays it. The one replay of a whole step's graph is left out.
    const bool replays = captured[i] && framework.host.dispatch.graphs != Graphs::step &&
                         (i == 0 || !captured[i - 1]);
    double ops = captured[i] && !replays ? 0 : 1;
    if (is_kernel(routine, op) && !captured[i]) ops *= framework.host.dispatch.ops_per_kernel;
    if (!captured[i] && softmax_by_parts(framework, op, routine.tensors)) ops *= kPartsOfSoftmax;
    if (row(op.kind).of_experts && !captured[i]) ops *= framework.host.dispatch.ops_per_expert_op;
    const bool backward = op.phase == Phase::backward || op.phase == Phase::backward_weight;
    const bool part = parts && (op.kind == OpKind::flash_attention ||
                                op.kind == OpKind::flash_attention_backward);
    if (part && framework.host.dispatch.ops_per_part > 1) {
      if (!captured[i]) ops *= framework.host.dispatch.ops_per_part;
    } else if (backward && !communicates(op.kind)) {
      ops *= framework.host.dispatch.backward;
    }
    if (op.kind == OpKind::begin_step)
      ops += framework.host.dispatch.ops_per_tensor *
             double(updated_tensors(program, framework.kernels.products.experts_apart));
    Picoseconds time(std::llround(double(costs.dispatch_op().count()) * ops));
    if (!captured[i] && op.phase != Phase::optimizer && gathers_parameters(op))
      time += to_picoseconds(costs.on_host(framework.host.dispatch.gather));
    if (!captured[i])
      time += to_picoseconds(costs.on_host(framework.host.dispatch.gradient *
                                           double(completed_gradients(routine, i))));
    if (!captured[i])
      time += to_picoseconds(costs.on_host(issue_of_other_experts(framework, op, routine.tensors)));
    times.push_back(std::max(Picoseconds(1), time));
  }
  return times;
}

Picoseconds dispatch_of_transfer(const CostModel& costs) {
  const bool captured =
      costs.framework().host.dispatch.graphs == Graphs::step && !costs.dispatch_is_measured();
  return captured ? Picoseconds(1) : costs.dispatch_op();
}

}  // namespace plimsoll
