// How flags state the layers of each part of a model.
#include "interop/flags/flag_parts.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(FlagParts, LayoutsReadBack) {
  for (const char* text : {"3+4+3", "0+3x2+1+0", "1+2+0+1", "9"}) {
    const FlagFields fields = {{"layers", "9"}, {"pp", "1"}, {"layer_split", text}};
    Strategy strategy;
    set_field(strategy, "layer_split", *layout_of(fields));
    EXPECT_EQ(field_text(strategy, "layer_split"), text);
  }
}

TEST(FlagParts, AnMtpModuleCountsAsALayerBehindTheOthers) {
  const FlagFields fields = {
      {"layers", "9"}, {"pp", "1"}, {"mtp.depths", "1"}, {"layer_split", "3+4+3"}};
  EXPECT_EQ(layout_of(fields), "Et*3|t*4|t*2m*1L");
}

}  // namespace
}  // namespace plimsoll
