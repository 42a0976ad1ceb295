// Segments and buckets of a stage's arenas are laid out.
#include "passes/layout/arena_layout.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"
#include "passes/cut/program_builder.h"
#include "passes/graph/attribute_groups.h"
#include "passes/graph/step_ops.h"
#include "passes/owners/owner_mode.h"
#include "passes/owners/ownership.h"

namespace plimsoll {

namespace {

bool reads_tied(const CutBlock& cut) {
  const auto is_tied = [](const Slot& slot) { return slot.kind == SlotKind::tied_parameters; };
  return std::ranges::any_of(cut.forward.slots, is_tied) ||
         std::ranges::any_of(cut.backward.slots, is_tied);
}

/// Returns the block, or its variant that recomputes, whichever the layer runs.
BlockId block_of_layer(const Graph& graph, BlockId block, bool recomputes) {
  for (std::size_t b = 0; recomputes && b < graph.blocks.size(); ++b) {
    if (graph.blocks[b].variant_of == block) return BlockId(b);
  }
  return block;
}

/// Returns the layout of a stage with its instances alone.
ArenaLayout instances_of_stage(const Graph& graph, const Strategy& strategy,
                               const StageLayout& stages, std::int64_t stage) {
  ArenaLayout layout;
  layout.stage = stage;
  for (const std::size_t p : stages.stages[std::size_t(stage)]) {
    const ModelPart& part = stages.parts[p];
    const std::size_t begin = layout.instances.size();
    for (const BlockInstance& one : instances_of(part, stages.blocks)) {
      const bool again = graph.blocks[one.block].kind == BlockKind::layer &&
                         recomputes(strategy, one.number - part.first, one.number);
      Instance& instance = layout.instances.emplace_back();
      instance.block = block_of_layer(graph, BlockId(one.block), again);
      instance.layer = one.number;
    }
    layout.chunks.emplace_back(begin, layout.instances.size());
  }
  return layout;
}

/// Returns how many of the ranks that add up the norm have equal gradients of a parameter. Those
/// are the ranks of mp. Where experts have a grid of their own, they are all ranks of a stage that
/// have no part of their own of what is sharded.
std::int64_t copies_of(const Tensor& parameter, const Strategy& strategy) {
  const auto& split = parameter.split;
  const bool is_split = split && split->degree > 1;
  const std::int64_t of_mp = is_split ? split->copies : strategy.mp;
  if (!experts_apart(strategy)) return of_mp;
  const bool sharded = strategy.sharding_stage > 0;
  const Grid grid = grid_of(strategy);
  if (is_of_experts(parameter)) return sharded ? 1 : grid[Axis::edp];
  return of_mp * grid[Axis::dp] * (sharded ? 1 : grid[Axis::cp]);
}

Segment segment_of(const Graph& graph, TensorId id, std::int64_t layer, std::int64_t offset,
                   const Strategy& strategy) {
  const Tensor& parameter = graph.at(id);
  Segment segment;
  segment.parameter = parameter.name;
  segment.layer = layer;
  segment.shape = parameter.shape;
  segment.dtype = parameter.dtype;
  segment.split = parameter.split;
  if (segment.split && segment.split->degree == 1) segment.split.reset();
  segment.init = parameter.init;
  segment.init_stddev = parameter.init_stddev;
  segment.decay = parameter.decay;
  segment.weight_decay = parameter.weight_decay;
  segment.clip = parameter.clip;
  segment.rate = parameter.rate;
  segment.offset = offset;
  segment.elements = elements(parameter.shape);
  segment.packed = parameter.packed;
  segment.norm_weight = 1.0 / double(copies_of(parameter, strategy));
  return segment;
}

/// The parameter that another stage may read, too, and that stage.
struct Tied {
  TensorId parameter;
  std::int64_t stage = 0;
};

/// The tied parameter's owner, if the graph ties one.
std::optional<TensorId> tied_owner(const Graph& graph) {
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.role == TensorRole::parameter && tensor.tied_to) return tensor.tied_to;
  }
  return std::nullopt;
}

/// Both ends of the pipeline add up the gradient of the parameter that they share.
std::optional<Op> tied_sum(const ArenaLayout& layout, const StageLayout& stages) {
  const std::int64_t end = stages.tied_stage;
  const bool shares = end > 0 && (layout.stage == 0 || layout.stage == end);
  if (!shares || !layout.tied_base) return std::nullopt;
  Op sum;
  sum.kind = OpKind::all_reduce;
  sum.stream = Stream::world;
  sum.params =
      CollectiveParams{Group{{Axis::pp}, std::int64_t(stages.stages.size()) - end}, Reduction::sum};
  return sum;
}

/// Returns whether segment i may be in the bucket of the segment before it. Buckets are of
/// gradients unless `of_parameters`, or where both are the same.
bool may_join(const Graph& graph, const ArenaLayout& layout, const Strategy& strategy,
              std::optional<TensorId> alone, std::size_t i, bool of_parameters) {
  if (i == 0) return false;
  const auto is_alone = [&](std::size_t s) { return alone && layout.parameter[s] == *alone; };
  if (is_alone(i) || is_alone(i - 1)) return false;
  const auto of_experts = [&](std::size_t s) {
    return is_of_experts(graph.at(layout.parameter[s]));
  };
  if (of_experts(i) != of_experts(i - 1)) return false;
  const bool same_bundle = layout.producer[i] == layout.producer[i - 1];
  if (reduces_per_micro_batch(strategy) && !same_bundle) return false;
  if (!shards_parameters(strategy) || !of_parameters) return true;
  const auto stays = [&](std::size_t s) {
    return layout.segments[s].elements <= resident_limit(strategy);
  };
  if (stays(i) != stays(i - 1)) return false;
  if (strategy.gathers.unit == ParameterGather::tensor) return false;
  if (strategy.gathers.unit != ParameterGather::module) return true;
  // Bundles are in reverse order of creation: a bias lies before its weight.
  const bool next = *layout.entry[i] == *layout.entry[i - 1] + 1;
  return next && graph.at(layout.parameter[i - 1]).init == Init::zeros;
}

/// ArenaTypes has the types of parameters, and of a micro-batch's gradients where these have
/// arenas.
class ArenaTypes {
 public:
  explicit ArenaTypes(const Graph& graph) : graph_(graph) {
    for (const Op& op : graph.ops) {
      if (!op.block && op.phase == Phase::backward && op.stream == Stream::compute) merges_ = true;
      if (!op.block || op.phase == Phase::optimizer) continue;
      for (TensorId id : op.outputs) {
        const Tensor& tensor = graph.at(id);
        if (tensor.gradient_of) gradients_[*tensor.gradient_of] = tensor.dtype;
      }
    }
  }
  bool merges() const { return merges_; }
  DType of_parameter(TensorId parameter) const { return graph_.at(parameter).dtype; }
  /// Returns the type of a gradient. A gradient that no op reads has the parameter's type.
  DType of_gradient(TensorId parameter) const {
    const auto found = gradients_.find(parameter);
    return found == gradients_.end() ? of_parameter(parameter) : found->second;
  }

 private:
  const Graph& graph_;
  bool merges_ = false;
  std::map<TensorId, DType> gradients_;
};

/// Lays out the frozen parameters of a stage, in the order of its instances.
class FrozenLayout {
 public:
  FrozenLayout(const Graph& graph, const CutGraph& cut, const Strategy& strategy,
               ArenaLayout& layout)
      : graph_(graph), cut_(cut), strategy_(strategy), layout_(layout) {}

  void run() {
    for (std::size_t i = 0; i < layout_.instances.size(); ++i) {
      Instance& instance = layout_.instances[i];
      const CutBlock& block = cut_.blocks[instance.block.index()];
      instance.frozen = end_;
      for (const FrozenEntry& entry : block.frozen)
        add(entry.parameter, instance.layer, end_ + entry.offset);
      add_range({end_, block.tied_begin, i});
      add_range({end_, block.frozen_bytes - block.tied_begin, i, true});
    }
    if (tied_frozen(layout_) == nullptr) add_copy();
  }

 private:
  void add(TensorId id, std::int64_t layer, Bytes offset) {
    layout_.frozen.push_back(segment_of(graph_, id, layer, offset.count(), strategy_));
  }

  void add_range(FrozenRange range) {
    if (range.bytes == Bytes()) return;
    end_ += range.bytes;
    layout_.frozen_ranges.push_back(range);
  }

  /// The stage that reads the tied parameter keeps a copy.
  void add_copy() {
    for (std::size_t i = 0; i < layout_.instances.size(); ++i) {
      if (!reads_tied(cut_.blocks[layout_.instances[i].block.index()])) continue;
      for (const Tensor& tensor : graph_.tensors) {
        if (tensor.role != TensorRole::frozen_parameter || !tensor.tied_to) continue;
        const CutBlock& home = cut_.blocks[graph_.at(*tensor.tied_to).block->index()];
        add(*tensor.tied_to, 0, end_);
        return add_range({end_, home.frozen_bytes - home.tied_begin, i, true, true});
      }
    }
  }

  const Graph& graph_;
  const CutGraph& cut_;
  const Strategy& strategy_;
  ArenaLayout& layout_;
  Bytes end_;
};

/// Returns the placements in the order in which backward completes their gradients.
std::vector<Placement> placements(const Graph& graph, const CutGraph& cut,
                                  const ArenaLayout& layout, std::optional<Tied> tied) {
  std::vector<Placement> all;
  const auto add = [&](TensorId id, std::size_t instance, std::optional<std::size_t> entry,
                       double norm_share) {
    const std::int64_t room = padded(elements(graph.at(id).shape), cut.alignment);
    all.push_back(
        {id, instance, entry, norm_share, room, {}, all.size(), is_of_experts(graph.at(id))});
  };
  for (std::size_t i = layout.instances.size(); i-- > 0;) {
    const auto& bundle = cut.blocks[layout.instances[i].block.index()].bundle;
    for (std::size_t e = 0; e < bundle.size(); ++e) add(bundle[e].parameter, i, e, 1);
  }
  // The stage that reads the tied table keeps a copy; the first one counts it in the norm. Of
  // several instances that read it, the first one adds to its gradient last.
  const auto is_tied = [&](const Placement& p) { return tied->parameter == p.parameter; };
  if (tied && layout.stage == tied->stage && std::none_of(all.begin(), all.end(), is_tied)) {
    const auto reads = [&](const Instance& instance) {
      return reads_tied(cut.blocks[instance.block.index()]);
    };
    const auto first = std::ranges::find_if(layout.instances, reads);
    add(tied->parameter, std::size_t(first - layout.instances.begin()), {}, 0);
  }
  return all;
}

/// Brings an owner's tensors of one type together, by their width, f32 last. Updates of other types
/// have masters, which then begin where their other state begins.
void gather_types(const ArenaTypes& types, std::vector<Placement>& all) {
  const auto order = [&](const Placement& p) {
    const Bytes width = bytes_of(types.of_parameter(p.parameter));
    return std::tuple(-p.owner.value_or(0), width, types.of_gradient(p.parameter) == DType::f32);
  };
  std::stable_sort(all.begin(), all.end(),
                   [&](const Placement& a, const Placement& b) { return order(a) < order(b); });
}

/// Cuts buckets of at most `limit` bytes in an arena of types `sizes`, where each bucket has one of
/// `types`. The tied parameter has a bucket of its own, and some placements begin one.
std::vector<Bucket> cut_buckets(const std::vector<Placement>& all, std::optional<TensorId> tied,
                                const ElementTypes& sizes, const ElementTypes& types, Bytes limit,
                                const std::vector<bool>& begins) {
  std::vector<FusionMember> members;
  std::int64_t at = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Placement& p = all[i];
    members.push_back(
        {sizes.bytes(at, p.room).count(), types.at(at), p.owner.value_or(0), tied == p.parameter});
    at += p.room;
    members.back().begins = !begins.empty() && begins[i];
  }
  std::vector<Bucket> buckets;
  std::int64_t end = 0;
  for (const std::vector<std::size_t>& group : fuse_below(members, limit.count())) {
    Bucket bucket{end, 0, {}};
    bucket.experts = all[group[0]].experts;
    bucket.owner = all[group[0]].owner;
    for (const std::size_t i : group) bucket.elements += all[i].room;
    end += bucket.elements;
    buckets.push_back(bucket);
  }
  return buckets;
}

void add_gradient_buckets(const std::vector<Placement>& all, std::optional<TensorId> tied,
                          ArenaLayout& layout) {
  std::vector<std::size_t> last;  // by bucket: when its last gradient is complete
  std::size_t next = 0;
  for (std::size_t i = 0; i < layout.buckets.size(); ++i) {
    const Bucket& bucket = layout.buckets[i];
    layout.completion.push_back(i);
    layout.tied_bucket.push_back(tied == all[next].parameter);
    last.push_back(0);
    for (std::int64_t taken = 0; taken < bucket.elements; taken += all[next++].room) {
      last[i] = std::max(last[i], all[next].completed);
    }
  }
  std::stable_sort(layout.completion.begin(), layout.completion.end(),
                   [&](std::size_t a, std::size_t b) { return last[a] < last[b]; });
}

/// Adds the ranges that are reduced at once, and those that are gathered at once.
void add_buckets(const Graph& graph, const PassContext& context, const std::vector<Placement>& all,
                 std::optional<Tied> tied, const std::optional<OwnerMode>& owners,
                 ArenaLayout& layout) {
  const Strategy& strategy = context.strategy;
  const bool every_time = reduces_per_micro_batch(strategy);
  std::optional<TensorId> shared, alone;
  if (tied && tied->stage > 0) shared = tied->parameter;
  if (tied && (tied->stage > 0 || every_time)) alone = tied->parameter;
  const auto begins = [&](bool of_parameters) {
    std::vector<bool> result;
    for (std::size_t i = 0; i < all.size(); ++i)
      result.push_back(!may_join(graph, layout, strategy, alone, i, of_parameters));
    return result;
  };
  const bool limited = overlaps_grad_reduce(context) && !shards_parameters(strategy);
  const Bytes limit = owners    ? owners->reduced
                      : limited ? strategy.gradients.bucket_bytes
                                : layout.gradients.offset(layout.elements);
  layout.buckets = cut_buckets(all, shared, layout.gradients,
                               layout.micro_batch_gradients.value_or(layout.parameters), limit,
                               owners && !every_time ? std::vector<bool>() : begins(!owners));
  add_gradient_buckets(all, shared, layout);
  layout.gathers = layout.buckets;
  if (owners) {
    layout.gathers = cut_buckets(all, {}, layout.parameters, layout.parameters, owners->gathered,
                                 shards_parameters(strategy) ? begins(true) : std::vector<bool>());
  }
}

}  // namespace

const FrozenRange* tied_frozen(const ArenaLayout& layout) {
  const auto found = std::ranges::find_if(layout.frozen_ranges, &FrozenRange::tied);
  return found == layout.frozen_ranges.end() ? nullptr : &*found;
}

std::pair<std::size_t, std::size_t> segments_in(const ArenaLayout& layout, const Bucket& bucket) {
  const auto first_at = [&](std::int64_t offset) {
    const auto found = std::lower_bound(
        layout.segments.begin(), layout.segments.end(), offset,
        [](const Segment& segment, std::int64_t at) { return segment.offset < at; });
    return std::size_t(found - layout.segments.begin());
  };
  return {first_at(bucket.begin), first_at(bucket.begin + bucket.elements)};
}

std::size_t bucket_at(const std::vector<Bucket>& buckets, std::int64_t element) {
  const auto after =
      std::upper_bound(buckets.begin(), buckets.end(), element,
                       [](std::int64_t at, const Bucket& bucket) { return at < bucket.begin; });
  return std::size_t(after - buckets.begin()) - 1;
}

std::int64_t element_of(const ArenaLayout& layout, const Slot& slot, std::size_t instance) {
  if (slot.kind == SlotKind::tied_parameters || slot.kind == SlotKind::tied_gradients)
    return *layout.tied_base;
  return slot.entry ? layout.entries[instance][*slot.entry] : layout.instances[instance].base;
}

std::vector<OwnedInstance> owned_instances(const ArenaLayout& layout) {
  std::vector<OwnedInstance> all;
  for (const Instance& one : layout.instances) all.push_back({one.block, {}});
  for (std::size_t s = 0; s < layout.segments.size(); ++s) {
    const Segment& segment = layout.segments[s];
    if (!segment.owner) continue;
    if (layout.entry[s]) all[layout.producer[s]].owners[layout.parameter[s]] = *segment.owner;
    if (layout.tied_base != segment.offset) continue;
    for (OwnedInstance& one : all) one.owners[layout.parameter[s]] = *segment.owner;
  }
  return all;
}

std::int64_t owner_begin(const ArenaLayout& layout, std::int64_t owner) {
  for (const Bucket& bucket : layout.buckets) {
    if (bucket.owner == owner) return bucket.begin;
  }
  INVARIANT(false, "a rank that owns nothing has no range");
}

bool is_coalesced(const ArenaLayout& layout, const Bucket& bucket) {
  const auto [first, end] = segments_in(layout, bucket);
  return layout.coalesces && bucket.owner && end - first > 1;
}

ArenaLayout lay_out_arenas(const Graph& graph, const CutGraph& cut, const PassContext& context,
                           const StageLayout& stages, std::int64_t stage) {
  const Strategy& strategy = context.strategy;
  ArenaLayout layout = instances_of_stage(graph, strategy, stages, stage);
  const ArenaTypes types(graph);
  if (types.merges()) layout.micro_batch_gradients.emplace();
  std::optional<Tied> tied;
  if (const auto parameter = tied_owner(graph)) tied = {*parameter, stages.tied_stage};
  std::vector<Placement> all = placements(graph, cut, layout, tied);
  const std::optional<OwnerMode> owners = owner_mode(strategy);
  if (owners) {
    layout.coalesces = owners->coalesces;
    // From stage 2 on only the owner keeps the gradient of the parameter that two stages share. So
    // it has one owner on both, that of the first stage.
    std::optional<std::vector<Placement>> first;
    if (tied && shards_gradients(strategy) && stage > 0 && stage == tied->stage)
      first = placements(graph, cut, instances_of_stage(graph, strategy, stages, 0), tied);
    assign_owners(*owners, graph, tied_owner(graph), std::move(first), all);
  }
  gather_types(types, all);
  layout.entries.resize(layout.instances.size());
  const auto groups = attribute_groups(graph, context.job.optimizer);
  const auto arena = gradient_arena(graph);
  const DType summed = arena ? graph.at(*arena).dtype : kGradientType;
  for (const Placement& p : all) {
    // A copy is of the one instance of its owner's block, whichever layer reads it.
    const std::int64_t layer = p.entry ? layout.instances[p.instance].layer : 0;
    Segment segment = segment_of(graph, p.parameter, layer, layout.elements, strategy);
    segment.group = attribute_group(groups, graph.at(p.parameter), context.job.optimizer);
    segment.norm_weight *= p.norm_share;
    segment.owner = p.owner;
    layout.segments.push_back(std::move(segment));
    layout.producer.push_back(p.instance);
    layout.parameter.push_back(p.parameter);
    layout.entry.push_back(p.entry);
    if (tied && tied->parameter == p.parameter) {
      layout.tied_base = layout.elements;
      layout.tied_elements = p.room;
    }
    if (p.entry) {
      auto& entries = layout.entries[p.instance];
      entries.resize(std::max(entries.size(), *p.entry + 1));
      entries[*p.entry] = layout.elements;
      if (*p.entry == 0) layout.instances[p.instance].base = layout.elements;
    }
    layout.elements += p.room;
    layout.parameters.append(p.room, types.of_parameter(p.parameter));
    layout.gradients.append(p.room, summed);
    if (types.merges()) {
      layout.micro_batch_gradients->append(p.room, types.of_gradient(p.parameter));
    }
  }
  FrozenLayout(graph, cut, strategy, layout).run();
  add_buckets(graph, context, all, tied, owners, layout);
  layout.tied_sum = tied_sum(layout, stages);
  return layout;
}

}  // namespace plimsoll
