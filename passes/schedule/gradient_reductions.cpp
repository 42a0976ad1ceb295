// Calls reduce the gradients of every micro-batch and add the kept part.
#include "passes/schedule/gradient_reductions.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "passes/cut/range_routine.h"

namespace plimsoll {

const Op* reduction_of_micro_batches(const Graph& graph) {
  const Op* found = nullptr;
  for (const Op& op : graph.ops) {
    if (!op.block && op.stream == Stream::data && op.phase == Phase::backward) found = &op;
  }
  return found;
}

GradientReductions::GradientReductions(StageContext& stage, UpdateCalls& updates)
    : GradientSink(stage), updates_(updates), op_(reduction_of_micro_batches(stage.graph)) {
  for (const Op& op : graph_.ops) {
    if (op.block || op.stream != Stream::data) continue;
    if (op.phase == Phase::optimizer && op.kind == OpKind::all_reduce) replicas_ = &op;
  }
  bundles_.resize(layout_.instances.size());
  for (std::size_t b = 0; b < layout_.buckets.size(); ++b) {
    const std::size_t first = segments_in(layout_, layout_.buckets[b]).first;
    if (layout_.entry[first]) bundles_[layout_.producer[first]].push_back(b);
  }
  added_.resize(layout_.buckets.size());
  finished_.resize(layout_.buckets.size());
}

bool GradientReductions::overlap(const Range& a, const Range& b) {
  return a.begin < b.begin + b.elements && b.begin < a.begin + a.elements;
}

/// Returns whether this rank keeps some of a bucket's sum: its part, or all that it owns.
bool GradientReductions::is_kept(std::size_t bucket) const {
  return layout_.buckets[bucket].owner == build_.program.owner;
}

std::int64_t GradientReductions::kept_elements(std::size_t bucket) const {
  if (!is_kept(bucket)) return 0;
  const Bucket& range = layout_.buckets[bucket];
  const bool parts = shards_gradients(context_.strategy);
  return range.elements / (parts ? shards(build_.program, range) : 1);
}

/// Returns the elements from the start of a part's buffer to an element of the arenas, if the part
/// has it.
std::optional<std::int64_t> GradientReductions::place_in(const Part& part,
                                                         std::int64_t element) const {
  std::int64_t before = 0;
  for (const std::size_t b : part.buckets) {
    const std::int64_t within = element - layout_.buckets[b].begin;
    if (within >= 0 && within < layout_.buckets[b].elements) return before + within;
    before += layout_.buckets[b].elements;
  }
  return std::nullopt;
}

GradientReductions::Part GradientReductions::make_part(SlotKind kind, std::size_t instance,
                                                       std::vector<std::size_t> buckets,
                                                       std::int64_t micro_batch) {
  Part part;
  part.kind = kind;
  part.instance = instance;
  for (const std::size_t b : buckets) part.elements += layout_.buckets[b].elements;
  part.buckets = std::move(buckets);
  const Bytes bytes = part.elements * bytes_of(layout_.gradient_type());
  part.buffer =
      build_.add_buffer("micro_batch_gradients", TensorRole::gradient, bytes, build_.next_call());
  zero(part, micro_batch);
  return part;
}

void GradientReductions::zero(const Part& part, std::int64_t micro_batch) {
  const Bytes bytes = build_.buffer(part.buffer).bytes;
  RangeRoutine fill("zero_gradients", OpKind::fill);
  const TensorId range = fill.range("gradients", SlotKind::gradients,
                                    bytes.count() / bytes_of(layout_.gradient_type()).count(),
                                    layout_.gradient_type());
  fill.routine.ops[0].outputs = {range};
  fill.routine.ops[0].params = FillParams{0};
  const std::size_t call = build_.add_call(build_.shared_routine(fill.routine), {}, micro_batch,
                                           {{part.buffer, {}, {}}}, given_up_waits_);
  for (const BufferId buffer : given_up_) build_.extend(buffer, call);
  given_up_.clear();
  given_up_waits_.clear();
}

void GradientReductions::before_call(std::size_t instance, const Routine& routine,
                                     std::int64_t micro_batch) {
  const auto writes = [&](SlotKind kind) {
    return std::any_of(routine.slots.begin(), routine.slots.end(),
                       [&](const Slot& slot) { return slot.kind == kind; });
  };
  const bool own = writes(SlotKind::gradients), tied = writes(SlotKind::tied_gradients);
  if (!own && !tied) return;
  const bool makes_room = releases() || !open_.contains({micro_batch, instance});
  const std::size_t places = overlaps_grad_reduce(context_) ? 2 : 1;
  while (makes_room && pending_.size() >= places) add_oldest();
  // Where backward is split, the call for the inputs may write less than that for the weights.
  const auto open = [&](SlotKind kind, std::size_t of, const std::vector<std::size_t>& buckets) {
    std::vector<Part>& parts = open_[{micro_batch, of}].parts;
    if (std::ranges::find(parts, kind, &Part::kind) == parts.end())
      parts.push_back(make_part(kind, of, buckets, micro_batch));
  };
  if (own) open(SlotKind::gradients, instance, bundles_[instance]);
  if (!tied) return;
  if (releases()) {
    open(SlotKind::gradients, tied_owner(), bundles_[tied_owner()]);
  } else {
    open(SlotKind::tied_gradients, instance, {bucket_at(layout_.buckets, *layout_.tied_base)});
  }
}

std::size_t GradientReductions::tied_owner() const {
  const std::size_t bucket = bucket_at(layout_.buckets, *layout_.tied_base);
  return layout_.producer[segments_in(layout_, layout_.buckets[bucket]).first];
}

Binding GradientReductions::binding(const Slot& slot, std::size_t instance,
                                    std::int64_t micro_batch) const {
  if (slot.kind == SlotKind::tied_gradients && releases()) {
    const Part& part = open_.at({micro_batch, tied_owner()}).parts.front();
    return {
        part.buffer, *place_in(part, *layout_.tied_base) * bytes_of(layout_.gradient_type()), {}};
  }
  for (const Part& part : open_.at({micro_batch, instance}).parts) {
    if (part.kind != slot.kind) continue;
    if (!slot.entry) return {part.buffer, {}, {}};
    const auto at = place_in(part, layout_.entries[instance][*slot.entry]);
    return {part.buffer, *at * bytes_of(layout_.gradient_type()), {}};
  }
  INVARIANT(false, "no memory for slot " + std::string(to_text(slot.kind)));
}

void GradientReductions::wrote(const WrittenGradients& written) {
  const auto found = open_.find({written.micro_batch, written.instance});
  if (found == open_.end()) return;
  found->second.calls.push_back(written.calls.back());
  if (!written.complete) return;
  Contribution contribution = std::move(found->second);
  open_.erase(found);
  contribution.last = written.last;
  contribution.micro_batch = written.micro_batch;
  reduce(contribution, written.micro_batch);
  pending_.push_back(std::move(contribution));
  const bool later = op_ != nullptr && overlaps_grad_reduce(context_);
  if (releases() && !later) add_oldest();
}

/// Returns, for each call that wrote some of the range, the port that fires last.
std::vector<Wait> GradientReductions::writers(const Contribution& contribution, const Part& part,
                                              const Range& range) const {
  std::vector<Wait> waits;
  for (std::size_t call : contribution.calls) {
    const Routine& routine = build_.program.at(build_.program.calls[call].routine);
    std::optional<std::size_t> latest;
    for (std::size_t port = 0; port < routine.ports.size(); ++port) {
      const Place& place = routine.places[routine.ports[port].tensor.index()];
      if (!place.slot || routine.slots[*place.slot].kind != part.kind) continue;
      std::int64_t at = place.offset.count() / bytes_of(layout_.gradient_type()).count();
      if (const auto& entry = routine.slots[*place.slot].entry) {
        at = *place_in(part, layout_.entries[part.instance][*entry]);
      }
      if (at < range.begin || at >= range.begin + range.elements) continue;
      if (!latest || routine.ports[port].op > routine.ports[*latest].op) latest = port;
    }
    if (latest) waits.push_back({call, latest});
  }
  return waits;
}

std::size_t GradientReductions::reduce_range(const Op& op, const Part& part, const Range& range,
                                             std::int64_t micro_batch, std::vector<Wait> waits,
                                             std::optional<std::int64_t> root, bool experts) {
  CollectiveParams params = std::get<CollectiveParams>(op.params);
  if (experts) params.group = Group{{Axis::edp}};
  std::string name = fmt::format("{}.{}", to_text(op.kind), to_text(params.group));
  if (root) {
    params.root = *root;
    name += fmt::format(".root{}", *root);
  }
  const Bytes element = bytes_of(layout_.gradient_type());
  const RoutineId routine =
      build_.payload_routine(name, op.kind, Phase::backward, op.stream, TensorRole::gradient,
                             layout_.gradient_type(), range.elements * element, params);
  return build_.add_call(routine, {}, micro_batch, {{part.buffer, range.begin * element, {}}},
                         std::move(waits));
}

/// Tensors that travel together are copied onto themselves (is_coalesced).
std::size_t GradientReductions::copy_together(const Part& part, const Range& range,
                                              std::int64_t micro_batch, std::vector<Wait> waits) {
  const Bytes element = bytes_of(layout_.gradient_type());
  const RoutineId copy = build_.payload_routine(
      "coalesce.gradient.backward", OpKind::coalesce, Phase::backward, Stream::compute,
      TensorRole::gradient, layout_.gradient_type(), range.elements * element, FlatParams{});
  return build_.add_call(copy, {}, micro_batch, {{part.buffer, range.begin * element, {}}},
                         std::move(waits));
}

std::vector<GradientReductions::PartialRun> GradientReductions::partial_runs(
    const Part& part) const {
  std::vector<PartialRun> runs;
  for (const Op& op : graph_.ops) {
    if (op.block || op.stream != Stream::mp) continue;
    const Group& group = std::get<CollectiveParams>(op.params).group;
    bool open = false;
    for (std::size_t s = 0; s < layout_.segments.size(); ++s) {
      const auto at = place_in(part, layout_.segments[s].offset);
      if (!at) continue;
      const bool joins = graph_.at(layout_.parameter[s]).gradient_group == group;
      if (joins && !open) runs.push_back({&op, Range{*at, 0}});
      open = joins;
      if (open)
        runs.back().range.elements = *at + layout_.segments[s].elements - runs.back().range.begin;
    }
  }
  return runs;
}

bool GradientReductions::sums_partial_at_once() const {
  return shards_gradients(context_.strategy) || releases();
}

GradientReductions::Sums GradientReductions::sum_partial(const Contribution& contribution,
                                                         const Part& part,
                                                         std::int64_t micro_batch) {
  Sums sums;
  if (!sums_partial_at_once()) return sums;
  for (const auto& [op, range] : partial_runs(part)) {
    sums.emplace_back(
        range, reduce_range(*op, part, range, micro_batch, writers(contribution, part, range)));
  }
  return sums;
}

bool GradientReductions::is_tied(std::size_t bucket) const {
  return layout_.tied_base && layout_.buckets[bucket].begin == *layout_.tied_base;
}

GradientReductions::Part GradientReductions::kept_part(std::vector<std::size_t> buckets) const {
  Part part;
  for (const std::size_t b : buckets) part.elements += layout_.buckets[b].elements;
  part.buckets = std::move(buckets);
  return part;
}

/// All gradients of this step are added to a part that is kept whole. Its buckets need not follow
/// on each other in the kept arena. To the tied parameter's another call adds too: its sums follow
/// at the end.
void GradientReductions::sum_kept_partial(const Part& part) {
  std::vector<std::size_t> adjacent;
  for (const std::size_t b : part.buckets) {
    if (is_tied(b)) continue;
    if (!adjacent.empty() && b != adjacent.back() + 1)
      sum_kept_runs(kept_part(std::exchange(adjacent, {})));
    adjacent.push_back(b);
  }
  if (!adjacent.empty()) sum_kept_runs(kept_part(std::move(adjacent)));
}

void GradientReductions::sum_kept_runs(const Part& part) {
  for (const auto& [op, range] : partial_runs(part)) {
    std::vector<Wait> waits;
    for (const std::size_t b : part.buckets) {
      const Range bucket{*place_in(part, layout_.buckets[b].begin), layout_.buckets[b].elements};
      if (overlap(range, bucket)) waits.push_back({added_[b], {}});
    }
    reduce_kept(*op, kept_at(part.buckets.front()) + range.begin, range.elements, std::move(waits));
  }
}

void GradientReductions::reduce(Contribution& contribution, std::int64_t micro_batch) {
  for (const Part& part : contribution.parts) {
    const Sums sums = sum_partial(contribution, part, micro_batch);
    for (const std::size_t b : part.buckets) {
      const Bucket& bucket = layout_.buckets[b];
      const Range range{*place_in(part, bucket.begin), bucket.elements};
      const bool alone = bucket.experts && shards(build_.program, bucket) == 1;
      const bool reduces = op_ != nullptr && !alone;
      std::vector<Wait> waits;
      // An update runs on the stream of the calls that write.
      if (reduces || !releases() || replicas_ != nullptr)
        waits = writers(contribution, part, range);
      for (const auto& [sum, call] : sums) {
        if (overlap(sum, range)) waits.push_back({call, {}});
      }
      if (is_coalesced(layout_, bucket)) {
        waits = {{copy_together(part, range, micro_batch, std::move(waits)), {}}};
      }
      if (reduces) {
        waits = {{reduce_range(*op_, part, range, micro_batch, std::move(waits), bucket.owner,
                               bucket.experts),
                  {}}};
      }
      if (releases() && replicas_ != nullptr) {
        const RoutineId routine = build_.payload_routine(
            fmt::format("all_reduce.kept.{}",
                        to_text(std::get<CollectiveParams>(replicas_->params).group)),
            OpKind::all_reduce, Phase::backward, replicas_->stream, TensorRole::gradient,
            layout_.gradient_type(), kept_elements(b) * bytes_of(layout_.gradient_type()),
            replicas_->params);
        waits = {{build_.add_call(routine, {}, micro_batch, {kept_in(part, b)}, waits), {}}};
      }
      contribution.reduced.push_back(std::move(waits));
    }
  }
}

void GradientReductions::add_oldest() {
  const Contribution contribution = std::move(pending_.front());
  pending_.pop_front();
  if (releases()) return update(contribution);
  auto reduced = contribution.reduced.begin();
  for (const Part& part : contribution.parts) {
    std::vector<Wait> sent;  // to owners
    std::optional<std::size_t> last;
    for (const std::size_t b : part.buckets) {
      if (is_kept(b)) {
        last = added_[b] = add(part, b, *reduced, contribution.micro_batch);
        // To the tied parameter's another call adds too, or another stage.
        if (contribution.last && !is_tied(b)) reduce_over_replicas(b, {{added_[b], {}}});
      } else {
        sent.insert(sent.end(), reduced->begin(), reduced->end());
      }
      ++reduced;
    }
    if (last) {
      std::vector<Wait>& waits = build_.program.calls[*last].waits;
      waits.insert(waits.end(), sent.begin(), sent.end());
    } else {
      given_up_.push_back(part.buffer);
      given_up_waits_.insert(given_up_waits_.end(), sent.begin(), sent.end());
    }
    if (contribution.last && !sums_partial_at_once()) sum_kept_partial(part);
  }
}

/// Updates the parameters. Where gradients are whole, those of a part lie as its parameters do, and
/// one update is of all.
void GradientReductions::update(const Contribution& contribution) {
  auto reduced = contribution.reduced.begin();
  for (const Part& part : contribution.parts) {
    for (std::size_t next = 0; next < part.buckets.size();) {
      const std::size_t first = part.buckets[next];
      ReleasedGradients gradients{.range = layout_.buckets[first], .at = kept_in(part, first)};
      gradients.elements = kept_elements(first);
      std::vector<Wait> waits = *reduced++;
      for (++next; next < part.buckets.size() && !shards_gradients(context_.strategy); ++next) {
        const Bucket& more = layout_.buckets[part.buckets[next]];
        INVARIANT(more.begin == gradients.range.begin + gradients.range.elements,
                  "gradients of a layer follow each other");
        gradients.range.elements += more.elements;
        gradients.elements = gradients.range.elements;
        append(waits, *reduced++);
      }
      gradients.layer = layout_.instances[part.instance].layer;
      gradients.micro_batch = contribution.micro_batch;
      build_.extend(part.buffer, updates_.update(gradients, std::move(waits)) + 1);
      updated_ += gradients.range.elements;
    }
  }
}

Binding GradientReductions::kept_in(const Part& part, std::size_t bucket) const {
  const Bytes element = bytes_of(layout_.gradient_type());
  const Bucket& range = layout_.buckets[bucket];
  const bool sharded = shards(build_.program, range) > 1 && shards_gradients(context_.strategy);
  return {part.buffer, *place_in(part, range.begin) * element,
          sharded ? kept_elements(bucket) * element : Bytes(0),
          range.experts ? Axis::edp : Axis::sharding};
}

/// Adds a bucket, or this rank's part of it, to the kept gradients. It frees the buffer with its
/// last bucket.
std::size_t GradientReductions::add(const Part& part, std::size_t bucket, std::vector<Wait> waits,
                                    std::int64_t micro_batch) {
  const Bytes element = bytes_of(layout_.gradient_type());
  const std::int64_t kept = kept_elements(bucket);
  RangeRoutine sum("add_gradients", OpKind::add);
  const TensorId total =
      sum.range("total", SlotKind::gradient_arena, kept, layout_.gradient_type());
  const TensorId reduced = sum.range("reduced", SlotKind::gradients, kept, layout_.gradient_type());
  sum.routine.ops[0].inputs = {total, reduced};
  sum.routine.ops[0].outputs = {total};
  const Binding into{arenas_.gradients, kept_at(bucket) * element, {}};
  const std::size_t call = build_.add_call(build_.shared_routine(sum.routine), {}, micro_batch,
                                           {into, kept_in(part, bucket)}, std::move(waits));
  build_.extend(part.buffer, call + 1);
  return call;
}

/// Returns the elements of the persistent arena before the kept part of a bucket.
std::int64_t GradientReductions::kept_at(std::size_t bucket) {
  for (std::size_t b = kept_at_.size(); b <= bucket; ++b) {
    kept_at_.push_back(b == 0 ? 0 : kept_at_.back() + kept_elements(b - 1));
  }
  return kept_at_[bucket];
}

void GradientReductions::reduce_kept(const Op& op, std::int64_t begin, std::int64_t elements,
                                     std::vector<Wait> waits) {
  const Bytes element = bytes_of(layout_.gradient_type());
  const Group& group = std::get<CollectiveParams>(op.params).group;
  const RoutineId routine = build_.payload_routine(
      fmt::format("{}.kept.{}", to_text(op.kind), to_text(group)), op.kind, Phase::optimizer,
      op.stream, TensorRole::gradient, layout_.gradient_type(), elements * element, op.params);
  reductions_.push_back(build_.add_call(routine, {}, {}, {{arenas_.gradients, begin * element, {}}},
                                        std::move(waits)));
}

/// Reduces all that this rank keeps of a bucket.
void GradientReductions::reduce_kept_bucket(std::size_t bucket, const Op& op,
                                            std::vector<Wait> waits) {
  reduce_kept(op, kept_at(bucket), kept_elements(bucket), std::move(waits));
}

void GradientReductions::reduce_over_replicas(std::size_t bucket, std::vector<Wait> waits) {
  finished_[bucket] = true;
  if (replicas_ != nullptr && !layout_.buckets[bucket].experts)
    reduce_kept_bucket(bucket, *replicas_, std::move(waits));
}

std::vector<std::size_t> GradientReductions::finish() {
  INVARIANT(open_.empty(), "gradients that nobody completes");
  while (!pending_.empty()) add_oldest();
  if (releases()) {
    INVARIANT(updated_ == layout_.elements, "gradients that no call writes");
    return {};
  }
  // The update waits for what was sent last.
  for (const Wait& sent : given_up_waits_) reductions_.push_back(sent.call);
  given_up_waits_.clear();
  for (std::size_t b = 0; b < layout_.buckets.size(); ++b) {
    if (finished_[b] || !is_kept(b)) continue;
    std::vector<Wait> waits = {{added_[b], {}}};
    if (is_tied(b) && !sums_partial_at_once()) {
      const std::size_t before = reductions_.size();
      sum_kept_runs(kept_part({b}));
      for (std::size_t i = before; i < reductions_.size(); ++i)
        waits.push_back({reductions_[i], {}});
    }
    if (layout_.tied_sum && layout_.tied_bucket[b]) {
      reduce_kept_bucket(b, *layout_.tied_sum, waits);
      waits = {{reductions_.back(), {}}};
    }
    reduce_over_replicas(b, std::move(waits));
  }
  for (const BufferId buffer : given_up_) build_.extend(buffer, build_.next_call());
  return reductions_;
}

}  // namespace plimsoll
