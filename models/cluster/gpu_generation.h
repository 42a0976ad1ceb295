// A GPU generation has what datasheets say of GPUs of one compute capability.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"

namespace plimsoll {

/// The NVLinks of a GPU. Rates are per link and direction.
struct NvlinkFacts {
  std::int64_t links = 0;
  BytesPerSecond rate;
  std::string document, date;
};

/// Dense peaks of the whole GPU that the document describes.
struct PeakFacts {
  double multiprocessors = 0;
  FlopsPerSecond bf16, fp32;
  std::string document;
};

/// Rates of a kernel of attention relative to another one.
struct AttentionRates {
  double forward = 1, backward = 1;
};

struct GpuGeneration {
  std::vector<std::string> names;  ///< words in names of devices: "H100" in "NVIDIA H100 SXM5 80GB"
  std::int64_t compute_capability = 0;   ///< 90 for 9.0
  std::vector<std::int64_t> same_links;  ///< other capabilities with the same links
  std::optional<NvlinkFacts> nvlink;     ///< absent: these GPUs have no NVLink
  std::optional<PeakFacts> peaks;
  /// The rate of products in TF32 relative to that of 16 bits, as datasheets print it. Absent: no
  /// TF32.
  std::optional<double> tf32_of_16_bits;
  /// FlashAttention-2 relative to kernels that use all that these GPUs have.
  AttentionRates flash_2;
  /// Products of 8-bit operands with one scale for a tensor read them as they lie.
  bool untransposed_fp8 = false;
  /// The document by which these GPUs have no flash attention. Absent: they have it.
  std::optional<std::string> without_flash_attention;
};

/// Returns the entries of models/presets/gpu_generations, ordered by compute capability.
const std::vector<GpuGeneration>& gpu_generations();
/// generation_of_capability() finds a generation by its compute capability, and generation_named()
/// by a word of the device's name. Null: there is none.
const GpuGeneration* generation_of_capability(std::int64_t compute_capability);
const GpuGeneration* generation_named(std::string_view device);

}  // namespace plimsoll
