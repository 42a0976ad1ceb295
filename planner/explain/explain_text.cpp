// Writes why a plan is best, what limits it and what would help.
#include "planner/explain/explain_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "passes/strategy/strategy_fields.h"
#include "reports/numbers.h"

namespace plimsoll {
namespace {

using Out = std::back_insert_iterator<std::string>;

constexpr std::size_t kMostHelps = 4, kMostAlive = 3;
/// A step is shortened where it is at most so many times as long: less is 0.0 %.
constexpr double kLeastHelp = 0.9995;

std::string longer(Seconds step, Seconds plan) {
  return fmt::format("{:+.1f} %", 100 * (step / plan - 1));
}

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
    text += fmt::format("{}{} {:.1f} %", text.empty() ? "" : ", ", share.name,
                        100 * (share.time.seconds() / step.seconds()));
  }
  return text;
}

/// Returns the collectives that are exposed longest: "all_gather over mp on nvlink 2.1 %".
std::string collectives_text(const ExplainedStep& step) {
  std::vector<Share> shares;
  for (std::size_t c = 0; c < step.links.size(); ++c) {
    const GroupTime& time = step.parts.communication[c];
    shares.push_back(
        {fmt::format("{} on {}", time.group, step.links[c]), time.wait + time.transfer});
  }
  std::ranges::stable_sort(shares, std::greater(), &Share::time);
  std::erase_if(shares, [](const Share& share) { return share.time == Picoseconds(); });
  if (shares.empty()) return "none is exposed";
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
  std::map<std::string, std::int64_t> counts;
  for (const RunnerUp& loser : plan.runners_up) ++counts[loser.term];
  std::string text;
  for (const auto& [term, count] : counts)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", term, count);
  return text;
}

/// Says what changes the step most for the better.
struct Help {
  std::string what;
  Seconds step_time;
  std::string words;  ///< behind the change of step time
};

std::vector<Help> helps_of(const Plan& plan, const Sensitivity& found) {
  const Seconds step = plan.prediction.step_time;
  std::vector<Help> helps;
  for (const RateEffect& effect : found.rates) {
    if (!effect.is_there) continue;
    helps.push_back(
        {fmt::format("{} +{:.0f} %", to_text(effect.rate), 100 * kRateChange), effect.faster, ""});
    if (effect.rate == Rate::network) helps.push_back({"twice the network", effect.doubled, ""});
  }
  const auto told = [](const StepRatio& ratio) {
    return ratio.tied ? ", cannot be told apart" : "";
  };
  helps.push_back({"twice the memory", found.memory.step_time, told(found.memory.ratio)});
  if (!found.changes.empty() && found.changes.front().outcome == ChangeOutcome::runs) {
    const AssessedChange& best = found.changes.front();
    helps.push_back({fields_text(differing_fields(best.strategy, plan.strategy)), best.step_time,
                     told(best.ratio)});
  }
  std::erase_if(helps, [&](const Help& help) { return help.step_time > kLeastHelp * step; });
  std::ranges::stable_sort(helps, {}, &Help::step_time);
  return helps;
}

void write_ten_lines(Out out, const Plan& plan, const ExplainedStep& step,
                     const Sensitivity& found) {
  const Prediction& p = plan.prediction;
  fmt::format_to(out, "plan        {}\n", strategy_summary(plan.strategy));
  fmt::format_to(out, "step        {} (90 % interval {} to {}), MFU {:.1f} %{}\n",
                 to_text(p.step_time), to_text(p.step_time_low), to_text(p.step_time_high),
                 100 * p.mfu, plan.oversubscribed ? "; oversubscribed: no timing claim" : "");
  fmt::format_to(
      out, "best        {} of {} candidates{}\n",
      plan.search.proven ? "proven" : fmt::format("within {:.2f} %", 100 * plan.search.gap),
      plan.search.space,
      plan.fastest ? fmt::format("; {} with {}", to_text(plan.fastest->step_time),
                                 words_of(plan.fastest->reasons))
                   : "");
  fmt::format_to(out, "runners-up  {}\n",
                 plan.runners_up.empty() ? "none" : "lose by: " + losses_text(plan));
  fmt::format_to(out, "{}", limits_text(step));
  std::vector<Help> helps = helps_of(plan, found);
  if (helps.size() > kMostHelps) helps.resize(kMostHelps);
  std::string text;
  for (const Help& help : helps) {
    text += fmt::format("{}{} {}{}", text.empty() ? "" : "; ", help.what,
                        longer(help.step_time, p.step_time), help.words);
  }
  fmt::format_to(out, "would help  {}\n", text.empty() ? "nothing that was tried" : text);
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
                 memory.proven ? ""
                               : fmt::format(", not proven: none takes less than {}",
                                             to_text(memory.least_step)),
                 ratio_text(memory.step_time, plan.prediction.step_time, memory.ratio),
                 fields.empty() ? "the same" : fields);
}

void write_changes(Out out, const Plan& plan, const std::vector<AssessedChange>& changes) {
  fmt::format_to(out,
                 "one choice changed at a time, best first; memory is with context and reserve\n");
  for (const AssessedChange& change : changes) {
    const std::string fields = fields_text(differing_fields(change.strategy, plan.strategy));
    if (change.outcome == ChangeOutcome::runs) {
      fmt::format_to(out, "    {:<58} {:>8}  {}\n",
                     ratio_text(change.step_time, plan.prediction.step_time, change.ratio),
                     to_text(change.need), fields);
    } else if (change.outcome == ChangeOutcome::illegal) {
      fmt::format_to(out, "    {:<58} {:>8}  {}\n", "not legal", "", fields);
    } else {
      fmt::format_to(out, "    {:<58} {:>8}  {}\n", to_text(change.outcome), to_text(change.need),
                     fields);
    }
  }
}

}  // namespace

std::string limits_text(const ExplainedStep& step) {
  const std::vector<Share> shares = shares_of(step);
  const Filling& fullest = step.fullest.filling;
  std::string text;
  const Out out = std::back_inserter(text);
  fmt::format_to(out, "limit       {}\n", shares_text({shares.front()}, step.parts.step));
  fmt::format_to(out, "beside it   {}\n",
                 shares_text({shares.begin() + 1, shares.end()}, step.parts.step));
  fmt::format_to(out, "exposed     {}\n", collectives_text(step));
  fmt::format_to(out, "stage       {} of {} computes longest\n", step.critical_stage,
                 step.strategy.pp);
  fmt::format_to(out, "memory      {} is fullest: {} of {}; alive at its peak: {}\n",
                 name_of(step.fullest.stage), filled_text(fullest), to_text(fullest.capacity),
                 alive_text(step));
  return text;
}

std::string ratio_text(Seconds step, Seconds plan, const StepRatio& ratio) {
  const char* told = ratio.low > 1 ? "slower" : "faster";
  return fmt::format("{} ({:+.1f} to {:+.1f} %), {}", longer(step, plan), 100 * (ratio.low - 1),
                     100 * (ratio.high - 1), ratio.tied ? "cannot be told apart" : told);
}

std::string explain_text(const Plan& plan, const ExplainedStep& step, const Sensitivity& found) {
  std::string text;
  const Out out = std::back_inserter(text);
  write_ten_lines(out, plan, step, found);
  write_rates(out, plan, found.rates);
  write_memory(out, plan, found.memory);
  write_changes(out, plan, found.changes);
  return text;
}

}  // namespace plimsoll
