// The comparison as JSON, `planner compare --json`.
#include "base/json.h"
#include "reports/compare.h"

namespace plimsoll {
namespace {

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
