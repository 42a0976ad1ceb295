// Journals: what was finished is read back exactly; what was not written to its end is not.
#include "calibrate/sessions/journal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"

namespace plimsoll {
namespace {

class JournalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "journalXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    path_ = folder_ / "calibration.json.journal";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static JournalEntry entry(std::int64_t i) {
    JournalEntry entry;
    entry.test = "all_reduce bytes=" + std::to_string(i);
    CollectivePoint point;
    point.ranks = 2;
    point.payload = Bytes(i);
    point.time = {Seconds(1e-5 / 3 * double(i)), Seconds(1e-7 / 7), 7, false};
    point.communicator = CommunicatorKind::mpi;
    entry.measured.date = "2026-11-21";
    entry.measured.collectives = {point};
    entry.unsteady = i % 2 == 1;
    entry.took = Seconds(0.1 / 3);
    return entry;
  }
  void write(int count) const {
    Journal journal(path_, "settings", false);
    for (int i = 1; i <= count; ++i) journal.add(entry(i));
  }
  void expect_entries(const Journal& journal, int count) const {
    ASSERT_EQ(journal.finished().size(), std::size_t(count));
    for (int i = 1; i <= count; ++i) {
      const JournalEntry& found = journal.finished()[std::size_t(i) - 1];
      const JournalEntry expected = entry(i);
      EXPECT_EQ(found.test, expected.test);
      EXPECT_EQ(found.measured, expected.measured);
      EXPECT_EQ(found.unsteady, expected.unsteady);
      EXPECT_EQ(found.took, expected.took);
    }
  }

  std::filesystem::path folder_, path_;
};

TEST_F(JournalTest, WhatWasFinishedIsReadBackExactly) {
  write(5);
  const Journal journal(path_, "settings", true);
  expect_entries(journal, 5);
  EXPECT_EQ(journal.passed_over(), 0u);
}

TEST_F(JournalTest, CutAtAnyByteItKeepsTheWholeLines) {
  write(3);
  const std::string text = read_file(path_);
  // Every end of a line, and what lies around it; elsewhere now and then.
  for (std::size_t length = 0; length <= text.size(); ++length) {
    const bool near = text.find('\n', length == 0 ? 0 : length - 1) <= length + 1;
    if (!near && length % 97 != 0) continue;
    write_file_atomically(path_, text.substr(0, length));
    const auto lines = std::count(text.begin(), text.begin() + std::ptrdiff_t(length), '\n');
    {
      Journal journal(path_, "settings", true);
      expect_entries(journal, std::max(0, int(lines) - 1));
      journal.add(entry(9));
    }
    // The next entry is a line of its own.
    const Journal again(path_, "settings", true);
    EXPECT_EQ(again.passed_over(), 0u) << length;
    EXPECT_EQ(again.finished().back().test, entry(9).test) << length;
  }
}

TEST_F(JournalTest, ALinkIsRefusedAndItsTargetIsKept) {
  const std::filesystem::path target = folder_ / "kept";
  write_file_atomically(target, "kept");
  std::filesystem::create_symlink(target, path_);
  for (const bool resume : {false, true}) {
    try {
      const Journal journal(path_, "settings", resume);
      ADD_FAILURE() << "a link is followed";
    } catch (const EnvironmentError& error) {
      EXPECT_NE(std::string(error.what()).find(path_.string() + ": it is a symbolic link"),
                std::string::npos)
          << error.what();
    }
  }
  EXPECT_EQ(read_file(target), "kept");
}

TEST_F(JournalTest, LinesOfGarbageArePassedOver) {
  write(2);
  std::string text = read_file(path_);
  text += "{\"test\": \"x\"}\nnothing\n\x01\x02\n" + text.substr(text.find('\n') + 1);
  write_file_atomically(path_, text + "{\"test\": ");
  const Journal journal(path_, "settings", true);
  EXPECT_EQ(journal.finished().size(), 4u);
  EXPECT_EQ(journal.passed_over(), 4u);
}

TEST_F(JournalTest, WhatWasDiscardedDoesNotComeBackUnlessItWasMeasuredSince) {
  {
    Journal journal(path_, "settings", false);
    for (int i = 1; i <= 4; ++i) journal.add(entry(i));
    journal.discard(std::vector<std::string>{entry(3).test, entry(4).test});
    journal.add(entry(4));
  }
  const Journal journal(path_, "settings", true);
  EXPECT_EQ(journal.passed_over(), 0u);
  std::vector<std::string> kept;
  for (const JournalEntry& one : journal.finished()) kept.push_back(one.test);
  EXPECT_EQ(kept, (std::vector<std::string>{entry(1).test, entry(2).test, entry(4).test}));
}

TEST_F(JournalTest, OtherSettingsAreRefusedAndNoResumeBeginsAnew) {
  write(2);
  try {
    const Journal journal(path_, "other", true);
    FAIL() << "taken for the same";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("--resume"), std::string::npos) << error.what();
  }
  const Journal journal(path_, "other", false);
  EXPECT_TRUE(journal.finished().empty());
  const std::string text = read_file(path_);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

TEST_F(JournalTest, OneWritesAtATime) {
  const Journal journal(path_, "settings", false);
  EXPECT_THROW(Journal(path_, "settings", true), EnvironmentError);
  EXPECT_THROW(Journal(folder_ / "nowhere" / "j", "settings", true), EnvironmentError);
}

TEST_F(JournalTest, AFullDiskIsSaid) {
  signal(SIGXFSZ, SIG_IGN);  // writes beyond the limit then fail with EFBIG, as a full disk would
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 4;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(Journal(path_, "settings", false), EnvironmentError);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THROW(Journal("/dev/full", "settings", false), EnvironmentError);  // no regular file
}

}  // namespace
}  // namespace plimsoll
