// Journal: what a calibration has measured so far, a line for each test, so that a run that was
// killed can go on where it ended.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "base/units.h"
#include "models/calibration.h"

namespace plimsoll {

struct JournalEntry {
  std::string test;      ///< key of a CalibrationTest
  Calibration measured;  ///< what came of it, and nothing else
  bool unsteady = false;
  Seconds took;  ///< to measure
};

/// A file of JSON lines, written by one process. Its first line says what is measured; each other
/// one is a finished test, written at once and synced before the next begins.
class Journal {
 public:
  /// With `resume` reads what an earlier run finished, where there is such a file; a last line that
  /// was not written to its end, and lines that are none of a journal, are passed over. Without, or
  /// without a file, begins a new one. Throws InputError where the file is of other `settings`,
  /// EnvironmentError where it cannot be written.
  Journal(std::filesystem::path path, const std::string& settings, bool resume);

  const std::vector<JournalEntry>& finished() const { return finished_; }
  std::size_t passed_over() const { return passed_over_; }  ///< lines
  void add(const JournalEntry& entry);

 private:
  std::size_t read(const std::string& settings);
  void append(const std::string& line);

  /// Closes what it holds.
  struct File {
    int descriptor = -1;
    File() = default;
    ~File();
    File(const File&) = delete;
    File& operator=(const File&) = delete;
  };

  std::filesystem::path path_;
  File file_;
  std::vector<JournalEntry> finished_;
  std::size_t passed_over_ = 0;
};

/// Beside the calibration that it becomes. Whoever has written that removes it.
std::filesystem::path journal_of(const std::filesystem::path& calibration);

}  // namespace plimsoll
