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
inline constexpr std::string_view kGradientMemories[] = {"one_buffer", "as_computed",
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
  visit(FieldPlace{kKernels, "fused_bias_gelu"}, framework.fused_bias_gelu);
  visit(FieldPlace{kKernels, "fused_bias_add"}, framework.fused_bias_add);
  visit(FieldPlace{kKernels, "fused_bias"}, framework.fused_bias);
  visit(FieldPlace{kKernels, "separate_qkv"}, framework.separate_qkv);
  visit(FieldPlace{kKernels, "squared_norm"}, framework.squared_norm);
  visit(FieldPlace{kKernels, "flash_attention"}, framework.flash_attention);
  visit(FieldPlace{kKernels, "attention_by_parts"}, framework.attention_by_parts);
  visit(FieldPlace{kKernels, "casts_inputs_again"}, framework.casts_inputs_again);
  visit(FieldPlace{kKernels, "untransposed_fp8"}, framework.untransposed_fp8);
  visit(FieldPlace{kParallelism, "sums_parts_in_f32"}, framework.sums_parts_in_f32);
  visit(FieldPlace{kParallelism, "awaits_exchanges"}, framework.awaits_exchanges);
  visit(FieldPlace{kKernels, "multiplies_experts_apart"}, framework.multiplies_experts_apart);
  visit(FieldPlace{kParallelism, "overlap_tensor_gradients"}, framework.overlap_tensor_gradients);
  visit(FieldPlace{kParallelism, "receives_ahead"}, framework.receives_ahead);
  visit(FieldPlace{kParallelism, "async_tensor_parallel"}, framework.async_tensor_parallel);
  visit(FieldPlace{kKernels, "stores_dropout_masks"}, framework.stores_dropout_masks);
  visit(FieldPlace{kParallelism, "sends_tokens_once_per_node"},
        framework.sends_tokens_once_per_node);
  visit(FieldPlace{kParallelism, "sorts_exchanged_rows"}, framework.sorts_exchanged_rows);
  visit(FieldPlace{kParallelism, "sequence_parallel"}, framework.sequence_parallel);
  visit(FieldPlace{kParallelism, "gathers_tokens_again"}, framework.gathers_tokens_again);
  visit(FieldPlace{kParallelism, "keeps_unread"}, framework.keeps_unread);
  visit(FieldPlace{kParallelism, "recompute_repeats_all"}, framework.recompute_repeats_all);
  visit(FieldPlace{kParallelism, "overlap_grad_reduce"}, framework.overlap_grad_reduce);
  visit(FieldPlace{kParallelism, "overlap_param_gather"}, framework.overlap_param_gather);
  visit(FieldPlace{kWaits, "host_reads_norm"}, framework.host_reads_norm);
  visit(FieldPlace{kWaits, "host_reads_batch"}, framework.host_reads_batch);
  visit(FieldPlace{kWaits, "host_waits_for_gathers"}, framework.host_waits_for_gathers);
  visit(FieldPlace{kWaits, "host_counts_for_exchange"}, framework.host_counts_for_exchange);
  visit(FieldPlace{kWaits, "host_counts_for_products"}, framework.host_counts_for_products);
  visit(FieldPlace{kWaits, "launches_wait"}, framework.launches_wait);
  visit(FieldPlace{kAllocator, "lazy_optimizer_state"}, framework.lazy_optimizer_state);
  visit(FieldPlace{kKernels, "masks_f32_apart"}, framework.masks_f32_apart);
  visit(FieldPlace{kAllocator, "copies_rotary"}, framework.copies_rotary);
  visit(FieldPlace{kKernels, "repeats_keys"}, framework.repeats_keys);
  visit(FieldPlace{kAllocator, "copies_split_inputs"}, framework.copies_split_inputs);
  visit(FieldPlace{kKernels, "elementwise_by_op"}, framework.elementwise_by_op);
  visit(FieldPlace{kKernels, "tf32_products"}, framework.tf32_products);
  visit(FieldPlace{kKernels, "fused_norms"}, framework.fused_norms);
  visit(FieldPlace{kKernels, "fused_softmax"}, framework.fused_softmax);
  visit(FieldPlace{kKernels, "adds_gradients_in_matmul"}, framework.adds_gradients_in_matmul);
  visit(FieldPlace{kAllocator, "stands_in_for_gradients"}, framework.stands_in_for_gradients);
  visit(FieldPlace{kAllocator, "host_gradients"}, framework.host_gradients);
  visit(FieldPlace{kAllocator, "host_parameters"}, framework.host_parameters);
  visit(FieldPlace{kParallelism, "vocabulary_multiple", false, 1, 1 << 16},
        framework.vocabulary_multiple);
  visit(FieldPlace{kWaits, "transfers_hold"}, framework.transfers_hold);
  visit(FieldPlace{kKernels, "attention_kernel"}, framework.attention_kernel);
  visit(FieldPlace{kDispatch, "ops_per_kernel", false, 1, 1000}, framework.ops_per_kernel);
  visit(FieldPlace{kDispatch, "ops_per_expert_op", false, 1, 1000}, framework.ops_per_expert_op);
  visit(FieldPlace{kDispatch, "ops_per_part", false, 1, 1000}, framework.ops_per_part);
  visit(FieldPlace{kDispatch, "backward_dispatch", false, 0.01, 10}, framework.backward_dispatch);
  visit(FieldPlace{kDispatch, "ops_per_tensor", false, 0, 1000}, framework.ops_per_tensor);
  visit(FieldPlace{kDispatch, "graphs"}, framework.graphs);
  visit(FieldPlace{kDispatch, "dispatch_op_s"}, framework.dispatch_op);
  visit(FieldPlace{kDispatch, "dispatch_gather_s"}, framework.dispatch_gather);
  visit(FieldPlace{kDispatch, "dispatch_gradient_s"}, framework.dispatch_gradient);
  visit(FieldPlace{kWaits, "host_wait_s"}, framework.host_wait);
  visit(FieldPlace{kMemory, "workspace_bytes"}, framework.workspace);
  visit(FieldPlace{kMemory, "context_bytes"}, framework.context_memory);
  visit(FieldPlace{kMemory, "pair_communicator_bytes"}, framework.pair_communicator_memory);
  visit(FieldPlace{kMemory, "communicator_bytes"}, framework.communicator_memory);
  auto& allocator = framework.allocator;
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
  visit(FieldPlace{kAllocator, "loss_memory"}, framework.loss_memory);
  visit(FieldPlace{kAllocator, "gradient_memory"}, framework.gradient_memory);
  visit(FieldPlace{kAllocator, "shard_memory"}, framework.shard_memory);
  visit(FieldPlace{kAllocator, "border_memory"}, framework.border_memory);
  visit(FieldPlace{kAllocator, "checkpoint_memory"}, framework.checkpoint_memory);
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
