// Files of checkpoints are made and written.
#include "runtime/checkpoint/writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>

#include "base/error.h"

namespace plimsoll {
namespace {

[[noreturn]] void cannot(const char* what, const std::filesystem::path& path, int error) {
  throw EnvironmentError(
      fmt::format("cannot {} {}: {}", what, path.string(), std::generic_category().message(error)));
}

void write_at(int file, const std::filesystem::path& path, const char* bytes, std::size_t count,
              std::int64_t place) {
  while (count > 0) {
    const ssize_t written = ::pwrite(file, bytes, count, place);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) cannot("write", path, written == 0 ? ENOSPC : errno);
    bytes += written;
    place += written;
    count -= std::size_t(written);
  }
}

/// Takes the room of a whole file, so that a full disk shows at once.
void reserve(int file, const std::filesystem::path& path, std::int64_t bytes) {
  int error = 0;
  do error = ::posix_fallocate(file, 0, bytes);
  while (error == EINTR);
  if (error == EOPNOTSUPP || error == EINVAL) error = ::ftruncate(file, bytes) == 0 ? 0 : errno;
  if (error != 0) cannot("make room for", path, error);
}

/// Opens a folder that this program has made. A symbolic link in its place is refused, since files
/// would be written elsewhere.
Descriptor open_folder(const std::filesystem::path& folder) {
  Descriptor opened(uninterrupted(
      [&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); }));
  // A process on another host finds no folder where it is not shared.
  if (opened.get() < 0) cannot("open", folder, errno);
  return opened;
}

/// Opens a file of an open folder, and follows no symbolic link. `what` names the attempt.
Descriptor open_file(const Descriptor& folder, const std::filesystem::path& path, int flags,
                     const char* what) {
  const std::string name = path.filename().string();
  Descriptor file(uninterrupted([&] {
    return ::openat(folder.get(), name.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC | flags, 0666);
  }));
  if (file.get() < 0) cannot(what, path, errno);
  return file;
}

}  // namespace

void make_files(const std::filesystem::path& folder, std::span<const LaidFile> files) {
  const Descriptor opened = open_folder(folder);
  for (const LaidFile& one : files) {
    const std::filesystem::path path = folder / one.name;
    Descriptor file = open_file(opened, path, O_CREAT | O_EXCL, "make");
    reserve(file.get(), path, one.bytes);
    write_at(file.get(), path, one.header.data(), one.header.size(), 0);
    // Linux closes a file whose close() a signal interrupts.
    if (::close(file.release()) != 0 && errno != EINTR) cannot("close", path, errno);
  }
}

std::string to_bytes(const WrittenSums& sums) {
  std::string bytes;
  for (const auto& file : sums.files)
    bytes.append(reinterpret_cast<const char*>(file.data()),
                 file.size() * sizeof(WrittenSums::Sum));
  return bytes;
}

void add(WrittenSums& sums, const std::string& bytes) {
  std::size_t place = 0;
  for (auto& file : sums.files) {
    for (WrittenSums::Sum& sum : file) {
      WrittenSums::Sum other;
      if (place + sizeof(other) > bytes.size())
        throw std::runtime_error("another process saved other tensors than this one");
      std::memcpy(&other, bytes.data() + place, sizeof(other));
      place += sizeof(other);
      sum.elements += other.elements;
      sum.checksum += other.checksum;
    }
  }
}

CheckpointWriter::CheckpointWriter(const std::filesystem::path& folder,
                                   std::span<const LaidFile> files, std::size_t tensors)
    : files_(files) {
  const Descriptor opened = open_folder(folder);
  for (const LaidFile& one : files) {
    paths_.push_back(folder / one.name);
    descriptors_.push_back(open_file(opened, paths_.back(), 0, "open"));
  }
  sums_.files.assign(files.size(), std::vector<WrittenSums::Sum>(tensors));
}

void CheckpointWriter::write(KeptKind kind, const std::string& tensor, std::int64_t first,
                             std::span<const float> values) {
  const auto file = std::size_t(kind);
  INVARIANT(file < files_.size(), "a moment that the optimizer has");
  const auto found = files_[file].tensors.find(tensor);
  INVARIANT(found != files_[file].tensors.end(), "a tensor of the state");
  const LaidTensor& laid = found->second;
  INVARIANT(first >= 0 && first + std::int64_t(values.size()) <= laid.elements,
            "elements of the tensor");
  write_at(descriptors_[file].get(), paths_[file], reinterpret_cast<const char*>(values.data()),
           values.size_bytes(), laid.begin + first * std::int64_t(sizeof(float)));
  WrittenSums::Sum& sum = sums_.files[file][laid.index];
  sum.elements += std::int64_t(values.size());
  sum.checksum += checksum(first, values);
}

void CheckpointWriter::sync() {
  for (std::size_t i = 0; i < descriptors_.size(); ++i) {
    if (uninterrupted([&] { return ::fsync(descriptors_[i].get()); }) != 0)
      cannot("sync", paths_[i], errno);
    if (::close(descriptors_[i].release()) != 0 && errno != EINTR)
      cannot("close", paths_[i], errno);
  }
}

void add_tensors(CheckpointRecord& record, std::span<const WholeTensor> tensors,
                 std::span<const LaidFile> files, const WrittenSums& sums) {
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    CheckpointTensor& tensor = record.tensors.emplace_back();
    tensor.name = tensors[index].name;
    tensor.shape = tensors[index].shape;
    for (std::size_t file = 0; file < files.size(); ++file) {
      const auto laid = files[file].tensors.find(tensor.name);
      if (laid == files[file].tensors.end()) continue;
      const WrittenSums::Sum& sum = sums.files[file][index];
      if (sum.elements != laid->second.elements) {
        throw std::runtime_error(fmt::format("of {} in {}, {} of {} elements were written",
                                             tensor.name, files[file].name, sum.elements,
                                             laid->second.elements));
      }
      tensor.checksums.push_back(sum.checksum);
    }
  }
}

}  // namespace plimsoll
