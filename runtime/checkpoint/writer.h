// Ranks write their parts of a checkpoint, each at its place in files of whole tensors.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "plan/checkpoint.h"
#include "runtime/checkpoint/layout.h"

namespace plimsoll {

/// Makes the files with their headers, as long as they will be. Throws EnvironmentError, also where
/// there is no room for them.
void make_files(const std::filesystem::path& folder, std::span<const LaidFile> files);

/// WrittenSums are what one rank wrote of each tensor, by file and index of the tensor.
struct WrittenSums {
  struct Sum {
    std::int64_t elements = 0;
    std::uint64_t checksum = 0;
  };
  std::vector<std::vector<Sum>> files;
};
std::string to_bytes(const WrittenSums& sums);
/// Adds what another rank of the run sent.
void add(WrittenSums& sums, const std::string& bytes);

class CheckpointWriter final : public StateWriter {
 public:
  /// Opens files that make_files() made in `folder`. `files` outlives the writer.
  CheckpointWriter(const std::filesystem::path& folder, std::span<const LaidFile> files,
                   std::size_t tensors);
  void write(KeptKind kind, const std::string& tensor, std::int64_t first,
             std::span<const float> values) override;
  /// Returns when storage has all that was written.
  void sync();
  const WrittenSums& sums() const { return sums_; }

 private:
  std::span<const LaidFile> files_;
  std::vector<std::filesystem::path> paths_;
  std::vector<Descriptor> descriptors_;
  WrittenSums sums_;
};

/// Adds the tensors with their checksums to a record. Throws std::runtime_error where some element
/// was not written.
void add_tensors(CheckpointRecord& record, std::span<const WholeTensor> tensors,
                 std::span<const LaidFile> files, const WrittenSums& sums);

}  // namespace plimsoll
