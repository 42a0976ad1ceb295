// Calls zero, cast and add the arena of a micro-batch's gradients.
#include "passes/schedule/merged_gradients.h"

#include "passes/cut/range_routine.h"

namespace plimsoll {

namespace {

/// A gap between two ranges is zeroed with them up to this size. That takes a GPU (at 1 TB/s) no
/// longer than the launch of one more op.
constexpr Bytes kZeroedBetween = Bytes(std::int64_t{4} << 20);

/// Parameters whose gradient a product overwrites in every block that writes it.
std::set<TensorId> overwritten(const Graph& graph) {
  std::set<std::pair<BlockId, TensorId>> begun;
  std::set<TensorId> by_products, added_to;
  for (const Op& op : graph.ops) {
    if (!op.block || op.phase == Phase::optimizer) continue;
    for (const TensorId id : op.outputs) {
      const auto& parameter = graph.at(id).gradient_of;
      if (!parameter || !begun.insert({*op.block, id}).second) continue;
      const auto* product = std::get_if<MatmulParams>(&op.params);
      (product && !product->accumulate ? by_products : added_to).insert(*parameter);
    }
  }
  for (const TensorId parameter : added_to) by_products.erase(parameter);
  return by_products;
}

}  // namespace

MergedGradients::MergedGradients(StageContext& stage, StepCollectives& collectives)
    : GradientSink(stage), collectives_(collectives), overwritten_(overwritten(stage.graph)) {}

Binding MergedGradients::at(std::int64_t element) const {
  return {arenas_.micro_batch_gradients, layout_.micro_batch_gradients->offset(element), {}};
}

Binding MergedGradients::binding(const Slot& slot, std::size_t instance,
                                 std::int64_t /*micro_batch*/) const {
  return at(element_of(layout_, slot, instance));
}

void MergedGradients::coalesce(BufferId arena, const ElementTypes& types, const Bucket& bucket,
                               std::int64_t micro_batch) {
  const DType type = types.at(bucket.begin);
  RangeRoutine copy("coalesce.gradient", OpKind::coalesce, FlatParams{});
  const TensorId range = copy.range("gradients", SlotKind::gradients, bucket.elements, type);
  copy.routine.ops[0].inputs = copy.routine.ops[0].outputs = {range};
  build_.add_call(build_.shared_routine(copy.routine), {}, micro_batch,
                  {{arena, types.offset(bucket.begin), {}}}, {});
}

void MergedGradients::before_backward(std::int64_t micro_batch) {
  const ElementTypes& types = *layout_.micro_batch_gradients;
  for (const Bucket& bucket : layout_.buckets) {
    if (!layout_.coalesces) break;
    coalesce(arenas_.micro_batch_gradients, types, bucket, micro_batch);
    coalesce(arenas_.gradients, layout_.gradients, bucket, micro_batch);
  }
  for (const Bucket& bucket : layout_.buckets) {
    for (const auto& [begin, end] : zeroed(bucket)) {
      RangeRoutine zero("zero_gradients", OpKind::fill, FillParams{0});
      zero.routine.ops[0].outputs = {
          zero.range("gradients", SlotKind::gradients, end - begin, types.at(begin))};
      build_.add_call(build_.shared_routine(zero.routine), {}, micro_batch, {at(begin)}, {});
    }
  }
}

/// Returns the first element, and the one after the last, of each zeroed range of a bucket:
/// gradients to which ops add, and all padding, which is merged as well.
std::vector<std::pair<std::int64_t, std::int64_t>> MergedGradients::zeroed(
    const Bucket& bucket) const {
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  const auto [first, last] = segments_in(layout_, bucket);
  for (std::size_t i = first; i < last; ++i) {
    const Segment& segment = layout_.segments[i];
    const bool whole = !overwritten_.contains(layout_.parameter[i]);
    const std::int64_t begin = segment.offset + (whole ? 0 : segment.elements);
    const std::int64_t end =
        i + 1 < last ? layout_.segments[i + 1].offset : bucket.begin + bucket.elements;
    if (begin == end) continue;
    const auto between = [&] {
      const std::int64_t before = ranges.back().second;
      return layout_.micro_batch_gradients->bytes(before, begin - before);
    };
    if (ranges.empty() || between() > kZeroedBetween) {
      ranges.emplace_back(begin, end);
    } else {
      ranges.back().second = end;
    }
  }
  return ranges;
}

std::size_t MergedGradients::merge(const Bucket& bucket, std::int64_t micro_batch) {
  const DType type = layout_.micro_batch_gradients->at(bucket.begin);
  const DType summed = layout_.gradient_type();
  Binding addend = at(bucket.begin);
  std::optional<BufferId> cast_to;
  if (type != summed) {
    RangeRoutine cast("cast_gradients", OpKind::cast);
    cast.routine.ops[0].inputs = {
        cast.range("gradients", SlotKind::gradients, bucket.elements, type)};
    cast.routine.ops[0].outputs = {cast.range("cast", SlotKind::payload, bucket.elements, summed)};
    cast_to = build_.add_buffer("cast_gradients", TensorRole::gradient,
                                bucket.elements * bytes_of(summed), build_.next_call());
    build_.add_call(build_.shared_routine(cast.routine), {}, micro_batch,
                    {addend, {*cast_to, {}, {}}}, {});
    addend = {*cast_to, {}, {}};
  }
  RangeRoutine sum("add_gradients", OpKind::add);
  const TensorId total = sum.range("total", SlotKind::gradient_arena, bucket.elements, summed);
  const TensorId more = sum.range("addend", SlotKind::gradients, bucket.elements, summed);
  sum.routine.ops[0].inputs = {total, more};
  sum.routine.ops[0].outputs = {total};
  const std::size_t call = build_.add_call(
      build_.shared_routine(sum.routine), {}, micro_batch,
      {{arenas_.gradients, layout_.gradients.offset(bucket.begin), {}}, addend}, {});
  if (cast_to) build_.buffer(*cast_to).end = call + 1;
  return call;
}

bool MergedGradients::complete(std::size_t bucket) const {
  const auto [first, end] = segments_in(layout_, layout_.buckets[bucket]);
  for (std::size_t i = first; i < end; ++i) {
    if (!written_.contains(layout_.producer[i])) return false;
  }
  return !layout_.tied_bucket[bucket];
}

void MergedGradients::wrote(const WrittenGradients& written) {
  const bool reduces =
      context_.strategy.dp > 1 || context_.strategy.sharding_degree > 1 || context_.strategy.cp > 1;
  if (!written.last || !reduces || !overlaps_grad_reduce(context_)) return;
  written_.insert(written.instance);
  std::set<std::size_t> completed;
  for (const std::size_t bucket : layout_.completion) {
    if (merged_.contains(bucket)) continue;
    if (!complete(bucket)) break;
    completed.insert(bucket);
  }
  merged_.insert(completed.begin(), completed.end());
  std::vector<std::size_t> calls;
  for (const std::size_t bucket : completed)
    calls.push_back(merge(layout_.buckets[bucket], written.micro_batch));
  for (auto call = calls.begin(); const std::size_t bucket : completed)
    collectives_.merged_gradients(bucket, *call++);
}

void MergedGradients::after_backward(std::int64_t micro_batch, bool last) {
  std::vector<std::pair<std::size_t, std::size_t>> calls;  // by bucket
  for (std::size_t bucket = 0; bucket < layout_.buckets.size(); ++bucket) {
    if (merged_.contains(bucket)) continue;
    calls.emplace_back(bucket, merge(layout_.buckets[bucket], micro_batch));
  }
  for (const auto& [bucket, call] : calls) {
    if (last) collectives_.merged_gradients(bucket, call);
  }
}

}  // namespace plimsoll
