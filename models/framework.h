// Framework: how an executor runs ops. The passes lower for it, the cost model charges for it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"

namespace plimsoll {

/// Where each group of fields comes from: document, code or measurement.
struct FrameworkSources {
  std::string kernels;  ///< fused_*, flash_attention, stores_dropout_masks
  std::string
      parallelism;       ///< sequence_parallel, selective_recompute, most_sharding_stage, overlap_*
  std::string dispatch;  ///< dispatch_op
  std::string memory;    ///< workspace, context_memory, communicator_memory
  bool operator==(const FrameworkSources&) const = default;
};

/// Every framework here has layer norm as one kernel, masked softmax as one kernel (the scale is
/// the score matmul's), and weight gradients accumulated by their matmul: there is no field for
/// these.
struct Framework {
  std::string name;

  // Kernels. Where a linear layer's bias is added: by the first of these that applies, else by an
  // op of its own.
  bool fused_bias_gelu = false;  ///< the GELU after the layer adds it, forward and backward
  bool fused_bias_add = false;   ///< the residual add after the layer adds it
  bool fused_bias = true;        ///< the layer's matmul adds it
  /// A kernel sums the squares of a tensor; else two, with its squares in memory between them.
  bool squared_norm = true;
  /// Attention is one kernel that keeps no scores (Dao 2022, arXiv 2205.14135); else matmul,
  /// softmax, matmul.
  bool flash_attention = false;

  /// Dropout writes a mask of one byte per element that backward reads (arXiv 2205.05198, section
  /// 4.1); else backward draws it again. Flash attention always draws its own again.
  bool stores_dropout_masks = false;

  // Rules of its parallelism.
  bool sequence_parallel = true;     ///< can split tokens over mp (arXiv 2205.05198)
  bool selective_recompute = false;  ///< can repeat only the attention core (arXiv 2205.05198)
  /// What is recomputed is repeated whole, as by torch.utils.checkpoint; else only as far as
  /// backward reads it.
  bool recompute_repeats_all = false;
  /// The most of ZeRO that it has (Strategy::sharding_stage); 0: no sharding_degree > 1.
  std::int64_t most_sharding_stage = 0;
  /// Splits backward in two, for schedule zb_h1. Only says whether the search tries it: its authors
  /// run it in a fork of Megatron-LM (arXiv 2401.10241, section 5).
  bool zero_bubble = false;
  /// Gradient buckets are reduced while the last micro-batch's backward still runs. Else all
  /// gradients are reduced after it, as one buffer: grad_bucket_bytes changes nothing.
  bool overlap_grad_reduce = true;
  /// Parameters are gathered in the next step, while its first forwards run. Else at the end of the
  /// step. Only matters with sharding_degree > 1.
  bool overlap_param_gather = false;

  /// Host time to issue one op (a kernel or a communication) where no calibration measured it.
  Seconds dispatch_op;

  /// Scratch memory for library kernels: one buffer on the compute stream.
  Bytes workspace;
  /// Device memory of a process that no tensor shows: once, and for each communicator of two and of
  /// more ranks.
  Bytes context_memory, pair_communicator_memory, communicator_memory;

  FrameworkSources sources;
  bool operator==(const Framework&) const = default;
};

/// The bundled runtime (planner run) on CPU cores. Its Programs run on every backend.
Framework bundled_framework();
/// The bundled runtime with the kernels of its cuda backend.
Framework bundled_cuda_framework();
/// Whether planner run can execute what is lowered for it.
bool runs_here(const Framework& framework);
/// By preset name; throws UsageError naming the known ones.
Framework framework_by_name(std::string_view name);
/// All presets, in the order in which they are listed to users.
std::vector<Framework> framework_presets();

}  // namespace plimsoll
