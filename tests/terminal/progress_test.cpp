// The line of progress, with the time that is left.
#include "planner/terminal/progress.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(Progress, EstimatesTheRestFromWhatIsDone) {
  EXPECT_EQ(progress_line("runs:", 30, 120, Seconds(15)), "runs: 30 of 120, about 45 s left");
  EXPECT_EQ(progress_line("runs:", 1, 120, Seconds(1.5)), "runs: 1 of 120, about 3 min left");
  EXPECT_EQ(progress_line("runs:", 1, 12001, Seconds(3)), "runs: 1 of 12001, about 10.0 h left");
}

TEST(Progress, EstimatesNothingBeforeTheFirstAndAfterTheLast) {
  EXPECT_EQ(progress_line("runs:", 0, 120, Seconds(15)), "runs: 0 of 120");
  EXPECT_EQ(progress_line("runs:", 120, 120, Seconds(15)), "runs: 120 of 120");
}

}  // namespace
}  // namespace plimsoll
