#include "passes/arena_layout.h"

#include <numeric>
#include <span>

#include "passes/attribute_groups.h"
#include "passes/pipeline_order.h"
#include "passes/program_builder.h"
#include "passes/stage_blocks.h"

namespace plimsoll {

namespace {

/// The block, or the variant of it that recomputes, where that is what the layer runs.
BlockId block_of_layer(const Graph& graph, BlockId block, bool recomputes) {
  for (std::size_t b = 0; recomputes && b < graph.blocks.size(); ++b) {
    if (graph.blocks[b].variant_of == block) return BlockId(b);
  }
  return block;
}

/// Appends the instances of one part of the model.
void add_part(const Graph& graph, const Strategy& strategy,
              std::span<const std::int64_t> layers_per_part, std::int64_t part,
              std::vector<Instance>& into) {
  const std::vector<BlockRange> ranges = blocks_of_part(block_shapes(graph), layers_per_part, part);
  const auto before = layers_per_part.begin() + part;
  const std::int64_t first = std::accumulate(layers_per_part.begin(), before, std::int64_t{0});
  for (std::size_t b = 0; b < ranges.size(); ++b) {
    for (std::int64_t i = 0; i < ranges[b].count; ++i) {
      const std::int64_t number = ranges[b].number + i;
      const bool again =
          graph.blocks[b].kind == BlockKind::layer && recomputes(strategy, number - first, number);
      into.push_back({block_of_layer(graph, BlockId(b), again), ranges[b].first + i, 0});
    }
  }
}

void add_instances(const Graph& graph, const PassContext& context, std::int64_t stage,
                   ArenaLayout& layout) {
  const Strategy& strategy = context.strategy;
  const std::vector<std::int64_t> layers = layers_per_part(context.job, strategy);
  for (std::int64_t chunk = 0; chunk < strategy.virtual_stages; ++chunk) {
    const std::size_t begin = layout.instances.size();
    add_part(graph, strategy, layers, part_of(strategy.pp, stage, chunk), layout.instances);
    layout.chunks.emplace_back(begin, layout.instances.size());
  }
}

Segment segment_of(const Graph& graph, TensorId id, std::int64_t layer, std::int64_t offset,
                   const Strategy& strategy) {
  const Tensor& parameter = graph.at(id);
  Segment segment;
  segment.parameter = parameter.name;
  segment.layer = layer;
  segment.shape = parameter.shape;
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
  const std::int64_t copies = segment.split ? segment.split->copies : strategy.mp;
  segment.norm_weight = 1.0 / double(copies);
  return segment;
}

/// The tied parameter's owner, if the graph ties one.
std::optional<TensorId> tied_owner(const Graph& graph) {
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.role == TensorRole::parameter && tensor.tied_to) return tensor.tied_to;
  }
  return std::nullopt;
}

bool reduces_per_micro_batch(const Strategy& strategy) {
  return shards_gradients(strategy) || strategy.grad_reduction == GradReduction::per_micro_batch;
}

/// Whether segment i may be in the bucket of the one before it.
bool may_join(const Graph& graph, const ArenaLayout& layout, const Strategy& strategy,
              std::optional<TensorId> alone, std::size_t i) {
  if (i == 0) return false;
  const auto is_alone = [&](std::size_t s) { return alone && layout.parameter[s] == *alone; };
  if (is_alone(i) || is_alone(i - 1)) return false;
  const bool same_bundle = layout.producer[i] == layout.producer[i - 1];
  if (reduces_per_micro_batch(strategy) && !same_bundle) return false;
  if (!shards_parameters(strategy)) return true;
  const Instance& instance = layout.instances[layout.producer[i]];
  if (layout.segments[i].offset == instance.base + instance.gathered) return false;
  if (strategy.gather == ParameterGather::layer) return true;
  // Bundles are in reverse order of creation: a bias lies before its weight.
  return strategy.gather == ParameterGather::module &&
         graph.at(layout.parameter[i - 1]).init == Init::zeros;
}

void cut_buckets(const Graph& graph, ArenaLayout& layout, const std::vector<std::int64_t>& ends,
                 const Strategy& strategy, std::optional<TensorId> tied, std::int64_t limit) {
  const bool shared = strategy.pp > 1;  // by two stages
  const bool alone = shared || reduces_per_micro_batch(strategy);
  for (std::size_t i = 0; i < layout.segments.size(); ++i) {
    const std::int64_t begin = i == 0 ? 0 : ends[i - 1], elements = ends[i] - begin;
    const bool is_tied = shared && tied && layout.parameter[i] == *tied;
    const bool open = may_join(graph, layout, strategy, alone ? tied : std::nullopt, i);
    if (open && layout.buckets.back().elements + elements <= limit) {
      layout.buckets.back().elements += elements;
    } else {
      layout.buckets.push_back({begin, elements});
      layout.tied_bucket.push_back(is_tied);
    }
  }
}

}  // namespace

bool shards_gradients(const Strategy& strategy) { return strategy.sharding_stage >= 2; }

bool shards_parameters(const Strategy& strategy) { return strategy.sharding_stage == 3; }

std::int64_t resident_limit(const Strategy& strategy) {
  return shards_parameters(strategy) ? strategy.persistence_threshold : 0;
}

bool overlaps_grad_reduce(const PassContext& context) {
  return context.framework.overlap_grad_reduce && context.strategy.overlap_grad_reduce;
}

bool overlaps_param_gather(const PassContext& context) {
  return context.framework.overlap_param_gather && context.strategy.overlap_param_gather;
}

ArenaLayout lay_out_arenas(const Graph& graph, const CutGraph& cut, const PassContext& context,
                           std::int64_t stage, std::int64_t alignment) {
  const Strategy& strategy = context.strategy;
  ArenaLayout layout;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.role == TensorRole::parameter) layout.parameter_type = tensor.dtype;
  }
  add_instances(graph, context, stage, layout);
  const std::optional<TensorId> tied = tied_owner(graph);
  const auto groups = attribute_groups(graph, context.job.optimizer);
  std::vector<std::int64_t> ends;  // of each segment, padding included
  const auto add = [&](TensorId id, std::size_t instance, std::int64_t offset, double norm_share) {
    layout.segments.push_back(
        segment_of(graph, id, layout.instances[instance].layer, offset, strategy));
    layout.segments.back().group = attribute_group(groups, graph.at(id), context.job.optimizer);
    layout.segments.back().norm_weight *= norm_share;
    layout.producer.push_back(instance);
    layout.parameter.push_back(id);
    ends.push_back(offset + padded(layout.segments.back().elements, alignment));
    if (tied == id) {
      layout.tied_base = offset;
      layout.tied_elements = ends.back() - offset;
    }
  };
  for (std::size_t i = layout.instances.size(); i-- > 0;) {
    Instance& instance = layout.instances[i];
    instance.base = layout.elements;
    const CutBlock& block = cut.blocks[instance.block.index()];
    for (const BundleEntry& entry : block.bundle)
      add(entry.parameter, i, instance.base + entry.offset, 1);
    instance.elements = block.bundle_elements;
    instance.gathered = block.gathered_elements;
    instance.resident_base = layout.resident_elements;
    layout.resident_elements += instance.elements - instance.gathered;
    const std::int64_t resident_begin = instance.base + instance.gathered;
    const bool owns_tied = layout.tied_base && *layout.tied_base >= instance.base;
    if (owns_tied && *layout.tied_base >= resident_begin && !layout.tied_instance) {
      layout.tied_instance = i;
      layout.tied_resident = instance.resident_base + *layout.tied_base - resident_begin;
    }
    layout.elements += instance.elements;
  }
  if (tied && !layout.tied_base && stage == strategy.pp - 1) {
    // The last stage keeps a copy; the first one counts it in the norm.
    add(*tied, layout.instances.size() - 1, layout.elements, 0);
    layout.elements = ends.back();
  }
  const bool limited = overlaps_grad_reduce(context) && !shards_parameters(strategy);
  const std::int64_t limit =
      limited ? strategy.grad_bucket_bytes.count() / bytes_of(kGradientType).count()
              : layout.elements;
  cut_buckets(graph, layout, ends, strategy, tied, limit);
  return layout;
}

}  // namespace plimsoll
