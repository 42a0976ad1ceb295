// A file is read block by block, also one that gzip compressed. Internal to interop/logs.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <streambuf>
#include <string>
#include <vector>

namespace plimsoll {

inline constexpr std::size_t kLogBlock = std::size_t{1} << 18;

/// A BlockSource fills a part of the block and returns its size; 0 at the end.
using BlockSource = std::function<std::size_t(std::span<char> block)>;

/// A BlockBuffer is a text that was read already, and then the blocks of a source.
class BlockBuffer : public std::streambuf {
 public:
  explicit BlockBuffer(BlockSource source, std::string begin = "");

 protected:
  int_type underflow() override;

 private:
  BlockSource source_;
  std::string block_;
};

/// Returns the bytes of a file, without compression. Throws InputError where it cannot be read.
BlockSource read_blocks(const std::filesystem::path& path);

}  // namespace plimsoll
