// Calls gather and free the parameters of sharding stage 3.
#include "passes/schedule/parameter_gathers.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "base/error.h"
#include "passes/owners/broadcast_parameters.h"

namespace plimsoll {

namespace {

bool by_segments(const PassContext& context) {
  return context.strategy.gathers.unit == ParameterGather::segment;
}

}  // namespace

ParameterGathers::ParameterGathers(StageContext& stage) : StageCalls(stage) {
  if (!shards_parameters(context_.strategy)) return;
  for (const Op& op : graph_.ops) {
    if (op.stream == Stream::data && op.phase == Phase::forward) op_ = &op;
  }
  add_groups();
  add_frozen();
}

void ParameterGathers::add_groups() {
  const Bytes element = bytes_of(layout_.parameter_type());
  const ResidentParameters stay = resident_parameters(context_.strategy);
  std::int64_t kept = 0;
  for (std::size_t g = 0; g < layout_.gathers.size(); ++g) {
    const Bucket& bucket = layout_.gathers[g];
    const std::size_t first = segments_in(layout_, bucket).first;
    Group group;
    const std::int64_t at =
        bucket.owner ? bucket.begin - owner_begin(layout_, *bucket.owner) : kept;
    group.kept_at = at * element;
    kept += bucket.elements / shards_of(context_.strategy, bucket.experts);
    group.instance = layout_.producer[first];
    group.copy = !layout_.entry[first];
    group.whole = stay.all || (bucket.experts && stay.experts);
    // Ranges of elements of a copy are gathered for every use.
    group.resident = !group.whole && (bucket.owner || !group.copy) &&
                     layout_.segments[first].elements <= stay.limit;
    groups_.push_back(group);
    if (group.resident) resident_.push_back(g);
  }
  if (layout_.tied_base) tied_ = bucket_at(layout_.gathers, *layout_.tied_base);
}

void ParameterGathers::add_frozen() {
  Bytes kept;
  for (const FrozenRange& range : layout_.frozen_ranges) {
    Group group;
    group.instance = range.instance;
    group.copy = range.copy;
    group.frozen = true;
    group.kept_at = kept;
    kept += Bytes(range.bytes.count() / shards_of(context_.strategy, false));
    if (range.tied) tied_ = groups_.size();
    groups_.push_back(group);
  }
}

bool ParameterGathers::is_own(std::size_t group) const {
  if (groups_[group].frozen) return false;
  const auto& owner = layout_.gathers[group].owner;
  return owner && owner == build_.program.owner;
}

/// Elements of frozen ranges are bytes.
std::int64_t ParameterGathers::elements_of(std::size_t group) const {
  const std::size_t others = layout_.gathers.size();
  return groups_[group].frozen ? layout_.frozen_ranges[group - others].bytes.count()
                               : layout_.gathers[group].elements;
}

Bytes ParameterGathers::bytes_of_group(std::size_t group) const {
  const DType type = groups_[group].frozen ? DType::u8 : layout_.parameter_type();
  return elements_of(group) * bytes_of(type);
}

/// Returns the bytes before a group in memory that holds these groups without what this rank owns.
/// It returns nothing for a group that the rank owns.
std::optional<Bytes> ParameterGathers::place_in(const std::vector<std::size_t>& groups,
                                                std::size_t group) const {
  if (is_own(group)) return std::nullopt;
  Bytes before;
  for (const std::size_t g : groups) {
    if (g == group) return before;
    if (!is_own(g)) before += bytes_of_group(g);
  }
  INVARIANT(false, "parameters that are not gathered are used");
}

std::int64_t ParameterGathers::resident_elements() const {
  std::int64_t total = 0;
  for (const std::size_t g : resident_) {
    if (!is_own(g)) total += layout_.gathers[g].elements;
  }
  return total;
}

// ---- uses of parameters ----

bool ParameterGathers::is_gathered(const Slot& slot, std::size_t instance) const {
  if (context_.strategy.gathers.unit == ParameterGather::use) return false;
  if (slot.kind == SlotKind::tied_parameters) return !tied_stays();
  if (slot.kind == SlotKind::frozen_parameters) return true;
  if (slot.kind != SlotKind::parameters) return false;
  if (!slot.entry) return true;
  return !groups_[bucket_at(layout_.gathers, layout_.entries[instance][*slot.entry])].resident;
}

void ParameterGathers::add_item(std::vector<std::size_t> groups) {
  Item item;
  for (const std::size_t g : groups) item.bytes += bytes_of_group(g);
  item.groups = std::move(groups);
  items_.push_back(std::move(item));
}

std::vector<std::size_t> ParameterGathers::groups_of(const ParameterUse& use) const {
  std::set<std::size_t> groups;
  for (const std::size_t entry : use.entries) {
    groups.insert(bucket_at(layout_.gathers, layout_.entries[use.instance][entry]));
  }
  if (use.tied) groups.insert(*tied_);
  return {groups.begin(), groups.end()};
}

/// Every call is a use, of its instance's bundle.
void ParameterGathers::add_uses(const std::vector<ParameterUse>& calls) {
  std::vector<std::vector<std::size_t>> bundles(layout_.instances.size());
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (!groups_[g].copy && !groups_[g].resident && !groups_[g].whole)
      bundles[groups_[g].instance].push_back(g);
  }
  for (std::vector<std::size_t>& bundle : bundles) add_item(std::move(bundle));
  add_item(tied_ ? std::vector{*tied_} : std::vector<std::size_t>{});
  for (const ParameterUse& call : calls) {
    Use use{{}, call.phase, call.micro_batch};
    if (call.own) use.items.push_back(call.instance);
    if (call.tied) use.items.push_back(items_.size() - 1);
    uses_.push_back(std::move(use));
  }
}

/// A use is a segment: calls of one micro-batch that follow each other.
void ParameterGathers::add_segments(const std::vector<ParameterUse>& calls) {
  for (std::size_t first = 0, end = 0; first < calls.size(); first = end) {
    std::vector<UseBroadcast> broadcasts;
    for (; end < calls.size() && calls[end].micro_batch == calls[first].micro_batch; ++end) {
      for (const std::size_t g : groups_of(calls[end])) broadcasts.push_back({g, end, end});
    }
    const auto size = [&](std::size_t group) { return bytes_of_group(group); };
    const auto segments =
        broadcasts_by_segment(broadcasts, size, context_.strategy.gathers.segment_broadcast_bytes);
    for (const std::vector<UseBroadcast>& segment : segments) {
      std::size_t begin = end, last = 0;
      std::set<std::size_t> groups;
      for (const UseBroadcast& one : segment) {
        groups.insert(one.value);
        begin = std::min(begin, one.first);
        last = std::max(last, one.last);
      }
      uses_.push_back(
          {{items_.size()}, calls[begin].phase, calls[begin].micro_batch, last + 1 - begin});
      add_item({groups.begin(), groups.end()});
    }
  }
}

void ParameterGathers::begin_step(const std::vector<ParameterUse>& calls) {
  by_segments(context_) ? add_segments(calls) : add_uses(calls);
  Bytes before;
  for (std::size_t k = 0; k < uses_.size(); ++k) {
    used_before_.push_back(before);
    for (const std::size_t i : uses_[k].items) {
      Item& item = items_[i];
      item.uses.push_back(k);
      item.spans.try_emplace(uses_[k].micro_batch, k, k).first->second.second = k;
      before += item.bytes;
    }
  }
  // In chain order, which is the order of forward.
  resident_gathers_.resize(layout_.instances.size());
  resident_copies_.resize(layout_.instances.size());
  for (std::size_t i = 0; i < layout_.instances.size(); ++i) {
    for (const std::size_t g : resident_) {
      if (groups_[g].instance != i) continue;
      const Binding into{arenas_.resident, place_in(resident_, g).value_or(Bytes()), {}};
      resident_gathers_[i].push_back(gather(g, Use{}, into, {}, resident_copies_[i]));
    }
  }
}

// ---- gathers ----

std::size_t ParameterGathers::gather(std::size_t group, const Use& use, Binding into,
                                     std::optional<std::int64_t> micro_batch,
                                     std::vector<BufferId>& copies) {
  const bool owned = !groups_[group].frozen && layout_.gathers[group].owner;
  return owned ? broadcast(group, use, into, micro_batch)
               : gather_parts(group, use, into, micro_batch, copies);
}

/// Copies bytes of the host's memory to the device.
std::size_t ParameterGathers::copy_part(const Use& use, Binding from, Bytes bytes, Binding into,
                                        std::optional<std::int64_t> micro_batch) {
  const RoutineId copy =
      build_.copy_routine(fmt::format("fetch_parameters.{}", to_text(use.phase)),
                          OpKind::copy_to_device, use.phase, TensorRole::communication, bytes);
  return build_.add_call(copy, {}, micro_batch, {from, into}, {{build_.last_compute(), {}}});
}

/// Every rank's part of a group.
std::size_t ParameterGathers::gather_parts(std::size_t index, const Use& use, Binding into,
                                           std::optional<std::int64_t> micro_batch,
                                           std::vector<BufferId>& copies) {
  const Group& group = groups_[index];
  const bool experts = !group.frozen && layout_.gathers[index].experts;
  const DType type = group.frozen ? DType::u8 : layout_.parameter_type();
  const std::int64_t whole = elements_of(index),
                     kept = whole / shards_of(context_.strategy, experts);
  Binding from{group.frozen ? arenas_.frozen : arenas_.parameters, group.kept_at, {}};
  const bool on_host = build_.buffer(from.buffer).on_host;
  const Bytes part = kept * bytes_of(type);
  if (on_host && kept == whole) return copy_part(use, from, part, into, micro_batch);
  std::vector<Wait> waits = {{build_.last_compute(), {}}};
  if (on_host) {
    const BufferId copy = build_.add_buffer("fetched_parameters", TensorRole::communication, part,
                                            build_.next_call());
    waits.push_back({copy_part(use, from, part, {copy, {}, {}}, micro_batch), {}});
    from = {copy, {}, {}};
    copies.push_back(copy);
  }
  CollectiveParams params = std::get<CollectiveParams>(op_->params);
  if (experts) params.group = {{Axis::edp}};
  Routine routine;
  routine.name = fmt::format("all_gather.{}{}.{}", on_host ? "fetched." : "", to_text(params.group),
                             to_text(use.phase));
  routine.phase = use.phase;
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
  add("kept",
      on_host        ? SlotKind::payload
      : group.frozen ? SlotKind::frozen_parameters
                     : SlotKind::parameter_arena,
      group.frozen ? TensorRole::frozen_parameter : TensorRole::parameter, kept);
  add("gathered", SlotKind::payload, TensorRole::communication, whole);
  Op op = *op_;
  op.phase = use.phase;
  op.inputs = {TensorId(0)};
  op.outputs = {TensorId(1)};
  op.params = params;
  routine.ops = {op};
  return build_.add_call(build_.shared_routine(routine), {}, micro_batch, {from, into},
                         std::move(waits));
}

/// From its owner, in place there.
std::size_t ParameterGathers::broadcast(std::size_t group, const Use& use, Binding into,
                                        std::optional<std::int64_t> micro_batch) {
  const Bucket& range = layout_.gathers[group];
  const DType type = layout_.parameter_type();
  const Bytes bytes = bytes_of_group(group);
  CollectiveParams params = std::get<CollectiveParams>(op_->params);
  params.root = *range.owner;
  const bool own = is_own(group);
  const TensorRole role = own ? TensorRole::parameter : TensorRole::communication;
  if (own) into = {arenas_.parameters, groups_[group].kept_at, {}};
  if (own && is_coalesced(layout_, range)) {
    const RoutineId copy = build_.payload_routine(
        fmt::format("coalesce.parameter.{}", to_text(use.phase)), OpKind::coalesce, use.phase,
        Stream::compute, role, type, bytes, FlatParams{});
    std::vector<Wait> waits;  // it may still be on its way for an earlier use
    if (const auto last = broadcast_.find(group); last != broadcast_.end()) {
      waits.push_back({last->second, {}});
    }
    build_.add_call(copy, {}, micro_batch, {into}, std::move(waits));
  }
  const RoutineId routine = build_.payload_routine(
      fmt::format("broadcast.{}.{}.root{}", to_text(params.group), to_text(use.phase), params.root),
      OpKind::broadcast, use.phase, op_->stream, role, type, bytes, params);
  return broadcast_[group] =
             build_.add_call(routine, {}, micro_batch, {into}, {{build_.last_compute(), {}}});
}

void ParameterGathers::gather_item(Item& item, const Use& use) {
  Bytes received;
  for (const std::size_t g : item.groups) {
    if (!is_own(g)) received += bytes_of_group(g);
  }
  item.buffer.reset();
  if (received > Bytes(0)) {
    item.buffer = build_.add_buffer("gathered_parameters", TensorRole::communication, received,
                                    build_.next_call());
  }
  item.gathers.clear();
  for (const std::size_t g : item.groups) {
    Binding into;
    if (const auto at = place_in(item.groups, g)) {
      into = {*item.buffer, *at, {}};
    }
    item.gathers.push_back(gather(g, use, into, use.micro_batch, item.copies));
  }
  item.live = true;
  item.used = false;
  live_ += item.bytes;
}

/// Frameworks that gather into a flat tensor copy it to a tensor for each parameter, between the
/// kernels that compute (ShardMemory::flat_copies).
void ParameterGathers::copy_out(const Item& item, const Use& use) {
  if (context_.framework.memory.shards != ShardMemory::flat_copies || !item.buffer) return;
  std::vector<Wait> waits;
  for (std::size_t call : item.gathers) waits.push_back({call, {}});
  const DType type = layout_.parameter_type();
  const RoutineId copy = build_.payload_routine(
      fmt::format("copy_out.{}", to_text(use.phase)), OpKind::coalesce, use.phase, Stream::compute,
      TensorRole::communication, type, build_.buffer(*item.buffer).bytes, FlatParams{});
  build_.add_call(copy, {}, use.micro_batch, {{*item.buffer, {}, {}}}, std::move(waits));
}

/// Frees parameters that are only kept for later, the latest reuse first, until `bytes` more fit.
void ParameterGathers::make_room(Bytes bytes) {
  const Bytes limit = context_.strategy.gathers.max_live_bytes;
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
  if (item.buffer) build_.extend(*item.buffer, item.last_use + 1);
  item.live = false;
  live_ -= item.bytes;
}

std::vector<Wait> ParameterGathers::before_use() {
  if (calls_done_ > 0) return {};
  const Bytes limit = context_.strategy.gathers.max_live_bytes;
  const std::size_t window = std::size_t(context_.strategy.gathers.prefetch_depth);
  std::vector<Wait> waits;
  bool ahead = true;
  for (std::size_t k = now_; ahead && k < uses_.size() && k <= now_ + window; ++k) {
    for (const std::size_t i : uses_[k].items) {
      Item& item = items_[i];
      if (!item.live) {
        if (k == now_) make_room(item.bytes);
        const bool fits = limit == Bytes(0) || live_ + item.bytes <= limit;
        if (k > now_ && !fits) {
          ahead = false;
          break;
        }
        gather_item(item, uses_[k]);
      }
      // Later uses come after the first one, on the same stream.
      if (k > now_ || item.used) continue;
      for (std::size_t call : item.gathers) waits.push_back({call, {}});
      std::ranges::move(std::exchange(item.copies, {}), std::back_inserter(read_copies_));
      copy_out(item, uses_[k]);
    }
  }
  return waits;
}

std::vector<Wait> ParameterGathers::resident_waits(std::size_t instance, bool tied) {
  std::vector<Wait> waits;
  const auto add = [&](std::size_t i) {
    for (const std::size_t call : resident_gathers_[i]) waits.push_back({call, {}});
  };
  add(instance);
  std::ranges::move(std::exchange(resident_copies_[instance], {}),
                    std::back_inserter(read_copies_));
  if (tied && tied_stays()) add(groups_[*tied_].instance);
  return waits;
}

// ---- bindings ----

/// Owner mode: one tensor.
Binding ParameterGathers::owned_binding(std::int64_t element, std::size_t item) const {
  const std::size_t g = bucket_at(layout_.gathers, element);
  const Bytes within = (element - layout_.gathers[g].begin) * bytes_of(layout_.parameter_type());
  const auto at = [&](BufferId buffer, Bytes begin) -> Binding {
    return {buffer, begin + within, {}};
  };
  if (is_own(g)) return at(arenas_.parameters, groups_[g].kept_at);
  if (groups_[g].resident) return at(arenas_.resident, *place_in(resident_, g));
  return at(*items_[item].buffer, *place_in(items_[item].groups, g));
}

Binding ParameterGathers::binding(const Slot& slot, std::size_t instance) const {
  const bool tied = slot.kind == SlotKind::tied_parameters;
  const bool here = by_segments(context_) && now_ < uses_.size();
  const std::size_t item = here ? uses_[now_].items[0] : tied ? items_.size() - 1 : instance;
  if (tied && build_.program.owner) return owned_binding(*layout_.tied_base, item);
  if (slot.entry) return owned_binding(layout_.entries[instance][*slot.entry], item);
  const auto resident = [&](std::size_t group) -> Binding {
    if (groups_[group].whole) return {arenas_.parameters, groups_[group].kept_at, {}};
    return {arenas_.resident, *place_in(resident_, group), {}};
  };
  if (tied && tied_stays()) return resident(*tied_);
  if (slot.kind == SlotKind::frozen_parameters) {
    const auto first =
        std::ranges::find_if(items_[item].groups, [&](std::size_t g) { return groups_[g].frozen; });
    return {*items_[item].buffer, *place_in(items_[item].groups, *first), {}};
  }
  if (slot.kind != SlotKind::resident_parameters) return {*items_[item].buffer, {}, {}};
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].instance != instance) continue;
    if (groups_[g].whole || groups_[g].resident) return resident(g);
  }
  INVARIANT(false, "no parameters of an instance stay whole");
}

// ---- kept parameters ----

/// Bytes of gathered parameters that are read between two uses.
Bytes ParameterGathers::bytes_between(std::size_t first, std::size_t second) const {
  if (second == first + 1) return Bytes(0);
  return used_before_[second] - used_before_[first + 1];
}

bool ParameterGathers::keeps(const Item& item) const {
  if (item.next == item.uses.size()) return false;
  const Strategy& strategy = context_.strategy;
  const std::size_t reuse = item.uses[item.next];
  if (reuse <= now_ + 1 + std::size_t(strategy.gathers.prefetch_depth)) return true;
  if (strategy.gathers.keep && item.between > 0) return true;
  return strategy.gathers.reuse_distance_bytes > Bytes(0) &&
         bytes_between(now_, reuse) <= strategy.gathers.reuse_distance_bytes;
}

void ParameterGathers::after_use(std::size_t call) {
  const Use& use = uses_[now_];
  for (const std::size_t i : use.items) items_[i].last_use = call;
  for (const BufferId copy : std::exchange(read_copies_, {})) build_.extend(copy, call);
  if (++calls_done_ < use.calls) return;
  calls_done_ = 0;
  for (const std::size_t i : use.items) {
    Item& item = items_[i];
    const auto [first, last] = item.spans.at(use.micro_batch);
    if (now_ == first) ++item.between;
    if (now_ == last) --item.between;
    item.used = true;
    ++item.next;
  }
  for (const std::size_t i : use.items) {
    if (!keeps(items_[i])) release(items_[i]);
  }
  ++now_;
}

}  // namespace plimsoll
