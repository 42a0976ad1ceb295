// A journal holds the tests that a calibration has finished, one line for each, so that a killed
// run can continue.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
#include "base/units.h"
#include "models/calibration/calibration.h"

namespace plimsoll {

struct JournalEntry {
  std::string test;      ///< key of a CalibrationTest
  Calibration measured;  ///< the result of this test alone
  bool unsteady = false;
  Seconds took;  ///< time that the measurement took
};

/// A JournalText is what the text of a journal says.
struct JournalText {
  std::vector<JournalEntry> finished;  ///< tests, as Journal::finished() returns them
  std::size_t passed_over = 0;         ///< lines that were skipped
  /// up to the end of the last whole line; 0 where no run can continue from the text
  std::size_t bytes = 0;
};
/// Reads a journal. Throws InputError at `file` where its first line is none of a journal, or of
/// one with other `settings`. Other lines that do not belong in a journal are skipped, as is a last
/// line that was not written to its end.
JournalText parse_journal(std::string_view text, const std::string& settings,
                          const std::string& file);
/// Returns the first line of a journal, with its end.
std::string journal_begin(const std::string& settings);
/// Returns the line of a finished test, with its end.
std::string journal_line(const JournalEntry& entry);

/// A Journal is a file of JSON lines, written by one process. Its first line says what is measured.
/// Each other line is a finished test, or names tests that are no longer trusted. A line is written
/// at once and synced before the next test begins.
class Journal {
 public:
  /// With `resume`, reads the tests that an earlier run finished, where there is such a file.
  /// Otherwise a new file is begun. Throws InputError as parse_journal() does, and EnvironmentError
  /// where the file cannot be written, as where it is a symbolic link.
  Journal(std::filesystem::path path, const std::string& settings, bool resume);

  /// Returns the finished tests in the order in which they were written. A test that was measured
  /// twice is there twice. A test that was discarded and not measured since is not there.
  const std::vector<JournalEntry>& finished() const { return read_.finished; }
  std::size_t passed_over() const { return read_.passed_over; }  ///< lines that were skipped
  void add(const JournalEntry& entry);
  /// Drops the results of these tests so far.
  void discard(std::span<const std::string> tests);

 private:
  void append(const std::string& line);

  std::filesystem::path path_;
  Descriptor file_;
  JournalText read_;
};

/// Returns the path of the journal, which lies beside the calibration. The code that writes the
/// calibration removes it.
std::filesystem::path journal_of(const std::filesystem::path& calibration);

}  // namespace plimsoll
