// Adds routines or their parts to the Program, and finds them again.
#include "passes/schedule/stage_routines.h"

namespace plimsoll {

namespace {

/// Returns the parts of a routine; there are none where it is called whole.
std::span<const RoutinePart> parts_of(ActionKind kind, const CutBlock& cut) {
  if (kind == ActionKind::weight_gradient) return {};
  return kind == ActionKind::forward ? cut.forward_parts : cut.backward_parts;
}

const Routine& routine_of(ActionKind kind, const CutBlock& cut) {
  if (kind == ActionKind::forward) return cut.forward;
  return kind == ActionKind::weight_gradient ? cut.weight_gradient : cut.backward;
}

}  // namespace

void StageRoutines::add(std::size_t instance, std::int64_t backwards) {
  const CutBlock& cut = cuts_.cut_of(instance);
  const auto [found, fresh] = ids_.try_emplace(&cut);
  by_instance_.push_back(&found->second);
  if (!fresh) return;
  for (ActionKind kind : {ActionKind::forward, ActionKind::backward, ActionKind::weight_gradient}) {
    std::vector<RoutineId>& ids = found->second[std::size_t(kind)];
    for (const RoutinePart& part : parts_of(kind, cut))
      ids.push_back(build_.add_routine(part.routine));
    const Routine& whole = routine_of(kind, cut);
    if (!ids.empty() || whole.ops.empty()) continue;
    const std::int64_t calls = kind == ActionKind::backward ? backwards : 1;
    ids.assign(std::size_t(calls), build_.add_routine(whole));
  }
}

const std::vector<RoutineId>& StageRoutines::of(ActionKind kind, std::size_t instance) const {
  const bool input = kind == ActionKind::input_gradient;
  return (*by_instance_[instance])[std::size_t(input ? ActionKind::backward : kind)];
}

bool StageRoutines::begins(ActionKind kind, std::size_t instance) const {
  if (kind == ActionKind::weight_gradient || !has(kind, instance)) return false;
  return kind == ActionKind::forward || !has(ActionKind::forward, instance);
}

const Routine& StageRoutines::whole(ActionKind kind, std::size_t instance) const {
  return routine_of(kind, cuts_.cut_of(instance));
}

std::span<const RoutinePart::Awaited> StageRoutines::waits(ActionKind kind, std::size_t instance,
                                                           std::size_t part) const {
  const std::span<const RoutinePart> parts = parts_of(kind, cuts_.cut_of(instance));
  if (parts.empty()) return {};
  return parts[part].waits;
}

}  // namespace plimsoll
