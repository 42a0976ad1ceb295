// zlib reads both compressed files and others.
#include "interop/logs/block_buffer.h"

#include <zlib.h>

#include <memory>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace plimsoll {

BlockBuffer::BlockBuffer(BlockSource source, std::string begin)
    : source_(std::move(source)), block_(std::move(begin)) {
  setg(block_.data(), block_.data(), block_.data() + block_.size());
}

BlockBuffer::int_type BlockBuffer::underflow() {
  block_.resize(kLogBlock);
  setg(block_.data(), block_.data(), block_.data() + source_(block_));
  return gptr() == egptr() ? traits_type::eof() : traits_type::to_int_type(*gptr());
}

BlockSource read_blocks(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    throw InputError(path.string(), "", "it is a folder; a log is allowed");
  }
  const std::shared_ptr<gzFile_s> file(gzopen(path.c_str(), "rb"),
                                       [](gzFile opened) { gzclose(opened); });
  if (!file) throw InputError(path.string(), "", "it cannot be read");
  gzbuffer(file.get(), unsigned(kLogBlock));
  return [file, path](std::span<char> block) {
    const int read = gzread(file.get(), block.data(), unsigned(block.size()));
    int code = Z_OK;
    gzerror(file.get(), &code);
    if (read < 0 || (code != Z_OK && code != Z_STREAM_END)) {
      throw InputError(path.string(), "",
                       code == Z_BUF_ERROR ? "its compressed data ends early"
                       : code == Z_ERRNO   ? "it cannot be read"
                                           : "its compressed data is damaged");
    }
    return std::size_t(read);
  };
}

}  // namespace plimsoll
