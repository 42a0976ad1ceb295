// The head of the page: title, verdict, key figures.
#include <fmt/format.h>

#include <algorithm>

#include "plan/filling.h"
#include "reports/markup.h"
#include "reports/numbers.h"
#include "reports/sections/report_sections.h"

namespace plimsoll {
namespace {

const Filling* fullest_filling(const std::vector<Filling>& fillings) {
  return fillings.empty() ? nullptr : &fillings[fullest_of(fillings)];
}

std::string memory_verdict(const Plan& plan) {
  const std::vector<Filling> fillings = fillings_of(plan);
  const Filling* filling = fullest_filling(fillings);
  if (filling == nullptr) return "";
  const std::string filled = taken_text(*filling) + " of memory";
  const MemoryInterval& memory = plan.prediction.memory;
  if (memory.verdict == MemoryVerdict::does_not_fit)
    return fmt::format("It does not fit: it needs {}, with {} kept free.", filled,
                       to_text(filling->reserve));
  if (memory.verdict == MemoryVerdict::tight)
    return fmt::format("It takes {}, which is tight: the 90 % interval ends at {}.", filled,
                       to_text(memory.high));
  return fmt::format("It takes {}, which is safe.", filled);
}

/// Says whether the layout is recommended for its speed alone, and whether that is proven.
std::string search_verdict(const Plan& plan) {
  const SearchSummary& search = plan.search;
  if (plan.fastest) {
    return fmt::format("It is the recommended layout. One that is predicted {} faster has {}.{}",
                       percent(plan.fastest->gain), words_of(plan.fastest->reasons),
                       search.proven ? " Both are proven." : "");
  }
  if (search.proven) return "It is proven to be the fastest layout of the searched space.";
  if (search.gap > 0)
    return fmt::format("The search ended early: another layout may be up to {} faster.",
                       percent(possible_gain(search)));
  return "The search ended early.";
}

/// Says how fast the plan is, how long the training takes, whether it fits, and how good it is.
std::string predicted_verdict(const Plan& plan) {
  const Prediction& prediction = plan.prediction;
  if (plan.oversubscribed)
    return "No time is claimed: more ranks than cores. " + memory_verdict(plan);
  std::string text =
      fmt::format("A step takes {}: {} tokens/s, {} on each device.", to_text(prediction.step_time),
                  short_number(prediction.tokens_per_second),
                  short_number(prediction.tokens_per_second / double(plan.devices)));
  if (plan.training) text += fmt::format(" {}.", training_text(*plan.training, plan.device_kind));
  return fmt::format("{} {} {}", text, memory_verdict(plan), search_verdict(plan));
}

bool fits(const Plan& plan) {
  const std::vector<Filling> fillings = fillings_of(plan);
  return std::ranges::all_of(fillings, &Filling::fits);
}

std::string verdict_html(const ReportInput& input) {
  if (!input.comparison) {
    return fmt::format(
        "<p class=\"verdict {}\" id=\"verdict\">{}<span>Predicted only: no run has been compared "
        "with this plan yet.</span></p>\n",
        fits(input.plan) ? "open" : "fails", escaped(predicted_verdict(input.plan)));
  }
  const bool holds = input.comparison->bytes_equal && input.comparison->time_within;
  return fmt::format("<p class=\"verdict {}\" id=\"verdict\">{}</p>\n", holds ? "holds" : "fails",
                     escaped(input.comparison->verdict));
}

std::string figure_tile(std::string_view label, const std::string& value, const std::string& note,
                        std::string_view style = "") {
  return fmt::format("<div{}><dt>{}</dt><dd>{}<span>{}</span></dd></div>\n",
                     style.empty() ? "" : fmt::format(" class=\"{}\"", style), label,
                     escaped(value), escaped(note));
}

/// "14.1 s to 18.8 s: 90 % interval, from ..."; without a claim about time only that.
std::string interval_words(const Plan& plan) {
  if (plan.oversubscribed) return "no claim: more ranks than cores";
  const std::string basis =
      plan.origin.interval_basis.empty() ? "" : ", from " + plan.origin.interval_basis;
  return fmt::format("{} to {}: 90 % interval{}", to_text(plan.prediction.step_time_low),
                     to_text(plan.prediction.step_time_high), basis);
}

std::string step_time_tile(const ReportInput& input) {
  const std::string predicted = to_text(input.plan.prediction.step_time);
  if (!input.comparison)
    return figure_tile("Step time", predicted, interval_words(input.plan) + "; predicted");
  return figure_tile(
      "Step time", to_text(input.comparison->step_time.measured),
      fmt::format("measured; {} predicted, {}", predicted, interval_words(input.plan)));
}

std::string throughput_tile(const ReportInput& input) {
  const Prediction& prediction = input.plan.prediction;
  const std::string predicted = grouped(std::int64_t(prediction.tokens_per_second));
  if (!input.comparison) return figure_tile("Tokens per second", predicted, "predicted");
  const double ratio = prediction.step_time / input.comparison->step_time.measured;
  return figure_tile("Tokens per second",
                     grouped(std::int64_t(prediction.tokens_per_second * ratio)),
                     fmt::format("measured; {} predicted", predicted));
}

std::string utilisation_tile(const ReportInput& input) {
  const Prediction& prediction = input.plan.prediction;
  return figure_tile("MFU", percent(prediction.mfu),
                     fmt::format("predicted; HFU {}, of {} per device; causal attention counts in "
                                 "full",
                                 percent(prediction.hfu), to_text(prediction.peak_flops)));
}

std::string memory_tile(const ReportInput& input) {
  static constexpr std::string_view kTileStyles[] = {"", "tight", "unfit"};  // by MemoryVerdict
  const std::vector<Filling> fillings = fillings_of(input.plan);
  const Filling* fullest = fullest_filling(fillings);
  if (fullest == nullptr) return "";
  const Filling& filling = *fullest;
  const bool arena = input.plan.framework.memory.allocator.kind == AllocatorKind::arena;
  return figure_tile("Device memory", taken_text(filling),
                     fmt::format("fullest rank: {} {}, {} context and communicators; {} kept free",
                                 to_text(filling.reserved), arena ? "arena" : "reserved",
                                 to_text(filling.outside), to_text(filling.reserve)),
                     kTileStyles[std::size_t(input.plan.prediction.memory.verdict)]);
}

}  // namespace

std::string header_html(const ReportInput& input) {
  const Plan& plan = input.plan;
  return fmt::format(
             "<header>\n<p class=\"eyebrow\">Plimsoll report</p>\n<h1>{} on {} {} of {}</h1>\n",
             escaped(plan.job.name), plan.devices, plan.devices == 1 ? "device" : "devices",
             escaped(plan.cluster_name)) +
         verdict_html(input) + "<dl class=\"figures\">\n" + step_time_tile(input) +
         throughput_tile(input) + utilisation_tile(input) + memory_tile(input) +
         "</dl>\n</header>\n";
}

}  // namespace plimsoll
