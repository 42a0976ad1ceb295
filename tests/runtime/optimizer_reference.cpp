// The float64 references of the once-per-step ops.
#include <algorithm>
#include <cmath>

#include "tests/runtime/op_families.h"
#include "tests/runtime/optimizer_cases.h"

namespace plimsoll {

namespace {

double of(const Numbers& scalars, Scalar which) { return scalars[std::size_t(which)]; }
double& of(Numbers& scalars, Scalar which) { return scalars[std::size_t(which)]; }

/// Calls visit(arena index, state index, segment, its index) for every element this rank works on,
/// one by one. A single tensor is one segment that decays as the op says.
template <class Visit>
void for_each_owned(const OpCase& c, bool arena, std::optional<std::int64_t> group, Visit visit) {
  if (!arena) {
    Segment whole;
    whole.decay = true;
    for (std::size_t e = 0; e < c.before[c.op.inputs[0].index()].size(); ++e) visit(e, e, whole, 0);
    return;
  }
  std::int64_t state = 0;
  for (const Bucket& bucket : c.program.buckets) {
    const std::int64_t part = bucket.elements / c.program.sharding_degree;
    for (std::int64_t e = bucket.begin; e < bucket.begin + bucket.elements; ++e) {
      const std::int64_t owner = (e - bucket.begin) / part;
      if (c.program.sharding_degree > 1 && owner != c.at[std::size_t(Axis::sharding)]) continue;
      for (std::size_t s = 0; s < c.program.segments.size(); ++s) {
        const Segment& segment = c.program.segments[s];
        if (group && segment.group != *group) continue;
        if (e >= segment.offset && e < segment.offset + segment.elements)
          visit(std::size_t(e), std::size_t(state), segment, s);
      }
      ++state;
    }
  }
}

/// Returns the element of the rank's state with which the moments begin: not the first one where
/// they are a part.
std::size_t first_moment(const Operands& o) {
  const auto& a = o.params<AdamParams>();
  const bool part = a.end > 0 && !o.c.input(2).arena && !o.c.input(0).on_host;
  return part ? std::size_t(a.begin) : 0;
}

/// Where an update of a range has the gradient of an element: in the order of the range, or of the
/// rank's state in it. Each rank has an equal part of what is before the range. What the host
/// updates lies together.
std::size_t gradient_at(const Operands& o, std::size_t e, std::size_t state) {
  const auto& a = o.params<AdamParams>();
  if (a.end == 0 || o.c.input(0).on_host || !o.c.input(2).arena) return e;
  const bool whole = o.in(1).size() == std::size_t(a.end - a.begin);
  return whole ? e - std::size_t(a.begin)
               : state - std::size_t(a.begin / o.c.program.sharding_degree);
}

template <class Params, class Visit>
void for_each_updated(const Operands& o, Visit visit) {
  const auto& params = o.params<Params>();
  const Numbers scalars = o.in(o.c.op.inputs.size() - 1);
  if (of(scalars, Scalar::found) != 0) return;
  for_each_owned(o.c, o.c.input(0).arena, params.group,
                 [&](std::size_t e, std::size_t state, const Segment& segment, std::size_t s) {
                   if constexpr (requires { params.end; }) {
                     const bool on_host = o.c.input(0).on_host;
                     const bool of_state = on_host || (params.end > 0 && !o.c.input(2).arena);
                     if (!of_state && state >= o.in(2).size()) return;
                     const auto at = std::int64_t(of_state ? state : e);
                     if (params.end > 0 && (at < params.begin || at >= params.end)) return;
                     if (on_host) e = state = std::size_t(at - params.begin);
                   }
                   const double unscale = 1 / of(scalars, Scalar::loss_scale);
                   const double factor = params.clipped ? 1
                                         : segment.clip ? of(scalars, Scalar::clip)
                                                        : unscale;
                   const double decay =
                       segment.weight_decay.value_or(segment.decay ? params.weight_decay : 0);
                   visit(e, state, s, factor, decay, params.learning_rate * segment.rate);
                 });
}

/// Masters lie as the state does, parameters as the gradients do.
std::size_t place(const Operands& o, std::size_t e, std::size_t state) {
  return o.c.input(0).role == TensorRole::master_parameter ? state : e;
}

void cast_parameters(const Operands& o) {
  for_each_owned(o.c, o.c.input(0).arena, {},
                 [&](std::size_t e, std::size_t state, const Segment&, std::size_t) {
                   if (state < o.in(0).size()) o.out(0)[e] = o.in(0)[state];
                 });
}

double corrected(double moment, double beta, const Numbers& scalars) {
  return moment / (1 - std::pow(beta, of(scalars, Scalar::step)));
}

void adamw(const Operands& o) {
  const auto& a = o.params<AdamParams>();
  const Numbers scalars = o.in(4);
  for_each_updated<AdamParams>(o, [&](std::size_t e, std::size_t state, std::size_t, double factor,
                                      double decay, double rate) {
    const double g = factor * o.in(1)[gradient_at(o, e, state)];
    const std::size_t own = state - first_moment(o);
    double &p = o.out(0)[place(o, e, state)], &m = o.out(1)[own], &v = o.out(2)[own];
    m = a.beta1 * m + (1 - a.beta1) * g;
    v = a.beta2 * v + (1 - a.beta2) * g * g;
    const double direction =
        corrected(m, a.beta1, scalars) / (std::sqrt(corrected(v, a.beta2, scalars)) + a.epsilon);
    p -= rate * (direction + decay * p);
    if (o.c.op.outputs.size() == 4) o.out(3)[e] = p;
  });
}

/// The values of the codes by their definition: decades from 1e-7 to 1, the next with twice as many
/// equal parts as the one before, of which the middles count.
Numbers code_values(bool negative) {
  Numbers values = {0, 1};
  double bottom = 1e-7;
  for (int parts = negative ? 1 : 2; parts <= (negative ? 64 : 128); parts *= 2, bottom *= 10) {
    for (int i = 0; i < parts; ++i) {
      values.push_back(bottom + (i + 0.5) * 9 * bottom / parts);
      if (negative) values.push_back(-values.back());
    }
  }
  std::sort(values.begin(), values.end());
  return values;
}

/// A moment's codes times their scales.
Numbers decoded(const Operands& o, std::size_t moment) {
  const Numbers code = code_values(moment == 0), codes = o.in(2 + moment), scales = o.in(4);
  Numbers values;
  for (std::size_t i = 0; i < codes.size(); ++i)
    values.push_back(
        code[std::size_t(codes[i])] *
        scales[moment * scales.size() / 2 + (first_moment(o) + i) / std::size_t(kMomentBlock)]);
  return values;
}

/// Every updated element gets the nearest code, of those scaled by the largest of its block.
void encode(const Operands& o, std::size_t moment, const Numbers& values,
            const std::vector<bool>& updated) {
  const Numbers code = code_values(moment == 0);
  Numbers& scales = o.out(3);
  const auto block = [&](std::size_t i) {
    return moment * scales.size() / 2 + (first_moment(o) + i) / std::size_t(kMomentBlock);
  };
  for (std::size_t i = 0; i < values.size(); ++i)
    if (updated[i]) scales[block(i)] = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (updated[i]) scales[block(i)] = std::max(scales[block(i)], std::abs(values[i]));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!updated[i]) continue;
    const auto nearest = std::min_element(code.begin(), code.end(), [&](double a, double b) {
      const double x = values[i] / scales[block(i)];
      return std::abs(x - a) < std::abs(x - b);
    });
    o.out(1 + moment)[i] = double(nearest - code.begin());
  }
}

void adamw_8bit(const Operands& o) {
  const auto& a = o.params<AdamParams>();
  const Numbers scalars = o.in(5);
  Numbers m = decoded(o, 0), v = decoded(o, 1);
  std::vector<bool> updated(m.size());
  for_each_updated<AdamParams>(o, [&](std::size_t e, std::size_t state, std::size_t, double factor,
                                      double decay, double rate) {
    const double g = factor * o.in(1)[gradient_at(o, e, state)];
    double& p = o.out(0)[place(o, e, state)];
    const std::size_t own = state - first_moment(o);
    updated[own] = true;
    m[own] = a.beta1 * m[own] + (1 - a.beta1) * g;
    v[own] = a.beta2 * v[own] + (1 - a.beta2) * g * g;
    p -= rate * (corrected(m[own], a.beta1, scalars) /
                     (std::sqrt(corrected(v[own], a.beta2, scalars)) + a.epsilon) +
                 decay * p);
    if (o.c.op.outputs.size() == 5) o.out(4)[e] = p;
  });
  encode(o, 0, m, updated);
  encode(o, 1, v, updated);
}

void sgd(const Operands& o) {
  const auto& a = o.params<SgdParams>();
  for_each_updated<SgdParams>(o, [&](std::size_t e, std::size_t state, std::size_t, double factor,
                                     double decay, double rate) {
    double &p = o.out(0)[place(o, e, state)], &velocity = o.out(1)[state];
    velocity = a.momentum * velocity + factor * o.in(1)[e] + decay * p;
    p -= rate * velocity;
    if (o.c.op.outputs.size() == 3) o.out(2)[e] = p;
  });
}

void lamb_norms(const Operands& o) {
  const auto& a = o.params<LambParams>();
  const Numbers scalars = o.in(4);
  std::fill(o.out(2).begin(), o.out(2).end(), 0.0);
  for_each_updated<LambParams>(
      o, [&](std::size_t e, std::size_t state, std::size_t s, double factor, double decay, double) {
        const double g = factor * o.in(1)[e], p = o.in(0)[place(o, e, state)];
        double &m = o.out(0)[state], &v = o.out(1)[state];
        m = a.beta1 * m + (1 - a.beta1) * g;
        v = a.beta2 * v + (1 - a.beta2) * g * g;
        const double u = corrected(m, a.beta1, scalars) /
                             (std::sqrt(corrected(v, a.beta2, scalars)) + a.epsilon) +
                         decay * p;
        const bool replicated = o.c.input(0).arena && !o.c.program.segments[s].split;
        const double copies = replicated ? 2 : 1;  // on the mp ranks of optimizer_program
        o.out(2)[2 * s] += p * p / copies;
        o.out(2)[2 * s + 1] += u * u / copies;
      });
}

void lamb(const Operands& o) {
  const auto& a = o.params<LambParams>();
  const Numbers scalars = o.in(4);
  for_each_updated<LambParams>(
      o, [&](std::size_t e, std::size_t state, std::size_t s, double, double decay, double rate) {
        double& p = o.out(0)[place(o, e, state)];
        const double u = corrected(o.in(1)[state], a.beta1, scalars) /
                             (std::sqrt(corrected(o.in(2)[state], a.beta2, scalars)) + a.epsilon) +
                         decay * p;
        const double parameter = o.in(3)[2 * s], direction = o.in(3)[2 * s + 1];
        const double trust =
            parameter > 0 && direction > 0 ? std::sqrt(parameter) / std::sqrt(direction) : 1;
        p -= rate * trust * u;
        if (o.c.op.outputs.size() == 2) o.out(1)[e] = p;
      });
}

double square(double x) { return x * x; }

double unscaled(const Operands& o, std::size_t gradient, std::size_t e) {
  const Numbers& scalars = o.in(o.c.op.inputs.size() - 1);
  return o.in(gradient)[e] * (o.params<AdafactorParams>().clipped ? 1 : of(scalars, Scalar::clip));
}

void adafactor_sums(const Operands& o) {
  std::fill(o.out(0).begin(), o.out(0).end(), 0.0);
  std::fill(o.out(1).begin(), o.out(1).end(), 0.0);
  const std::size_t columns = o.out(1).size();
  for (std::size_t e = 0; e < o.in(0).size(); ++e) {
    const double add = square(unscaled(o, 0, e)) + 1e-30;
    o.out(0)[e / columns] += add;
    o.out(1)[e % columns] += add;
  }
}

/// g / sqrt(R_i C_j / mean) by the means of rows and columns, of which one has all of the whole.
double factored_direction(const Operands& o, std::size_t gradient, const Numbers& rows,
                          const Numbers& columns, std::size_t e) {
  const auto& a = o.params<AdafactorParams>();
  const bool all = std::int64_t(columns.size()) == a.columns;
  double mean = 0;
  for (const double one : all ? columns : rows) mean += one / double(all ? a.columns : a.rows);
  return unscaled(o, gradient, e) /
         std::sqrt(rows[e / columns.size()] * columns[e % columns.size()] / mean);
}

void adafactor_norm(const Operands& o) {
  const auto& a = o.params<AdafactorParams>();
  const Numbers scalars = o.in(5);
  Numbers &rows = o.out(0), &columns = o.out(1);
  o.out(2)[0] = 0;
  if (of(scalars, Scalar::found) != 0) return;
  const double kept = 1 - std::pow(of(scalars, Scalar::step), -0.8);
  const bool by_columns = std::int64_t(columns.size()) < a.columns;  // what mp splits
  const double of_rows = double(a.columns * (by_columns ? a.copies : 1)),
               of_columns = double(a.rows * (by_columns ? 1 : a.copies));
  for (std::size_t i = 0; i < rows.size(); ++i)
    rows[i] = kept * rows[i] + (1 - kept) * o.in(1)[i] / of_rows;
  for (std::size_t j = 0; j < columns.size(); ++j)
    columns[j] = kept * columns[j] + (1 - kept) * o.in(2)[j] / of_columns;
  for (std::size_t e = 0; e < o.in(0).size(); ++e)
    o.out(2)[0] += square(factored_direction(o, 0, rows, columns, e)) / double(a.copies);
}

void adafactor(const Operands& o) {
  const auto& a = o.params<AdafactorParams>();
  const bool skips = of(o.in(5), Scalar::found) != 0;
  const double length = std::sqrt(o.in(4)[0] / double(a.rows * a.columns));
  for (std::size_t e = 0; e < o.out(0).size(); ++e) {
    double& p = o.out(0)[e];
    const double u = factored_direction(o, 1, o.in(2), o.in(3), e) / std::max(1.0, length);
    if (!skips) p -= a.learning_rate * (u + a.weight_decay * p);
    if (o.c.op.outputs.size() == 2) o.out(1)[e] = p;
  }
}

void squared_norm(const Operands& o) {
  const auto& params = o.params<FlatParams>();
  double sum = 0;
  for_each_owned(o.c, o.c.input(0).arena, params.group,
                 [&](std::size_t e, std::size_t, const Segment& segment, std::size_t) {
                   const double g = o.in(0)[e];
                   if (segment.norm_weight == 0 || (!segment.clip && std::isfinite(g))) return;
                   sum += params.weight * segment.norm_weight * g * g;
                 });
  o.out(0)[0] = sum;
}

void note(Numbers& scalars, bool found) {
  of(scalars, Scalar::found) = found;
  of(scalars, Scalar::step) -= found;
  of(scalars, Scalar::skipped) += found;
  of(scalars, Scalar::good_steps) = found ? 0 : of(scalars, Scalar::good_steps) + 1;
}

void clip_factor(const Operands& o) {
  const auto& params = o.params<ClipParams>();
  Numbers& scalars = o.out(0);
  const double sum = o.in(0)[0], scale = of(scalars, Scalar::loss_scale);
  const double norm = std::sqrt(sum) / scale;
  of(scalars, Scalar::gradient_norm) = norm;
  of(scalars, Scalar::clip) = (params.limit == 0 ? 1 : std::min(1.0, params.limit / norm)) / scale;
  if (params.loss_scaling) note(scalars, !std::isfinite(sum));
}

void begin_step(const Operands& o) {
  Numbers& scalars = o.out(0);
  of(scalars, Scalar::step) += 1;
  of(scalars, Scalar::loss) = 0;
  const auto& rule = o.params<StepParams>();
  const bool found = of(scalars, Scalar::found) != 0;
  const bool grows =
      rule.growth_interval > 0 && of(scalars, Scalar::good_steps) >= double(rule.growth_interval);
  double& scale = of(scalars, Scalar::loss_scale);
  scale = scale == 0 ? rule.loss_scale
          : found    ? std::max(1.0, rule.backoff * scale)
          : grows    ? rule.growth * scale
                     : scale;
  if (grows && !found) of(scalars, Scalar::good_steps) = 0;
  of(scalars, Scalar::found) = 0;
}

void check_finite(const Operands& o) {
  const Numbers gradients = o.in(0);
  const double scale = of(o.in(1), Scalar::loss_scale);
  const auto finite = [](double g) { return std::isfinite(g); };
  o.out(1)[0] = std::all_of(gradients.begin(), gradients.end(), finite) ? 0 : 1;
  for (std::size_t i = 0; i < gradients.size(); ++i) o.out(0)[i] = gradients[i] / scale;
}

void reduce_sum(const Operands& o) {
  double sum = 0;
  for (std::size_t i = 0; i < o.c.op.inputs.size(); ++i) {
    for (const double value : o.in(i)) sum += value;
  }
  o.out(0)[0] = o.params<FlatParams>().weight * sum;
}

}  // namespace

bool run_optimizer_reference(const OpCase& c, Values& values) {
  const Operands o{c, values};
  switch (c.op.kind) {
    case OpKind::begin_step:
      return begin_step(o), true;
    case OpKind::squared_norm:
      return squared_norm(o), true;
    case OpKind::clip_factor:
      return clip_factor(o), true;
    case OpKind::update_loss_scale:
      return note(o.out(0), o.in(0)[0] != 0), true;
    case OpKind::check_finite:
      return check_finite(o), true;
    case OpKind::square:
      return each(o, [&](std::size_t i) { return o.in(0)[i] * o.in(0)[i]; }), true;
    case OpKind::reduce_sum:
      return reduce_sum(o), true;
    case OpKind::square_root:
      return each(o, [&](std::size_t i) { return std::sqrt(o.in(0)[i]); }), true;
    case OpKind::maximum:
      return each(o, [&](std::size_t i) { return std::max(o.in(0)[i], o.in(1)[i]); }), true;
    case OpKind::divide:
      return each(o, [&](std::size_t i) { return o.in(0)[i] / o.in(1)[i]; }), true;
    case OpKind::scale:
      return each(o, [&](std::size_t i) { return o.in(0)[i] * o.in(1)[0]; }), true;
    case OpKind::coalesce:
      return true;
    case OpKind::cast_parameters:
      return cast_parameters(o), true;
    case OpKind::adamw:
    case OpKind::host_adamw:
      return adamw(o), true;
    case OpKind::adamw_8bit:
      return adamw_8bit(o), true;
    case OpKind::sgd:
    case OpKind::host_sgd:
      return sgd(o), true;
    case OpKind::lamb_norms:
      return lamb_norms(o), true;
    case OpKind::lamb:
      return lamb(o), true;
    case OpKind::adafactor_sums:
      return adafactor_sums(o), true;
    case OpKind::adafactor_norm:
      return adafactor_norm(o), true;
    case OpKind::adafactor:
      return adafactor(o), true;
    default:
      return false;
  }
}

OpCase small_update(std::int64_t count, bool stochastic, std::int64_t parts) {
  const auto arena = [&](const char* name, double value, DType type) {
    return Operand{
        name, {count}, std::vector<double>(std::size_t(count), value), type, TensorRole::activation,
        true};
  };
  AdamParams params{.learning_rate = 1e-4, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8};
  params.stochastic = stochastic;
  params.seed = 7;
  const Operand p = arena("p", 1, DType::bf16), g = arena("g", 1, DType::bf16),
                m = arena("m", 0, DType::f32), v = arena("v", 0, DType::f32);
  const Operand scalars{
      "scalars", {kScalars}, {1, 0, 0, 1, 1, 0, 0, 0}, DType::f32, TensorRole::scalar};
  OpCase c = make_case("update", OpKind::adamw, params, {p, g, m, v, scalars}, {p, m, v});
  Segment segment;
  segment.parameter = "layer.weight";
  segment.shape = {count * parts / 64, 64 / parts};
  if (parts > 1) segment.split = Split{1, Axis::mp, parts};
  c.program.grid.degree[std::size_t(Axis::mp)] = parts;
  c.at[std::size_t(Axis::mp)] = parts - 1;
  segment.elements = count;
  c.program.segments = {segment};
  c.program.buckets = {{0, count}};
  return c;
}

}  // namespace plimsoll
