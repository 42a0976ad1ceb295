// Ops of attention and of experts: a legal op passes, and one changed operand or parameter is
// refused with the rule that it breaks.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "graph/op_table.h"
#include "tests/graph/text_reader.h"

namespace plimsoll {
namespace {

/// Operand `operand` gets this type; where it is below 0, the parameters are these instead.
struct Change {
  int operand;
  std::string to, reason;
};

struct Rule {
  std::string op;                  ///< kind, phase and operands
  std::vector<std::string> types;  ///< of operands 0, 1 ...
  std::string params;
  std::vector<Change> changes;
};

std::string reason(const Rule& rule) {
  std::string text = "graph g\n";
  for (std::size_t i = 0; i < rule.types.size(); ++i)
    text += fmt::format("tensor %{0} t{0} {1} activation\n", i, rule.types[i]);
  text += fmt::format("op {} {}\n", rule.op, rule.params);
  const Graph graph = parse_graph(text, "case");
  return check_operands(graph.ops[0], graph.tensors).reason();
}

void expect_refusals(const std::vector<Rule>& rules) {
  for (const Rule& rule : rules) {
    EXPECT_EQ(reason(rule), "") << rule.op;
    for (const Change& change : rule.changes) {
      Rule changed = rule;
      (change.operand < 0 ? changed.params : changed.types[std::size_t(change.operand)]) =
          change.to;
      EXPECT_EQ(reason(changed), change.reason) << rule.op << ", " << change.to;
    }
  }
}

TEST(AttentionChecks, EachRuleRefusesWhatBreaksIt) {
  expect_refusals({
      {"split_heads forward (%0) -> (%1, %2, %3)",
       {"f32[8,3,3,8]", "f32[2,3,4,8]", "f32[2,3,4,8]", "f32[2,3,4,8]"},
       "sequence=4",
       {{1, "f32[2,3,32]", "heads are not [b,a,s,d]"},
        {2, "f32[2,3,8,8]", "inputs and outputs differ in size"},
        {0, "f32[8,9,8]", "the packed heads are not [n,parts,a,d]"},
        {-1, "sequence=3", "sequence parameter does not match the shape"}}},
      {"flash_attention forward (%0) -> (%1, %2)",
       {"f32[8,3,3,8]", "f32[8,24]", "f32[2,3,4]"},
       "sequence=4",
       {{0, "f32[8,2,3,8]", "qkv is not [n,3,a,d]"},
        {1, "f32[8,16]", "y is not [n,a*d]"},
        {2, "f32[2,3,5]", "log_sum_exp is not f32 [b,a,s]"},
        {2, "bf16[2,3,4]", "log_sum_exp is not f32 [b,a,s]"},
        {-1, "sequence=3", "qkv is not whole sequences"},
        {-1, "sequence=4 window=2 causal=false", "window is not one of causal attention"},
        {-1, "sequence=4 window=-1", "window is not one of causal attention"},
        {-1, "sequence=4 chunks=true", "window is not one of causal attention"},
        {-1, "sequence=4 key_ranks=0", "the keys are not those of one rank of a ring, or of all"},
        {-1, "sequence=4 key_ranks=2 round=1",
         "the keys are not those of one rank of a ring, or of all"},
        {-1, "sequence=4 soft_cap=-1", "soft_cap is below 0"},
        {-1, "sequence=4 alibi_heads=-1", "alibi_heads is below 0"},
        {-1, "sequence=4 within_examples=0.5 causal=false",
         "within_examples is no share of causal scores"},
        {-1, "sequence=4 within_examples=1.5", "within_examples is no share of causal scores"}}},
      {"flash_attention forward (%0, %1) -> (%2, %3)",
       {"f32[8,1,4,8]", "f32[8,2,2,8]", "f32[8,32]", "f32[2,4,4]"},
       "sequence=4",
       {{0, "f32[8,2,4,8]", "q is not [n,1,a,d]"},
        {1, "f32[8,2,3,8]", "kv is not [n,2,kv,d] or [n,1,kv,d+e] with kv dividing a"},
        {1, "f32[8,2,2,4]", "kv is not [n,2,kv,d] or [n,1,kv,d+e] with kv dividing a"},
        {1, "f32[8,1,2,8]", "kv is not [n,2,kv,d] or [n,1,kv,d+e] with kv dividing a"},
        {1, "f32[9,2,2,8]", "kv is not [n,2,kv,d] or [n,1,kv,d+e] with kv dividing a"}}},
      {"flash_attention forward (%0, %1, %2) -> (%3, %4)",
       {"f32[8,1,4,8]", "f32[8,1,2,8]", "f32[8,1,2,4]", "f32[8,16]", "f32[2,4,4]"},
       "sequence=4",
       {{1, "f32[8,2,2,8]", "the key is not [n,1,kv,d] with kv dividing a"},
        {2, "f32[8,1,1,4]", "the value is not like the key"},
        {2, "f32[4,1,2,4]", "the value is not like the key"}}},
      {"flash_attention_backward backward (%1, %0, %1, %2) -> (%3)",
       {"f32[8,3,3,8]", "f32[8,24]", "f32[2,3,4]", "f32[8,3,3,8]"},
       "sequence=4",
       {}},
      {"softmax forward (%0, %1) -> (%2)",
       {"f32[2,3,4,4]", "f32[3]", "f32[2,3,4,4]"},
       "sequence=4",
       {{0, "f32[2,3,4,5]", "scores are not [b,a,s,s]"},
        {1, "f32[2]", "there is not one sink for each head"},
        {2, "bf16[2,3,4,4]", "scores and probabilities differ in size or dtype"},
        {-1, "sequence=4 window=2 causal=false", "window is not one of causal attention"},
        {-1, "sequence=4 alibi_heads=-1", "alibi_heads is below 0"},
        {-1, "sequence=4 within_examples=0.5 causal=false",
         "within_examples is no share of causal scores"},
        {-1, "sequence=4 within_examples=1.5", "within_examples is no share of causal scores"}}},
      {"softmax_sinks_gradient backward (%0, %1) -> (%2)",
       {"f32[2,3,4,4]", "f32[2,3,4,4]", "f32[3]"},
       "",
       {{1, "f32[2,3,4,5]", "probabilities and their gradient are not [b,a,s,s]"},
        {2, "f32[2]", "there is not one sink for each head"}}},
      {"add_sinks forward (%0, %1, %2) -> (%3, %4)",
       {"f32[8,24]", "f32[2,3,4]", "f32[3]", "f32[8,24]", "f32[2,3,4]"},
       "",
       {{3, "bf16[8,24]", "y is not like x"},
        {4, "f32[2,3,5]", "the sums differ in shape"},
        {2, "f32[5]", "y and sums are not [n,a*d] and f32 [b,a,s] for sinks [a]"}}},
      {"sinks_gradient backward (%0, %1, %2, %3) -> (%4)",
       {"f32[8,24]", "f32[8,24]", "f32[2,3,4]", "f32[3]", "f32[3]"},
       "",
       {{0, "f32[8,12]", "dy is not like y"},
        {2, "bf16[2,3,4]", "y and sums are not [n,a*d] and f32 [b,a,s] for sinks [a]"},
        {4, "f32[4]", "there is not one gradient for each sink"}}},
      {"merge_attention forward (%0, %1, %2, %3) -> (%0, %1)",
       {"f32[8,24]", "f32[2,3,4]", "f32[8,24]", "f32[2,3,4]"},
       "",
       {{2, "f32[8,12]", "operand other_y is [8,12], not [n,h] with n = 8, h = 24"},
        {3, "bf16[2,3,4]", "input 3 is not like what they are merged into"}}},
      {"soft_cap forward (%0) -> (%0)",
       {"f32[8]"},
       "limit=2",
       {{-1, "limit=0", "the limit is not above 0"}}},
      {"rotary forward (%0) -> (%0)",
       {"f32[8,3,4,8]"},
       "sequence=4 rotated=2",
       {{0, "f32[8,3,4,7]", "x is not [n,parts,a,d] with even d"},
        {-1, "sequence=4 rotated=4", "rotated is not within parts"},
        {-1, "sequence=4 rotated=0", "rotated is not within parts"},
        {-1, "sequence=4 rotated=1 growth=-1", "growth, its span or what is ahead is below 0"},
        {-1, "sequence=4 rotated=1 growth_span=-1", "growth, its span or what is ahead is below 0"},
        {-1, "sequence=4 rotated=2 width=3", "width is not an even part of d"},
        {-1, "sequence=4 rotated=2 width=10", "width is not an even part of d"},
        {-1, "sequence=3 rotated=2", "x is not whole sequences"}}},
  });
}

TEST(AttentionChecks, PartsAndHeadsFitTheWhole) {
  expect_refusals({
      {"split_parts forward (%0) -> (%1, %2)",
       {"f32[8,3,3,8]", "f32[8,1,3,8]", "f32[8,2,3,8]"},
       "",
       {{0, "f32[8,9,8]", "qkv is not [n,3,a,d]"},
        {2, "f32[8,6,8]", "a part is not [n,parts,a,d]"},
        {2, "bf16[8,2,3,8]", "a part and the whole differ in dtype"},
        {2, "f32[8,2,3,4]", "a part and the whole differ in more than parts"},
        {2, "f32[8,1,3,8]", "the parts are not all of it"}}},
      {"join_parts backward (%0, %1) -> (%2)",
       {"f32[8,1,3,8]", "f32[8,1,3,4]", "f32[8,1,3,12]"},
       "",
       {{1, "f32[8,1,2,4]", "a part and the whole differ in more than columns"}}},
      {"group_heads forward (%0) -> (%1)",
       {"f32[4,3,4,8]", "f32[8,3,2,8]"},
       "",
       {{1, "f32[8,24]", "heads are not [n,parts,a,d], nor columns [n,h]"},
        {1, "f32[8,3,4,8]", "the grouped heads are not those of each rank"},
        {1, "bf16[8,3,2,8]", "input 0 and output 0 differ in dtype"}}},
      {"share_rope_key forward (%0, %1) -> (%2, %3)",
       {"f32[8,1,4,12]", "f32[8,1,1,4]", "f32[8,1,4,8]", "f32[8,1,4,8]"},
       "",
       {{1, "f32[8,1,4,4]", "the rope key is not [n,1,1,p]"},
        {3, "f32[8,1,2,8]", "heads are not [n,1,a,d]"},
        {2, "bf16[8,1,4,8]", "keys and values differ in dtype"},
        {3, "f32[8,1,4,4]", "columns of keys and values are not those of kv and the rope key"}}},
  });
}

TEST(ExpertChecks, EachRuleOfRoutersRefusesWhatBreaksIt) {
  expect_refusals({
      {"route forward (%0, %1) -> (%2, %3)",
       {"f32[8,4]", "f32[4]", "f32[8,2]", "i32[8,2]"},
       "groups=2 top_groups=1 group_best=1",
       {{3, "i32[8,3]", "operand experts is [8,3], not [n,k] with n = 8, k = 2"},
        {1, "f32[3]", "operand bias is [3], not [e] with e = 4"},
        {-1, "groups=3", "groups do not divide the experts"},
        {-1, "groups=2 top_groups=3", "top_groups is not from 1 to the number of groups"},
        {-1, "groups=2 group_best=3", "group_best is not from 1 to the experts of a group"}}},
      {"count_choices forward (%0) -> (%1)",
       {"i32[8,2]", "f32[4]"},
       "",
       {{0, "f32[8,2]", "experts is f32, which it cannot be"}}},
      {"join_tokens forward (%0, %1) -> (%2)",
       {"f32[4,6]", "f32[2,5]", "f32[34]"},
       "",
       {{0, "f32[5]", "a does not have as many values for each row of b"},
        {2, "f32[33]", "the whole is not as large as its parts"}}},
      {"balance_experts forward (%0, %1, %2) -> (%3)",
       {"f32[8,2]", "f32[8,4]", "f32[2,4]", "f32[8,2]"},
       "sequence=4 sequences=1",
       {{2, "f32[2,3]", "operand counts is [2,3], not [b,e] with b = 2, e = 4"},
        {3, "f32[8,3]", "operand y is [8,3], not [n,k] with n = 8, k = 2"},
        {-1, "sequence=0 sequences=1", "sequences have no length"},
        {-1, "sequence=4 sequences=0", "a loss is over no sequence"}}},
      {"balance_experts_backward backward (%0, %1) -> (%2)",
       {"f32[8,4]", "f32[2,4]", "f32[8,4]"},
       "sequence=4 sequences=1",
       {{2, "f32[8,3]", "operand dlogits is [8,3], not [n,e] with n = 8, e = 4"}}},
      {"limit_choices forward (%0) -> (%1, %2)",
       {"i32[8,2]", "f32[2,4]", "i32[8,2]"},
       "sequence=4 capacity=2 ranks=1",
       {{1, "f32[3,4]", "counts are not [b,e]"},
        {2, "i32[8,3]", "kept choices are not those of a rank's tokens"},
        {-1, "sequence=3 ranks=1", "the tokens are not whole sequences"},
        {-1, "sequence=4 capacity=-1 ranks=1", "capacity or ranks are negative"}}},
  });
}

TEST(ExpertChecks, EachRuleOfRowsRefusesWhatBreaksIt) {
  expect_refusals({
      {"place_choices forward (%0) -> (%1, %2)",
       {"i32[8,2]", "i32[8,2]", "i32[4]"},
       "parts=1 rows=16",
       {{1, "i32[8,3]", "operand rows is [8,3], not [n,k] with n = 8, k = 2"},
        {-1, "parts=0 rows=16", "parts or rows are not positive"}}},
      {"received_ends forward (%0) -> (%1)",
       {"i32[2,4]", "i32[2]"},
       "parts=2 rows=16",
       {{1, "i32[3]", "ends are not of a part of the experts"},
        {-1, "parts=2 rows=0", "rows are not positive"}}},
      {"exchange_rows forward (%0, %1) -> (%2)",
       {"f32[16,8]", "i32[2,4]", "f32[20,8]"},
       "group=mp",
       {{1, "i32[2,3]", "the experts are not equal parts for the ranks"},
        {1, "i32[8]", "ends are not [g,e]"},
        {2, "f32[20,4]", "rows change their length"},
        {-1, "group=none", "group has no axes"}}},
      {"dispatch_rows forward (%0, %1, %2) -> (%3, %4)",
       {"f32[8,6]", "i32[8,2]", "f32[8,2]", "f32[16,6]", "f32[16]"},
       "",
       {{2, "f32[8,3]", "operand weights is [8,3], not [n,k] with n = 8, k = 2"},
        {3, "f32[16,4]", "operand y is [16,4], not [m,h] with m = 16, h = 6"},
        {4, "f32[8]", "operand row_weights is [8], not [m] with m = 16"}}},
      {"combine_rows forward (%0, %1) -> (%2)",
       {"f32[16,6]", "i32[8,2]", "f32[8,6]"},
       "",
       {{1, "i32[4,2]", "operand x is [8,6], not [n,h] with n = 4, h = 6"},
        {0, "f32[16,4]", "operand x is [8,6], not [n,h] with n = 8, h = 4"}}},
      {"grouped_matmul forward (%0, %1, %2) -> (%3)",
       {"f32[16,6]", "f32[4,6,5]", "i32[4]", "f32[16,5]"},
       "",
       {{2, "i32[3]", "operand ends is [3], not [e] with e = 4"},
        {0, "f32[16,7]", "operand weight is [4,6,5], not [e,h,f] with e = 4, h = 7"},
        {3, "f32[16,4]", "operand y is [16,4], not [m,f] with m = 16, f = 5"}}},
      {"grouped_matmul forward (%0, %1, %2) -> (%3)",
       {"f32[16,6]", "f32[4,6,2,5]", "i32[4]", "f32[16,2,5]"},
       "",
       {{3, "f32[16,2,4]", "operand y is [16,2,4], not [m,f] with m = 16, f = 10"}}},
      {"swiglu_backward backward (%0, %1, %2) -> (%3, %4)",
       {"f32[16,5]", "f32[16,2,5]", "f32[16]", "f32[16,2,5]", "f32[16]"},
       "",
       {{1, "f32[16,3,5]", "operand x is [16,3,5], not [n,2,h] with n = 16, h = 5"}}},
      {"grouped_bias_add forward (%0, %1, %2, %3) -> (%4)",
       {"f32[16,5]", "f32[4,5]", "i32[4]", "f32[16]", "f32[16,5]"},
       "ranks=1",
       {{1, "f32[4]", "operand bias is [4], not [e,f] with e = 4, f = 5"},
        {1, "f32[4,6]", "operand bias is [4,6], not [e,f] with e = 4, f = 5"},
        {3, "f32[15]", "operand weights is [15], not [m] with m = 16"},
        {4, "f32[16,4]", "operand y is [16,4], not [m,f] with m = 16, f = 5"},
        {-1, "ranks=0", "ranks are not positive"}}},
      {"grouped_bias_backward backward (%0, %1, %2, %3) -> (%4, %5)",
       {"f32[16,5]", "f32[4,5]", "i32[4]", "f32[16]", "f32[4,5]", "f32[16]"},
       "ranks=1",
       {{4, "f32[4,6]", "operand dbias is [4,6], not [e,f] with e = 4, f = 5"}}},
      {"scale_rows forward (%0, %1) -> (%2)",
       {"f32[16,5]", "f32[16]", "f32[16,5]"},
       "",
       {{2, "f32[16,4]", "operand y is [16,4], not [m,h] with m = 16, h = 5"},
        {1, "f32[15]", "operand weights is [15], not [m] with m = 16"}}},
  });
}

TEST(ExpertChecks, OptionalOperandsHaveTheirGradients) {
  const Rule rule{"swiglu_backward backward (%0, %1, %2) -> (%3)",
                  {"f32[16,5]", "f32[16,2,5]", "f32[16]", "f32[16,2,5]"},
                  "",
                  {}};
  EXPECT_EQ(reason(rule), "operand weights has a gradient if it is there");
}

}  // namespace
}  // namespace plimsoll
