// The op cases of the once-per-step ops: arenas whole, sharded and by attribute group; single
// tensors; steps that are skipped.
#include "tests/runtime/optimizer_cases.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <limits>
#include <optional>

namespace plimsoll {

namespace {

using Cases = std::vector<OpCase>;

Operand normal(std::string name, std::int64_t count, std::uint64_t seed, double deviation = 1) {
  return {std::move(name), {count}, normal_values(count, seed, deviation)};
}
Operand blank(std::string name, std::int64_t count) { return {std::move(name), {count}, {}}; }

struct State {
  double step = 6, loss = 0.75, clip = 0.8, loss_scale = 1, found = 0, good_steps = 0, skipped = 0;
};
Operand scalars(const State& s) {
  const std::vector<double> values = {
      s.step, s.loss, 0, double(float(s.clip)), s.loss_scale, s.found, s.good_steps, s.skipped};
  return {"scalars", {kScalars}, values, DType::f32, TensorRole::scalar};
}

/// Four segments with gaps between them in two buckets: whole, or shard 1 of 2. Two attribute
/// groups; the last segment is not clipped and moves slower.
Program optimizer_program(std::int64_t arena, std::int64_t degree, std::int64_t first) {
  Program program;
  program.sharding_degree = degree;
  program.grid.degree[std::size_t(Axis::sharding)] = degree;
  program.grid.degree[std::size_t(Axis::mp)] = 2;
  const std::int64_t quarter = arena / 4;
  for (std::int64_t i = 0; i < 4; ++i) {
    Segment segment;
    segment.parameter = "p" + std::to_string(i);
    segment.offset = i * quarter;
    segment.elements = quarter - 3 - i;
    segment.shape = {segment.elements};
    segment.decay = i % 2 == 0;
    if (i == 2) segment.weight_decay = 0.03;
    segment.norm_weight = i == 3 ? 0 : i == 1 ? 0.5 : 1;
    if (i != 1) segment.split = Split{0, Axis::mp, 2};
    segment.clip = i != 2;
    segment.rate = i == 2 ? 0.25 : 1;
    segment.group = i == 2 ? 1 : 0;
    program.segments.push_back(segment);
  }
  program.buckets = {{0, first}, {first, arena - first}};
  return program;
}

/// Operands of an update over arenas, in the order p, g, m, v.
struct Arenas {
  Operand parameters, gradients, first, second;
};
Arenas arenas(std::int64_t count, std::int64_t degree, bool flat) {
  Arenas a{normal("parameters", count, 1), normal("gradients", count, 2),
           normal("m", count / degree, 3, 0.1), normal("v", count / degree, 4, 0.01)};
  for (double& value : a.second.values) value = std::abs(value);
  for (Operand* operand : {&a.parameters, &a.gradients, &a.first, &a.second}) operand->arena = flat;
  return a;
}

void add_scalar_cases(Cases& cases) {
  const Operand state = scalars({});
  cases.push_back(make_case("begin_step", OpKind::begin_step, StepParams{}, {state}, {state}));
  const auto begin = [&](const char* name, const State& at) {
    const Operand now = scalars(at);
    cases.push_back(make_case(std::string("begin_step/") + name, OpKind::begin_step,
                              StepParams{4096, 2, 0.5, 3}, {now}, {now}));
  };
  begin("first", {.step = 0, .loss_scale = 0});
  begin("same_scale", {.loss_scale = 64, .good_steps = 2});
  begin("grows", {.loss_scale = 64, .good_steps = 3});
  begin("backs_off", {.loss_scale = 64, .found = 1});
  begin("least_scale", {.loss_scale = 1.5, .found = 1});
  const Operand sum{"sum", {1}, {9}};
  const auto clip = [&](const char* name, ClipParams params, Operand from, const State& at) {
    const Operand now = scalars(at);
    cases.push_back(make_case(std::string("clip_factor/") + name, OpKind::clip_factor, params,
                              {std::move(from), now}, {now}));
  };
  clip("clips", {1.5}, sum, {});
  clip("below_limit", {10}, sum, {});
  clip("no_limit", {0}, sum, {});
  ClipParams scaling{1.5};
  scaling.loss_scaling = true;
  const double infinity = std::numeric_limits<double>::infinity();
  clip("unscales", scaling, {"sum", {1}, {9.0 * 64 * 64}}, {.loss_scale = 64, .good_steps = 1});
  clip("skips", scaling, {"sum", {1}, {infinity}}, {.loss_scale = 64, .good_steps = 3});
  for (const bool found : {false, true}) {
    const Operand now = scalars({.loss_scale = 64, .found = found ? 0.0 : 1.0, .good_steps = 2});
    cases.push_back(make_case(found ? "update_loss_scale/found" : "update_loss_scale/good",
                              OpKind::update_loss_scale, {},
                              {{"found", {1}, {found ? 1.0 : 0.0}, DType::i32}, now}, {now}));
  }
}

/// The pieces that a framework without a fused norm runs one by one.
void add_piece_cases(Cases& cases, std::int64_t count) {
  const Operand x = normal("x", count, 1), factor{"factor", {1}, {0.375}};
  const auto add = [&](std::string name, OpKind kind, OpParams params, std::vector<Operand> in,
                       std::vector<Operand> out) {
    cases.push_back(make_case(std::move(name), kind, std::move(params), in, out));
  };
  FlatParams half;
  half.weight = 0.5;
  add("square", OpKind::square, FlatParams{}, {x}, {blank("y", count)});
  add("squared_norm/tensor", OpKind::squared_norm, half, {x}, {blank("sum", 1)});
  add("reduce_sum", OpKind::reduce_sum, half, {x}, {blank("sum", 1)});
  add("reduce_sum/several", OpKind::reduce_sum, FlatParams{}, {x, factor, normal("z", 7, 3)},
      {blank("sum", 1)});
  add("square_root", OpKind::square_root, {}, {{"x", {3}, {9, 0, 2}}}, {blank("y", 3)});
  add("maximum", OpKind::maximum, {}, {{"a", {3}, {1, 5, -2}}, {"b", {3}, {2, 4, -3}}},
      {blank("y", 3)});
  add("divide", OpKind::divide, {}, {{"a", {2}, {1, 5}}, {"b", {2}, {3, -4}}}, {blank("y", 2)});
  add("scale", OpKind::scale, FlatParams{}, {x, factor}, {blank("y", count)});
  add("scale/in_place", OpKind::scale, FlatParams{}, {x, factor}, {x});
  add("coalesce", OpKind::coalesce, FlatParams{}, {x}, {x});
  add("cast/from_flag", OpKind::cast, {}, {{"flag", {1}, {1}, DType::i32}}, {blank("x", 1)});
  add("cast/to_flag", OpKind::cast, {}, {{"x", {1}, {1}}}, {{"flag", {1}, {}, DType::i32}});
  for (const bool finite : {true, false}) {
    Operand gradients = normal("gradients", count, 2);
    if (!finite) gradients.values[std::size_t(count / 2)] = std::numeric_limits<double>::infinity();
    add(finite ? "check_finite" : "check_finite/infinity", OpKind::check_finite, FlatParams{},
        {gradients, scalars({.loss_scale = 64})}, {gradients, {"found", {1}, {}, DType::i32}});
  }
}

void add_update_cases(Cases& cases, const std::string& suffix, const Arenas& a, const State& at,
                      bool clipped, std::optional<std::int64_t> group,
                      const std::function<OpCase(OpCase)>& place) {
  const Operand state = scalars(at);
  const auto with = [&](auto params) {
    params.clipped = clipped;
    params.group = group;
    return params;
  };
  const AdamParams adam{1e-2, 0.9, 0.95, 1e-8, 0.1};
  const LambParams lamb{1e-2, 0.9, 0.95, 1e-8, 0.1};
  const std::vector<Operand> inputs = {a.parameters, a.gradients, a.first, a.second, state};
  cases.push_back(place(make_case("adamw" + suffix, OpKind::adamw, with(adam), inputs,
                                  {a.parameters, a.first, a.second})));
  cases.push_back(
      place(make_case("sgd" + suffix, OpKind::sgd, with(SgdParams{1e-2, 0.9, 0.1}),
                      {a.parameters, a.gradients, a.first, state}, {a.parameters, a.first})));
  const std::int64_t tensors = a.parameters.arena ? 4 : 1;
  Operand norms = blank("norms", 2 * tensors);
  norms.arena = a.parameters.arena;
  cases.push_back(place(make_case("lamb_norms" + suffix, OpKind::lamb_norms, with(lamb), inputs,
                                  {a.first, a.second, norms})));
  norms.values = {4, 9, 0, 2, 3, 0, 1, 8};
  norms.values.resize(std::size_t(2 * tensors));
  cases.push_back(
      place(make_case("lamb" + suffix, OpKind::lamb, with(lamb),
                      {a.parameters, a.first, a.second, norms, state}, {a.parameters})));
}

/// Updates of masters, which also write the parameters in the type that is computed in; and the
/// cast that does it alone. What other ranks own stays as it is.
void add_master_cases(Cases& cases, const std::string& suffix, const Arenas& a,
                      const std::function<OpCase(OpCase)>& place) {
  const Operand state = scalars({});
  Operand masters = normal("masters", a.first.shape[0], 5);
  masters.role = TensorRole::master_parameter;
  masters.arena = true;
  for (const DType type : {DType::bf16, DType::f16}) {
    Operand written = normal("parameters", a.parameters.shape[0], 6);
    written.dtype = type;
    written.values = rounded(written.values, type);
    const std::string name = suffix + "/" + std::string(to_text(type));
    cases.push_back(place(
        make_case("cast_parameters" + name, OpKind::cast_parameters, {}, {masters}, {written})));
    const std::vector<Operand> inputs = {masters, a.gradients, a.first, a.second, state};
    cases.push_back(place(make_case("adamw/masters" + name, OpKind::adamw,
                                    AdamParams{1e-2, 0.9, 0.95, 1e-8, 0.1}, inputs,
                                    {masters, a.first, a.second, written})));
    cases.push_back(
        place(make_case("sgd/masters" + name, OpKind::sgd, SgdParams{1e-2, 0.9, 0.1},
                        {masters, a.gradients, a.first, state}, {masters, a.first, written})));
    Operand norms{"norms", {8}, {4, 9, 0, 2, 3, 0, 1, 8}};
    norms.arena = true;
    cases.push_back(
        place(make_case("lamb/masters" + name, OpKind::lamb, LambParams{1e-2, 0.9, 0.95, 1e-8, 0.1},
                        {masters, a.first, a.second, norms, state}, {masters, written})));
  }
}

Operand of_type(Operand operand, DType type) {
  operand.dtype = type;
  operand.values = rounded(operand.values, type);
  return operand;
}

/// Updates of parameters in 16 bits, with gradients and moments of the same or of other types.
void add_narrow_cases(Cases& cases, const std::string& suffix, const Arenas& a,
                      const std::function<OpCase(OpCase)>& place) {
  const AdamParams adam{1e-2, 0.9, 0.95, 1e-8, 0.1};
  const auto add = [&](const std::string& name, DType parameter, DType gradient, DType moment) {
    const Operand p = of_type(a.parameters, parameter), g = of_type(a.gradients, gradient),
                  m = of_type(a.first, moment), v = of_type(a.second, moment);
    cases.push_back(place(make_case("adamw/narrow" + suffix + name, OpKind::adamw, adam,
                                    {p, g, m, v, scalars({})}, {p, m, v})));
  };
  add("/bf16", DType::bf16, DType::bf16, DType::bf16);
  add("/f16", DType::f16, DType::f16, DType::f16);
  add("/mixed", DType::bf16, DType::f32, DType::f16);
}

/// Updates of the second bucket alone, by gradients of this range: all of them, or the rank's part.
void add_range_cases(Cases& cases, const std::string& suffix, const Arenas& a, std::int64_t first,
                     std::int64_t degree, const std::function<OpCase(OpCase)>& place) {
  const std::int64_t count = a.parameters.shape[0];
  AdamParams adam{1e-2, 0.9, 0.95, 1e-8, 0.1};
  adam.begin = first;
  adam.end = count;
  adam.elements = (count - first) / degree;
  Operand masters = normal("masters", count / degree, 5);
  masters.role = TensorRole::master_parameter;
  masters.arena = true;
  const Operand written = of_type(normal("parameters", count, 6), DType::bf16);
  for (const std::int64_t parts : {std::int64_t{1}, degree}) {
    Operand gradients = normal("gradients", (count - first) / parts, 2);
    gradients.arena = true;
    const std::string name = parts == 1 ? suffix : suffix + "/part";
    const std::vector<Operand> rest = {gradients, a.first, a.second, scalars({})};
    const auto add = [&](const std::string& of, const Operand& p, std::vector<Operand> out) {
      std::vector<Operand> in = rest;
      in.insert(in.begin(), p);
      cases.push_back(place(make_case("adamw/range" + of + name, OpKind::adamw, adam, in, out)));
    };
    add("", a.parameters, {a.parameters, a.first, a.second});
    add("/masters", masters, {masters, a.first, a.second, written});
    if (degree == 1) break;
  }
}

/// The device updates the first elements of the rank's state, and the host the last ones, in parts.
void add_host_cases(Cases& cases, const std::string& suffix, const Arenas& a,
                    const std::function<OpCase(OpCase)>& place) {
  const std::int64_t owned = a.first.shape[0], rest = owned / 3, middle = owned * 2 / 3;
  const auto part = [&](const Operand& of, std::int64_t begin, std::int64_t end) {
    Operand operand = of;
    operand.values = {of.values.begin() + begin, of.values.begin() + end};
    operand.shape = {end - begin};
    return operand;
  };
  const AdamParams adam{1e-2, 0.9, 0.95, 1e-8, 0.1};
  const SgdParams sgd{1e-2, 0.9, 0.1};
  const Operand m = part(a.first, 0, rest), v = part(a.second, 0, rest), now = scalars({}),
                p = a.parameters, g = a.gradients;
  Operand masters = normal("masters", rest, 5);
  masters.role = TensorRole::master_parameter;
  masters.arena = true;
  const Operand written = of_type(normal("parameters", p.shape[0], 6), DType::bf16);
  const auto add = [&](const std::string& name, OpKind kind, const OpParams& params,
                       const std::vector<Operand>& in, const std::vector<Operand>& out) {
    cases.push_back(place(make_case(name + suffix, kind, params, in, out)));
  };
  add("adamw/rest", OpKind::adamw, adam, {p, g, m, v, now}, {p, m, v});
  add("sgd/rest", OpKind::sgd, sgd, {p, g, m, now}, {p, m});
  add("adamw/rest/masters", OpKind::adamw, adam, {masters, g, m, v, now}, {masters, m, v, written});
  add("sgd/rest/masters", OpKind::sgd, sgd, {masters, g, m, now}, {masters, m, written});
  // Moments that come and go part by part.
  Operand all_masters = normal("masters", owned, 5);
  all_masters.role = TensorRole::master_parameter;
  all_masters.arena = true;
  AdamParams some = adam;
  some.begin = rest;
  some.end = middle;
  some.elements = middle - rest;
  Operand some_m = part(a.first, rest, middle), some_v = part(a.second, rest, middle);
  some_m.arena = some_v.arena = false;
  add("adamw/part", OpKind::adamw, some, {p, g, some_m, some_v, now}, {p, some_m, some_v});
  add("adamw/part/masters", OpKind::adamw, some, {all_masters, g, some_m, some_v, now},
      {all_masters, some_m, some_v, written});
  add("cast_parameters/rest", OpKind::cast_parameters, {}, {masters}, {written});
  for (const auto& [begin, end] : {std::pair(rest, middle), std::pair(middle, owned)}) {
    const auto on_host = [&](const Operand& of) {
      Operand operand = part(of, begin, end);
      operand.on_host = true;
      return operand;
    };
    const auto ranged = [&](auto params) {
      params.begin = begin;
      params.end = end;
      return params;
    };
    Operand there = on_host(p);
    there.role = TensorRole::master_parameter;
    const Operand slopes = on_host(g), first = on_host(a.first), second = on_host(a.second);
    for (const State& at : {State{}, State{.clip = 0.02, .loss_scale = 32}, State{.found = 1}}) {
      const std::string name = fmt::format("/{}/{}/{}", begin, at.loss_scale, at.found);
      const Operand then = scalars(at);
      add("host_adamw" + name, OpKind::host_adamw, ranged(adam),
          {there, slopes, first, second, then}, {there, first, second});
      add("host_sgd" + name, OpKind::host_sgd, ranged(sgd), {there, slopes, first, then},
          {there, first});
    }
  }
}

/// Moments in 8 bits, of masters or of parameters in bf16. A tensor begins with a block, and so
/// does a rank's part.
void add_coded_cases(Cases& cases, std::int64_t count, std::int64_t degree) {
  const std::int64_t step = 4 * kMomentBlock * degree, arena = (count + step - 1) / step * step;
  const std::string suffix = degree == 1 ? "" : "/sharded";
  const auto place = [&](OpCase c) {
    c.program = optimizer_program(arena, degree, arena / 4);
    c.at[std::size_t(Axis::sharding)] = degree - 1;
    return c;
  };
  const Arenas a = arenas(arena, degree, true);
  const auto codes = [&](const char* name, std::int64_t factor) {
    Operand operand{name, {arena / degree}, {}, DType::u8};
    for (std::int64_t i = 0; i < arena / degree; ++i)
      operand.values.push_back(double(i * factor % 251));
    operand.arena = true;
    return operand;
  };
  const Operand m = codes("m", 97), v = codes("v", 89);
  Operand scales = normal("scales", 2 * moment_blocks(arena / degree), 7, 0.1);
  for (double& value : scales.values) value = std::abs(value);
  scales.values[0] = 0;
  scales.arena = true;
  Operand masters = normal("masters", arena / degree, 5);
  masters.role = TensorRole::master_parameter;
  masters.arena = true;
  AdamParams adam{1e-2, 0.9, 0.95, 1e-4, 0.1};
  const Operand p = of_type(a.parameters, DType::bf16), g = of_type(a.gradients, DType::bf16);
  const auto add = [&](const char* name, const State& at, std::vector<Operand> in,
                       std::vector<Operand> out) {
    in.insert(in.end(), {m, v, scales, scalars(at)});
    out.insert(out.begin() + 1, {m, v, scales});
    cases.push_back(
        place(make_case("adamw_8bit" + suffix + name, OpKind::adamw_8bit, adam, in, out)));
  };
  add("", {}, {a.parameters, a.gradients}, {a.parameters});
  add("/skipped", {.found = 1}, {a.parameters, a.gradients}, {a.parameters});
  add("/bf16", {.clip = 0.02, .loss_scale = 32}, {p, g}, {p});
  add("/masters", {}, {masters, a.gradients}, {masters, p});
  const AdamParams whole = adam;
  adam.begin = kMomentBlock;
  adam.end = 3 * kMomentBlock;
  adam.elements = 2 * kMomentBlock;
  const auto some = [&](Operand of) {
    of.shape = {adam.elements};
    of.values = {of.values.begin() + adam.begin, of.values.begin() + adam.end};
    of.arena = false;
    return of;
  };
  const Operand some_m = some(m), some_v = some(v), now = scalars({});
  const auto add_part = [&](const char* name, const Operand& updated, std::vector<Operand> out) {
    out.insert(out.begin(), {updated, some_m, some_v, scales});
    cases.push_back(place(make_case("adamw_8bit" + suffix + name, OpKind::adamw_8bit, adam,
                                    {updated, a.gradients, some_m, some_v, scales, now}, out)));
  };
  add_part("/part", a.parameters, {});
  add_part("/part/masters", masters, {p});
  adam = whole;
  adam.begin = arena / 4;
  adam.end = arena;
  adam.elements = (arena - arena / 4) / degree;
  Operand part = normal("gradients", adam.elements, 2);
  part.arena = true;
  add("/range", {}, {p, part}, {p});
}

Operand positive(std::string name, std::int64_t count, std::uint64_t seed) {
  Operand operand = normal(std::move(name), count, seed);
  for (double& value : operand.values) value = double(float(std::abs(value) + 0.01));
  return operand;
}

/// Adafactor's ops on a part of so many rows and columns of the whole that the parameters state.
void add_factored_cases(Cases& cases, const std::string& suffix, std::int64_t rows,
                        std::int64_t columns, AdafactorParams params) {
  params.learning_rate = 1e-2;
  params.weight_decay = 0.1;
  Operand p = normal("p", rows * columns, 1), g = normal("gradients", rows * columns, 2);
  p.shape = g.shape = {rows, columns};
  const Operand row_sums = positive("row_sums", rows, 3), r = positive("R", rows, 4),
                column_sums = positive("column_sums", columns, 5), c = positive("C", columns, 6);
  const auto add = [&](const std::string& name, const State& at, const Operand& parameters,
                       const Operand& gradients, double length) {
    const Operand state = scalars(at);
    const Operand norm{"norm", {1}, {length * length * double(params.rows * params.columns)}};
    const std::string end = suffix + name;
    cases.push_back(make_case("adafactor_sums" + end, OpKind::adafactor_sums, params,
                              {gradients, state},
                              {blank("rows", rows), blank("columns", columns)}));
    cases.push_back(make_case("adafactor_norm" + end, OpKind::adafactor_norm, params,
                              {gradients, row_sums, column_sums, r, c, state},
                              {r, c, blank("norm", 1)}));
    cases.push_back(make_case("adafactor" + end, OpKind::adafactor, params,
                              {parameters, gradients, r, c, norm, state}, {parameters}));
  };
  add("", {}, p, g, 2);
  add("/skipped", {.found = 1}, p, g, 2);
  add("/narrow", {}, of_type(p, DType::bf16), of_type(g, DType::bf16), 0.5);
  params.clipped = true;
  add("/first", {.step = 1}, p, g, 0.25);
  p.role = TensorRole::master_parameter;
  Operand written = of_type(normal("parameters", rows * columns, 7), DType::bf16);
  written.shape = p.shape;
  for (const double found : {0.0, 1.0}) {
    cases.push_back(make_case(
        "adafactor/masters" + suffix + (found > 0 ? "/skipped" : ""), OpKind::adafactor, params,
        {p, g, r, c, {"norm", {1}, {1000}}, scalars({.found = found})}, {p, written}));
  }
}

void add_arena_cases(Cases& cases, std::int64_t count) {
  for (const std::int64_t degree : {1, 2}) {
    const std::string suffix = degree == 1 ? "" : "/sharded";
    const auto place = [&](OpCase c) {
      c.program = optimizer_program(count, degree, count / 3 / degree * degree);
      c.at[std::size_t(Axis::sharding)] = degree - 1;
      return c;
    };
    const Arenas a = arenas(count, degree, true);
    FlatParams flat;
    flat.shards = degree;
    const auto norm = [&](const std::string& name, const Operand& gradients) {
      cases.push_back(place(
          make_case(name + suffix, OpKind::squared_norm, flat, {gradients}, {blank("sum", 1)})));
    };
    norm("squared_norm", a.gradients);
    // Gradients that are not clipped count only when they are not finite. Padding never counts.
    Operand poisoned = a.gradients;
    poisoned.values[std::size_t(2 * (count / 4) + 20)] = std::numeric_limits<double>::infinity();
    norm("squared_norm/unclipped_not_finite", poisoned);
    Operand padding = a.gradients;
    for (std::int64_t i = 0; i < 4; ++i)
      padding.values[std::size_t(i * (count / 4) + count / 4 - 1)] =
          std::numeric_limits<double>::infinity();
    norm("squared_norm/padding_not_finite", padding);
    add_update_cases(cases, suffix, a, {}, false, {}, place);
    add_update_cases(cases, "/scaled" + suffix, a, {.clip = 0.02, .loss_scale = 32}, false, {},
                     place);
    add_update_cases(cases, "/skipped" + suffix, a, {.found = 1}, false, {}, place);
    add_update_cases(cases, "/group" + suffix, a, {}, true, 1, place);
    add_master_cases(cases, suffix, a, place);
    add_narrow_cases(cases, suffix, a, place);
    add_coded_cases(cases, count, degree);
    add_range_cases(cases, suffix, a, count / 3 / degree * degree, degree, place);
    add_host_cases(cases, suffix, a, place);
  }
  const auto as_is = [](OpCase c) { return c; };
  add_update_cases(cases, "/tensor", arenas(count, 1, false), {}, true, {}, as_is);
}

}  // namespace

std::vector<OpCase> optimizer_cases(const OpSizes& z) {
  Cases cases;
  add_scalar_cases(cases);
  add_piece_cases(cases, z.arena_elements);
  add_arena_cases(cases, z.arena_elements);
  const std::int64_t side = std::int64_t(std::sqrt(double(z.arena_elements)));
  add_factored_cases(cases, "/matrix", side, side + 3, {.rows = side, .columns = side + 3});
  add_factored_cases(cases, "/wide", 3, 5 * side, {.rows = 3, .columns = 5 * side});
  add_factored_cases(cases, "/vector", side, 1, {.rows = side, .columns = 1});
  // Parts of rows, of which one is padding, and of columns that two ranks have.
  add_factored_cases(cases, "/rows", side, side + 3, {.rows = 2 * side - 1, .columns = side + 3});
  add_factored_cases(cases, "/columns", side, side + 3,
                     {.rows = side, .columns = 2 * side + 6, .copies = 2});
  return cases;
}

}  // namespace plimsoll
