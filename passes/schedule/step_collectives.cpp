// Calls reduce gradient buckets and gather parameters once per step.
#include "passes/schedule/step_collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

namespace plimsoll {

/// The Graph's collective of this kind over an arena, if its passes asked for one.
const Op* StepCollectives::arena_collective(OpKind kind) const {
  for (const Op& op : graph_.ops) {
    const bool once_per_step = !op.block && op.phase == Phase::optimizer;
    if (once_per_step && op.stream == Stream::data && op.kind == kind) return &op;
  }
  return nullptr;
}

const Op* StepCollectives::first_reduction() const {
  for (OpKind kind : {OpKind::reduce_scatter, OpKind::reduce, OpKind::all_reduce}) {
    if (const Op* op = arena_collective(kind); op != nullptr) return op;
  }
  return nullptr;
}

/// Posts the communications that complete the parameters after the update.
const Op* StepCollectives::parameter_collective() const {
  const Op* gather = arena_collective(OpKind::all_gather);
  return gather != nullptr ? gather : arena_collective(OpKind::broadcast);
}

std::size_t StepCollectives::bucket_call(const Op& op, const Bucket& bucket, BufferId arena,
                                         const ElementTypes& types, bool own_part,
                                         std::vector<Wait> waits) {
  const std::int64_t parts = own_part ? shards(build_.program, bucket) : 1;
  const DType type = types.at(bucket.begin);
  const Bytes bytes = bucket.elements / parts * bytes_of(type);
  CollectiveParams params = std::get<CollectiveParams>(op.params);
  if (bucket.experts) params.group = Group{{Axis::edp}};
  std::string name = fmt::format("{}.{}", to_text(op.kind), to_text(params.group));
  if (op.kind == OpKind::reduce || op.kind == OpKind::broadcast) {
    // The group is the sharding axis: a rank's index in it is its coordinate there.
    params.root = *bucket.owner;
    name += fmt::format(".root{}", params.root);
  }
  const RoutineId routine = build_.payload_routine(name, op.kind, Phase::optimizer, op.stream,
                                                   build_.buffer(arena).role, type, bytes, params);
  Binding binding{arena, types.offset(bucket.begin), own_part ? bytes : Bytes(0)};
  if (bucket.experts) binding.stride_axis = Axis::edp;
  // A fused merge has copied gradients together already.
  const bool reduces = op.kind == OpKind::reduce && !layout_.micro_batch_gradients;
  const bool rooted = reduces || op.kind == OpKind::broadcast;
  if (rooted && is_coalesced(layout_, bucket)) {
    const RoutineId copy = build_.payload_routine(
        fmt::format("coalesce.{}", to_text(build_.buffer(arena).role)), OpKind::coalesce,
        Phase::optimizer, Stream::compute, build_.buffer(arena).role, type, bytes, FlatParams{});
    waits = {{build_.add_call(copy, {}, {}, {binding}, std::move(waits)), {}}};
  }
  return build_.add_call(routine, {}, {}, {binding}, std::move(waits));
}

// ---- parameters ----

std::size_t StepCollectives::gather(const Op& op, const Bucket& bucket, std::size_t after) {
  if (bucket.experts && shards(build_.program, bucket) == 1)
    return after;  // nobody has another part
  return bucket_call(op, bucket, arenas_.parameters, layout_.parameters, false, {{after, {}}});
}

/// Returns the gathers in the order in which forward reads their parameters. The arenas are in
/// reverse order of the model.
std::vector<std::size_t> StepCollectives::gather_order() const {
  const std::vector<Bucket>& gathers = layout_.gathers;
  std::vector<std::size_t> order, first_read(gathers.size(), layout_.instances.size());
  for (std::size_t i = gathers.size(); i-- > 0;) {
    order.push_back(i);
    const auto [begin, end] = segments_in(layout_, gathers[i]);
    for (std::size_t s = begin; s < end; ++s) {
      first_read[i] = std::min(first_read[i], layout_.producer[s]);
    }
  }
  if (!build_.program.owner) return order;
  // Buckets of different owners overlap in what they bring.
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return first_read[a] < first_read[b]; });
  return order;
}

void StepCollectives::begin_step() {
  const Op* op = parameter_collective();
  if (op == nullptr || !overlaps_param_gather(context_)) return;
  gathers_.resize(layout_.gathers.size());
  for (const std::size_t i : gather_order()) {
    gathers_[i] = gather(*op, layout_.gathers[i], build_.last_compute());
  }
}

std::vector<Wait> StepCollectives::parameter_waits(std::size_t instance, bool reads_tied) const {
  if (gathers_.empty()) return {};
  // Gathers are one stream in order of their calls.
  std::optional<std::size_t> last;
  const auto reads = [&](std::int64_t element) {
    last = std::max(last, std::optional(gathers_[bucket_at(layout_.gathers, element)]));
  };
  for (const std::int64_t offset : layout_.entries[instance]) reads(offset);
  if (reads_tied && layout_.tied_base) reads(*layout_.tied_base);
  if (!last) return {};
  return {{*last, {}}};
}

void StepCollectives::end_step(std::size_t update) {
  const Op* op = parameter_collective();
  if (op == nullptr || overlaps_param_gather(context_)) return;
  for (const Bucket& bucket : layout_.gathers) gather(*op, bucket, update);
}

// ---- gradients ----

bool StepCollectives::complete(const Bucket& bucket) const {
  const auto [first, end] = segments_in(layout_, bucket);
  for (std::size_t s = first; s < end; ++s) {
    if (!complete_.contains(layout_.producer[s])) return false;
  }
  return true;
}

Binding StepCollectives::binding(const Slot& slot, std::size_t instance,
                                 std::int64_t /*micro_batch*/) const {
  return {arenas_.gradients, layout_.gradients.offset(element_of(layout_, slot, instance)), {}};
}

void StepCollectives::wrote(const WrittenGradients& written) {
  gradient_calls_[written.instance][written.kind] = written.calls;
  if (!written.last) return;
  complete_.insert(written.instance);
  if (overlaps_grad_reduce(context_)) sum_partial(written.instance);
  const Op* op = first_reduction();
  if (op == nullptr || !overlaps_grad_reduce(context_)) return;
  for (; next_bucket_ < layout_.completion.size(); ++next_bucket_) {
    const std::size_t i = layout_.completion[next_bucket_];
    if (layout_.tied_bucket[i] || !complete(layout_.buckets[i])) return;
    reduce_bucket(*op, i, gradient_waits(layout_.buckets[i]));
  }
}

/// Returns the waits for the gradients of segments [first, end). For each call it is the port that
/// fires last; for partial gradients it is their sum.
std::vector<Wait> StepCollectives::gradient_waits(std::size_t first, std::size_t end) const {
  std::map<std::size_t, std::optional<std::size_t>> last_port;  // by call
  for (std::size_t s = first; s < end; ++s) {
    if (const auto sum = sums_.find(s); sum != sums_.end()) {
      last_port[sum->second] = std::nullopt;
      continue;
    }
    const auto [call, port] = gradient_wait(s);
    const auto [found, fresh] = last_port.try_emplace(call, port);
    const Routine& routine = build_.program.at(build_.program.calls[call].routine);
    if (!fresh && routine.ports[*port].op > routine.ports[*found->second].op) found->second = port;
  }
  std::vector<Wait> waits;
  for (const auto& [call, port] : last_port) waits.push_back({call, port});
  return waits;
}

std::vector<Wait> StepCollectives::gradient_waits(const Bucket& bucket) const {
  const auto [first, end] = segments_in(layout_, bucket);
  return gradient_waits(first, end);
}

void StepCollectives::merged_gradients(std::size_t bucket, std::size_t call) {
  const auto [first, end] = segments_in(layout_, layout_.buckets[bucket]);
  std::set<std::size_t, std::greater<>> instances;  // in the order of backward
  for (std::size_t s = first; s < end; ++s) {
    sums_[s] = call;
    instances.insert(layout_.producer[s]);
  }
  const auto is_merged = [&](std::size_t instance) {
    for (std::size_t s = 0; s < layout_.segments.size(); ++s) {
      if (layout_.producer[s] == instance && !sums_.contains(s)) return false;
    }
    return true;
  };
  for (const std::size_t i : instances) {
    if (is_merged(i)) wrote({i, 0, ActionKind::backward, {call}, true, true});
  }
}

/// Sums gradients of which the ranks of a group computed parts, with one sum for each run of an
/// instance's.
void StepCollectives::sum_partial(std::size_t instance) {
  const auto group_of = [&](std::size_t s) {
    return graph_.at(layout_.parameter[s]).gradient_group;
  };
  for (const Op& op : graph_.ops) {
    if (op.block || op.stream != Stream::mp) continue;
    const Group& group = std::get<CollectiveParams>(op.params).group;
    for (std::size_t s = 0; s < layout_.segments.size(); ++s) {
      const std::size_t first = s;
      while (s < layout_.segments.size() && layout_.producer[s] == instance &&
             group_of(s) == group) {
        ++s;
      }
      if (s == first) continue;
      const Segment &begin = layout_.segments[first], &last = layout_.segments[s - 1];
      const Bucket run{begin.offset, last.offset + last.elements - begin.offset};
      const std::size_t sum = bucket_call(op, run, arenas_.gradients, layout_.gradients, false,
                                          gradient_waits(first, s));
      for (std::size_t i = first; i < s; ++i) sums_[i] = sum;
      reductions_.push_back(sum);
    }
  }
}

/// Returns the port that says that the gradient of a segment is written. Its tensor lies where the
/// segment does, and it is of one of the calls that add to the instance's gradients.
Wait StepCollectives::gradient_wait(std::size_t segment) const {
  const Instance& instance = layout_.instances[layout_.producer[segment]];
  const BlockId home = graph_.at(instance.block).variant_of.value_or(instance.block);
  const bool tied = graph_.at(layout_.parameter[segment]).block != home;
  // Where tensors are scattered, each has a port on a slot of its own.
  const std::optional<std::size_t> entry = layout_.entry[segment];
  const std::int64_t offset = tied ? 0 : layout_.segments[segment].offset - instance.base;
  const SlotKind slot = tied ? SlotKind::tied_gradients : SlotKind::gradients;
  for (const auto& [kind, calls] : gradient_calls_.at(layout_.producer[segment])) {
    for (auto call = calls.rbegin(); call != calls.rend(); ++call) {
      auto port = build_.find_port(*call, slot, offset * bytes_of(layout_.gradient_type()));
      if (!port && !tied) port = build_.find_port(*call, slot, Bytes(), entry);
      if (port) return {*call, port};
    }
  }
  INVARIANT(false, "nobody writes the gradient of " + layout_.segments[segment].parameter);
}

void StepCollectives::reduce_bucket(const Op& op, std::size_t index, std::vector<Wait> waits) {
  // Without shards the ranks that have the same experts have added up theirs (sum_partial).
  const Bucket& bucket = layout_.buckets[index];
  if (bucket.experts && shards(build_.program, bucket) == 1) return;
  reductions_.push_back(bucket_call(op, layout_.buckets[index], arenas_.gradients,
                                    layout_.gradients, false, std::move(waits)));
  bucket_reduction_[index] = reductions_.back();
}

std::vector<std::size_t> StepCollectives::finish() {
  if (!overlaps_grad_reduce(context_)) {
    for (std::size_t i = layout_.instances.size(); i-- > 0;) sum_partial(i);
  }
  if (const Op* op = first_reduction(); op != nullptr) {
    for (; next_bucket_ < layout_.completion.size(); ++next_bucket_) {
      const std::size_t i = layout_.completion[next_bucket_];
      if (layout_.tied_bucket[i]) continue;
      std::vector<Wait> waits = {{build_.last_compute(), {}}};
      const auto [first, end] = segments_in(layout_, layout_.buckets[i]);
      for (const auto& [segment, sum] : sums_) {
        const Wait wait{sum, {}};
        if (segment >= first && segment < end && waits.back() != wait) waits.push_back(wait);
      }
      reduce_bucket(*op, i, std::move(waits));
    }
  }
  reduce_tied();
  reduce_sharded_over_replicas();
  return reductions_;
}

/// Adds up the gradients of tied embeddings on the first and the last stage. This comes after
/// everything else is issued, so that no stage waits for it inside the pipeline.
void StepCollectives::reduce_tied() {
  std::vector<Wait> waits;
  const Op* op = first_reduction();
  for (std::size_t i = 0; i < layout_.buckets.size(); ++i) {
    if (!layout_.tied_bucket[i]) continue;
    const std::vector<Wait> ports = gradient_waits(layout_.buckets[i]);
    if (layout_.tied_sum) {
      reductions_.push_back(bucket_call(*layout_.tied_sum, layout_.buckets[i], arenas_.gradients,
                                        layout_.gradients, false, ports));
      waits = {{reductions_.back(), {}}};
    }
    if (op == nullptr) continue;
    waits.insert(waits.end(), ports.begin(), ports.end());
    reduce_bucket(*op, i, waits);
  }
}

/// With replicas beside shards, the gradients that each rank owns are summed over dp after they
/// were scattered or reduced to it.
void StepCollectives::reduce_sharded_over_replicas() {
  const Op* first = first_reduction();
  if (first == nullptr || first->kind == OpKind::all_reduce) return;
  const Op* op = arena_collective(OpKind::all_reduce);
  if (op == nullptr) return;
  const bool parts = first->kind == OpKind::reduce_scatter;
  for (const auto& [index, reduction] : bucket_reduction_) {
    const Bucket& bucket = layout_.buckets[index];
    if (bucket.experts) continue;  // their shards are those of all replicas
    if (!parts && bucket.owner != build_.program.owner) continue;
    reductions_.push_back(
        bucket_call(*op, bucket, arenas_.gradients, layout_.gradients, parts, {{reduction, {}}}));
  }
}

void StepCollectives::reduce_loss(std::size_t head) {
  const Strategy& strategy = context_.strategy;
  if (strategy.cp * strategy.dp * strategy.sharding_degree == 1) return;
  Group group{{}, false};
  if (strategy.cp > 1) group.axes.add(Axis::cp);
  if (strategy.sharding_degree > 1) group.axes.add(Axis::sharding);
  if (strategy.dp > 1) group.axes.add(Axis::dp);
  const Bytes element = bytes_of(DType::f32);
  const RoutineId routine = build_.payload_routine(
      "all_reduce.loss", OpKind::all_reduce, Phase::forward, Stream::data, TensorRole::scalar,
      DType::f32, element, CollectiveParams{group, Reduction::sum});
  build_.add_call(routine, {}, {}, {{arenas_.scalars, std::int64_t(Scalar::loss) * element, {}}},
                  {{head, {}}});
}

}  // namespace plimsoll
