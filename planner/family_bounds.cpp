#include "planner/family_bounds.h"

#include <algorithm>
#include <cmath>

#include "passes/pipeline_order.h"
#include "simulator/simulate.h"

namespace plimsoll {
namespace {

/// What rounding of buffers to blocks and to shards may add to the bytes of a stage: more than any
/// model's buffers by far.
double rounding_of(const Strategy& strategy) {
  return double(std::int64_t{1} << 20) + 4096.0 * double(optimizer_shards(strategy));
}

double ps(Picoseconds time) { return double(time.count()); }

}  // namespace

/// Picoseconds and bytes of one micro-batch in the blocks of a model whose layers are alike.
struct FamilyBounds::Work {
  double forward = 0, backward = 0, kept = 0;                 ///< of a layer that keeps all
  double repeats_forward = 0, repeats = 0, repeats_kept = 0;  ///< of one that recomputes
  double embedding_forward = 0, embedding_backward = 0, embedding_kept = 0;
  double head_forward = 0, head_backward = 0;
  double after_output = 0;    ///< the most that a forward goes on after its output is written
  double after_gradient = 0;  ///< the same of a backward and the gradient of its input
  bool known = false;         ///< false: layers are of several kinds

  explicit Work(const MicroBatchFacts& facts) {
    std::size_t layers = 0;
    for (const BlockFacts& block : facts.blocks) {
      after_output = std::max(after_output, ps(block.forward.span) - ps(block.forward.sends));
      after_gradient = std::max(after_gradient, ps(block.backward.span) - ps(block.backward.sends));
      if (block.shape.variant) continue;
      const double back = ps(block.backward.span) + ps(block.weights.span);
      switch (block.shape.kind) {
        case BlockKind::embedding:
          embedding_forward += ps(block.forward.span);
          embedding_backward += back;
          embedding_kept += double(block.kept.count());
          break;
        case BlockKind::layer: {
          ++layers;
          const BlockFacts& again =
              block.recomputing ? facts.blocks[*block.recomputing] : block;
          forward = ps(block.forward.span), backward = back, kept = double(block.kept.count());
          repeats_forward = ps(again.forward.span);
          repeats = ps(again.backward.span) + ps(again.weights.span);
          repeats_kept = double(again.kept.count());
          break;
        }
        case BlockKind::join:
          ++layers;
          break;
        case BlockKind::head:
          head_forward += ps(block.forward.span);
          head_backward += back;
          break;
      }
    }
    known = layers == 1;
  }
};

namespace {

/// How many of a chunk's layers recompute: at least, and at most.
std::pair<std::int64_t, std::int64_t> repeated_layers(const Strategy& strategy,
                                                      std::int64_t layers) {
  if (strategy.recompute == Recompute::none) return {0, 0};
  if (!strategy.recompute_list.empty()) return {0, layers};
  if (strategy.recompute == Recompute::per_op) return {layers / 2, (layers + 1) / 2};
  const std::int64_t all =
      strategy.recompute_layers == 0 ? layers : std::min(strategy.recompute_layers, layers);
  return {all, all};
}

}  // namespace

bool FamilyBounds::has_lines(const Strategy& strategy) const {
  return !job_.branch && !classes_by_owner(strategy) && strategy.flatten == Flatten::fused;
}

FamilyBounds::Lines FamilyBounds::find_lines(const Strategy& strategy) const {
  constexpr std::int64_t kFew = 1, kMany = 9;
  const double rounding = rounding_of(strategy);
  Lines lines;
  std::array<std::vector<LastingBytes>, 2> found;
  for (std::size_t i = 0; i < 2; ++i) {
    Strategy plain = as_plain_pipeline(job_, strategy);
    plain.pp = std::min<std::int64_t>(strategy.pp, 3);
    plain.layer_split.assign(std::size_t(plain.pp), i == 0 ? kFew : kMany);
    plain.embedding_as_layers = plain.loss_as_layers = 0;
    plain.dp = std::min<std::int64_t>(plain.dp, 2);
    plain.micro_batch = 1;
    plain.recompute = Recompute::none;
    plain.recompute_layers = 0;
    plain.recompute_list.clear();
    plain.split_boundary = plain.sequence_parallel = false;
    plain.grad_bucket_bytes = Bytes(std::int64_t{1} << 50);
    Job job = job_;
    job.layers = plain.pp * plain.layer_split.front();
    found[i] = persistent_bytes(job, plain, framework_);
  }
  const auto line = [&](std::size_t stage, Bytes LastingBytes::*bytes) {
    const double few = double((found[0][stage].*bytes).count());
    const double many = double((found[1][stage].*bytes).count());
    const double layer = std::max(0.0, (many - few - rounding) / double(kMany - kFew));
    return Line{few - double(kFew) * (many - few + rounding) / double(kMany - kFew) - rounding,
                layer};
  };
  const std::size_t stages = found[0].size();
  for (std::size_t kind = 0; kind < lines.size(); ++kind) {
    const std::size_t stage = kind == 0 ? 0 : (kind == 1 ? std::min<std::size_t>(1, stages - 1)
                                                         : stages - 1);
    lines[kind] = {line(stage, &LastingBytes::program), line(stage, &LastingBytes::framework)};
  }
  return lines;
}

std::shared_ptr<const FamilyBounds::Lines> FamilyBounds::lines(const Strategy& strategy) const {
  const Key key{strategy.mp,
                strategy.cp,
                strategy.sharding_degree,
                strategy.sharding_stage * 3 + std::min<std::int64_t>(strategy.pp, 3) - 1,
                strategy.dp > 1,
                strategy.keep_gathered};
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = lines_.find(key); known != lines_.end()) return known->second;
  }
  auto found = std::make_shared<const Lines>(find_lines(strategy));
  const std::lock_guard lock(mutex_);
  return lines_.try_emplace(key, std::move(found)).first->second;
}

Bytes FamilyBounds::least_reserved(const StrategyFamily& family) const {
  if (!has_lines(family.base)) return {};
  const auto known = lines(family.base);
  std::optional<double> least;
  for (const ArrangementGroup& group : family.arrangements->groups) {
    std::int64_t layers = 0;
    for (std::size_t part = 0; part < group.layers_per_part.size(); part += std::size_t(family.base.pp))
      layers += group.layers_per_part[part];
    const double bytes = (*known)[0].framework.at(layers);
    least = least ? std::min(*least, bytes) : bytes;
  }
  return Bytes(std::int64_t(least.value_or(0)));
}

FamilyBound FamilyBounds::of(const StrategyFamily& family, Bytes room) const {
  FamilyBound bound;
  const Strategy& base = family.base;
  const std::vector<ArrangementGroup>& groups = family.arrangements->groups;
  if (!has_lines(base)) {  // all is left to the bounds of single strategies
    for (const ArrangementGroup& group : groups)
      bound.groups.push_back({group.first, group.first + group.count, {}, {}});
    return bound;
  }
  const auto known = lines(base);
  const auto stages = std::size_t(base.pp);
  const double capacity = double(room.count());
  const auto line_of = [&](std::size_t stage) -> const StageLines& {
    return (*known)[stage == 0 ? 0 : (stage + 1 == stages ? 2 : 1)];
  };
  const auto layers_of = [&](const ArrangementGroup& group, std::size_t stage) {
    std::int64_t layers = 0;
    for (std::size_t part = stage; part < group.layers_per_part.size(); part += stages)
      layers += group.layers_per_part[part];
    return layers;
  };
  // Lasting bytes first: what lowering a layer says is asked for only where these fit.
  std::vector<const ArrangementGroup*> live;
  for (const ArrangementGroup& group : groups) {
    bool fits = true;
    for (const std::size_t stage : {std::size_t(0), std::min<std::size_t>(1, stages - 1), stages - 1})
      fits = fits && line_of(stage).framework.at(layers_of(group, stage)) <= capacity;
    if (fits) {
      live.push_back(&group);
    } else {
      bound.cannot_live += group.count;
    }
  }
  std::optional<Work> one_backward, two_backwards;
  const auto m = double(micro_batches(job_, base));
  for (const ArrangementGroup* group : live) {
    Strategy strategy = base;
    apply(family.arrangements->all[group->first], strategy);
    std::optional<Work>& cached =
        strategy.schedule == Schedule::zb_h1 ? two_backwards : one_backward;
    if (!cached) cached.emplace(*bounds_.facts(strategy));
    const Work& work = *cached;
    if (!work.known) {
      bound.groups.push_back({group->first, group->first + group->count, {}, {}});
      continue;
    }
    const double in_flight = std::min(m, double(base.pp));
    const std::vector<std::int64_t>& parts = group->layers_per_part;
    GroupBound found{group->first + group->count, group->first + group->count, {}, {}};
    for (std::size_t a = group->first; a < found.last; ++a) {
      apply(family.arrangements->all[a], strategy);
      double kept = work.embedding_kept;
      for (std::size_t part = 0; part < parts.size(); part += stages) {
        const auto again = double(repeated_layers(strategy, parts[part]).second);
        kept += again * work.repeats_kept + (double(parts[part]) - again) * work.kept;
      }
      const std::int64_t first_layers = layers_of(*group, 0);
      if (found.first == found.last) {
        if (line_of(0).framework.at(first_layers) + in_flight * kept > capacity) {
          ++bound.cannot_fly;
          continue;
        }
        found.first = a;
      }
      const double peak = line_of(0).program.at(first_layers) + in_flight * kept;
      if (a == found.first || peak < double(found.peak.count()))
        found.peak = Bytes(std::int64_t(peak));
    }
    if (found.first == found.last) continue;
    apply(family.arrangements->all[found.first], strategy);
    const bool zero_bubble = strategy.schedule == Schedule::zb_h1;
    // ZB-H1 sends a gradient on before the weights' part of backward: what comes back is not counted.
    double longest = 0, there = work.embedding_forward;
    double back = zero_bubble ? 0 : work.embedding_backward;
    for (std::size_t stage = 0; stage < stages; ++stage) {
      double each = 0;
      for (std::size_t part = stage; part < parts.size(); part += stages) {
        const auto again = double(repeated_layers(strategy, parts[part]).first);
        each += again * (work.repeats_forward + work.repeats) +
                (double(parts[part]) - again) * (work.forward + work.backward);
      }
      if (stage == 0) each += work.embedding_forward + work.embedding_backward;
      if (stage + 1 == stages) each += work.head_forward + work.head_backward;
      longest = std::max(longest, m * each + (stage > 0 ? there : 0));
      if (stage > 0) longest = std::max(longest, m * each + there + back - work.after_gradient);
      const auto again = double(repeated_layers(strategy, parts[stage]).first);
      const double others = double(parts[stage]) - again;
      there += again * work.repeats_forward + others * work.forward - work.after_output;
      if (!zero_bubble)
        back += again * work.repeats + others * work.backward - work.after_gradient;
    }
    // Sums of doubles: the last digits may be off either way.
    found.step = Picoseconds(std::int64_t(std::min(longest * (1 - 1e-9), ps(kLongestStep))));
    bound.groups.push_back(found);
  }
  return bound;
}

}  // namespace plimsoll
