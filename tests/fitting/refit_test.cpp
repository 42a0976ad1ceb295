// Refits: a run that differs from its prediction in known ways.
#include "fitting/refit.h"

#include <gtest/gtest.h>

#include <set>

#include "base/json.h"
#include "graph/op_table.h"
#include "predict/evaluate.h"
#include "tests/predict/fixtures.h"

namespace plimsoll {
namespace {

Sample sample(double seconds) { return {Seconds(seconds), Seconds(0), 7, false}; }

/// 100 us and more of every kind that a step of `plan` has.
Calibration calibration_of(const Timeline& timeline) {
  Calibration c;
  c.backend = "cpu";
  c.date = "2026-11-21";
  c.dispatch_op = c.dispatch_call = sample(1e-8);
  for (const bool a : {false, true}) {
    for (const bool b : {false, true}) {
      MatmulPoint point;
      point.shape = {1, 64, 64, 64};
      point.transpose_a = a;
      point.transpose_b = b;
      point.time = sample(1e-4);
      c.matmuls.push_back(point);
    }
  }
  std::set<OpKind> kinds;
  for (const Interval& interval : timeline.intervals) kinds.insert(*interval.kind);
  for (const OpKind kind : kinds) {
    if (row(kind).op_class == OpClass::memory_bound) {
      OpPoint point;
      point.kind = kind;
      point.moved = Bytes(1 << 16);
      point.time = sample(1e-4);
      c.ops.push_back(point);
    } else if (communicates(kind)) {
      CollectivePoint point;
      point.kind = kind;
      point.ranks = 2;
      point.payload = Bytes(1 << 16);
      point.time = sample(1e-4);
      c.collectives.push_back(point);
    }
  }
  return c;
}

class RefitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    plan_.job = nano_job();
    plan_.strategy = parse_strategy("dp=2");
    plan_.framework = bundled_framework();
    plan_.devices = 2;
    const auto predicted_by = [&](const CostModel& costs) {
      const Target target(plan_.job, costs, 2);
      return predict(target, plan_.strategy, lay_out(target, plan_.strategy, Proof::none));
    };
    calibration_ = calibration_of(predicted_by(small_costs(cluster_)).timeline);
    const Evaluation predicted = predicted_by({cluster_, calibration_, plan_.framework});
    measured_.timeline = predicted.timeline;
    measured_.median_step_time = predicted.prediction.step_time;
    measured_.date = "2026-11-22";
  }

  void stretch(OpKind kind, double times) {
    for (Interval& interval : measured_.timeline.intervals) {
      if (interval.kind != kind) continue;
      const std::int64_t length = (interval.end - interval.begin).count();
      interval.end = interval.begin + Picoseconds(std::int64_t(double(length) * times));
    }
  }
  Refit found() const {
    CostBasis basis;
    basis.cluster = cluster_;
    basis.measured = calibration_;
    return refit(plan_, measured_, basis);
  }
  static const RefitTerm& term(const Refit& refit, const std::string& name) {
    for (const RefitTerm& term : refit.terms) {
      if (term.factor.name == name) return term;
    }
    throw std::runtime_error("no term " + name);
  }

  Cluster cluster_ = small_cluster();
  Plan plan_;
  Calibration calibration_;
  Measured measured_;
};

TEST_F(RefitTest, WhatRanAsPredictedStaysAndIsTrusted) {
  const Refit same = found();
  EXPECT_NEAR(same.after / same.before, 1, 1e-9);
  const RefitTerm& matmul = term(same, "matmul");
  EXPECT_NEAR(matmul.factor.value, 1, 1e-9);
  EXPECT_FALSE(matmul.moved);
  EXPECT_TRUE(matmul.trusted);
  EXPECT_GT(matmul.places, 5u);
  EXPECT_EQ(matmul.predicted, matmul.measured);
}

TEST_F(RefitTest, OnlyTheKindThatTookLongerMoves) {
  stretch(OpKind::matmul, 1.5);
  measured_.median_step_time = measured_.median_step_time * 1.3;
  const Refit moved = found();
  const RefitTerm& matmul = term(moved, "matmul");
  EXPECT_NEAR(matmul.factor.value, 1.5, 0.03);  // the prior holds back a little
  EXPECT_TRUE(matmul.moved);
  EXPECT_TRUE(matmul.trusted);
  EXPECT_NEAR(matmul.measured / matmul.predicted, 1.5, 1e-6);
  for (const RefitTerm& other : moved.terms) {
    EXPECT_EQ(other.moved, other.factor.name == "matmul") << other.factor.name;
  }
  EXPECT_NEAR(moved.calibration.matmuls[0].time.median.value(), 1e-4 * matmul.factor.value, 1e-12);
  EXPECT_NEAR(moved.calibration.ops[0].time.median.value(), 1e-4, 1e-6);
  EXPECT_GT(moved.after, moved.before);
  ASSERT_EQ(moved.calibration.versions.size(), 1u);
  EXPECT_NE(moved.calibration.versions[0].find("refitted by a run of 2026-11-22: "),
            std::string::npos);
  EXPECT_NE(refit_text(moved).find("moved, trusted"), std::string::npos) << refit_text(moved);
  const Json json = parse_json(refit_json("{\"verdict\": \"v\"}", moved, "out"), "refit");
  EXPECT_EQ(json["verdict"], "v");
  EXPECT_EQ(json["refit"]["output"], "out");
  EXPECT_EQ(json["refit"]["terms"].size(), moved.terms.size());
}

/// One op that was disturbed does not move its kind.
TEST_F(RefitTest, OneOpThatLiesFarOffCountsLittle) {
  std::string routine;
  for (Interval& interval : measured_.timeline.intervals) {
    if (interval.kind != OpKind::matmul) continue;
    if (routine.empty()) routine = interval.routine;
    if (interval.routine != routine) continue;
    interval.end = interval.end + Picoseconds(5 * (interval.end - interval.begin).count());
  }
  const Refit refitted = found();
  EXPECT_LT(term(refitted, "matmul").factor.value, 1.25);
}

TEST_F(RefitTest, OpsThatAreTooShortDetermineNothing) {
  calibration_.collectives.front().time = sample(1e-7);
  for (Interval& interval : measured_.timeline.intervals) {
    if (interval.kind == calibration_.collectives.front().kind) {
      interval.end = interval.begin + Picoseconds(900'000);
    }
  }
  const Refit none = found();
  const RefitTerm& collective =
      term(none, std::string(to_text(calibration_.collectives.front().kind)));
  EXPECT_EQ(collective.places, 0u);
  EXPECT_FALSE(collective.factor.determined);
  EXPECT_EQ(collective.factor.value, 1);
  EXPECT_EQ(none.calibration.collectives, calibration_.collectives);
}

TEST(MeasuredLoad, GoesIntoTheJobAsTheMeanOverLayers) {
  Job job = nano_job();
  job.experts = Experts{.count = 4, .chosen = 2, .ffn_hidden = 16};
  Measured measured;
  EXPECT_EQ(with_measured_load(job, measured).experts->load, Experts().load);
  measured.experts = {{.layer = 1, .choices = 64, .load = 1.25, .highest_load = 1.5},
                      {.layer = 2, .choices = 64, .load = 1.75, .highest_load = 2}};
  EXPECT_DOUBLE_EQ(with_measured_load(job, measured).experts->load, 1.5);
  EXPECT_FALSE(with_measured_load(nano_job(), measured).experts);
}

}  // namespace
}  // namespace plimsoll
