// FLOPs of a step's calls are added up by phase.
#include "graph/step_flops.h"

#include <vector>

#include "graph/op_table.h"

namespace plimsoll {

PhaseFlops step_flops(const Program& program) {
  std::vector<PhaseFlops> by_routine;
  for (const Routine& routine : program.routines) {
    PhaseFlops& sums = by_routine.emplace_back();
    for (const Op& op : routine.ops) sums[std::size_t(op.phase)] += flops(op, routine.tensors);
  }
  PhaseFlops total;
  for (const Call& call : program.calls) {
    for (std::size_t phase = 0; phase < kPhases; ++phase) {
      total[phase] += by_routine[call.routine.index()][phase];
    }
  }
  return total;
}

}  // namespace plimsoll
