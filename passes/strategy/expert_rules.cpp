// The rules of a mixture of experts.
#include "passes/strategy/expert_rules.h"

#include <fmt/format.h>

namespace plimsoll {

Verdict experts_are_legal(const Job& job, const Strategy& strategy) {
  if (!job.experts) return Verdict::yes();
  const Experts& experts = *job.experts;
  if (experts.ffn_hidden % strategy.mp != 0 || experts.shared_ffn_hidden % strategy.mp != 0) {
    return Verdict::no(fmt::format("mp {} does not divide the experts' ffn_hidden of {} and {}",
                                   strategy.mp, experts.ffn_hidden, experts.shared_ffn_hidden));
  }
  if (strategy.cp > 1) return Verdict::no("cp is not built for a mixture of experts");
  if (strategy.fp8 != Fp8::none) return Verdict::no("fp8 is not built for a mixture of experts");
  return Verdict::yes();
}

}  // namespace plimsoll
