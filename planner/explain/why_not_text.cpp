// Writes the asked choices beside the plan.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "passes/strategy/strategy_fields.h"
#include "planner/explain/explain_text.h"
#include "reports/numbers.h"
#include "reports/plan_words.h"

namespace plimsoll {
namespace {

using Out = std::back_insert_iterator<std::string>;

/// Terms of at least this share of a step have a line of their own.
constexpr double kLeastShown = 0.0005;
constexpr std::size_t kMostTensors = 8;

std::string choices_text(const Fixed& choices) {
  std::string text;
  for (const auto& [key, value] : choices)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", key, value);
  return text;
}

std::string difference(const Strategy& strategy, const Strategy& plan) {
  return fields_text(differing_fields(strategy, plan));
}

std::string signed_time(Picoseconds more) {
  const Seconds time = more.seconds();
  return time < Seconds() ? "-" + to_text(Seconds() - time) : "+" + to_text(time);
}

void write_memory(Out out, const ExplainedStep& step) {
  for (std::size_t i = 0; i < step.fillings.size(); ++i) {
    const Filling& filling = step.fillings[i];
    if (filling.fits() && i != fullest_of(step.fillings)) continue;
    fmt::format_to(out, "    {:<16} {} + context {} = {}{}\n", name_of(step.prediction.stages[i]),
                   to_text(filling.reserved), to_text(filling.outside), taken_text(filling),
                   filling.fits()
                       ? ""
                       : fmt::format(", {} too many with {} kept free", to_text(filling.missing()),
                                     to_text(filling.reserve)));
  }
  fmt::format_to(out, "    alive at the peak of {}:\n", name_of(step.fullest.stage));
  const auto& alive = step.fullest.alive;
  for (std::size_t i = 0; i < std::min(alive.size(), kMostTensors); ++i) {
    fmt::format_to(out, "      {:>10}  {:<17} {}{}\n", to_text(alive[i].bytes),
                   to_text(alive[i].role), alive[i].name,
                   alive[i].count > 1 ? fmt::format(" x {}", alive[i].count) : "");
  }
  if (alive.size() > kMostTensors)
    fmt::format_to(out, "      and {} more names (all with --json)\n", alive.size() - kMostTensors);
}

std::string_view none_runs(const LeastChanges& least) {
  return least.proven ? "no change of one or two choices makes it run"
                      : "no change found that makes it run; not looked at to the end";
}

void write_least(Out out, const LeastChanges& least, const Strategy& changed) {
  if (least.found.empty()) {
    fmt::format_to(out, "{}\n", none_runs(least));
    return;
  }
  fmt::format_to(out, "least change that makes it run: {}{}, simulated{}\n",
                 least.choices == 1 ? "one choice" : "two choices",
                 least.keeps_asked ? "" : ", of what was asked",
                 least.proven ? "" : "; others were not looked at to the end");
  for (const AssessedChange& change : least.found) {
    fmt::format_to(out, "    {}: takes {} of a device, a step {}\n",
                   difference(change.strategy, changed), to_text(change.need),
                   to_text(change.step_time));
  }
}

/// Returns the terms that make one step longer or shorter than another, the largest first.
std::string losses_text(const ExplainedStep& plan, const ExplainedStep& other) {
  constexpr std::size_t kMostTerms = 3;
  const std::vector<const ExplainedStep*> steps = {&plan, &other};
  std::vector<std::pair<Picoseconds, std::string>> terms;
  for (const TermRow& row : term_rows(steps)) {
    const Picoseconds more = row.times.back() - row.times.front();
    if (std::abs(more.seconds().value()) >= kLeastShown * plan.parts.step.seconds().value())
      terms.emplace_back(more, field_words(row.name));
  }
  std::ranges::stable_sort(terms, [](const auto& a, const auto& b) {
    return std::abs(a.first.count()) > std::abs(b.first.count());
  });
  std::string text;
  for (std::size_t i = 0; i < std::min(terms.size(), kMostTerms); ++i) {
    text +=
        fmt::format("{}{} {}", i == 0 ? "" : "; ", signed_time(terms[i].first), terms[i].second);
  }
  return text.empty() ? "no term by much" : text;
}

std::string memory_words(const ExplainedStep& step) {
  return taken_text(step.fullest.filling) + (step.fits ? "" : ", which does not fit");
}

/// Returns a step beside the plan's: its change, its time and its memory.
std::string beside_plan(const Target& target, const WhyNot& answer, const AskedStep& other) {
  const ExplainedStep& step = other.step;
  return fmt::format(
      "{}: {}, {}; {}",
      layout_change(target.job, target.framework(), step.strategy, answer.plan.strategy),
      to_text(step.prediction.step_time),
      ratio_text(step.prediction.step_time, answer.plan.prediction.step_time, other.ratio),
      memory_words(step));
}

}  // namespace

std::string terms_text(const std::vector<TermColumn>& columns) {
  std::string text;
  const Out out = std::back_inserter(text);
  std::vector<const ExplainedStep*> steps;
  fmt::format_to(out, "the difference by term, on each step's critical rank\n    {:<52}", "");
  for (const TermColumn& column : columns) {
    steps.push_back(column.step);
    fmt::format_to(out, "{:>12}", column.head);
  }
  fmt::format_to(out, "{:>12}\n", "difference");
  const auto line = [&](const std::string& name, const std::vector<Picoseconds>& times) {
    fmt::format_to(out, "    {:<52}", name);
    for (const Picoseconds time : times) fmt::format_to(out, "{:>12}", to_text(time.seconds()));
    fmt::format_to(out, "{:>12}\n", signed_time(times.back() - times.front()));
  };
  std::vector<Picoseconds> small(steps.size()), whole;
  for (const ExplainedStep* step : steps) whole.push_back(step->parts.step);
  for (const TermRow& row : term_rows(steps)) {
    bool shown = false;
    for (std::size_t s = 0; s < steps.size(); ++s)
      shown = shown || row.times[s].seconds() >= kLeastShown * whole[s].seconds();
    if (shown) line(row.name, row.times);
    for (std::size_t s = 0; s < steps.size() && !shown; ++s) small[s] += row.times[s];
  }
  if (std::ranges::any_of(small, [](Picoseconds time) { return time > Picoseconds(); }))
    line("smaller terms", small);
  line("step", whole);
  fmt::format_to(out, "    {:<52}", "critical stage, which computes longest");
  for (const ExplainedStep* step : steps) fmt::format_to(out, "{:>12}", step->critical_stage);
  fmt::format_to(out, "\n");
  return text;
}

std::string why_not_brief(const Target& target, const WhyNot& answer) {
  const Job& job = target.job;
  std::string text = explain_line("why not", choices_text(answer.asked));
  text += explain_line("plan", layout_text(job, target.framework(), answer.plan.strategy));
  text += explain_line(
      "", fmt::format("{}; {}", step_words(answer.plan.prediction), memory_words(answer.plan)));
  if (answer.is_plan) return text + "this is the plan: it has these choices\n";
  const AskedStep* other = answer.as_asked ? &*answer.as_asked : nullptr;
  text += explain_line("as asked",
                       other ? beside_plan(target, answer, *other) : "cannot run: " + answer.rule);
  if (answer.best) {
    if (other == nullptr || answer.best->step.strategy != answer.changed) {
      other = &*answer.best;
      text += explain_line("best with", beside_plan(target, answer, *other) +
                                            (answer.best_is_proven ? "" : "; not proven best"));
    }
  } else {
    text += explain_line("best with",
                         fmt::format("none on {}: {}", target.cluster().name, answer.none));
  }
  if (other) text += explain_line("difference", losses_text(answer.plan, other->step));
  if (answer.as_asked && answer.as_asked->step.fits) return text;
  if (answer.least.found.empty())
    return text + explain_line("would run", std::string(none_runs(answer.least)));
  const AssessedChange& least = answer.least.found.front();
  return text +
         explain_line("would run", fmt::format("with {}: {}, a step {}",
                                               difference(least.strategy, answer.changed),
                                               to_text(least.need), to_text(least.step_time)));
}

std::string why_not_text(const Target& target, const WhyNot& answer) {
  std::string text = why_not_brief(target, answer);
  if (answer.is_plan) return text;
  const Out out = std::back_inserter(text);
  std::vector<TermColumn> columns = {{"plan", &answer.plan}};
  if (answer.as_asked && !(answer.best && answer.best->step.strategy == answer.changed))
    columns.push_back({"as asked", &answer.as_asked->step});
  if (answer.best) columns.push_back({"best with", &answer.best->step});
  for (const TermColumn& column : columns)
    fmt::format_to(out, "{:<12}{}\n", column.head, strategy_summary(column.step->strategy));
  if (columns.size() > 1) {
    text += terms_text(columns);
    fmt::format_to(out, "memory of the fullest stage\n");
    for (const TermColumn& column : columns) {
      fmt::format_to(out, "  {}{}\n", column.head,
                     column.step->fits ? "" : ", which does not fit: all stages that lack room");
      write_memory(out, *column.step);
    }
  }
  const bool fits = answer.as_asked && answer.as_asked->step.fits;
  if (!fits) write_least(out, answer.least, answer.changed);
  return text;
}

}  // namespace plimsoll
