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

TEST(OpMeasurement, MatmulOfAShapeText) {
  const OpMeasurement op =
      only(R"(, "gpu": "A100-PCIe-80GB", "op": "matmul", "peak_tflops": 312, "efficiency": 0.5,
             "shape": "b=2, m=4096, k=512, n=1024, layout=TN, accumulate=True, out_dtype=fp32")");
  EXPECT_EQ(op.kind, OpKind::matmul);
  EXPECT_EQ(op.shape, (MatmulShape{2, 4096, 1024, 512}));
  EXPECT_FALSE(op.transpose_a);
  EXPECT_TRUE(op.transpose_b);  // a linear layer's weights
  EXPECT_EQ(op.output_bytes, 8);
  EXPECT_DOUBLE_EQ(op.time.value(), 2.0 * 2 * 4096 * 512 * 1024 / 156e12);
  EXPECT_EQ(op.source, "doc, table 1");
}

TEST(OpMeasurement, AttentionCountsAllScoresAndBackwardTwoAndAHalfTimes) {
  const std::string line =
      R"(, "gpu": "B200", "peak_tflops": 100, "efficiency": 1, "shape": "batch=1, seq_len=1024, head_num=8, kv_head_num=2, qk_head_dim=128, v_head_dim=128, qkv_contiguous=True")";
  const OpMeasurement forward = only(line + R"(, "op": "sdp_fwd")");
  EXPECT_EQ(forward.kind, OpKind::flash_attention);
  EXPECT_DOUBLE_EQ(forward.time.value(), 4.0 * 8 * 1024 * 1024 * 128 / 100e12);
  const OpMeasurement backward = only(line + R"(, "op": "sdp_bwd")");
  EXPECT_EQ(backward.kind, OpKind::flash_attention_backward);
  EXPECT_DOUBLE_EQ(backward.time / forward.time, 2.5);
}

TEST(OpMeasurement, ColumnMajorProductsAreTransposed) {
  const OpMeasurement op =
      only(R"(, "gpu": "V100", "op": "gemm", "dtype": "fp16_in_fp32_acc_tensor_core", "m": 512,
             "n": 256, "k": 1024, "transA": "T", "transB": "N", "batch": 1, "tflops": 50)");
  EXPECT_EQ(op.shape, (MatmulShape{1, 256, 512, 1024}));
  EXPECT_FALSE(op.transpose_a);
  EXPECT_TRUE(op.transpose_b);
  EXPECT_EQ(op.dtype, DType::f16);
  EXPECT_DOUBLE_EQ(op.time.value(), 2.0 * 256 * 512 * 1024 / 50e12);
}

TEST(OpMeasurement, OtherRowsAreSkippedAndCounted) {
  EXPECT_EQ(skipped(R"(, "gpu": "B200", "op": "group_matmul")"), 1);
  EXPECT_EQ(skipped(R"(, "gpu": "V100", "op": "gemm", "dtype": "fp32", "m": 1, "n": 1, "k": 1,
                      "transA": "N", "transB": "N", "tflops": 1)"),
            1);
}

TEST(OpMeasurement, HostileRowsAreRefused) {
  for (const char* row :
       {R"(, "gpu": "A", "op": "matmul", "peak_tflops": 1, "efficiency": 1, "shape": "b=1, m=0")",
        R"(, "gpu": "A", "op": "matmul", "peak_tflops": 1, "efficiency": 1, "shape": "")",
        R"(, "gpu": "A", "op": "matmul", "peak_tflops": 0, "efficiency": 1,
            "shape": "b=1, m=1, k=1, n=1")",
        R"(, "gpu": "A", "op": 3)", R"(, "op": "matmul")"}) {
    EXPECT_THROW(only(row), InputError) << row;
  }
  EXPECT_THROW(parse_op_measurements("{}", "f"), InputError);
  EXPECT_TRUE(is_op_measurements(R"([{"op": "matmul"}])", "f"));
  EXPECT_FALSE(is_op_measurements(R"([{"id": "x"}])", "f"));
  EXPECT_FALSE(is_op_measurements("[]", "f"));
}

}  // namespace
}  // namespace plimsoll
