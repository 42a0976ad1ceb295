// Traces of PyTorch's profiler have the kernels, collectives and gaps that were worked out by hand.
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "interop/logs/training_log.h"
#include "tests/interop/changed_text.h"

namespace plimsoll {
namespace {

std::string trace_example() {
  return read_file(std::filesystem::path(PLIMSOLL_SOURCE_DIR) /
                   "tests/interop/traces/three-steps.pt.trace.json");
}

TrainingLog read_trace(const std::string& text) {
  std::istringstream stream(text);
  return read_training_log(stream, "t.json");
}

std::string trace_refusal(const std::string& text) {
  try {
    read_trace(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

double step_value(const TrainingLog& log, std::size_t step, LogQuantity quantity) {
  return log.steps.at(step).value(quantity).value_or(-1);
}

bool doubts_that(const TrainingLog& log, const std::string& piece) {
  return std::ranges::any_of(
      log.doubts, [&](const std::string& doubt) { return doubt.find(piece) != doubt.npos; });
}

TEST(ProfilerTrace, StepsHaveTheirGaps) {
  const TrainingLog log = read_trace(trace_example());
  ASSERT_EQ(log.steps.size(), 3U);
  EXPECT_EQ(log.steps[0].number, 3);
  // Kernels run from 100 to 500 us and the collective from 400 to 700 us of 1,000.
  EXPECT_NEAR(step_value(log, 0, LogQuantity::time), 1e-3, 1e-12);
  EXPECT_NEAR(step_value(log, 0, LogQuantity::device_idle), 400e-6, 1e-12);
  EXPECT_NEAR(step_value(log, 0, LogQuantity::longest_idle), 300e-6, 1e-12);
  EXPECT_NEAR(step_value(log, 0, LogQuantity::exposed_collectives), 200e-6, 1e-12);
  EXPECT_EQ(step_value(log, 0, LogQuantity::kernels), 2);
  // A product of 300 us, and a copy of 50 us that lies within it.
  EXPECT_NEAR(step_value(log, 1, LogQuantity::device_idle), 700e-6, 1e-12);
  EXPECT_EQ(step_value(log, 1, LogQuantity::exposed_collectives), 0);
  ASSERT_TRUE(log.steady);
  EXPECT_NEAR(log.steady->median.value(), 1.1e-3, 1e-9);  // without the first
  EXPECT_EQ(log.arguments.at("world_size").value, "16");
  EXPECT_EQ(log.arguments.at("device_name").value, "NVIDIA H100 80GB HBM3");
}

TEST(ProfilerTrace, KernelsHaveTheShapesOfTheirOps) {
  const TrainingLog log = read_trace(trace_example());
  ASSERT_EQ(log.kernels.size(), 3U);
  const LogKernels& product = log.kernels[0];
  EXPECT_EQ(product.kind, "product");
  EXPECT_EQ(product.op, "aten::mm");
  EXPECT_EQ(product.inputs, "[[4096,8192],[8192,1024]] [c10::BFloat16,c10::BFloat16]");
  EXPECT_EQ(product.times.count, 2);
  EXPECT_NEAR(product.times.total.value(), 700e-6, 1e-12);
  EXPECT_NEAR(product.times.least.value(), 300e-6, 1e-12);
  // An AMD kernel has its launch's correlation alone; other ops of the same kernel are apart.
  EXPECT_EQ(log.kernels[1].op, "aten::linear");
  EXPECT_EQ(log.kernels[1].kernel, product.kernel);
  EXPECT_EQ(log.kernels[2].kind, "copy");
  EXPECT_EQ(log.kernels[2].op, "");
}

TEST(ProfilerTrace, CollectivesHaveSizeAndGroup) {
  const TrainingLog log = read_trace(trace_example());
  ASSERT_EQ(log.collectives.size(), 1U);
  const LogCollective& one = log.collectives[0];
  EXPECT_EQ(one.name, "_allgather_base");
  EXPECT_EQ(one.elements, 1000);
  EXPECT_EQ(one.received, 8000);
  EXPECT_EQ(one.bytes, Bytes(16'000));
  EXPECT_EQ(one.group_size, 8);
  EXPECT_EQ(one.ranks, "[0, 1, 2, 3, 4, 5, 6, 7]");
  EXPECT_EQ(one.times.count, 1);
  const TrainingLog other =
      read_trace(with(trace_example(), "\"BFloat16\", \"Process", "\"Unheard\", \"Process"));
  EXPECT_EQ(other.collectives[0].bytes, std::nullopt);
}

TEST(ProfilerTrace, MemoryIsThePeakOfTheDevice) {
  const TrainingLog log = read_trace(trace_example());
  ASSERT_EQ(log.memory.size(), 1U);
  EXPECT_EQ(log.memory[0].bytes[1], 3000);
  EXPECT_EQ(log.memory[0].bytes[3], 4096);
}

TEST(ProfilerTrace, BrokenTracesAreRefusedWithTheirPlace) {
  const std::string text = trace_example();
  EXPECT_NE(trace_refusal(text.substr(0, text.size() / 2)).find("line "), std::string::npos);
  EXPECT_NE(trace_refusal(R"({"traceEvents": []})").find("neither a ProfilerStep"),
            std::string::npos);
  const std::string deep = R"({"traceEvents": )" + std::string(1'000'000, '[');
  EXPECT_NE(trace_refusal(deep).find("64 levels"), std::string::npos);
  const std::string endless = R"({"traceEvents": [{"name": ")" + std::string(20 << 20, 'x');
  EXPECT_NE(trace_refusal(endless).find("16 MiB"), std::string::npos);
  const TrainingLog no_time = read_trace(with(text, "\"dur\": 400.0", "\"dur\": 1e300"));
  EXPECT_TRUE(doubts_that(no_time, "1 steps and kernels have no time"));
}

TEST(ProfilerTrace, OpsBeyondTheLimitAreDoubted) {
  std::string many = "\"traceEvents\": [";
  for (int op = 0; op < 50'010; ++op) {
    many += R"({"ph": "X", "cat": "cpu_op", "name": "op)" + std::to_string(op) +
            R"(", "args": {"External id": 9}},)";
  }
  const TrainingLog log = read_trace(with(trace_example(), "\"traceEvents\": [", many));
  EXPECT_TRUE(doubts_that(log, "ops and launches are left out"));
  EXPECT_FALSE(doubts_that(read_trace(trace_example()), "left out"));
}

TEST(ProfilerTrace, CompressedFilesAreRead) {
  const std::string path = testing::TempDir() + "trace.pt.trace.json.gz", text = trace_example();
  const gzFile file = gzopen(path.c_str(), "wb");
  ASSERT_EQ(gzwrite(file, text.data(), unsigned(text.size())), int(text.size()));
  gzclose(file);
  EXPECT_TRUE(is_training_log(path));
  EXPECT_EQ(read_training_log(path).collectives.size(), 1U);
  const std::string bytes = read_file(path);
  write_file_atomically(path, bytes.substr(0, bytes.size() / 2));
  EXPECT_THROW(read_training_log(path), InputError);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace plimsoll
