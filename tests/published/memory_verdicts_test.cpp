// Runs that ran and were predicted not to fit, and the other way round, counted by hand.
#include "published/memory_verdicts.h"

#include <gtest/gtest.h>

#include "tests/states.h"

namespace plimsoll {
namespace {

ValidatedRun row(const std::string& id, bool out_of_memory, std::optional<Fits> fits) {
  ValidatedRun run;
  run.run.id = id;
  run.run.out_of_memory = out_of_memory;
  if (fits) {
    run.predicted.emplace();
    run.predicted->fits = *fits;
  }
  return run;
}

TEST(MemoryVerdicts, CountWhatWasPredictedOnly) {
  ValidatedFamily family;
  family.runs = {row("a", false, Fits::yes), row("b", false, Fits::no), row("c", true, Fits::no),
                 row("d", true, Fits::yes),  row("e", false, {}),       row("f", true, {}),
                 row("g", false, Fits::no)};
  const MemoryVerdicts verdicts = memory_verdicts(family);
  EXPECT_EQ(verdicts.ran, 3u);
  EXPECT_EQ(verdicts.out_of_memory, 2u);
  EXPECT_EQ(verdicts.called_too_large, (std::vector<std::string>{"b", "g"}));
  EXPECT_EQ(verdicts.called_to_fit, std::vector<std::string>{"d"});
  const std::string text = verdicts_text(verdicts);
  EXPECT_TRUE(states(text, {"3 ran", "2 of them", "2 ran out of memory", "1 of them"}));
  EXPECT_NE(text.find("ran, predicted not to fit: g\n"), std::string::npos);
  EXPECT_NE(text.find("ran out of memory, predicted to fit: d\n"), std::string::npos);
}

TEST(MemoryVerdicts, CountAFitWithEvenRoutingAsAFit) {
  ValidatedFamily family;
  family.runs = {row("a", false, Fits::with_even_routing), row("b", true, Fits::with_even_routing)};
  const MemoryVerdicts verdicts = memory_verdicts(family);
  EXPECT_TRUE(verdicts.called_too_large.empty());
  EXPECT_EQ(verdicts.called_to_fit, std::vector<std::string>{"b"});
}

TEST(MemoryVerdicts, SayNothingOfRowsThatWereNotPredicted) {
  ValidatedFamily family;
  family.runs = {row("a", false, {})};
  EXPECT_EQ(verdicts_text(memory_verdicts(family)), "");
}

}  // namespace
}  // namespace plimsoll
