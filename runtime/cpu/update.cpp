// The updates: AdamW (Loshchilov and Hutter 2019, "Decoupled weight decay regularization",
// algorithm 2), SGD with momentum (Sutskever et al. 2013, section 2, in the form of PyTorch's
// torch.optim.SGD with dampening 0) and LAMB (You et al. 2020, arXiv 1904.00962, algorithm 2 with
// phi the identity) and Adafactor (Shazeer & Stern 2018, arXiv 1804.04235, algorithm 4). All of
// them leave everything as it is in a step where Scalar::found is set. Compiled with
// -fno-math-errno.
#include <algorithm>
#include <array>
#include <cmath>

#include "models/job/philox.h"
#include "runtime/adafactor.h"
#include "runtime/arena.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/vectorize.h"
#include "runtime/half.h"
#include "runtime/random_rounding.h"
#include "runtime/state/moment_codes.h"
#include "runtime/state/parts.h"

namespace plimsoll {

namespace {

float scalar(const float* scalars, Scalar which) { return scalars[std::size_t(which)]; }

/// The factor that the gradients of a range are multiplied by: clip factor and unscaling, or
/// unscaling alone.
float gradient_factor(const OwnedRange& range, bool clipped, const float* scalars) {
  if (clipped) return 1;
  return range.clip ? scalar(scalars, Scalar::clip) : 1 / scalar(scalars, Scalar::loss_scale);
}

/// First and second moment, bias corrected: what AdamW and LAMB have in common.
struct Moments {
  float factor;  ///< of the gradient
  float beta1, one_minus_beta1, beta2, one_minus_beta2;
  float correction;       ///< 1 / (1 - beta1^step)
  float root_correction;  ///< 1 / sqrt(1 - beta2^step)
  float epsilon;
};

template <class Params>
Moments moments_of(const Params& params, const float* scalars) {
  const double step = scalar(scalars, Scalar::step);
  Moments m;
  m.factor = 1;
  m.beta1 = float(params.beta1);
  m.one_minus_beta1 = float(1 - params.beta1);
  m.beta2 = float(params.beta2);
  m.one_minus_beta2 = float(1 - params.beta2);
  m.correction = float(1 / (1 - std::pow(params.beta1, step)));
  m.root_correction = float(1 / std::sqrt(1 - std::pow(params.beta2, step)));
  m.epsilon = float(params.epsilon);
  return m;
}

/// `step_size`: learning rate / (1 - beta1^step). `keep`: 1 - learning rate * weight decay.
PLIMSOLL_VECTORIZE void update_adamw(float* __restrict parameters,
                                     const float* __restrict gradients, float* __restrict first,
                                     float* __restrict second, std::int64_t count, const Moments f,
                                     float step_size, float keep) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = gradients[i] * f.factor;
    const float m = f.beta1 * first[i] + f.one_minus_beta1 * g;
    const float v = f.beta2 * second[i] + f.one_minus_beta2 * (g * g);
    const float denominator = __builtin_sqrtf(v) * f.root_correction + f.epsilon;
    first[i] = m;
    second[i] = v;
    parameters[i] = keep * parameters[i] - step_size * (m / denominator);
  }
}

PLIMSOLL_VECTORIZE void update_sgd(float* __restrict parameters, const float* __restrict gradients,
                                   float* __restrict velocity, std::int64_t count, float factor,
                                   float momentum, float rate, float decay) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = gradients[i] * factor + decay * parameters[i];
    const float v = momentum * velocity[i] + g;
    velocity[i] = v;
    parameters[i] -= rate * v;
  }
}

constexpr std::int64_t kLanes = 16;

/// Sums of p^2 and u^2, u being the direction of the update.
struct LambSums {
  double parameter = 0, direction = 0;
};

/// Updates the moments and adds up the squares of parameters and direction, in float64.
PLIMSOLL_VECTORIZE LambSums lamb_moments(const float* __restrict parameters,
                                         const float* __restrict gradients, float* __restrict first,
                                         float* __restrict second, std::int64_t count,
                                         const Moments f, float decay) {
  std::array<double, kLanes> p_lanes = {}, u_lanes = {};
  const auto step = [&](std::int64_t i, std::int64_t lane) {
    const float g = gradients[i] * f.factor;
    const float m = f.beta1 * first[i] + f.one_minus_beta1 * g;
    const float v = f.beta2 * second[i] + f.one_minus_beta2 * (g * g);
    first[i] = m;
    second[i] = v;
    const double p = parameters[i];
    const double u = m * f.correction / (__builtin_sqrtf(v) * f.root_correction + f.epsilon) +
                     decay * parameters[i];
    p_lanes[std::size_t(lane)] += p * p;
    u_lanes[std::size_t(lane)] += u * u;
  };
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) step(i + lane, lane);
  }
  for (std::int64_t lane = 0; i < count; ++i, ++lane) step(i, lane);
  LambSums sums;
  for (const double lane : p_lanes) sums.parameter += lane;
  for (const double lane : u_lanes) sums.direction += lane;
  return sums;
}

PLIMSOLL_VECTORIZE void update_lamb(float* __restrict parameters, const float* __restrict first,
                                    const float* __restrict second, std::int64_t count,
                                    const Moments f, float rate, float decay) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float denominator = __builtin_sqrtf(second[i]) * f.root_correction + f.epsilon;
    const float direction = first[i] * f.correction / denominator + decay * parameters[i];
    parameters[i] -= rate * direction;
  }
}

/// In place, unless a caller keeps two copies: then the whole tensor is copied first.
float* state_of(Addresses in, std::size_t input, Addresses out, std::size_t output,
                std::int64_t count) {
  float* state = floats_out(out, output);
  if (in[input] != out[output]) std::copy_n(floats(in, input), count, state);
  return state;
}

/// Returns elements of an operand in f32: in place, or in `copy`.
float* as_f32(DType type, std::byte* operand, std::int64_t first, std::int64_t count, float* copy) {
  std::byte* const from = operand + first * element_bytes(type);
  if (type == DType::f32) return reinterpret_cast<float*>(from);
  to_f32(type, from, copy, count);
  return copy;
}

void put_back(DType type, const float* values, std::int64_t count, std::byte* operand,
              std::int64_t first) {
  if (type != DType::f32) from_f32(type, values, operand + first * element_bytes(type), count);
}

/// AdamW on arenas or tensors of any types. All but f32 values are converted a block at a time.
class AdamW final : public Kernel {
 public:
  explicit AdamW(const KernelRequest& request)
      : params_(request.params<AdamParams>()),
        coded_(request.op.kind == OpKind::adamw_8bit),
        part_(keeps_part(request.input(0), request.context)),
        gradients_(gradient_place(request.input(1), request.input(2), request.context, params_)),
        begin_(state_begin(request.input(2), params_)),
        context_(request.context),
        ranges_(updated_ranges(request.input(0), request.input(2), request.context, params_)) {
    for (std::size_t i = 0; i < types_.size(); ++i) types_[i] = request.input(i).dtype;
    const std::size_t states = coded_ ? 4 : 3;
    for (std::size_t i = 0; i < states; ++i) bytes_.push_back(bytes_of(request.output(i)).count());
    if (coded_) blocks_ = request.input_elements(4) / 2;
    for (const OwnedRange& range : ranges_)
      INVARIANT(!coded_ || range.state_offset % kMomentBlock == 0, "tensors begin with a block");
  }

  void run(Addresses in, Addresses out, const RunPosition&) override {
    for (std::size_t i = 0; i < bytes_.size(); ++i) {  // in place, unless a caller keeps two copies
      const std::byte* const before = in[i == 0 ? 0 : i + 1];
      if (before != out[i]) std::copy_n(before, bytes_[i], out[i]);
    }
    const float* scalars = floats(in, in.size() - 1);
    if (scalar(scalars, Scalar::found) != 0) return;
    const double step = scalar(scalars, Scalar::step);
    const double correction = 1 - std::pow(params_.beta1, step);
    const double learning_rate = params_.learning_rate * rate_factor(context_.rates, step);
    Moments factors = moments_of(params_, scalars);
    for (const OwnedRange& range : ranges_) {
      const double rate = learning_rate * range.rate;
      const double decay = weight_decay_of(range, params_.weight_decay);
      factors.factor = gradient_factor(range, params_.clipped, scalars);
      const bool in_place = std::ranges::all_of(types_, [](DType t) { return t == DType::f32; });
      const std::int64_t most = in_place ? range.elements : kMomentBlock;
      for (std::int64_t done = 0; done < range.elements; done += most) {
        const std::int64_t count = std::min(most, range.elements - done);
        update(in, out, range, done, count, factors, float(rate / correction),
               float(1 - rate * decay));
      }
    }
  }

 private:
  void update(Addresses in, Addresses out, const OwnedRange& range, std::int64_t done,
              std::int64_t count, const Moments& factors, float step_size, float keep) {
    std::array<std::array<float, kMomentBlock>, 4> copies;
    const std::int64_t at = offset_in(range, part_) + (part_ ? begin_ : 0) + done,
                       state_at = range.state_offset + done;
    float* const p = as_f32(types_[0], out[0], at, count, copies[0].data());
    const std::int64_t gradient_at = offset_in(range, gradients_.part) - gradients_.begin + done;
    const float* const g = as_f32(types_[1], in[1], gradient_at, count, copies[1].data());
    float* const m = moments(out, 0, state_at, count, copies[2].data());
    float* const v = moments(out, 1, state_at, count, copies[3].data());
    update_adamw(p, g, m, v, count, factors, step_size, keep);
    if (params_.stochastic && types_[0] != DType::f32) round(in, range, done, count, p);
    put_back(types_[0], p, count, out[0], at);
    keep_moments(out, 0, state_at, count, m);
    keep_moments(out, 1, state_at, count, v);
  }

  float* moments(Addresses out, std::size_t which, std::int64_t at, std::int64_t count,
                 float* copy) const {
    if (!coded_) return as_f32(types_[2 + which], out[1 + which], at, count, copy);
    const float scale = floats(out, 3)[scale_of(which, at)];
    decode_moments(which == 0, out[1 + which] + at, scale, {copy, std::size_t(count)});
    return copy;
  }

  void keep_moments(Addresses out, std::size_t which, std::int64_t at, std::int64_t count,
                    const float* values) const {
    if (!coded_) return put_back(types_[2 + which], values, count, out[1 + which], at);
    floats_out(out, 3)[scale_of(which, at)] =
        encode_moments(which == 0, {values, std::size_t(count)}, out[1 + which] + at);
  }

  std::int64_t scale_of(std::size_t which, std::int64_t at) const {
    return std::int64_t(which) * blocks_ + (begin_ + at) / kMomentBlock;
  }

  /// Rounds new parameters at random. The words depend on where they are in the whole tensor, so
  /// that every strategy draws the same.
  void round(Addresses in, const OwnedRange& range, std::int64_t done, std::int64_t count,
             float* values) const {
    const Segment& segment = context_.program->segments[std::size_t(range.segment)];
    const auto step = std::int64_t(scalar(floats(in, in.size() - 1), Scalar::step));
    const PhiloxKey key = philox_key(params_.seed, step, philox_site(segment.parameter));
    std::array<std::uint32_t, kMomentBlock> words;
    for_each_run(segment.shape, segment.split, context_.at,
                 range.arena_offset - segment.offset + done, count,
                 [&](std::int64_t begin, std::int64_t whole, std::int64_t length) {
                   philox_words(key, segment.layer, whole, length, words.data() + begin);
                 });
    for (std::int64_t i = 0; i < count; ++i)
      values[i] = rounded_at_random(types_[0], values[i], words[std::size_t(i)]);
  }

  const AdamParams params_;
  const bool coded_;  ///< moments have 8 bits
  const bool part_;
  const GradientPlace gradients_;
  const std::int64_t begin_;  ///< of the moments, in the rank's state
  const RankContext& context_;
  const std::vector<OwnedRange> ranges_;
  std::array<DType, 4> types_ = {};  ///< of parameters, gradients and moments
  std::vector<std::int64_t> bytes_;  ///< of parameters, moments and scales
  std::int64_t blocks_ = 0;          ///< scales of one moment
};

}  // namespace

KernelPointer prepare_adamw(const KernelRequest& request) {
  return std::make_unique<AdamW>(request);
}
KernelPointer prepare_adamw_8bit(const KernelRequest& request) {
  return std::make_unique<AdamW>(request);
}
KernelPointer prepare_host_adamw(const KernelRequest& request) {
  return std::make_unique<AdamW>(request);
}
KernelPointer prepare_host_sgd(const KernelRequest& request) { return prepare_sgd(request); }

KernelPointer prepare_sgd(const KernelRequest& request) {
  const auto params = request.params<SgdParams>();
  const std::int64_t arena = request.output_elements(0), owned = request.output_elements(1);
  const bool part = keeps_part(request.input(0), request.context),
             gradient_part = keeps_part(request.input(1), request.context);
  const RateSchedule rates = request.context.rates;
  auto ranges = updated_ranges(request.input(0), request.input(2), request.context, params);
  return make_kernel([=, ranges = std::move(ranges)](Addresses in, Addresses out,
                                                     const RunPosition&) {
    const float* scalars = floats(in, 3);
    float* parameters = state_of(in, 0, out, 0, arena);
    float* velocity = state_of(in, 2, out, 1, owned);
    if (scalar(scalars, Scalar::found) != 0) return;
    const double rate = params.learning_rate * rate_factor(rates, scalar(scalars, Scalar::step));
    for (const OwnedRange& range : ranges) {
      const std::int64_t at = offset_in(range, part);
      update_sgd(parameters + at, floats(in, 1) + offset_in(range, gradient_part),
                 velocity + range.state_offset, range.elements,
                 gradient_factor(range, params.clipped, scalars), float(params.momentum),
                 float(rate * range.rate), float(weight_decay_of(range, params.weight_decay)));
    }
  });
}

KernelPointer prepare_lamb_norms(const KernelRequest& request) {
  const auto params = request.params<LambParams>();
  const std::int64_t owned = request.output_elements(0), norms = request.output_elements(2);
  const bool part = keeps_part(request.input(0), request.context),
             gradient_part = keeps_part(request.input(1), request.context);
  return make_kernel([=, ranges = ranges_of(request.input(0), request.context, params.group)](
                         Addresses in, Addresses out, const RunPosition&) {
    const float* scalars = floats(in, 4);
    float* first = state_of(in, 2, out, 0, owned);
    float* second = state_of(in, 3, out, 1, owned);
    float* sums = floats_out(out, 2);
    std::fill_n(sums, norms, 0.0f);
    if (scalar(scalars, Scalar::found) != 0) return;
    Moments factors = moments_of(params, scalars);
    for (std::size_t i = 0; i < ranges.size();) {
      // A segment may be cut at bucket borders; its parts follow each other.
      LambSums total;
      const std::int64_t segment = ranges[i].segment;
      const double copies = ranges[i].copies;
      for (; i < ranges.size() && ranges[i].segment == segment; ++i) {
        const OwnedRange& range = ranges[i];
        factors.factor = gradient_factor(range, params.clipped, scalars);
        const std::int64_t at = offset_in(range, part);
        const LambSums sum =
            lamb_moments(floats(in, 0) + at, floats(in, 1) + offset_in(range, gradient_part),
                         first + range.state_offset, second + range.state_offset, range.elements,
                         factors, float(weight_decay_of(range, params.weight_decay)));
        total.parameter += sum.parameter;
        total.direction += sum.direction;
      }
      sums[2 * segment] = float(total.parameter / copies);
      sums[2 * segment + 1] = float(total.direction / copies);
    }
  });
}

KernelPointer prepare_lamb(const KernelRequest& request) {
  const auto params = request.params<LambParams>();
  const std::int64_t arena = request.output_elements(0);
  const bool part = keeps_part(request.input(0), request.context);
  const RateSchedule rates = request.context.rates;
  return make_kernel([=, ranges = ranges_of(request.input(0), request.context, params.group)](
                         Addresses in, Addresses out, const RunPosition&) {
    const float* scalars = floats(in, 4);
    float* parameters = state_of(in, 0, out, 0, arena);
    if (scalar(scalars, Scalar::found) != 0) return;
    const Moments factors = moments_of(params, scalars);
    const double rate = params.learning_rate * rate_factor(rates, scalar(scalars, Scalar::step));
    for (const OwnedRange& range : ranges) {
      const float* sums = floats(in, 3) + 2 * range.segment;
      // A tensor of zeros moves by the learning rate alone, and so does one without a direction.
      const bool trusted = sums[0] > 0 && sums[1] > 0;
      const double trust = trusted ? std::sqrt(double(sums[0]) / double(sums[1])) : 1;
      const std::int64_t at = offset_in(range, part);
      update_lamb(parameters + at, floats(in, 1) + range.state_offset,
                  floats(in, 2) + range.state_offset, range.elements, factors,
                  float(rate * range.rate * trust),
                  float(weight_decay_of(range, params.weight_decay)));
    }
  });
}

// ---- Adafactor ----

namespace {

constexpr std::int64_t kPiece = 1024;

/// Adds squares to those of their columns, in float64, and returns their sum.
PLIMSOLL_VECTORIZE double add_squares(const float* __restrict values, std::int64_t count,
                                      float factor, double* __restrict columns) {
  std::array<double, kLanes> lanes = {};
  for (std::int64_t begin = 0; begin < count; begin += kLanes) {
    for (std::int64_t i = begin; i < std::min(begin + kLanes, count); ++i) {
      const double value = values[i] * factor;
      columns[i] += value * value;
      lanes[std::size_t(i - begin)] += value * value;
    }
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

PLIMSOLL_VECTORIZE void divide_by_roots(const float* __restrict gradients,
                                        const float* __restrict columns, std::int64_t count,
                                        float factor, float* __restrict directions) {
  for (std::int64_t i = 0; i < count; ++i)
    directions[i] = factor * gradients[i] / __builtin_sqrtf(columns[i]);
}

/// Calls work(row, first column, values, count) for each row of each piece of the columns.
template <class Work>
void for_each_piece(const FactoredPart& part, DType type, std::byte* matrix, const Work& work) {
  std::array<float, kPiece> copy;
  for (std::int64_t first = 0; first < part.columns; first += kPiece) {
    const std::int64_t count = std::min(kPiece, part.columns - first);
    for (std::int64_t row = 0; row < part.rows; ++row)
      work(row, first, as_f32(type, matrix, row * part.columns + first, count, copy.data()), count);
  }
}

/// Calls work(first element, u, count) for all pieces of u = g / sqrt(R C / mean).
template <class Work>
void for_each_direction(const FactoredPart& part, DType type, std::byte* gradients,
                        const float* rows, const float* columns, float factor, const Work& work) {
  const float* const means = part.whole_columns ? columns : rows;
  double mean = 0;
  for (std::int64_t i = 0; i < (part.whole_columns ? part.columns : part.rows); ++i)
    mean += part.mean_share * means[i];
  std::array<float, kPiece> directions;
  for_each_piece(part, type, gradients,
                 [&](std::int64_t row, std::int64_t first, const float* g, std::int64_t count) {
                   divide_by_roots(g, columns + first, count,
                                   float(factor / std::sqrt(rows[row] / mean)), directions.data());
                   work(row * part.columns + first, directions.data(), count);
                 });
}

float gradient_factor(const FactoredPart& part, const float* scalars) {
  return part.clipped ? 1 : scalar(scalars, Scalar::clip);
}

}  // namespace

KernelPointer prepare_adafactor_sums(const KernelRequest& request) {
  const FactoredPart part(request.params<AdafactorParams>(), request.output_elements(0),
                          request.output_elements(1));
  return make_kernel(
      [part, type = request.input(0).dtype](Addresses in, Addresses out, const RunPosition&) {
        const float factor = gradient_factor(part, floats(in, 1));
        float *rows = floats_out(out, 0), *columns = floats_out(out, 1);
        std::fill_n(rows, part.rows, float(double(part.columns) * kLeastSquare));
        std::array<double, kPiece> sums;
        for_each_piece(
            part, type, in[0],
            [&](std::int64_t row, std::int64_t first, const float* values, std::int64_t count) {
              if (row == 0) sums.fill(double(part.rows) * kLeastSquare);
              rows[row] += float(add_squares(values, count, factor, sums.data()));
              if (row + 1 == part.rows) std::copy_n(sums.begin(), count, columns + first);
            });
      });
}

KernelPointer prepare_adafactor_norm(const KernelRequest& request) {
  const FactoredPart part(request.params<AdafactorParams>(), request.input_elements(3),
                          request.input_elements(4));
  return make_kernel(
      [part, type = request.input(0).dtype](Addresses in, Addresses out, const RunPosition&) {
        const float* scalars = floats(in, 5);
        float* rows = state_of(in, 3, out, 0, part.rows);
        float* columns = state_of(in, 4, out, 1, part.columns);
        *floats_out(out, 2) = 0;
        if (scalar(scalars, Scalar::found) != 0) return;
        const double added = new_share(scalar(scalars, Scalar::step));
        const auto move = [&](float* means, const float* sums, std::int64_t count, double share) {
          for (std::int64_t i = 0; i < count; ++i)
            means[i] = float((1 - added) * means[i] + added * share * sums[i]);
        };
        move(rows, floats(in, 1), part.rows, part.row_share);
        move(columns, floats(in, 2), part.columns, part.column_share);
        double sum = 0;
        std::array<double, kPiece> of_columns = {};  // not needed
        for_each_direction(part, type, in[0], rows, columns, gradient_factor(part, scalars),
                           [&](std::int64_t, const float* directions, std::int64_t count) {
                             sum += add_squares(directions, count, 1, of_columns.data());
                           });
        *floats_out(out, 2) = float(sum * part.norm_share);
      });
}

KernelPointer prepare_adafactor(const KernelRequest& request) {
  const auto params = request.params<AdafactorParams>();
  const FactoredPart part(params, request.input_elements(2), request.input_elements(3));
  const DType type = request.input(0).dtype, gradient_type = request.input(1).dtype;
  const RateSchedule rates = request.context.rates;
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    const float* scalars = floats(in, 5);
    if (in[0] != out[0]) std::copy_n(in[0], part.rows * part.columns * element_bytes(type), out[0]);
    if (scalar(scalars, Scalar::found) != 0) return;
    const double rate = params.learning_rate * rate_factor(rates, scalar(scalars, Scalar::step));
    const double length = std::sqrt(double(*floats(in, 4)) * part.square_share);
    const auto keep = float(1 - rate * params.weight_decay),
               step = float(rate / std::max(1.0, length));
    std::array<float, kPiece> copy;
    for_each_direction(part, gradient_type, in[1], floats(in, 2), floats(in, 3),
                       gradient_factor(part, scalars),
                       [&](std::int64_t at, const float* directions, std::int64_t count) {
                         float* const p = as_f32(type, out[0], at, count, copy.data());
                         for (std::int64_t i = 0; i < count; ++i)
                           p[i] = keep * p[i] - step * directions[i];
                         put_back(type, p, count, out[0], at);
                       });
  });
}

}  // namespace plimsoll
