// The JSON of what a plan predicts and of how it was found.
#include "plan/prediction_json.h"

#include <fmt/format.h>

#include "plan/timeline_json.h"

namespace plimsoll {
namespace {

constexpr double kMostRate = 1e30;  // tokens, FLOPs per second
constexpr double kMostRatio = 1e6;  // MFU, HFU, shares: beyond what the checker lets pass
constexpr double kMostStepRatio = kMostJsonSeconds * 1e12;  // of the shortest step, a picosecond

double rate(JsonObject& object, std::string_view key) { return object.number(key, 0, kMostRate); }

double ratio(JsonObject& object, std::string_view key) { return object.number(key, 0, kMostRatio); }

Seconds seconds(JsonObject& object, std::string_view key) {
  return Seconds(object.number(key, 0, kMostJsonSeconds));
}

Seconds difference(JsonObject& object, std::string_view key) {
  return Seconds(object.number(key, -kMostJsonSeconds, kMostJsonSeconds));
}

std::int64_t count(JsonObject& object, std::string_view key) {
  return object.integer(key, 0, kMostJsonInteger);
}

std::vector<std::string_view> provenance_texts() {
  std::vector<std::string_view> texts;
  for (std::size_t i = 0; i < kProvenances; ++i)
    texts.push_back(to_text(static_cast<Provenance>(i)));
  return texts;
}

Json breakdown_json(const Breakdown& breakdown) {
  return {{"forward_s", breakdown.forward.value()},
          {"recompute_s", breakdown.recompute.value()},
          {"backward_s", breakdown.backward.value()},
          {"optimizer_s", breakdown.optimizer.value()},
          {"exposed_communication_s", breakdown.exposed_communication.value()},
          {"bubble_s", breakdown.bubble.value()},
          {"dispatch_s", breakdown.dispatch.value()}};
}

Breakdown breakdown_from(JsonObject object) {
  Breakdown breakdown;
  breakdown.forward = seconds(object, "forward_s");
  breakdown.recompute = seconds(object, "recompute_s");
  breakdown.backward = seconds(object, "backward_s");
  breakdown.optimizer = seconds(object, "optimizer_s");
  breakdown.exposed_communication = seconds(object, "exposed_communication_s");
  breakdown.bubble = seconds(object, "bubble_s");
  // The rest of the step, a difference of the others: rounding may leave it just below zero.
  breakdown.dispatch = difference(object, "dispatch_s");
  object.finish();
  return breakdown;
}

Json stage_json(const StagePrediction& stage) {
  Json json = {{"stage", stage.stage}};
  if (stage.owner) json["owner"] = *stage.owner;
  json["peak_bytes"] = stage.peak.count();
  json["by_class"] = by_role_json(stage.by_role);
  json["arena_bytes"] = stage.arena.count();
  json["capacity_bytes"] = stage.capacity.count();
  json["allocated_bytes"] = stage.allocated.count();
  json["reserved_bytes"] = stage.reserved.count();
  if (stage.host > Bytes()) json["host_bytes"] = stage.host.count();
  return json;
}

StagePrediction stage_from(JsonObject object) {
  StagePrediction stage;
  stage.stage = count(object, "stage");
  if (object.has("owner")) stage.owner = count(object, "owner");
  stage.peak = byte_count(object, "peak_bytes");
  stage.by_role = by_role_from(object.object("by_class"));
  stage.arena = byte_count(object, "arena_bytes");
  stage.capacity = byte_count(object, "capacity_bytes");
  stage.allocated = byte_count(object, "allocated_bytes");
  stage.reserved = byte_count(object, "reserved_bytes");
  if (object.has("host_bytes")) stage.host = byte_count(object, "host_bytes");
  object.finish();
  return stage;
}

Json memory_interval_json(const MemoryInterval& memory) {
  return {{"taken_bytes", memory.taken.count()},
          {"low_bytes", memory.low.count()},
          {"high_bytes", memory.high.count()},
          {"overflow_probability", memory.overflow},
          {"verdict", kMemoryVerdicts[std::size_t(memory.verdict)]}};
}

MemoryInterval memory_interval_from(JsonObject object) {
  MemoryInterval memory;
  memory.taken = byte_count(object, "taken_bytes");
  memory.low = byte_count(object, "low_bytes");
  memory.high = byte_count(object, "high_bytes");
  memory.overflow = object.number("overflow_probability", 0, 1);
  memory.verdict = static_cast<MemoryVerdict>(object.choice("verdict", kMemoryVerdicts));
  object.finish();
  return memory;
}

}  // namespace

Json prediction_json(const Prediction& prediction) {
  Json stages = Json::array(), shares = Json::object(), extrapolated = Json::array();
  for (const OutsideRange& ops : prediction.extrapolated) {
    extrapolated.push_back({{"what", ops.what}, {"share", ops.share}});
  }
  for (const StagePrediction& stage : prediction.stages) stages.push_back(stage_json(stage));
  for (std::size_t i = 0; i < kProvenances; ++i) {
    shares[std::string(provenance_texts()[i])] = prediction.share_by_provenance[i];
  }
  return {{"step_time_s", prediction.step_time.value()},
          {"step_time_low_s", prediction.step_time_low.value()},
          {"step_time_high_s", prediction.step_time_high.value()},
          {"tokens_per_s", prediction.tokens_per_second},
          {"mfu", prediction.mfu},
          {"hfu", prediction.hfu},
          {"peak_flops_per_s", prediction.peak_flops.value()},
          {"peak_source", prediction.peak_source},
          {"worst_provenance", to_text(prediction.worst)},
          {"share_by_provenance", std::move(shares)},
          {"extrapolated", std::move(extrapolated)},
          {"breakdown", breakdown_json(prediction.breakdown)},
          {"stages", std::move(stages)},
          {"memory", memory_interval_json(prediction.memory)}};
}

Prediction prediction_from(JsonObject object) {
  Prediction prediction;
  prediction.step_time = seconds(object, "step_time_s");
  prediction.step_time_low = seconds(object, "step_time_low_s");
  prediction.step_time_high = seconds(object, "step_time_high_s");
  prediction.tokens_per_second = rate(object, "tokens_per_s");
  prediction.mfu = ratio(object, "mfu");
  prediction.hfu = ratio(object, "hfu");
  prediction.peak_flops = FlopsPerSecond(rate(object, "peak_flops_per_s"));
  prediction.peak_source = object.text("peak_source");
  prediction.worst = static_cast<Provenance>(object.choice("worst_provenance", provenance_texts()));
  JsonObject shares = object.object("share_by_provenance");
  for (std::size_t i = 0; i < kProvenances; ++i) {
    const std::string_view name = provenance_texts()[i];
    // Plans from before these two labels counted such time as interpolated or datasheet.
    const bool newer = Provenance(i) == Provenance::fitted || Provenance(i) == Provenance::typical;
    if (!newer || shares.has(name)) prediction.share_by_provenance[i] = ratio(shares, name);
  }
  shares.finish();
  for (JsonObject& object_of : object.objects("extrapolated")) {
    OutsideRange ops;
    ops.what = object_of.text("what");
    ops.share = ratio(object_of, "share");
    object_of.finish();
    prediction.extrapolated.push_back(std::move(ops));
  }
  prediction.breakdown = breakdown_from(object.object("breakdown"));
  for (JsonObject& stage : object.objects("stages")) {
    prediction.stages.push_back(stage_from(std::move(stage)));
  }
  prediction.memory = memory_interval_from(object.object("memory"));
  object.finish();
  return prediction;
}

namespace {

Json pruned_json(const std::vector<Pruned>& entries) {
  Json json = Json::array();
  for (const Pruned& entry : entries) {
    json.push_back({{"reason", entry.reason}, {"count", entry.count}});
  }
  return json;
}

std::vector<Pruned> pruned_from(JsonObject& parent, std::string_view key) {
  std::vector<Pruned> entries;
  for (JsonObject& object : parent.objects(key)) {
    Pruned entry;
    entry.reason = object.text("reason");
    entry.count = count(object, "count");
    object.finish();
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::vector<Pruned> cuts_of(const CutCounts& counts) {
  std::vector<Pruned> cuts;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] != 0) cuts.push_back({std::string(kCuts[i]), counts[i]});
  }
  return cuts;
}

CutCounts cuts_from(JsonObject& parent, std::string_view key) {
  CutCounts counts{};
  for (JsonObject& object : parent.objects(key)) {
    std::int64_t& cut = counts[object.choice("reason", kCuts)];
    if (cut != 0) object.fail("reason", "each reason at most once is required");
    cut = count(object, "count");
    object.finish();
  }
  return counts;
}

}  // namespace

Json search_json(const SearchSummary& search) {
  return {{"method", to_text(search.method)},
          {"space", search.space},
          {"evaluated", search.evaluated},
          {"infeasible", search.infeasible},
          {"bounded", sum_of(search.bounded)},
          {"bounded_by", pruned_json(cuts_of(search.bounded))},
          {"pruned", pruned_json(search.pruned)},
          {"unexplored", search.unexplored},
          {"proven", search.proven},
          {"gap", search.gap}};
}

std::vector<Pruned> left_out_by(const SearchSummary& search) {
  std::vector<Pruned> counts = cuts_of(search.bounded);
  counts.insert(counts.end(), search.pruned.begin(), search.pruned.end());
  return counts;
}

SearchSummary search_from(JsonObject object) {
  SearchSummary search;
  search.method = SearchMethod(object.choice("method", kSearchMethods));
  search.space = count(object, "space");
  search.evaluated = count(object, "evaluated");
  search.infeasible = count(object, "infeasible");
  const std::int64_t bounded = count(object, "bounded");
  search.bounded = cuts_from(object, "bounded_by");
  if (bounded != sum_of(search.bounded)) {
    object.fail("bounded", fmt::format("the bounds cut {}", sum_of(search.bounded)));
  }
  search.pruned = pruned_from(object, "pruned");
  search.unexplored = count(object, "unexplored");
  search.proven = object.boolean("proven");
  search.gap = ratio(object, "gap");
  object.finish();
  return search;
}

namespace {

StepRatio ratio_from(JsonObject& object) {
  StepRatio ratio;
  ratio.low = object.number("ratio_low", 0, kMostStepRatio);
  ratio.high = object.number("ratio_high", 0, kMostStepRatio);
  ratio.tied = object.boolean("tied");
  return ratio;
}

/// Returns the fields that FastestPlan, RunnerUp and ParetoPlan share.
template <class Other>
Json other_plan_json(const Other& plan) {
  return {{"strategy", parse_json(strategy_text(plan.strategy), "strategy")},
          {"step_time_s", plan.step_time.value()},
          {"ratio_low", plan.ratio.low},
          {"ratio_high", plan.ratio.high},
          {"tied", plan.ratio.tied},
          {"peak_bytes", plan.peak.count()},
          {"taken_bytes", plan.taken.count()}};
}

template <class Other>
void read_other_plan(JsonObject& object, Other& plan) {
  plan.strategy = read_embedded(object, "strategy", strategy_from_json_text);
  plan.step_time = seconds(object, "step_time_s");
  plan.ratio = ratio_from(object);
  plan.peak = byte_count(object, "peak_bytes");
  plan.taken = byte_count(object, "taken_bytes");
}

}  // namespace

/// A plan that is as likely to fit as not has odds of 1.
constexpr double kMostGain = 1;

Json unusual_json(std::span<const Unusual> choices) {
  Json json = Json::array();
  for (const Unusual& one : choices)
    json.push_back({{"choice", rule_of(one.choice).key}, {"gain", one.gain}});
  return json;
}

std::vector<Unusual> unusual_from(JsonObject& object, std::string_view key) {
  std::vector<Unusual> choices;
  for (JsonObject& one : object.objects(key)) {
    const std::string text = one.text("choice");
    std::size_t i = 0;
    while (i < kUnusualChoices && rule_of(UnusualChoice(i)).key != text) ++i;
    if (i == kUnusualChoices) one.fail("choice", "found " + text + ", which is no unusual choice");
    choices.emplace_back(UnusualChoice(i));
    choices.back().gain = one.number("gain", 0, kMostGain);
    one.finish();
  }
  return choices;
}

Json fastest_json(const FastestPlan& plan) {
  Json json = other_plan_json(plan);
  json["gain"] = plan.gain;
  json["reasons"] = unusual_json(plan.reasons);
  return json;
}

FastestPlan fastest_from(JsonObject object) {
  FastestPlan plan;
  read_other_plan(object, plan);
  plan.gain = object.number("gain", 0, 1);
  plan.reasons = unusual_from(object, "reasons");
  object.finish();
  return plan;
}

Json pareto_json(const ParetoPlan& plan) {
  Json json = other_plan_json(plan);
  json["unusual"] = unusual_json(plan.unusual);
  return json;
}

ParetoPlan pareto_from(JsonObject object) {
  ParetoPlan plan;
  read_other_plan(object, plan);
  plan.unusual = unusual_from(object, "unusual");
  object.finish();
  return plan;
}

Json runner_up_json(const RunnerUp& runner_up) {
  Json json = other_plan_json(runner_up);
  json["unusual"] = unusual_json(runner_up.unusual);
  json["term"] = to_text(runner_up.term);
  json["term_time_s"] = runner_up.term_time.value();
  json["term_bytes"] = runner_up.term_bytes.count();
  return json;
}

RunnerUp runner_up_from(JsonObject object) {
  RunnerUp runner_up;
  read_other_plan(object, runner_up);
  runner_up.unusual = unusual_from(object, "unusual");
  runner_up.term = LossTerm(object.choice("term", kLossTerms));
  runner_up.term_time = difference(object, "term_time_s");
  runner_up.term_bytes = Bytes(object.integer("term_bytes", -kMostJsonInteger, kMostJsonInteger));
  object.finish();
  return runner_up;
}

}  // namespace plimsoll
