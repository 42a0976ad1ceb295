// Which mutant is on, and which places each test reaches (lab/mutants).
//
//   PLIMSOLL_MUTANT   number of the mutant that is on
//   PLIMSOLL_REACHED  a file. Each test adds a line: its name, passed or failed, its CPU seconds,
//   and the numbers of the
//                     places that it reached
#include "tests/mutants/mutant.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>

namespace plimsoll_mutants {

constexpr int kMost = 1 << 20;
int on = 0;
unsigned char reached[kMost];

namespace {

class Recorder : public testing::EmptyTestEventListener {
 public:
  explicit Recorder(const char* path) : file_(path, std::ios::app) {}

  void OnTestStart(const testing::TestInfo&) override {
    std::fill(std::begin(reached), std::end(reached), 0);
    start_ = std::clock();
  }

  void OnTestEnd(const testing::TestInfo& test) override {
    const double seconds = double(std::clock() - start_) / CLOCKS_PER_SEC;
    file_ << test.test_suite_name() << '.' << test.name() << ' '
          << (test.result()->Failed() ? "failed " : "passed ") << seconds;
    for (int number = 0; number < kMost; ++number) {
      if (reached[number] != 0) file_ << ' ' << number;
    }
    file_ << std::endl;
  }

 private:
  std::ofstream file_;
  std::clock_t start_ = 0;
};

const bool begun = [] {
  if (const char* number = std::getenv("PLIMSOLL_MUTANT")) on = std::atoi(number);
  if (const char* path = std::getenv("PLIMSOLL_REACHED")) {
    testing::UnitTest::GetInstance()->listeners().Append(new Recorder(path));
  }
  return true;
}();

}  // namespace
}  // namespace plimsoll_mutants
