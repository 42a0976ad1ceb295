#include "passes/merged_gradients.h"

#include "passes/range_routine.h"

namespace plimsoll {

MergedGradients::MergedGradients(const PassContext& context, const ArenaLayout& layout,
                                 const StageArenas& arenas, ProgramBuilder& build)
    : context_(context), layout_(layout), arenas_(arenas), build_(build) {}

Binding MergedGradients::binding(std::int64_t element) const {
  return {arenas_.micro_batch_gradients, layout_.micro_batch_gradients->offset(element), {}};
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
  const bool coalesced = context_.strategy.collective_fusion == CollectiveFusion::coalesced;
  for (const Bucket& bucket : layout_.buckets) {
    if (!coalesced) break;
    coalesce(arenas_.micro_batch_gradients, types, bucket, micro_batch);
    coalesce(arenas_.gradients, layout_.gradients, bucket, micro_batch);
  }
  for (const Bucket& bucket : layout_.buckets) {
    RangeRoutine zero("zero_gradients", OpKind::fill, FillParams{0});
    const DType type = types.at(bucket.begin);
    zero.routine.ops[0].outputs = {
        zero.range("gradients", SlotKind::gradients, bucket.elements, type)};
    build_.add_call(build_.shared_routine(zero.routine), {}, micro_batch, {binding(bucket.begin)},
                    {});
  }
}

std::size_t MergedGradients::merge(const Bucket& bucket, std::int64_t micro_batch) {
  const DType type = layout_.micro_batch_gradients->at(bucket.begin);
  Binding addend = binding(bucket.begin);
  std::optional<BufferId> wide;
  if (type != kGradientType) {
    RangeRoutine cast("cast_gradients", OpKind::cast);
    cast.routine.ops[0].inputs = {
        cast.range("gradients", SlotKind::gradients, bucket.elements, type)};
    cast.routine.ops[0].outputs = {
        cast.range("cast", SlotKind::payload, bucket.elements, kGradientType)};
    wide = build_.add_buffer("cast_gradients", TensorRole::gradient,
                             bucket.elements * bytes_of(kGradientType), build_.next_call());
    build_.add_call(build_.shared_routine(cast.routine), {}, micro_batch, {addend, {*wide, {}, {}}},
                    {});
    addend = {*wide, {}, {}};
  }
  RangeRoutine sum("add_gradients", OpKind::add);
  const TensorId total =
      sum.range("total", SlotKind::gradient_arena, bucket.elements, kGradientType);
  const TensorId more = sum.range("addend", SlotKind::gradients, bucket.elements, kGradientType);
  sum.routine.ops[0].inputs = {total, more};
  sum.routine.ops[0].outputs = {total};
  const std::size_t call = build_.add_call(
      build_.shared_routine(sum.routine), {}, micro_batch,
      {{arenas_.gradients, layout_.gradients.offset(bucket.begin), {}}, addend}, {});
  if (wide) build_.buffer(*wide).end = call + 1;
  return call;
}

std::vector<std::size_t> MergedGradients::after_backward(std::int64_t micro_batch) {
  std::vector<std::size_t> calls;
  for (const Bucket& bucket : layout_.buckets) calls.push_back(merge(bucket, micro_batch));
  return calls;
}

}  // namespace plimsoll
