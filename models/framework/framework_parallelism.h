// FrameworkParallelism is how a framework shares work among ranks.
#pragma once

#include <cstdint>

namespace plimsoll {

/// These run while a collective or a transfer does.
struct CollectiveOverlap {
  /// Gradient buckets are reduced while the last micro-batch's backward still runs. Without it all
  /// gradients are reduced afterwards as one buffer, and grad_bucket_bytes has no effect.
  bool grad_reduce = true;
  /// Parameters are gathered in the next step, while its first forwards run. Without it they are
  /// gathered at the end of the step. It only matters with sharding_degree > 1.
  bool param_gather = false;
  /// The gradient of a column-parallel layer's input is summed over mp while the gradient of its
  /// weight is computed.
  bool tensor_gradients = false;
  /// A gather over mp overlaps the products that read its rows, and a scatter overlaps the product
  /// that makes its rows. Both go on part by part, with one part for each rank
  /// (simulator/costs/async_products.h).
  bool async_tensor_parallel = false;
  /// With virtual stages, the input of a computation is received while the computation before it
  /// runs. Else, and without virtual stages, it is received after that computation.
  bool receives_ahead = false;
  /// Ranks that share sequences (Strategy::cp) begin an exchange when they need its result, so no
  /// kernel overlaps with it.
  bool awaits_exchanges = false;
  bool operator==(const CollectiveOverlap&) const = default;
};

struct FrameworkParallelism {
  /// The framework pads the vocabulary to a multiple of this times mp. Published runs are predicted
  /// with this padding. Commands search mp, so they pad a job to a multiple of this. Programs alone
  /// pad to a multiple of mp.
  std::int64_t vocabulary_multiple = 1;
  CollectiveOverlap overlap;
  bool sequence_parallel = true;  ///< the framework can split tokens over mp (arXiv 2205.05198)
  /// Backward gathers tokens over mp again. Without it, the whole tokens that forward or recompute
  /// gathered are kept (arXiv 2205.05198, section 4.2.2). It only matters with sequence_parallel.
  bool gathers_tokens_again = true;
  /// With recompute per_op, tensors of the kept ops stay even if backward does not read them.
  bool keeps_unread = false;
  /// Recompute repeats every op, as torch.utils.checkpoint with reentry does. Without it, recompute
  /// repeats only the ops whose values backward reads.
  bool recompute_repeats_all = false;
  /// Ranks that share sequences (Strategy::cp) sum outputs and gradients of parts in f32, and send
  /// sums of keys' gradients in f32. They read gathered keys and values part by part, too, and
  /// backward begins with a rank's own.
  bool sums_parts_in_f32 = false;
  /// A token travels once to each node that has experts of it, and there once to each rank. The
  /// rank copies it for its experts. Without it each of the token's rows travels by itself.
  bool sends_tokens_once_per_node = false;
  /// Rows that have been exchanged lie in the order of the ranks that they came from. A kernel
  /// sorts them by expert before the products, and another restores their order before they return.
  /// Without it the exchange itself puts each row in its place.
  bool sorts_exchanged_rows = false;
  bool operator==(const FrameworkParallelism&) const = default;
};

}  // namespace plimsoll
