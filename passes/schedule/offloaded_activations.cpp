// Adds calls that copy between the device's and the host's memory.
#include "passes/schedule/offloaded_activations.h"

namespace plimsoll {

void OffloadedActivations::begin_step(const std::vector<Action>& actions) {
  const OffloadedChoices& choices = context_.strategy.offloaded;
  offloads_.resize(layout_.instances.size());
  if (choices.percent == 0) return;
  for (const auto& [begin, end] : layout_.chunks) {
    std::int64_t layers = 0;
    for (std::size_t i = begin; i < end; ++i) {
      if (graph_.at(layout_.instances[i].block).kind != BlockKind::layer) continue;
      offloads_[i] = choices.layers == 0 || layers < choices.layers;
      ++layers;
    }
  }
  for (const Action& action : actions) {
    if (action.kind == ActionKind::forward || action.kind == ActionKind::weight_gradient) continue;
    const auto [begin, end] = layout_.chunks[std::size_t(action.chunk)];
    for (std::size_t i = end; i-- > begin;) {
      if (routines_.has(action.kind, i)) backwards_.emplace_back(i, action.micro_batch);
    }
  }
}

std::vector<Wait> OffloadedActivations::before_call(const Action& action, std::size_t instance,
                                                    KeptBuffers& kept) {
  ++calls_;
  if (action.kind == ActionKind::forward || backwards_.empty()) return {};
  const Key own(instance, action.micro_batch);
  bring(own);
  if (action.kind != ActionKind::weight_gradient && ++next_backward_ < backwards_.size())
    bring(backwards_[next_backward_]);
  std::vector<Wait> waits;
  for (const Parked& part : parked_[own]) {
    kept[part.slot] = part.device;
    build_.extend(part.host, build_.next_call());
    waits.push_back({part.copied_back, {}});
  }
  parked_.erase(own);
  return waits;
}

std::vector<Wait> OffloadedActivations::free_due() {
  std::vector<Wait> waits;
  for (; !leaving_.empty() && calls_ - leaving_.front().posted > 1; leaving_.pop_front()) {
    build_.extend(leaving_.front().device, build_.next_call());
    waits.push_back({leaving_.front().copy, {}});
  }
  return waits;
}

void OffloadedActivations::after_forward(const Action& action, std::size_t instance,
                                         const std::vector<std::size_t>& calls, KeptBuffers& kept) {
  if (!offloads_[instance]) return;
  const CutBlock& cut = cuts_.cut_of(instance);
  const Key key(instance, action.micro_batch);
  std::vector<Wait> written;
  for (const std::size_t call : calls) written.push_back({call, {}});
  for (const SlotKind slot : {SlotKind::input, SlotKind::offloaded}) {
    const bool leaves =
        slot == SlotKind::input ? cut.offloads_input : has_slot(cut.forward, SlotKind::offloaded);
    if (!leaves) continue;
    const BufferId device = *kept[slot];
    const BufferId host = build_.add_buffer("offloaded_copy", TensorRole::saved,
                                            build_.buffer(device).bytes, build_.next_call());
    build_.buffer(host).on_host = true;
    const std::size_t copied = copy(OpKind::copy_to_host, key, device, host, written);
    leaving_.push_back({device, copied, calls_});
    parked_[key].push_back({slot, host, copied});
    kept[slot].reset();
  }
}

void OffloadedActivations::finish() {
  for (const Leaving& one : leaving_) build_.extend(one.device, build_.next_call());
}

std::size_t OffloadedActivations::copy(OpKind kind, const Key& key, BufferId from, BufferId into,
                                       std::vector<Wait> waits) {
  const bool out = kind == OpKind::copy_to_host;
  const RoutineId routine = build_.copy_routine(out ? "offload_activations" : "fetch_activations",
                                                kind, out ? Phase::forward : Phase::backward,
                                                TensorRole::saved, build_.buffer(from).bytes);
  const std::size_t call = build_.add_call(routine, layout_.instances[key.first].layer, key.second,
                                           {{from, {}, {}}, {into, {}, {}}}, std::move(waits));
  build_.extend(from, call + 1);
  build_.extend(into, call + 1);
  return call;
}

/// Copies back what the host holds of an instance, unless that is posted already.
void OffloadedActivations::bring(const Key& key) {
  const auto found = parked_.find(key);
  if (found == parked_.end()) return;
  for (Parked& part : found->second) {
    if (part.device) continue;
    part.device = build_.add_buffer("offloaded", TensorRole::saved, build_.buffer(part.host).bytes,
                                    build_.next_call());
    part.copied_back = copy(OpKind::copy_to_device, key, part.host, *part.device,
                            {{build_.last_compute(), {}}, {part.copied_out, {}}});
  }
}

}  // namespace plimsoll
