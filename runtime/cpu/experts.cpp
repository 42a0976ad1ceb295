// The router of a mixture of experts, and the rows between tokens and experts.
//
// Scores: softmax (Shazeer et al. 2017, arXiv 1701.06538; Mixtral, arXiv 2401.04088), or sigmoid
// with groups of experts (DeepSeek-V3, arXiv 2412.19437, section 2.1.2). The softmax over the
// chosen logits alone, as in Mixtral, is the softmax over all, normalised over the chosen.
// Auxiliary loss: of each sequence, or of some consecutive ones, so that it does not depend on how
// sequences are split into micro-batches (DeepSeek-V3, section 2.1.2; the form of Fedus et al.
// 2021, arXiv 2101.03961, section 2.2). Selection bias: Wang et al. 2024, arXiv 2408.15664,
// algorithm 1. z loss: Zoph et al. 2022, arXiv 2202.08906, section 3.1.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/storage.h"
#include "runtime/cpu/vectorize.h"
#include "runtime/sequence_part.h"

namespace plimsoll {

namespace {

/// Log of the sum of exp.
float log_sum_exp(const float* logits, std::int64_t count) {
  const float most = *std::max_element(logits, logits + count);
  float sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += std::exp(logits[i] - most);
  return most + std::log(sum);
}

void score(bool sigmoid, const float* logits, float* scores, std::int64_t count) {
  const float shift = sigmoid ? 0 : log_sum_exp(logits, count);
  for (std::int64_t i = 0; i < count; ++i)
    scores[i] = sigmoid ? 1 / (1 + std::exp(-logits[i])) : std::exp(logits[i] - shift);
}

/// slopes: of scores, replaced by those of logits.
void differentiate_scores(bool sigmoid, const float* scores, float* slopes, std::int64_t count) {
  if (sigmoid) {
    for (std::int64_t i = 0; i < count; ++i) slopes[i] *= scores[i] * (1 - scores[i]);
    return;
  }
  const float mean = dot(slopes, scores, count);
  for (std::int64_t i = 0; i < count; ++i) slopes[i] = scores[i] * (slopes[i] - mean);
}

/// Returns the first of the highest values, and takes it out.
std::int64_t take_highest(float* values, std::int64_t count) {
  const std::int64_t best = std::max_element(values, values + count) - values;
  values[best] = -INFINITY;
  return best;
}

/// Scores one token's logits and chooses its experts.
class Router {
 public:
  Router(const RouteParams& params, std::int64_t experts, std::int64_t chosen, Scratch& scratch)
      : params_(params),
        experts_(experts),
        chosen_(chosen),
        scores_(scratch.take_floats(experts)),
        ranked_(scratch.take_floats(experts)),
        open_(scratch.take_floats(experts)),
        groups_(scratch.take_floats(params.groups)) {}

  const float* scores(const float* logits) const {
    score(params_.sigmoid, logits, scores_, experts_);
    return scores_;
  }

  /// A bias, where there is one, counts in the choice and not in the weights.
  void choose(const float* logits, const float* bias, float* weights, std::int32_t* chosen) const {
    scores(logits);
    for (std::int64_t e = 0; e < experts_; ++e)
      ranked_[e] = scores_[e] + (bias == nullptr ? 0 : bias[e]);
    std::copy_n(ranked_, experts_, open_);
    if (params_.top_groups < params_.groups) close_groups();
    float sum = 0;
    for (std::int64_t j = 0; j < chosen_; ++j) {
      const std::int64_t expert = take_highest(open_, experts_);
      chosen[j] = std::int32_t(expert);
      sum += weights[j] = scores_[expert];
    }
    const float factor = factor_of(sum);
    for (std::int64_t j = 0; j < chosen_; ++j) weights[j] *= factor;
  }

  /// Returns the factor of chosen scores that have this sum.
  float factor_of(float sum) const {
    return float(params_.scale) / (params_.normalized ? sum : 1.0f);
  }

  /// With w_i = factor s_i, and normalised with the sum S of the chosen scores: ds_i = factor
  /// (dw_i - sum of dw_j s_j / S). Writes the slopes of the logits.
  void differentiate(const float* logits, const float* dweights, const std::int32_t* chosen,
                     float* slopes) const {
    scores(logits);
    float sum = 0, product = 0;
    for (std::int64_t j = 0; j < chosen_; ++j) {
      sum += scores_[chosen[j]];
      product += dweights[j] * scores_[chosen[j]];
    }
    const float shift = params_.normalized ? product / sum : 0;
    std::fill_n(slopes, experts_, 0.0f);
    for (std::int64_t j = 0; j < chosen_; ++j)
      slopes[chosen[j]] = factor_of(sum) * (dweights[j] - shift);
    differentiate_scores(params_.sigmoid, scores_, slopes, experts_);
  }

 private:
  /// Leaves only the experts of the best groups open.
  void close_groups() const {
    const std::int64_t each = experts_ / params_.groups;
    for (std::int64_t g = 0; g < params_.groups; ++g) {
      groups_[g] = 0;
      for (std::int64_t i = 0; i < params_.group_best; ++i) {
        groups_[g] += ranked_[g * each + take_highest(open_ + g * each, each)];
      }
    }
    std::fill_n(open_, experts_, -INFINITY);
    for (std::int64_t i = 0; i < params_.top_groups; ++i) {
      const std::int64_t first = take_highest(groups_, params_.groups) * each;
      std::copy_n(ranked_ + first, each, open_ + first);
    }
  }

  RouteParams params_;
  std::int64_t experts_, chosen_;
  float *scores_, *ranked_;  ///< by expert; with the bias
  float *open_, *groups_;    ///< those that may still be chosen; by group
};

/// The rows of token i among those of [n,k].
struct Choices {
  std::int64_t tokens, each;
  explicit Choices(const Tensor& tensor) : tokens(tensor.shape[0]), each(tensor.shape[1]) {}
};

}  // namespace

KernelPointer prepare_route(const KernelRequest& request) {
  const Choices choices(request.output(0));
  const std::int64_t experts = request.input(0).shape[1];
  Scratch scratch(request);
  const Rows logits(request.input(0), {choices.tokens, experts, 1}, scratch);
  const Router router(request.params<RouteParams>(), experts, choices.each, scratch);
  const bool biased = request.op.inputs.size() > 1;
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    auto* chosen = reinterpret_cast<std::int32_t*>(out[1]);
    const float* bias = biased ? floats(in, 1) : nullptr;
    for (std::int64_t i = 0; i < choices.tokens; ++i) {
      router.choose(logits.read(in[0], i, 1), bias, floats_out(out, 0) + i * choices.each,
                    chosen + i * choices.each);
    }
  });
}

// Counts are exact up to 2^24, and stay at least as large beyond.
KernelPointer prepare_count_choices(const KernelRequest& request) {
  const std::int64_t choices = request.input_elements(0);
  return make_kernel([choices](Addresses in, Addresses out, const RunPosition&) {
    for (std::int64_t i = 0; i < choices; ++i) floats_out(out, 0)[ids(in, 0)[i]] += 1;
  });
}

KernelPointer prepare_move_selection_bias(const KernelRequest& request) {
  const auto params = request.params<SelectionParams>();
  const std::int64_t experts = request.input_elements(0);
  const auto step = float(params.step), even = float(params.even);
  return make_kernel([=](Addresses, Addresses out, const RunPosition&) {
    float *load = floats_out(out, 0), *bias = floats_out(out, 1);
    for (std::int64_t e = 0; e < experts; ++e) {
      if (load[e] != even) bias[e] += load[e] < even ? step : -step;
      load[e] = 0;
    }
  });
}

KernelPointer prepare_route_backward(const KernelRequest& request) {
  const Choices choices(request.input(0));
  const std::int64_t experts = request.input(1).shape[1];
  Scratch scratch(request);
  const Rows logits(request.input(1), {choices.tokens, experts, 1}, scratch),
      slopes(request.output(0), {choices.tokens, experts, 1}, scratch);
  const Router router(request.params<RouteParams>(), experts, choices.each, scratch);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    for (std::int64_t i = 0; i < choices.tokens; ++i) {
      const std::int64_t first = i * choices.each;
      router.differentiate(logits.read(in[1], i, 1), floats(in, 0) + first, ids(in, 2) + first,
                           slopes.target(out[0], i));
      slopes.store(out[0], i, 1);
    }
  });
}

// In place: the weights stay as they are.
KernelPointer prepare_balance_experts(const KernelRequest&) {
  return make_kernel([](Addresses, Addresses, const RunPosition&) {});
}

// Take the sequences of one loss with counts c_e, scores q_te whose sum over experts is 1 (sigmoids
// are divided by theirs), s tokens together and k = sum of c_e / s: the auxiliary loss is
// E sum_e c_e/(k s) mean_t q_te.
KernelPointer prepare_balance_experts_backward(const KernelRequest& request) {
  const auto params = request.params<BalanceParams>();
  const std::int64_t tokens = request.input(0).shape[0], experts = request.input(0).shape[1];
  const auto& split = request.input(0).split;
  const std::int64_t before = split ? tokens * part_index(*split, request.context.at) : 0;
  // The tokens of a sequence on the ranks of mp; ranks of cp have others.
  const std::int64_t of_sequence = tokens * (split ? split->degree : 1) / request.input(1).shape[0];
  INVARIANT(request.input(1).shape[0] % params.sequences == 0,
            "a micro-batch has all sequences of an auxiliary loss");
  Scratch scratch(request);
  const Rows logits(request.input(0), {tokens, experts, 1}, scratch),
      slopes(request.output(0), {tokens, experts, 1}, scratch);
  float *scores = scratch.take_floats(experts), *counts = scratch.take_floats(experts);
  const std::int64_t of_loss = of_sequence * params.sequences;
  const bool scaled = request.op.inputs.size() > 2;
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    const float loss_scale = scaled ? floats(in, 2)[0] : 1;
    for (std::int64_t i = 0; i < tokens; ++i) {
      if (i == 0 || (before + i) % of_loss == 0) {
        const float* first = floats(in, 1) + (before + i) / of_loss * params.sequences * experts;
        std::copy_n(first, experts, counts);
        for (std::int64_t more = 1; more < params.sequences; ++more)
          add_rows(counts, first + more * experts, counts, experts);
      }
      const float* row = logits.read(in[0], i, 1);
      float* slope = slopes.target(out[0], i);
      score(params.sigmoid, row, scores, experts);
      float choices = 0, sum = 0;
      for (std::int64_t e = 0; e < experts; ++e) choices += counts[e];
      for (std::int64_t e = 0; e < experts; ++e) sum += scores[e];
      const float weight = loss_scale * float(params.balance_weight) * float(experts) / choices /
                           float(params.sequence * params.sequences) / sum;
      const float shift = dot(counts, scores, experts) / sum;
      for (std::int64_t e = 0; e < experts; ++e) slope[e] = weight * (counts[e] - shift);
      differentiate_scores(params.sigmoid, scores, slope, experts);
      const float z = log_sum_exp(row, experts);
      const float z_slope = loss_scale * 2 * float(params.z_weight) * z;
      for (std::int64_t e = 0; e < experts; ++e) slope[e] += z_slope * std::exp(row[e] - z);
      slopes.store(out[0], i, 1);
    }
  });
}

namespace {

/// The experts of this rank, and the rows for which it has memory.
struct OwnExperts {
  std::int64_t first, count, most_rows;
  RowOverflow* overflow;  ///< null: rows without memory are left out, and are no fault
  OwnExperts(const PlaceParams& params, std::int64_t count_, const RankContext& context)
      : first(params.parts > 1 ? context.at[std::size_t(Axis::ep)] * count_ : 0),
        count(count_),
        most_rows(params.rows),
        overflow(params.drops ? nullptr : context.overflow) {}

  /// Returns where an expert's rows end that would have this end.
  std::int32_t end(std::int64_t row) const { return std::int32_t(std::min(row, most_rows)); }
  /// The first time of a run is noted.
  void note(std::int64_t rows, const RunPosition& position) const {
    if (rows <= most_rows || overflow == nullptr || overflow->rows > 0) return;
    *overflow = {rows, most_rows, first, first + count - 1, position};
  }
};

}  // namespace

KernelPointer prepare_limit_choices(const KernelRequest& request) {
  const Choices choices(request.input(0));
  const auto params = request.params<LimitParams>();
  const std::int64_t experts = request.output(0).shape[1], each = choices.each;
  const bool keeps = request.op.outputs.size() > 1;
  // This rank's tokens: those of its rank of cp, of which ranks of mp have a part each.
  const std::int64_t own = keeps ? request.output(1).shape[0] : 0;
  const std::int64_t of_mp = keeps ? choices.tokens / params.ranks / own : 1;
  const Coordinates& at = request.context.at;
  const std::int64_t part = params.ranks > 1 ? at[std::size_t(Axis::cp)] : 0;
  const std::int64_t begin = (part * of_mp + (of_mp > 1 ? at[std::size_t(Axis::mp)] : 0)) * own;
  const SequencePart all{.tokens = params.sequence,
                         .ranks = params.ranks,
                         .rank = -1,
                         .batch = choices.tokens / params.sequence};
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    const std::int32_t* chosen = ids(in, 0);
    float* counts = floats_out(out, 0);
    auto* kept = keeps ? reinterpret_cast<std::int32_t*>(out[1]) : nullptr;
    std::fill_n(counts, all.batch * experts, 0.0f);
    for (std::int64_t b = 0; b < all.batch; ++b) {
      float* of_sequence = counts + b * experts;
      for (std::int64_t i = 0; i < params.sequence; ++i) {
        const std::int64_t token = all.row(b, i);
        for (std::int64_t j = 0; j < each; ++j) {
          const std::int32_t e = chosen[token * each + j];
          const bool fits = of_sequence[e]++ < float(params.capacity);
          if (token >= begin && token < begin + own)
            kept[(token - begin) * each + j] = fits ? e : -1;
        }
      }
    }
  });
}

KernelPointer prepare_place_choices(const KernelRequest& request) {
  const Choices choices(request.input(0));
  const OwnExperts here(request.params<PlaceParams>(), request.output_elements(1), request.context);
  Scratch scratch(request);
  auto* next = reinterpret_cast<std::int32_t*>(scratch.take(Bytes(4 * here.count)));
  return make_kernel([=](Addresses in, Addresses out, const RunPosition& position) {
    const std::int32_t* chosen = ids(in, 0);
    auto *rows = reinterpret_cast<std::int32_t*>(out[0]),
         *ends = reinterpret_cast<std::int32_t*>(out[1]);
    const std::int64_t all = choices.tokens * choices.each;
    const auto own = [&](std::int64_t i) -> std::int64_t {
      const std::int64_t e = chosen[i] - here.first;
      return chosen[i] >= 0 && e >= 0 && e < here.count ? e : -1;
    };
    // First how many rows each expert gets, then which.
    std::fill_n(next, here.count, 0);
    for (std::int64_t i = 0; i < all; ++i) {
      if (const std::int64_t e = own(i); e >= 0) ++next[e];
    }
    std::int64_t row = 0;
    for (std::int64_t e = 0; e < here.count; ++e) {
      const std::int64_t count = std::exchange(next[e], std::int32_t(row));
      ends[e] = here.end(row += count);
    }
    here.note(row, position);
    for (std::int64_t i = 0; i < all; ++i) {
      const std::int64_t e = own(i);
      rows[i] = e >= 0 && next[e] < here.most_rows ? next[e]++ : -1;
    }
  });
}

KernelPointer prepare_received_ends(const KernelRequest& request) {
  const auto params = request.params<PlaceParams>();
  const std::int64_t ranks = request.input(0).shape[0], experts = request.input(0).shape[1];
  const OwnExperts here(params, request.output_elements(0), request.context);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition& position) {
    auto* ends = reinterpret_cast<std::int32_t*>(out[0]);
    std::int64_t row = 0;
    for (std::int64_t e = 0; e < here.count; ++e) {
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const std::int32_t* from = ids(in, 0) + rank * experts + here.first + e;
        row += *from - (here.first + e > 0 ? from[-1] : 0);
      }
      ends[e] = here.end(row);
    }
    here.note(row, position);
  });
}

namespace {

/// Copies each token, and its weight where there is one, to the rows of its choices. Rows that no
/// choice has are 0. Rows have no gaps.
KernelPointer prepare_scatter(const KernelRequest& request) {
  const Choices choices(request.input(1));
  const std::int64_t size = bytes_of(request.input(0)).count() / choices.tokens;
  const std::int64_t all = request.output(0).shape[0];
  const bool weighted = request.op.outputs.size() > 1;
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    std::int64_t used = 0;
    for (std::int64_t i = 0; i < choices.tokens * choices.each; ++i) {
      const std::int64_t row = ids(in, 1)[i];
      if (row < 0) continue;
      std::memcpy(out[0] + row * size, in[0] + i / choices.each * size, std::size_t(size));
      if (weighted) floats_out(out, 1)[row] = floats(in, 2)[i];
      ++used;
    }
    std::memset(out[0] + used * size, 0, std::size_t((all - used) * size));
    if (weighted) std::fill(floats_out(out, 1) + used, floats_out(out, 1) + all, 0.0f);
  });
}

/// Sums each token's rows in the order of its choices, and brings their weights back where there
/// are some. The rows of choices are input `rows_at`.
KernelPointer prepare_sum(const KernelRequest& request, std::size_t rows_at) {
  const Choices choices(request.input(rows_at));
  const std::int64_t columns = request.input(0).shape[1], all = request.input(0).shape[0];
  const bool weighted = request.op.outputs.size() > 1;
  Scratch scratch(request);
  const Rows y(request.input(0), {all, columns, 1}, scratch),
      x(request.output(0), {choices.tokens, columns, 1}, scratch);
  float* sum = scratch.take_floats(columns);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    for (std::int64_t i = 0; i < choices.tokens; ++i) {
      std::fill_n(sum, columns, 0.0f);
      for (std::int64_t j = i * choices.each; j < (i + 1) * choices.each; ++j) {
        const std::int64_t row = ids(in, rows_at)[j];
        if (row >= 0) add_rows(sum, y.read(in[0], row, 1), sum, columns);
        if (weighted) floats_out(out, 1)[j] = row < 0 ? 0 : floats(in, 1)[row];
      }
      std::copy_n(sum, columns, x.target(out[0], i));
      x.store(out[0], i, 1);
    }
  });
}

}  // namespace

KernelPointer prepare_dispatch_rows(const KernelRequest& request) {
  return prepare_scatter(request);
}
KernelPointer prepare_combine_rows_backward(const KernelRequest& request) {
  return prepare_scatter(request);
}
KernelPointer prepare_combine_rows(const KernelRequest& request) { return prepare_sum(request, 1); }
KernelPointer prepare_dispatch_rows_backward(const KernelRequest& request) {
  return prepare_sum(request, 2);
}

}  // namespace plimsoll
