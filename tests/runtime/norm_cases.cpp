// Cases and references of layer norm and RMS norm.
#include <cmath>

#include "tests/runtime/op_families.h"

namespace plimsoll {

namespace {

using Cases = std::vector<OpCase>;

void add_norms(Cases& cases, const OpSizes& z) {
  const Shape x = {z.tokens(), z.hidden()}, row = {z.hidden()}, column = {z.tokens()};
  cases.push_back(make_case("layer_norm", OpKind::layer_norm, NormParams{},
                            {normal("x", x, 1, 2), normal("gamma", row, 2), normal("beta", row, 3)},
                            {blank("y", x), blank("mean", column), blank("rstd", column)}));
  const OpCase norm = cases.back();
  cases.push_back(make_case("layer_norm_backward", OpKind::layer_norm_backward, NormParams{},
                            {normal("dy", x, 4), normal("x", x, 1, 2), normal("gamma", row, 2),
                             result(norm, 1), result(norm, 2)},
                            {blank("dx", x), normal("dgamma", row, 5), normal("dbeta", row, 6)}));
  cases.push_back(make_case("rms_norm", OpKind::rms_norm, NormParams{},
                            {normal("x", x, 1, 2), normal("gamma", row, 2)},
                            {blank("y", x), blank("rstd", column)}));
  cases.push_back(make_case(
      "rms_norm_backward", OpKind::rms_norm_backward, NormParams{},
      {normal("dy", x, 4), normal("x", x, 1, 2), normal("gamma", row, 2), result(cases.back(), 1)},
      {blank("dx", x), normal("dgamma", row, 5)}));
}

/// Norms without a bias, or without a weight.
void add_plain_norms(Cases& cases, const OpSizes& z) {
  const Shape x = {z.tokens(), z.hidden()}, row = {z.hidden()}, column = {z.tokens()};
  const OpCase norm = make_case("layer_norm/no_bias", OpKind::layer_norm, NormParams{},
                                {normal("x", x, 1, 2), normal("gamma", row, 2)},
                                {blank("y", x), blank("mean", column), blank("rstd", column)});
  cases.push_back(norm);
  cases.push_back(make_case("layer_norm_backward/no_bias", OpKind::layer_norm_backward,
                            NormParams{},
                            {normal("dy", x, 4), normal("x", x, 1, 2), normal("gamma", row, 2),
                             result(norm, 1), result(norm, 2)},
                            {blank("dx", x), normal("dgamma", row, 5)}));
  const Shape heads = {z.tokens(), 1, z.heads, z.depth}, each = {z.tokens(), 1, z.heads};
  cases.push_back(make_case("rms_norm/no_weight", OpKind::rms_norm, NormParams{},
                            {normal("x", heads, 1, 2)}, {blank("y", heads), blank("rstd", each)}));
  cases.push_back(
      make_case("rms_norm_backward/no_weight", OpKind::rms_norm_backward, NormParams{},
                {normal("dy", heads, 4), normal("x", heads, 1, 2), result(cases.back(), 1)},
                {blank("dx", heads)}));
}

/// Norms whose weight is not trained.
void add_frozen_norms(Cases& cases, const OpSizes& z) {
  const Shape x = {z.tokens(), z.hidden()}, row = {z.hidden()};
  Operand gamma = normal("gamma", row, 2);
  gamma.role = TensorRole::frozen_parameter;
  const auto named = [&](const std::string& name) {
    for (const OpCase& c : cases) {
      if (c.name == name) return c;
    }
    return cases.front();
  };
  const OpCase layer = named("layer_norm"), rms = named("rms_norm");
  cases.push_back(make_case(
      "layer_norm_backward/frozen", OpKind::layer_norm_backward, NormParams{},
      {normal("dy", x, 4), normal("x", x, 1, 2), gamma, result(layer, 1), result(layer, 2)},
      {blank("dx", x)}));
  cases.push_back(make_case("rms_norm_backward/frozen", OpKind::rms_norm_backward, NormParams{},
                            {normal("dy", x, 4), normal("x", x, 1, 2), gamma, result(rms, 1)},
                            {blank("dx", x)}));
}

/// RMS norms of queries and keys, head by head or of all heads at once.
void add_head_norms(Cases& cases, const OpSizes& z) {
  const Shape x = {z.tokens(), 1, z.heads, z.depth};
  for (const bool across : {false, true}) {
    const Shape each = across ? Shape{z.tokens()} : Shape{z.tokens(), 1, z.heads};
    const Shape row = {across ? z.hidden() : z.depth};
    const std::string suffix = across ? "/all_heads" : "/heads";
    cases.push_back(make_case("rms_norm" + suffix, OpKind::rms_norm, NormParams{},
                              {normal("x", x, 1, 2), normal("gamma", row, 2)},
                              {blank("y", x), blank("rstd", each)}));
    cases.push_back(make_case("rms_norm_backward" + suffix, OpKind::rms_norm_backward, NormParams{},
                              {normal("dy", x, 4), normal("x", x, 1, 2), normal("gamma", row, 2),
                               result(cases.back(), 1)},
                              {blank("dx", x), normal("dgamma", row, 5)}));
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
      o.out(0)[i * h + j] = (x[i * h + j] - mean) * rstd * o.in(1)[j];
      if (o.c.op.inputs.size() > 2) o.out(0)[i * h + j] += o.in(2)[j];
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
      if (o.c.op.outputs.size() > 1) o.out(1)[j] += dy[i * h + j] * normal(j);
      if (o.c.op.outputs.size() > 2) o.out(2)[j] += dy[i * h + j];
    }
  }
}

void rms_norm(const Operands& o) {
  const bool weighted = o.c.op.inputs.size() > 1;
  const std::size_t h = weighted ? o.in(1).size() : std::size_t(o.c.input(0).shape.back());
  const std::size_t n = o.in(0).size() / h;
  for (std::size_t i = 0; i < n; ++i) {
    double squares = 0;
    for (std::size_t j = 0; j < h; ++j) squares += std::pow(o.in(0)[i * h + j], 2) / double(h);
    const double rstd = 1 / std::sqrt(squares + o.params<NormParams>().epsilon);
    o.out(1)[i] = rstd;
    for (std::size_t j = 0; j < h; ++j)
      o.out(0)[i * h + j] = o.in(0)[i * h + j] * rstd * (weighted ? o.in(1)[j] : 1);
  }
}

void rms_norm_backward(const Operands& o) {
  const bool weighted = o.c.op.inputs.size() > 3;
  const std::size_t h = weighted ? o.in(2).size() : std::size_t(o.c.input(1).shape.back());
  const std::size_t n = o.in(0).size() / h;
  const Numbers &dy = o.in(0), &x = o.in(1), &rstd = o.in(weighted ? 3 : 2);
  const Numbers gamma = weighted ? o.in(2) : Numbers(h, 1.0);
  for (std::size_t i = 0; i < n; ++i) {
    double dot = 0;
    for (std::size_t j = 0; j < h; ++j) dot += dy[i * h + j] * gamma[j] * x[i * h + j] * rstd[i];
    for (std::size_t j = 0; j < h; ++j) {
      const double normal = x[i * h + j] * rstd[i];
      o.out(0)[i * h + j] = rstd[i] * (dy[i * h + j] * gamma[j] - normal * dot / double(h));
      if (o.c.op.outputs.size() > 1) o.out(1)[j] += dy[i * h + j] * normal;
    }
  }
}

constexpr OpReference kReferences[] = {
    {OpKind::layer_norm, layer_norm},
    {OpKind::layer_norm_backward, layer_norm_backward},
    {OpKind::rms_norm, rms_norm},
    {OpKind::rms_norm_backward, rms_norm_backward},
};

void add_cases(Cases& cases, const OpSizes& sizes) {
  add_norms(cases, sizes);
  add_head_norms(cases, sizes);
  add_plain_norms(cases, sizes);
  add_frozen_norms(cases, sizes);
}

}  // namespace

const OpFamily kNormOps = {add_cases, kReferences};

}  // namespace plimsoll
