// Losses, gradients and bytes of many ranks are compared with those of one.
#include "tests/runtime/one_rank.h"

#include <gtest/gtest.h>

#include "passes/pipeline.h"
#include "tests/runtime/nano.h"

namespace plimsoll {

void expect_model_of_one_rank(const Job& job, const std::string& fields, std::int64_t micro_batches,
                              Recompute recompute) {
  TrainOptions options;
  options.steps = 3;
  options.warm_up_steps = 0;
  options.keep_gradients = true;
  const bool of_micro_batches = job.experts && job.experts->balance_layers;
  const std::int64_t batches =
      of_micro_batches ? job.global_batch / job.experts->balance_sequences : 1;
  const auto one = nano_programs(nano_strategy("mp=1", batches, {}), job);
  const TrainResult expected = train_nano(one, options, job);
  const Strategy strategy = nano_strategy(fields, micro_batches, recompute);
  const auto many = nano_programs(strategy, job);
  const TrainResult found = train_nano(many, options, job);
  for (std::size_t step = 0; step < 3; ++step) {
    const double loss = expected.measured.losses[step];
    EXPECT_NEAR(found.measured.losses[step], loss, 1e-5 * loss);
    const double norm = expected.measured.gradient_norms[step];
    EXPECT_NEAR(found.measured.gradient_norms[step], norm, 1e-4 * norm);
  }
  const WholeTensors serial = put_together(one, expected.gradients, true, 0);
  const WholeTensors gradients = put_together(many, found.gradients, true, 1e-4);
  ASSERT_EQ(gradients.size(), serial.size());
  for (const auto& [name, gradient] : serial) {
    SCOPED_TRACE(name.first + " of layer " + std::to_string(name.second));
    std::vector<float> got = gradients.at(name);
    got.resize(gradient.size());  // padding of the vocabulary
    EXPECT_LE(relative_distance(got, gradient), 1e-4);
  }
  const Grid& grid = many[0].grid;
  for (const RankMemory& counted : found.measured.timeline.memory) {
    const Program& program = many[class_of(many, grid.coordinates(counted.rank))];
    EXPECT_EQ(counted.peak, memory_peak(program).peak) << "rank " << counted.rank;
  }
}

void expect_parameters_of_one_rank(const Job& job, const std::string& fields, double tolerance) {
  SCOPED_TRACE(fields);
  constexpr std::size_t kSteps = 4;
  TrainOptions options = steps_of(kSteps);
  options.keep_parameters = true;
  const auto one = nano_programs(nano_strategy("flatten=none", 1, {}), job);
  const auto many = nano_programs(nano_strategy("flatten=none," + fields, 2, {}), job);
  const TrainResult expected = train_nano(one, options, job);
  TrainResult found = train_nano(many, options, job);
  for (std::size_t step = 0; step < kSteps; ++step) {
    const double loss = expected.measured.losses[step];
    EXPECT_NEAR(found.measured.losses[step], loss, tolerance * loss) << step;
  }
  EXPECT_LT(expected.measured.losses.back(), expected.measured.losses.front());
  expect_predicted_bytes(many, found.measured);
  const WholeTensors serial = put_together(one, expected.parameters, false, 0);
  const bool owned = fields.find("sharding_stage=3") != fields.npos;
  for (std::size_t rank = 0; owned && rank < found.parameters.size(); ++rank) {
    const Coordinates at = many[0].grid.coordinates(std::int64_t(rank));
    found.parameters[rank] = at_its_place(many[class_of(many, at)], at, found.parameters[rank]);
  }
  const WholeTensors parts = put_together(many, found.parameters, owned, 0);
  for (const auto& [name, values] : serial) {
    ASSERT_TRUE(parts.contains(name)) << name.first;
    std::vector<float> got = parts.at(name);
    got.resize(values.size());
    EXPECT_LE(relative_distance(got, values), 20 * tolerance) << name.first << " " << name.second;
  }
}

}  // namespace plimsoll
