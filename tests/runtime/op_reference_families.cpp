// The float64 reference of the ops that only some model families have: RMS norm, rotary embeddings,
// SwiGLU, dropout, masked language model.
#include <cmath>

#include "runtime/philox.h"
#include "tests/runtime/op_operands.h"
#include "tests/runtime/op_reference.h"

namespace plimsoll {

namespace {

void rms_norm(const Operands& o) {
  const std::size_t n = o.in_dim(0, 0), h = o.in_dim(0, 1);
  for (std::size_t i = 0; i < n; ++i) {
    double squares = 0;
    for (std::size_t j = 0; j < h; ++j) squares += std::pow(o.in(0)[i * h + j], 2) / double(h);
    const double rstd = 1 / std::sqrt(squares + o.params<NormParams>().epsilon);
    o.out(1)[i] = rstd;
    for (std::size_t j = 0; j < h; ++j)
      o.out(0)[i * h + j] = o.in(0)[i * h + j] * rstd * o.in(1)[j];
  }
}

void rms_norm_backward(const Operands& o) {
  const std::size_t n = o.in_dim(0, 0), h = o.in_dim(0, 1);
  const Numbers &dy = o.in(0), &x = o.in(1), &gamma = o.in(2), &rstd = o.in(3);
  for (std::size_t i = 0; i < n; ++i) {
    double dot = 0;
    for (std::size_t j = 0; j < h; ++j) dot += dy[i * h + j] * gamma[j] * x[i * h + j] * rstd[i];
    for (std::size_t j = 0; j < h; ++j) {
      const double normal = x[i * h + j] * rstd[i];
      o.out(0)[i * h + j] = rstd[i] * (dy[i * h + j] * gamma[j] - normal * dot / double(h));
      o.out(1)[j] += dy[i * h + j] * normal;
    }
  }
}

/// Pairs (i, i + d/2) of the rotated parts as complex numbers, turned by `direction` x angle.
void rotary(const Operands& o, double direction) {
  const auto& params = o.params<RotaryParams>();
  const std::size_t parts = o.in_dim(0, 1), heads = o.in_dim(0, 2), d = o.in_dim(0, 3);
  const Numbers x = o.in(0);
  for (std::size_t at = 0; at < x.size(); ++at) {
    const std::size_t i = at % d, part = at / (d * heads) % parts;
    const auto position = at / (d * heads * parts) % std::size_t(params.sequence);
    o.out(0)[at] = x[at];
    if (part >= std::size_t(params.rotated)) continue;
    const double angle = direction * double(position) *
                         std::pow(params.base, -2.0 * double(i % (d / 2)) / double(d));
    const bool second = i >= d / 2;
    const double other = second ? x[at - d / 2] : -x[at + d / 2];
    o.out(0)[at] = x[at] * std::cos(angle) + other * std::sin(angle);
  }
}

void swiglu(const Operands& o) {
  const std::size_t f = o.out_dim(0, 1);
  for (std::size_t i = 0; i < o.out(0).size(); ++i) {
    const std::size_t at = i / f * 2 * f + i % f;
    const double gate = o.in(0)[at];
    o.out(0)[i] = gate / (1 + std::exp(-gate)) * o.in(0)[at + f];
  }
}

void swiglu_backward(const Operands& o) {
  const std::size_t f = o.in_dim(0, 1);
  for (std::size_t i = 0; i < o.in(0).size(); ++i) {
    const std::size_t at = i / f * 2 * f + i % f;
    const double gate = o.in(1)[at], up = o.in(1)[at + f], s = 1 / (1 + std::exp(-gate));
    o.out(0)[at] = o.in(0)[i] * up * (s + gate * s * (1 - s));
    o.out(0)[at + f] = o.in(0)[i] * gate * s;
  }
}

std::int64_t first_sequence(const OpCase& c) {
  const std::int64_t sharding = c.program.grid.degree[std::size_t(Axis::sharding)];
  const std::int64_t replica =
      c.at[std::size_t(Axis::dp)] * sharding + c.at[std::size_t(Axis::sharding)];
  return (replica * c.program.micro_batches + c.position.micro_batch) * c.program.micro_batch;
}

/// One word per element of the whole tensor, which this part is cut out of dimension by dimension.
void dropout(const Operands& o) {
  const auto& params = o.params<DropoutParams>();
  const Tensor& tensor = o.c.input(0);
  Shape whole = tensor.shape;
  Shape first(whole.size(), 0);
  if (tensor.split) {
    const auto dim = std::size_t(tensor.split->dim);
    first[dim] = whole[dim] * o.c.at[std::size_t(tensor.split->axis)];
    whole[dim] *= tensor.split->degree;
  }
  const std::int64_t before = first_sequence(o.c) * elements(whole) / o.c.program.micro_batch;
  const PhiloxKey key = philox_key(params.seed, o.c.position.step, params.site);
  for (std::size_t i = 0; i < o.in(0).size(); ++i) {
    std::int64_t rest = std::int64_t(i), index = 0, stride = 1;
    for (std::size_t d = whole.size(); d-- > 0;) {
      index += (rest % tensor.shape[d] + first[d]) * stride;
      rest /= tensor.shape[d];
      stride *= whole[d];
    }
    index += before;
    const auto words = philox({std::uint32_t(index / 4), std::uint32_t(index / 4 >> 32),
                               std::uint32_t(o.c.position.layer), 0},
                              key);
    const double uniform = double(words[std::size_t(index % 4)]) / 0x1p32;
    o.out(0)[i] = uniform < params.rate ? 0 : o.in(0)[i] / (1 - params.rate);
  }
}

/// Gradient of x: rows go back to where they came from.
void gather_rows(const Operands& o, bool backward) {
  const std::size_t h = backward ? o.in_dim(0, 1) : o.out_dim(0, 1);
  if (backward) std::fill(o.out(0).begin(), o.out(0).end(), 0.0);
  for (std::size_t i = 0; i < o.in(1).size(); ++i) {
    for (std::size_t j = 0; j < h; ++j) {
      const std::size_t there = std::size_t(o.in(1)[i]) * h + j;
      if (backward) {
        o.out(0)[there] += o.in(0)[i * h + j];
      } else {
        o.out(0)[i * h + j] = o.in(0)[there];
      }
    }
  }
}

std::size_t type_of(const Operands& o, std::size_t row, std::size_t types) {
  const auto sequence = std::size_t(o.params<DataParams>().sequence);
  return row % sequence * types / sequence;
}

void token_type_add(const Operands& o) {
  const std::size_t h = o.in_dim(0, 1), types = o.in_dim(1, 0);
  for (std::size_t i = 0; i < o.in(0).size(); ++i) {
    o.out(0)[i] = o.in(0)[i] + o.in(1)[type_of(o, i / h, types) * h + i % h];
  }
}

void token_type_add_backward(const Operands& o) {
  const std::size_t h = o.in_dim(0, 1), types = o.out_dim(0, 0);
  for (std::size_t i = 0; i < o.in(0).size(); ++i) {
    o.out(0)[type_of(o, i / h, types) * h + i % h] += o.in(0)[i];
  }
}

/// Selection sampling with a word per position; see runtime/cpu/masked_tokens.cpp.
void load_masked(const Operands& o) {
  const auto& params = o.params<DataParams>();
  const OpCase& c = o.c;
  const PhiloxKey key = philox_key(params.seed, c.position.step, -1);
  std::size_t next = 0;
  for (std::int64_t i = 0; i < c.program.micro_batch; ++i) {
    const std::int64_t sequence = first_sequence(c) + i;
    const std::int64_t start = (c.position.step * c.global_batch + sequence) * params.sequence %
                               (std::int64_t(c.text.size()) - params.sequence - 1);
    std::int64_t chosen = 0;
    for (std::int64_t j = 0; j < params.sequence; ++j) {
      const auto words = philox({std::uint32_t(sequence * params.sequence + j), 0, 0, 0}, key);
      const double token = double(c.text[std::size_t(start + j)]);
      const double u = double(words[0]) / 0x1p32 * double(params.sequence - j);
      const bool predicted = std::floor(u) < double(params.predicted - chosen);
      chosen += predicted;
      if (c.op.kind == OpKind::load_masked_tokens) {
        const double kind = double(words[1]) / 0x1p32;
        double& shown = o.out(0)[next++];
        shown = token;
        if (predicted && kind < 0.8) shown = double(params.vocabulary - 1);
        if (predicted && kind >= 0.8 && kind < 0.9) {
          shown = std::floor(double(words[2]) / 0x1p32 * double(params.vocabulary));
        }
      } else if (predicted) {
        const bool target = c.op.kind == OpKind::load_masked_targets;
        o.out(0)[next++] = target ? token : double(i * params.sequence + j);
      }
    }
  }
}

}  // namespace

bool run_family_reference(const Operands& o) {
  switch (o.c.op.kind) {
    case OpKind::rms_norm:
      rms_norm(o);
      return true;
    case OpKind::rms_norm_backward:
      rms_norm_backward(o);
      return true;
    case OpKind::rotary:
      rotary(o, 1);
      return true;
    case OpKind::rotary_backward:
      rotary(o, -1);
      return true;
    case OpKind::swiglu:
      swiglu(o);
      return true;
    case OpKind::swiglu_backward:
      swiglu_backward(o);
      return true;
    case OpKind::dropout:
      dropout(o);
      return true;
    case OpKind::gather_rows:
    case OpKind::gather_rows_backward:
      gather_rows(o, o.c.op.kind == OpKind::gather_rows_backward);
      return true;
    case OpKind::token_type_add:
      token_type_add(o);
      return true;
    case OpKind::token_type_add_backward:
      token_type_add_backward(o);
      return true;
    case OpKind::load_masked_tokens:
    case OpKind::load_masked_positions:
    case OpKind::load_masked_targets:
      load_masked(o);
      return true;
    default:
      return false;
  }
}

}  // namespace plimsoll
