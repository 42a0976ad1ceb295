// Layouts of published runs are grouped, and held against the best of their group.
#include "published/layout_regret.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>

#include "models/calibration/fitted_calibration.h"
#include "models/job/job.h"
#include "plan/prediction_json.h"

namespace plimsoll {
namespace {

using Runs = std::vector<const ValidatedRun*>;

/// The job as the document states it. Programs pad the vocabulary to what a layout needs.
Job stated_job(const ValidatedRun& row) {
  Job job = row.predicted->job;
  job.vocab = row.run.vocab.value_or(job.vocab);
  return job;
}

/// Returns what runs of one group have in common, apart from the document and from the words that
/// group_words() has.
std::string identity_of(const ValidatedRun& row) {
  const PublishedRun& run = row.run;
  return fmt::format("{}{}\n{}\n{}\n{}", job_text(stated_job(row)), run.gpu,
                     run.gpus_per_node.value_or(0), run.interconnect, run.precision_words);
}

std::string group_words(const ValidatedRun& row) {
  const PublishedRun& run = row.run;
  const Job& job = row.predicted->job;
  std::string words = fmt::format("{} ({} layers of {}), {} tokens, batch {}, {} of {}, {}, {}",
                                  run.model.empty() ? "model" : run.model, job.layers, job.hidden,
                                  job.sequence, job.global_batch, run.gpus, row.predicted->cluster,
                                  row.predicted->framework, run.precision_words);
  for (const std::string& more : run.kernels) words += ", " + more;
  return words;
}

/// Returns the choices by which releases of one recipe are recognised.
std::string degrees_of(const Strategy& s) {
  return fmt::format("{} {} {} {} {} {} {} {}", s.mp, s.pp, s.dp * s.sharding_degree, s.cp, s.ep,
                     s.pipeline.virtual_stages, s.sharding_stage, s.micro_batch);
}

Seconds median(std::vector<Seconds> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2.0;
}

MeasuredLayout layout_of(const Runs& runs) {
  const RunPrediction& first = *runs.front()->predicted;
  const PlanTime time{first.step_time, first.breakdown, layer_shape(first.job, first.strategy),
                      first.open.basis, first.interval.logarithm()};
  MeasuredLayout layout{
      strategy_summary(first.strategy), {}, {}, {}, first.fits != Fits::no, {time, first.unusual}};
  std::vector<Seconds> predicted, measured;
  for (const ValidatedRun* row : runs) {
    layout.runs.push_back(row->run.id);
    predicted.push_back(row->predicted->step_time);
    if (row->run.has_step_time()) measured.push_back(*row->run.step_time);
  }
  layout.predicted = layout.trial.time.step_time = median(predicted);
  if (!measured.empty()) layout.measured = median(measured);
  return layout;
}

/// Returns the layouts of a group, by measured time.
std::vector<MeasuredLayout> layouts_of(const Runs& group) {
  std::map<std::string, std::map<std::string, Runs>> by_degrees;  // and by strategy
  for (const ValidatedRun* row : group) {
    const Strategy& strategy = row->predicted->strategy;
    by_degrees[degrees_of(strategy)][strategy_summary(strategy)].push_back(row);
  }
  std::vector<MeasuredLayout> layouts;
  for (const auto& [degrees, by_strategy] : by_degrees) {
    std::set<std::string> releases;
    Runs all;
    bool one_recipe = true;
    for (const auto& [strategy, runs] : by_strategy) {
      std::set<std::string> own;
      for (const ValidatedRun* row : runs) own.insert(row->run.release);
      for (const std::string& release : own) one_recipe &= releases.insert(release).second;
      all.insert(all.end(), runs.begin(), runs.end());
    }
    if (one_recipe) {
      layouts.push_back(layout_of(all));
    } else {
      for (const auto& [strategy, runs] : by_strategy) layouts.push_back(layout_of(runs));
    }
  }
  std::ranges::stable_sort(layouts, {}, [](const MeasuredLayout& layout) {
    return std::pair(!layout.measured, layout.measured.value_or(layout.predicted));
  });
  return layouts;
}

bool ran(const MeasuredLayout& layout) { return layout.measured.has_value(); }

/// Adds the regret of the best of the first layout in `order` and its trials.
void try_out(const std::vector<MeasuredLayout>& layouts, std::span<const std::size_t> order,
             double least, Regret& regret) {
  std::vector<TrialPlan> pool;
  for (const std::size_t i : order) pool.push_back(layouts[i].trial);
  regret.after_trials = regret.first;
  regret.trials = 1 + regret.failed_starts;
  for (const ChosenTrial& trial : choose_trials(pool, least)) {
    const MeasuredLayout& layout = layouts[order[trial.plan]];
    ++regret.trials;
    if (ran(layout)) {
      const double lost = *layout.measured / *layouts.front().measured - 1;
      regret.after_trials = std::min(regret.after_trials, lost);
    }
  }
}

/// Returns the regret of layouts in the order of their `value`. Layouts that are predicted not to
/// fit are only tried if all layouts that ran are. A trial is the share `least` of a training.
template <class Value>
Regret regret_of(const std::vector<MeasuredLayout>& layouts, double least, Value value) {
  const bool some_fit = std::ranges::any_of(
      layouts, [](const MeasuredLayout& layout) { return ran(layout) && layout.fits; });
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < layouts.size(); ++i)
    if (layouts[i].fits || !some_fit) order.push_back(i);
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return value(layouts[i]); });
  Regret regret;
  const Seconds best = *layouts.front().measured;
  std::size_t tried = 0;
  for (const std::size_t i : order) {
    if (!ran(layouts[i])) {
      regret.failed_starts += tried == 0 ? 1 : 0;
      continue;
    }
    const double lost = *layouts[i].measured / best - 1;
    if (tried == 0) regret.chosen = i, regret.first = regret.best_of_three = lost;
    regret.best_of_three = std::min(regret.best_of_three, lost);
    if (++tried == 3) break;
  }
  order.erase(order.begin(), std::ranges::find(order, regret.chosen));
  try_out(layouts, order, least, regret);
  return regret;
}

LayoutGroup group_of(std::string source, std::string what, const Job& job,
                     std::vector<MeasuredLayout> layouts) {
  LayoutGroup group{std::move(source), std::move(what), std::move(layouts), {}, {}, {}};
  const double least = least_gain(job.global_batch * job.sequence, kUsualTokens);
  group.recommended = regret_of(group.layouts, least, [](const MeasuredLayout& layout) {
    return merit(layout.predicted, layout.trial.unusual);
  });
  group.fastest = regret_of(group.layouts, least,
                            [](const MeasuredLayout& layout) { return layout.predicted; });
  ErrorPairs pairs;
  for (const MeasuredLayout& layout : group.layouts)
    if (ran(layout)) pairs.emplace_back(layout.predicted.value(), layout.measured->value());
  group.spearman = statistics(pairs)->spearman;
  return group;
}

MeanRegret mean_of(const Regret& regret) {
  return {regret.first,        regret.first,          regret.best_of_three,
          regret.after_trials, double(regret.trials), regret.failed_starts};
}
const MeanRegret& mean_of(const MeanRegret& regret) { return regret; }

void add(MeanRegret& sum, const MeanRegret& of) {
  sum.mean += of.mean;
  sum.worst = std::max(sum.worst, of.worst);
  sum.best_of_three += of.best_of_three;
  sum.after_trials += of.after_trials;
  sum.trials += of.trials;
  sum.failed_starts += of.failed_starts;
}

/// Returns the mean over `parts`: groups of a source, or sources.
template <class Part>
SourceRegret mean_of(std::string name, std::span<const Part> parts) {
  SourceRegret mean{std::move(name), 0, {}, {}, {}};
  double spearman = 0, ranked = 0;
  for (const Part& part : parts) {
    add(mean.recommended, mean_of(part.recommended));
    add(mean.fastest, mean_of(part.fastest));
    if (part.spearman) spearman += *part.spearman, ranked += 1;
  }
  for (MeanRegret* of : {&mean.recommended, &mean.fastest}) {
    of->mean /= double(parts.size());
    of->best_of_three /= double(parts.size());
    of->after_trials /= double(parts.size());
    of->trials /= double(parts.size());
  }
  if (ranked > 0) mean.spearman = spearman / ranked;
  return mean;
}

std::string line(const SourceRegret& of) {
  const auto policy = [](const MeanRegret& regret) {
    return fmt::format("mean {:.1f} %, worst {:.1f} %, best of three {:.2f} %", 100 * regret.mean,
                       100 * regret.worst, 100 * regret.best_of_three);
  };
  std::string text =
      fmt::format("  {}  {} {}  recommended: {}  fastest: {}", of.source, of.groups,
                  of.groups == 1 ? "group" : "groups", policy(of.recommended), policy(of.fastest));
  if (of.spearman) text += fmt::format("  Spearman {:.2f}", *of.spearman);
  return text + "\n";
}

std::string group_text(const LayoutGroup& group) {
  const auto layout = [&](std::string_view what, std::size_t i) {
    const MeasuredLayout& of = group.layouts[i];
    return fmt::format("    {}: {:.4g} s, predicted {:.4g} s: {}\n", what, of.measured->value(),
                       of.predicted.value(), of.strategy);
  };
  std::string text =
      fmt::format("  {}, {}: {:.1f} %\n", group.source, group.what, 100 * group.recommended.first);
  text += layout("best", 0);
  if (group.recommended.chosen != 0) text += layout("recommended", group.recommended.chosen);
  if (group.fastest.chosen != 0 && group.fastest.chosen != group.recommended.chosen)
    text += layout("fastest", group.fastest.chosen);
  return text;
}

Json mean_json(const MeanRegret& regret) {
  return {{"mean_pct", 100 * regret.mean},
          {"worst_pct", 100 * regret.worst},
          {"best_of_three_pct", 100 * regret.best_of_three},
          {"after_trials_pct", 100 * regret.after_trials},
          {"trials", regret.trials},
          {"failed_starts", regret.failed_starts}};
}

Json optional_json(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json source_json(const SourceRegret& of) {
  return {{"source", of.source},
          {"groups", of.groups},
          {"recommended", mean_json(of.recommended)},
          {"fastest", mean_json(of.fastest)},
          {"spearman", optional_json(of.spearman)}};
}

Json layout_json(const MeasuredLayout& layout) {
  return {{"strategy", layout.strategy},
          {"runs", layout.runs},
          {"predicted_s", layout.predicted.value()},
          {"measured_s", layout.measured ? Json(layout.measured->value()) : Json(nullptr)},
          {"fits", layout.fits},
          {"unusual", unusual_json(layout.trial.unusual)}};
}

Json group_json(const LayoutGroup& group) {
  const auto policy = [](const Regret& regret) -> Json {
    return {{"chosen", regret.chosen},
            {"regret_pct", 100 * regret.first},
            {"best_of_three_pct", 100 * regret.best_of_three},
            {"after_trials_pct", 100 * regret.after_trials},
            {"trials", regret.trials},
            {"failed_starts", regret.failed_starts}};
  };
  Json json = {{"source", group.source},
               {"what", group.what},
               {"recommended", policy(group.recommended)},
               {"fastest", policy(group.fastest)},
               {"spearman", optional_json(group.spearman)},
               {"layouts", Json::array()}};
  for (const MeasuredLayout& layout : group.layouts) json["layouts"].push_back(layout_json(layout));
  return json;
}

}  // namespace

std::vector<LayoutGroup> layout_groups(std::span<const ValidatedFamily> families) {
  std::map<std::array<std::string, 3>, Runs> runs;  // by source, words and identity
  for (const ValidatedFamily& family : families) {
    for (const ValidatedRun& row : family.runs) {
      if (!row.predicted || (!row.run.has_step_time() && !row.run.out_of_memory)) continue;
      runs[{document_of(row.run.source), group_words(row), identity_of(row)}].push_back(&row);
    }
  }
  std::vector<LayoutGroup> groups;
  for (const auto& [key, group] : runs) {
    std::vector<MeasuredLayout> layouts = layouts_of(group);
    if (std::ranges::count_if(layouts, ran) < std::ptrdiff_t(kLeastLayouts)) continue;
    groups.push_back(group_of(key[0], key[1], stated_job(*group.front()), std::move(layouts)));
  }
  return groups;
}

std::vector<SourceRegret> regret_by_source(std::span<const LayoutGroup> groups) {
  std::vector<SourceRegret> sources;
  while (!groups.empty()) {
    const auto end = std::ranges::find_if(
        groups, [&](const LayoutGroup& group) { return group.source != groups.front().source; });
    const std::span<const LayoutGroup> own(groups.begin(), end);
    sources.push_back(mean_of(own.front().source, own));
    sources.back().groups = own.size();
    groups = groups.subspan(own.size());
  }
  return sources;
}

std::optional<SourceRegret> regret_of_all(std::span<const SourceRegret> sources) {
  if (sources.empty()) return std::nullopt;
  SourceRegret all = mean_of("all", sources);
  for (const SourceRegret& source : sources) all.groups += source.groups;
  return all;
}

std::string regret_text(std::span<const LayoutGroup> groups, bool each_group) {
  const std::vector<SourceRegret> sources = regret_by_source(groups);
  const std::optional<SourceRegret> all = regret_of_all(sources);
  if (!all) return "";
  std::string text = "regret over the best layout of a group, by source\n";
  for (const SourceRegret& source : sources) text += line(source);
  text += line(*all);
  if (!each_group) return text;
  text += "groups, by what the recommended layout loses\n";
  std::vector<const LayoutGroup*> order;
  for (const LayoutGroup& group : groups) order.push_back(&group);
  std::ranges::stable_sort(order, std::greater(),
                           [](const LayoutGroup* group) { return group->recommended.first; });
  for (const LayoutGroup* group : order) text += group_text(*group);
  return text;
}

Json regret_json(std::span<const LayoutGroup> groups) {
  const std::vector<SourceRegret> sources = regret_by_source(groups);
  const std::optional<SourceRegret> all = regret_of_all(sources);
  Json json = {{"all", all ? source_json(*all) : Json(nullptr)},
               {"sources", Json::array()},
               {"groups", Json::array()}};
  for (const SourceRegret& source : sources) json["sources"].push_back(source_json(source));
  for (const LayoutGroup& group : groups) json["groups"].push_back(group_json(group));
  return json;
}

}  // namespace plimsoll
