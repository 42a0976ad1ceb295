// Cases and references of routers: scores and choices, biases, losses of balance, capacities.
#include "tests/runtime/router_cases.h"

#include <algorithm>
#include <cmath>

#include "tests/runtime/op_families.h"

namespace plimsoll {

Operand whole_numbers(Operand operand) {
  operand.dtype = DType::i32;
  return operand;
}

OpCase route_case(const OpSizes& z, const std::string& name, RouteParams params) {
  const Shape logits = {z.tokens(), kExperts}, chosen = {z.tokens(), kChosen};
  return make_case("route/" + name, OpKind::route, params, {normal("logits", logits, 1)},
                   {blank("weights", chosen), whole_numbers(blank("experts", chosen))});
}

OpCase limit_case(const OpSizes& z, const std::string& name, std::int64_t capacity) {
  std::vector<Operand> outputs = {blank("counts", {z.batch, kExperts})};
  if (capacity > 0) outputs.push_back(whole_numbers(blank("kept", {z.tokens(), kChosen})));
  return make_case("limit_choices/" + name, OpKind::limit_choices,
                   LimitParams{.sequence = z.sequence, .capacity = capacity},
                   {whole_numbers(result(route_case(z, "choices", {}), 1))}, outputs);
}

namespace {

using Cases = std::vector<OpCase>;

/// Two sequences of four tokens are shared by two ranks of cp, of which this is the second.
OpCase shared_limit_case(const OpSizes& z) {
  Operand chosen = whole_numbers(result(route_case(z, "choices", {}), 1));
  chosen.shape[0] = 8;
  chosen.values.resize(8 * kChosen);
  OpCase made =
      make_case("limit_choices/ranks_of_cp", OpKind::limit_choices,
                LimitParams{.sequence = 4, .capacity = 1, .ranks = 2}, {chosen},
                {blank("counts", {2, kExperts}), whole_numbers(blank("kept", {4, kChosen}))});
  made.at[std::size_t(Axis::cp)] = 1;
  return made;
}

/// A bias that changes choices, and no weight of a choice.
OpCase biased_case(const OpSizes& z, const std::string& name, RouteParams params) {
  return make_case("route/biased_" + name, OpKind::route, params,
                   {normal("logits", {z.tokens(), kExperts}, 1), normal("bias", {kExperts}, 4)},
                   {blank("weights", {z.tokens(), kChosen}),
                    whole_numbers(blank("experts", {z.tokens(), kChosen}))});
}

void add_routers(Cases& cases, const OpSizes& z) {
  const std::pair<std::string, RouteParams> routers[] = {
      {"softmax", {}},
      {"normalized", {.normalized = true, .scale = 2.5}},
      {"sigmoid", {.sigmoid = true, .normalized = true}},
      {"groups",
       {.sigmoid = true, .normalized = true, .groups = 4, .top_groups = 2, .group_best = 2}},
      {"best_of_groups", {.scale = 16, .groups = 4, .top_groups = 3, .group_best = 1}},
  };
  for (const auto& [name, params] : routers) {
    const OpCase forward = route_case(z, name, params);
    cases.push_back(forward);
    cases.push_back(biased_case(z, name, params));
    cases.push_back(
        make_case("route_backward/" + name, OpKind::route_backward, params,
                  {normal("dweights", {z.tokens(), kChosen}, 2),
                   normal("logits", {z.tokens(), kExperts}, 1), whole_numbers(result(forward, 1))},
                  {blank("dlogits", {z.tokens(), kExperts})}));
  }
}

void add_biases(Cases& cases, const OpSizes& z) {
  const Operand chosen = whole_numbers(result(route_case(z, "choices", {}), 1));
  cases.push_back(make_case("count_choices", OpKind::count_choices, {}, {chosen},
                            {{"load", {kExperts}, {3, 0, 0, 1, 0, 0, 0, 5}}}));
  const Operand load{"load", {6}, {0, 7, 8, 9, 20, 8}};
  const Operand bias = normal("bias", {6}, 5);
  cases.push_back(make_case("move_selection_bias", OpKind::move_selection_bias,
                            SelectionParams{.step = 0.25, .even = 8}, {load, bias}, {load, bias}));
}

/// Adds the choices of a layer to those of others.
OpCase sum_case(const Operand& counts) {
  return make_case("bias_gradient/layer_choices", OpKind::bias_gradient, {}, {counts},
                   {{"layer_choices", {1, kExperts}, {3, 0, 0, 1, 0, 0, 0, 5}}});
}

void add_balance(Cases& cases, const OpSizes& z) {
  const Operand loss_scale{"loss_scale", {1}, {4}};
  const Operand counts = result(limit_case(z, "all", 0), 0);
  const Operand logits = normal("logits", {z.tokens(), kExperts}, 1);
  for (const bool sigmoid : {false, true}) {
    const std::string name = sigmoid ? "sigmoid" : "softmax";
    const BalanceParams params{
        .sequence = z.sequence, .sigmoid = sigmoid, .balance_weight = 0.5, .z_weight = 0.25};
    const Operand weights = normal("weights", {z.tokens(), kChosen}, 3);
    OpCase forward = make_case("balance_experts/" + name, OpKind::balance_experts, params,
                               {weights, logits, counts}, {weights});
    cases.push_back(std::move(forward));
    cases.push_back(
        make_case("balance_experts_backward/" + name, OpKind::balance_experts_backward, params,
                  sigmoid ? std::vector{logits, counts} : std::vector{logits, counts, loss_scale},
                  {blank("dlogits", {z.tokens(), kExperts})}));
  }
  cases.push_back(
      make_case("balance_experts_backward/sequences", OpKind::balance_experts_backward,
                BalanceParams{.sequence = z.sequence, .sequences = z.batch, .balance_weight = 0.5},
                {logits, counts}, {blank("dlogits", {z.tokens(), kExperts})}));
  // Three layers have one sum of their choices, over all of their tokens.
  const Operand choices = result(sum_case(counts), 0);
  cases.push_back(sum_case(counts));
  cases.push_back(
      make_case("balance_experts_backward/layers", OpKind::balance_experts_backward,
                BalanceParams{.sequence = 3 * z.tokens(), .balance_weight = 0.5, .z_weight = 0.25},
                {logits, choices}, {blank("dlogits", {z.tokens(), kExperts})}));
}

void add_limits(Cases& cases, const OpSizes& z) {
  cases.push_back(shared_limit_case(z));
  cases.push_back(limit_case(z, "all", 0));
  cases.push_back(limit_case(z, "dropped", 2));
}

double score(bool sigmoid, const Numbers& logits, std::size_t first, std::size_t count,
             std::size_t e) {
  if (sigmoid) return 1 / (1 + std::exp(-logits[first + e]));
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += std::exp(logits[first + i]);
  return std::exp(logits[first + e]) / sum;
}

/// The `count` indices of the highest values, the first of equal ones first.
std::vector<std::size_t> highest(const Numbers& values, std::size_t count) {
  std::vector<std::size_t> order(values.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return values[a] > values[b]; });
  order.resize(count);
  return order;
}

/// Scores of experts outside the best groups are -100.
Numbers open_scores(const RouteParams& params, const Numbers& scores) {
  const std::size_t groups = std::size_t(params.groups), each = scores.size() / groups;
  Numbers of_groups(groups, 0.0), open(scores.size(), -100.0);
  for (std::size_t g = 0; g < groups; ++g) {
    const Numbers own(scores.begin() + std::ptrdiff_t(g * each),
                      scores.begin() + std::ptrdiff_t((g + 1) * each));
    for (std::size_t i : highest(own, std::size_t(params.group_best))) of_groups[g] += own[i];
  }
  for (std::size_t g : highest(of_groups, std::size_t(params.top_groups))) {
    for (std::size_t i = g * each; i < (g + 1) * each; ++i) open[i] = scores[i];
  }
  return open;
}

void route(const Operands& o) {
  const auto& params = o.params<RouteParams>();
  const std::size_t e = o.in_dim(0, 1), k = o.out_dim(0, 1);
  for (std::size_t i = 0; i < o.in_dim(0, 0); ++i) {
    Numbers scores(e);
    for (std::size_t j = 0; j < e; ++j) scores[j] = score(params.sigmoid, o.in(0), i * e, e, j);
    Numbers ranked = scores;
    for (std::size_t j = 0; j < e && o.c.op.inputs.size() > 1; ++j) ranked[j] += o.in(1)[j];
    const auto chosen = highest(open_scores(params, ranked), k);
    double sum = 0;
    for (std::size_t j : chosen) sum += scores[j];
    for (std::size_t j = 0; j < k; ++j) {
      o.out(1)[i * k + j] = double(chosen[j]);
      o.out(0)[i * k + j] = params.scale * scores[chosen[j]] / (params.normalized ? sum : 1);
    }
  }
}

void count_choices(const Operands& o) {
  for (const double expert : o.in(0)) o.out(0)[std::size_t(expert)] += 1;
}

void move_bias(const Operands& o) {
  const auto& params = o.params<SelectionParams>();
  for (std::size_t e = 0; e < o.out(0).size(); ++e) {
    const double load = o.in(0)[e];
    o.out(1)[e] += params.step * double((load < params.even) - (load > params.even));
    o.out(0)[e] = 0;
  }
}

/// By the chain rule over a full Jacobian of the weights.
void route_backward(const Operands& o) {
  const auto& params = o.params<RouteParams>();
  const std::size_t e = o.in_dim(1, 1), k = o.in_dim(0, 1);
  for (std::size_t i = 0; i < o.in_dim(1, 0); ++i) {
    const auto chosen = [&](std::size_t j) { return std::size_t(o.in(2)[i * k + j]); };
    double sum = 0;
    const auto of = [&](std::size_t j) { return score(params.sigmoid, o.in(1), i * e, e, j); };
    for (std::size_t j = 0; j < k; ++j) sum += of(chosen(j));
    for (std::size_t l = 0; l < e; ++l) {
      const auto slope = [&](std::size_t j) {  // d score j / d logit l
        if (params.sigmoid) return j == l ? of(j) * (1 - of(j)) : 0.0;
        return of(j) * ((j == l ? 1 : 0) - of(l));
      };
      double slope_of_sum = 0, total = 0;
      for (std::size_t j = 0; j < k; ++j) slope_of_sum += slope(chosen(j));
      for (std::size_t j = 0; j < k; ++j) {
        const double own = slope(chosen(j));
        const double d =
            params.normalized ? (own * sum - of(chosen(j)) * slope_of_sum) / (sum * sum) : own;
        total += o.in(0)[i * k + j] * params.scale * d;
      }
      o.out(0)[i * e + l] = total;
    }
  }
}

void balance_backward(const Operands& o) {
  const auto& params = o.params<BalanceParams>();
  const std::size_t n = o.in_dim(0, 0), e = o.in_dim(0, 1), s = std::size_t(params.sequence),
                    together = std::size_t(params.sequences);
  // The choices of an expert by the sequences that have one loss with token i.
  const auto counted = [&](std::size_t i, std::size_t j) {
    double sum = 0;
    const std::size_t first = i / (s * together) * together;
    for (std::size_t b = first; b < first + together; ++b) sum += o.in(1)[b * e + j];
    return sum;
  };
  // Central differences of the losses themselves.
  const auto losses = [&](const Numbers& logits, std::size_t i) {
    double scores = 0, choices = 0, aux = 0, exps = 0;
    for (std::size_t j = 0; j < e; ++j) {
      scores += score(params.sigmoid, logits, i * e, e, j);
      choices += counted(i, j);
      exps += std::exp(logits[i * e + j]);
    }
    for (std::size_t j = 0; j < e; ++j) {
      aux += double(e) * counted(i, j) / choices * score(params.sigmoid, logits, i * e, e, j) /
             scores / double(s * together);
    }
    return params.balance_weight * aux + params.z_weight * std::pow(std::log(exps), 2);
  };
  constexpr double kStep = 1e-5;
  Numbers logits = o.in(0);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < e; ++j) {
      double& x = logits[i * e + j];
      const double value = x;
      x = value + kStep;
      const double above = losses(logits, i);
      x = value - kStep;
      const double below = losses(logits, i);
      x = value;
      const double loss_scale = o.c.op.inputs.size() > 2 ? o.in(2)[0] : 1;
      o.out(0)[i * e + j] = loss_scale * (above - below) / (2 * kStep);
    }
  }
}

/// Rank r of cp has chunk r and chunk 2 cp - 1 - r of each sequence, and its rows of all sequences
/// come together.
void limit(const Operands& o) {
  const auto& params = o.params<LimitParams>();
  const std::size_t n = o.in_dim(0, 0), k = o.in_dim(0, 1), e = o.out_dim(0, 1);
  const auto s = std::size_t(params.sequence), ranks = std::size_t(params.ranks);
  const std::size_t own = n / ranks, chunk = ranks > 1 ? s / (2 * ranks) : s;
  std::fill(o.out(0).begin(), o.out(0).end(), 0.0);
  std::vector<std::pair<std::size_t, std::size_t>> tokens;  // place in the batch, row
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t rank = i / own, b = i % own / (s / ranks), t = i % (s / ranks);
    const std::size_t of = t < chunk ? rank : 2 * ranks - 1 - rank;
    tokens.emplace_back(b * s + of * chunk + t % chunk, i);
  }
  std::sort(tokens.begin(), tokens.end());
  const std::size_t first = o.c.at[std::size_t(Axis::cp)] * own;
  for (const auto& [place, row] : tokens) {
    for (std::size_t j = 0; j < k; ++j) {
      const double expert = o.in(0)[row * k + j];
      const bool fits = o.out(0)[place / s * e + std::size_t(expert)]++ < double(params.capacity);
      if (params.capacity > 0 && row / own == first / own)
        o.out(1)[(row - first) * k + j] = fits ? expert : -1;
    }
  }
}

constexpr OpReference kReferences[] = {
    {OpKind::route, route},
    {OpKind::route_backward, route_backward},
    {OpKind::count_choices, count_choices},
    {OpKind::move_selection_bias, move_bias},
    {OpKind::balance_experts, [](const Operands&) {}},
    {OpKind::balance_experts_backward, balance_backward},
    {OpKind::limit_choices, limit},
};

void add_cases(Cases& cases, const OpSizes& sizes) {
  add_routers(cases, sizes);
  add_biases(cases, sizes);
  add_balance(cases, sizes);
  add_limits(cases, sizes);
}

}  // namespace

const OpFamily kRouterOps = {add_cases, kReferences};

}  // namespace plimsoll
