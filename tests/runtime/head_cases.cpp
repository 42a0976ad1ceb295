// Cases and references of the ops on heads: splitting, merging, rotary embeddings, softmax.
#include <cmath>
#include <utility>

#include "tests/runtime/op_families.h"

namespace plimsoll {

namespace {

using Cases = std::vector<OpCase>;

void add_whole_heads(Cases& cases, const OpSizes& z) {
  const Shape qkv = {z.tokens(), 3, z.heads, z.depth}, merged = {z.tokens(), z.hidden()};
  const Shape heads = {z.batch, z.heads, z.sequence, z.depth};
  const Shape scores = {z.batch, z.heads, z.sequence, z.sequence};
  const AttentionParams params{z.sequence, 1};
  cases.push_back(make_case("split_heads", OpKind::split_heads, params, {normal("qkv", qkv, 1)},
                            {blank("q", heads), blank("k", heads), blank("v", heads)}));
  cases.push_back(
      make_case("split_heads_backward", OpKind::split_heads_backward, params,
                {normal("dq", heads, 1), normal("dk", heads, 2), normal("dv", heads, 3)},
                {blank("dqkv", qkv)}));
  cases.push_back(make_case("merge_heads", OpKind::merge_heads, params,
                            {normal("context", heads, 1)}, {blank("y", merged)}));
  cases.push_back(make_case("merge_heads_backward", OpKind::merge_heads_backward, params,
                            {normal("dy", merged, 1)}, {blank("dcontext", heads)}));
  cases.push_back(make_case("softmax", OpKind::softmax, params, {normal("scores", scores, 1, 3)},
                            {blank("p", scores)}));
  cases.push_back(make_case("softmax_backward", OpKind::softmax_backward, params,
                            {normal("dp", scores, 2), result(cases.back(), 0)},
                            {blank("dscores", scores)}));
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
  struct Form {
    const char* name;
    bool causal;
    std::int64_t window = 0;
    bool chunks = false;
    std::int64_t alibi_heads = 0;
    bool sinks = false;
  };
  for (const Form& form :
       {Form{"/grouped", true}, Form{"/both_directions", false},
        Form{"/window", true, z.sequence / 2}, Form{"/two_keys", true, 2},
        Form{"/chunks", true, 2, true}, Form{"/alibi", true, 0, false, 4 * z.heads},
        Form{"/sinks", true, 0, false, 0, true},
        Form{"/window_sinks", true, 2, false, 3 * z.heads, true}}) {
    const AttentionParams params{.sequence = z.sequence,
                                 .causal = form.causal,
                                 .window = form.window,
                                 .chunks = form.chunks,
                                 .alibi_heads = form.alibi_heads,
                                 .alibi_scale = 0.75};
    const std::string suffix = form.name;
    std::vector<Operand> inputs = {normal("scores", scores, 1, 3)};
    if (form.sinks) inputs.push_back(normal("sinks", {2 * z.heads}, 5));
    cases.push_back(
        make_case("softmax" + suffix, OpKind::softmax, params, inputs, {blank("p", scores)}));
    if (form.alibi_heads > 2 * z.heads) cases.back().at[std::size_t(Axis::mp)] = 1;
    if (form.sinks) {
      cases.push_back(make_case("softmax_sinks_gradient" + suffix, OpKind::softmax_sinks_gradient,
                                {}, {normal("dp", scores, 2), result(cases.back(), 0)},
                                {normal("dsinks", {2 * z.heads}, 6)}));
      std::swap(cases.back(), cases[cases.size() - 2]);
    }
    cases.push_back(make_case("softmax_backward" + suffix, OpKind::softmax_backward, params,
                              {normal("dp", scores, 2), result(cases.back(), 0)},
                              {blank("dscores", scores)}));
  }
}

/// Results of attention, before and behind its sinks.
void add_sinks(Cases& cases, const OpSizes& z) {
  const Shape y = {z.tokens(), z.hidden()}, sums = {z.batch, z.heads, z.sequence},
              sinks = {z.heads};
  const OpCase forward =
      make_case("add_sinks", OpKind::add_sinks, {},
                {normal("x", y, 1), normal("sums", sums, 2, 2), normal("sinks", sinks, 3, 2)},
                {blank("y", y), blank("total_sums", sums)});
  cases.push_back(forward);
  cases.push_back(make_case(
      "sinks_gradient", OpKind::sinks_gradient, {},
      {normal("dy", y, 4), result(forward, 0), result(forward, 1), normal("sinks", sinks, 3, 2)},
      {normal("dsinks", sinks, 5)}));
}

void add_rotary(Cases& cases, const OpSizes& z) {
  struct Form {
    const char* name;
    std::int64_t parts, rotated, width = 0;
    RotaryScale scale = {};
    QueryGrowth growth = {};
  };
  for (const Form& form :
       {Form{"fused", 3, 2}, Form{"queries", 1, 1}, Form{"keys_values", 2, 1},
        Form{"half_of_fused", 3, 2, z.depth / 4 * 2}, Form{"a_pair_of_keys", 2, 1, 2},
        Form{"linear", 1, 1, 0, {.kind = RotaryScaling::linear, .factor = 4}},
        Form{"llama3", 1, 1, 0, {RotaryScaling::llama3, 8, 64, 1, 4}},
        Form{"llama3_step", 1, 1, 0, {RotaryScaling::llama3, 8, 64, 2, 2}},
        Form{"yarn", 1, 1, 0, {RotaryScaling::yarn, 8, 64, 1, 4, true, 1.2}},
        Form{"yarn_between_columns", 3, 2, 0, {RotaryScaling::yarn, 32, 64, 1, 4, false, 0.8}},
        Form{"growing", 1, 1, 0, {}, {.factor = 0.5, .span = 2}},
        Form{"growing_of_fused", 3, 2, z.depth / 4 * 2, {}, {0.5, 3, 1}},
        Form{"growing_alone", 1, 0, 0, {}, {0.5, 2, 1}},
        Form{"growing_alone_of_fused", 3, 0, 0, {}, {0.5, 3}}}) {
    const Shape shape = {z.tokens(), form.parts, z.heads, z.depth};
    const RotaryParams params{z.sequence, form.rotated, form.width, 10000, form.scale, form.growth};
    for (const OpKind kind : {OpKind::rotary, OpKind::rotary_backward}) {
      cases.push_back(make_case(std::string(to_text(kind)) + "/" + form.name, kind, params,
                                {normal("x", shape, 1)}, {blank("y", shape)}));
    }
  }
}

/// The shared key and the heads' parts are as wide as packs of the kernels, or not.
void add_shared_keys(Cases& cases, const OpSizes& z) {
  struct Form {
    const char* name;
    std::int64_t rope, nope, value;
  };
  for (const Form& f : {Form{"", z.depth, 2 * z.depth, z.depth}, Form{"/odd", 2, 5, 3}}) {
    const auto shape = [&](std::int64_t heads, std::int64_t columns) {
      return Shape{z.tokens(), 1, heads, columns};
    };
    const Shape kv = shape(z.heads, f.nope + f.value), rope = shape(1, f.rope);
    const Shape k = shape(z.heads, f.rope + f.nope), v = shape(z.heads, f.value);
    const std::string suffix = f.name;
    cases.push_back(make_case("share_rope_key" + suffix, OpKind::share_rope_key, {},
                              {normal("kv", kv, 1), normal("rope", rope, 2)},
                              {blank("k", k), blank("v", v)}));
    cases.push_back(make_case("share_rope_key_backward" + suffix, OpKind::share_rope_key_backward,
                              {}, {normal("dk", k, 1), normal("dv", v, 2)},
                              {blank("dkv", kv), blank("drope", rope)}));
  }
}

/// visit(element of a key, element of kv or of the rope key, whether it is of the rope key), then
/// the same for values.
template <class Visit>
void for_each_shared(const Shape& k, const Shape& v, const Shape& rope, Visit visit) {
  const auto rows = std::size_t(k[0]), heads = std::size_t(k[2]);
  const auto key = std::size_t(k[3]), value = std::size_t(v[3]), shared = std::size_t(rope[3]);
  const std::size_t joined = key - shared + value;
  for (std::size_t head = 0; head < rows * heads; ++head) {
    for (std::size_t i = 0; i < key; ++i) {
      const bool is_shared = i < shared;
      visit(true, head * key + i,
            is_shared ? head / heads * shared + i : head * joined + i - shared, is_shared);
    }
    for (std::size_t i = 0; i < value; ++i)
      visit(false, head * value + i, head * joined + key - shared + i, false);
  }
}

void share_rope_key(const Operands& o) {
  for_each_shared(o.c.output(0).shape, o.c.output(1).shape, o.c.input(1).shape,
                  [&](bool key, std::size_t to, std::size_t from, bool shared) {
                    o.out(key ? 0 : 1)[to] = o.in(shared ? 1 : 0)[from];
                  });
}

void share_rope_key_backward(const Operands& o) {
  o.out(1).assign(o.out(1).size(), 0);
  for_each_shared(o.c.input(0).shape, o.c.input(1).shape, o.c.output(1).shape,
                  [&](bool key, std::size_t from, std::size_t to, bool shared) {
                    const double slope = o.in(key ? 0 : 1)[from];
                    shared ? o.out(1)[to] += slope : o.out(0)[to] = slope;
                  });
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
  const std::size_t heads = o.in_dim(0, 1) * (o.in_dim(0, 2) / s);
  const auto of_model = std::size_t(o.params<AttentionParams>().alibi_heads);
  const std::size_t first_head = std::size_t(o.c.at[std::size_t(Axis::mp)]) * heads;
  const auto& params = o.params<AttentionParams>();
  const std::size_t window = params.window > 0 ? std::size_t(params.window) : s;
  for (std::size_t row = 0; row < o.in(0).size() / s; ++row) {
    const std::size_t seen = params.causal ? row % s + 1 : s;
    const std::size_t of_sequence = heads * s, query = row % s;
    const std::size_t first = example_of(o.c, row / of_sequence, query).first;
    std::size_t begin = std::max(first, seen > window ? seen - window : 0);
    if (params.chunks) begin = first + (query - first) / window * window;
    const std::size_t head = row / s % heads;
    const double slope = of_model > 0 ? alibi_slope_by_hand(first_head + head, of_model) *
                                            o.params<AttentionParams>().alibi_scale
                                      : 0;
    const auto value = [&](std::size_t j) {
      return std::exp(o.in(0)[row * s + j] - slope * (double(row % s) - double(j)));
    };
    double sum = o.c.op.inputs.size() > 1 ? std::exp(o.in(1)[head]) : 0;
    for (std::size_t j = begin; j < seen; ++j) sum += value(j);
    for (std::size_t j = 0; j < s; ++j)
      o.out(0)[row * s + j] = j >= begin && j < seen ? value(j) / sum : 0;
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

/// From the probability that each row leaves to its sink.
void softmax_sinks_gradient(const Operands& o) {
  const auto s = std::size_t(o.c.input(0).shape.back());
  for (std::size_t row = 0; row < o.in(0).size() / s; ++row) {
    double left = 1, dot = 0;
    for (std::size_t j = row * s; j < (row + 1) * s; ++j) {
      left -= o.in(1)[j];
      dot += o.in(0)[j] * o.in(1)[j];
    }
    o.out(0)[row / s % o.out(0).size()] -= left * dot;
  }
}

/// visit(statistic, head, element of y).
template <class Visit>
void each_sunk(const Operands& o, std::size_t y, std::size_t sums, Visit visit) {
  const auto heads = std::size_t(elements(o.c.input(sums + 1).shape)), s = o.in_dim(sums, 2);
  const std::size_t depth = o.in_dim(y, 1) / heads;
  for (std::size_t i = 0; i < o.in(y).size(); ++i) {
    const std::size_t token = i / depth / heads, head = i / depth % heads;
    visit((token / s * heads + head) * s + token % s, head, i);
  }
}

void add_sinks_reference(const Operands& o) {
  each_sunk(o, 0, 1, [&](std::size_t at, std::size_t head, std::size_t i) {
    const double sum = std::exp(o.in(1)[at]), total = sum + std::exp(o.in(2)[head]);
    o.out(0)[i] = o.in(0)[i] * sum / total;
    o.out(1)[at] = std::log(total);
  });
}

void sinks_gradient(const Operands& o) {
  each_sunk(o, 1, 2, [&](std::size_t at, std::size_t head, std::size_t i) {
    o.out(0)[head] -= std::exp(o.in(3)[head] - o.in(2)[at]) * o.in(0)[i] * o.in(1)[i];
  });
}

/// The angle of pair i of w/2 for one position.
double angle_of(const RotaryParams& params, double i, double w) {
  const RotaryScale& scale = params.scale;
  const double angle = std::pow(params.base, -2 * i / w), slow = angle / scale.factor;
  const double turns = double(scale.original) * angle / (2 * M_PI);
  switch (scale.kind) {
    case RotaryScaling::none:
      return angle;
    case RotaryScaling::linear:
      return slow;
    case RotaryScaling::llama3: {
      if (turns < scale.low) return slow;
      if (turns >= scale.high) return angle;
      const double share = (turns - scale.low) / (scale.high - scale.low);
      return (1 - share) * slow + share * angle;
    }
    case RotaryScaling::yarn: {
      // The pair whose angle turns so often: original base^(-2i/w) = 2 pi turns.
      const auto pair = [&](double often) {
        return w * std::log(double(scale.original) / (2 * M_PI * often)) /
               (2 * std::log(params.base));
      };
      double first = pair(scale.high), last = pair(scale.low);
      if (scale.whole_columns) first = std::floor(first), last = std::ceil(last);
      first = std::max(first, 0.0), last = std::min(last, w - 1);
      const double ramp = std::clamp((i - first) / std::max(last - first, 0.001), 0.0, 1.0);
      return slow * ramp + angle * (1 - ramp);
    }
  }
  return 0;
}

double growth_at(const QueryGrowth& growth, std::size_t position) {
  if (growth.span == 0) return 1;
  const double reached = double(position) + double(growth.ahead);
  return 1 + growth.factor * std::log(1 + std::floor(reached / double(growth.span)));
}

/// Pairs (i, i + w/2) of the rotated parts as complex numbers, turned by `direction` x angle. The
/// first part grows.
void rotary(const Operands& o, double direction) {
  const auto& params = o.params<RotaryParams>();
  const std::size_t parts = o.in_dim(0, 1), heads = o.in_dim(0, 2), d = o.in_dim(0, 3);
  const std::size_t w = params.width > 0 ? std::size_t(params.width) : d;
  const Numbers x = o.in(0);
  for (std::size_t at = 0; at < x.size(); ++at) {
    const std::size_t i = at % d, part = at / (d * heads) % parts;
    const std::size_t token = at / (d * heads * parts), sequence = std::size_t(params.sequence);
    const std::size_t position =
        token % sequence - example_of(o.c, token / sequence, token % sequence).first;
    const double growth = part == 0 ? growth_at(params.growth, position) : 1;
    o.out(0)[at] = growth * x[at];
    if (part >= std::size_t(params.rotated) || i >= w) continue;
    const double angle =
        direction * double(position) * angle_of(params, double(i % (w / 2)), double(w));
    const bool second = i >= w / 2;
    const double other = second ? x[at - w / 2] : -x[at + w / 2];
    const double turned = x[at] * std::cos(angle) + other * std::sin(angle);
    o.out(0)[at] = growth * params.scale.amplitude * turned;
  }
}

constexpr OpReference kReferences[] = {
    {OpKind::split_heads, [](const Operands& o) { split_heads(o, o.c.op.outputs.size()); }},
    {OpKind::split_heads_backward, [](const Operands& o) { merge_heads(o, o.c.op.inputs.size()); }},
    {OpKind::merge_heads, [](const Operands& o) { merge_heads(o, 1); }},
    {OpKind::merge_heads_backward, [](const Operands& o) { split_heads(o, 1); }},
    {OpKind::softmax, softmax},
    {OpKind::softmax_backward, softmax_backward},
    {OpKind::softmax_sinks_gradient, softmax_sinks_gradient},
    {OpKind::add_sinks, add_sinks_reference},
    {OpKind::sinks_gradient, sinks_gradient},
    {OpKind::rotary, [](const Operands& o) { rotary(o, 1); }},
    {OpKind::rotary_backward, [](const Operands& o) { rotary(o, -1); }},
    {OpKind::share_rope_key, share_rope_key},
    {OpKind::share_rope_key_backward, share_rope_key_backward},
};

void add_cases(Cases& cases, const OpSizes& sizes) {
  add_whole_heads(cases, sizes);
  add_heads(cases, sizes);
  add_softmax(cases, sizes);
  add_sinks(cases, sizes);
  add_rotary(cases, sizes);
  add_shared_keys(cases, sizes);
}

}  // namespace

double alibi_slope_by_hand(std::size_t head, std::size_t heads) {
  std::size_t power = heads;
  while ((power & (power - 1)) != 0) --power;
  const double ratio = std::pow(2.0, -8.0 / double(power));
  if (head < power) return std::pow(ratio, double(head + 1));
  return std::sqrt(ratio) * std::pow(ratio, double(head - power));
}

const OpFamily kHeadOps = {add_cases, kReferences};

}  // namespace plimsoll
