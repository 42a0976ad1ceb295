// JSON of `planner space` and `planner simulate`.
#include "planner/summary_json.h"

#include "base/json.h"
#include "plan/json_layout.h"
#include "plan/prediction_json.h"

namespace plimsoll {
namespace {

Json strategy_json(const Strategy& strategy) {
  return parse_json(strategy_text(strategy), "strategy");
}

}  // namespace

std::string space_json(const Job& job, std::int64_t devices, const Space& space) {
  Json legal = Json::array();
  for (const Strategy& strategy : space.legal) legal.push_back(strategy_json(strategy));
  Json rejected = Json::array();
  for (const Pruned& pruned : space.rejected) {
    rejected.push_back({{"reason", pruned.reason}, {"count", pruned.count}});
  }
  return line_text({{"job", job.name},
                    {"devices", devices},
                    {"enumerated", space.enumerated},
                    {"rejected", rejected},
                    {"legal", legal}});
}

std::string evaluation_json(const Job& job, const Strategy& strategy, std::int64_t devices,
                            const Evaluation& evaluation) {
  Json ranks = Json::array();
  for (const RankMemory& memory : evaluation.timeline.memory) {
    ranks.push_back({{"rank", memory.rank}, {"peak_bytes", memory.peak.count()}});
  }
  return line_text({{"job", job.name},
                    {"devices", devices},
                    {"strategy", strategy_json(strategy)},
                    {"fits", evaluation.score.fits},
                    {"prediction", prediction_json(evaluation.score.prediction)},
                    {"simulated_ranks", ranks},
                    {"program_digests", evaluation.program_digests}});
}

}  // namespace plimsoll
