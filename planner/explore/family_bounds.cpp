// Bounds of families from the bytes and times of single layers.
#include "planner/explore/family_bounds.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "passes/strategy/expert_rows.h"
#include "passes/strategy/pipeline_order.h"
#include "simulator/simulate.h"

namespace plimsoll {
namespace {

/// Returns a bound of the bytes that rounding buffers to blocks and to shards adds to a stage.
double rounding_of(std::int64_t shards) {
  return double(std::int64_t{1} << 20) + 4096.0 * double(shards);
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

/// Kinds of devices that occur; a cluster of one kind has that of no index.
using Kinds = std::vector<DeviceKindIndex>;

/// Returns the kinds of the devices of each stage.
std::vector<Kinds> stage_devices(const Cluster& cluster, const Strategy& strategy) {
  if (cluster.other_devices.empty()) return std::vector<Kinds>(std::size_t(strategy.pp), {{}});
  std::vector<Kinds> kinds(std::size_t(strategy.pp));
  const Grid grid = grid_of(strategy);
  for (std::int64_t rank = 0; rank < grid.world_size(); ++rank) {
    Kinds& stage = kinds[std::size_t(grid.coordinates(rank)[std::size_t(Axis::pp)])];
    const std::size_t kind = device_kind(cluster, rank);
    if (std::ranges::find(stage, kind) == stage.end()) stage.push_back(kind);
  }
  return kinds;
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

double FamilyBounds::Line::at(std::span<const LayerRange> ranges) const {
  double bytes = whole;
  for (const LayerRange& range : ranges) bytes += layers.of(range);
  return std::max(0.0, bytes);
}

bool FamilyBounds::has_lines(const Strategy& strategy) const {
  return !target_.job.branch && !classes_by_owner(strategy) &&
         strategy.optimizer.flatten == Flatten::fused;
}

FamilyBounds::Sample FamilyBounds::find_sample(const Job& job, const Strategy& strategy) const {
  Sample sample;
  for (std::size_t s = 0; s < kShards.size(); ++s) {
    for (std::size_t n = 0; n < kLayers.size(); ++n) {
      Strategy plain = as_plain_pipeline(target_.job, strategy);
      plain.dp = few_replicas(strategy);
      plain.cp = 1;
      plain.sharding_degree =
          optimizer_shards(strategy) > 1 ? kShards[s] * expert_unit(strategy) : 1;
      if (plain.sharding_degree == 1 && !plain.gathers.offload) plain.sharding_stage = 0;
      plain.pipeline.split_boundary = plain.tokens.sequence_parallel = false;
      if (!job.experts) {
        plain.ep = Strategy().ep;
        plain.experts.etp = Strategy().experts.etp;
      }
      sample[s][n] = persistent_bytes_of(kLayers[n], {job, plain, target_.framework()});
    }
  }
  return sample;
}

namespace {

/// Returns the strategy with what samples depend on.
Strategy sampled(const Strategy& strategy) {
  Strategy alike = beside_search(strategy);
  alike.mp = strategy.mp;
  alike.ep = strategy.ep;
  alike.experts.etp = strategy.experts.etp;
  alike.pp = std::min<std::int64_t>(strategy.pp, 3);
  alike.dp = few_replicas(strategy);
  alike.sharding_degree = optimizer_shards(strategy) > 1 ? 2 : 1;
  alike.sharding_stage = strategy.sharding_stage;
  alike.gathers.keep = strategy.gathers.keep;
  return alike;
}

}  // namespace

const FamilyBounds::Samples& FamilyBounds::samples(const Strategy& strategy) const {
  return samples_.of({sampled(strategy)}, [&] {
    Samples found;
    for (const LayerKinds::Weights& weights : layers_.weights())
      found.push_back(find_sample(weights.job, strategy));
    return found;
  });
}

/// Returns lower bounds through two samples each for every kind of weights. Bytes are whole + part
/// / shards for any number of layers, and a + b x layers for any number of shards, each with an
/// error by rounding. Experts on ranks of their own have a fixed multiple of these shards, so that
/// the same holds for them. `a` is that of the last layer's kind, which MTP modules have, too.
FamilyBounds::Lines FamilyBounds::find_lines(const Samples& samples, std::int64_t shards,
                                             std::int64_t unit) const {
  const double fewer = double(unit * kShards[0]), more = double(unit * kShards[1]);
  const double rounding = rounding_of(shards) + 4 * rounding_of(kShards.back() * unit);
  const auto apart = double(kLayers[1] - kLayers[0]);
  // The bytes of kLayers layers on each stage.
  const auto of_layers = [&](const Sample& sample, std::size_t stage, Bytes LastingBytes::*bytes) {
    std::array<double, 2> found = {};
    for (std::size_t n = 0; n < kLayers.size(); ++n) {
      const auto at = [&](std::size_t s) { return double((sample[s][n][stage].*bytes).count()); };
      const double part = (at(0) - at(1)) * fewer * more / (more - fewer);
      found[n] = shards > 1 ? at(0) - part / fewer + part / double(shards) : at(0);
    }
    return found;
  };
  const auto line = [&](std::size_t stage, Bytes LastingBytes::*bytes) {
    const auto [few, many] = of_layers(samples[layers_.last_weights()], stage, bytes);
    Line line{few - double(kLayers[0]) * (many - few + rounding) / apart - rounding, {}};
    std::vector<double> layer;  // by kind
    for (const Sample& sample : samples) {
      const auto [one, nine] = of_layers(sample, stage, bytes);
      layer.push_back(std::floor(std::max(0.0, (nine - one - rounding) / apart)));
    }
    for (std::int64_t l = 0; l < layers_.size(); ++l)
      line.layers.add(layers_.is_module(l) ? 0 : layer[layers_.weights_of(l)]);
    return line;
  };
  Lines lines;
  const std::size_t stages = samples[0][0][0].size();
  for (std::size_t kind = 0; kind < lines.size(); ++kind) {
    const std::size_t stage = std::min(kind, stages - 1);
    const std::size_t of_kind = kind == 2 ? stages - 1 : stage;
    lines[kind] = {line(of_kind, &LastingBytes::program), line(of_kind, &LastingBytes::framework)};
  }
  return lines;
}

const FamilyBounds::Lines& FamilyBounds::lines(const Strategy& strategy) const {
  const std::int64_t shards = optimizer_shards(strategy), unit = expert_unit(strategy);
  return lines_.of({sampled(strategy), shards, unit},
                   [&] { return find_lines(samples(strategy), shards, unit); });
}

std::shared_ptr<const FamilyWork> FamilyBounds::work_of(const Strategy& strategy,
                                                        DeviceKindIndex kind, Extent extent) const {
  const bool ring = extent == Extent::ring;
  const auto facts = ring ? bounds_.ring_work(strategy, kind) : bounds_.work(strategy, kind);
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = work_.find(facts.get()); known != work_.end()) return known->second;
  }
  auto found = std::make_shared<const FamilyWork>(ring ? FamilyWork::times(layers_, *facts)
                                                       : FamilyWork(layers_, *facts));
  const std::lock_guard lock(mutex_);
  return work_.try_emplace(facts.get(), std::move(found)).first->second;
}

Bytes FamilyBounds::least_reserved(const StrategyFamily& family) const {
  if (!has_lines(family.base)) return {};
  const Lines& known = lines(family.base);
  std::optional<double> least;
  for (const ArrangementGroup& group : family.arrangements->groups) {
    const double bytes = known[0].framework.at(group.stages.front());
    least = least ? std::min(*least, bytes) : bytes;
  }
  return Bytes(std::int64_t(least.value_or(0)));
}

/// Bounds one family's groups, by the lines of its lasting bytes and the work of its micro-batches.
class FamilyBounds::Family {
 public:
  Family(const FamilyBounds& all, const StrategyFamily& family, Bytes room, Extent extent)
      : all_(all),
        extent_(extent),
        family_(family),
        lines_(all.lines(family.base)),
        stages_(std::size_t(family.base.pp)),
        capacity_(double(room.count())),
        m_(double(micro_batches(all.target_.job, family.base))),
        kinds_(stage_devices(all.target_.cluster(), family.base)) {}

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
  Schedule schedule_of(const ArrangementGroup& group) const {
    return family_.arrangements->all[group.first].schedule;
  }
  /// Returns a bound of the bytes that the stage has between steps.
  double lasting_bytes(const ArrangementGroup& group, std::size_t stage,
                       Line StageLines::*bytes = &StageLines::framework) const {
    const bool last = stage > 0 && stage + 1 == stages_;
    // The line of the last stage counts MTP modules, and it may have none of them.
    if (last && all_.target_.job.mtp && group.parts.back().count() == 0) return 0;
    const StageLines& lines = lines_[stage == 0 ? 0 : last ? 2 : 1];
    return (lines.*bytes).at(group.stages[stage]);
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
    // Middle stages differ where layers do.
    const std::size_t last_middle =
        all_.layers_.weights().size() == 1 || stages_ < 3 ? middle : stages_ - 2;
    for (std::size_t stage = v ? other : middle; stage <= last_middle; ++stage) {
      if (lasting_bytes(group, stage) > capacity_) return false;
    }
    return lasting_bytes(group, 0) <= capacity_ && lasting_bytes(group, other) <= capacity_;
  }

  /// Equal chunks of stage 0.
  struct EqualChunks {
    LayerRange layers;  ///< of the first one
    std::int64_t count = 0;
  };
  std::vector<EqualChunks> first_chunks(const ArrangementGroup& group) const {
    std::vector<EqualChunks> chunks;
    for (const LayerRange& layers : group.stages.front()) {
      if (chunks.empty() || !all_.layers_.alike(chunks.back().layers, layers))
        chunks.push_back({layers, 0});
      ++chunks.back().count;
    }
    return chunks;
  }

  /// Returns the bytes that stage 0 keeps of all micro-batches in flight.
  double in_flight(std::span<const EqualChunks> chunks, const Strategy& strategy,
                   const FamilyWork& work) const {
    double kept = work.embedding_kept;
    for (const EqualChunks& equal : chunks) {
      kept +=
          double(equal.count) * sum_of(strategy, equal.layers, work.keep.kept, work.repeat.kept);
    }
    // A V keeps so many chunks, but how many of each depends on the schedule.
    return is_placed_as_v(strategy.schedule) ? kept : std::min(m_, double(stages_)) * kept;
  }

  /// Whether micro-batches may fit. Larger ones need not be lowered to see that they do not.
  bool micro_batches_may_fit(const ArrangementGroup& group) {
    if (family_.base.micro_batch <= 2 || all_.takes_long(family_)) return true;
    const Strategy leanest = arranged(group.first + group.count - 1);
    std::optional<FamilyWork>& work = extended_[splits_backward(leanest.schedule)];
    if (!work) {
      Strategy one = leanest;
      if (all_.target_.job.experts && one.ep > 1)  // the rows of a sequence are those of many
        one.experts.rows_percent =
            rows_room(all_.target_.job, all_.target_.framework(), leanest).percent;
      Strategy two = one;
      one.micro_batch = 1;
      two.micro_batch = 2;
      work.emplace(all_.layers_, *all_.bounds_.work(one), *all_.bounds_.work(two),
                   family_.base.micro_batch);
    }
    if (!work->known) return true;
    return lasting_bytes(group, 0) + in_flight(first_chunks(group), leanest, *work) <= capacity_;
  }

  void add(const ArrangementGroup& group) {
    const Strategy first = arranged(group.first);
    const FamilyWork& work = work_of(first, {});
    if (!work.known) {
      bound_.groups.push_back({group.first, group.first + group.count, {}, {}});
      return;
    }
    const double reserved = lasting_bytes(group, 0),
                 program = lasting_bytes(group, 0, &StageLines::program);
    GroupBound found{group.first + group.count, group.first + group.count, {}, {}};
    const std::vector<EqualChunks> chunks = first_chunks(group);
    Strategy strategy = first;
    for (std::size_t a = group.first; a < found.last; ++a) {
      apply(family_.arrangements->all[a], strategy);
      const double flying = in_flight(chunks, strategy, work);
      if (found.first == found.last) {
        if (reserved + flying > capacity_) {
          ++bound_.in_flight_too_large;
          continue;
        }
        found.first = a;
      }
      const double peak = program + flying;
      if (a == found.first || peak < double(found.peak.count()))
        found.peak = Bytes(std::int64_t(peak));
    }
    if (found.first == found.last) return;
    found.step = least_step(group, arranged(found.first));
    bound_.groups.push_back(found);
  }

  /// Returns the work of one micro-batch on a kind of device.
  const FamilyWork& work_of(const Strategy& strategy, DeviceKindIndex kind) {
    const auto [known, fresh] = work_.try_emplace({splits_backward(strategy.schedule), kind});
    if (fresh) known->second = all_.work_of(strategy, kind, extent_);
    return *known->second;
  }

  /// Returns the least work on a stage's devices.
  const FamilyWork& fastest_on(std::size_t stage, const Strategy& strategy) {
    const Kinds& kinds = kinds_[stage];
    return work_of(strategy, kinds.size() == 1 ? kinds.front() : DeviceKindIndex());
  }

  Picoseconds least_step(const ArrangementGroup& group, const Strategy& strategy) {
    // Where backward is split a gradient is sent on before the weights' part: what comes back is
    // not counted.
    const bool zero_bubble = splits_backward(strategy.schedule);
    const std::size_t head = std::size_t(stage_of_head(strategy));
    const auto forward_of = [&](const FamilyWork& work, LayerRange part) {
      return sum_of(strategy, part, work.keep.forward, work.repeat.forward);
    };
    const auto backward_of = [&](const FamilyWork& work, LayerRange part) {
      return sum_of(strategy, part, work.keep.backward, work.repeat.backward);
    };
    const FamilyWork& of_first = fastest_on(0, strategy);
    double longest = 0, there = of_first.embedding_forward;
    double back = zero_bubble ? 0 : of_first.embedding_backward;
    for (std::size_t stage = 0; stage < stages_; ++stage) {
      const Borders borders = borders_of(strategy, stage);
      longest = std::max(longest, m_ * borders.one_way);
      for (const DeviceKindIndex kind : kinds_[stage]) {  // a rank of each works on all
        const FamilyWork& work = work_of(strategy, kind);
        double each = borders.awaited, on_last = 0;
        for (const LayerRange& part : group.stages[stage]) {
          on_last = forward_of(work, part) + backward_of(work, part);
          each += on_last;
        }
        on_last += borders.awaited_by_last;
        if (stage == 0) each += work.embedding_forward + work.embedding_backward;
        if (stage == head) {
          each += work.head_forward + work.head_backward;
          on_last += work.head_forward + work.head_backward;
        }
        longest = std::max(longest, m_ * each + (stage > 0 ? there : 0));
        if (stage > 0) longest = std::max(longest, m_ * each + there + back - work.after_gradient);
        if (extent_ == Extent::all)
          longest = std::max(
              longest, beside_traffic(group, strategy, work, stage, each, on_last, borders.sends));
      }
      const FamilyWork& work = fastest_on(stage, strategy);
      const LayerRange front = group.parts[stage];
      there += forward_of(work, front) - work.after_output + borders.before;
      if (!zero_bubble) back += backward_of(work, front) - work.after_gradient + borders.behind;
    }
    // Sums of doubles: the last digits may be off either way.
    return Picoseconds(std::int64_t(std::min(longest * (1 - 1e-9), double(kLongestStep.count()))));
  }

  /// The transfers of a stage for one micro-batch, as in bottleneck_bound().
  struct Borders {
    double before = 0,
           behind = 0;  ///< one transfer over the border before the stage, and behind it
    double awaited = 0, awaited_by_last = 0;  ///< by actions of all chunks, and of the last chunk
    double one_way = 0;                       ///< the longer sum of those of one direction
    LinkTimes sends;
  };
  Borders borders_of(const Strategy& strategy, std::size_t stage) {
    Borders borders;
    if (extent_ != Extent::all || stages_ == 1 || is_placed_as_v(strategy.schedule)) return borders;
    if (transfers_.empty()) transfers_ = all_.bounds_.transfers(family_.base);
    const std::int64_t chunks = strategy.pipeline.virtual_stages;
    const bool first = stage == 0, last = stage + 1 == stages_;
    // The model's ends have no neighbour.
    const std::int64_t before = chunks - std::int64_t(first), behind = chunks - std::int64_t(last);
    const Bounds::Transfer& from = transfers_[first ? stages_ - 1 : stage - 1];
    const Bounds::Transfer& to = transfers_[stage];
    const auto time = [](const Bounds::Transfer& transfer) {
      return double(transfer.time.count());
    };
    borders.before = first ? 0 : time(from);
    borders.behind = last ? 0 : time(to);
    borders.one_way = std::max(double(before) * time(from), double(behind) * time(to));
    borders.sends.add(from.links, before);
    borders.sends.add(to.links, behind);
    const bool ahead =
        receives_ahead(all_.target_.framework(), strategy) || strategy.experts.overlap_exchange;
    if (ahead) return borders;
    borders.awaited = double(before) * time(from) + double(behind) * time(to);
    borders.awaited_by_last = (chunks == 1 && first ? 0 : time(from)) + (last ? 0 : time(to));
    return borders;
  }

  /// Returns the step that the collectives of a stage take with its work (step_traffic_bound).
  double beside_traffic(const ArrangementGroup& group, const Strategy& strategy,
                        const FamilyWork& work, std::size_t stage, double each, double on_last,
                        const LinkTimes& sends) {
    const bool first = stage == 0, last = stage == std::size_t(stage_of_head(strategy));
    WeightBytes weights;
    for (const FamilyWork::Weights& sums : work.weights) {
      double sum = (first ? sums.embedding : 0) + (last ? sums.head : 0);
      for (const LayerRange& part : group.stages[stage]) sum += sums.layers.of(part);
      weights.*sums.bytes = Bytes(std::int64_t(sum));
    }
    const StageTraffic traffic = all_.bounds_.step_traffic(family_.base, weights);
    const auto picoseconds = [](double time) {
      return Picoseconds(std::int64_t(std::min(time, double(kLongestStep.count()))));
    };
    const Picoseconds bound = capped([&] {
      LinkTimes links = traffic.links;
      links.add(sends, std::int64_t(m_));
      return std::max(links.longest(), step_traffic_bound(strategy, std::int64_t(m_), traffic,
                                                          picoseconds(each), picoseconds(on_last)));
    });
    return double(bound.count());
  }

  const FamilyBounds& all_;
  const Extent extent_;
  const StrategyFamily& family_;
  const Lines& lines_;
  const std::size_t stages_;
  const double capacity_, m_;
  const std::vector<Kinds> kinds_;  ///< by stage
  /// By whether backwards are split, and by kind.
  std::map<std::pair<bool, DeviceKindIndex>, std::shared_ptr<const FamilyWork>> work_;
  std::array<std::optional<FamilyWork>, 2> extended_;  ///< split backwards: the second
  std::vector<Bounds::Transfer> transfers_;            ///< of the least borders
  FamilyBound bound_;
};

FamilyBound FamilyBounds::bound(const StrategyFamily& family, Bytes room, Extent extent) const {
  if (has_lines(family.base)) return Family(*this, family, room, extent).bound();
  FamilyBound bound;  // all is left to the bounds of single strategies
  for (const ArrangementGroup& group : family.arrangements->groups)
    bound.groups.push_back({group.first, group.first + group.count, {}, {}});
  return bound;
}

bool FamilyBounds::takes_long(const StrategyFamily& family) const {
  return is_long_ring(target_.framework(), family.base) && has_lines(family.base);
}

}  // namespace plimsoll
