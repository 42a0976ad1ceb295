// The files of a checkpoint: one with all parameters, and one for each moment of the optimizer. All
// have the same tensors in the same order, whole and in f32.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/state/kept_state.h"

namespace plimsoll {

/// The name of the file with what a checkpoint says of itself.
inline constexpr const char* kRecordName = "checkpoint.json";

/// A LaidTensor is a tensor at its place in a file.
struct LaidTensor {
  std::size_t index = 0;      ///< among the tensors of the state
  std::int64_t begin = 0;     ///< bytes from the start of the file
  std::int64_t elements = 0;  ///< f32 values
};

struct LaidFile {
  std::string name;  ///< "model.safetensors"
  std::string header;
  std::int64_t bytes = 0;  ///< of the whole file
  std::map<std::string, LaidTensor, std::less<>> tensors;
};

/// Returns the files in order of KeptKind, for an optimizer with so many moments.
std::vector<LaidFile> lay_out(std::span<const WholeTensor> tensors, std::size_t moments);
/// Returns the names of these files.
std::vector<std::string> file_names(std::size_t moments);

/// Returns the sum over values of a hash of value and place in the tensor, modulo 2^64. So ranks
/// sum up what they write in any order, and a value that is changed or moved shows. `first` is the
/// place of the first value. The hash is the finaliser of SplitMix64 (Steele et al. 2014, "Fast
/// splittable pseudorandom number generators", section 5, with the constants of Stafford's variant
/// 13).
std::uint64_t checksum(std::int64_t first, std::span<const float> values);

}  // namespace plimsoll
