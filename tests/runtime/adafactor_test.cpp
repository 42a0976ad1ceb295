// Adafactor: its updates against float64, the model of one rank by every strategy in the predicted
// bytes, checkpoints, and what it refuses.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <memory>

#include "base/error.h"
#include "models/job/job.h"
#include "passes/pipeline.h"
#include "runtime/cpu/backend.h"
#include "runtime/state/kept_state.h"
#include "tests/runtime/nano.h"
#include "tests/runtime/one_rank.h"
#include "tests/runtime/saved_training.h"

namespace plimsoll {
namespace {

Job adafactor_job() {
  Job job = read_job(tests_folder() / "llama-nano.json");
  job.optimizer = Optimizer{.kind = OptimizerKind::adafactor, .learning_rate = 5e-3};
  return job;
}

std::vector<Program> adafactor_programs(const std::string& fields, const Job& job) {
  return nano_programs(nano_strategy("flatten=none," + fields, 2, {}), job);
}

// ---- updates ----

struct FactoredUpdate {
  Shape shape;
  std::vector<double> before, gradient, after;
};
/// By parameter: those of its layers, step by step.
using FactoredUpdates = std::map<std::string, std::vector<FactoredUpdate>>;

class WatchedAdafactor final : public Kernel {
 public:
  WatchedAdafactor(std::unique_ptr<Kernel> kernel, const Tensor& parameter,
                   FactoredUpdates& updates)
      : kernel_(std::move(kernel)), parameter_(parameter), updates_(updates) {}

  void run(std::span<std::byte* const> in, std::span<std::byte* const> out,
           const RunPosition& position) override {
    FactoredUpdate update{parameter_.shape, values(in[0]), values(in[1]), {}};
    kernel_->run(in, out, position);
    update.after = values(out[0]);
    updates_[parameter_.name].push_back(std::move(update));
  }

 private:
  std::vector<double> values(const std::byte* at) const {
    const auto* const floats = reinterpret_cast<const float*>(at);
    return {floats, floats + elements(parameter_.shape)};
  }

  std::unique_ptr<Kernel> kernel_;
  const Tensor parameter_;
  FactoredUpdates& updates_;
};

class AdafactorWatchingBackend final : public Backend {
 public:
  explicit AdafactorWatchingBackend(FactoredUpdates& updates) : updates_(updates) {}
  std::string_view name() const override { return "watched"; }
  Verdict supports(const Op& op, std::span<const Tensor> tensors) const override {
    return cpu_->supports(op, tensors);
  }
  std::unique_ptr<Kernel> prepare(const Op& op, std::span<const Tensor> tensors,
                                  const RankContext& context) override {
    auto kernel = cpu_->prepare(op, tensors, context);
    if (op.kind != OpKind::adafactor) return kernel;
    return std::make_unique<WatchedAdafactor>(std::move(kernel), tensors[op.inputs[0].index()],
                                              updates_);
  }
  void enter_thread() override { cpu_->enter_thread(); }

 private:
  std::unique_ptr<Backend> cpu_ = make_cpu_backend();
  FactoredUpdates& updates_;
};

/// Second moments of a matrix as its factors, or of a vector as they are, in float64.
struct SecondMoments {
  std::vector<double> rows, columns, all;

  /// Returns the update of step t, as Transformers' Adafactor computes it.
  std::vector<double> direction(const FactoredUpdate& update, double t) {
    const double b = 1 - std::pow(t, -0.8);
    const std::size_t m = std::size_t(update.shape[0]), n = update.gradient.size() / m;
    std::vector<double> u = update.gradient;
    if (update.shape.size() == 1) {
      all.resize(m);
      for (std::size_t i = 0; i < m; ++i) {
        all[i] = b * all[i] + (1 - b) * (u[i] * u[i] + 1e-30);
        u[i] /= std::sqrt(all[i]);
      }
    } else {
      rows.resize(m);
      columns.resize(n);
      for (double& row : rows) row *= b;
      for (double& column : columns) column *= b;
      for (std::size_t e = 0; e < u.size(); ++e) {
        rows[e / n] += (1 - b) * (u[e] * u[e] + 1e-30) / double(n);
        columns[e % n] += (1 - b) * (u[e] * u[e] + 1e-30) / double(m);
      }
      double mean = 0;
      for (const double row : rows) mean += row / double(m);
      for (std::size_t e = 0; e < u.size(); ++e)
        u[e] /= std::sqrt(rows[e / n] / mean) * std::sqrt(columns[e % n]);
    }
    double squares = 0;
    for (const double one : u) squares += one * one;
    const double length = std::max(1.0, std::sqrt(squares / double(u.size())));
    for (double& one : u) one /= length;
    return u;
  }
};

/// Expects the updates of four steps, and returns how many parameters they are of by their
/// dimensions: vectors, then matrices.
std::array<std::int64_t, 2> expect_updates(const Job& job) {
  FactoredUpdates updates;
  constexpr std::size_t kSteps = 4;
  TrainOptions options = steps_of(kSteps);
  options.backend_of_rank = [&](std::int64_t) {
    return std::make_unique<AdafactorWatchingBackend>(updates);
  };
  train_nano(adafactor_programs("dp=1", job), options, job);
  std::array<std::int64_t, 2> count = {};
  for (auto& [name, all] : updates) {
    SCOPED_TRACE(name);
    const bool vector = all[0].shape.size() == 1 || name.ends_with(".bias");
    ++count[vector ? 0 : 1];
    const std::size_t layers = all.size() / kSteps;
    std::vector<SecondMoments> moments(layers);
    for (std::size_t i = 0; i < all.size(); ++i) {
      FactoredUpdate& one = all[i];
      if (vector) one.shape = {std::int64_t(one.gradient.size())};
      const std::size_t step = i / layers;
      const auto u = moments[i % layers].direction(one, double(step + 1));
      const double rate = job.optimizer.learning_rate;
      const double decay = vector ? 0 : job.optimizer.weight_decay;
      for (std::size_t e = 0; e < u.size(); ++e) {
        const double moved = rate * (u[e] + decay * one.before[e]);
        EXPECT_NEAR(one.after[e], one.before[e] - moved,
                    1e-5 * rate * (1 + std::abs(u[e])) + 1e-7 * std::abs(one.before[e]))
            << "step " << step << ", element " << e;
        if (testing::Test::HasFailure()) return count;
      }
    }
  }
  return count;
}

TEST(Adafactor, MovesByFactoredSecondMoments) {
  // Five weights of a layer, the table and the head; two norms of a layer and one behind them.
  EXPECT_EQ(expect_updates(adafactor_job()), (std::array<std::int64_t, 2>{3, 7}));
  Job gpt = nano_job();  // the bias of queries, keys and values has several dimensions
  gpt.optimizer = adafactor_job().optimizer;
  const auto [vectors, matrices] = expect_updates(gpt);
  EXPECT_GT(vectors, matrices);
}

// ---- strategies ----

// The gradients of the keys' biases are rounding alone, which Adafactor makes as long as others. So
// the losses are compared, which do not depend on these biases.
TEST(AdafactorStrategy, GoesWithBiases) {
  Job job = nano_job();
  job.optimizer = adafactor_job().optimizer;
  const auto losses = [&](const char* fields) {
    return train_nano(adafactor_programs(fields, job), steps_of(4), job).measured.losses;
  };
  const auto expected = losses("dp=1");
  for (const char* fields : {"mp=2", "mp=4",
                             "sharding_degree=2,sharding_stage=1,"
                             "sharding_owner=greedy"}) {
    const auto found = losses(fields);
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], 1e-5 * expected[i]) << fields;
  }
}

class AdafactorStrategies : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(
    Nano, AdafactorStrategies,
    testing::Values("mp=2", "mp=4", "mp=2,sequence_parallel=true", "pp=2", "dp=2", "cp=2",
                    "sharding_degree=2,sharding_stage=1,sharding_owner=greedy",
                    "sharding_degree=2,sharding_stage=2,sharding_owner=sorted_greedy",
                    "sharding_degree=2,sharding_stage=3,sharding_owner=prefix",
                    "sharding_degree=8,sharding_stage=1,sharding_owner=prefix",
                    "mp=2,pp=2,sharding_degree=2,sharding_stage=1,sharding_owner=greedy"));

TEST_P(AdafactorStrategies, TrainTheModelOfOneRank) {
  expect_parameters_of_one_rank(adafactor_job(), GetParam(), 1e-5);
}

TEST_P(AdafactorStrategies, TrainItInBf16) {
  Job job = adafactor_job();
  job.precision = DType::bf16;
  for (const char* casts : {"", ",cast_placement=fused"})
    expect_parameters_of_one_rank(job, GetParam() + casts, 0x1p-8);
}

TEST(AdafactorStrategy, GoesWithLossScalesGroupsAndTiedTables) {
  Job job = adafactor_job();
  job.tied_embeddings = true;
  job.loss_scale = LossScale{1024, 2, 0.5, 2};
  job.optimizer.groups = {{"weight", 0.02, {}, 0.5}, {"norm", {}, false, {}}};
  check_job(job, "job");
  for (const char* fields :
       {"mp=2", "pp=2,dp=2", "sharding_degree=2,sharding_stage=1,sharding_owner=greedy"})
    expect_parameters_of_one_rank(job, fields, 1e-5);
}

// ---- state ----

TEST(AdafactorState, HasOneValueForEachRowAndColumn) {
  const Job job = adafactor_job();
  for (const char* fields :
       {"dp=1", "mp=2", "sharding_degree=2,sharding_stage=2,sharding_owner=greedy"}) {
    SCOPED_TRACE(fields);
    for (const Program& program : adafactor_programs(fields, job)) {
      std::int64_t rows = 0, columns = 0;
      for (const Segment& segment : program.segments) {
        if (segment.owner != program.owner) continue;
        rows += segment.shape[0];
        columns += segment.elements / segment.shape[0];
      }
      std::map<std::string, Bytes> bytes;
      for (const Buffer& buffer : program.buffers) bytes[buffer.name] = buffer.bytes;
      EXPECT_EQ(bytes["first_moment"], rows * bytes_of(DType::f32));
      EXPECT_EQ(bytes["second_moment"], columns * bytes_of(DType::f32));
    }
  }
}

TEST(AdafactorState, IsKeptAndGoesOnInAnotherStrategy) {
  const Job job = adafactor_job();
  const auto saving =
      adafactor_programs("mp=2,sharding_degree=2,sharding_stage=1,sharding_owner=prefix", job);
  const ScratchFolder scratch;
  TrainOptions options = some_steps(2);
  options.save = save_in(scratch.path(), job);
  train_nano(saving, options, job);
  const TrainResult whole = train_nano(saving, some_steps(4), job);
  EXPECT_EQ(go_on(saving, job, scratch.path(), 4).parameters, whole.parameters);
  for (const char* fields :
       {"dp=1", "mp=4", "pp=2,dp=2", "sharding_degree=4,sharding_stage=3,sharding_owner=greedy"}) {
    SCOPED_TRACE(fields);
    const auto loading = adafactor_programs(fields, job);
    const Measured other = go_on(loading, job, scratch.path(), 4).measured;
    for (std::size_t i = 0; i < 2; ++i) {
      const double loss = whole.measured.losses[2 + i];
      EXPECT_NEAR(other.losses[i], loss, 1e-5 * loss);
    }
    const ScratchFolder copy;
    copy_through(loading, scratch.path(), copy.path());
    EXPECT_EQ(saved_values(copy.path()), saved_values(scratch.path()));
  }
  for (const WholeTensor& tensor : whole_tensors(saving)) {
    ASSERT_EQ(tensor.moments.size(), 2u) << tensor.name;
    EXPECT_EQ(elements(tensor.moments[0]), tensor.shape[0]) << tensor.name;
    EXPECT_EQ(elements(tensor.moments[0]) * elements(tensor.moments[1]), elements(tensor.shape));
  }
}

// ---- rules ----

TEST(AdafactorRules, MatricesStayWhole) {
  const auto reason = [](const std::string& fields, std::int64_t devices) {
    return legal(adafactor_job(), parse_strategy(fields), devices).reason();
  };
  EXPECT_NE(reason("micro_batch=1", 1).find("adafactor, which updates matrices"),
            std::string::npos);
  EXPECT_NE(reason("flatten=none,sharding_degree=2,sharding_stage=1", 2).find("cut through"),
            std::string::npos);
  EXPECT_NE(reason("flatten=none,moment_type=bf16", 1), "");
  EXPECT_NE(reason("flatten=none,offload_optimizer_percent=50", 1), "");
  EXPECT_NE(reason("flatten=none,release_gradients=true", 1), "");
  EXPECT_EQ(reason("flatten=none,cp=2", 2), "");
}

TEST(AdafactorRules, ExpertsAreRefused) {
  Job job = read_job(tests_folder() / "expert-nano.json");
  job.optimizer.kind = OptimizerKind::adafactor;
  try {
    check_job(job, "job.json");
    FAIL() << "experts are matrices of one tensor";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("adafactor is not built for experts"),
              std::string::npos)
        << error.what();
  }
}

TEST(AdafactorJson, HasNeitherMomentumNorBetas) {
  const Job job = adafactor_job();
  const std::string text = job_text(job);
  EXPECT_EQ(parse_job(text, "job").optimizer, job.optimizer);
  EXPECT_EQ(text.find("beta1"), std::string::npos);
  EXPECT_EQ(text.find("momentum"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
