// Rows of timed ops, in the words of their sources.
#include "fitting/op_measurement.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace plimsoll {
namespace {

constexpr const char* kSource = R"("source": {"repo_or_doc": "doc", "path_or_issue": "table 1"})";

OpMeasurement only(const std::string& row) {
  const OpMeasurements read = parse_op_measurements("[{" + std::string(kSource) + row + "}]", "f");
  EXPECT_EQ(read.ops.size(), 1u);
  return read.ops.at(0);
}

std::int64_t skipped(const std::string& row) {
  return parse_op_measurements("[{" + std::string(kSource) + row + "}]", "f").skipped;
}

constexpr const char* kMatmul = R"(, "gpu": "A100-PCIe-80GB", "devices": ["A100"], "op": "matmul",
    "dtype": "bf16", "time_s": 1e-3, "batch": 2, "m": 4096, "k": 512, "n": 1024,
    "transpose_a": false, "transpose_b": true, "output_bytes": 8)";

TEST(OpMeasurement, StatedRowsAreReadAsTheyStand) {
  const OpMeasurement op = only(kMatmul);
  EXPECT_EQ(op.kind, OpKind::matmul);
  EXPECT_EQ(op.shape, (MatmulShape{2, 4096, 1024, 512}));
  EXPECT_FALSE(op.transpose_a);
  EXPECT_TRUE(op.transpose_b);
  EXPECT_EQ(op.output_bytes, 8);
  EXPECT_EQ(op.time, Seconds(1e-3));
  EXPECT_EQ(op.dtype, DType::bf16);
  EXPECT_EQ(op.devices, std::vector<std::string>{"A100"});
  EXPECT_EQ(op.source, "doc, table 1");
  const OpMeasurement backward =
      only(R"(, "gpu": "B200", "op": "flash_attention_backward", "dtype": "f16", "time_s": 1,
             "batch": 1, "sequence": 1024, "heads": 8, "head_size": 128)");
  EXPECT_EQ(backward.kind, OpKind::flash_attention_backward);
  EXPECT_EQ(backward.sequence, 1024);
  EXPECT_EQ(backward.heads, 8);
  EXPECT_EQ(backward.head_size, 128);
}

TEST(OpMeasurement, StatedRowsOfOtherOpsAreSkippedAndCounted) {
  EXPECT_EQ(skipped(R"(, "gpu": "B200", "op": "group_matmul", "statements": [])"), 1);
  EXPECT_EQ(skipped(R"(, "gpu": "B200", "op": "dropout", "time_s": 1)"), 1);
}

TEST(OpMeasurement, RawAndHostileRowsAreRefused) {
  std::string untimed = kMatmul;
  untimed.replace(untimed.find("time_s"), 6, "time_m");
  std::string empty = kMatmul;
  empty.replace(empty.find("4096"), 4, "0");
  for (const std::string& row :
       {untimed, empty, std::string(R"(, "gpu": "A", "op": 3)"), std::string(R"(, "op": "matmul")"),
        std::string(R"(, "gpu": "A", "op": "gemm", "tflops": 1)")}) {
    EXPECT_THROW(only(row), InputError) << row;
  }
  EXPECT_THROW(parse_op_measurements("{}", "f"), InputError);
  EXPECT_TRUE(is_op_measurements(R"([{"op": "matmul"}])", "f"));
  EXPECT_FALSE(is_op_measurements(R"([{"id": "x"}])", "f"));
  EXPECT_FALSE(is_op_measurements("[]", "f"));
}

}  // namespace
}  // namespace plimsoll
