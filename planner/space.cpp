// Space: candidates are every way to write the device count as mp x pp x dp x sharding degree,
// times the ladders of the other choices; legal() says which of them may run.
#include "planner/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace plimsoll {
namespace {

constexpr std::int64_t kGradientBytes = 4;  // f32
constexpr Bytes kLeastBucket{std::int64_t{1} << 20}, kUsualBucket{std::int64_t{64} << 20},
    kMostBucket{std::int64_t{1} << 30};
/// Eight chunks leave an eighth of 1F1B's bubble; more save less than they add in transfers.
constexpr std::int64_t kMostVirtualStages = 8;

std::vector<std::int64_t> divisors(std::int64_t number) {
  std::vector<std::int64_t> low, high;
  for (std::int64_t d = 1; d * d <= number; ++d) {
    if (number % d != 0) continue;
    low.push_back(d);
    if (d != number / d) high.push_back(number / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

bool is_fixed(const Fixed& fixed, std::string_view key) {
  return std::any_of(fixed.begin(), fixed.end(),
                     [&](const auto& pair) { return pair.first == key; });
}

/// "heads (7) ..." and "heads (9) ..." break the same rule: numbers become N. Digits inside a word
/// ("fp32", "megatron-lm-2021") belong to a name and stay.
std::string rule_of(const std::string& reason) {
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  const auto in_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  const auto within_name = [&](std::size_t i) {
    if (i > 0 && in_word(reason[i - 1])) return true;
    return i > 1 && reason[i - 1] == '-' && in_word(reason[i - 2]);
  };
  std::string rule;
  for (std::size_t i = 0; i < reason.size();) {
    if (!is_digit(reason[i]) || within_name(i)) {
      rule += reason[i++];
      continue;
    }
    while (i < reason.size() && is_digit(reason[i])) ++i;
    rule += 'N';
  }
  return rule;
}

/// Values each choice may take; a fixed one has a single value.
class Choices {
 public:
  Choices(const Job& job, const Framework& framework, std::int64_t devices, const Fixed& fixed)
      : job_(job),
        framework_(framework),
        devices_(devices),
        fixed_(fixed),
        ladder_(grad_bucket_ladder(job)) {
    for (const auto& [key, value] : fixed) set_field(base_, key, value);
  }

  const Strategy& base() const { return base_; }

  /// The four degrees, whose product is the device count. Where the fixed values allow no such
  /// product, the base alone: legal() then says so.
  std::vector<Strategy> grids() const {
    std::vector<Strategy> grids;
    if (devices_ % base_.cp != 0) {
      return {with_degrees(base_.mp, base_.pp, base_.dp, base_.sharding_degree)};
    }
    const std::int64_t beside_cp = devices_ / base_.cp;  // which only --fix sets
    for (std::int64_t mp : degrees("mp", base_.mp, beside_cp)) {
      const std::int64_t beside_mp = beside_cp / mp;
      for (std::int64_t pp : degrees("pp", base_.pp, beside_mp)) {
        const std::int64_t width = beside_mp / pp;
        for (std::int64_t dp : degrees("dp", base_.dp, width)) {
          // The last degree is what the others leave; a fixed one must be just that.
          const std::int64_t sharding = width / dp;
          if (is_fixed(fixed_, "sharding_degree") && sharding != base_.sharding_degree) continue;
          grids.push_back(with_degrees(mp, pp, dp, sharding));
        }
      }
    }
    if (grids.empty()) {
      grids.push_back(with_degrees(base_.mp, base_.pp, base_.dp, base_.sharding_degree));
    }
    return grids;
  }

  /// All but the ladder of buckets, in canonical order.
  std::vector<Strategy> before_buckets() const {
    std::vector<Strategy> all;
    for (const Strategy& grid : grids()) {
      for (std::int64_t stage : sharding_stages(grid)) {
        for (std::int64_t micro_batch : micro_batches(grid)) {
          for (Recompute recompute : recomputes()) {
            Strategy strategy = grid;
            strategy.sharding_stage = stage;
            strategy.micro_batch = micro_batch;
            strategy.recompute = recompute;
            for (Strategy& one : with_switches(strategy)) all.push_back(std::move(one));
          }
        }
      }
    }
    return all;
  }

  std::vector<std::int64_t> micro_batches(const Strategy& grid) const {
    if (is_fixed(fixed_, "micro_batch")) return {base_.micro_batch};
    const std::int64_t width = grid.dp * grid.sharding_degree;
    // An indivisible batch leaves one candidate for legal() to refuse.
    if (job_.global_batch % width != 0) return {1};
    return divisors(job_.global_batch / width);
  }

  std::vector<Recompute> recomputes() const {
    if (is_fixed(fixed_, "recompute")) return {base_.recompute};
    return {Recompute::none, Recompute::selective, Recompute::full};
  }

  /// Stages 2 and 3 reduce in every micro-batch what a pipeline's stages reduce once: they are for
  /// those who have no pipeline (DeepSpeed's runtime/pipe/engine.py refuses them there).
  std::vector<std::int64_t> sharding_stages(const Strategy& grid) const {
    if (is_fixed(fixed_, "sharding_stage") || grid.sharding_degree == 1) {
      return {grid.sharding_stage};
    }
    const auto& has = grid.pp > 1 ? framework_.can.pipeline_sharding_stages
                                  : framework_.can.sharding_stages;
    std::vector<std::int64_t> stages;
    for (std::int64_t stage = 1; stage <= (grid.pp > 1 ? 1 : 3); ++stage) {
      if (has.value.has(stage)) stages.push_back(stage);
    }
    if (stages.empty()) stages.push_back(1);  // for legal() to refuse
    return stages;
  }

  /// The strategy itself first, then with each combination of the switches that splits tokens over
  /// mp, orders the pipeline otherwise, or repeats fewer layers. Only the first may be illegal.
  std::vector<Strategy> with_switches(const Strategy& strategy) const {
    std::vector<Strategy> all = {strategy};
    if (!is_legal(strategy)) return all;
    multiply(all, [&](const Strategy& s) { return with_tokens_split(s); });
    multiply(all, [&](const Strategy& s) { return with_orders(s); });
    multiply(all, [&](const Strategy& s) { return with_fewer_recomputed(s); });
    return all;
  }

  /// Bucket bytes matter only where gradients are reduced between ranks, in buckets. Elsewhere
  /// every value gives the same plan, so only the default is kept.
  std::vector<Bytes> grad_buckets(const Strategy& strategy) const {
    if (is_fixed(fixed_, "grad_bucket_bytes")) return {base_.grad_bucket_bytes};
    const bool in_buckets = framework_.overlap_grad_reduce && strategy.sharding_stage < 3;
    if (strategy.cp * strategy.dp * strategy.sharding_degree == 1 || !in_buckets) {
      return {base_.grad_bucket_bytes};
    }
    return ladder_;
  }

  Verdict verdict(const Strategy& strategy) const {
    Verdict verdict = legal(job_, strategy, devices_);
    return verdict ? legal(framework_, job_, strategy) : verdict;
  }

 private:
  /// What a degree may be where it and the later ones multiply to `rest`.
  std::vector<std::int64_t> degrees(std::string_view key, std::int64_t base_value,
                                    std::int64_t rest) const {
    if (!is_fixed(fixed_, key)) return divisors(rest);
    if (base_value < 1 || rest % base_value != 0) return {};
    return {base_value};
  }

  bool is_legal(const Strategy& strategy) const { return bool(verdict(strategy)); }

  /// Puts after each strategy the legal ones that `more` makes of it.
  template <class More>
  void multiply(std::vector<Strategy>& strategies, More more) const {
    std::vector<Strategy> all;
    for (const Strategy& strategy : strategies) {
      all.push_back(strategy);
      for (Strategy& other : more(strategy)) {
        if (is_legal(other)) all.push_back(std::move(other));
      }
    }
    strategies = std::move(all);
  }

  std::vector<Strategy> with_tokens_split(const Strategy& strategy) const {
    std::vector<Strategy> others;
    if (strategy.mp == 1) return others;
    if (!is_fixed(fixed_, "sequence_parallel") && framework_.sequence_parallel) {
      others.push_back(strategy);
      others.back().sequence_parallel = true;
    }
    if (!is_fixed(fixed_, "split_boundary") && strategy.pp > 1) {
      others.push_back(strategy);
      others.back().split_boundary = true;
    }
    return others;
  }

  /// Interleaved 1F1B in chunks of equally many layers, and ZB-H1.
  std::vector<Strategy> with_orders(const Strategy& strategy) const {
    std::vector<Strategy> others;
    if (strategy.pp == 1) return others;
    const bool free = !is_fixed(fixed_, "virtual_stages") && strategy.layer_split.empty();
    const std::int64_t layers = total_layers(job_);
    for (std::int64_t v = 2; free && v <= kMostVirtualStages; ++v) {
      if (layers % (strategy.pp * v) != 0) continue;
      others.push_back(strategy);
      others.back().virtual_stages = v;
    }
    if (!is_fixed(fixed_, "schedule") && framework_.can.schedules.value.has(Schedule::zb_h1)) {
      others.push_back(strategy);
      others.back().schedule = Schedule::zb_h1;
    }
    return others;
  }

  /// Half of each stage's layers, or of each of its chunks'.
  std::vector<Strategy> with_fewer_recomputed(const Strategy& strategy) const {
    if (strategy.recompute != Recompute::full || is_fixed(fixed_, "recompute_layers") ||
        is_fixed(fixed_, "recompute_list")) {
      return {};
    }
    const std::vector<std::int64_t> layers = layers_per_part(job_, strategy);
    const std::int64_t most = *std::max_element(layers.begin(), layers.end());
    if (most == 1) return {};
    Strategy half = strategy;
    half.recompute_layers = (most + 1) / 2;
    return {half};
  }

  Strategy with_degrees(std::int64_t mp, std::int64_t pp, std::int64_t dp,
                        std::int64_t sharding) const {
    Strategy strategy = base_;
    strategy.mp = mp;
    strategy.pp = pp;
    strategy.dp = dp;
    strategy.sharding_degree = sharding;
    if (!is_fixed(fixed_, "sharding_stage")) strategy.sharding_stage = sharding > 1 ? 1 : 0;
    return strategy;
  }

  const Job& job_;
  const Framework& framework_;
  std::int64_t devices_;
  const Fixed& fixed_;
  std::vector<Bytes> ladder_;
  Strategy base_;
};

void count_rejection(std::vector<Pruned>& rejected, const std::string& reason) {
  const std::string rule = rule_of(reason);
  const auto known = std::find_if(rejected.begin(), rejected.end(),
                                  [&](const Pruned& pruned) { return pruned.reason == rule; });
  if (known != rejected.end()) {
    ++known->count;
  } else {
    rejected.push_back({rule, 1});
  }
}

/// Numbers by value, then texts as they come.
bool comes_before(const std::string& a, const std::string& b) {
  const auto is_number = [](const std::string& text) {
    return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) != 0;
  };
  if (is_number(a) && is_number(b) && a.size() != b.size()) return a.size() < b.size();
  return a < b;
}

}  // namespace

std::vector<Bytes> grad_bucket_ladder(const Job& job) {
  const std::int64_t parameters = parameter_count(build_forward(job, 1));
  std::vector<Bytes> ladder;
  for (Bytes step = kLeastBucket; step <= kMostBucket; step = step * 4) {
    if (step > kUsualBucket && ladder.back().count() / kGradientBytes >= parameters) break;
    ladder.push_back(step);
  }
  return ladder;
}

Space enumerate(const Job& job, const Framework& framework, std::int64_t devices,
                const Fixed& fixed) {
  if (devices < 1 || devices > kMostDevices) {
    throw UsageError(fmt::format("--devices must be from 1 to {}, not {}", kMostDevices, devices));
  }
  const Choices choices(job, framework, devices, fixed);
  Space space;
  std::vector<std::string> examples;  // by rule, as space.rejected
  const auto add = [&](const Strategy& strategy) {
    ++space.enumerated;
    const Verdict verdict = choices.verdict(strategy);
    if (verdict) {
      space.legal.push_back(strategy);
      return;
    }
    count_rejection(space.rejected, verdict.reason());
    if (examples.size() < space.rejected.size()) examples.push_back(verdict.reason());
  };
  for (const Strategy& choice : choices.before_buckets()) {
    for (Bytes bucket : choices.grad_buckets(choice)) {
      Strategy strategy = choice;
      strategy.grad_bucket_bytes = bucket;
      add(strategy);
    }
  }
  if (!examples.empty()) {
    const auto commonest =
        std::max_element(space.rejected.begin(), space.rejected.end(),
                         [](const Pruned& a, const Pruned& b) { return a.count < b.count; });
    space.reason = examples[std::size_t(commonest - space.rejected.begin())];
  }
  return space;
}

std::vector<Dimension> dimensions(const Space& space) {
  std::vector<Dimension> found;
  for (const std::string_view key : strategy_keys()) {
    Dimension dimension{std::string(key), {}};
    for (const Strategy& strategy : space.legal) {
      const std::string value = field_text(strategy, key);
      const auto at = std::find_if(dimension.values.begin(), dimension.values.end(),
                                   [&](const auto& known) { return known.first == value; });
      if (at != dimension.values.end()) {
        ++at->second;
      } else {
        dimension.values.emplace_back(value, 1);
      }
    }
    const bool chosen = dimension.values.size() > 1 || always_shown(key) ||
                        (dimension.values.size() == 1 &&
                         dimension.values.front().first != field_text(Strategy(), key));
    if (chosen) found.push_back(std::move(dimension));
  }
  for (Dimension& dimension : found) {
    if (dimension.key == "grad_bucket_bytes") continue;  // a ladder, in its own order
    std::stable_sort(dimension.values.begin(), dimension.values.end(),
                     [](const auto& a, const auto& b) { return comes_before(a.first, b.first); });
  }
  return found;
}

}  // namespace plimsoll
