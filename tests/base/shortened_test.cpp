// Long texts are cut between characters.
#include <gtest/gtest.h>

#include "base/text.h"

namespace plimsoll {
namespace {

TEST(Shortened, CutsNoCharacterInTwo) {
  EXPECT_EQ(shortened("abc", 3), "abc");
  EXPECT_EQ(shortened("abcd", 3), "abc");
  EXPECT_EQ(shortened("a\xe2\x82\xac", 3), "a");
  EXPECT_EQ(shortened("a\xe2\x82\xac", 4), "a\xe2\x82\xac");
  EXPECT_EQ(shortened("\xe2\x82\xac", 2), "");
}

}  // namespace
}  // namespace plimsoll
