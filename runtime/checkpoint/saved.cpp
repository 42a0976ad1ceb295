// Checkpoints are read, with all that they say held against their files.
#include "runtime/checkpoint/saved.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/safetensors.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kFloat = sizeof(float);

/// Fields of a job that may change when its training goes on. They say how it is trained, or how it
/// is predicted.
constexpr std::string_view kMayChange[] = {"/name",
                                           "/clip_norm",
                                           "/dropout",
                                           "/experts/load",
                                           "/loss_scale",
                                           "/optimizer/learning_rate",
                                           "/optimizer/weight_decay",
                                           "/optimizer/beta1",
                                           "/optimizer/beta2",
                                           "/optimizer/epsilon",
                                           "/optimizer/momentum",
                                           "/optimizer/groups"};

bool may_change(std::string_view pointer) {
  return std::ranges::any_of(kMayChange, [&](std::string_view one) {
    return pointer == one || (pointer.starts_with(one) && pointer[one.size()] == '/');
  });
}

/// A FieldChange is a value of a job that another job has otherwise, or not at all.
struct FieldChange {
  std::string pointer, before, after;
};

void compare(const Json& before, const Json& after, const std::string& pointer,
             std::vector<FieldChange>& changes) {
  if (before == after) return;
  if (!before.is_object() || !after.is_object()) {
    changes.push_back({pointer, before.dump(), after.dump()});
    return;
  }
  for (const auto& [key, value] : before.items()) {
    const auto other = after.find(key);
    compare(value, other == after.end() ? Json() : *other, json_pointer(pointer, key), changes);
  }
  for (const auto& [key, value] : after.items()) {
    if (!before.contains(key)) compare(Json(), value, json_pointer(pointer, key), changes);
  }
}

/// An OpenFile reads a file at any place.
class OpenFile {
 public:
  explicit OpenFile(fs::path path) : path_(std::move(path)) {
    // Without O_NONBLOCK the call would wait for a writer where the file is a pipe.
    file_ = Descriptor(::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    struct stat status = {};
    if (file_.get() < 0 || ::fstat(file_.get(), &status) != 0)
      throw InputError(path_.string(), "", "cannot open: " + reason());
    if (!S_ISREG(status.st_mode)) throw InputError(path_.string(), "", "it is no regular file");
    bytes_ = status.st_size;
  }

  const fs::path& path() const { return path_; }
  std::int64_t bytes() const { return bytes_; }

  void read(std::int64_t place, std::span<std::byte> to) const {
    while (!to.empty()) {
      const ssize_t count = ::pread(file_.get(), to.data(), to.size(), place);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0)
        throw EnvironmentError(fmt::format("cannot read {}: {}", path_.string(), reason()));
      if (count == 0)
        throw InputError(path_.string(), "", fmt::format("it ends at byte {}", place));
      place += count;
      to = to.subspan(std::size_t(count));
    }
  }
  std::string text(std::int64_t bytes) const {
    std::string text(std::size_t(bytes), '\0');
    read(0, std::as_writable_bytes(std::span(text)));
    return text;
  }

 private:
  static std::string reason() { return std::generic_category().message(errno); }

  fs::path path_;
  Descriptor file_;
  std::int64_t bytes_ = 0;
};

/// Reads the header of a file, and checks that it has the tensors which the record names for it.
LaidFile read_layout(const OpenFile& file, const CheckpointRecord& record, std::size_t number) {
  const std::string path = file.path().string();
  const std::int64_t start =
      safetensors_start(file.text(std::min<std::int64_t>(8, file.bytes())), file.bytes(), path);
  LaidFile laid;
  laid.name = file.path().filename().string();
  laid.bytes = file.bytes();
  for (const SafeTensor& tensor : parse_safetensors(file.text(start), file.bytes(), path))
    laid.tensors[tensor.name] = {0, tensor.begin, (tensor.end - tensor.begin) / kFloat};
  std::size_t named = 0;
  for (std::size_t i = 0; i < record.tensors.size(); ++i) {
    const CheckpointTensor& tensor = record.tensors[i];
    if (number >= tensor.checksums.size()) continue;
    const std::string pointer = json_pointer("", tensor.name);
    const auto found = laid.tensors.find(tensor.name);
    if (found == laid.tensors.end())
      throw InputError(path, pointer,
                       fmt::format("{} names this tensor; it is missing", kRecordName));
    found->second.index = i;
    ++named;
  }
  for (const SafeTensor& tensor : parse_safetensors(file.text(start), file.bytes(), path)) {
    const std::string pointer = json_pointer("", tensor.name);
    const CheckpointTensor& wanted = record.tensors[laid.tensors[tensor.name].index];
    if (wanted.name != tensor.name || number >= wanted.checksums.size())
      throw InputError(path, pointer, fmt::format("{} does not name this tensor", kRecordName));
    if (tensor.dtype != "F32")
      throw InputError(path, pointer + "/dtype",
                       fmt::format("found {}; F32 is required", tensor.dtype));
    const bool factored = number > 0 && record.job.optimizer.kind == OptimizerKind::adafactor;
    if (tensor.shape != wanted.shape && !factored)  // check_tensors() sees the others
      throw InputError(path, pointer + "/shape",
                       fmt::format("it is not the shape that {} names", kRecordName));
  }
  if (named != laid.tensors.size())
    throw InputError(path, "", fmt::format("{} names a tensor twice", kRecordName));
  return laid;
}

/// A FileReader gives the values of a checkpoint to one rank. Parts of a tensor may be many short
/// runs, so it reads further than it was asked and keeps that.
class FileReader final : public StateReader {
 public:
  FileReader(const fs::path& folder, std::span<const LaidFile> files,
             const CheckpointRecord& record)
      : laid_(files), record_(record) {
    for (const LaidFile& file : files) files_.emplace_back(folder / file.name);
    windows_.resize(files.size());
  }

  void read(KeptKind kind, const std::string& tensor, std::int64_t first,
            std::span<float> values) override {
    const auto number = std::size_t(kind);
    INVARIANT(number < files_.size(), "check_tensors() has seen the moments");
    const auto found = laid_[number].tensors.find(tensor);
    INVARIANT(found != laid_[number].tensors.end(), "check_tensors() has seen the tensor");
    const LaidTensor& laid = found->second;
    const std::int64_t place = laid.begin + first * kFloat;
    const auto to = std::as_writable_bytes(values);
    if (values.size_bytes() >= kWindow) return files_[number].read(place, to);
    Window& window = windows_[number];
    const std::int64_t end = place + std::int64_t(to.size());
    if (place < window.place || end > window.place + std::int64_t(window.bytes.size())) {
      const std::int64_t rest = laid.begin + laid.elements * kFloat - place;
      window.place = place;
      window.bytes.resize(std::min(kWindow, std::size_t(rest)));
      files_[number].read(place, window.bytes);
    }
    std::memcpy(to.data(), window.bytes.data() + (place - window.place), to.size());
  }

  Scalars scalars() const override {
    Scalars scalars = {};
    const auto set = [&](Scalar which, double value) {
      scalars[std::size_t(which)] = float(value);
    };
    set(Scalar::step, double(record_.updates));
    set(Scalar::loss_scale, record_.loss_scale);
    set(Scalar::good_steps, double(record_.good_steps));
    set(Scalar::skipped, double(record_.skipped_steps));
    set(Scalar::found, record_.overflowed ? 1 : 0);
    return scalars;
  }

 private:
  static constexpr std::size_t kWindow = 1 << 18;
  struct Window {
    std::int64_t place = 0;
    std::vector<std::byte> bytes;
  };

  std::span<const LaidFile> laid_;
  const CheckpointRecord& record_;
  std::vector<OpenFile> files_;
  std::vector<Window> windows_;
};

}  // namespace

SavedCheckpoint::SavedCheckpoint(const fs::path& path) : folder_(find_checkpoint(path)) {
  const fs::path record = folder_ / kRecordName;
  record_ = parse_checkpoint(read_file(record), record.string());
  const auto named = step_of_name(folder_);
  if (named && *named != record_.step) {  // renamed, it would pass for the latest
    throw InputError(record.string(), "/step",
                     fmt::format("found {}; a folder of the name step-{} is of step {}",
                                 record_.step, *named, *named));
  }
  for (const std::string& name : file_names(record_.moments.size()))
    files_.push_back(read_layout(OpenFile(folder_ / name), record_, files_.size()));
}

std::vector<std::string> SavedCheckpoint::check_job(const Job& job) const {
  // Files leave out what follows from other fields, so both jobs are compared as they are read.
  const Job now = parse_job(job_text(job), "job");
  std::vector<FieldChange> changes;
  compare(parse_json(job_text(record_.job), "job"), parse_json(job_text(now), "job"), "", changes);
  std::vector<std::string> allowed;
  for (const FieldChange& change : changes) {
    const std::string difference = fmt::format("{} in the checkpoint, {} now",
                                               printable(change.before), printable(change.after));
    if (may_change(change.pointer)) {
      allowed.push_back(fmt::format("{} of the job is {}", change.pointer, difference));
      continue;
    }
    throw InputError((folder_ / kRecordName).string(), "/job" + change.pointer,
                     fmt::format("it is a checkpoint of another job: {}", difference));
  }
  return allowed;
}

void SavedCheckpoint::check_tensors(std::span<const Program> programs) const {
  const std::string file = (folder_ / kRecordName).string();
  if (record_.moments.size() != kept_moments(programs)) {
    throw InputError(file, "/moments",
                     fmt::format("found {} moments; the job's optimizer has {}",
                                 record_.moments.size(), kept_moments(programs)));
  }
  const std::vector<WholeTensor> wanted = whole_tensors(programs);
  for (const WholeTensor& one : wanted) {
    const auto found = std::ranges::find(record_.tensors, one.name, &CheckpointTensor::name);
    if (found == record_.tensors.end())
      throw InputError(file, "/tensors", fmt::format("{} is missing", one.name));
    bool fits = found->shape == one.shape && found->checksums.size() == 1 + one.moments.size();
    for (std::size_t i = 0; fits && i < one.moments.size(); ++i)
      fits = files_[1 + i].tensors.at(one.name).elements == elements(one.moments[i]);
    if (!fits) {
      throw InputError(
          file, fmt::format("/tensors/{}", found - record_.tensors.begin()),
          fmt::format("{} has another shape, or other moments, in this job", one.name));
    }
  }
  if (wanted.size() != record_.tensors.size())
    throw InputError(
        file, "/tensors",
        fmt::format("found {} tensors; the job has {}", record_.tensors.size(), wanted.size()));
}

void SavedCheckpoint::check_values() const {
  std::vector<float> values(std::size_t{1} << 20);
  for (std::size_t number = 0; number < files_.size(); ++number) {
    const OpenFile file(folder_ / files_[number].name);
    for (const auto& [name, laid] : files_[number].tensors) {
      std::uint64_t sum = 0;
      for (std::int64_t first = 0; first < laid.elements; first += std::ssize(values)) {
        const auto some = std::span(values).first(
            std::size_t(std::min<std::int64_t>(std::ssize(values), laid.elements - first)));
        file.read(laid.begin + first * kFloat, std::as_writable_bytes(some));
        sum += checksum(first, some);
      }
      if (sum == record_.tensors[laid.index].checksums[number]) continue;
      throw InputError(
          file.path().string(), json_pointer("", name),
          fmt::format("its values are not those that were saved: their checksum is "
                      "{:016x}, that of {} is {:016x}",
                      sum, kRecordName, record_.tensors[laid.index].checksums[number]));
    }
  }
}

std::unique_ptr<StateReader> SavedCheckpoint::reader() const {
  return std::make_unique<FileReader>(folder_, files_, record_);
}

}  // namespace plimsoll
