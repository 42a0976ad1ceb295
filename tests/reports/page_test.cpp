// The pieces of a page: exact values, data for the script, plots.
#include "reports/page.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "reports/markup.h"
#include "reports/plots.h"
#include "reports/timeline_data.h"
#include "tests/plan/example_plan.h"

namespace plimsoll {
namespace {

bool has(const std::string& text, std::string_view word) { return text.find(word) != text.npos; }

TEST(Page, CellsKeepExactValues) {
  const std::string html =
      table("", {{"Time", "number", "s"}}, {{exact_cell(Seconds(0.0181))}, {number_cell("")}});
  EXPECT_TRUE(has(html, "<th scope=\"col\" class=\"number\" data-unit=\"s\">Time</th>"));
  EXPECT_TRUE(has(table("", {{"A", ""}, {"B", ""}}, {{text_cell("a"), exact_cell(Bytes(1 << 30))}}),
                  "<td class=\"number\" data-exact=\"1073741824\">1.00 GiB</td>"));
  EXPECT_EQ(share_cell(0.042).exact, "0.042");
}

TEST(Page, DataDoesNotEndItsBlock) {
  const std::string block = data_block("x", R"x({"name":"</script><script>alert(1)"})x");
  EXPECT_FALSE(has(block.substr(0, block.size() - 10), "</script>"));
  EXPECT_TRUE(has(block, R"x(\u003c/script>\u003cscript>alert(1))x"));
}

TEST(Page, NamesItsScriptAndStyleByDigest) {
  const std::string html = page_html("<title> of x", "<p>body</p>\n");
  EXPECT_TRUE(has(html, "<title>&lt;title&gt; of x</title>"));
  EXPECT_TRUE(has(html, "script-src 'sha256-"));
  EXPECT_TRUE(has(html, "style-src 'sha256-"));
  const auto at = html.find("script-src 'sha256-") + std::string_view("script-src 'sha256-").size();
  EXPECT_EQ(html.find('\'', at) - at, 44u);  // 32 bytes in base 64
  EXPECT_TRUE(has(html, std::string("<script>") + std::string(page_script()) + "</script>"));
}

TEST(TimelineData, GivesBackEveryInterval) {
  Plan plan = example_plan();
  plan.timeline.intervals[0].routine = "</script>";
  const GanttOptions options = {"id",
                                "title",
                                timeline_begin(plan.timeline),
                                timeline_end(plan.timeline) - timeline_begin(plan.timeline),
                                plan.prediction.step_time,
                                16};
  const Json data = Json::parse(timeline_data({{plan.timeline, ""}}, plan.strategy, options));
  std::size_t count = 0;
  std::int64_t last = 0;
  for (const Json& lane : data["lanes"]) {
    std::int64_t at = 0;
    for (std::size_t i = 0; i < lane["gap"].size(); ++i) {
      at += lane["gap"][i].get<std::int64_t>() + lane["length"][i].get<std::int64_t>();
      last = std::max(last, at);
      ++count;
    }
  }
  EXPECT_EQ(count, plan.timeline.intervals.size());
  EXPECT_EQ(last, data["span"].get<std::int64_t>());
  EXPECT_NEAR(double(last) * data["unit_s"].get<double>(), 0.021, 1e-6);
  EXPECT_EQ(data["lanes"][0]["rank"], "rank 0 \u00b7 stage 0");
  const std::string text = data.dump();
  EXPECT_TRUE(has(text, "</script>"));
}

TEST(TimelineData, KeepsRanksApart) {
  const Plan plan = example_plan();
  const GanttOptions options = {"id", "title", {}, Picoseconds(21'000'000'000), Seconds(0.021), 16};
  const Json data = Json::parse(
      timeline_data({{plan.timeline, ""}, {plan.timeline, ", op by op"}}, plan.strategy, options));
  std::size_t suffixed = 0;
  for (const Json& lane : data["lanes"])
    suffixed += has(lane["rank"].get<std::string>(), ", op by op") ? 1 : 0;
  EXPECT_EQ(2 * suffixed, data["lanes"].size());
}

TEST(Plots, DrawWhatTheyAreGiven) {
  const std::string tornado = tornado_svg(
      "t", {{"network", {{"slower", 0.05}, {"faster", -0.04}}}, {"twice", {{"doubled", -0.3}}}});
  EXPECT_TRUE(has(tornado, "network: +5 %"));
  EXPECT_TRUE(has(tornado, "twice: -30 %"));
  const std::string plans =
      plans_svg("p", "plans",
                {{"chosen", Seconds(1), Bytes(1000), "best <of> all"},
                 {"front", Seconds(2), Bytes(500), "less memory"},
                 {"misfit", Seconds(), Bytes(std::int64_t{1} << 60), "far too large"}},
                Bytes(2000));
  EXPECT_TRUE(has(plans, "<title>best &lt;of&gt; all</title>"));
  EXPECT_TRUE(has(plans, "class=\"point misfit\""));
  EXPECT_TRUE(has(plans, "class=\"front-line\""));
  EXPECT_FALSE(has(plans, "nan"));
  EXPECT_FALSE(has(plans, "inf"));
  EXPECT_TRUE(has(factors_svg("f", "factors", {{"a", 1.1, 1.0, 1.2}}), "a: 1.1 (1 to 1.2)"));
  EXPECT_FALSE(has(factors_svg("f", "factors", {}), "nan"));
  EXPECT_FALSE(has(tornado_svg("t", {}), "nan"));
}

}  // namespace
}  // namespace plimsoll
