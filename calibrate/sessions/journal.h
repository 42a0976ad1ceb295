// Journal: what a calibration has measured so far, a line for each test, so that a run that was
// killed can go on where it ended.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "models/calibration/calibration.h"

namespace plimsoll {

struct JournalEntry {
  std::string test;      ///< key of a CalibrationTest
  Calibration measured;  ///< what came of it, and nothing else
  bool unsteady = false;
  Seconds took;  ///< to measure
};

/// A file of JSON lines, written by one process. Its first line says what is measured; each other
/// one is a finished test, or names tests that are not trusted any more, written at once and synced
/// before the next begins.
class Journal {
 public:
  /// With `resume` reads what an earlier run finished, where there is such a file; a last line that
  /// was not written to its end, and lines that are none of a journal, are passed over. Without, or
  /// without a file, begins a new one. Throws InputError where the file is of other `settings`,
  /// EnvironmentError where it cannot be written.
  Journal(std::filesystem::path path, const std::string& settings, bool resume);

  /// In the order in which they were written; a test that was measured twice is there twice, one
  /// that was discarded and not measured since is not.
  const std::vector<JournalEntry>& finished() const { return finished_; }
  std::size_t passed_over() const { return passed_over_; }  ///< lines
  void add(const JournalEntry& entry);
  /// Drops the results of these tests so far.
  void discard(std::span<const std::string> tests);

 private:
  std::size_t read(const std::string& settings);
  void take(std::string_view line);
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

/// A journal of single points, each looked up by its key: of a calibration by one process, which
/// measures them in an order of its own.
class PointJournal {
 public:
  /// With an empty path nothing is known and nothing is kept. Otherwise it is as Journal.
  PointJournal(const std::filesystem::path& path, const std::string& settings, bool resume,
               std::string date);

  /// Puts the result of an earlier run into `point`. False: it was not measured.
  bool restore(const std::string& key, MatmulPoint& point);
  bool restore(const std::string& key, OpPoint& point);
  bool restore(const std::string& key, CollectivePoint& point);
  void keep(const std::string& key, const MatmulPoint& point);
  void keep(const std::string& key, const OpPoint& point);
  void keep(const std::string& key, const CollectivePoint& point);
  std::size_t restored() const { return restored_; }  ///< points

 private:
  template <class Point>
  bool restore_from(const std::string& key, Point& point, std::vector<Point> Calibration::*list);
  template <class Point>
  void keep_in(const std::string& key, const Point& point, std::vector<Point> Calibration::*list);

  std::optional<Journal> journal_;
  std::string date_;
  std::map<std::string, Calibration> known_;
  std::size_t restored_ = 0;
};

/// Beside the calibration that it becomes. Whoever has written that removes it.
std::filesystem::path journal_of(const std::filesystem::path& calibration);

}  // namespace plimsoll
