// Cases and references of cross entropy.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/runtime/op_families.h"

namespace plimsoll {

namespace {

using Cases = std::vector<OpCase>;

Operand scalars(double step, double loss, double clip) {
  const std::vector<double> values = {step, loss, 0, double(float(clip)), 1, 0, 0, 0};
  return {"scalars", {kScalars}, values, DType::f32, TensorRole::scalar};
}

/// The four loss ops on one rank's columns; each feeds on the reference of the one before. With
/// more ranks the statistics are those of the rank alone, which the ops do not mind.
void add_loss_chain(Cases& cases, const OpSizes& z, const std::string& suffix,
                    const VocabularyParams& params, std::int64_t columns, std::int64_t part) {
  const std::int64_t n = z.tokens();
  const Operand logits = normal("logits", {n, columns}, 11, 3);
  const Operand targets = token_ids("targets", n, z.vocabulary, 12);
  const auto place = [&](OpCase c) {
    c.at[std::size_t(Axis::mp)] = part;
    return c;
  };
  const OpCase max = place(
      make_case("logits_max" + suffix, OpKind::logits_max, params, {logits}, {blank("max", {n})}));
  const OpCase sum = place(make_case("logits_sum_exp" + suffix, OpKind::logits_sum_exp, params,
                                     {logits, result(max, 0), targets}, {blank("stats", {n, 2})}));
  const Operand state = scalars(3, 0.5, 1);
  const OpCase loss =
      make_case("token_loss" + suffix, OpKind::token_loss, params,
                {result(max, 0), result(sum, 0), state}, {blank("log_sum_exp", {n}), state});
  cases.insert(cases.end(), {max, sum, loss});
  cases.push_back(
      place(make_case("cross_entropy_backward" + suffix, OpKind::cross_entropy_backward, params,
                      {logits, targets, result(loss, 0)}, {blank("dlogits", {n, columns})})));
  cases.push_back(
      place(make_case("cross_entropy_backward/scaled" + suffix, OpKind::cross_entropy_backward,
                      params, {logits, targets, result(loss, 0), {"loss_scale", {1}, {4096}}},
                      {blank("dlogits", {n, columns})})));
}

void add_loss_cases(Cases& cases, const OpSizes& z) {
  const double weight = 1.0 / double(4 * z.tokens());
  add_loss_chain(cases, z, "", {z.vocabulary, 1, weight}, z.vocabulary, 0);
  add_loss_chain(cases, z, "/padded", {z.vocabulary, 1, weight}, z.vocabulary + 3, 0);
  const std::int64_t half = (z.vocabulary + 1) / 2;
  add_loss_chain(cases, z, "/half_0", {z.vocabulary, 2, weight}, half, 0);
  add_loss_chain(cases, z, "/half_1", {z.vocabulary, 2, weight}, half, 1);
  const VocabularyParams depths{z.vocabulary, 1, weight, 2, 0.25, 3};
  add_loss_chain(cases, z, "/depths", depths, z.vocabulary, 0);
  // A shard of nothing but padding: its maximum is minus infinity, its sum and gradient 0.
  const VocabularyParams params{z.vocabulary, 2, weight};
  OpCase padding =
      make_case("logits_sum_exp/only_padding", OpKind::logits_sum_exp, params,
                {normal("logits", {z.tokens(), z.vocabulary}, 1), normal("max", {z.tokens()}, 2),
                 token_ids("targets", z.tokens(), z.vocabulary, 3)},
                {blank("stats", {z.tokens(), 2})});
  padding.at[std::size_t(Axis::mp)] = 1;
  cases.push_back(std::move(padding));
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

/// The mean is over the tokens of the step that are predicted within their examples.
double weight_in_examples(const Operands& o, std::size_t row) {
  const auto& params = o.params<VocabularyParams>();
  const auto depths = std::size_t(params.depths), sequence = std::size_t(params.sequence);
  const std::size_t token = row / depths, depth = row % depths, position = token % sequence;
  std::int64_t targets = 0;
  o.c.examples->each(
      o.c.position.step, o.c.global_batch,
      [&](std::int64_t, std::int64_t, std::int64_t tokens) { targets += tokens - 1; });
  if (position + depth + 1 >= example_of(o.c, token / sequence, position).second) return 0;
  const double mean = double(o.c.global_batch) * double(sequence) / double(targets);
  return params.loss_weight * mean * (depth == 0 ? 1 : params.depth_weight);
}

double weight_of_row(const Operands& o, std::size_t row) {
  if (o.c.examples) return weight_in_examples(o, row);
  const auto& params = o.params<VocabularyParams>();
  const std::size_t depth = row % std::size_t(params.depths);
  if (depth == 0) return params.loss_weight;
  const std::size_t position = row / std::size_t(params.depths) % std::size_t(params.sequence);
  const bool in_sequence = position + depth < std::size_t(params.sequence);
  return in_sequence ? params.loss_weight * params.depth_weight : 0;
}

void token_loss(const Operands& o) {
  double loss = 0;
  for (std::size_t i = 0; i < o.in(0).size(); ++i) {
    o.out(0)[i] = o.in(0)[i] + std::log(o.in(1)[2 * i]);
    loss += weight_of_row(o, i) * (std::log(o.in(1)[2 * i]) - o.in(1)[2 * i + 1]);
  }
  o.out(1)[std::size_t(Scalar::loss)] += loss;
}

void cross_entropy_backward(const Operands& o) {
  const std::size_t n = o.in_dim(0, 0), v = o.in_dim(0, 1);
  const bool scales = o.c.op.inputs.size() == 4;
  const Numbers logits = o.in(0);
  std::fill(o.out(0).begin(), o.out(0).end(), 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    const double weight = weight_of_row(o, i) * (scales ? o.in(3)[0] : 1);
    for_each_logit(o, [&](std::size_t j, std::int64_t global) {
      const double hit = global == std::int64_t(o.in(1)[i]) ? 1 : 0;
      o.out(0)[i * v + j] = weight * (std::exp(logits[i * v + j] - o.in(2)[i]) - hit);
    });
  }
}

constexpr OpReference kReferences[] = {
    {OpKind::logits_max, logits_max},
    {OpKind::logits_sum_exp, logits_sum_exp},
    {OpKind::token_loss, token_loss},
    {OpKind::cross_entropy_backward, cross_entropy_backward},
};

void add_cases(Cases& cases, const OpSizes& sizes) { add_loss_cases(cases, sizes); }

}  // namespace

const OpFamily kLossOps = {add_cases, kReferences};

}  // namespace plimsoll
