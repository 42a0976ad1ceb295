// Cases and references of the ops of experts' rows.
#include <algorithm>
#include <cmath>

#include "tests/runtime/op_families.h"
#include "tests/runtime/router_cases.h"

namespace plimsoll {

namespace {

using Cases = std::vector<OpCase>;

OpCase place_case(const OpSizes& z, const std::string& name, std::int64_t capacity) {
  const Operand chosen = capacity > 0 ? result(limit_case(z, name, capacity), 1)
                                      : result(route_case(z, "choices", {}), 1);
  return make_case("place_choices/" + name, OpKind::place_choices,
                   PlaceParams{.rows = z.tokens() * kChosen}, {whole_numbers(chosen)},
                   {whole_numbers(blank("rows", {z.tokens(), kChosen})),
                    whole_numbers(blank("ends", {kExperts}))});
}

/// There is memory for half of the rows that come.
void add_overflows(Cases& cases, const OpSizes& z) {
  const std::int64_t half = z.tokens() * kChosen / 2;
  OpCase place = place_case(z, "all", 0);
  Operand all_ends = whole_numbers(result(place, 1));
  place.name = "place_choices/overflow";
  const PlaceParams params{.rows = half, .drops = true};
  place.op.params = params;
  cases.push_back(place);
  all_ends.shape = {1, kExperts};
  cases.push_back(make_case("received_ends/overflow", OpKind::received_ends, params, {all_ends},
                            {whole_numbers(blank("own_ends", {kExperts}))}));
}

/// The rows of experts, of which some are not used where some choices are dropped.
void add_rows(Cases& cases, const OpSizes& z) {
  const std::int64_t n = z.tokens(), m = n * kChosen, h = z.hidden(), f = z.ffn;
  for (const auto& [name, capacity] : {std::pair("all", 0), std::pair("dropped", 2)}) {
    const OpCase place = place_case(z, name, capacity);
    cases.push_back(place);
    Operand all_ends = whole_numbers(result(place, 1));  // of two ranks that give as many
    all_ends.shape = {2, kExperts};
    all_ends.values.insert(all_ends.values.end(), all_ends.values.begin(), all_ends.values.end());
    cases.push_back(make_case(std::string("received_ends/") + name, OpKind::received_ends,
                              PlaceParams{.rows = 2 * m}, {all_ends},
                              {whole_numbers(blank("own_ends", {kExperts}))}));
    const Operand rows = whole_numbers(result(place, 0)), ends = whole_numbers(result(place, 1));
    const Operand x = normal("x", {n, h}, 2), y = normal("y", {m, h}, 3);
    const std::string suffix = std::string("/") + name;
    cases.push_back(make_case("dispatch_rows" + suffix, OpKind::dispatch_rows, {},
                              {x, rows, normal("weights", {n, kChosen}, 4)},
                              {blank("y", {m, h}), blank("row_weights", {m})}));
    cases.push_back(make_case("dispatch_rows_backward" + suffix, OpKind::dispatch_rows_backward, {},
                              {normal("dy", {m, h}, 5), normal("drow_weights", {m}, 6), rows},
                              {blank("dx", {n, h}), blank("dweights", {n, kChosen})}));
    cases.push_back(make_case("combine_rows" + suffix, OpKind::combine_rows, {}, {y, rows},
                              {blank("x", {n, h})}));
    cases.push_back(make_case("combine_rows_backward" + suffix, OpKind::combine_rows_backward, {},
                              {normal("dx", {n, h}, 7), rows}, {blank("dy", {m, h})}));
    if (!z.products) continue;
    const Shape weight = {kExperts, h, 2, f}, gates = {m, 2, f};
    cases.push_back(make_case("grouped_matmul" + suffix, OpKind::grouped_matmul, {},
                              {y, normal("weight", weight, 8), ends}, {blank("gates", gates)}));
    cases.push_back(make_case("grouped_matmul_backward" + suffix, OpKind::grouped_matmul_backward,
                              {}, {normal("dy", gates, 9), normal("weight", weight, 8), ends},
                              {blank("dx", {m, h})}));
    cases.push_back(make_case("grouped_weight_gradient" + suffix, OpKind::grouped_weight_gradient,
                              {}, {y, normal("dy", gates, 9), ends},
                              {normal("dweight", weight, 10)}));
  }
}

/// Experts with more rows than a kernel reads at a time, and one without rows.
void add_many_rows(Cases& cases) {
  constexpr std::int64_t kRows = 200, kHidden = 8, kWidth = 16;
  Operand ends = whole_numbers(blank("ends", {3}));
  ends.values = {130, 130, kRows};
  cases.push_back(
      make_case("grouped_weight_gradient/many_rows", OpKind::grouped_weight_gradient, {},
                {normal("x", {kRows, kHidden}, 1), normal("dy", {kRows, kWidth}, 2), ends},
                {normal("dweight", {3, kHidden, kWidth}, 3)}));
}

/// Biases of experts, of all or of two partial sums, and rows times their weights.
void add_weighted_rows(Cases& cases, const OpSizes& z) {
  const std::int64_t m = z.tokens() * kChosen, h = z.hidden(), f = z.ffn;
  const Operand ends = whole_numbers(result(place_case(z, "dropped", 2), 1));
  const Operand weights = normal("weights", {m}, 4);
  for (const bool weighted : {false, true}) {
    const std::string suffix = weighted ? "/weighted" : "/plain";
    const Shape rows = weighted ? Shape{m, h} : Shape{m, 2, f};
    const Shape bias = weighted ? Shape{kExperts, h} : Shape{kExperts, 2, f};
    const GroupedBiasParams params{.ranks = weighted ? 2 : 1};
    std::vector<Operand> inputs = {normal("x", rows, 1), normal("bias", bias, 2), ends};
    std::vector<Operand> gradients = {normal("dbias", bias, 5)};
    if (weighted) {
      inputs.push_back(weights);
      gradients.push_back(blank("dweights", {m}));
    }
    cases.push_back(make_case("grouped_bias_add" + suffix, OpKind::grouped_bias_add, params, inputs,
                              {blank("y", rows)}));
    inputs[0] = normal("dy", rows, 6);
    cases.push_back(make_case("grouped_bias_backward" + suffix, OpKind::grouped_bias_backward,
                              params, inputs, gradients));
  }
  const Operand x = normal("x", {m, h}, 1);
  cases.push_back(
      make_case("scale_rows", OpKind::scale_rows, {}, {x, weights}, {blank("y", {m, h})}));
  cases.push_back(make_case("scale_rows_backward", OpKind::scale_rows_backward, {},
                            {normal("dy", {m, h}, 2), x, weights},
                            {blank("dx", {m, h}), blank("dweights", {m})}));
}

void place(const Operands& o) {
  const auto most = double(o.params<PlaceParams>().rows);
  const std::size_t n = o.in_dim(0, 0), k = o.in_dim(0, 1), e = o.out(1).size();
  std::fill(o.out(0).begin(), o.out(0).end(), -1.0);
  double row = 0;
  for (std::size_t expert = 0; expert < e; ++expert) {
    for (std::size_t i = 0; i < n * k; ++i) {
      if (o.in(0)[i] == double(expert) && row < most) o.out(0)[i] = row++;
    }
    o.out(1)[expert] = row;
  }
}

void received_ends(const Operands& o) {
  const auto most = double(o.params<PlaceParams>().rows);
  const std::size_t ranks = o.in_dim(0, 0), experts = o.in_dim(0, 1);
  double row = 0;
  for (std::size_t e = 0; e < experts; ++e) {
    for (std::size_t rank = 0; rank < ranks; ++rank)
      row += o.in(0)[rank * experts + e] - (e > 0 ? o.in(0)[rank * experts + e - 1] : 0);
    o.out(0)[e] = std::min(row, most);
  }
}

/// Calls visit(token, choice, row) for each choice that has a row.
template <class Visit>
void each_row(const Operands& o, std::size_t rows, Visit visit) {
  const std::size_t k = o.in_dim(rows, 1);
  for (std::size_t i = 0; i < o.in(rows).size(); ++i) {
    if (o.in(rows)[i] >= 0) visit(i / k, i, std::size_t(o.in(rows)[i]));
  }
}

void dispatch(const Operands& o) {
  const std::size_t h = o.in_dim(0, 1);
  std::fill(o.out(0).begin(), o.out(0).end(), 0.0);
  std::fill(o.out(1).begin(), o.out(1).end(), 0.0);
  each_row(o, 1, [&](std::size_t token, std::size_t choice, std::size_t row) {
    for (std::size_t j = 0; j < h; ++j) o.out(0)[row * h + j] = o.in(0)[token * h + j];
    o.out(1)[row] = o.in(2)[choice];
  });
}

/// x [n,h] += rows of y [m,h].
void sum_rows(const Operands& o, std::size_t rows) {
  const std::size_t h = o.in_dim(0, 1);
  std::fill(o.out(0).begin(), o.out(0).end(), 0.0);
  each_row(o, rows, [&](std::size_t token, std::size_t, std::size_t row) {
    for (std::size_t j = 0; j < h; ++j) o.out(0)[token * h + j] += o.in(0)[row * h + j];
  });
}

void dispatch_backward(const Operands& o) {
  sum_rows(o, 2);
  std::fill(o.out(1).begin(), o.out(1).end(), 0.0);
  each_row(o, 2, [&](std::size_t, std::size_t choice, std::size_t row) {
    o.out(1)[choice] = o.in(1)[row];
  });
}

void combine_backward(const Operands& o) {
  const std::size_t h = o.in_dim(0, 1);
  std::fill(o.out(0).begin(), o.out(0).end(), 0.0);
  each_row(o, 1, [&](std::size_t token, std::size_t, std::size_t row) {
    for (std::size_t j = 0; j < h; ++j) o.out(0)[row * h + j] = o.in(0)[token * h + j];
  });
}

/// Calls visit(expert, row) for each row of an expert; `ends` is input 2.
template <class Visit>
void each_expert_row(const Operands& o, Visit visit) {
  std::size_t row = 0;
  for (std::size_t expert = 0; expert < o.in(2).size(); ++expert) {
    for (; row < std::size_t(o.in(2)[expert]); ++row) visit(expert, row);
  }
}

void grouped(const Operands& o) {
  const std::size_t h = o.in_dim(1, 1), f = o.in(1).size() / o.in_dim(1, 0) / h;
  const bool backward = o.c.op.kind == OpKind::grouped_matmul_backward;
  std::fill(o.out(0).begin(), o.out(0).end(), 0.0);
  each_expert_row(o, [&](std::size_t expert, std::size_t row) {
    for (std::size_t i = 0; i < h; ++i) {
      for (std::size_t j = 0; j < f; ++j) {
        const double w = o.in(1)[(expert * h + i) * f + j];
        if (backward) {
          o.out(0)[row * h + i] += o.in(0)[row * f + j] * w;
        } else {
          o.out(0)[row * f + j] += o.in(0)[row * h + i] * w;
        }
      }
    }
  });
}

void grouped_gradient(const Operands& o) {
  const std::size_t h = o.out_dim(0, 1), f = o.out(0).size() / o.out_dim(0, 0) / h;
  each_expert_row(o, [&](std::size_t expert, std::size_t row) {
    for (std::size_t i = 0; i < h; ++i) {
      for (std::size_t j = 0; j < f; ++j)
        o.out(0)[(expert * h + i) * f + j] += o.in(0)[row * h + i] * o.in(1)[row * f + j];
    }
  });
}

void grouped_bias(const Operands& o) {
  const std::size_t f = o.in(1).size() / o.in_dim(1, 0);
  const double ranks = double(o.params<GroupedBiasParams>().ranks);
  o.out(0) = o.in(0);
  each_expert_row(o, [&](std::size_t expert, std::size_t row) {
    const double weight = o.c.op.inputs.size() > 3 ? o.in(3)[row] : 1;
    for (std::size_t j = 0; j < f; ++j)
      o.out(0)[row * f + j] += weight * o.in(1)[expert * f + j] / ranks;
  });
}

/// The gradient of the bias is that of all ranks together, each of which has the whole of it.
void grouped_bias_backward(const Operands& o) {
  const std::size_t f = o.in(1).size() / o.in_dim(1, 0);
  const bool weighted = o.c.op.inputs.size() > 3;
  if (weighted) std::fill(o.out(1).begin(), o.out(1).end(), 0.0);
  each_expert_row(o, [&](std::size_t expert, std::size_t row) {
    for (std::size_t j = 0; j < f; ++j) {
      const double slope = o.in(0)[row * f + j];
      o.out(0)[expert * f + j] += slope * (weighted ? o.in(3)[row] : 1);
      if (weighted) {
        o.out(1)[row] +=
            slope * o.in(1)[expert * f + j] / double(o.params<GroupedBiasParams>().ranks);
      }
    }
  });
}

void scale_rows(const Operands& o) {
  const bool backward = o.c.op.kind == OpKind::scale_rows_backward;
  const Numbers &x = o.in(backward ? 1 : 0), &weights = o.in(backward ? 2 : 1);
  const std::size_t h = o.in_dim(0, 1);
  if (backward) std::fill(o.out(1).begin(), o.out(1).end(), 0.0);
  for (std::size_t i = 0; i < x.size(); ++i) {
    o.out(0)[i] = o.in(0)[i] * weights[i / h];
    if (backward) o.out(1)[i / h] += o.in(0)[i] * x[i];
  }
}

constexpr OpReference kReferences[] = {
    {OpKind::place_choices, place},
    {OpKind::received_ends, received_ends},
    {OpKind::dispatch_rows, dispatch},
    {OpKind::dispatch_rows_backward, dispatch_backward},
    {OpKind::combine_rows, [](const Operands& o) { sum_rows(o, 1); }},
    {OpKind::combine_rows_backward, combine_backward},
    {OpKind::grouped_matmul, grouped},
    {OpKind::grouped_matmul_backward, grouped},
    {OpKind::grouped_weight_gradient, grouped_gradient},
    {OpKind::grouped_bias_add, grouped_bias},
    {OpKind::grouped_bias_backward, grouped_bias_backward},
    {OpKind::scale_rows, scale_rows},
    {OpKind::scale_rows_backward, scale_rows},
};

void add_cases(Cases& cases, const OpSizes& sizes) {
  add_rows(cases, sizes);
  add_overflows(cases, sizes);
  add_many_rows(cases);
  add_weighted_rows(cases, sizes);
}

}  // namespace

const OpFamily kExpertOps = {add_cases, kReferences};

}  // namespace plimsoll
