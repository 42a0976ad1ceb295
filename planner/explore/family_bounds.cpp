// Bounds of families from the bytes and times of single layers.
#include "planner/explore/family_bounds.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/job/layer_forms.h"
#include "passes/strategy/pipeline_order.h"
#include "simulator/simulate.h"

namespace plimsoll {
namespace {

/// Returns a bound of the bytes that rounding buffers to blocks and to shards adds to a stage.
double rounding_of(std::int64_t shards) {
  return double(std::int64_t{1} << 20) + 4096.0 * double(shards);
}

double ps(Picoseconds time) { return double(time.count()); }

}  // namespace

/// Picoseconds and bytes of one micro-batch in the blocks of a model, at the least of its layers.
struct FamilyBounds::Work {
  double forward = 0, backward = 0, kept = 0;                 ///< of a layer that keeps all
  double repeats_forward = 0, repeats = 0, repeats_kept = 0;  ///< of one that recomputes
  double embedding_forward = 0, embedding_backward = 0, embedding_kept = 0;
  double head_forward = 0, head_backward = 0;
  double after_output = 0;    ///< the most that a forward goes on after its output is written
  double after_gradient = 0;  ///< the same of a backward and the gradient of its input
  bool known = false;         ///< false: a trunk and a branch

  /// Returns bytes of micro-batches of so many sequences, from those of one and of two. Each tensor
  /// grows by as much with every sequence, or not at all, except for rounding.
  static Work extended(const Work& one, const Work& two, std::int64_t sequences) {
    constexpr double kRounding = 1 << 16;  // of all tensors of a block
    const auto extend = [&](double Work::*bytes) {
      const double more = two.*bytes - one.*bytes - kRounding;
      return one.*bytes + std::max(0.0, more) * double(sequences - 1);
    };
    Work work = one;
    work.known = one.known && two.known;
    work.kept = extend(&Work::kept);
    work.repeats_kept = extend(&Work::repeats_kept);
    work.embedding_kept = extend(&Work::embedding_kept);
    return work;
  }

  /// With `times_alone` all bytes are 0.
  explicit Work(const MicroBatchFacts& facts, bool times_alone = false) {
    const auto time = [](const CallFacts& call) { return ps(call.span); };
    bool any_layer = false, any_join = false;
    for (const BlockFacts& block : facts.blocks) {
      after_output = std::max(after_output, ps(block.forward.span) - ps(block.forward.sends));
      after_gradient = std::max(after_gradient, ps(block.backward.span) - ps(block.backward.sends));
      if (block.shape.variant) continue;
      const double back = time(block.backward) + time(block.weights);
      switch (block.shape.kind) {
        case BlockKind::embedding:
          embedding_forward += time(block.forward);
          embedding_backward += back;
          embedding_kept += double(block.kept.count());
          break;
        case BlockKind::layer: {  // the least of layers of several kinds
          const BlockFacts& again = block.recomputing ? facts.blocks[*block.recomputing] : block;
          const auto least = [&](double& known_least, double value) {
            known_least = any_layer ? std::min(known_least, value) : value;
          };
          least(forward, time(block.forward));
          least(backward, back);
          least(kept, double(block.kept.count()));
          least(repeats_forward, time(again.forward));
          least(repeats, time(again.backward) + time(again.weights));
          least(repeats_kept, double(again.kept.count()));
          any_layer = true;
          break;
        }
        case BlockKind::join:
          any_join = true;
          break;
        case BlockKind::head:
          head_forward += time(block.forward);
          head_backward += back;
          break;
      }
    }
    if (times_alone) kept = repeats_kept = embedding_kept = 0;
    known = any_layer && !any_join;
  }
};

namespace {

/// Returns the least and the most of a chunk's layers that recompute.
std::pair<std::int64_t, std::int64_t> repeated_layers(const Strategy& strategy,
                                                      std::int64_t layers) {
  if (strategy.recompute == Recompute::none) return {0, 0};
  if (!strategy.recompute_list.empty()) return {0, layers};
  if (strategy.recompute == Recompute::per_op) return {layers / 2, (layers + 1) / 2};
  const std::int64_t all =
      strategy.recompute_layers == 0 ? layers : std::min(strategy.recompute_layers, layers);
  return {all, all};
}

/// Returns the least number of shards, or without shards of replicas, over which experts can be
/// shared out.
std::int64_t expert_unit(const Strategy& strategy) {
  if (!experts_apart(strategy)) return 1;
  const std::int64_t ranks = experts_tensor_parallel(strategy) * strategy.ep;
  const std::int64_t beside = optimizer_shards(strategy) > 1 ? strategy.dp : 1;
  return ranks / std::gcd(ranks, strategy.mp * beside);
}

/// Returns a number of replicas with the same bytes. Beside shards, experts are sharded over
/// replicas, too.
std::int64_t few_replicas(const Strategy& strategy) {
  if (experts_apart(strategy) && optimizer_shards(strategy) > 1) return strategy.dp;
  return std::min(strategy.dp * strategy.cp, 2 * expert_unit(strategy));
}

}  // namespace

FamilySummary summary_of(const FamilyBound& bound) {
  if (bound.groups.empty()) return {{}, {}, false, bound.in_flight_too_large > 0};
  FamilySummary all{kLongestStep, bound.groups.front().peak};
  for (const GroupBound& group : bound.groups) {
    all.step = std::min(all.step, group.step);
    all.peak = std::min(all.peak, group.peak);
  }
  return all;
}

bool FamilyBounds::has_lines(const Strategy& strategy) const {
  return !weights_differ(target_.job) && !classes_by_owner(strategy) &&
         strategy.flatten == Flatten::fused;
}

FamilyBounds::Samples FamilyBounds::find_samples(const Strategy& strategy) const {
  Samples samples;
  for (std::size_t s = 0; s < kShards.size(); ++s) {
    for (std::size_t n = 0; n < kLayers.size(); ++n) {
      Strategy plain = as_plain_pipeline(target_.job, strategy);
      plain.dp = few_replicas(strategy);
      plain.cp = 1;
      plain.sharding_degree =
          optimizer_shards(strategy) > 1 ? kShards[s] * expert_unit(strategy) : 1;
      if (plain.sharding_degree == 1) plain.sharding_stage = 0;
      plain.split_boundary = plain.sequence_parallel = false;
      samples[s][n] = persistent_bytes_of(kLayers[n], context_of(target_, plain));
    }
  }
  return samples;
}

std::shared_ptr<const FamilyBounds::Samples> FamilyBounds::samples(const Strategy& strategy) const {
  const Key key{strategy.mp,
                strategy.sharding_stage,
                std::min<std::int64_t>(strategy.pp, 3),
                optimizer_shards(strategy) > 1,
                few_replicas(strategy),
                strategy.keep_gathered,
                strategy.ep,
                strategy.etp};
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = samples_.find(key); known != samples_.end()) return known->second;
  }
  auto found = std::make_shared<const Samples>(find_samples(strategy));
  const std::lock_guard lock(mutex_);
  return samples_.try_emplace(key, std::move(found)).first->second;
}

/// Returns lower bounds through two samples each. Bytes are whole + part / shards for any number of
/// layers, and a + b x layers for any number of shards, each with an error by rounding. Experts on
/// ranks of their own have a fixed multiple of these shards, so that the same holds for them.
FamilyBounds::Lines FamilyBounds::lines(const Strategy& strategy) const {
  const std::shared_ptr<const Samples> known = samples(strategy);
  const std::int64_t shards = optimizer_shards(strategy);
  const auto unit = double(expert_unit(strategy)), fewer = unit * double(kShards[0]),
             more = unit * double(kShards[1]);
  const double rounding =
      rounding_of(shards) + 4 * rounding_of(kShards.back() * expert_unit(strategy));
  const auto line = [&](std::size_t stage, Bytes LastingBytes::*bytes) {
    std::array<double, 2> of_layers = {};
    for (std::size_t n = 0; n < kLayers.size(); ++n) {
      const auto sample = [&](std::size_t s) {
        return double(((*known)[s][n][stage].*bytes).count());
      };
      const double part = (sample(0) - sample(1)) * fewer * more / (more - fewer);
      const double whole = sample(0) - part / fewer;
      of_layers[n] = shards > 1 ? whole + part / double(shards) : sample(0);
    }
    const auto [few, many] = of_layers;
    const auto apart = double(kLayers[1] - kLayers[0]);
    return Line{few - double(kLayers[0]) * (many - few + rounding) / apart - rounding,
                std::max(0.0, (many - few - rounding) / apart)};
  };
  Lines lines;
  const std::size_t stages = (*known)[0][0].size();
  for (std::size_t kind = 0; kind < lines.size(); ++kind) {
    const std::size_t stage = std::min(kind, stages - 1);
    const std::size_t of_kind = kind == 2 ? stages - 1 : stage;
    lines[kind] = {line(of_kind, &LastingBytes::program), line(of_kind, &LastingBytes::framework)};
  }
  return lines;
}

namespace {

std::int64_t stage_of(Schedule schedule, std::int64_t stages, std::size_t part) {
  return place_of(schedule, stages, std::int64_t(part)).stage;
}

std::int64_t layers_on(const ArrangementGroup& group, Schedule schedule, std::int64_t stages,
                       std::int64_t stage) {
  std::int64_t layers = 0;
  for (std::size_t part = 0; part < group.layers_per_part.size(); ++part) {
    if (stage_of(schedule, stages, part) == stage) layers += group.layers_per_part[part];
  }
  return layers;
}

}  // namespace

Bytes FamilyBounds::least_reserved(const StrategyFamily& family) const {
  if (!has_lines(family.base)) return {};
  const Lines known = lines(family.base);
  std::optional<double> least;
  for (const ArrangementGroup& group : family.arrangements->groups) {
    const Schedule schedule = family.arrangements->all[group.first].schedule;
    const std::int64_t layers = layers_on(group, schedule, family.base.pp, 0);
    const double bytes = known[0].framework.at(layers);
    least = least ? std::min(*least, bytes) : bytes;
  }
  return Bytes(std::int64_t(least.value_or(0)));
}

/// Bounds one family's groups, by the lines of its lasting bytes and the work of its micro-batches.
class FamilyBounds::Family {
 public:
  Family(const FamilyBounds& all, const StrategyFamily& family, Bytes room, bool coarse)
      : all_(all),
        coarse_(coarse),
        family_(family),
        lines_(all.lines(family.base)),
        stages_(std::size_t(family.base.pp)),
        capacity_(double(room.count())),
        m_(double(micro_batches(all.target_.job, family.base))) {}

  FamilyBound bound() {
    for (const ArrangementGroup& group : family_.arrangements->groups) {
      if (!lasting_bytes_fit(group)) {
        bound_.lasting_too_large += group.count;
      } else if (!micro_batches_may_fit(group)) {
        bound_.in_flight_too_large += group.count;
      } else {
        add(group);
      }
    }
    return std::move(bound_);
  }

 private:
  const StageLines& line_of(std::size_t stage) const {
    return lines_[stage == 0 ? 0 : (stage + 1 == stages_ ? 2 : 1)];
  }
  Schedule schedule_of(const ArrangementGroup& group) const {
    return family_.arrangements->all[group.first].schedule;
  }
  std::int64_t layers_of(const ArrangementGroup& group, std::size_t stage) const {
    return layers_on(group, schedule_of(group), std::int64_t(stages_), std::int64_t(stage));
  }
  Strategy arranged(std::size_t arrangement) const {
    Strategy strategy = family_.base;
    apply(family_.arrangements->all[arrangement], strategy);
    return strategy;
  }

  bool lasting_bytes_fit(const ArrangementGroup& group) const {
    // In a V the first stage has both ends of the model. The line of the last of two has the head.
    const bool v = is_placed_as_v(schedule_of(group));
    const std::size_t middle = std::min<std::size_t>(1, stages_ - 1);
    const std::size_t other = v ? (stages_ > 2 ? middle : 0) : stages_ - 1;
    for (const std::size_t stage : {std::size_t(0), v ? other : middle, other}) {
      if (line_of(stage).framework.at(layers_of(group, stage)) > capacity_) return false;
    }
    return true;
  }

  /// Chunks of equal numbers of layers on stage 0.
  struct EqualChunks {
    std::int64_t layers = 0, count = 0;
  };
  std::vector<EqualChunks> first_chunks(const ArrangementGroup& group) const {
    std::vector<EqualChunks> chunks;
    for (std::size_t part = 0; part < group.layers_per_part.size(); ++part) {
      if (stage_of(schedule_of(group), std::int64_t(stages_), part) != 0) continue;
      const std::int64_t layers = group.layers_per_part[part];
      if (chunks.empty() || chunks.back().layers != layers) chunks.push_back({layers, 0});
      ++chunks.back().count;
    }
    return chunks;
  }

  /// Returns the bytes that stage 0 keeps of all micro-batches in flight.
  double in_flight(std::span<const EqualChunks> chunks, const Strategy& strategy,
                   const Work& work) const {
    double kept = work.embedding_kept;
    for (const EqualChunks& equal : chunks) {
      const auto again = double(repeated_layers(strategy, equal.layers).second);
      kept += double(equal.count) *
              (again * work.repeats_kept + (double(equal.layers) - again) * work.kept);
    }
    // A V keeps so many chunks, but how many of each depends on the schedule.
    return is_placed_as_v(strategy.schedule) ? kept : std::min(m_, double(stages_)) * kept;
  }

  /// Whether micro-batches may fit. Larger ones need not be lowered to see that they do not.
  bool micro_batches_may_fit(const ArrangementGroup& group) {
    if (family_.base.micro_batch <= 2 || all_.takes_long(family_)) return true;
    const Strategy leanest = arranged(group.first + group.count - 1);
    std::optional<Work>& work = extended_[splits_backward(leanest.schedule)];
    if (!work) {
      Strategy one = leanest, two = leanest;
      one.micro_batch = 1;
      two.micro_batch = 2;
      work = Work::extended(Work(*all_.bounds_.work(one)), Work(*all_.bounds_.work(two)),
                            family_.base.micro_batch);
    }
    if (!work->known) return true;
    return line_of(0).framework.at(layers_of(group, 0)) +
               in_flight(first_chunks(group), leanest, *work) <=
           capacity_;
  }

  void add(const ArrangementGroup& group) {
    const Strategy first = arranged(group.first);
    std::optional<Work>& work = work_[splits_backward(first.schedule)];
    if (!work)
      work = coarse_ ? Work(*all_.bounds_.ring_work(first), true) : Work(*all_.bounds_.work(first));
    if (!work->known) {
      bound_.groups.push_back({group.first, group.first + group.count, {}, {}});
      return;
    }
    const std::int64_t layers = layers_of(group, 0);
    GroupBound found{group.first + group.count, group.first + group.count, {}, {}};
    const std::vector<EqualChunks> chunks = first_chunks(group);
    Strategy strategy = first;
    for (std::size_t a = group.first; a < found.last; ++a) {
      apply(family_.arrangements->all[a], strategy);
      const double flying = in_flight(chunks, strategy, *work);
      if (found.first == found.last) {
        if (line_of(0).framework.at(layers) + flying > capacity_) {
          ++bound_.in_flight_too_large;
          continue;
        }
        found.first = a;
      }
      const double peak = line_of(0).program.at(layers) + flying;
      if (a == found.first || peak < double(found.peak.count()))
        found.peak = Bytes(std::int64_t(peak));
    }
    if (found.first == found.last) return;
    found.step = least_step(group, arranged(found.first), *work);
    bound_.groups.push_back(found);
  }

  Picoseconds least_step(const ArrangementGroup& group, const Strategy& strategy,
                         const Work& work) const {
    const std::vector<std::int64_t>& parts = group.layers_per_part;
    // Where backward is split a gradient is sent on before the weights' part: what comes back is
    // not counted.
    const bool zero_bubble = splits_backward(strategy.schedule);
    const std::size_t head = std::size_t(stage_of_head(strategy));
    std::vector<std::vector<std::int64_t>> by_stage(stages_);
    for (std::size_t part = 0; part < parts.size(); ++part)
      by_stage[std::size_t(stage_of(strategy.schedule, std::int64_t(stages_), part))].push_back(
          parts[part]);
    std::int64_t layers = 0;  // of the part before, since most parts have as many
    double work_of_part = 0;
    const auto of_part = [&](std::int64_t part) {
      if (part == layers) return work_of_part;
      layers = part;
      const auto again = double(repeated_layers(strategy, layers).first);
      work_of_part = again * (work.repeats_forward + work.repeats) +
                     (double(layers) - again) * (work.forward + work.backward);
      return work_of_part;
    };
    double longest = 0, there = work.embedding_forward;
    double back = zero_bubble ? 0 : work.embedding_backward;
    for (std::size_t stage = 0; stage < stages_; ++stage) {
      double each = 0;
      for (const std::int64_t layers_of_part : by_stage[stage]) each += of_part(layers_of_part);
      if (stage == 0) each += work.embedding_forward + work.embedding_backward;
      if (stage == head) each += work.head_forward + work.head_backward;
      longest = std::max(longest, m_ * each + (stage > 0 ? there : 0));
      if (stage > 0) longest = std::max(longest, m_ * each + there + back - work.after_gradient);
      const auto again = double(repeated_layers(strategy, parts[stage]).first);
      const double others = double(parts[stage]) - again;
      there += again * work.repeats_forward + others * work.forward - work.after_output;
      if (!zero_bubble) back += again * work.repeats + others * work.backward - work.after_gradient;
    }
    // Sums of doubles: the last digits may be off either way.
    return Picoseconds(std::int64_t(std::min(longest * (1 - 1e-9), ps(kLongestStep))));
  }

  const FamilyBounds& all_;
  const bool coarse_;
  const StrategyFamily& family_;
  const Lines lines_;
  const std::size_t stages_;
  const double capacity_, m_;
  std::array<std::optional<Work>, 2> work_, extended_;  ///< split backwards: the second
  FamilyBound bound_;
};

FamilyBound FamilyBounds::of(const StrategyFamily& family, Bytes room) const {
  if (has_lines(family.base)) return Family(*this, family, room, false).bound();
  FamilyBound bound;  // all is left to the bounds of single strategies
  for (const ArrangementGroup& group : family.arrangements->groups)
    bound.groups.push_back({group.first, group.first + group.count, {}, {}});
  return bound;
}

bool FamilyBounds::takes_long(const StrategyFamily& family) const {
  return is_long_ring(family.base) && has_lines(family.base);
}

FamilyBound FamilyBounds::coarse(const StrategyFamily& family, Bytes room) const {
  return Family(*this, family, room, true).bound();
}

}  // namespace plimsoll
