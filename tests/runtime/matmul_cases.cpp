// Cases and reference of products: of linear layers and of attention.
#include "graph/op_table.h"
#include "tests/runtime/op_families.h"

namespace plimsoll {

namespace {

using Cases = std::vector<OpCase>;

void add_matmul(Cases& cases, std::string name, MatmulParams params, Shape a, Shape b, Shape c,
                std::int64_t bias = 0) {
  std::vector<Operand> inputs = {normal("a", std::move(a), 1), normal("b", std::move(b), 2)};
  if (bias > 0) inputs.push_back(normal("bias", {bias}, 3));
  const Operand out = params.accumulate ? normal("c", c, 4) : blank("c", c);
  cases.push_back(make_case("matmul/" + std::move(name), OpKind::matmul, params, inputs, {out}));
}

// Forward: x W + bias. Backward: dx = dy W^T, dW += x^T dy.
void add_linear_cases(Cases& cases, const OpSizes& z) {
  const std::int64_t n = z.tokens(), h = z.hidden(), f = z.ffn;
  const Shape qkv_weight = {h, 3, z.heads, z.depth}, qkv = {n, 3, z.heads, z.depth};
  add_matmul(cases, "fc1", {}, {n, h}, {h, f}, {n, f}, f);
  add_matmul(cases, "fc2", {}, {n, f}, {f, h}, {n, h});
  add_matmul(cases, "qkv", {}, {n, h}, qkv_weight, qkv, 3 * h);
  add_matmul(cases, "fc1_input_gradient", {.transpose_b = true}, {n, f}, {h, f}, {n, h});
  add_matmul(cases, "qkv_input_gradient", {.transpose_b = true}, qkv, qkv_weight, {n, h});
  add_matmul(cases, "fc1_weight_gradient", {.transpose_a = true, .accumulate = true}, {n, h},
             {n, f}, {h, f});
  add_matmul(cases, "qkv_weight_gradient", {.transpose_a = true, .accumulate = true}, {n, h}, qkv,
             qkv_weight);
  add_matmul(cases, "logits_tied", {.transpose_b = true}, {n, h}, {z.vocabulary, h},
             {n, z.vocabulary});
  add_matmul(cases, "both_transposed", {.transpose_a = true, .transpose_b = true}, {h, n}, {f, h},
             {n, f});
  add_matmul(cases, "scale_bias", {.scale = 0.25}, {n, h}, {h, f}, {n, f}, f);
  add_matmul(cases, "scale_bias_accumulate", {.accumulate = true, .scale = 0.25}, {n, h}, {h, f},
             {n, f}, f);
}

void add_batched_cases(Cases& cases, const OpSizes& z) {
  const Shape heads = {z.batch, z.heads, z.sequence, z.depth};
  const Shape scores = {z.batch, z.heads, z.sequence, z.sequence};
  const double scale = 0.125;
  add_matmul(cases, "scores", {.batch_dims = 2, .transpose_b = true, .scale = scale}, heads, heads,
             scores);
  add_matmul(cases, "context", {.batch_dims = 2}, scores, heads, heads);
  add_matmul(cases, "key_gradient", {.batch_dims = 2, .transpose_a = true, .scale = scale}, scores,
             heads, heads);
  add_matmul(cases, "batched_accumulate", {.batch_dims = 2, .accumulate = true}, scores, heads,
             heads);
}

void matmul(const Operands& o) {
  const auto& params = o.params<MatmulParams>();
  const MatmulShape shape = matmul_shape(o.c.op, o.c.tensors);
  const auto m = std::size_t(shape.m), n = std::size_t(shape.n), k = std::size_t(shape.k);
  for (std::size_t b = 0; b < std::size_t(shape.batch); ++b) {
    for (std::size_t i = 0; i < m; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        double sum = 0;
        for (std::size_t l = 0; l < k; ++l) {
          sum += o.in(0)[b * m * k + (params.transpose_a ? l * m + i : i * k + l)] *
                 o.in(1)[b * k * n + (params.transpose_b ? j * k + l : l * n + j)];
        }
        double& c = o.out(0)[(b * m + i) * n + j];
        const double bias = o.c.op.inputs.size() == 3 ? o.in(2)[j] : 0;
        c = (params.accumulate ? c : 0) + params.scale * sum + bias;
      }
    }
  }
}

constexpr OpReference kReferences[] = {
    {OpKind::matmul, matmul},
};

void add_cases(Cases& cases, const OpSizes& sizes) {
  add_linear_cases(cases, sizes);
  add_batched_cases(cases, sizes);
}

}  // namespace

const OpFamily kMatmulOps = {add_cases, kReferences};

}  // namespace plimsoll
