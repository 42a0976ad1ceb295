// The safetensors format of Hugging Face (huggingface/safetensors, README.md, "Format"): eight
// bytes with the length of a JSON header (little-endian), the header, and the values of all tensors
// without gaps. Files of it cannot run anything when they are read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/tensor.h"

namespace plimsoll {

/// A SafeTensor is an entry of a header.
struct SafeTensor {
  std::string name;
  std::string dtype;  ///< "F32", say
  Shape shape;
  std::int64_t begin = 0, end = 0;  ///< bytes from the start of the file
};

/// A NamedShape is a tensor that is to be written.
struct NamedShape {
  std::string name;
  Shape shape;
};

/// Returns what a file of f32 tensors begins with, in the order given. It ends at a multiple of 8
/// bytes, as the format's own writer has it.
std::string safetensors_header(std::span<const NamedShape> tensors);

/// Returns the tensors of a file, by ascending place. `start` is its first bytes with the whole
/// header; `bytes` is its size. Throws InputError at `file`, and at the tensor, in these cases:
/// - the header is longer than the file or than 64 MiB, or no JSON of the format;
/// - the bytes of a tensor do not match its shape and type;
/// - values overlap, leave a gap, or end elsewhere than the file.
std::vector<SafeTensor> parse_safetensors(std::string_view start, std::int64_t bytes,
                                          const std::string& file);
/// Returns how many bytes of the start of a file parse_safetensors() needs: 8 and the header's.
/// `first` is the first 8 bytes, or fewer where the file is shorter. Throws InputError as it does.
std::int64_t safetensors_start(std::string_view first, std::int64_t bytes, const std::string& file);

}  // namespace plimsoll
