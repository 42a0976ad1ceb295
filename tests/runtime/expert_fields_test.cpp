// Fields of a mixture of experts beside its sizes: jobs with each train the model of one rank under
// every way of sharing it out, or say what they drop.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "models/job/layer_forms.h"
#include "passes/pipeline.h"
#include "plan/measured.h"
#include "runtime/state/initialize.h"
#include "tests/runtime/nano.h"
#include "tests/runtime/one_rank.h"
#include "tests/states.h"

namespace plimsoll {
namespace {

Job mixture() {
  Job job = nano_job();
  job.name = "mixture";
  job.family = Family::llama;
  job.layers = 2;
  job.dropout = 0;
  job.experts = Experts{.count = 8, .chosen = 2, .ffn_hidden = 24};
  return job;
}

/// Dense ranks, ranks of experts, both dispatches, sequences in parts, stages and shards.
const std::vector<std::string> kWays = {
    "dp=2",
    "mp=2",
    "mp=2,sequence_parallel=true",
    "cp=2,mp=2,sequence_parallel=true,context_exchange=all_gather",
    "dp=2,ep=2,expert_rows_percent=200",
    "mp=2,dp=2,ep=2,etp=2,sequence_parallel=true,expert_rows_percent=200",
    "dp=4,ep=2,expert_dispatch=all_gather",
    "cp=2,dp=2,ep=4,expert_rows_percent=400",
    "pp=2,dp=2,ep=2,recompute=full,expert_rows_percent=200,overlap_expert_exchange=true",
    "sharding_degree=4,sharding_stage=3,ep=2,expert_rows_percent=200"};

void expect_every_way_alike(const Job& job, std::int64_t micro_batches = 2) {
  for (const std::string& way : kWays) {
    SCOPED_TRACE(way);
    expect_model_of_one_rank(job, way, micro_batches);
  }
}

TEST(ExpertFields, SomeSequencesHaveOneAuxiliaryLoss) {
  Job job = mixture();
  job.global_batch = 16;
  job.experts->balance_loss = 0.5;  // then its gradients are not lost among the others
  job.experts->balance_sequences = 2;
  expect_every_way_alike(job);
}

/// Gradients of the first router.
std::vector<float> router_gradients(const Job& job) {
  const auto programs = nano_programs(nano_strategy("mp=1", 1, {}), job);
  TrainOptions options;
  options.steps = 1;
  options.warm_up_steps = 0;
  options.keep_gradients = true;
  const TrainResult result = train_nano(programs, options, job);
  return put_together(programs, result.gradients, true, 0).at({"expert_layer.router.weight", 0});
}

TEST(ExpertFields, TheLossOfTwoSequencesIsNotThatOfEach) {
  Job job = mixture();
  const std::vector<float> without = router_gradients(job);
  job.experts->balance_loss = 0.5;
  const std::vector<float> of_each = router_gradients(job);
  job.experts->balance_sequences = 2;
  const std::vector<float> of_two = router_gradients(job);
  EXPECT_GT(relative_distance(of_each, without), 1e-3);
  EXPECT_GT(relative_distance(of_two, of_each), 1e-3);
  EXPECT_LT(relative_distance(of_two, of_each), relative_distance(of_each, without));
}

/// A job with one auxiliary loss over all layers of a micro-batch of so many sequences.
Job balanced_over_layers(std::int64_t sequences) {
  Job job = mixture();
  job.experts->balance_loss = 0.5;
  job.experts->balance_layers = true;
  job.experts->balance_sequences = sequences;
  return job;
}

TEST(ExpertFields, AllLayersHaveOneAuxiliaryLoss) {
  for (const std::string& way : kWays) {
    if (way.find("pp=2") != way.npos) continue;
    SCOPED_TRACE(way);
    expect_model_of_one_rank(balanced_over_layers(nano_strategy(way, 2, {}).micro_batch), way);
  }
  Job job = balanced_over_layers(4);
  job.layers = 3;
  job.experts->dense_layers = 1;
  job.mtp = MultiToken{};  // whose module has a router, too
  for (const char* way : {"schedule=gpipe", "recompute=full", "mp=2,recompute=full",
                          "sharding_degree=2,sharding_stage=3,schedule=gpipe"}) {
    SCOPED_TRACE(way);
    job.experts->balance_sequences = nano_strategy(way, 2, {}).micro_batch;
    expect_model_of_one_rank(job, way, 2, parse_strategy(way).recompute);
  }
}

// With one layer it is the loss of that layer, over the same sequences. With two it is another.
TEST(ExpertFields, TheLossOfAllLayersIsThatOfOne) {
  const auto gradients = [](std::int64_t layers, bool together) {
    Job job = balanced_over_layers(nano_job().global_batch);
    job.layers = layers;
    job.experts->balance_layers = together;
    return router_gradients(job);
  };
  EXPECT_EQ(gradients(1, true), gradients(1, false));
  EXPECT_GT(relative_distance(gradients(2, true), gradients(2, false)), 1e-3);
}

TEST(ExpertFields, ALossOfAllLayersNeedsThemOnOneStageAndAMicroBatch) {
  const Job job = balanced_over_layers(2);
  Strategy strategy;
  strategy.micro_batch = 4;
  EXPECT_TRUE(states(legal(job, strategy, 1).reason(), {"micro_batch 4", "2 sequences"}));
  strategy.micro_batch = 2;
  EXPECT_TRUE(legal(job, strategy, 1));
  strategy.pp = 2;
  EXPECT_TRUE(states(legal(job, strategy, 2).reason(), {"balance_layers", "stage"}));
}

TEST(ExpertFields, MicroBatchesHaveAllSequencesOfALoss) {
  Job job = mixture();
  job.experts->balance_loss = 0.01;
  job.experts->balance_sequences = 2;
  Strategy strategy;
  for (const std::int64_t sequences : {1, 2, 3, 4}) {
    strategy.micro_batch = sequences;
    job.global_batch = 4 * sequences * 2;
    EXPECT_EQ(bool(legal(job, strategy, 1)), sequences % 2 == 0) << sequences;
  }
  strategy.micro_batch = 3;
  EXPECT_TRUE(states(legal(job, strategy, 1).reason(), {"micro_batch 3", "2 sequences"}));
}

TEST(ExpertFields, AnMlpBesideExpertsReadsWhatIsBehindAttention) {
  Job job = mixture();
  job.experts->dense_ffn_hidden = 20;
  job.experts->shared_ffn_hidden = 16;
  for (const MlpInput input : {MlpInput::attended, MlpInput::own_norm}) {
    job.mlp_input = input;
    expect_every_way_alike(job);
  }
}

TEST(ExpertFields, ExpertsWorkInANarrowerSpace) {
  Job job = mixture();
  job.experts->latent_hidden = 12;
  job.experts->shared_ffn_hidden = 16;
  expect_every_way_alike(job);
  job.experts->bias = true;
  for (const char* way : {"mp=2", "dp=2,ep=2,expert_rows_percent=200,overlap_shared_experts=true"})
    expect_model_of_one_rank(job, way);
}

TEST(ExpertFields, ExpertsHaveAdapters) {
  using enum AdapterTarget;
  Job job = mixture();
  job.experts->shared_ffn_hidden = 16;
  for (const SetOf<AdapterTarget> targets :
       {SetOf<AdapterTarget>{gate, up, down}, SetOf<AdapterTarget>{gate_up, down, query},
        SetOf<AdapterTarget>{down}}) {
    job.adapters = Adapters{.rank = 3, .targets = targets};
    expect_model_of_one_rank(job, "dp=2,sharding_degree=2,sharding_stage=3");
    for (const std::string& way : kWays) {
      SCOPED_TRACE(way);
      const bool refused = way.find("etp=2") != way.npos || way.find("stage=3") != way.npos;
      if (!refused) expect_model_of_one_rank(job, way);
    }
    EXPECT_TRUE(states(
        legal(job, nano_strategy("mp=2,dp=2,ep=2,etp=2,sequence_parallel=true", 1, {}), 4).reason(),
        {"etp", "adapters of experts"}));
  }
}

struct Dropping {
  std::vector<double> losses;
  std::vector<MeasuredExperts> experts;
};

Dropping dropping_run(const Job& job, const std::string& strategy) {
  TrainOptions options;
  options.steps = 3;
  options.warm_up_steps = 0;
  const auto programs = nano_programs(nano_strategy(strategy, 1, {}), job);
  const Measured measured = train_nano(programs, options, job).measured;
  return {measured.losses, measured.experts};
}

TEST(ExpertFields, RowsWithoutMemoryAreDroppedWhereTheJobSaysSo) {
  Job job = mixture();
  const std::string ranks = "dp=4,ep=4,expert_rows_percent=";
  std::string fault;
  try {
    dropping_run(job, ranks + "100");
  } catch (const std::exception& error) {
    fault = error.what();
  }
  EXPECT_NE(fault.find("there is memory for"), std::string::npos) << fault;
  const Dropping all = dropping_run(job, ranks + "400");
  job.experts->drop_overflow = true;
  // Memory for all rows: nothing is dropped.
  const Dropping none = dropping_run(job, ranks + "400");
  EXPECT_EQ(none.losses, all.losses);
  const Dropping some = dropping_run(job, ranks + "100");
  ASSERT_EQ(some.experts.size(), 2u);
  for (std::size_t layer = 0; layer < 2; ++layer) {
    EXPECT_EQ(none.experts[layer].dropped, 0);
    EXPECT_GT(some.experts[layer].dropped, 0);
    EXPECT_GT(some.experts[layer].load, 1);
  }
  EXPECT_NE(some.losses, all.losses);
  for (std::size_t step = 0; step < some.losses.size(); ++step)
    EXPECT_NEAR(some.losses[step], all.losses[step], 0.05 * all.losses[step]);
}

// Both dispatches sort rows by expert, then by rank and token, so they drop the same ones.
TEST(ExpertFields, BothDispatchesDropTheSameRows) {
  Job job = mixture();
  job.experts->drop_overflow = true;
  const std::string ranks = "dp=4,ep=4,expert_rows_percent=100";
  const Dropping sent = dropping_run(job, ranks),
                 gathered = dropping_run(job, ranks + ",expert_dispatch=all_gather"),
                 again = dropping_run(job, ranks + ",recompute=full");
  EXPECT_EQ(sent.experts, gathered.experts);
  EXPECT_EQ(sent.experts, again.experts);
  for (std::size_t step = 0; step < sent.losses.size(); ++step) {
    EXPECT_NEAR(sent.losses[step], gathered.losses[step], 1e-5 * sent.losses[step]);
    EXPECT_NEAR(sent.losses[step], again.losses[step], 1e-5 * sent.losses[step]);
  }
}

// The ranks of etp get the same rows together, and each counts those that came to it.
TEST(ExpertFields, DroppedRowsAreCountedOnceWhereRanksShareExperts) {
  Job job = mixture();
  job.experts->drop_overflow = true;
  const Dropping whole = dropping_run(job,
                                      "dp=2,ep=2,expert_rows_percent=100,"
                                      "expert_dispatch=all_gather"),
                 shared = dropping_run(job,
                                       "dp=4,ep=2,etp=2,expert_rows_percent=100,"
                                       "expert_dispatch=all_gather");
  ASSERT_EQ(whole.experts.size(), shared.experts.size());
  for (std::size_t layer = 0; layer < whole.experts.size(); ++layer)
    EXPECT_EQ(whole.experts[layer].dropped, shared.experts[layer].dropped);
  const Dropping sent = dropping_run(job, "dp=4,ep=2,etp=2,expert_rows_percent=100");
  EXPECT_GT(sent.experts[0].dropped, 0);
}

// The gradient of one loss over all layers, against differences of it in float64.

using Doubles = std::vector<double>;
constexpr std::size_t kRouted = 8, kChosenOfRouted = 2, kRouters = 2;

/// Branches add next to nothing, so that routers read the normed embedding and depend on their
/// auxiliary loss alone.
Job job_of_routers(std::int64_t sequences) {
  Job job = nano_job();
  job.family = Family::llama;
  job.layers = kRouters;
  job.factors.branch = 1e-6;
  job.clip_norm = 0;
  job.experts = Experts{.count = kRouted, .chosen = kChosenOfRouted, .ffn_hidden = 24};
  job.experts->balance_loss = 0.5;
  job.experts->balance_layers = true;
  job.experts->balance_sequences = sequences;
  return job;
}

Doubles initial_values(const Program& program, const Job& job, const std::string& name,
                       std::int64_t layer) {
  for (const Segment& segment : program.segments) {
    if (segment.parameter != name || segment.layer != layer) continue;
    std::vector<float> values(std::size_t(elements(segment.shape)));
    initialize_segment(segment, 0, {}, job.seed, values);
    return {values.begin(), values.end()};
  }
  ADD_FAILURE() << "no " << name << " of layer " << layer;
  return {};
}

/// A RoutedBatch has what the routers of all layers read, and the logits of each.
struct RoutedBatch {
  Doubles read;                 ///< [tokens, hidden]
  std::vector<Doubles> logits;  ///< by layer [tokens, experts]
  Doubles counts = Doubles(kRouted);

  RoutedBatch(const Job& job, const Doubles& table, const std::vector<Doubles>& routers,
              std::size_t first, std::size_t tokens) {
    const auto hidden = std::size_t(job.hidden);
    for (std::size_t t = first; t < first + tokens; ++t) {
      const auto row = table.begin() + std::ptrdiff_t(std::size_t(nano_text()[t]) * hidden);
      double squares = 0;
      for (std::size_t i = 0; i < hidden; ++i)
        squares += row[std::ptrdiff_t(i)] * row[std::ptrdiff_t(i)];
      const double norm = std::sqrt(squares / double(hidden) + epsilon_of(job));
      for (std::size_t i = 0; i < hidden; ++i) read.push_back(row[std::ptrdiff_t(i)] / norm);
    }
    for (const Doubles& router : routers) {
      Doubles& own = logits.emplace_back(tokens * kRouted);
      for (std::size_t t = 0; t < tokens; ++t) {
        for (std::size_t e = 0; e < kRouted; ++e) {
          for (std::size_t i = 0; i < hidden; ++i)
            own[t * kRouted + e] += read[t * hidden + i] * router[i * kRouted + e];
        }
        count(own.begin() + std::ptrdiff_t(t * kRouted));
      }
    }
  }

  void count(Doubles::const_iterator logits_of_token) {
    Doubles left(logits_of_token, logits_of_token + kRouted);
    for (std::size_t k = 0; k < kChosenOfRouted; ++k) {
      const auto best = std::max_element(left.begin(), left.end());
      ++counts[std::size_t(best - left.begin())];
      *best = -INFINITY;
    }
  }

  /// Returns E sum over e of (mean over tokens and layers of what chose e) x (mean score of e), as
  /// transformers computes it, over the number of choices of a token.
  double loss() const {
    Doubles scores(kRouted);
    for (const Doubles& own : logits) {
      for (std::size_t t = 0; t < own.size(); t += kRouted) {
        double sum = 0;
        for (std::size_t e = 0; e < kRouted; ++e) sum += std::exp(own[t + e]);
        for (std::size_t e = 0; e < kRouted; ++e) scores[e] += std::exp(own[t + e]) / sum;
      }
    }
    const auto rows = double(logits.size() * logits[0].size() / kRouted);
    double total = 0;
    for (std::size_t e = 0; e < kRouted; ++e) total += counts[e] / rows * scores[e] / rows;
    return double(kRouted) * total / double(kChosenOfRouted);
  }
};

std::vector<float> router_differences(const Job& job, std::vector<RoutedBatch>& batches,
                                      std::size_t layer) {
  constexpr double kStep = 1e-5;
  const auto hidden = std::size_t(job.hidden);
  std::vector<float> gradient(hidden * kRouted);
  for (RoutedBatch& batch : batches) {
    Doubles& logits = batch.logits[layer];
    for (std::size_t at = 0; at < gradient.size(); ++at) {
      const auto move = [&](double step) {
        for (std::size_t t = 0; t * kRouted < logits.size(); ++t)
          logits[t * kRouted + at % kRouted] += step * batch.read[t * hidden + at / kRouted];
      };
      move(kStep);
      const double above = batch.loss();
      move(-2 * kStep);
      const double below = batch.loss();
      move(kStep);
      gradient[at] +=
          float(job.experts->balance_loss * (above - below) / (2 * kStep) / double(batches.size()));
    }
  }
  return gradient;
}

class LayerBalance : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Strategies, LayerBalance,
                         testing::Values("mp=1", "schedule=gpipe", "recompute=full", "dp=2"));

TEST_P(LayerBalance, GradientsAreDifferencesOfTheLoss) {
  const Strategy strategy = nano_strategy(GetParam(), 2, parse_strategy(GetParam()).recompute);
  const Job job = job_of_routers(strategy.micro_batch);
  const auto programs = nano_programs(strategy, job);
  TrainOptions options;
  options.steps = 1;
  options.warm_up_steps = 0;
  options.keep_gradients = true;
  const WholeTensors found =
      put_together(programs, train_nano(programs, options, job).gradients, true, 1e-4);

  std::vector<Doubles> routers;
  const std::string name = "expert_layer.router.weight";
  for (std::size_t layer = 0; layer < kRouters; ++layer)
    routers.push_back(initial_values(programs[0], job, name, std::int64_t(layer)));
  const Doubles table = initial_values(programs[0], job, "embedding.word", 0);
  std::vector<RoutedBatch> batches;
  const auto tokens = std::size_t(strategy.micro_batch * job.sequence);
  for (std::size_t first = 0; first < std::size_t(job.global_batch * job.sequence); first += tokens)
    batches.emplace_back(job, table, routers, first, tokens);
  for (std::size_t layer = 0; layer < kRouters; ++layer) {
    const auto expected = router_differences(job, batches, layer);
    EXPECT_LE(relative_distance(found.at({name, std::int64_t(layer)}), expected), 1e-3) << layer;
  }
}

}  // namespace
}  // namespace plimsoll
