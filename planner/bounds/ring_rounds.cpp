// Costs one round of a ring and multiplies it by the number of rounds.
#include "planner/bounds/ring_rounds.h"

#include "graph/op_table.h"
#include "planner/bounds/call_path.h"

namespace plimsoll {
namespace {

/// Returns a routine with the attention of one round and the shift of its keys and values.
Routine round_of(const Routine& routine, const Op& attention, std::int64_t cp) {
  Routine round;
  round.phase = routine.phase;
  round.tensors = routine.tensors;
  round.places = routine.places;
  round.slots = routine.slots;
  const bool backward = attention.kind == OpKind::flash_attention_backward;
  const TensorId keys = attention.inputs[backward ? 2 : 1];
  const auto shrink = [&](TensorId id) { round.tensors[id.index()].shape[0] /= cp; };
  shrink(keys);
  if (backward) shrink(attention.outputs.back());
  Op one = attention;
  one.waits.clear();
  std::get<AttentionParams>(one.params).sequence /= cp;
  Op shift;
  shift.kind = OpKind::ring_shift;
  shift.stream = Stream::context;
  shift.phase = attention.phase;
  shift.inputs = {keys};
  shift.outputs = {keys};
  shift.params = CollectiveParams{Group{{Axis::cp}}};
  round.ops = {one, shift};
  return round;
}

}  // namespace

RingRounds ring_rounds(const Routine& routine, std::int64_t cp, const LeastCosts& costs,
                       const Grid& grid) {
  RingRounds all;
  for (const Op& op : routine.ops) {
    if (row(op.kind).op_class != OpClass::attention) continue;
    Routine whole = routine;
    whole.ops = {op};
    all.gathered += costs.of(whole, grid, 0)[0];
    const std::vector<Picoseconds> round = costs.of(round_of(routine, op, cp), grid, 0);
    all.attention += repeated(round[0], cp);
    // Backward sends keys and the sums of their gradients.
    const std::int64_t sent = op.kind == OpKind::flash_attention_backward ? 2 : 1;
    all.shifts += repeated(round[1], sent * (cp - 1));
  }
  return all;
}

}  // namespace plimsoll
