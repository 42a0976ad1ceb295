// The float64 reference of every op kind the backends support.
#include "tests/runtime/op_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/op_table.h"
#include "tests/runtime/op_operands.h"
#include "tests/runtime/optimizer_cases.h"

namespace plimsoll {

namespace {

void load_ids(const Operands& o, std::size_t shift) {
  const OpCase& c = o.c;
  const Program& program = c.program;
  const std::int64_t sequence = o.params<DataParams>().sequence;
  const std::int64_t sharding = program.grid.degree[std::size_t(Axis::sharding)];
  const std::int64_t replica =
      c.at[std::size_t(Axis::dp)] * sharding + c.at[std::size_t(Axis::sharding)];
  Numbers& ids = o.out(0);
  for (std::int64_t i = 0; i < program.micro_batch; ++i) {
    const std::int64_t first =
        (replica * program.micro_batches + c.position.micro_batch) * program.micro_batch;
    const std::int64_t index = c.position.step * c.global_batch + first + i;
    const std::int64_t start = index * sequence % (std::int64_t(c.text.size()) - sequence - 1);
    for (std::int64_t j = 0; j < sequence; ++j) {
      ids[std::size_t(i * sequence + j)] = double(c.text[std::size_t(start + j) + shift]);
    }
  }
}

std::int64_t first_row(const Operands& o, std::int64_t rows) {
  return o.params<VocabularyParams>().split_degree == 1 ? 0 : o.c.at[std::size_t(Axis::mp)] * rows;
}

void embedding(const Operands& o) {
  const std::size_t rows = o.in_dim(1, 0), h = o.in_dim(1, 1);
  const std::int64_t first = first_row(o, std::int64_t(rows));
  for (std::size_t i = 0; i < o.in(0).size(); ++i) {
    const std::int64_t row = std::int64_t(o.in(0)[i]) - first;
    for (std::size_t j = 0; j < h; ++j) {
      const bool here = row >= 0 && row < std::int64_t(rows);
      o.out(0)[i * h + j] = here ? o.in(1)[std::size_t(row) * h + j] : 0;
    }
  }
}

void embedding_backward(const Operands& o) {
  const std::size_t rows = o.out_dim(0, 0), h = o.out_dim(0, 1);
  const std::int64_t first = first_row(o, std::int64_t(rows));
  for (std::size_t i = 0; i < o.in(1).size(); ++i) {
    const std::int64_t row = std::int64_t(o.in(1)[i]) - first;
    if (row < 0 || row >= std::int64_t(rows)) continue;
    for (std::size_t j = 0; j < h; ++j) o.out(0)[std::size_t(row) * h + j] += o.in(0)[i * h + j];
  }
}

void layer_norm(const Operands& o) {
  const std::size_t n = o.in_dim(0, 0), h = o.in_dim(0, 1);
  const Numbers& x = o.in(0);
  for (std::size_t i = 0; i < n; ++i) {
    double mean = 0, variance = 0;
    for (std::size_t j = 0; j < h; ++j) mean += x[i * h + j] / double(h);
    for (std::size_t j = 0; j < h; ++j) variance += std::pow(x[i * h + j] - mean, 2) / double(h);
    const double rstd = 1 / std::sqrt(variance + o.params<NormParams>().epsilon);
    o.out(1)[i] = mean;
    o.out(2)[i] = rstd;
    for (std::size_t j = 0; j < h; ++j) {
      o.out(0)[i * h + j] = (x[i * h + j] - mean) * rstd * o.in(1)[j] + o.in(2)[j];
    }
  }
}

void layer_norm_backward(const Operands& o) {
  const std::size_t n = o.in_dim(0, 0), h = o.in_dim(0, 1);
  const Numbers &dy = o.in(0), &x = o.in(1), &gamma = o.in(2), &mean = o.in(3), &rstd = o.in(4);
  for (std::size_t i = 0; i < n; ++i) {
    double sum = 0, dot = 0;
    const auto normal = [&](std::size_t j) { return (x[i * h + j] - mean[i]) * rstd[i]; };
    for (std::size_t j = 0; j < h; ++j) {
      sum += dy[i * h + j] * gamma[j];
      dot += dy[i * h + j] * gamma[j] * normal(j);
    }
    for (std::size_t j = 0; j < h; ++j) {
      const double g = dy[i * h + j] * gamma[j];
      o.out(0)[i * h + j] = rstd[i] * (g - sum / double(h) - normal(j) * dot / double(h));
      o.out(1)[j] += dy[i * h + j] * normal(j);
      o.out(2)[j] += dy[i * h + j];
    }
  }
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

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

double gelu_slope(double x) {
  const double inner = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  const double inner_slope = std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
  return 0.5 * (1 + std::tanh(inner)) + 0.5 * x * inner_slope / std::pow(std::cosh(inner), 2);
}

/// Index into tokens [b,s,parts,a,d] of element (b,a,s,d) of part `part`; heads may be grouped:
/// [b,kv,g*s,d] with a = kv*g.
template <class Visit>
void for_each_head_element(const Operands& o, const Shape& heads, std::size_t parts,
                           std::size_t part, Visit visit) {
  const auto S = std::size_t(o.params<AttentionParams>().sequence);
  const auto B = std::size_t(heads[0]), A = std::size_t(heads[1] * heads[2]) / S,
             D = std::size_t(heads[3]);
  for (std::size_t b = 0; b < B; ++b) {
    for (std::size_t a = 0; a < A; ++a) {
      for (std::size_t s = 0; s < S; ++s) {
        for (std::size_t d = 0; d < D; ++d) {
          visit(((b * A + a) * S + s) * D + d, (((b * S + s) * parts + part) * A + a) * D + d);
        }
      }
    }
  }
}

void split_heads(const Operands& o, std::size_t parts) {
  for (std::size_t part = 0; part < parts; ++part) {
    for_each_head_element(
        o, o.c.output(part).shape, parts, part,
        [&](std::size_t heads, std::size_t tokens) { o.out(part)[heads] = o.in(0)[tokens]; });
  }
}

void merge_heads(const Operands& o, std::size_t parts) {
  for (std::size_t part = 0; part < parts; ++part) {
    for_each_head_element(
        o, o.c.input(part).shape, parts, part,
        [&](std::size_t heads, std::size_t tokens) { o.out(0)[tokens] = o.in(part)[heads]; });
  }
}

void softmax(const Operands& o) {
  const auto s = std::size_t(o.c.input(0).shape.back());
  const bool causal = o.params<AttentionParams>().causal;
  for (std::size_t row = 0; row < o.in(0).size() / s; ++row) {
    const std::size_t seen = causal ? row % s + 1 : s;
    double sum = 0;
    for (std::size_t j = 0; j < seen; ++j) sum += std::exp(o.in(0)[row * s + j]);
    for (std::size_t j = 0; j < s; ++j) {
      o.out(0)[row * s + j] = j < seen ? std::exp(o.in(0)[row * s + j]) / sum : 0;
    }
  }
}

void softmax_backward(const Operands& o) {
  const auto s = std::size_t(o.c.input(0).shape.back());
  const Numbers &dp = o.in(0), &p = o.in(1);
  for (std::size_t row = 0; row < p.size() / s; ++row) {
    double dot = 0;
    for (std::size_t j = 0; j < s; ++j) dot += dp[row * s + j] * p[row * s + j];
    for (std::size_t j = 0; j < s; ++j) {
      o.out(0)[row * s + j] = p[row * s + j] * (dp[row * s + j] - dot);
    }
  }
}

/// Visits the logits of row i that belong to real vocabulary columns: visit(column, global column).
template <class Visit>
void for_each_logit(const Operands& o, Visit visit) {
  const std::size_t v = o.in_dim(0, 1);
  const std::int64_t first = first_row(o, std::int64_t(v));
  for (std::size_t j = 0; j < v; ++j) {
    const std::int64_t global = first + std::int64_t(j);
    if (global < o.params<VocabularyParams>().vocabulary) visit(j, global);
  }
}

void logits_max(const Operands& o) {
  const std::size_t n = o.in_dim(0, 0), v = o.in_dim(0, 1);
  for (std::size_t i = 0; i < n; ++i) {
    double& max = o.out(0)[i];
    max = -std::numeric_limits<double>::infinity();
    for_each_logit(o,
                   [&](std::size_t j, std::int64_t) { max = std::max(max, o.in(0)[i * v + j]); });
  }
}

void logits_sum_exp(const Operands& o) {
  const std::size_t n = o.in_dim(0, 0), v = o.in_dim(0, 1);
  for (std::size_t i = 0; i < n; ++i) {
    double sum = 0, target = 0;
    for_each_logit(o, [&](std::size_t j, std::int64_t global) {
      const double shifted = o.in(0)[i * v + j] - o.in(1)[i];
      sum += std::exp(shifted);
      if (global == std::int64_t(o.in(2)[i])) target = shifted;
    });
    o.out(0)[2 * i] = sum;
    o.out(0)[2 * i + 1] = target;
  }
}

void token_loss(const Operands& o) {
  double loss = 0;
  for (std::size_t i = 0; i < o.in(0).size(); ++i) {
    o.out(0)[i] = o.in(0)[i] + std::log(o.in(1)[2 * i]);
    loss +=
        o.params<VocabularyParams>().loss_weight * (std::log(o.in(1)[2 * i]) - o.in(1)[2 * i + 1]);
  }
  o.out(1)[std::size_t(Scalar::loss)] += loss;
}

void cross_entropy_backward(const Operands& o) {
  const std::size_t n = o.in_dim(0, 0), v = o.in_dim(0, 1);
  const bool scales = o.c.op.inputs.size() == 4;
  const double weight = o.params<VocabularyParams>().loss_weight * (scales ? o.in(3)[0] : 1);
  const Numbers logits = o.in(0);
  std::fill(o.out(0).begin(), o.out(0).end(), 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    for_each_logit(o, [&](std::size_t j, std::int64_t global) {
      const double hit = global == std::int64_t(o.in(1)[i]) ? 1 : 0;
      o.out(0)[i * v + j] = weight * (std::exp(logits[i * v + j] - o.in(2)[i]) - hit);
    });
  }
}

/// out(0)[i] = f(i), or += where the op accumulates.
template <class Function>
void each(const Operands& o, Function f) {
  for (std::size_t i = 0; i < o.out(0).size(); ++i) o.out(0)[i] = f(i);
}

/// out(0)[i mod its size] += in(0)[i]: gradient of something that was broadcast.
void sum_over_rows(const Operands& o) {
  for (std::size_t i = 0; i < o.in(0).size(); ++i) o.out(0)[i % o.out(0).size()] += o.in(0)[i];
}

}  // namespace

void run_reference(const OpCase& c, Values& values) {
  if (run_optimizer_reference(c, values)) return;
  const Operands o{c, values};
  if (run_attention_reference(o)) return;
  switch (c.op.kind) {
    case OpKind::load_tokens:
      return load_ids(o, 0);
    case OpKind::load_targets:
      return load_ids(o, 1);
    case OpKind::embedding:
      return embedding(o);
    case OpKind::embedding_backward:
      return embedding_backward(o);
    case OpKind::position_add:
    case OpKind::bias_add:
      return each(o, [&](std::size_t i) { return o.in(0)[i] + o.in(1)[i % o.in(1).size()]; });
    case OpKind::position_add_backward:
    case OpKind::bias_gradient:
      return sum_over_rows(o);
    case OpKind::layer_norm:
      return layer_norm(o);
    case OpKind::layer_norm_backward:
      return layer_norm_backward(o);
    case OpKind::matmul:
      return matmul(o);
    case OpKind::gelu:
      return each(o, [&](std::size_t i) { return gelu(o.in(0)[i]); });
    case OpKind::gelu_backward:
      return each(o, [&](std::size_t i) { return o.in(0)[i] * gelu_slope(o.in(1)[i]); });
    case OpKind::squared_relu:
      return each(o, [&](std::size_t i) { return std::pow(std::max(o.in(0)[i], 0.0), 2); });
    case OpKind::squared_relu_backward:
      return each(o, [&](std::size_t i) { return 2 * std::max(o.in(1)[i], 0.0) * o.in(0)[i]; });
    case OpKind::add:
      return each(o, [&](std::size_t i) { return o.in(0)[i] + o.in(1)[i]; });
    case OpKind::own_part:
      return each(o, [&](std::size_t i) {
        const auto part = std::size_t(o.c.at[std::size_t(Axis::mp)]);
        return o.in(0)[part * std::size_t(elements(o.c.output(0).shape)) + i];
      });
    case OpKind::split_heads:
      return split_heads(o, c.op.outputs.size());
    case OpKind::split_heads_backward:
      return merge_heads(o, c.op.inputs.size());
    case OpKind::merge_heads:
      return merge_heads(o, 1);
    case OpKind::merge_heads_backward:
      return split_heads(o, 1);
    case OpKind::softmax:
      return softmax(o);
    case OpKind::softmax_backward:
      return softmax_backward(o);
    case OpKind::logits_max:
      return logits_max(o);
    case OpKind::logits_sum_exp:
      return logits_sum_exp(o);
    case OpKind::token_loss:
      return token_loss(o);
    case OpKind::cross_entropy_backward:
      return cross_entropy_backward(o);
    case OpKind::cast:
      return each(o, [&](std::size_t i) { return o.in(0)[i]; });
    case OpKind::fill:
      return each(o, [&](std::size_t) { return o.params<FillParams>().value; });
    default:
      INVARIANT(run_family_reference(o), "no reference for " + std::string(to_text(c.op.kind)));
  }
}

}  // namespace plimsoll
