// Lays a model over its pipeline in all legal ways.
#include "planner/space/arrangements.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "passes/strategy/pipeline_order.h"

namespace plimsoll {
namespace {

/// Returns about how many layers the head is worth, by the parameters of its product.
std::int64_t layers_of_head(const Job& job) {
  Job deeper = job;
  deeper.layers += 1;
  const std::int64_t layer =
      parameter_count(build_forward(deeper, 1)) - parameter_count(build_forward(job, 1));
  return std::llround(double(job.vocab) * double(job.hidden) /
                      double(std::max<std::int64_t>(layer, 1)));
}

/// Returns how many layers embedding and loss count as: none, one for the loss, one for both, or
/// the loss by its cost.
std::vector<std::pair<std::int64_t, std::int64_t>> ends_of(const Job& job) {
  std::vector<std::pair<std::int64_t, std::int64_t>> ends = {{0, 0}, {0, 1}, {1, 1}};
  const std::int64_t head = std::min(layers_of_head(job), total_layers(job));
  if (head > 1) ends.emplace_back(0, head);
  return ends;
}

/// Gives each layer to the stage that is done first with it. The last stage begins with the loss.
std::vector<std::int64_t> split_by_rate(std::int64_t layers, std::int64_t loss,
                                        std::span<const double> rates) {
  std::vector<std::int64_t> split(rates.size(), 1);
  for (auto left = layers - std::int64_t(rates.size()); left > 0; --left) {
    std::size_t first = 0;
    const auto done = [&](std::size_t stage) {
      return double(split[stage] + 1 + (stage + 1 == rates.size() ? loss : 0)) / rates[stage];
    };
    for (std::size_t stage = 1; stage < rates.size(); ++stage) {
      if (done(stage) < done(first)) first = stage;
    }
    ++split[first];
  }
  return split;
}

}  // namespace

ArrangementFinder::ArrangementFinder(const Job& job, const Framework& framework,
                                     ArrangementChoices choices,
                                     std::function<bool(const Strategy&)> is_legal)
    : job_(job),
      framework_(framework),
      choices_(std::move(choices)),
      is_legal_(std::move(is_legal)) {
  ends_ = choices_.ends ? ends_of(job) : std::vector<std::pair<std::int64_t, std::int64_t>>();
}

std::shared_ptr<const Arrangements> ArrangementFinder::of(const Strategy& strategy) {
  const std::int64_t m = micro_batches(job_, strategy);
  const Key key{strategy.pp,
                std::min(m, strategy.pp),
                m % strategy.pp == 0,
                strategy.recompute,
                strategy.recomputed.modules,
                strategy.sharding_stage,
                strategy.tokens.sequence_parallel,
                strategy.pipeline.split_boundary,
                strategy.mp > 1,
                strategy.cp > 1,
                strategy.sharding_degree > 1,
                strategy.dp > 1,
                choices_.stage_rates(strategy)};
  const auto [known, added] = known_.try_emplace(key);
  if (added) known->second = find(strategy);
  return known->second;
}

std::shared_ptr<const Arrangements> ArrangementFinder::find(const Strategy& strategy) const {
  Arrangements found;
  add_layouts(strategy, found);
  add_cuts(strategy, found);
  if (choices_.schedule && framework_.can.pipelines.schedules.value.has(Schedule::zb_h1) &&
      strategy.pp > 1) {
    Strategy zero_bubble = strategy;
    zero_bubble.schedule = Schedule::zb_h1;
    add_layouts(zero_bubble, found);
  }
  return std::make_shared<const Arrangements>(std::move(found));
}

/// Adds every number of chunks, with each way to count the ends that spreads layers differently.
void ArrangementFinder::add_layouts(const Strategy& plain, Arrangements& found) const {
  const bool chunks = choices_.virtual_stages && plain.pipeline.layer_split.empty() &&
                      plain.pp > 1 && plain.schedule == Schedule::one_f_one_b;
  const bool ends = choices_.ends && plain.pipeline.layer_split.empty() && plain.pp > 1;
  const bool two = choices_.virtual_stages && is_placed_as_v(plain.schedule);
  const std::int64_t least = two ? 2 : plain.pipeline.virtual_stages;
  const std::int64_t most = chunks ? (total_layers(job_) + 2) / plain.pp : least;
  for (std::int64_t v = least; v <= std::max(most, least); ++v) {
    std::set<std::vector<std::int64_t>> seen;
    const auto add = [&](std::int64_t embedding, std::int64_t loss) {
      Strategy layout = plain;
      layout.pipeline.virtual_stages = v;
      layout.pipeline.embedding_as_layers = embedding;
      layout.pipeline.loss_as_layers = loss;
      if (is_legal_(layout) && seen.insert(layers_per_part(job_, layout)).second)
        add_group(layout, found);
    };
    if (!ends) {
      add(plain.pipeline.embedding_as_layers, plain.pipeline.loss_as_layers);
    } else {
      for (const auto& [embedding, loss] : ends_) add(embedding, loss);
    }
  }
}

/// Adds cuts in which each stage has as many layers as its devices are fast, without virtual
/// stages. The loss counts as no layer, or as many as its product is worth.
void ArrangementFinder::add_cuts(const Strategy& plain, Arrangements& found) const {
  const std::vector<double> rates = choices_.stage_rates(plain);
  if (rates.empty() || plain.pipeline.virtual_stages > 1 || is_placed_as_v(plain.schedule)) return;
  std::set<std::vector<std::int64_t>> seen;
  for (const std::int64_t loss : {std::int64_t{0}, layers_of_head(job_)}) {
    Strategy layout = plain;
    layout.pipeline.embedding_as_layers = layout.pipeline.loss_as_layers = 0;
    layout.pipeline.layer_split = split_by_rate(total_layers(job_), loss, rates);
    if (is_legal_(layout) && seen.insert(layout.pipeline.layer_split).second)
      add_group(layout, found);
  }
}

void ArrangementFinder::add_group(const Strategy& layout, Arrangements& found) const {
  ArrangementGroup group;
  group.first = found.all.size();
  group.stages.resize(std::size_t(layout.pp));
  for (const std::int64_t layers : layers_per_part(job_, layout)) {
    const std::int64_t first = group.parts.empty() ? 0 : group.parts.back().last;
    const PartPlace place = place_of(layout.schedule, layout.pp, std::int64_t(group.parts.size()));
    group.parts.push_back({first, first + layers});
    group.stages[std::size_t(place.stage)].push_back(group.parts.back());
    group.most_layers = std::max(group.most_layers, layers);
  }
  const auto add = [&](std::int64_t recompute_layers) {
    Strategy counted = layout;
    counted.recomputed.layers = recompute_layers;
    if (!choices_.may_recompute(counted)) return;
    found.all.push_back({layout.schedule, layout.pipeline.virtual_stages,
                         layout.pipeline.embedding_as_layers, layout.pipeline.loss_as_layers,
                         recompute_layers, layout.pipeline.layer_split});
  };
  const bool counts =
      layout.recompute == Recompute::full || layout.recompute == Recompute::selective;
  if (choices_.recompute_layers && counts && layout.recomputed.list.empty()) {
    Strategy some = layout;
    for (std::int64_t n = 1; n < group.most_layers; ++n) {
      some.recomputed.layers = n;
      if (is_legal_(some)) add(n);
    }
  }
  add(layout.recomputed.layers);
  group.count = found.all.size() - group.first;
  if (group.count == 0) return;
  found.groups.push_back(std::move(group));
}

}  // namespace plimsoll
