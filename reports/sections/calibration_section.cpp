// The sections on the plan's calibration: what was measured and fitted, and how far it was off.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/log_statistics.h"
#include "reports/markup.h"
#include "reports/numbers.h"
#include "reports/plots.h"
#include "reports/sections/report_sections.h"

namespace plimsoll {
namespace {

std::string fit_words(const FittedCalibration& fitted) {
  if (fitted.runs == 0) {
    return "<p>The values are typical of training; no run of this device and framework is behind "
           "them.</p>\n";
  }
  if (fitted.learned) {
    return fmt::format("<p>{} {} of {} on {} moved these values from their prior.</p>\n",
                       grouped(fitted.runs), fitted.runs == 1 ? "run" : "runs",
                       escaped(fitted.framework), escaped(fitted.cluster));
  }
  std::string words =
      fmt::format("<p>{} runs on {} with {} determined these values.", grouped(fitted.runs),
                  escaped(fitted.cluster), escaped(fitted.framework));
  if (fitted.cross_validated_mean && fitted.cross_validated_p90) {
    words += fmt::format(
        " Runs whose layout and model size a fit had not seen were predicted {} off in the mean, "
        "and nine in ten at most {}.",
        percent(*fitted.cross_validated_mean), percent(*fitted.cross_validated_p90));
  }
  if (fitted.unseen_sizes_mean) {
    words += fmt::format(" Runs of a model size that it had not seen were {} off.",
                         percent(*fitted.unseen_sizes_mean));
  }
  return words + "</p>\n";
}

/// The runs that the numbers were learned from: how far off predictions were and are, and by the
/// other runs. The chart has what stays unexplained, and what a step with known numbers scatters.
std::string learned_html(const LearnedSpread& learned) {
  std::vector<std::vector<Cell>> rows;
  std::vector<FactorRow> factors;
  const double noise = std::exp(kNormal90 * learned.noise);
  for (const LearnedStep& run : learned.runs) {
    const double factor = run.measured / run.after;
    const std::string name = fmt::format("{}: {}", run.log, run.layout);
    const std::string others =
        run.by_others ? signed_error({*run.by_others, run.measured}) : "no other run";
    rows.push_back({heading_cell(name), exact_cell(run.measured),
                    number_cell(signed_error({run.before, run.measured})),
                    number_cell(signed_error({run.after, run.measured})), number_cell(others),
                    text_cell(run.contradicts ? "no: the other runs contradict it" : "yes")});
    factors.push_back({name, factor, factor / noise, factor * noise});
  }
  return table("Errors of predicted steps",
               {{"Run", ""},
                {"Measured", "number", "s"},
                {"Before", "number"},
                {"Now", "number"},
                {"By the other runs", "number"},
                {"Learned from", ""}},
               rows) +
         "<div class=\"half\">\n" +
         factors_svg("learned-factors",
                     "Measured over predicted steps, with the 90 % noise of a step", factors) +
         "</div>\n";
}

std::string_view basis_of(const FittedValue& value) {
  if (value.typical) return "typical of training";
  if (!value.determined) return "the prior, which the runs did not narrow";
  return value.at_bound() ? "fitted; at a limit of the fit" : "fitted";
}

std::string values_table(const FittedCalibration& fitted) {
  std::vector<std::vector<Cell>> rows;
  const auto number = [](double value) {
    return Cell{fmt::format("{:.3g}", value), "number", false, fmt::format("{}", value)};
  };
  for (const FittedValue& value : fitted.values) {
    Cell name = heading_cell(value.name);
    name.style = "key";
    rows.push_back({name, number(value.value), number(value.low), number(value.high),
                    number(value.prior), text_cell(basis_of(value))});
  }
  return table("Values of the fit, with their 90 % intervals",
               {{"Value of", ""},
                {"Value", "number"},
                {"From", "number"},
                {"To", "number"},
                {"Prior", "number"},
                {"Basis", ""}},
               rows);
}

constexpr std::size_t kMostRows = 40;  // of a chart of factors

/// The residuals of the fit: a factor for each shape of layers.
std::string residuals_html(const FittedCalibration& fitted) {
  if (fitted.layers.empty()) return "";
  std::vector<const LayerPoint*> layers;
  for (const LayerPoint& point : fitted.layers) layers.push_back(&point);
  std::ranges::stable_sort(layers, std::greater(), [](const LayerPoint* p) { return p->runs; });
  std::vector<FactorRow> factors;
  std::vector<std::vector<Cell>> rows;
  for (const LayerPoint* point : layers) {
    const LayerShape& shape = point->shape;
    const double half = std::exp(kNormal90 * point->deviation);
    const std::string label = fmt::format(
        "{} tokens of {}, hidden {}, mp {}{}{}", shape.tokens, shape.sequence, shape.hidden,
        shape.mp, shape.operand_bytes == 1 ? ", 8 bits" : "", shape.routed > 0 ? ", experts" : "");
    if (factors.size() < kMostRows)
      factors.push_back({label, point->factor, point->factor / half, point->factor * half});
    rows.push_back({exact_cell(shape.tokens), exact_cell(shape.sequence), exact_cell(shape.hidden),
                    exact_cell(shape.mp), exact_cell(shape.operand_bytes),
                    Cell{fmt::format("{:.3f}", point->factor), "number", false,
                         fmt::format("{}", point->factor)},
                    share_cell(point->deviation), exact_cell(point->runs)});
  }
  const std::string note =
      factors.size() < layers.size()
          ? fmt::format(
                "<p class=\"note\">The {} shapes of most runs are drawn; the table has all "
                "{}.</p>\n",
                factors.size(), layers.size())
          : "";
  return "<h3>Residuals by shape of layer</h3>\n" +
         factors_svg("factors", "Measured over fitted time of layers, 90 % interval", factors) +
         note +
         folded("Table of the residuals", table("",
                                                {{"Tokens", "number"},
                                                 {"Sequence", "number"},
                                                 {"Hidden", "number"},
                                                 {"mp", "number"},
                                                 {"Bytes of an operand", "number"},
                                                 {"Factor", "number"},
                                                 {"Deviation", "number"},
                                                 {"Runs", "number"}},
                                                rows));
}

/// The documents whose runs a fit has, and how many places of each.
std::string documents_html(const FittedCalibration& fitted) {
  std::map<std::string, std::int64_t> places;
  for (const std::string& source : fitted.sources) ++places[document_of(source)];
  if (places.empty()) return "";
  std::vector<std::vector<Cell>> rows;
  for (const auto& [document, count] : places)
    rows.push_back({heading_cell(document), exact_cell(count)});
  return folded("Documents with the runs",
                table("", {{"Document", ""}, {"Places", "number"}}, rows));
}

std::string fitted_html(const FittedCalibration& fitted) {
  return section("calibration", "The calibration's fit",
                 fit_words(fitted) +
                     (fitted.learned ? learned_html(*fitted.learned) : documents_html(fitted)) +
                     values_table(fitted) + "<div class=\"half\">\n" + residuals_html(fitted) +
                     "</div>\n");
}

/// How far points that were left out are foretold off: the median, and the most.
struct LeftOutErrors {
  double median = 0, most = 0;
};

LeftOutErrors errors_of(const std::vector<double>& ratios) {
  std::vector<double> errors;
  for (const double ratio : ratios) errors.push_back(std::abs(ratio - 1));
  std::ranges::sort(errors);
  return {errors[errors.size() / 2], errors.back()};
}

std::string machine_words(const MeasuredMachine& machine) {
  const std::string libraries =
      machine.versions.empty() ? "" : fmt::format(" with {}", fmt::join(machine.versions, ", "));
  return fmt::format(
      "<p>{} was measured on {}, by the backend {}{}. Between measured points times are "
      "interpolated. To show how well that goes, each point was left out and foretold from the "
      "others of its curve.</p>\n",
      escaped(machine.device), escaped(machine.date), escaped(machine.backend), escaped(libraries));
}

std::string measured_html(const MeasuredMachine& machine) {
  std::vector<FactorRow> factors;
  std::vector<std::vector<Cell>> rows;
  for (const MeasuredCurve& curve : machine.curves) {
    std::vector<Cell> row = {heading_cell(curve.what), exact_cell(curve.points),
                             share_cell(curve.spread)};
    if (curve.left_out.empty()) {
      row.insert(row.end(), {number_cell(""), number_cell("")});
    } else {
      const std::vector<double>& ratios = curve.left_out;
      const LeftOutErrors errors = errors_of(ratios);
      row.insert(row.end(), {share_cell(errors.median), share_cell(errors.most)});
      factors.push_back({curve.what, ratios[ratios.size() / 2], ratios.front(), ratios.back()});
    }
    rows.push_back(std::move(row));
  }
  const std::string note =
      factors.size() > kMostRows
          ? fmt::format("<p class=\"note\">The {} curves that are furthest off are drawn.</p>\n",
                        kMostRows)
          : "";
  std::ranges::stable_sort(factors, std::greater(), [](const FactorRow& row) {
    return std::max(std::abs(std::log(row.low)), std::abs(std::log(row.high)));
  });
  if (factors.size() > kMostRows) factors.resize(kMostRows);
  const std::string chart =
      factors.empty()
          ? ""
          : "<h3>Residuals by curve</h3>\n<div class=\"half\">\n" +
                factors_svg("measured-factors",
                            "Foretold over measured time: median, least and most", factors) +
                note + "</div>\n";
  return section("measured-calibration", "The measured calibration",
                 machine_words(machine) + chart +
                     folded(fmt::format("Table of the {} curves", rows.size()),
                            table("",
                                  {{"Curve", ""},
                                   {"Points", "number"},
                                   {"Spread of timings", "number"},
                                   {"Left out: median error", "number"},
                                   {"Largest", "number"}},
                                  rows)));
}

}  // namespace

std::string calibration_section(const ReportInput& input) {
  if (input.explanation == nullptr) return "";
  const Explanation& found = *input.explanation;
  return (found.measured ? measured_html(*found.measured) : "") +
         (found.fitted ? fitted_html(*found.fitted) : "");
}

}  // namespace plimsoll
