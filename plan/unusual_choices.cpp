// The table of unusual choices, and which of them a strategy has.
#include "plan/unusual_choices.h"

#include <bit>

namespace plimsoll {
namespace {

constexpr std::array<std::string_view, 1> kContext = {"cp"}, kTensor = {"mp"},
                                          kMicroBatch = {"micro_batch"},
                                          kVirtual = {"virtual_stages"};

// Published tables hardly have these choices beside others (docs/results/recommended.md): they
// bound the gains from above, as scripts/regret finds. Within these bounds 5 % is required of what
// one in a hundred published layouts has, and 3 % of what one in ten has.
constexpr std::array<UnusualRule, kUnusualChoices> kRules = {{
    {"context_split", "context split of sequences under 8,192 tokens", kContext, 0.05},
    {"tensor_over_nodes", "tensor parallelism across nodes", kTensor, 0.05},
    {"odd_micro_batch", "a micro-batch that is no power of two", kMicroBatch, 0.03},
    {"many_virtual_stages", "more than 4 virtual stages", kVirtual, 0.03},
    {"tight_memory", "memory whose 90 % interval does not fit", {}, 0.02},
}};

}  // namespace

const UnusualRule& rule_of(UnusualChoice choice) { return kRules[std::size_t(choice)]; }

std::vector<UnusualChoice> unusual_choices(const Job& job, const Strategy& strategy,
                                           std::int64_t devices_per_node) {
  std::vector<UnusualChoice> found;
  const auto add = [&](bool is_there, UnusualChoice choice) {
    if (is_there) found.push_back(choice);
  };
  add(strategy.cp > 1 && job.sequence < kUsualContext, UnusualChoice::context_split);
  add(strategy.mp > devices_per_node, UnusualChoice::tensor_over_nodes);
  add(!std::has_single_bit(std::uint64_t(strategy.micro_batch)), UnusualChoice::odd_micro_batch);
  add(strategy.virtual_stages > kUsualVirtualStages, UnusualChoice::many_virtual_stages);
  return found;
}

double handicap(std::span<const UnusualChoice> choices) {
  double factor = 1;
  for (const UnusualChoice choice : choices) factor *= 1 + rule_of(choice).gain;
  return factor;
}

std::string words_of(std::span<const UnusualChoice> choices) {
  std::string text;
  for (const UnusualChoice choice : choices) {
    if (!text.empty()) text += ", ";
    text += rule_of(choice).words;
  }
  return text;
}

}  // namespace plimsoll
