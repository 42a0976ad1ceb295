#include "passes/parameter_gathers.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace plimsoll {

ParameterGathers::ParameterGathers(const Graph& graph, const PassContext& context,
                                   const ArenaLayout& layout, const StageArenas& arenas,
                                   ProgramBuilder& build)
    : graph_(graph), context_(context), layout_(layout), arenas_(arenas), build_(build) {
  if (!shards_parameters(context.strategy)) return;
  for (const Op& op : graph.ops) {
    if (!op.block && op.stream == Stream::data && op.kind == OpKind::all_gather) op_ = &op;
  }
  std::int64_t kept = 0;
  for (const Bucket& bucket : layout.buckets) {
    kept_at_.push_back(kept);
    kept += bucket.elements / context.strategy.sharding_degree;
  }
  for (const Instance& instance : layout.instances) {
    Item item;
    item.base = instance.base;
    item.elements = instance.gathered;
    items_.push_back(item);
  }
  Item tied;
  if (layout.tied_base) {
    tied.base = *layout.tied_base;
    tied.elements = layout.tied_elements;
  }
  items_.push_back(tied);
}

std::vector<std::size_t> ParameterGathers::items_of(const ParameterUse& use) const {
  std::vector<std::size_t> items;
  if (use.own) items.push_back(use.instance);
  if (use.tied) items.push_back(items_.size() - 1);
  return items;
}

Bytes ParameterGathers::bytes_of_item(const Item& item) const {
  return item.elements * bytes_of(layout_.parameter_type);
}

void ParameterGathers::begin_step(std::vector<ParameterUse> uses) {
  uses_ = std::move(uses);
  Bytes before;
  for (std::size_t k = 0; k < uses_.size(); ++k) {
    used_before_.push_back(before);
    for (std::size_t i : items_of(uses_[k])) {
      Item& item = items_[i];
      item.uses.push_back(k);
      item.spans.try_emplace(uses_[k].micro_batch, k, k).first->second.second = k;
      before += bytes_of_item(item);
    }
  }
  // In chain order, which is the order of forward.
  resident_gather_.resize(layout_.instances.size());
  for (std::size_t i = 0; i < layout_.instances.size(); ++i) {
    const Instance& instance = layout_.instances[i];
    for (std::size_t b = 0; b < layout_.buckets.size(); ++b) {
      const Bucket& bucket = layout_.buckets[b];
      const bool resident = bucket.begin >= instance.base + instance.gathered &&
                            bucket.begin < instance.base + instance.elements;
      if (!resident) continue;
      const std::int64_t base = instance.base + instance.gathered - instance.resident_base;
      resident_gather_[i] = gather(b, Phase::forward, {}, arenas_.resident, base);
    }
  }
}

/// Gathers one bucket to where it lies in a buffer that starts at element `base` of the arenas.
std::size_t ParameterGathers::gather(std::size_t bucket, Phase phase,
                                     std::optional<std::int64_t> micro_batch, BufferId into,
                                     std::int64_t base) {
  const Bucket& range = layout_.buckets[bucket];
  const DType type = layout_.parameter_type;
  const std::int64_t kept = range.elements / context_.strategy.sharding_degree;
  const Group& group = std::get<CollectiveParams>(op_->params).group;
  Routine routine;
  routine.name = fmt::format("all_gather.{}.{}", to_text(group), to_text(phase));
  routine.phase = phase;
  const auto add = [&](const char* name, SlotKind slot, TensorRole role, std::int64_t elements) {
    Tensor tensor;
    tensor.name = name;
    tensor.role = role;
    tensor.dtype = type;
    tensor.shape = {elements};
    routine.slots.push_back({slot, bytes_of(tensor)});
    routine.places.push_back({routine.tensors.size(), {}});
    routine.tensors.push_back(std::move(tensor));
  };
  add("kept", SlotKind::parameter_arena, TensorRole::parameter, kept);
  add("gathered", SlotKind::payload, TensorRole::communication, range.elements);
  Op op = *op_;
  op.phase = phase;
  op.inputs = {TensorId(0)};
  op.outputs = {TensorId(1)};
  routine.ops = {op};
  const Bytes element = bytes_of(type);
  return build_.add_call(build_.shared_routine(routine), {}, micro_batch,
                         {{arenas_.parameters, kept_at_[bucket] * element, {}},
                          {into, (range.begin - base) * element, {}}},
                         {{build_.last_compute(), {}}});
}

void ParameterGathers::gather_item(Item& item, const ParameterUse& use) {
  item.buffer = build_.add_buffer("gathered_parameters", TensorRole::communication,
                                  bytes_of_item(item), build_.next_call());
  item.gathers.clear();
  for (std::size_t b = 0; b < layout_.buckets.size(); ++b) {
    const Bucket& bucket = layout_.buckets[b];
    if (bucket.begin < item.base || bucket.begin >= item.base + item.elements) continue;
    item.gathers.push_back(gather(b, use.phase, use.micro_batch, item.buffer, item.base));
  }
  item.live = true;
  item.used = false;
  live_ += bytes_of_item(item);
}

/// Frees what is only kept for later, the latest reuse first, until `bytes` more fit.
void ParameterGathers::make_room(Bytes bytes) {
  const Bytes limit = context_.strategy.max_live_bytes;
  while (limit > Bytes(0) && live_ + bytes > limit) {
    Item* latest = nullptr;
    for (Item& item : items_) {
      if (!item.live || !item.used || item.uses[item.next] == now_) continue;
      if (latest == nullptr || item.uses[item.next] > latest->uses[latest->next]) latest = &item;
    }
    if (latest == nullptr) return;
    release(*latest);
  }
}

void ParameterGathers::release(Item& item) {
  build_.extend(item.buffer, item.last_use + 1);
  item.live = false;
  live_ -= bytes_of_item(item);
}

std::vector<Wait> ParameterGathers::before_use() {
  const Bytes limit = context_.strategy.max_live_bytes;
  const std::size_t window = std::size_t(context_.strategy.prefetch_depth);
  std::vector<Wait> waits;
  bool ahead = true;
  for (std::size_t k = now_; ahead && k < uses_.size() && k <= now_ + window; ++k) {
    for (std::size_t i : items_of(uses_[k])) {
      Item& item = items_[i];
      if (!item.live) {
        if (k == now_) make_room(bytes_of_item(item));
        const bool fits = limit == Bytes(0) || live_ + bytes_of_item(item) <= limit;
        if (k > now_ && !fits) {
          ahead = false;
          break;
        }
        gather_item(item, uses_[k]);
      }
      // Later uses come after the first one, on the same stream.
      if (k > now_ || item.used) continue;
      for (std::size_t call : item.gathers) waits.push_back({call, {}});
    }
  }
  return waits;
}

std::vector<Wait> ParameterGathers::resident_waits(std::size_t instance, bool tied) const {
  std::vector<Wait> waits;
  const auto add = [&](std::size_t i) {
    if (resident_gather_[i]) waits.push_back({*resident_gather_[i], {}});
  };
  add(instance);
  if (tied && layout_.tied_resident) add(*layout_.tied_instance);
  return waits;
}

Binding ParameterGathers::binding(SlotKind kind, std::size_t instance) const {
  const Bytes element = bytes_of(layout_.parameter_type);
  if (kind == SlotKind::resident_parameters) {
    return {arenas_.resident, layout_.instances[instance].resident_base * element, {}};
  }
  if (kind == SlotKind::tied_parameters && layout_.tied_resident) {
    return {arenas_.resident, *layout_.tied_resident * element, {}};
  }
  const bool tied = kind == SlotKind::tied_parameters;
  return {items_[tied ? items_.size() - 1 : instance].buffer, {}, {}};
}

/// Bytes of gathered parameters that are read between two uses.
Bytes ParameterGathers::bytes_between(std::size_t first, std::size_t second) const {
  if (second == first + 1) return Bytes(0);
  return used_before_[second] - used_before_[first + 1];
}

bool ParameterGathers::keeps(const Item& item) const {
  if (item.next == item.uses.size()) return false;
  const Strategy& strategy = context_.strategy;
  const std::size_t reuse = item.uses[item.next];
  if (reuse <= now_ + 1 + std::size_t(strategy.prefetch_depth)) return true;
  if (strategy.keep_gathered && item.between > 0) return true;
  return strategy.reuse_distance_bytes > Bytes(0) &&
         bytes_between(now_, reuse) <= strategy.reuse_distance_bytes;
}

void ParameterGathers::after_use(std::size_t call) {
  const ParameterUse& use = uses_[now_];
  for (std::size_t i : items_of(use)) {
    Item& item = items_[i];
    item.last_use = call;
    const auto [first, last] = item.spans.at(use.micro_batch);
    if (now_ == first) ++item.between;
    if (now_ == last) --item.between;
    item.used = true;
    ++item.next;
  }
  for (std::size_t i : items_of(use)) {
    if (!keeps(items_[i])) release(items_[i]);
  }
  ++now_;
}

}  // namespace plimsoll
