// Files: bounded reads, and writes that are whole or not there.
#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include "base/error.h"

namespace plimsoll {
namespace {

/// A folder of its own for each test, removed with it.
class File : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "plimsoll-file-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::size_t entries() const {
    const std::filesystem::directory_iterator all(folder_);
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }
  std::filesystem::path folder_;
};

TEST_F(File, WritesAndReplaces) {
  const auto path = folder_ / "a.json";
  write_file_atomically(path, "first");
  EXPECT_EQ(read_file(path), "first");
  write_file_atomically(path, std::string(100'000, 'x'));
  EXPECT_EQ(read_file(path), std::string(100'000, 'x'));
  write_file_atomically(path, "");
  EXPECT_EQ(read_file(path), "");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(File, NewFileIsReadableLikeAnyOther) {
  const auto path = folder_ / "a.json", other = folder_ / "b.json";
  write_file_atomically(path, "x");
  std::ofstream(other) << "x";
  EXPECT_EQ(std::filesystem::status(path).permissions(),
            std::filesystem::status(other).permissions());
}

TEST_F(File, FailedWriteKeepsTheOldBytesAndLeavesNothing) {
  const auto path = folder_ / "a.json";
  write_file_atomically(path, "old");
  signal(SIGXFSZ, SIG_IGN);  // writes beyond the limit then fail with EFBIG, as a full disk would
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 1000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(write_file_atomically(path, std::string(5000, 'n')), EnvironmentError);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(File, RefusesWhatIsNoRegularFile) {
  EXPECT_THROW(write_file_atomically(folder_, "x"), EnvironmentError);
  EXPECT_THROW(write_file_atomically(folder_ / "missing" / "a.json", "x"), EnvironmentError);
  EXPECT_THROW(write_file_atomically("/dev/null", "x"), EnvironmentError);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_EQ(entries(), 0u);
}

TEST_F(File, WritesThroughASymbolicLink) {
  const auto path = folder_ / "a.json", link = folder_ / "link.json";
  write_file_atomically(path, "old");
  std::filesystem::create_symlink("a.json", link);
  write_file_atomically(link, "new");
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(read_file(path), "new");
}

TEST_F(File, WritesThroughLinksToAFileThatIsNotThereYet) {
  std::filesystem::create_directory(folder_ / "inner");
  std::filesystem::create_symlink("inner/second.json", folder_ / "first.json");
  std::filesystem::create_symlink(folder_ / "a.json", folder_ / "inner" / "second.json");
  write_file_atomically(folder_ / "first.json", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder_ / "first.json"));
  EXPECT_TRUE(std::filesystem::is_symlink(folder_ / "inner" / "second.json"));
  EXPECT_TRUE(std::filesystem::is_regular_file(folder_ / "a.json"));
  EXPECT_EQ(read_file(folder_ / "first.json"), "new");

  std::filesystem::create_symlink("none.json", folder_ / "link.json");
  EXPECT_TRUE(same_file(folder_ / "link.json", folder_ / "none.json"));
  EXPECT_FALSE(same_file(folder_ / "link.json", folder_ / "a.json"));

  std::filesystem::create_symlink("missing/a.json", folder_ / "nowhere.json");
  std::filesystem::create_symlink("ring.json", folder_ / "ring.json");
  for (const char* name : {"nowhere.json", "ring.json"}) {
    EXPECT_THROW(check_writable(folder_ / name), EnvironmentError) << name;
    EXPECT_THROW(write_file_atomically(folder_ / name, "x"), EnvironmentError) << name;
    EXPECT_TRUE(std::filesystem::is_symlink(folder_ / name)) << name;
  }
}

TEST_F(File, ReadingHasALimit) {
  const auto path = folder_ / "a.json";
  write_file_atomically(path, "12345678");
  EXPECT_EQ(read_file(path, Bytes(8)), "12345678");
  EXPECT_THROW(read_file(path, Bytes(7)), InputError);
}

TEST_F(File, MissingFileAndDirectoryAreBadInput) {
  try {
    read_file(folder_ / "nothing.json");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_EQ(error.file(), (folder_ / "nothing.json").string());
    EXPECT_NE(std::string(error.what()).find("No such file"), std::string::npos) << error.what();
  }
  EXPECT_THROW(read_file(folder_), InputError);
}

TEST_F(File, CheckWritableRefusesWhatWritingWould) {
  EXPECT_NO_THROW(check_writable(folder_ / "new.json"));
  EXPECT_EQ(entries(), 0u);
  write_file_atomically(folder_ / "old.json", "old");
  EXPECT_NO_THROW(check_writable(folder_ / "old.json"));
  EXPECT_EQ(read_file(folder_ / "old.json"), "old");
  EXPECT_EQ(entries(), 1u);
  EXPECT_THROW(check_writable(folder_), EnvironmentError);
  EXPECT_THROW(check_writable(folder_ / "nowhere" / "a.json"), EnvironmentError);
  EXPECT_THROW(check_writable(folder_ / "old.json" / "a.json"), EnvironmentError);
}

TEST_F(File, TemporaryNameIsRandom) {
  const auto path = folder_ / "a.json";
  const int watch = inotify_init1(IN_NONBLOCK);
  ASSERT_GE(watch, 0);
  ASSERT_GE(inotify_add_watch(watch, folder_.c_str(), IN_CREATE), 0);
  for (int i = 0; i < 8; ++i) write_file_atomically(path, "x");
  alignas(inotify_event) std::array<char, 1 << 14> events;
  const ssize_t bytes = read(watch, events.data(), events.size());
  close(watch);
  std::set<std::string> names;
  for (ssize_t at = 0; at < bytes;) {
    const auto* const event = reinterpret_cast<const inotify_event*>(events.data() + at);
    names.insert(event->name);
    at += ssize_t(sizeof(inotify_event) + event->len);
  }
  EXPECT_EQ(names.size(), 8u);
  const std::regex form("\\.a\\.json\\.[0-9a-f]{16}\\.part");
  for (const std::string& name : names) EXPECT_TRUE(std::regex_match(name, form)) << name;
}

TEST_F(File, OpensInPlaceOnlyRegularFiles) {
  const auto path = folder_ / "a.lock", link = folder_ / "link.lock", pipe = folder_ / "pipe.lock";
  EXPECT_GE(open_in_place(path, O_RDWR).get(), 0);
  write_file_atomically(path, "kept");
  EXPECT_GE(open_in_place(path, O_WRONLY).get(), 0);
  EXPECT_EQ(read_file(path), "kept");
  std::filesystem::create_symlink("new.lock", link);
  try {
    open_in_place(link, O_WRONLY);
    ADD_FAILURE() << "a link is followed";
  } catch (const EnvironmentError& error) {
    EXPECT_EQ(std::string(error.what()),
              "cannot write " + link.string() + ": it is a symbolic link, which is not followed");
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "new.lock"));
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THROW(open_in_place(pipe, O_WRONLY), EnvironmentError);  // it must not wait for a reader
  EXPECT_THROW(open_in_place(pipe, O_RDWR), EnvironmentError);
  EXPECT_THROW(open_in_place(folder_, O_RDWR), EnvironmentError);
}

TEST_F(File, SameFileLooksThroughNamesAndLinks) {
  const auto path = folder_ / "a.json";
  EXPECT_TRUE(same_file(path, folder_ / "." / "a.json"));
  EXPECT_FALSE(same_file(path, folder_ / "b.json"));
  write_file_atomically(path, "a");
  std::filesystem::create_symlink(path, folder_ / "link.json");
  std::filesystem::create_hard_link(path, folder_ / "hard.json");
  EXPECT_TRUE(same_file(path, folder_ / "link.json"));
  EXPECT_TRUE(same_file(path, folder_ / "hard.json"));
  EXPECT_FALSE(same_file(path, folder_ / "b.json"));
}

TEST(Digest, KnownValues) {
  // FIPS 180-2, appendix B.1, and the empty message.
  EXPECT_EQ(digest("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

}  // namespace
}  // namespace plimsoll
