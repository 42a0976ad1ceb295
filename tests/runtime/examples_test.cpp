// Examples of several lengths in one sequence: ops agree with the float64 reference, and packed
// examples train the model that single ones train.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "passes/pipeline.h"
#include "runtime/cpu/backend.h"
#include "tests/runtime/nano.h"
#include "tests/runtime/one_rank.h"
#include "tests/runtime/op_expectations.h"
#include "tests/runtime/op_families.h"

namespace plimsoll {
namespace {

class CpuExamples : public testing::TestWithParam<SharedCase> {};

TEST_P(CpuExamples, EqualTheReference) { expect_reference(*make_cpu_backend(), *GetParam()); }

INSTANTIATE_TEST_SUITE_P(Table, CpuExamples, testing::ValuesIn(shared(example_cases())),
                         op_case_name);

Job with_lengths(Job job) {
  job.lengths = {{1, 1}, {3, 2}, {7, 2}, {12, 2}, {40, 1}};
  return job;
}
Job gpt() { return with_lengths(nano_job()); }
Job llama() { return with_lengths(read_job(tests_folder() / "llama-nano.json")); }

struct Trained {
  double loss, norm;
  WholeTensors gradients;
};
/// Trains one step on one rank, in one micro-batch.
Trained train_one_step(const Job& job, const std::vector<std::byte>& text) {
  Strategy strategy;
  strategy.micro_batch = job.global_batch;
  const auto programs = nano_programs(strategy, job);
  TrainOptions options = steps_of(1);
  options.keep_gradients = true;
  const TrainResult result = train(programs, job, bundled_framework(), text, options);
  return {result.measured.losses[0], result.measured.gradient_norms[0],
          put_together(programs, result.gradients, true, 0)};
}

class Packed : public testing::TestWithParam<std::pair<const char*, Job>> {};

// With one example in each sequence the loss is the mean over the same predicted tokens.
TEST_P(Packed, TrainAsSingleSequencesDo) {
  const Job packed = GetParam().second;
  Job single = packed;
  single.packing = Packing::padded;
  single.global_batch = 0;
  std::vector<std::byte> text;
  const std::int64_t length = packed.sequence;
  ExampleRows(packed).each(0, packed.global_batch,
                           [&](std::int64_t row, std::int64_t begin, std::int64_t tokens) {
                             const auto from = nano_text().begin() + row * length + begin;
                             text.insert(text.end(), from, from + tokens);
                             text.resize(std::size_t(++single.global_batch * length));
                           });
  ASSERT_GT(single.global_batch, packed.global_batch);
  text.resize(text.size() + std::size_t(length) + 2);
  const Trained one = train_one_step(packed, nano_text()), other = train_one_step(single, text);
  EXPECT_NEAR(one.loss, other.loss, 1e-5 * other.loss);
  EXPECT_NEAR(one.norm, other.norm, 1e-4 * other.norm);
  ASSERT_EQ(one.gradients.size(), other.gradients.size());
  for (const auto& [name, gradient] : other.gradients)
    EXPECT_LE(relative_distance(one.gradients.at(name), gradient), 1e-4) << name.first;
}

std::vector<std::pair<const char*, Job>> packed_jobs() {
  Job windowed = llama(), chunks = llama(), alibi = llama(), mtp = llama(), growth = llama();
  growth.rotary.growth = {0.5, 3, 1};
  windowed.window = 5;
  chunks.window = 5;
  chunks.window_chunks = true;
  alibi.alibi = alibi.sinks = true;
  mtp.mtp = MultiToken{2, 0.5};
  return {{"gpt", gpt()},   {"llama", llama()}, {"window", windowed}, {"chunks", chunks},
          {"alibi", alibi}, {"mtp", mtp},       {"growth", growth}};
}
INSTANTIATE_TEST_SUITE_P(Jobs, Packed, testing::ValuesIn(packed_jobs()),
                         [](const auto& info) { return std::string(info.param.first); });

struct ExampleSplit {
  const char* fields;
  bool learned = false;  ///< positions
  Packing packing = Packing::packed;
  bool balanced = false;
  std::vector<LengthShare> lengths = {};  ///< empty: those of with_lengths()
};
/// Ranks that share a sequence have a part of each.
const std::vector<LengthShare> kEven = {{4, 2}, {8, 1}, {12, 1}};

class ExampleSplits : public testing::TestWithParam<ExampleSplit> {};

TEST_P(ExampleSplits, TrainTheModelOfOneRank) {
  Job job = GetParam().learned ? gpt() : llama();
  job.packing = GetParam().packing;
  job.balanced = GetParam().balanced;
  if (!GetParam().lengths.empty()) job.lengths = GetParam().lengths;
  expect_model_of_one_rank(job, GetParam().fields);
}
INSTANTIATE_TEST_SUITE_P(
    Strategies, ExampleSplits,
    testing::Values(
        ExampleSplit{"dp=2"}, ExampleSplit{"dp=2,sharding_degree=2,sharding_stage=3"},
        ExampleSplit{"pp=2"}, ExampleSplit{"mp=2,sequence_parallel=true"}, ExampleSplit{"cp=2"},
        ExampleSplit{"cp=2", true},
        ExampleSplit{"cp=2,context_exchange=all_gather", false, Packing::padded},
        ExampleSplit{"cp=2,context_exchange=all_to_all"},
        ExampleSplit{"dp=2,cp=2,pp=2", true, Packing::padded},
        ExampleSplit{"dp=2", false, Packing::packed, true},
        ExampleSplit{"dp=2,cp=2", false, Packing::padded, true},
        ExampleSplit{"cp=2", false, Packing::packed, true, kEven},
        ExampleSplit{"cp=2", true, Packing::padded, true, kEven},
        ExampleSplit{"cp=2,context_exchange=all_gather", false, Packing::packed, true, kEven},
        ExampleSplit{"cp=2,context_exchange=all_to_all", true, Packing::packed, true, kEven},
        ExampleSplit{"cp=4,dp=2", false, Packing::packed, true, {{8, 2}, {16, 1}}},
        ExampleSplit{"cp=2,mp=2,sequence_parallel=true,pp=2", false, Packing::packed, true,
                     kEven}));

}  // namespace
}  // namespace plimsoll
