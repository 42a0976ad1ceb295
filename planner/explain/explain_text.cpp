// Writes why a plan is best, what limits it and what would help.
#include "planner/explain/explain_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>

#include "passes/strategy/strategy_fields.h"
#include "reports/numbers.h"
#include "reports/plan_words.h"

namespace plimsoll {
namespace {

using Out = std::back_insert_iterator<std::string>;

constexpr std::size_t kMostHelps = 4, kMostAlive = 3;
/// A step is shortened where it is at most so many times as long: less is 0.0 %.
constexpr double kLeastHelp = 0.9995;

std::string longer(Seconds step, Seconds plan) {
  return fmt::format("{:+.1f} %", 100 * (step / plan - 1));
}

/// Smaller shares of a step are 0.0 %.
constexpr double kLeastShare = 0.0005;

struct Share {
  std::string name;
  Picoseconds time;
};

/// Returns what the step is spent on, the largest part first. Exposed communication is by link.
std::vector<Share> shares_of(const ExplainedStep& step) {
  std::vector<Share> shares = {
      {"products and attention", compute_of(step.parts) - step.memory_traffic},
      {"memory traffic", step.memory_traffic},
      {"bubble", step.parts.bubble},
      {"host", step.parts.dispatch}};
  std::map<std::string, Picoseconds> by_link;
  for (std::size_t c = 0; c < step.links.size(); ++c) {
    const GroupTime& time = step.parts.communication[c];
    by_link[step.links[c]] += time.wait + time.transfer;
  }
  for (const auto& [link, time] : by_link) shares.push_back({"exposed on " + link, time});
  std::ranges::stable_sort(shares, std::greater(), &Share::time);
  return shares;
}

std::string shares_text(std::vector<Share> shares, Picoseconds step) {
  std::string text;
  for (const Share& share : shares) {
    if (share.time.seconds() < kLeastShare * step.seconds()) continue;
    text += fmt::format("{}{} {:.1f} %", text.empty() ? "" : ", ", share.name,
                        100 * (share.time.seconds() / step.seconds()));
  }
  return text;
}

/// Returns the collectives that are exposed longest: "all_gather over mp on nvlink 2.1 %". Those
/// that take less than a tenth of the longest one's time are left out.
std::string collectives_text(const ExplainedStep& step) {
  std::vector<Share> shares;
  for (std::size_t c = 0; c < step.links.size(); ++c) {
    const GroupTime& time = step.parts.communication[c];
    shares.push_back({fmt::format("{} on {}", field_words(time.group), step.links[c]),
                      time.wait + time.transfer});
  }
  std::ranges::stable_sort(shares, std::greater(), &Share::time);
  std::erase_if(
      shares, [&, longest = shares.empty() ? Picoseconds(0) : shares[0].time](const Share& share) {
        return share.time.seconds() < kLeastShare * step.parts.step.seconds() ||
               10 * share.time.count() < longest.count();
      });
  if (shares.empty()) return "no communication";
  if (shares.size() > 3) shares.resize(3);
  return shares_text(std::move(shares), step.parts.step);
}

std::string alive_text(const ExplainedStep& step) {
  std::string text;
  for (std::size_t i = 0; i < std::min(step.fullest.alive.size(), kMostAlive); ++i) {
    const AliveTensors& one = step.fullest.alive[i];
    text += fmt::format("{}{} of {}{}", i == 0 ? "" : ", ", to_text(one.bytes), one.name,
                        one.count > 1 ? fmt::format(" x {}", one.count) : "");
  }
  return text;
}

/// Counts the terms by which runners-up lose: "compute 4, exposed communication 1".
std::string losses_text(const Plan& plan) {
  std::map<std::string_view, std::int64_t> counts;
  for (const RunnerUp& loser : plan.runners_up) ++counts[to_text(loser.term)];
  std::string text;
  for (const auto& [term, count] : counts)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", term, count);
  return text;
}

/// Says what changes the step most for the better.
struct Help {
  std::string what;
  Seconds step_time;
};

std::vector<Help> helps_of(const Plan& plan, const Sensitivity& found) {
  const Seconds step = plan.prediction.step_time;
  std::vector<Help> helps;
  for (const RateEffect& effect : found.rates) {
    if (!effect.is_there) continue;
    helps.push_back(
        {fmt::format("{} +{:.0f} %", to_text(effect.rate), 100 * kRateChange), effect.faster});
    if (effect.rate == Rate::network) helps.push_back({"twice the network", effect.doubled});
  }
  helps.push_back({"twice the memory", found.memory.step_time});
  if (!found.changes.empty() && found.changes.front().outcome == ChangeOutcome::runs) {
    const Strategy& best = found.changes.front().strategy;
    const std::string words = layout_change(plan.job, plan.framework, best, plan.strategy);
    helps.push_back({words.empty() ? fields_text(differing_fields(best, plan.strategy)) : words,
                     found.changes.front().step_time});
  }
  std::erase_if(helps, [&](const Help& help) { return help.step_time > kLeastHelp * step; });
  std::ranges::stable_sort(helps, {}, &Help::step_time);
  return helps;
}

/// With `whole` they say by what runners-up lose, and name more that would help.
std::string first_lines(const Plan& plan, const ExplainedStep& step, const Sensitivity& found,
                        bool whole) {
  const Prediction& p = plan.prediction;
  std::string text = explain_line("plan", layout_text(plan.job, plan.framework, plan.strategy));
  text +=
      explain_line("step", step_words(p) + (plan.oversubscribed ? "; more ranks than cores" : ""));
  text += explain_line(
      "best",
      fmt::format("{} {} layouts{}",
                  plan.search.proven ? "proven of"
                                     : fmt::format("at most {:.1f} % faster is possible among",
                                                   100 * possible_gain(plan.search)),
                  short_count(double(plan.search.space)),
                  plan.fastest
                      ? fmt::format("; {} is possible, with {}", to_text(plan.fastest->step_time),
                                    words_of(plan.fastest->unusual))
                      : ""));
  if (whole) {
    text += explain_line("runners-up",
                         plan.runners_up.empty() ? "none" : "lose by: " + losses_text(plan));
  }
  text += limits_text(step);
  if (!plan.job.lengths.empty())
    text += explain_line("examples",
                         fmt::format("attention of the slowest rank {:.2f} x the mean, +- {:.2f}",
                                     step.slowest.mean, step.slowest.deviation));
  if (plan.device_kind == DeviceKind::gpu) {
    const std::string host = host_bound_text(p, plan.job, plan.framework, plan.strategy);
    if (!host.empty()) text += explain_line("host", host);
  }
  std::vector<Help> helps = helps_of(plan, found);
  const std::size_t most = whole ? kMostHelps : kMostHelps / 2;
  if (helps.size() > most) helps.resize(most);
  std::string would_help;
  for (const Help& help : helps) {
    would_help += fmt::format("{}{} ({})", would_help.empty() ? "" : "; ", help.what,
                              longer(help.step_time, p.step_time));
  }
  return text +
         explain_line("would help", would_help.empty() ? "nothing that was tried" : would_help);
}

void write_rates(Out out, const Plan& plan, const std::vector<RateEffect>& rates) {
  const Seconds step = plan.prediction.step_time;
  fmt::format_to(out, "the plan's step with one rate changed\n    {:<22}{:>12}{:>12}{:>12}\n", "",
                 "-10 %", "+10 %", "twice");
  for (const RateEffect& effect : rates) {
    if (!effect.is_there) {
      fmt::format_to(out, "    {:<22}{:>12}\n", to_text(effect.rate), "none");
      continue;
    }
    fmt::format_to(out, "    {:<22}{:>12}{:>12}{:>12}\n", to_text(effect.rate),
                   longer(effect.slower, step), longer(effect.faster, step),
                   longer(effect.doubled, step));
  }
}

void write_memory(Out out, const Plan& plan, const MemoryEffect& memory) {
  const std::string fields = fields_text(differing_fields(memory.strategy, plan.strategy));
  fmt::format_to(out, "the best plan with twice the memory{}\n    {}  {}\n",
                 memory.proven       ? ""
                 : memory.least_step ? fmt::format(", not proven: none takes less than {}",
                                                   to_text(*memory.least_step))
                                     : ", not proven",
                 ratio_text(memory.step_time, plan.prediction.step_time, memory.ratio),
                 fields.empty() ? "the same" : fields);
}

}  // namespace

std::string limits_text(const ExplainedStep& step) {
  const std::vector<Share> shares = shares_of(step);
  std::string text = explain_line("limit", shares_text({shares.front()}, step.parts.step));
  text += explain_line("also", shares_text({shares.begin() + 1, shares.end()}, step.parts.step));
  text += explain_line("exposed", collectives_text(step));
  if (step.strategy.pp > 1) {
    text += explain_line(
        "stage", fmt::format("{} of {} computes longest", step.critical_stage, step.strategy.pp));
  }
  return text +
         explain_line("memory", fmt::format("{} is fullest: {}; alive at its peak: {}",
                                            name_of(step.fullest.stage),
                                            taken_text(step.fullest.filling), alive_text(step)));
}

std::string step_words(const Prediction& prediction) {
  return fmt::format("{} (90 % interval {} to {}), MFU {:.1f} %", to_text(prediction.step_time),
                     to_text(prediction.step_time_low), to_text(prediction.step_time_high),
                     100 * prediction.mfu);
}

std::string ratio_text(Seconds step, Seconds plan, const StepRatio& ratio) {
  return fmt::format("{} ({:+.1f} to {:+.1f} %){}", longer(step, plan), 100 * (ratio.low - 1),
                     100 * (ratio.high - 1),
                     ratio.tied ? "" : fmt::format(", {}", relation_of(ratio)));
}

std::string change_row(const AssessedChange& change, const Strategy& strategy, Seconds own) {
  const bool runs = change.outcome == ChangeOutcome::runs;
  const bool illegal = change.outcome == ChangeOutcome::illegal;
  return fmt::format("    {:<58} {:>8}  {}\n",
                     runs      ? ratio_text(change.step_time, own, change.ratio)
                     : illegal ? "not legal"
                               : std::string(to_text(change.outcome)),
                     illegal ? "" : to_text(change.need),
                     fields_text(differing_fields(change.strategy, strategy)));
}

std::string field_words(std::string_view group) {
  static constexpr std::pair<std::string_view, std::string_view> kAxes[] = {
      {"mp", "TP"}, {"pp", "PP"}, {"cp", "CP"}, {"ep", "EP"}, {"sharding", "DP"}, {"dp", "DP"}};
  std::string text;
  while (!group.empty()) {
    const std::size_t end = std::min(group.find_first_of(", :"), group.size());
    const std::string_view word = group.substr(0, end);
    const auto axis = std::ranges::find(kAxes, word, [](const auto& pair) { return pair.first; });
    text += axis == std::end(kAxes) ? word : axis->second;
    if (end < group.size()) text += group[end];
    group.remove_prefix(std::min(end + 1, group.size()));
  }
  return text;
}

std::string explain_brief(const Plan& plan, const ExplainedStep& step, const Sensitivity& found) {
  return first_lines(plan, step, found, false);
}

std::string explain_text(const Plan& plan, const ExplainedStep& step, const Sensitivity& found) {
  std::string text = first_lines(plan, step, found, true);
  const Out out = std::back_inserter(text);
  fmt::format_to(out, "strategy    {}\n", strategy_summary(plan.strategy));
  write_rates(out, plan, found.rates);
  write_memory(out, plan, found.memory);
  text += "one choice changed at a time, best first; memory is what a device shows\n";
  for (const AssessedChange& change : found.changes)
    text += change_row(change, plan.strategy, plan.prediction.step_time);
  return text;
}

std::vector<TermRow> term_rows(std::span<const ExplainedStep* const> steps) {
  static constexpr std::array<std::pair<const char*, Picoseconds StepParts::*>, 4> kCompute = {
      {{"forward", &StepParts::forward},
       {"recompute", &StepParts::recompute},
       {"backward", &StepParts::backward},
       {"optimizer", &StepParts::optimizer}}};
  static constexpr std::array<std::pair<const char*, Picoseconds StepParts::*>, 2> kWaiting = {
      {{"bubble", &StepParts::bubble}, {"host", &StepParts::dispatch}}};
  std::vector<TermRow> rows;
  const auto add = [&](const std::string& name, Picoseconds StepParts::*part) {
    TermRow row{name, {}};
    for (const ExplainedStep* step : steps) row.times.push_back(step->parts.*part);
    rows.push_back(std::move(row));
  };
  for (const auto& [name, part] : kCompute) add(name, part);
  // By name; each has a wait and a transfer.
  std::map<std::string, std::vector<Picoseconds>> communications;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const auto& times = steps[s]->parts.communication;
    for (std::size_t c = 0; c < times.size(); ++c) {
      const std::string name = fmt::format("{}, {}", times[c].group, steps[s]->links[c]);
      for (const auto& [what, time] :
           {std::pair("transfer", times[c].transfer), std::pair("wait", times[c].wait)}) {
        auto& of_name = communications[fmt::format("{}: {}", name, what)];
        of_name.resize(steps.size());
        of_name[s] += time;
      }
    }
  }
  for (auto& [name, times] : communications) rows.push_back({name, std::move(times)});
  for (const auto& [name, part] : kWaiting) add(name, part);
  return rows;
}

}  // namespace plimsoll
