// Muon: its update against float64, the model of one rank by every strategy in the predicted bytes,
// checkpoints, and what it refuses.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
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

Job muon_job() {
  Job job = read_job(tests_folder() / "llama-nano.json");
  job.optimizer.kind = OptimizerKind::muon;
  job.optimizer.learning_rate = 2e-3;
  job.optimizer.momentum = 0.95;
  return job;
}

TrainOptions muon_options(std::int64_t steps) {
  TrainOptions options;
  options.steps = steps;
  options.warm_up_steps = 0;
  options.keep_parameters = true;
  return options;
}

// ---- one update ----

/// The operands of one update of a matrix.
struct MuonUpdate {
  Shape shape;
  std::vector<double> before, gradient, momentum, after;
};
using MuonUpdates = std::map<std::string, std::vector<MuonUpdate>>;

std::vector<double> floats_at(const std::byte* at, std::int64_t count) {
  const auto* const values = reinterpret_cast<const float*>(at);
  return {values, values + count};
}

/// Notes operands of `sgd`: with a momentum it adds to that, and without it moves parameters.
class WatchedSgd final : public Kernel {
 public:
  WatchedSgd(std::unique_ptr<Kernel> kernel, const Op& op, const Tensor& parameter,
             MuonUpdates& updates)
      : kernel_(std::move(kernel)),
        momentum_(std::get<SgdParams>(op.params).momentum > 0),
        parameter_(parameter),
        updates_(updates) {}

  void run(std::span<std::byte* const> in, std::span<std::byte* const> out,
           const RunPosition& position) override {
    const std::int64_t count = elements(parameter_.shape);
    std::vector<MuonUpdate>& all = updates_[parameter_.name];
    if (momentum_) all.push_back({parameter_.shape, floats_at(in[0], count), {}, {}, {}});
    kernel_->run(in, out, position);
    if (momentum_) {
      all.back().gradient = floats_at(in[1], count);
      all.back().momentum = floats_at(out[1], count);
    } else {
      all.back().after = floats_at(out[0], count);
    }
  }

 private:
  std::unique_ptr<Kernel> kernel_;
  const bool momentum_;
  const Tensor parameter_;
  MuonUpdates& updates_;
};

class SgdWatchingBackend final : public Backend {
 public:
  explicit SgdWatchingBackend(MuonUpdates& updates) : updates_(updates) {}
  std::string_view name() const override { return "watched"; }
  Verdict supports(const Op& op, std::span<const Tensor> tensors) const override {
    return cpu_->supports(op, tensors);
  }
  std::unique_ptr<Kernel> prepare(const Op& op, std::span<const Tensor> tensors,
                                  const RankContext& context) override {
    auto kernel = cpu_->prepare(op, tensors, context);
    if (op.kind != OpKind::sgd) return kernel;
    return std::make_unique<WatchedSgd>(std::move(kernel), op, tensors[op.inputs[0].index()],
                                        updates_);
  }
  void enter_thread() override { cpu_->enter_thread(); }

 private:
  std::unique_ptr<Backend> cpu_ = make_cpu_backend();
  MuonUpdates& updates_;
};

/// A matrix in float64.
struct Matrix {
  std::size_t rows, columns;
  std::vector<double> values;
  double at(std::size_t i, std::size_t j) const { return values[i * columns + j]; }
};

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c{a.rows, b.columns, std::vector<double>(a.rows * b.columns)};
  for (std::size_t i = 0; i < a.rows; ++i) {
    for (std::size_t k = 0; k < a.columns; ++k) {
      for (std::size_t j = 0; j < b.columns; ++j)
        c.values[i * c.columns + j] += a.at(i, k) * b.at(k, j);
    }
  }
  return c;
}

Matrix transposed(const Matrix& a) {
  Matrix t{a.columns, a.rows, a.values};
  for (std::size_t i = 0; i < a.rows; ++i) {
    for (std::size_t j = 0; j < a.columns; ++j) t.values[j * t.columns + i] = a.at(i, j);
  }
  return t;
}

/// Five times a X + (b A + c A A) X with A = X X^T, of a matrix of Frobenius norm 1.
Matrix newton_schulz(Matrix x) {
  double squares = 0;
  for (const double value : x.values) squares += value * value;
  for (double& value : x.values) value /= std::max(std::sqrt(squares), 1e-7);
  for (int step = 0; step < 5; ++step) {
    const Matrix gram = product(x, transposed(x)), square = product(gram, gram);
    Matrix factor = gram;
    for (std::size_t i = 0; i < factor.values.size(); ++i)
      factor.values[i] = -4.7750 * gram.values[i] + 2.0315 * square.values[i];
    const Matrix more = product(factor, x);
    for (std::size_t i = 0; i < x.values.size(); ++i)
      x.values[i] = 3.4445 * x.values[i] + more.values[i];
  }
  return x;
}

TEST(Muon, MovesByOrthogonalMomentum) {
  const Job job = muon_job();
  const Optimizer& optimizer = job.optimizer;
  MuonUpdates updates;
  constexpr std::size_t kSteps = 3;
  TrainOptions options = muon_options(kSteps);
  options.backend_of_rank = [&](std::int64_t) {
    return std::make_unique<SgdWatchingBackend>(updates);
  };
  train_nano(nano_programs(nano_strategy("flatten=none", 2, {}), job), options, job);
  std::size_t matrices = 0;
  for (const auto& [name, all] : updates) {
    SCOPED_TRACE(name);
    const std::size_t layers = all.size() / kSteps;
    EXPECT_EQ(layers, std::size_t(job.layers));
    ++matrices;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const MuonUpdate& one = all[i];
      Matrix x{std::size_t(one.shape[0]), one.gradient.size() / std::size_t(one.shape[0]), {}};
      for (std::size_t e = 0; e < one.gradient.size(); ++e) {
        const double last = i < layers ? 0 : all[i - layers].momentum[e];
        const double momentum = optimizer.momentum * last + one.gradient[e];
        ASSERT_NEAR(one.momentum[e], momentum, 1e-6 * std::abs(momentum) + 1e-9) << e;
        x.values.push_back(one.gradient[e] + optimizer.momentum * one.momentum[e]);
      }
      const Matrix direction = newton_schulz(x);
      const double length = 0.2 * std::sqrt(double(std::max(x.rows, x.columns)));
      for (std::size_t e = 0; e < one.after.size(); ++e) {
        const double moved = optimizer.learning_rate * (length * direction.values[e] +
                                                        optimizer.weight_decay * one.before[e]);
        ASSERT_NEAR(one.after[e], one.before[e] - moved,
                    1e-3 * optimizer.learning_rate * length + 1e-7 * std::abs(one.before[e]))
            << "step " << i / layers << ", element " << e;
      }
    }
  }
  EXPECT_EQ(matrices, 5u) << "query, keys and values, output, both of the MLP";
}

/// Whether Muon updates it, by the published rule.
bool is_matrix(const Segment& segment) {
  return segment.parameter.starts_with("layer.") && segment.shape.size() > 1;
}

TEST(Muon, OthersMoveAsByAdamW) {
  const Job job = muon_job();
  Job adamw = job;
  adamw.optimizer.kind = OptimizerKind::adamw;
  const auto programs = nano_programs(nano_strategy("flatten=none", 2, {}), job);
  const TrainResult found = train_nano(programs, muon_options(1), job);
  const auto usual = nano_programs(nano_strategy("flatten=none", 2, {}), adamw);
  const TrainResult expected = train_nano(usual, muon_options(1), adamw);
  const WholeTensors by_muon = put_together(programs, found.parameters, false, 0),
                     by_adamw = put_together(usual, expected.parameters, false, 0);
  for (const Segment& segment : programs[0].segments) {
    const std::pair name(segment.parameter, segment.layer);
    EXPECT_EQ(by_muon.at(name) == by_adamw.at(name), !is_matrix(segment)) << segment.parameter;
  }
}

// ---- strategies ----

class MuonStrategies : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(
    Nano, MuonStrategies,
    testing::Values("mp=2", "mp=4", "mp=2,sequence_parallel=true", "pp=2", "dp=2", "cp=2",
                    "sharding_degree=2,sharding_stage=1,sharding_owner=greedy",
                    "sharding_degree=2,sharding_stage=2,sharding_owner=sorted_greedy",
                    "sharding_degree=2,sharding_stage=3,sharding_owner=prefix",
                    "sharding_degree=4,sharding_stage=3,sharding_owner=greedy,gather=use",
                    "sharding_degree=8,sharding_stage=1,sharding_owner=prefix",
                    "mp=2,pp=2,sharding_degree=2,sharding_stage=1,sharding_owner=greedy"));

TEST_P(MuonStrategies, TrainTheModelOfOneRank) {
  expect_parameters_of_one_rank(muon_job(), GetParam(), 1e-5);
}

TEST_P(MuonStrategies, TrainItInBf16) {
  Job job = muon_job();
  job.precision = DType::bf16;
  expect_parameters_of_one_rank(job, GetParam(), 0x1p-8);
}

TEST(MuonStrategy, GoesWithLossScalesAndGroups) {
  Job job = muon_job();
  job.loss_scale = LossScale{1024, 2, 0.5, 2};
  job.optimizer.groups = {{"weight", 0.02, {}, 0.5}, {"norm", {}, false, {}}};
  check_job(job, "job");
  for (const char* fields :
       {"mp=2", "pp=2,dp=2", "sharding_degree=2,sharding_stage=1,sharding_owner=greedy"})
    expect_parameters_of_one_rank(job, fields, 1e-5);
}

// ---- state ----

TEST(MuonState, SecondMomentsAreOfOthersAlone) {
  const Job job = muon_job();
  for (const char* fields :
       {"flatten=none", "flatten=none,mp=2",
        "flatten=none,sharding_degree=2,sharding_stage=2,sharding_owner=greedy"}) {
    SCOPED_TRACE(fields);
    for (const Program& program : nano_programs(nano_strategy(fields, 2, {}), job)) {
      std::int64_t all = 0, others = 0;
      for (const Segment& segment : program.segments) {
        if (segment.owner != program.owner) continue;
        all += segment.elements;
        others += is_matrix(segment) ? 0 : segment.elements;
      }
      std::map<std::string, Bytes> bytes;
      for (const Buffer& buffer : program.buffers) bytes[buffer.name] = buffer.bytes;
      EXPECT_EQ(bytes["first_moment"], all * bytes_of(DType::f32));
      EXPECT_EQ(bytes["second_moment"], others * bytes_of(DType::f32));
      EXPECT_GT(others, 0);
      EXPECT_LT(others, all);
    }
  }
}

TEST(MuonState, IsKeptAndGoesOnInAnotherStrategy) {
  const Job job = muon_job();
  const auto programs_of = [&](const std::string& fields) {
    return nano_programs(nano_strategy("flatten=none," + fields, 2, {}), job);
  };
  const auto saving =
      programs_of("mp=2,sharding_degree=2,sharding_stage=1,sharding_owner=sorted_greedy");
  const ScratchFolder scratch;
  TrainOptions options = some_steps(2);
  options.save = save_in(scratch.path(), job);
  train_nano(saving, options, job);
  const TrainResult whole = train_nano(saving, some_steps(4), job);
  EXPECT_EQ(go_on(saving, job, scratch.path(), 4).parameters, whole.parameters);
  for (const char* fields :
       {"dp=1", "pp=2,dp=2", "sharding_degree=4,sharding_stage=3,sharding_owner=greedy"}) {
    SCOPED_TRACE(fields);
    const auto loading = programs_of(fields);
    const Measured other = go_on(loading, job, scratch.path(), 4).measured;
    for (std::size_t i = 0; i < 2; ++i) {
      const double loss = whole.measured.losses[2 + i];
      EXPECT_NEAR(other.losses[i], loss, 1e-5 * loss);
    }
    const ScratchFolder copy;
    copy_through(loading, scratch.path(), copy.path());
    EXPECT_EQ(saved_values(copy.path()), saved_values(scratch.path()));
  }
  std::size_t with_two = 0;
  for (const WholeTensor& tensor : whole_tensors(saving)) with_two += tensor.moments.size() == 2;
  EXPECT_EQ(with_two, 3u + 2u * std::size_t(job.layers));  // embedding, head, norms
}

// ---- rules ----

TEST(MuonRules, MatricesStayWhole) {
  const auto reason = [](const std::string& fields, std::int64_t devices) {
    return legal(muon_job(), parse_strategy(fields), devices).reason();
  };
  EXPECT_EQ(reason("micro_batch=1", 1),
            "the optimizer is muon, which updates matrices one by one: flatten must be none");
  EXPECT_EQ(reason("flatten=coalesced", 1),
            "the optimizer is muon, which updates matrices one by one: flatten must be none");
  const std::string cut =
      "the optimizer is muon; ranges of elements cut through matrices: sharding_owner must not be "
      "elements";
  EXPECT_EQ(reason("flatten=none,sharding_degree=2,sharding_stage=1", 2), cut);
  EXPECT_EQ(reason("flatten=none,cp=2,sharding_stage=1", 2),
            "the optimizer is muon: with frozen parameters or cp its states are whole, and "
            "sharding_stage must be 0");
  EXPECT_EQ(reason("flatten=none,cp=2", 2), "");
}

TEST(MuonRules, ExpertsAreRefused) {
  Job job = read_job(tests_folder() / "expert-nano.json");
  job.optimizer.kind = OptimizerKind::muon;
  try {
    check_job(job, "job.json");
    FAIL() << "experts are matrices of one tensor";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("muon is not built for experts"), std::string::npos)
        << error.what();
  }
}

TEST(MuonJson, HasMomentumAndBetas) {
  const Job job = muon_job();
  EXPECT_EQ(parse_job(job_text(job), "job").optimizer, job.optimizer);
}

}  // namespace
}  // namespace plimsoll
