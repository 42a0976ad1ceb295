// The op table's rows give arity, FLOPs, bytes and legality of ops.
#include "graph/op_table.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/graph/text_reader.h"

namespace plimsoll {
namespace {

/// The op and tensors of a small text.
struct Case {
  Graph graph;
  const Op& op() const { return graph.ops[0]; }
};

Case parse(const std::string& tensors, const std::string& op) {
  return {parse_graph("graph g\n" + tensors + "op " + op + "\n", "case")};
}

TEST(OpTable, EveryKindHasItsRow) {
  for (std::size_t i = 0; i < kOpKinds; ++i) EXPECT_EQ(row(OpKind(i)).kind, OpKind(i));
}

TEST(OpTable, MatmulCountsTwoFlopsPerMultiplyAdd) {
  // (3 x 5)(5 x 7): 3*5*7 multiply-adds.
  const Case c = parse(
      "tensor %0 a f32[3,5] activation\ntensor %1 b f32[5,7] activation\ntensor %2 c f32[3,7] "
      "activation\n",
      "matmul forward (%0, %1) -> (%2)");
  EXPECT_EQ(flops(c.op(), c.graph.tensors).value(), 2 * 3 * 5 * 7);
  EXPECT_EQ(bytes_moved(c.op(), c.graph.tensors), Bytes(4 * (15 + 35 + 21)));
}

TEST(OpTable, ScatterAndGatherOfPartsAreNotInPlace) {
  const std::string tensors =
      "tensor %0 whole f32[12] communication\ntensor %1 part f32[4] communication\n"
      "tensor %2 same f32[12] communication\ntensor %3 odd f32[5] communication\n";
  const auto storage = [&](const std::string& op) {
    const Case c = parse(tensors, op + " group=sharding reduction=sum root=0");
    EXPECT_TRUE(check_operands(c.op(), c.graph.tensors)) << op;
    EXPECT_EQ(bytes_moved(c.op(), c.graph.tensors), Bytes(48)) << op;  // the whole, either way
    return in_place(c.op(), c.graph.tensors);
  };
  EXPECT_EQ(storage("all_gather forward (%0) -> (%2)"), 0);
  EXPECT_EQ(storage("all_gather forward (%1) -> (%0)"), std::nullopt);
  EXPECT_EQ(storage("reduce_scatter backward (%0) -> (%2)"), 0);
  EXPECT_EQ(storage("reduce_scatter backward (%0) -> (%1)"), std::nullopt);
  EXPECT_EQ(storage("broadcast optimizer (%0) -> (%0)"), 0);
  EXPECT_EQ(storage("broadcast optimizer (%0) -> (%2)"), std::nullopt);
  EXPECT_EQ(storage("reduce optimizer (%0) -> (%2)"), 0);
  for (const char* op : {"all_gather forward (%3) -> (%0)", "reduce_scatter forward (%0) -> (%3)",
                         "all_gather forward (%0) -> (%1)", "broadcast forward (%1) -> (%0)"}) {
    const Case c = parse(tensors, std::string(op) + " group=sharding reduction=sum root=0");
    EXPECT_FALSE(check_operands(c.op(), c.graph.tensors)) << op;
  }
}

TEST(OpTable, WeightsFoldTrailingDimensionsAndBatchesDoNot) {
  // dX = dY W^T with W [8, 3, 2, 4]: 6 x 24 times 24 x 8.
  const Case folded = parse(
      "tensor %0 dy f32[6,3,2,4] activation\ntensor %1 w f32[8,3,2,4] activation\ntensor %2 dx "
      "f32[6,8] activation\n",
      "matmul backward (%0, %1) -> (%2) transpose_b=true");
  EXPECT_EQ(matmul_shape(folded.op(), folded.graph.tensors), (MatmulShape{1, 6, 8, 24}));
  // Scores of 2 x 3 heads, sequence 5, head size 4.
  const Case batched = parse(
      "tensor %0 q f32[2,3,5,4] activation\ntensor %1 k f32[2,3,5,4] activation\n"
      "tensor %2 s f32[2,3,5,5] activation\n",
      "matmul forward (%0, %1) -> (%2) batch_dims=2 transpose_b=true");
  EXPECT_EQ(matmul_shape(batched.op(), batched.graph.tensors), (MatmulShape{6, 5, 5, 4}));
}

TEST(OpTable, FlashAttentionCountsTwoProductsForwardAndFiveBackward) {
  // 2 sequences of 4 tokens, 3 heads of 8: each product is 2 * 3 * 2 * 4 * 4 * 8 flops.
  const std::string tensors =
      "tensor %0 qkv bf16[8,3,3,8] activation\ntensor %1 y bf16[8,24] activation\n"
      "tensor %2 lse f32[2,3,4] activation\ntensor %3 dy bf16[8,24] activation\n"
      "tensor %4 dqkv bf16[8,3,3,8] activation\n";
  const double product = 2.0 * 3 * 2 * 4 * 4 * 8;
  const Case forward = parse(tensors, "flash_attention forward (%0) -> (%1, %2) sequence=4");
  ASSERT_TRUE(check_operands(forward.op(), forward.graph.tensors));
  EXPECT_EQ(flops(forward.op(), forward.graph.tensors).value(), 2 * product);
  EXPECT_EQ(bytes_moved(forward.op(), forward.graph.tensors),
            Bytes(2 * 8 * 72 + 2 * 8 * 24 + 4 * 24));
  const Case backward =
      parse(tensors, "flash_attention_backward backward (%3, %0, %1, %2) -> (%4) sequence=4");
  ASSERT_TRUE(check_operands(backward.op(), backward.graph.tensors));
  EXPECT_EQ(flops(backward.op(), backward.graph.tensors).value(), 5 * product);
  EXPECT_EQ(bytes_moved(backward.op(), backward.graph.tensors),
            Bytes(2 * 2 * 8 * 72 + 2 * 2 * 8 * 24 + 4 * 24));
}

TEST(OpTable, ComputeTypeIsThatOfTheOperands) {
  const Case c = parse(
      "tensor %0 x bf16[6,4] activation\ntensor %1 dy bf16[6,8] activation\ntensor %2 dw f32[4,8] "
      "gradient\n",
      "matmul backward (%0, %1) -> (%2) transpose_a=true accumulate=true");
  EXPECT_EQ(compute_dtype(c.op(), c.graph.tensors), DType::bf16);
  // 6 x 4 and 6 x 8 of two bytes read, 4 x 8 of four bytes read and written.
  EXPECT_EQ(bytes_moved(c.op(), c.graph.tensors), Bytes(2 * 24 + 2 * 48 + 2 * 4 * 32));
}

TEST(OpTable, CastOfMastersMovesTheOwnedPart) {
  const Case c =
      parse("tensor %0 m f32[3] master_parameter arena\ntensor %1 p bf16[12] parameter arena\n",
            "cast_parameters optimizer (%0) -> (%1)");
  ASSERT_TRUE(check_operands(c.op(), c.graph.tensors));
  EXPECT_EQ(bytes_moved(c.op(), c.graph.tensors), Bytes(3 * 4 + 3 * 2));
}

TEST(OpTable, AccumulatingOutputsAreReadAndWritten) {
  const Case c = parse("tensor %0 dy f32[6,4] activation\ntensor %1 db f32[4] gradient\n",
                       "bias_gradient backward (%0) -> (%1)");
  EXPECT_EQ(bytes_moved(c.op(), c.graph.tensors), Bytes(4 * (24 + 4 + 4)));
}

TEST(OpTable, EmbeddingBackwardAddsToRowsOfTheTablesType) {
  const Case c = parse(
      "tensor %0 dx bf16[6,4] activation\ntensor %1 tokens i32[6] activation\n"
      "tensor %2 dtable f32[10,4] gradient\n",
      "embedding_backward backward (%0, %1) -> (%2) vocabulary=10");
  ASSERT_TRUE(check_operands(c.op(), c.graph.tensors));
  // 6 x 4 of two bytes and 6 tokens read, 6 rows of four bytes read and written.
  EXPECT_EQ(bytes_moved(c.op(), c.graph.tensors), Bytes(2 * 24 + 4 * 6 + 2 * 4 * 24));
}

TEST(OpTable, AdamReadsFourArenasAndWritesThreeOfTheOwnedElements) {
  // 12 parameters sharded over 4 ranks: 3 owned elements, 7 passes of 4 bytes.
  const Case c = parse(
      "tensor %0 p f32[12] parameter arena\ntensor %1 g f32[12] gradient arena\ntensor %2 m f32[3] "
      "optimizer_state arena\n"
      "tensor %3 v f32[3] optimizer_state arena\ntensor %4 s f32[4] scalar\n",
      "adamw optimizer (%0, %1, %2, %3, %4) -> (%0, %2, %3)");
  EXPECT_EQ(bytes_moved(c.op(), c.graph.tensors), Bytes(7 * 4 * 3));
}

TEST(OpTable, FiniteChecksReadAndWriteWhatARankOwns) {
  const std::string tensors =
      "tensor %0 g f32[12] gradient arena\ntensor %1 s f32[8] scalar\n"
      "tensor %2 flag i32[1] activation\n";
  const std::string op = "check_finite optimizer (%0, %1) -> (%0, %2)";
  const Case whole = parse(tensors, op), owned = parse(tensors, op + " elements=5");
  EXPECT_EQ(bytes_moved(whole.op(), whole.graph.tensors), Bytes(2 * 4 * 12));
  EXPECT_EQ(bytes_moved(owned.op(), owned.graph.tensors), Bytes(2 * 4 * 5));
}

TEST(OpTable, IllegalShapesNameTheProblem) {
  const Case c = parse(
      "tensor %0 a f32[3,5] activation\ntensor %1 b f32[6,7] activation\ntensor %2 c f32[3,7] "
      "activation\n",
      "matmul forward (%0, %1) -> (%2)");
  EXPECT_EQ(check_operands(c.op(), c.graph.tensors).reason(), "inner dimensions differ: 5 and 6");
}

TEST(OpTable, EveryShapeRuleRefusesWhatBreaksIt) {
  struct Broken {
    std::string tensors, op, reason;
  };
  const std::string scalars = "tensor %4 s f32[8] scalar\n";
  const auto arenas = [&](int p, int g, int m, int v) {
    return fmt::format(
               "tensor %0 p f32[{}] parameter arena\ntensor %1 g f32[{}] gradient arena\n"
               "tensor %2 m f32[{}] optimizer_state arena\ntensor %3 v f32[{}] optimizer_state "
               "arena\n",
               p, g, m, v) +
           scalars;
  };
  const std::string adamw = "adamw optimizer (%0, %1, %2, %3, %4) -> (%0, %2, %3)";
  const std::vector<Broken> cases = {
      {"tensor %0 x f32[4,2] activation\ntensor %1 y bf16[4,2] activation\n",
       "gelu forward (%0) -> (%1)", "input 0 and output 0 differ in dtype"},
      {"tensor %0 x f32[4,2] activation\ntensor %1 b f32[3] parameter\ntensor %2 y f32[4,2] "
       "activation\n",
       "bias_add forward (%0, %1) -> (%2)", "operand bias is [3], not [r] with r = 2"},
      {"tensor %0 dy f32[4,2] activation\ntensor %1 db f32[4] gradient\n",
       "bias_gradient backward (%0) -> (%1)", "operand dbias is [4], not [r] with r = 2"},
      {"tensor %0 x f32[4,2] activation\ntensor %1 t f32[3,2] parameter\ntensor %2 y f32[4,2] "
       "activation\n",
       "position_add forward (%0, %1) -> (%2)", "x is not whole sequences of the table's rows"},
      {"tensor %0 max f32[4] activation\ntensor %1 stats f32[4] activation\ntensor %2 lse f32[4] "
       "activation\n"
       "tensor %3 s f32[8] scalar\n",
       "token_loss forward (%0, %1, %3) -> (%2, %3)", "operand stats is [4], not [n,2] with n = 4"},
      {arenas(12, 8, 9, 9), adamw, "parameters and gradients differ in size"},
      {arenas(12, 12, 3, 4), adamw, "moments are not one part of the parameters"},
      {"tensor %0 x f32[4] activation\n", "begin_step optimizer (%0) -> (%0)",
       "needs the step scalars"},
      {"tensor %0 g f32[4] gradient arena\ntensor %1 sum f32[2] activation\n",
       "squared_norm optimizer (%0) -> (%1)", "the squared norm is not one number"},
  };
  for (const Broken& broken : cases) {
    const Case c = parse(broken.tensors, broken.op);
    EXPECT_EQ(check_operands(c.op(), c.graph.tensors).reason(), broken.reason) << broken.op;
  }
}

}  // namespace
}  // namespace plimsoll
