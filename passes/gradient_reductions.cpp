#include "passes/gradient_reductions.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace plimsoll {

namespace {

/// A routine of one op over f32 ranges of memory, one slot per tensor.
struct RangeRoutine {
  Routine routine;

  RangeRoutine(std::string name, OpKind kind) {
    routine.name = std::move(name);
    routine.phase = Phase::backward;
    Op op;
    op.kind = kind;
    op.phase = Phase::backward;
    routine.ops = {op};
  }

  TensorId range(const char* name, SlotKind slot, std::int64_t elements) {
    Tensor tensor;
    tensor.name = name;
    tensor.role = TensorRole::gradient;
    tensor.dtype = kGradientType;
    tensor.shape = {elements};
    routine.slots.push_back({slot, bytes_of(tensor)});
    routine.places.push_back({routine.tensors.size(), {}});
    routine.tensors.push_back(std::move(tensor));
    return TensorId(routine.tensors.size() - 1);
  }
};

}  // namespace

GradientReductions::GradientReductions(const Graph& graph, const PassContext& context,
                                       const ArenaLayout& layout, const StageArenas& arenas,
                                       ProgramBuilder& build)
    : graph_(graph), context_(context), layout_(layout), arenas_(arenas), build_(build) {
  for (const Op& op : graph.ops) {
    if (op.block || op.stream != Stream::data) continue;
    if (op.phase == Phase::backward) op_ = &op;
    if (op.phase == Phase::optimizer && op.kind == OpKind::all_reduce) replicas_ = &op;
  }
  const std::int64_t degree =
      shards_gradients(context.strategy) ? context.strategy.sharding_degree : 1;
  std::int64_t kept = 0;
  for (const Bucket& bucket : layout.buckets) {
    kept_at_.push_back(kept);
    kept += bucket.elements / degree;
  }
  added_.resize(layout.buckets.size());
  finished_.resize(layout.buckets.size());
}

GradientReductions::Part GradientReductions::make_part(SlotKind kind, std::int64_t begin,
                                                       std::int64_t end, std::int64_t micro_batch) {
  const auto at = [&](std::int64_t element) {
    const auto found =
        std::lower_bound(layout_.buckets.begin(), layout_.buckets.end(), element,
                         [](const Bucket& bucket, std::int64_t e) { return bucket.begin < e; });
    return std::size_t(found - layout_.buckets.begin());
  };
  Part part;
  part.kind = kind;
  part.base = begin;
  part.first = at(begin);
  part.end = at(end);
  const Bytes bytes = (end - begin) * bytes_of(kGradientType);
  part.buffer =
      build_.add_buffer("micro_batch_gradients", TensorRole::gradient, bytes, build_.next_call());
  zero(part, micro_batch);
  return part;
}

void GradientReductions::zero(const Part& part, std::int64_t micro_batch) {
  const Bytes bytes = build_.buffer(part.buffer).bytes;
  RangeRoutine fill("zero_gradients", OpKind::fill);
  const TensorId range =
      fill.range("gradients", SlotKind::gradients, bytes.count() / bytes_of(kGradientType).count());
  fill.routine.ops[0].outputs = {range};
  fill.routine.ops[0].params = FillParams{0};
  build_.add_call(build_.shared_routine(fill.routine), {}, micro_batch, {{part.buffer, {}, {}}},
                  {});
}

void GradientReductions::before_call(std::size_t instance, const Routine& routine,
                                     std::int64_t micro_batch) {
  const auto writes = [&](SlotKind kind) {
    return std::any_of(routine.slots.begin(), routine.slots.end(),
                       [&](const Slot& slot) { return slot.kind == kind; });
  };
  const bool own = writes(SlotKind::gradients), tied = writes(SlotKind::tied_gradients);
  if (!own && !tied) return;
  const auto [found, fresh] = open_.try_emplace({micro_batch, instance});
  const std::size_t places = overlaps_grad_reduce(context_) ? 2 : 1;
  while (fresh && pending_.size() >= places) add_oldest();
  std::vector<Part>& parts = found->second.parts;
  // Where backward is split, the call for the inputs may write less than that for the weights.
  const auto lacks = [&](SlotKind kind) {
    return std::none_of(parts.begin(), parts.end(),
                        [&](const Part& part) { return part.kind == kind; });
  };
  const Instance& at = layout_.instances[instance];
  if (own && lacks(SlotKind::gradients)) {
    parts.push_back(make_part(SlotKind::gradients, at.base, at.base + at.elements, micro_batch));
  }
  if (tied && lacks(SlotKind::tied_gradients)) {
    const std::int64_t base = *layout_.tied_base;
    parts.push_back(
        make_part(SlotKind::tied_gradients, base, base + layout_.tied_elements, micro_batch));
  }
}

Binding GradientReductions::binding(SlotKind kind, std::size_t instance,
                                    std::int64_t micro_batch) const {
  for (const Part& part : open_.at({micro_batch, instance}).parts) {
    if (part.kind == kind) return {part.buffer, {}, {}};
  }
  INVARIANT(false, "no memory for slot " + std::string(to_text(kind)));
}

void GradientReductions::after_call(std::size_t instance, std::int64_t micro_batch,
                                    std::size_t call, bool complete, bool last) {
  const auto found = open_.find({micro_batch, instance});
  if (found == open_.end()) return;
  found->second.calls.push_back(call);
  if (!complete) return;
  Contribution contribution = std::move(found->second);
  open_.erase(found);
  contribution.last = last;
  reduce(contribution, micro_batch);
  pending_.push_back(std::move(contribution));
}

/// Per call that wrote some of the bucket: the port that fires last.
std::vector<Wait> GradientReductions::writers(const Contribution& contribution, const Part& part,
                                              const Bucket& bucket) const {
  std::vector<Wait> waits;
  for (std::size_t call : contribution.calls) {
    const Routine& routine = build_.program.at(build_.program.calls[call].routine);
    std::optional<std::size_t> latest;
    for (std::size_t port = 0; port < routine.ports.size(); ++port) {
      const Place& place = routine.places[routine.ports[port].tensor.index()];
      if (!place.slot || routine.slots[*place.slot].kind != part.kind) continue;
      const std::int64_t at = part.base + place.offset.count() / bytes_of(kGradientType).count();
      if (at < bucket.begin || at >= bucket.begin + bucket.elements) continue;
      if (!latest || routine.ports[port].op > routine.ports[*latest].op) latest = port;
    }
    if (latest) waits.push_back({call, latest});
  }
  return waits;
}

std::size_t GradientReductions::reduce_range(const Op& op, const Part& part, const Bucket& range,
                                             std::int64_t micro_batch, std::vector<Wait> waits) {
  const Group& group = std::get<CollectiveParams>(op.params).group;
  const Bytes element = bytes_of(kGradientType);
  const RoutineId routine = build_.payload_routine(
      fmt::format("{}.{}", to_text(op.kind), to_text(group)), op.kind, Phase::backward, op.stream,
      TensorRole::gradient, kGradientType, range.elements * element, op.params);
  return build_.add_call(routine, {}, micro_batch,
                         {{part.buffer, (range.begin - part.base) * element, {}}},
                         std::move(waits));
}

GradientReductions::Sums GradientReductions::sum_partial(const Contribution& contribution,
                                                         const Part& part,
                                                         std::int64_t micro_batch) {
  Sums sums;
  const std::int64_t end =
      part.base + build_.buffer(part.buffer).bytes.count() / bytes_of(kGradientType).count();
  for (const Op& op : graph_.ops) {
    if (op.block || op.stream != Stream::mp) continue;
    const Group& group = std::get<CollectiveParams>(op.params).group;
    std::optional<Bucket> run;
    const auto close = [&] {
      if (!run) return;
      sums.emplace_back(
          *run, reduce_range(op, part, *run, micro_batch, writers(contribution, part, *run)));
      run.reset();
    };
    for (std::size_t s = 0; s < layout_.segments.size(); ++s) {
      const Segment& segment = layout_.segments[s];
      if (segment.offset < part.base || segment.offset >= end) continue;
      if (graph_.at(layout_.parameter[s]).gradient_group != group) {
        close();
        continue;
      }
      if (!run) run = Bucket{segment.offset, 0};
      run->elements = segment.offset + segment.elements - run->begin;
    }
    close();
  }
  return sums;
}

void GradientReductions::reduce(Contribution& contribution, std::int64_t micro_batch) {
  for (const Part& part : contribution.parts) {
    const Sums sums = sum_partial(contribution, part, micro_batch);
    for (std::size_t b = part.first; b < part.end; ++b) {
      const Bucket& bucket = layout_.buckets[b];
      std::vector<Wait> waits = writers(contribution, part, bucket);
      for (const auto& [range, call] : sums) {
        const bool apart = range.begin + range.elements <= bucket.begin ||
                           bucket.begin + bucket.elements <= range.begin;
        if (!apart) waits.push_back({call, {}});
      }
      contribution.reductions.push_back(
          reduce_range(*op_, part, bucket, micro_batch, std::move(waits)));
    }
  }
}

void GradientReductions::add_oldest() {
  const Contribution contribution = std::move(pending_.front());
  pending_.pop_front();
  auto reduction = contribution.reductions.begin();
  for (const Part& part : contribution.parts) {
    for (std::size_t b = part.first; b < part.end; ++b) {
      added_[b] = add(part, b, *reduction++);
      // To the tied parameter's another call adds too, or another stage.
      const bool tied = layout_.tied_base && layout_.buckets[b].begin == *layout_.tied_base;
      if (contribution.last && !tied) reduce_over_replicas(b, {{added_[b], {}}});
    }
  }
}

/// Adds a bucket, or this rank's part of it, to what is kept; frees the buffer with its last one.
std::size_t GradientReductions::add(const Part& part, std::size_t bucket, std::size_t reduction) {
  const Bucket& range = layout_.buckets[bucket];
  const Bytes element = bytes_of(kGradientType);
  const bool sharded = shards_gradients(context_.strategy);
  const std::int64_t kept =
      sharded ? range.elements / context_.strategy.sharding_degree : range.elements;
  RangeRoutine sum("add_gradients", OpKind::add);
  const TensorId total = sum.range("total", SlotKind::gradient_arena, kept);
  const TensorId reduced = sum.range("reduced", SlotKind::gradients, kept);
  sum.routine.ops[0].inputs = {total, reduced};
  sum.routine.ops[0].outputs = {total};
  const Binding into{arenas_.gradients, kept_at_[bucket] * element, {}};
  const Binding from{part.buffer, (range.begin - part.base) * element,
                     sharded ? kept * element : Bytes(0)};
  const std::size_t call =
      build_.add_call(build_.shared_routine(sum.routine), {},
                      build_.program.calls[reduction].micro_batch, {into, from}, {{reduction, {}}});
  build_.extend(part.buffer, call + 1);
  return call;
}

void GradientReductions::reduce_kept(std::size_t bucket, const Op& op, std::vector<Wait> waits) {
  const bool sharded = shards_gradients(context_.strategy);
  const Bytes element = bytes_of(kGradientType);
  const Bytes bytes = layout_.buckets[bucket].elements /
                      (sharded ? context_.strategy.sharding_degree : 1) * element;
  const Group& group = std::get<CollectiveParams>(op.params).group;
  const RoutineId routine = build_.payload_routine(
      fmt::format("{}.kept.{}", to_text(op.kind), to_text(group)), op.kind, Phase::optimizer,
      op.stream, TensorRole::gradient, kGradientType, bytes, op.params);
  reductions_.push_back(build_.add_call(
      routine, {}, {}, {{arenas_.gradients, kept_at_[bucket] * element, {}}}, std::move(waits)));
}

void GradientReductions::reduce_over_replicas(std::size_t bucket, std::vector<Wait> waits) {
  finished_[bucket] = true;
  if (replicas_ != nullptr) reduce_kept(bucket, *replicas_, std::move(waits));
}

std::vector<std::size_t> GradientReductions::finish() {
  INVARIANT(open_.empty(), "gradients that nobody completes");
  while (!pending_.empty()) add_oldest();
  const std::int64_t stage = build_.program.stage, stages = context_.strategy.pp;
  const bool shares = stages > 1 && (stage == 0 || stage + 1 == stages);
  for (std::size_t b = 0; b < layout_.buckets.size(); ++b) {
    if (finished_[b]) continue;
    std::vector<Wait> waits = {{added_[b], {}}};
    if (shares && layout_.tied_bucket[b]) {
      Op tied;
      tied.kind = OpKind::all_reduce;
      tied.stream = Stream::world;
      tied.params = CollectiveParams{Group{{Axis::pp}, true}, Reduction::sum};
      reduce_kept(b, tied, waits);
      waits = {{reductions_.back(), {}}};
    }
    reduce_over_replicas(b, std::move(waits));
  }
  return reductions_;
}

}  // namespace plimsoll
