// The head of the page: title, verdict, key figures.
#include <fmt/format.h>

#include <algorithm>

#include "reports/markup.h"
#include "reports/numbers.h"
#include "reports/report_sections.h"

namespace plimsoll {
namespace {

const StagePrediction* fullest_stage(const Plan& plan) {
  const auto& stages = plan.prediction.stages;
  const auto fullest = std::max_element(
      stages.begin(), stages.end(),
      [](const StagePrediction& a, const StagePrediction& b) { return a.peak < b.peak; });
  return fullest == stages.end() ? nullptr : &*fullest;
}

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

std::string step_time_tile(const ReportInput& input) {
  const std::string predicted = to_text(input.plan.prediction.step_time);
  if (!input.comparison) return figure_tile("Step time", predicted, "predicted");
  return figure_tile("Step time", to_text(input.comparison->step_time.measured),
                     fmt::format("measured; {} predicted", predicted));
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
                     fmt::format("predicted; HFU {}, of {} per device", percent(prediction.hfu),
                                 to_text(prediction.peak_flops)));
}

std::string memory_tile(const ReportInput& input) {
  const StagePrediction* stage = fullest_stage(input.plan);
  if (stage == nullptr) return "";
  const double share = static_cast<double>(stage->peak.count()) /
                       std::max(1.0, static_cast<double>(stage->capacity.count()));
  const std::string_view equal = !input.comparison               ? "predicted"
                                 : input.comparison->bytes_equal ? "as measured"
                                                                 : "predicted";
  return figure_tile(
      "Peak memory", to_text(stage->peak),
      fmt::format("{}, fullest rank; {} of {}", equal, percent(share), to_text(stage->capacity)));
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
