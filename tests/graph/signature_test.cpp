// Signatures are read from text, with optional and repeated operands.
#include "graph/signature.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

constexpr Signature kSignature =
    "x [n,h], rows i32<s> [b], first f32? , second? -> y [n,h], mask u8 [n,h], dgamma [h] +=, x";

TEST(Signature, HasNamesShapesAndTypes) {
  const OperandList &in = kSignature.inputs, &out = kSignature.outputs;
  EXPECT_EQ(in.count, 4u);
  EXPECT_EQ(in[0].name, "x");
  EXPECT_EQ(in[0].shape, "n,h");
  EXPECT_EQ(in[0].type, OperandType::value);
  EXPECT_EQ(in[1].type, OperandType::i32);
  EXPECT_EQ(in[1].below, "s");
  EXPECT_EQ(in[2].type, OperandType::f32);
  EXPECT_EQ(out[1].type, OperandType::u8);
  EXPECT_EQ(out.accumulates, 0b100u);
  EXPECT_EQ(out[3].shape, "n,h");  // the input of that name
  EXPECT_EQ(in.find("second"), 3u);
  EXPECT_FALSE(in.find("third"));
}

TEST(Signature, OptionalOperandsMayBeMissing) {
  const OperandList& in = kSignature.inputs;
  EXPECT_EQ(in.least(), 2u);
  EXPECT_EQ(in.most(), 4u);
  EXPECT_EQ(kSignature.outputs.least(), 4u);
}

TEST(Signature, OperandsBehindAMissingOneMoveUp) {
  constexpr Signature signature = "dy, q, kv?, y, sums f32 -> dq, dkv?";
  EXPECT_EQ(signature.inputs.position(2, 5), 2u);
  EXPECT_EQ(signature.inputs.position(1, 4), 1u);
  EXPECT_EQ(signature.inputs.position(2, 4), 3u);
  EXPECT_EQ(signature.inputs.position(3, 4), 4u);
  EXPECT_EQ(signature.inputs.index(4, 4), 3u);
  EXPECT_FALSE(signature.inputs.index(2, 4));
}

TEST(Signature, TheLastOperandMayBeRepeated) {
  constexpr Signature signature = "x f32 [n] ... -> sum f32 [1]";
  EXPECT_EQ(signature.inputs.least(), 1u);
  EXPECT_EQ(signature.inputs.most(), OperandList::kMostRepeats);
  EXPECT_EQ(signature.inputs.position(700, 800), 0u);
}

TEST(Signature, MayHaveNoInputsOrOutputs) {
  constexpr Signature source = "-> x [n]", sink = "x ->";
  EXPECT_EQ(source.inputs.count, 0u);
  EXPECT_EQ(source.outputs.count, 1u);
  EXPECT_EQ(sink.outputs.count, 0u);
}

TEST(SignatureDeathTest, RefusesWhatIsNone) {
  for (const char* text : {"x", "x [n -> y", "x -> y]", "x ..., z -> y", "x?, y, z? -> a",
                           "a, b, c, d, e, f, g -> h", ", -> x"}) {
    EXPECT_DEATH(Signature::read(text), "not a text of the op table") << text;
  }
}

}  // namespace
}  // namespace plimsoll
