// Folders of checkpoints are locked, found, renamed and removed.
#include "runtime/checkpoint/folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "runtime/checkpoint/layout.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStep = "step-", kHiddenStep = ".step-";
constexpr std::string_view kUnfinished = ".part", kReplaced = ".old";

[[noreturn]] void cannot(const char* what, const fs::path& path, const std::error_code& error) {
  throw EnvironmentError(fmt::format("cannot {} {}: {}", what, path.string(), error.message()));
}
[[noreturn]] void cannot(const char* what, const fs::path& path) {
  cannot(what, path, std::error_code(errno, std::generic_category()));
}

/// Returns N of the name PREFIX N SUFFIX.
std::optional<std::int64_t> step_of(const fs::path& path, std::string_view prefix,
                                    std::string_view suffix) {
  const std::string name = path.filename().string();
  if (!name.starts_with(prefix) || !name.ends_with(suffix)) return std::nullopt;
  std::int64_t step = 0;
  const char* const begin = name.data() + prefix.size();
  const char* const end = name.data() + name.size() - suffix.size();
  const auto [stop, error] = std::from_chars(begin, end, step);
  if (begin >= end || stop != end || error != std::errc() || step < 0) return std::nullopt;
  return step;
}

std::vector<std::int64_t> steps_in(const fs::path& folder) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const auto step = step_of(at->path(), kStep, "");
    std::error_code missing;
    if (step && fs::is_regular_file(at->path() / kRecordName, missing)) steps.push_back(*step);
  }
  if (error) cannot("read", folder, error);
  std::sort(steps.begin(), steps.end());
  return steps;
}

fs::path named(const fs::path& folder, std::string_view prefix, std::int64_t step,
               std::string_view suffix) {
  return folder / fmt::format("{}{}{}", prefix, step, suffix);
}

/// Calls a function of the standard library again while a signal interrupts it.
template <class Call>
void carry_out(const char* what, const fs::path& path, Call call) {
  std::error_code error;
  do {
    error.clear();
    call(path, error);
  } while (error == std::errc::interrupted);
  if (error) cannot(what, path, error);
}

void remove_folder(const fs::path& path) {
  carry_out("remove", path,
            [](const fs::path& at, std::error_code& error) { fs::remove_all(at, error); });
}

void rename_folder(const fs::path& from, const fs::path& to) {
  if (uninterrupted([&] { return ::rename(from.c_str(), to.c_str()); }) != 0)
    cannot("rename", from);
}

}  // namespace

fs::path find_checkpoint(const fs::path& path) {
  std::error_code error;
  if (fs::is_regular_file(path / kRecordName, error)) return path;
  if (!fs::is_directory(path, error))
    throw InputError(path.string(), "", "it is no folder; one with checkpoints is required");
  const std::vector<std::int64_t> steps = steps_in(path);
  if (steps.empty()) {
    throw InputError(path.string(), "",
                     fmt::format("it has no checkpoint: neither {} nor folders such as {}100",
                                 kRecordName, kStep));
  }
  return named(path, kStep, steps.back(), "");
}

std::optional<std::int64_t> step_of_name(const fs::path& path) {
  std::error_code error;  // whoever reads from the folder says so
  return step_of(fs::weakly_canonical(path, error), kStep, "");
}

void sync_path(const fs::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) cannot("open", path);
  if (uninterrupted([&] { return ::fsync(file.get()); }) != 0) cannot("sync", path);
}

void make_folder(const fs::path& path) {
  if (uninterrupted([&] { return ::mkdir(path.c_str(), 0777); }) != 0) cannot("make", path);
}

fs::path unfinished_checkpoint(const fs::path& folder, std::int64_t step) {
  return named(folder, kHiddenStep, step, kUnfinished);
}

CheckpointFolder::CheckpointFolder(fs::path path, std::int64_t keep)
    : path_(std::move(path)), keep_(keep) {
  carry_out("make", path_,
            [](const fs::path& at, std::error_code& error) { fs::create_directories(at, error); });
  const fs::path lock = path_ / ".lock";
  lock_ = open_in_place(lock, O_RDWR);
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK)
      throw EnvironmentError(
          fmt::format("another run saves its checkpoints in {}", path_.string()));
    cannot("lock", lock);
  }
  tidy();
}

void CheckpointFolder::tidy() const {
  std::vector<fs::path> left;
  std::error_code error;
  for (fs::directory_iterator at(path_, error), end; !error && at != end; at.increment(error))
    left.push_back(at->path());
  if (error) cannot("read", path_, error);
  for (const fs::path& one : left) {
    if (step_of(one, kHiddenStep, kUnfinished)) remove_folder(one);
    const auto replaced = step_of(one, kHiddenStep, kReplaced);
    if (!replaced) continue;
    // A run was killed between the two renames of finish().
    if (!fs::exists(of_step(*replaced), error) && fs::exists(one / kRecordName, error)) {
      rename_folder(one, of_step(*replaced));
    } else {
      remove_folder(one);
    }
  }
}

std::vector<std::int64_t> CheckpointFolder::steps() const { return steps_in(path_); }

fs::path CheckpointFolder::of_step(std::int64_t step) const {
  return named(path_, kStep, step, "");
}

fs::path CheckpointFolder::unfinished(std::int64_t step) const {
  return unfinished_checkpoint(path_, step);
}

void CheckpointFolder::begin(std::int64_t step) const {
  const fs::path folder = unfinished(step);
  remove_folder(folder);
  make_folder(folder);
}

void CheckpointFolder::finish(std::int64_t step) const {
  const fs::path made = unfinished(step), name = of_step(step);
  const fs::path replaced = named(path_, kHiddenStep, step, kReplaced);
  sync_path(made);
  std::error_code error;
  const bool replaces = fs::exists(name, error);
  if (!replaces) {
    rename_folder(made, name);
  } else if (::renameat2(AT_FDCWD, made.c_str(), AT_FDCWD, name.c_str(), RENAME_EXCHANGE) == 0) {
    remove_folder(made);
  } else {  // not every file system exchanges names
    rename_folder(name, replaced);
    rename_folder(made, name);
    remove_folder(replaced);
  }
  sync_path(path_);
  std::vector<std::int64_t> all = steps();
  for (std::size_t i = 0; i + std::size_t(keep_) < all.size(); ++i) {
    // Its name goes first, so that no half of it is ever found.
    const fs::path old = named(path_, kHiddenStep, all[i], kUnfinished);
    rename_folder(of_step(all[i]), old);
    remove_folder(old);
  }
}

void CheckpointFolder::abandon() const noexcept {
  try {
    tidy();
  } catch (const std::exception&) {  // the failure of the checkpoint itself is what a user is told
  }
}

}  // namespace plimsoll
