// The meaning of a strategy's keys, in a few words; models/presets/schemas/strategy.json has more.
#include "reports/strategy_meanings.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "models/framework/capabilities.h"

namespace plimsoll {
namespace {

struct Meaning {
  std::string_view key, words;
};

constexpr Meaning kMeanings[] = {
    {"mp", "ranks that split every layer (tensor parallel)"},
    {"pp", "pipeline stages"},
    {"dp", "replicas that hold everything"},
    {"sharding_degree", "replicas that share the optimizer state"},
    {"sharding_stage", "what is sharded: 1 the optimizer state, 2 gradients too, 3 parameters too"},
    {"micro_batch", "sequences per micro-batch"},
    {"schedule", "order of forwards and backwards"},
    {"recompute", "what backward computes again instead of keeping it"},
    {"grad_bucket_bytes", "gradients reduced in one collective"},
    {"send_slots", "sends in flight to one neighbour"},
    {"layer_split", "layers of each part of the model, from its front"},
    {"rank_order",
     "how ranks are numbered, and so which of them share a node; innermost axis first"},
    {"embedding_as_layers",
     "layers that the embedding counts as, when layers are spread evenly over stages"},
    {"loss_as_layers", "layers that the loss counts as, when layers are spread evenly over stages"},
    {"virtual_stages", "parts of the model on each stage, computed in turn (interleaved)"},
    {"send_lifetime", "how long a sent tensor is kept"},
    {"split_boundary", "each rank of mp sends its share of what stages exchange"},
    {"sequence_parallel", "ranks of mp share the tokens of norms and dropout"},
    {"fp8", "linear layers in 8 bits, by how their operands are scaled"},
    {"fp8_parameters", "parameters of these layers are kept and gathered in 8 bits"},
    {"cp", "ranks that share the tokens of each sequence (context parallel)"},
    {"context_exchange", "how ranks of cp exchange keys and values"},
    {"ep", "ranks that share out the experts of a layer (expert parallel)"},
    {"etp", "ranks that share each expert; 0: one with ep, else those of mp"},
    {"expert_dispatch", "how tokens reach the ranks of their experts"},
    {"expert_rows_percent", "rows for which experts have memory, in percent of even routing"},
    {"overlap_shared_experts", "whether shared experts compute while tokens travel to experts"},
    {"overlap_expert_exchange", "whether a forward and a backward hide each other's exchanges"},
    {"recompute_layers", "only the first layers of each part are recomputed"},
    {"recompute_list", "only these layers are recomputed"},
    {"recompute_modules", "only these parts of a layer are recomputed"},
    {"cast_placement", "the place of the cast of parameters to the compute type"},
    {"flatten", "whether updates run over one buffer or by tensor"},
    {"sharding_owner", "who updates what: equal ranges, or whole tensors"},
    {"collective_fusion", "how tensors become one collective"},
    {"param_bucket_bytes", "parameters gathered in one collective"},
    {"grad_reduction", "when gradients are reduced"},
    {"gradient_merge", "how gradients of micro-batches become the step's"},
    {"gradient_type", "the type in which gradients are added up and reduced"},
    {"main_gradient_type", "the type of the gradients that the update reads"},
    {"main_parameter_type", "the type of the parameters that the update works on"},
    {"moment_type", "the type of the optimizer's moments"},
    {"overlap_grad_reduce", "gradients are reduced during backward"},
    {"overlap_param_gather", "parameters are gathered during forward"},
    {"offload_optimizer_percent", "the share of updated parameters that the host updates"},
    {"overlap_offload", "parts of the offloaded share are copied while the host updates others"},
    {"gather", "what is gathered at once in sharding stage 3"},
    {"prefetch_depth", "gathers posted this many uses ahead"},
    {"max_live_bytes", "most bytes of gathered parameters"},
    {"reuse_distance_bytes", "gathered parameters used again within this many are kept"},
    {"persistence_threshold", "tensors of at most this number of elements are not sharded"},
    {"keep_gathered", "gathered parameters are kept from forward to backward"},
    {"segment_broadcast_bytes", "parameters broadcast at once for a segment"},
};

struct ScheduleMeaning {
  Schedule schedule;
  std::string_view words;
};

constexpr ScheduleMeaning kScheduleMeanings[] = {
    {Schedule::one_f_one_b, "one forward and one backward in turn"},
    {Schedule::gpipe, "all forwards, then all backwards"},
    {Schedule::zb_h1, "as 1f1b, with gradients of weights computed later, at the same memory"},
    {Schedule::zb_h2, "as 1f1b, with gradients of weights computed later and more micro-batches"},
    {Schedule::zb_v, "two chunks on each stage, placed as a V, with late gradients of weights"},
    {Schedule::v_half, "chunks placed as a V, at half of the activation memory of 1f1b"},
    {Schedule::v_min, "chunks placed as a V, at a third of the activation memory of 1f1b"},
    {Schedule::dualpipe_v, "two chunks on each stage, placed as a V; forwards hide exchanges"},
    {Schedule::dualpipe,
     "two chunks on each stage, placed as a V, whose halves of the data ranks swap micro-batches "
     "where the V turns"},
};

}  // namespace

std::string meaning_of(std::string_view strategy_key, std::string_view value) {
  std::string meaning(meaning_of(strategy_key));
  if (strategy_key != "schedule") return meaning;
  for (const ScheduleMeaning& one : kScheduleMeanings) {
    if (kSchedules[std::size_t(one.schedule)] == value)
      return fmt::format("{}: {}", meaning, one.words);
  }
  return meaning;
}

std::string_view meaning_of(std::string_view strategy_key) {
  const auto meaning = std::find_if(std::begin(kMeanings), std::end(kMeanings),
                                    [&](const Meaning& one) { return one.key == strategy_key; });
  return meaning == std::end(kMeanings) ? std::string_view() : meaning->words;
}

}  // namespace plimsoll
