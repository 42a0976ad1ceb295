// Bounds where ranks own whole tensors: at most what evaluate finds, whatever stage, form of gather
// and placement of casts.
#include <gtest/gtest.h>

#include "planner/bounds/bounds.h"
#include "predict/evaluate.h"
#include "tests/predict/fixtures.h"

namespace plimsoll {
namespace {

const char* const kForms[] = {"sharding_stage=1",
                              "sharding_stage=2",
                              "sharding_stage=3,gather=layer",
                              "sharding_stage=3,gather=tensor,prefetch_depth=3",
                              "sharding_stage=3,gather=segment,segment_broadcast_bytes=65536",
                              "sharding_stage=3,gather=use"};

TEST(OwnerBounds, AreAtMostWhatEvaluateFinds) {
  Job job = nano_job();
  Cluster cluster = small_cluster();
  cluster.device.peak_bf16 = cluster.device.peak_fp32;
  for (const DType precision : {DType::f32, DType::bf16}) {
    job.precision = precision;
    const Target target(job, small_costs(cluster), 4);
    for (const char* owner : {"prefix", "greedy", "sorted_greedy"}) {
      for (const char* degrees : {"sharding_degree=4", "sharding_degree=2,pp=2"}) {
        for (const char* form : kForms) {
          Strategy strategy = parse_strategy(std::string(degrees) + "," + form);
          set_field(strategy, "sharding_owner", owner);
          for (const char* casts : {"fused", "every_use"}) {
            set_field(strategy, "cast_placement", casts);
            SCOPED_TRACE(strategy_summary(strategy));
            const Footprint footprint = lay_out(target, strategy, Proof::structure);
            const double step = predict(target, strategy, footprint, Folding::folded, Detail::none)
                                    .prediction.step_time.value();
            const Bytes peak = largest(footprint.stages, &StagePrediction::peak);
            // A search has one owner mode and one placement of casts.
            const Bounds bounds(target);
            EXPECT_LE(bounds.persistent(strategy), peak);
            EXPECT_LE(bounds.memory(strategy).peak, peak);
            EXPECT_LE(bounds.memory(strategy).arena,
                      largest(footprint.stages, &StagePrediction::arena));
            EXPECT_LE(bounds.bottleneck(strategy).seconds().value(), step);
            EXPECT_LE(bounds.actions(strategy).seconds().value(), step);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace plimsoll
