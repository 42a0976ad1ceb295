// A process that asks for more memory than it may have ends with a message.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <vector>

#include "base/command_line.h"
#include "base/error.h"
#include "base/process.h"

namespace plimsoll {
namespace {

constexpr Bytes kLimit(std::int64_t{256} << 20);

TEST(MemoryLimit, EndsWithAMessage) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer ends the process itself where memory is refused";
#endif
  const auto asks_for = [](Bytes bytes) {
    std::_Exit(run_program("test", [&] {
      limit_memory(kLimit);
      std::vector<char> memory(std::size_t(bytes.count()), 'x');
      return memory.back() == 'x' ? ExitCode::ok : ExitCode::internal;
    }));
  };
  EXPECT_EXIT(asks_for(2 * kLimit), testing::ExitedWithCode(int(ExitCode::environment)),
              "test: out of memory");
  EXPECT_EXIT(asks_for(Bytes(kLimit.count() / 4)), testing::ExitedWithCode(int(ExitCode::ok)), "");
}

TEST(MemoryLimit, IsNeverRaised) {
  const auto limits = [] {
    limit_memory(kLimit);
    rlimit first = {}, second = {};
    getrlimit(RLIMIT_DATA, &first);
    limit_memory(4 * kLimit);
    getrlimit(RLIMIT_DATA, &second);
    std::_Exit(first.rlim_cur == second.rlim_cur && first.rlim_cur >= rlim_t(kLimit.count()) ? 0
                                                                                             : 1);
  };
  EXPECT_EXIT(limits(), testing::ExitedWithCode(0), "");
}

TEST(MemoryLimit, IsThatOfTheMachine) {
  EXPECT_GT(machine_memory().value(), kLimit);
  EXPECT_LT(machine_memory().value(), Bytes(std::int64_t{1} << 50));
}

}  // namespace
}  // namespace plimsoll
