// Command line: what is refused, and with which words and codes.
#include "base/command_line.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "base/file.h"

namespace plimsoll {
namespace {

/// Returns the text and the code that run_program gives when its body throws `error`.
template <class Error>
std::pair<int, std::string> outcome(const Error& error) {
  testing::internal::CaptureStderr();
  const int code = run_program("name", [&]() -> ExitCode { throw error; });
  return {code, testing::internal::GetCapturedStderr()};
}

TEST(RunProgram, AFailureIsOneLineAndItsCode) {
  using Outcome = std::pair<int, std::string>;
  EXPECT_EQ(outcome(UsageError("a\nb")), Outcome(2, "name: a b\n"));
  EXPECT_EQ(outcome(InputError("f", "/x", "bad")), Outcome(3, "name: f: at /x: bad\n"));
  EXPECT_EQ(outcome(InfeasibleError("no")), Outcome(4, "name: no\n"));
  EXPECT_EQ(outcome(EnvironmentError("full")), Outcome(6, "name: full\n"));
  EXPECT_EQ(outcome(std::bad_alloc()),
            Outcome(6, "name: out of memory: the machine has no more for it\n"));
  EXPECT_EQ(outcome(std::system_error(EAGAIN, std::generic_category())).first, 6);
  EXPECT_EQ(outcome(std::runtime_error("bug")), Outcome(1, "name: bug\n"));
  EXPECT_EQ(run_program("name", [] { return ExitCode::outside_tolerance; }), 7);
}

TEST(RunProgram, WhereMemoryIsRefusedNoThreadAndNoDestructorEndsTheProgramOtherwise) {
  const auto refuse = []() -> ExitCode { throw std::bad_alloc(); };
  const auto refuse_in_destructor = [&]() noexcept { return refuse(); };
  const auto refuse_in_thread = [&] {
    std::thread(refuse).join();
    return ExitCode::ok;
  };
  const auto status = testing::ExitedWithCode(6);
  EXPECT_EXIT(std::exit(run_program("name", refuse)), status, "^name: out of memory.*\n$");
  EXPECT_EXIT(run_program("name", refuse_in_destructor), status, "^name: out of memory.*\n$");
  EXPECT_EXIT(run_program("name", refuse_in_thread), status, "^name: out of memory.*\n$");
  const auto fail = []() -> ExitCode { throw std::runtime_error("a bug"); };
  const auto fail_in_destructor = [&]() noexcept { return fail(); };
  EXPECT_EXIT(run_program("name", fail_in_destructor), testing::KilledBySignal(SIGABRT), "a bug");
}

TEST(RunProgram, AWriteBeyondTheLimitOfAFileFailsAsOnAFullDisk) {
  char name[] = "/tmp/plimsoll-limit-XXXXXX";
  ASSERT_NE(mkdtemp(name), nullptr);
  const std::filesystem::path folder = name;
  const auto limited = [&] {
    std::exit(run_program("name", [&] {
      rlimit small = {};
      getrlimit(RLIMIT_FSIZE, &small);
      small.rlim_cur = 1000;
      setrlimit(RLIMIT_FSIZE, &small);
      write_file_atomically(folder / "a.json", std::string(5000, 'n'));
      return ExitCode::ok;
    }));
  };
  EXPECT_EXIT(limited(), testing::ExitedWithCode(int(ExitCode::environment)), "File too large");
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove(folder);
}

TEST(RunProgram, NothingInAMessageReachesTheTerminalAsAControl) {
  using Outcome = std::pair<int, std::string>;
  const InputError error("\x1b[2Jf\r", "",
                         "tab\t, \xc2\x9b, \xe2\x80\xae, \xe2\x81\xa6, \x7f, \xc3\xa4");
  EXPECT_EQ(outcome(error), Outcome(3, "name: ?[2Jf?: tab\t, ?, ?, ?, ?, \xc3\xa4\n"));
  EXPECT_EQ(without_controls("plain\n"), "plain\n");
  EXPECT_EQ(without_controls("\xc2"), "\xc2");
  // A C1 control as one byte, beside the same byte inside characters.
  EXPECT_EQ(without_controls("a\x9b"
                             "1m, \xe2\x9b\xb5, \xf0\x9f\x9b\x9f, \xe2\x9b"),
            "a?1m, \xe2\x9b\xb5, \xf0\x9f\x9b\x9f, \xe2\x9b");
}

TEST(Numbers, IntegersWithinTheLimits) {
  for (const char* good : {"1", "16", "-3", "0"})
    EXPECT_EQ(refuse_integer(good, -3, 16), "") << good;
  for (const char* bad : {"", " 1", "1 ", "+1", "1.0", "1e1", "0x1", "010", "-03", "17", "-4",
                          "two", "99999999999999999999"}) {
    EXPECT_NE(refuse_integer(bad, -3, 16), "") << bad;
  }
  EXPECT_EQ(refuse_integer("17", -3, 16), "found 17; an integer from -3 to 16 is required");
}

TEST(Numbers, DecimalsWithinTheLimits) {
  for (const char* good : {"0", "0.3", "1e-3", "100"}) EXPECT_EQ(refuse_number(good, 0, 100), "");
  for (const char* bad : {"", "nan", "inf", "-0.1", "100.1", "1e999", "0.3x", "three"}) {
    EXPECT_NE(refuse_number(bad, 0, 100), "") << bad;
  }
}

std::string refusal(const std::string& word) {
  const std::vector<std::string> flags = {"--devices", "--json"}, commands = {"plan", "passes"};
  try {
    refuse_word("", word, flags, commands);
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(RefuseWord, NamesTheNearestOrAllThatAreKnown) {
  EXPECT_EQ(refusal("plann"), "unknown command plann; did you mean plan?");
  EXPECT_EQ(refusal("--devises=3"), "unknown flag --devises; did you mean --devices?");
  EXPECT_EQ(refusal("--vice"), "unknown flag --vice; did you mean --devices?");
  EXPECT_EQ(refusal("paln"), "unknown command paln; did you mean plan?");
  EXPECT_EQ(refusal("-x"), "unknown flag -x; known are --devices --json");
  EXPECT_EQ(refusal("sail"), "unknown command sail; known are plan passes");
}

TEST(RefuseEmptyValues, AnEqualsSignWithNothingBehind) {
  const auto refused = [](const char* word) {
    const std::string name = "planner";
    char* words[] = {const_cast<char*>(name.c_str()), const_cast<char*>(word)};
    try {
      refuse_empty_values(2, words);
      return false;
    } catch (const UsageError&) {
      return true;
    }
  };
  EXPECT_TRUE(refused("--framework="));
  EXPECT_FALSE(refused("--framework=bundled"));
  EXPECT_FALSE(refused("--fix"));
  EXPECT_FALSE(refused("mp="));
}

}  // namespace
}  // namespace plimsoll
