// Cases of flash attention get sizes and expected values.
#include "tests/runtime/attention_cases.h"

#include <cmath>
#include <string>
#include <utility>

#include "tests/runtime/op_families.h"

namespace plimsoll {

std::vector<OpCase> flash_attention_cases(const AttentionSizes& z) {
  const std::int64_t tokens = z.batch * z.sequence;
  AttentionParams params{.sequence = z.sequence, .scale = 1 / std::sqrt(double(z.depth))};
  params.causal = z.causal;
  params.window = z.window;
  params.soft_cap = z.soft_cap;
  params.chunks = z.chunks;
  params.alibi_heads = z.alibi_heads;
  params.alibi_scale = 0.75;
  const std::int64_t value_depth = z.value_depth > 0 ? z.value_depth : z.depth;
  const std::string suffix = "/s" + std::to_string(z.sequence) + "_a" + std::to_string(z.heads) +
                             "_kv" + std::to_string(z.key_heads) + "_d" + std::to_string(z.depth) +
                             (z.causal ? "" : "_both_directions") + (z.apart ? "_apart" : "") +
                             (z.window > 0 ? "_w" + std::to_string(z.window) : "") +
                             (z.value_depth > 0 ? "_v" + std::to_string(z.value_depth) : "") +
                             (z.soft_cap > 0 ? "_capped" : "") + (z.chunks ? "_chunks" : "") +
                             (z.alibi_heads > 0 ? "_alibi" : "") + (z.examples ? "_examples" : "");
  std::vector<Operand> inputs, gradients;
  if (z.apart) {
    const Shape q = {tokens, 1, z.heads, z.depth}, key = {tokens, 1, z.key_heads, z.depth};
    const Shape value = {tokens, 1, z.key_heads, value_depth};
    inputs = {normal("q", q, 1), normal("k", key, 2), normal("v", value, 4)};
    gradients = {blank("dq", q), blank("dk", key), blank("dv", value)};
  } else if (z.value_depth > 0) {
    const Shape q = {tokens, 1, z.heads, z.depth};
    const Shape kv = {tokens, 1, z.key_heads, z.depth + value_depth};
    inputs = {normal("q", q, 1), normal("kv", kv, 2)};
    gradients = {blank("dq", q), blank("dkv", kv)};
  } else if (z.heads == z.key_heads) {
    const Shape qkv = {tokens, 3, z.heads, z.depth};
    inputs = {normal("qkv", qkv, 1)};
    gradients = {blank("dqkv", qkv)};
  } else {
    const Shape q = {tokens, 1, z.heads, z.depth}, kv = {tokens, 2, z.key_heads, z.depth};
    inputs = {normal("q", q, 1), normal("kv", kv, 2)};
    gradients = {blank("dq", q), blank("dkv", kv)};
  }
  const Shape y = {tokens, z.heads * value_depth};
  OpCase forward = make_case("flash_attention" + suffix, OpKind::flash_attention, params, inputs,
                             {blank("y", y), blank("log_sum_exp", {z.batch, z.heads, z.sequence})});
  if (z.examples) give_examples(forward, z.batch, z.sequence);
  std::vector<Operand> backward = {normal("dy", y, 3)};
  backward.insert(backward.end(), inputs.begin(), inputs.end());
  backward.push_back(result(forward, 0));
  backward.push_back(result(forward, 1));
  std::vector<OpCase> cases = {
      forward, make_case("flash_attention_backward" + suffix, OpKind::flash_attention_backward,
                         params, backward, gradients)};
  if (z.examples) give_examples(cases[1], z.batch, z.sequence);
  for (OpCase& c : cases)  // the second half of the heads
    c.at[std::size_t(Axis::mp)] = z.alibi_heads > z.heads ? 1 : 0;
  return cases;
}

std::vector<OpCase> attention_cases(bool examples) {
  std::vector<OpCase> cases;
  std::size_t number = 0;
  for (const AttentionSizes& sizes : std::vector<AttentionSizes>{
           {2, 5, 3, 3, 8},
           {1, 5, 4, 2, 8, false},
           {1, 150, 2, 2, 64},
           {1, 150, 2, 1, 64, false},
           {2, 70, 4, 2, 72},
           {1, 70, 4, 2, 64, true, 0, true},
           {1, 9, 3, 3, 8, true, 0, true},
           {1, 135, 2, 1, 128},
           {1, 300, 2, 1, 64, true, 40},
           {1, 200, 1, 1, 128, true, 100},
           {2, 9, 2, 2, 8, true, 1},
           {1, 50, 2, 1, 136, true, 20},
           {1, 66, 1, 1, 128, false},
           {1, 20, 2, 2, 136},
           {1, 17, 2, 1, 256},
           {1, 140, 2, 2, 192, true, 0, true, 128},
           {1, 70, 2, 1, 136, true, 30, true, 72},
           {1, 21, 2, 1, 16, true, 6, true, 24},
           {1, 140, 2, 2, 192, true, 0, false, 128},
           {1, 70, 2, 1, 136, true, 30, false, 72},
           {2, 21, 4, 2, 16, true, 0, false, 8},
           {1, 5, 2, 2, 8, true, 0, false, 24},
           {2, 19, 2, 1, 64, true, 0, false, 0, 1.5},
           {1, 300, 2, 1, 64, true, 70, false, 0, 0, true},
           {1, 23, 2, 2, 136, true, 7, false, 0, 0, true},
           {2, 70, 4, 2, 64, true, 0, false, 0, 0, false, 8},
           {1, 150, 6, 6, 8, true, 30, false, 0, 0, false, 6},
       }) {
    if (examples && !sizes.causal) continue;
    for (OpCase& c : flash_attention_cases(examples ? with_examples(sizes) : sizes)) {
      for (const DType type : {DType::bf16, DType::f16}) {
        // The kernels of both types are one source.
        if (type == DType::f16 && number % 3 != 0) continue;
        if (auto rounded = in_type(c, type)) cases.push_back(*std::move(rounded));
      }
      cases.push_back(std::move(c));
    }
    ++number;
  }
  return cases;
}

}  // namespace plimsoll
