// The head of the page: title, verdict, key figures.
#include <fmt/format.h>

#include "plan/filling.h"
#include "reports/markup.h"
#include "reports/numbers.h"
#include "reports/sections/report_sections.h"

namespace plimsoll {
namespace {

std::string verdict_html(const ReportInput& input) {
  if (!input.comparison) {
    return "<p class=\"verdict open\" id=\"verdict\">Predicted only: no run has been compared with "
           "this plan yet.</p>\n";
  }
  const bool holds = input.comparison->bytes_equal && input.comparison->time_within;
  return fmt::format("<p class=\"verdict {}\" id=\"verdict\">{}</p>\n", holds ? "holds" : "fails",
                     escaped(input.comparison->verdict));
}

std::string figure_tile(std::string_view label, const std::string& value, const std::string& note) {
  return fmt::format("<div><dt>{}</dt><dd>{}<span>{}</span></dd></div>\n", label, escaped(value),
                     escaped(note));
}

/// "16.3 s (14.1 s to 18.8 s)"; without a claim about time only the time.
std::string with_interval(const Plan& plan) {
  const std::string time = to_text(plan.prediction.step_time);
  if (plan.oversubscribed) return time;
  return fmt::format("{} ({} to {})", time, to_text(plan.prediction.step_time_low),
                     to_text(plan.prediction.step_time_high));
}

std::string interval_words(const Plan& plan) {
  if (plan.oversubscribed) return "no claim: more ranks than cores";
  if (plan.origin.interval_basis.empty()) return "90 % interval";
  return "90 % interval, from " + plan.origin.interval_basis;
}

std::string step_time_tile(const ReportInput& input) {
  const std::string predicted = with_interval(input.plan);
  if (!input.comparison) {
    return figure_tile("Step time", predicted, "predicted; " + interval_words(input.plan));
  }
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
  const std::vector<Filling> fillings = fillings_of(input.plan);
  if (fillings.empty()) return "";
  const Filling& filling = fillings[fullest_of(fillings)];
  const bool arena = input.plan.framework.allocator.kind == AllocatorKind::arena;
  return figure_tile(
      "Device memory", filled_text(filling),
      fmt::format("of {}, fullest rank: {} {}, {} context and communicators, {} kept free",
                  to_text(filling.capacity), to_text(filling.reserved),
                  arena ? "arena" : "reserved", to_text(filling.outside),
                  to_text(filling.reserve)));
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
