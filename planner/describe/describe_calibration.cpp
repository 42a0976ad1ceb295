// Describes a calibration: what was measured, and what a fit on runs found.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "graph/op.h"
#include "planner/describe/describe_input.h"
#include "reports/numbers.h"

namespace plimsoll {
namespace {

/// Returns a line for each kind of collective and group: how many sizes, and from which to which.
void add_collectives(Section& section, const std::vector<CollectivePoint>& points) {
  std::map<std::string, std::vector<Bytes>> payloads;
  for (const CollectivePoint& point : points) payloads[describe(point)].push_back(point.payload);
  for (const auto& [group, sizes] : payloads) {
    const auto [least, most] = std::ranges::minmax(sizes);
    section.add(
        group, fmt::format("{} sizes from {} to {}", sizes.size(), to_text(least), to_text(most)),
        {{"sizes", sizes.size()}, {"least_bytes", least.count()}, {"most_bytes", most.count()}});
  }
}

Section measured_section(const Calibration& measured) {
  Section section{"measured", "measured"};
  section.add("device", printable(measured.device));
  section.add("backend", measured.backend);
  section.add("date", measured.date);
  section.add("libraries", printable(fmt::format("{}", fmt::join(measured.versions, ", ")), 400),
              measured.versions);
  section.add("communicator", std::string(to_text(measured.communicator)));
  if (measured.dispatch_op.samples > 0) {
    section.add_time("host time of an op", measured.dispatch_op.median);
  }
  section.add_count("matmuls", std::int64_t(measured.matmuls.size()));
  std::set<std::string> kinds;
  for (const OpPoint& point : measured.ops) kinds.insert(std::string(to_text(point.kind)));
  section.add("other ops",
              kinds.empty()
                  ? "0"
                  : fmt::format("{} points of {}", measured.ops.size(), fmt::join(kinds, ", ")),
              measured.ops.size());
  section.add_count("overlaps", std::int64_t(measured.overlaps.size()));
  const auto unsteady = std::ranges::count_if(
      measured.matmuls, [](const MatmulPoint& point) { return point.time.unsteady; });
  section.add("unsteady matmuls", grouped(unsteady), unsteady);
  return section;
}

Section fit_section(const FittedCalibration& fitted) {
  Section section{"fitted", "fitted"};
  section.add("cluster", fitted.cluster);
  section.add("framework", fitted.framework);
  section.add("device", printable(fitted.device.name));
  section.add_count("runs", fitted.runs);
  if (const auto mean = fitted.cross_validated_mean)
    section.add("mean error", percent(*mean) + " of runs of layouts and sizes left out", *mean);
  if (const auto most = fitted.cross_validated_p90)
    section.add("90th percentile", percent(*most), *most);
  if (fitted.unseen_sizes_mean) {
    section.add("unseen sizes", percent(*fitted.unseen_sizes_mean) + " of model sizes left out",
                *fitted.unseen_sizes_mean);
  }
  section.add_count("shapes of layers", std::int64_t(fitted.layers.size()));
  return section;
}

Section value_section(const FittedCalibration& fitted) {
  Section section{"values", "values"};
  for (const FittedValue& value : fitted.values) {
    const char* basis = value.typical       ? "typical"
                        : !value.determined ? "not determined by the runs"
                        : value.at_bound()  ? "at a limit of the fit"
                                            : "fitted";
    section.add(value.name,
                fmt::format("{:.3g} ({:.3g} to {:.3g}), {:.3g} before; {}", value.value, value.low,
                            value.high, value.prior, basis),
                {{"value", value.value},
                 {"low", value.low},
                 {"high", value.high},
                 {"prior", value.prior},
                 {"basis", basis}});
  }
  return section;
}

/// Returns the runs that numbers were learned from, with how their steps were predicted.
Section learned_section(const LearnedSpread& learned) {
  Section section{"learned from", "learned_from", {}, true};
  for (const LearnedStep& run : learned.runs) {
    Json json = {{"log", run.log},
                 {"layout", run.layout},
                 {"job_digest", run.job_digest},
                 {"strategy_digest", run.strategy_digest},
                 {"measured_s", run.measured.value()},
                 {"before_s", run.before.value()},
                 {"after_s", run.after.value()},
                 {"contradicts", run.contradicts}};
    std::string others;
    if (run.by_others) {
      json["by_others_s"] = run.by_others->value();
      others = fmt::format(", {} by the others", signed_error({*run.by_others, run.measured}));
    }
    section.add(printable(run.layout, 200),
                fmt::format("{}; predicted {} before, {} now{}{}", to_text(run.measured),
                            signed_error({run.before, run.measured}),
                            signed_error({run.after, run.measured}), others,
                            run.contradicts ? ", which contradict it" : ""),
                json);
  }
  return section;
}

/// Returns each document once, with the number of places in it.
Section document_section(const FittedCalibration& fitted) {
  std::map<std::string, std::int64_t> places;
  for (const std::string& source : fitted.sources) ++places[document_of(source)];
  Section section{"documents", "documents"};
  for (const auto& [document, count] : places) {
    section.add(printable(document, 200), fmt::format("{} places", count), count);
  }
  return section;
}

}  // namespace

Description describe_calibration(const CalibrationFile& calibration, const std::string& name) {
  Description description{"calibration", name, {}};
  if (calibration.measured) {
    description.sections.push_back(measured_section(*calibration.measured));
    Section collectives{"collectives", "collectives"};
    add_collectives(collectives, calibration.measured->collectives);
    description.sections.push_back(std::move(collectives));
  }
  if (calibration.fitted) {
    description.sections.push_back(fit_section(*calibration.fitted));
    if (const auto& learned = calibration.fitted->learned)
      description.sections.push_back(learned_section(*learned));
    description.sections.push_back(value_section(*calibration.fitted));
    description.sections.push_back(document_section(*calibration.fitted));
  }
  return description;
}

}  // namespace plimsoll
