// The comparison as tables for a terminal.
#include <fmt/format.h>

#include <algorithm>

#include "reports/compare.h"
#include "reports/numbers.h"

namespace plimsoll {
namespace {

std::string time_row(std::string_view label, const TimePair& time) {
  return fmt::format("  {:<28}{:>12}{:>12}{:>10}\n", label, to_text(time.predicted),
                     to_text(time.measured), signed_error(time));
}

std::string times_table(const Comparison& comparison) {
  std::string text =
      fmt::format("{:<30}{:>12}{:>12}{:>10}\n", "Time per step", "predicted", "measured", "error");
  text += time_row("step time", comparison.step_time);
  text += time_row("exposed wait", comparison.exposed_wait);
  text += time_row("exposed transfer", comparison.exposed_transfer);
  return text;
}

std::string ops_table(const Comparison& comparison) {
  std::string text = fmt::format("{:<30}{:>12}{:>12}{:>10}\n", "Per op kind, mean over ranks",
                                 "predicted", "measured", "error");
  for (const KindComparison& op : comparison.ops) text += time_row(to_text(op.kind), op.time);
  return text;
}

std::string bytes_row(std::string_view rank, std::string_view label, const BytesPair& pair) {
  return fmt::format("  {:<6}{:<22}{:>18}{:>18}  {}\n", rank, label,
                     grouped(pair.predicted.count()), grouped(pair.measured.count()),
                     pair.predicted == pair.measured ? "=" : "differs");
}

/// All-zero classes say nothing and are left out.
std::string bytes_table(const Comparison& comparison) {
  std::string text = fmt::format("{:<8}{:<22}{:>18}{:>18}\n", "Rank", "Peak bytes by class",
                                 "predicted", "measured");
  for (const RankComparison& rank : comparison.ranks) {
    text += bytes_row(fmt::format("{}", rank.rank), "peak", rank.peak);
    for (std::size_t role = 0; role < kTensorRoles; ++role) {
      const BytesPair& pair = rank.by_role[role];
      if (pair.predicted == Bytes() && pair.measured == Bytes()) continue;
      text += bytes_row("", to_text(TensorRole(role)), pair);
    }
  }
  return text;
}

std::string traffic_table(const Comparison& comparison) {
  if (comparison.traffic.empty()) return "";
  std::string text = fmt::format("\n{:<8}{:<22}{:>18}{:>18}\n", "Rank", "Bytes sent per step over",
                                 "predicted", "measured");
  std::int64_t before = -1;
  for (const TrafficComparison& one : comparison.traffic) {
    const std::string rank = one.rank == before ? "" : fmt::format("{}", one.rank);
    text += bytes_row(rank, to_text(one.group), one.sent);
    before = one.rank;
  }
  return text;
}

std::string experts_table(const Comparison& comparison) {
  if (comparison.experts.empty()) return "";
  std::string text = fmt::format("\n{:<8}{:<22}{:>18}{:>18}\n", "Layer", "Load of experts",
                                 "predicted", "measured");
  for (const MeasuredExperts& one : comparison.experts) {
    const double dropped = double(one.dropped) / double(std::max<std::int64_t>(one.choices, 1));
    text += fmt::format("  {:<6}{:<22}{:>18.3f}{:>18}  {} of choices dropped\n", one.layer,
                        "fullest rank, mean", comparison.predicted_load,
                        one.load > 0 ? fmt::format("{:.3f}", one.load) : "-", percent(dropped));
  }
  return text;
}

}  // namespace

std::string comparison_text(const Comparison& comparison) {
  std::string text = comparison.verdict + "\n" + comparison.provenance + "\n\n" +
                     times_table(comparison) + "\n" + ops_table(comparison) + "\n" +
                     bytes_table(comparison) + traffic_table(comparison) +
                     experts_table(comparison);
  if (!comparison.makes_timing_claim) {
    text += fmt::format("\nTimes are shown, not judged: {}.\n", comparison.no_claim_reason);
  }
  if (comparison.timeline_calls) {
    text += fmt::format(
        "\nThe plan is for more than {} devices and shows whole calls: of predicted ops only those "
        "between calls are counted.\n",
        kMostDevicesByOp);
  }
  return text;
}

}  // namespace plimsoll
