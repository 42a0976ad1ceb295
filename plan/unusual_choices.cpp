// The table of unusual choices, and which of them a strategy has.
#include "plan/unusual_choices.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace plimsoll {
namespace {

constexpr std::array<std::string_view, 1> kContext = {"cp"}, kTensor = {"mp"},
                                          kMicroBatch = {"micro_batch"},
                                          kVirtual = {"virtual_stages"}, kLayers = {"layer_split"},
                                          kStages = {"pp"};

// Published tables hardly have these choices beside others (docs/results/recommended.md): they
// bound the gains from above, as lab/regret finds. Within these bounds 5 % is required of what
// one in a hundred published layouts has, and 3 % of what one in ten has. A failed start costs a
// whole run: three quarters of one give the same regret, less give more of it or more failures.
constexpr std::array<UnusualRule, kUnusualChoices> kRules = {{
    {"context_split", "context split of sequences under 8,192 tokens", kContext, 0.05},
    {"tensor_over_nodes", "tensor parallelism across nodes", kTensor, 0.05},
    {"odd_micro_batch", "a micro-batch that is no power of two", kMicroBatch, 0.03},
    {"many_virtual_stages", "more than 4 virtual stages", kVirtual, 0.03},
    {"uneven_layers", "uneven inner stages", kLayers, 0.03},
    {"pipeline_alone", "a pipeline over all devices", kStages, 0.03},
    {"tight_memory", "tight memory", {}, 1},
}};

bool shares_layers_evenly(const Job& job, const Strategy& strategy) {
  const std::vector<std::int64_t> parts = layers_per_part(job, strategy);
  return parts.size() <= 2 || std::adjacent_find(parts.begin() + 1, parts.end() - 1,
                                                 std::not_equal_to<>()) == parts.end() - 1;
}

}  // namespace

const UnusualRule& rule_of(UnusualChoice choice) { return kRules[std::size_t(choice)]; }

std::vector<Unusual> unusual_choices(const Job& job, const Strategy& strategy,
                                     UsualDevices devices) {
  std::vector<Unusual> found;
  const auto add = [&](bool is_there, UnusualChoice choice, double measure = 1) {
    if (is_there) found.emplace_back(choice, measure);
  };
  add(strategy.cp > 1 && job.sequence < kUsualContext, UnusualChoice::context_split);
  add(strategy.mp > devices.per_node, UnusualChoice::tensor_over_nodes);
  add(!std::has_single_bit(std::uint64_t(strategy.micro_batch)), UnusualChoice::odd_micro_batch);
  add(strategy.pipeline.virtual_stages > kUsualVirtualStages, UnusualChoice::many_virtual_stages,
      std::ceil(std::log2(double(strategy.pipeline.virtual_stages) / double(kUsualVirtualStages))));
  add(!devices.mixed && !shares_layers_evenly(job, strategy), UnusualChoice::uneven_layers);
  add(strategy.pp >= kAlone &&
          strategy.mp * strategy.cp * strategy.dp * strategy.sharding_degree == 1,
      UnusualChoice::pipeline_alone);
  return found;
}

double handicap(std::span<const Unusual> choices) {
  double factor = 1;
  for (const Unusual& one : choices) factor *= 1 + one.gain;
  return factor;
}

std::string words_of(std::span<const Unusual> choices) {
  std::string text;
  for (const Unusual& one : choices) {
    if (!text.empty()) text += ", ";
    text += rule_of(one.choice).words;
  }
  return text;
}

}  // namespace plimsoll
