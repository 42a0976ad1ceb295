// Buffers and calls of selection biases are added to a stage here.
#include "passes/schedule/selection_biases.h"

#include "passes/cut/range_routine.h"

namespace plimsoll {

void SelectionBiases::add_instance(const Routine& forward) {
  offsets_.push_back(bytes_);
  for (const Slot& slot : forward.slots) {
    if (slot.kind == SlotKind::selection_bias) bytes_ += slot.bytes;
    if (slot.kind == SlotKind::layer_choices) of_layers_ = slot.bytes;
  }
}

void SelectionBiases::add_buffers() {
  if (of_layers_ > Bytes(0))
    layer_choices_ = build_.add_persistent("layer_choices", TensorRole::scalar,
                                           build_.program.micro_batches * of_layers_);
  if (bytes_ == Bytes(0)) return;
  biases_ = build_.add_persistent("selection_biases", TensorRole::parameter, bytes_);
  loads_ = build_.add_persistent("expert_loads", TensorRole::gradient, bytes_);
}

void SelectionBiases::begin_step() {
  if (of_layers_ == Bytes(0)) return;
  RangeRoutine zero("zero_layer_choices", OpKind::fill, FillParams{0});
  zero.routine.phase = zero.routine.ops[0].phase = Phase::forward;
  const Bytes all = build_.program.micro_batches * of_layers_;
  zero.routine.ops[0].outputs = {zero.range("layer_choices", SlotKind::layer_choices,
                                            all.count() / bytes_of(DType::f32).count(),
                                            DType::f32)};
  build_.add_call(build_.add_routine(zero.routine), {}, {}, {{layer_choices_, {}, {}}}, {});
}

Binding SelectionBiases::binding(SlotKind kind, std::size_t instance,
                                 std::int64_t micro_batch) const {
  if (kind == SlotKind::layer_choices) return {layer_choices_, micro_batch * of_layers_, {}};
  return {kind == SlotKind::expert_load ? loads_ : biases_, offsets_.at(instance), {}};
}

/// Returns the ranks that have other tokens of the global batch.
Group SelectionBiases::group() const {
  Group group;
  for (const Tensor& tensor : graph_.tensors) {
    if (tensor.role == TensorRole::scalar && tensor.block && tensor.gradient_group)
      group = *tensor.gradient_group;
  }
  const Strategy& strategy = context_.strategy;
  if (strategy.cp > 1) group.axes.add(Axis::cp);
  if (strategy.sharding_degree > 1) group.axes.add(Axis::sharding);
  if (strategy.dp > 1) group.axes.add(Axis::dp);
  return group;
}

void SelectionBiases::end_step() {
  if (bytes_ == Bytes(0)) return;
  std::vector<Wait> waits;
  if (const Group ranks = group(); !ranks.axes.empty()) {
    const RoutineId sums = build_.payload_routine(
        "all_reduce.expert_load", OpKind::all_reduce, Phase::optimizer, Stream::data,
        TensorRole::gradient, DType::f32, bytes_, CollectiveParams{ranks});
    waits = {
        {build_.add_call(sums, {}, {}, {{loads_, {}, {}}}, {{build_.last_compute(), {}}}), {}}};
  }
  const Job& job = context_.job;
  const double choices = double(job.global_batch * job.sequence * job.experts->chosen);
  RangeRoutine move("move_selection_bias", OpKind::move_selection_bias,
                    SelectionParams{.step = job.experts->selection_bias,
                                    .even = choices / double(job.experts->count)});
  move.routine.phase = move.routine.ops[0].phase = Phase::optimizer;
  const std::int64_t experts = bytes_.count() / bytes_of(DType::f32).count();
  const TensorId load = move.range("load", SlotKind::expert_load, experts, DType::f32),
                 bias = move.range("bias", SlotKind::selection_bias, experts, DType::f32);
  move.routine.ops[0].inputs = move.routine.ops[0].outputs = {load, bias};
  build_.add_call(build_.add_routine(move.routine), {}, {}, {{loads_, {}, {}}, {biases_, {}, {}}},
                  std::move(waits));
}

}  // namespace plimsoll
