// Ranges of an op's operand are taken from the ranges that its rank owns.
#include "runtime/arena_ranges.h"

namespace plimsoll {

std::vector<OwnedRange> ranges_of(const Tensor& operand, const RankContext& context,
                                  std::optional<std::int64_t> group) {
  if (!operand.arena) {
    OwnedRange whole;
    whole.elements = elements(operand.shape);
    whole.decay = true;
    return {whole};
  }
  INVARIANT(context.program != nullptr, "arena ops need a program");
  std::vector<OwnedRange> ranges = owned_ranges(*context.program, context.at);
  if (group) std::erase_if(ranges, [&](const OwnedRange& range) { return range.group != *group; });
  return ranges;
}

bool keeps_part(const Tensor& operand, const RankContext& context) {
  if (!operand.arena) return false;
  INVARIANT(context.program != nullptr, "arena ops need a program");
  return elements(operand.shape) == owned_elements(*context.program);
}

}  // namespace plimsoll
