// The fields of a Framework are listed here once, for every file that holds them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "models/framework/framework.h"

namespace plimsoll {

/// A FieldPlace says where a field stands in files. A framework file has an object for each group.
/// A plan file has all fields side by side, except the allocator's own fields. `least` and `most`
/// limit a number.
struct FieldPlace {
  std::string_view group, key;
  bool of_allocator = false;
  double least = 0, most = 1;
};

inline constexpr std::string_view kKernels = "kernels", kParallelism = "parallelism",
                                  kDispatch = "dispatch", kWaits = "waits", kMemory = "memory",
                                  kAllocator = "allocator";
inline constexpr std::string_view kGroups[] = {kKernels, kParallelism, kDispatch,
                                               kWaits,   kMemory,      kAllocator};

inline constexpr std::string_view kAttentionKernels[] = {"native", "flash_2", "flash_1", "triton"};
inline constexpr std::string_view kTransfersHold[] = {"nothing", "compute", "host"};
inline constexpr std::string_view kGraphs[] = {"nothing", "router", "attention", "layers", "step"};
inline constexpr std::string_view kAllocatorKinds[] = {"arena", "caching", "auto_growth"};
inline constexpr std::string_view kGradientMemories[] = {"one_buffer", "by_layer", "as_computed",
                                                         "bf16_also_in_f32"};
inline constexpr std::string_view kShardMemories[] = {"in_place", "flat_copies"};
inline constexpr std::string_view kBorderMemories[] = {"by_use", "for_each"};
inline constexpr std::string_view kCheckpointMemories[] = {"on_device", "split", "on_host"};
inline std::span<const std::string_view> words_of(AttentionKernel) { return kAttentionKernels; }
inline std::span<const std::string_view> words_of(TransfersHold) { return kTransfersHold; }
inline std::span<const std::string_view> words_of(Graphs) { return kGraphs; }
inline std::span<const std::string_view> words_of(AllocatorKind) { return kAllocatorKinds; }
inline std::span<const std::string_view> words_of(LossMemory) { return kLossMemories; }
inline std::span<const std::string_view> words_of(GradientMemory) { return kGradientMemories; }
inline std::span<const std::string_view> words_of(ShardMemory) { return kShardMemories; }
inline std::span<const std::string_view> words_of(BorderMemory) { return kBorderMemories; }
inline std::span<const std::string_view> words_of(CheckpointMemory) { return kCheckpointMemories; }

/// Calls visit(place, value) for each field, in the order of plan files. The name, capabilities,
/// sources and facts are not among them. `framework` is a Framework or a const one.
template <class Any, class Visit>
void for_each_field(Any& framework, Visit visit) {
  constexpr bool own = true;
  auto& [bias, attention, elementwise, products, squared_norm, stores_dropout_masks] =
      framework.kernels;
  auto& parallelism = framework.parallelism;
  auto& overlap = parallelism.overlap;
  auto& [dispatch, waits] = framework.host;
  auto& memory = framework.memory;
  visit(FieldPlace{kKernels, "fused_bias_gelu"}, bias.in_gelu);
  visit(FieldPlace{kKernels, "fused_bias_add"}, bias.in_add);
  visit(FieldPlace{kKernels, "fused_bias"}, bias.in_matmul);
  visit(FieldPlace{kKernels, "separate_qkv"}, attention.separate_qkv);
  visit(FieldPlace{kKernels, "squared_norm"}, squared_norm);
  visit(FieldPlace{kKernels, "flash_attention"}, attention.flash);
  visit(FieldPlace{kKernels, "attention_by_parts"}, attention.by_parts);
  visit(FieldPlace{kKernels, "casts_inputs_again"}, products.casts_inputs_again);
  visit(FieldPlace{kKernels, "untransposed_fp8"}, products.untransposed_fp8);
  visit(FieldPlace{kParallelism, "sums_parts_in_f32"}, parallelism.sums_parts_in_f32);
  visit(FieldPlace{kParallelism, "awaits_exchanges"}, overlap.awaits_exchanges);
  visit(FieldPlace{kKernels, "multiplies_experts_apart"}, products.experts_apart);
  visit(FieldPlace{kParallelism, "overlap_tensor_gradients"}, overlap.tensor_gradients);
  visit(FieldPlace{kParallelism, "receives_ahead"}, overlap.receives_ahead);
  visit(FieldPlace{kParallelism, "async_tensor_parallel"}, overlap.async_tensor_parallel);
  visit(FieldPlace{kKernels, "stores_dropout_masks"}, stores_dropout_masks);
  visit(FieldPlace{kParallelism, "sends_tokens_once_per_node"},
        parallelism.sends_tokens_once_per_node);
  visit(FieldPlace{kParallelism, "sorts_exchanged_rows"}, parallelism.sorts_exchanged_rows);
  visit(FieldPlace{kParallelism, "sequence_parallel"}, parallelism.sequence_parallel);
  visit(FieldPlace{kParallelism, "gathers_tokens_again"}, parallelism.gathers_tokens_again);
  visit(FieldPlace{kParallelism, "keeps_unread"}, parallelism.keeps_unread);
  visit(FieldPlace{kParallelism, "recompute_repeats_all"}, parallelism.recompute_repeats_all);
  visit(FieldPlace{kParallelism, "overlap_grad_reduce"}, overlap.grad_reduce);
  visit(FieldPlace{kParallelism, "overlap_param_gather"}, overlap.param_gather);
  visit(FieldPlace{kWaits, "host_reads_norm"}, waits.for_norm);
  visit(FieldPlace{kWaits, "host_reads_batch"}, waits.for_batch);
  visit(FieldPlace{kWaits, "host_waits_for_gathers"}, waits.for_gathers);
  visit(FieldPlace{kWaits, "host_counts_for_exchange"}, waits.before_exchange);
  visit(FieldPlace{kWaits, "host_counts_for_products"}, waits.before_products);
  visit(FieldPlace{kWaits, "launches_wait"}, waits.for_launches);
  visit(FieldPlace{kAllocator, "lazy_optimizer_state"}, memory.lazy_optimizer_state);
  visit(FieldPlace{kKernels, "masks_f32_apart"}, attention.masks_f32_apart);
  visit(FieldPlace{kAllocator, "copies_rotary"}, memory.copies.rotary);
  visit(FieldPlace{kKernels, "repeats_keys"}, attention.repeats_keys);
  visit(FieldPlace{kAllocator, "copies_split_inputs"}, memory.copies.split_inputs);
  visit(FieldPlace{kKernels, "elementwise_by_op"}, elementwise.by_op);
  visit(FieldPlace{kKernels, "tf32_products"}, products.tf32);
  visit(FieldPlace{kKernels, "fused_norms"}, elementwise.fused_norms);
  visit(FieldPlace{kKernels, "fused_softmax"}, elementwise.fused_softmax);
  visit(FieldPlace{kKernels, "adds_gradients_in_matmul"}, products.add_gradients);
  visit(FieldPlace{kAllocator, "stands_in_for_gradients"}, memory.copies.gradient_placeholders);
  visit(FieldPlace{kAllocator, "host_gradients"}, memory.host_gradients);
  visit(FieldPlace{kParallelism, "vocabulary_multiple", false, 1, 1 << 16},
        parallelism.vocabulary_multiple);
  visit(FieldPlace{kWaits, "transfers_hold"}, waits.transfers_hold);
  visit(FieldPlace{kKernels, "attention_kernel"}, attention.kernel);
  visit(FieldPlace{kDispatch, "ops_per_kernel", false, 1, 1000}, dispatch.ops_per_kernel);
  visit(FieldPlace{kDispatch, "ops_per_expert_op", false, 1, 1000}, dispatch.ops_per_expert_op);
  visit(FieldPlace{kDispatch, "ops_per_part", false, 1, 1000}, dispatch.ops_per_part);
  visit(FieldPlace{kDispatch, "backward_dispatch", false, 0.01, 10}, dispatch.backward);
  visit(FieldPlace{kDispatch, "ops_per_tensor", false, 0, 1000}, dispatch.ops_per_tensor);
  visit(FieldPlace{kDispatch, "graphs"}, dispatch.graphs);
  visit(FieldPlace{kDispatch, "dispatch_op_s"}, dispatch.op);
  visit(FieldPlace{kDispatch, "dispatch_gather_s"}, dispatch.gather);
  visit(FieldPlace{kDispatch, "dispatch_gradient_s"}, dispatch.gradient);
  visit(FieldPlace{kWaits, "host_wait_s"}, waits.time);
  visit(FieldPlace{kMemory, "workspace_bytes"}, memory.process.workspace);
  visit(FieldPlace{kMemory, "context_bytes"}, memory.process.context);
  visit(FieldPlace{kMemory, "pair_communicator_bytes"}, memory.process.pair_communicator);
  visit(FieldPlace{kMemory, "communicator_bytes"}, memory.process.communicator);
  auto& allocator = memory.allocator;
  visit(FieldPlace{kAllocator, "kind", own}, allocator.kind);
  visit(FieldPlace{kAllocator, "expandable_segments", own}, allocator.expandable_segments);
  visit(FieldPlace{kAllocator, "rounding_bytes", own}, allocator.rounding);
  visit(FieldPlace{kAllocator, "small_request_bytes", own}, allocator.small_request);
  visit(FieldPlace{kAllocator, "small_segment_bytes", own}, allocator.small_segment);
  visit(FieldPlace{kAllocator, "medium_request_bytes", own}, allocator.medium_request);
  visit(FieldPlace{kAllocator, "medium_segment_bytes", own}, allocator.medium_segment);
  visit(FieldPlace{kAllocator, "segment_rounding_bytes", own}, allocator.segment_rounding);
  visit(FieldPlace{kAllocator, "unsplit_rest_bytes", own}, allocator.unsplit_rest);
  visit(FieldPlace{kAllocator, "chunk_header_bytes", own}, allocator.chunk_header);
  visit(FieldPlace{kAllocator, "chunk_rounding_bytes", own}, allocator.chunk_rounding);
  visit(FieldPlace{kAllocator, "loss_memory"}, memory.loss);
  visit(FieldPlace{kAllocator, "gradient_memory"}, memory.gradients);
  visit(FieldPlace{kAllocator, "shard_memory"}, memory.shards);
  visit(FieldPlace{kAllocator, "border_memory"}, memory.borders);
  visit(FieldPlace{kAllocator, "checkpoint_memory"}, memory.checkpoints);
}

/// Calls visit(group, text) for the source of each group of fields.
template <class Any, class Visit>
void for_each_source(Any& sources, Visit visit) {
  visit(kKernels, sources.kernels);
  visit(kParallelism, sources.parallelism);
  visit(kDispatch, sources.dispatch);
  visit(kWaits, sources.waits);
  visit(kMemory, sources.memory);
  visit(kAllocator, sources.allocator);
}

}  // namespace plimsoll
