// The comparison as tables for a terminal, and as JSON.
#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
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

Json seconds_json(const TimePair& time) {
  return {{"predicted", time.predicted.value()}, {"measured", time.measured.value()}};
}

Json bytes_json(const BytesPair& bytes) {
  return {{"predicted", bytes.predicted.count()}, {"measured", bytes.measured.count()}};
}

Json rank_json(const RankComparison& rank) {
  Json by_class = Json::object();
  for (std::size_t role = 0; role < kTensorRoles; ++role) {
    by_class[std::string(to_text(TensorRole(role)))] = bytes_json(rank.by_role[role]);
  }
  return {{"rank", rank.rank},
          {"peak_bytes", bytes_json(rank.peak)},
          {"by_class", std::move(by_class)}};
}

Json experts_json(const Comparison& comparison) {
  if (comparison.experts.empty()) return nullptr;
  Json layers = Json::array();
  for (const MeasuredExperts& one : comparison.experts) {
    layers.push_back({{"layer", one.layer},
                      {"choices", one.choices},
                      {"dropped", one.dropped},
                      {"load", one.load > 0 ? Json(one.load) : Json(nullptr)}});
  }
  return {{"predicted_load", comparison.predicted_load}, {"layers", std::move(layers)}};
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

std::string comparison_json(const Comparison& comparison) {
  Json ranks = Json::array(), ops = Json::array(), traffic = Json::array();
  for (const TrafficComparison& one : comparison.traffic) {
    traffic.push_back(
        {{"rank", one.rank}, {"group", to_text(one.group)}, {"sent_bytes", bytes_json(one.sent)}});
  }
  for (const RankComparison& rank : comparison.ranks) ranks.push_back(rank_json(rank));
  for (const KindComparison& op : comparison.ops) {
    ops.push_back({{"kind", to_text(op.kind)},
                   {"predicted_s", op.time.predicted.value()},
                   {"measured_s", op.time.measured.value()}});
  }
  return json_text(
      Json{{"verdict", comparison.verdict},
           {"provenance", comparison.provenance},
           {"communicator",
            {{"predicted", comparison.predicted_communicator},
             {"measured", comparison.measured_communicator}}},
           {"bytes_equal", comparison.bytes_equal},
           {"time_within", comparison.time_within},
           {"makes_timing_claim", comparison.makes_timing_claim},
           {"no_claim_reason",
            comparison.no_claim_reason.empty() ? Json(nullptr) : Json(comparison.no_claim_reason)},
           {"time_error", comparison.time_error},
           {"tolerance", comparison.tolerance},
           {"timeline_calls", comparison.timeline_calls},
           {"step_time_s", seconds_json(comparison.step_time)},
           {"exposed",
            {{"wait_s", seconds_json(comparison.exposed_wait)},
             {"transfer_s", seconds_json(comparison.exposed_transfer)}}},
           {"ops", std::move(ops)},
           {"ranks", std::move(ranks)},
           {"traffic", std::move(traffic)},
           {"experts", experts_json(comparison)}});
}

}  // namespace plimsoll
