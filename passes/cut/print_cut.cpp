// A cut Graph is printed as text.
#include <fmt/format.h>

#include "graph/text.h"
#include "passes/cut/cut_blocks.h"

namespace plimsoll {

std::string print(const CutGraph& cut) {
  std::string text;
  std::size_t index = 0;
  for (const CutBlock& block : cut.blocks) {
    text += fmt::format("bundle elements={}", block.bundle_elements);
    for (const BundleEntry& entry : block.bundle) {
      text += fmt::format(" %{}:{}+{}", entry.parameter.index(), entry.offset, entry.elements);
    }
    text += "\n";
    for (const Routine* routine :
         {&block.weight_copies, &block.forward, &block.backward, &block.weight_gradient}) {
      const bool always = routine == &block.forward || routine == &block.backward;
      if (!always && routine->ops.empty()) continue;
      text += print(*routine, index++);
    }
    for (const auto* parts : {&block.forward_parts, &block.backward_parts}) {
      for (const RoutinePart& part : *parts) text += print(part.routine, index++);
    }
    text += "\n";
  }
  text += print(cut.begin_step, index++);
  for (const UpdatePart& part : cut.update) {
    if (part.each.empty()) text += print(part.routine, index++);
    for (const ParameterRoutine& each : part.each) text += print(each.routine, index++);
  }
  return text;
}

}  // namespace plimsoll
