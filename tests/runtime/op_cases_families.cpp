// The op cases of ops that only some model families have.
#include <numeric>
#include <random>

#include "tests/runtime/op_cases.h"
#include "tests/runtime/op_reference.h"

namespace plimsoll {

namespace {

using Cases = std::vector<OpCase>;

void add_norms(Cases& cases, const OpSizes& z) {
  const Shape x = {z.tokens(), z.hidden()}, row = {z.hidden()}, column = {z.tokens()};
  cases.push_back(make_case("rms_norm", OpKind::rms_norm, NormParams{},
                            {normal("x", x, 1, 2), normal("gamma", row, 2)},
                            {blank("y", x), blank("rstd", column)}));
  cases.push_back(make_case(
      "rms_norm_backward", OpKind::rms_norm_backward, NormParams{},
      {normal("dy", x, 4), normal("x", x, 1, 2), normal("gamma", row, 2), result(cases.back(), 1)},
      {blank("dx", x), normal("dgamma", row, 5)}));
}

void add_rotary(Cases& cases, const OpSizes& z) {
  struct Form {
    const char* name;
    std::int64_t parts, rotated;
  };
  for (const Form& form : {Form{"fused", 3, 2}, Form{"queries", 1, 1}, Form{"keys_values", 2, 1}}) {
    const Shape shape = {z.tokens(), form.parts, z.heads, z.depth};
    const RotaryParams params{z.sequence, form.rotated, 10000};
    for (const OpKind kind : {OpKind::rotary, OpKind::rotary_backward}) {
      cases.push_back(make_case(std::string(to_text(kind)) + "/" + form.name, kind, params,
                                {normal("x", shape, 1)}, {blank("y", shape)}));
    }
  }
}

void add_swiglu(Cases& cases, const OpSizes& z) {
  const Shape gates = {z.tokens(), 2, z.ffn}, y = {z.tokens(), z.ffn};
  cases.push_back(
      make_case("swiglu", OpKind::swiglu, {}, {normal("x", gates, 1, 3)}, {blank("y", y)}));
  cases.push_back(make_case("swiglu_backward", OpKind::swiglu_backward, {},
                            {normal("dy", y, 1), normal("x", gates, 2, 3)}, {blank("dx", gates)}));
}

/// Sequences of the last of two replicas' second micro-batch.
void place_in_batch(OpCase& c, const OpSizes& z) {
  c.program.grid.degree[std::size_t(Axis::dp)] = 2;
  c.program.micro_batch = z.batch;
  c.program.micro_batches = 3;
  c.at[std::size_t(Axis::dp)] = 1;
  c.position = {7, 1, 2};
  c.global_batch = z.batch * 3 * 2;
}

void add_dropout(Cases& cases, const OpSizes& z) {
  const Shape x = {z.tokens(), z.hidden()};
  const Shape scores = {z.batch, z.heads, z.sequence, z.sequence};
  const DropoutParams params{0.3, 5, 2};
  const auto add = [&](const std::string& name, const Shape& shape, std::optional<Split> split) {
    OpCase c = make_case("dropout/" + name, OpKind::dropout, params, {normal("x", shape, 1)},
                         {blank("y", shape)});
    place_in_batch(c, z);
    for (Tensor& tensor : c.tensors) tensor.split = split;
    if (split) c.at[std::size_t(split->axis)] = split->degree - 1;
    cases.push_back(std::move(c));
  };
  add("activation", x, {});
  add("rows_split", x, Split{0, Axis::mp, 2});
  add("probabilities", scores, {});
  add("heads_split", scores, Split{1, Axis::mp, 3});
}

void add_masked(Cases& cases, const OpSizes& z) {
  const std::int64_t predicted = 2;
  const DataParams params{z.sequence, predicted, z.vocabulary, 3};
  for (const OpKind kind :
       {OpKind::load_masked_tokens, OpKind::load_masked_positions, OpKind::load_masked_targets}) {
    const std::int64_t count = kind == OpKind::load_masked_tokens ? z.sequence : predicted;
    OpCase c = make_case(std::string(to_text(kind)), kind, params, {},
                         {{"ids", {z.batch * count}, {}, DType::i32}});
    place_in_batch(c, z);
    for (std::int64_t i = 0; i < 7 * z.sequence; ++i)
      c.text.push_back(std::byte((i * 37 + i / 11) % 251));
    cases.push_back(std::move(c));
  }
  const Shape x = {z.tokens(), z.hidden()}, y = {z.batch * predicted, z.hidden()};
  Operand positions{"positions", {z.batch * predicted}, {}, DType::i32};
  for (std::int64_t i = 0; i < z.batch; ++i) {
    for (std::int64_t at : {std::int64_t{0}, z.sequence - 1}) {
      positions.values.push_back(double(i * z.sequence + at));
    }
  }
  cases.push_back(make_case("gather_rows", OpKind::gather_rows, {}, {normal("x", x, 1), positions},
                            {blank("y", y)}));
  cases.push_back(make_case("gather_rows_backward", OpKind::gather_rows_backward, {},
                            {normal("dy", y, 1), positions}, {blank("dx", x)}));
  const DataParams types{z.sequence};
  const Shape table = {2, z.hidden()};
  cases.push_back(make_case("token_type_add", OpKind::token_type_add, types,
                            {normal("x", x, 1), normal("table", table, 2)}, {blank("y", x)}));
  cases.push_back(make_case("token_type_add_backward", OpKind::token_type_add_backward, types,
                            {normal("dy", x, 1)}, {normal("dtable", table, 2)}));
}

/// Grouped queries: the op reads one or two parts instead of three.
void add_heads(Cases& cases, const OpSizes& z) {
  const AttentionParams fold{.sequence = z.sequence};
  const Shape q = {z.tokens(), 1, 2 * z.heads, z.depth}, kv = {z.tokens(), 2, z.heads, z.depth};
  const Shape queries = {z.batch, z.heads, 2 * z.sequence, z.depth};
  const Shape keys = {z.batch, z.heads, z.sequence, z.depth};
  cases.push_back(make_case("split_heads/queries", OpKind::split_heads, fold, {normal("q", q, 1)},
                            {blank("heads", queries)}));
  cases.push_back(make_case("split_heads/keys_values", OpKind::split_heads, fold,
                            {normal("kv", kv, 1)}, {blank("k", keys), blank("v", keys)}));
  cases.push_back(make_case("split_heads_backward/queries", OpKind::split_heads_backward, fold,
                            {normal("dheads", queries, 1)}, {blank("dq", q)}));
  cases.push_back(make_case("split_heads_backward/keys_values", OpKind::split_heads_backward, fold,
                            {normal("dk", keys, 1), normal("dv", keys, 2)}, {blank("dkv", kv)}));
  const Shape merged = {z.tokens(), 2 * z.hidden()};
  cases.push_back(make_case("merge_heads/grouped", OpKind::merge_heads, fold,
                            {normal("context", queries, 1)}, {blank("y", merged)}));
  cases.push_back(make_case("merge_heads_backward/grouped", OpKind::merge_heads_backward, fold,
                            {normal("dy", merged, 1)}, {blank("dcontext", queries)}));
}

void add_softmax(Cases& cases, const OpSizes& z) {
  const Shape scores = {z.batch, z.heads, 2 * z.sequence, z.sequence};
  for (const bool causal : {true, false}) {
    const AttentionParams params{.sequence = z.sequence, .causal = causal};
    const std::string suffix = causal ? "/grouped" : "/both_directions";
    cases.push_back(make_case("softmax" + suffix, OpKind::softmax, params,
                              {normal("scores", scores, 1, 3)}, {blank("p", scores)}));
    cases.push_back(make_case("softmax_backward" + suffix, OpKind::softmax_backward, params,
                              {normal("dp", scores, 2), result(cases.back(), 0)},
                              {blank("dscores", scores)}));
  }
}

}  // namespace

void add_family_cases(std::vector<OpCase>& cases, const OpSizes& sizes) {
  add_norms(cases, sizes);
  add_rotary(cases, sizes);
  add_swiglu(cases, sizes);
  add_dropout(cases, sizes);
  add_masked(cases, sizes);
  add_heads(cases, sizes);
  add_softmax(cases, sizes);
}

}  // namespace plimsoll
