// Rules of rows: what they say, where it is from, and rules that cannot be.
#include "published/stated_row.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "models/presets/presets.h"
#include "tests/published/published_rows.h"

namespace plimsoll {
namespace {

/// The row as these rules state it. `document` is the text of a file of a document's rules, `words`
/// of one about all rows.
Json stated(const Json& row, const std::string& words,
            const std::string& document = R"({"document": "none", "rules": []})") {
  const RowRules rules({parse_rules(words, "words.json"), parse_rules(document, "doc.json")});
  return stated_row(row, rules, "rows.json", "/0");
}

std::string file(const std::string& rules, const std::string& document = "") {
  const std::string who = document.empty() ? "" : R"("document": ")" + document + R"(", )";
  return "{" + who + R"("rules": [)" + rules + "]}";
}

std::string rule(const std::string& when, const std::string& says) {
  return R"({"when": )" + when + R"(, "says": )" + says + R"(, "source": "a page"})";
}

/// Whether a condition holds for the precision "FP8 Current-Scaling", and for the number 4.
bool holds(const std::string& condition, const std::string& field = "precision") {
  Json row = plain_row();
  row["precision"] = "FP8 Current-Scaling";
  const std::string when = "{\"" + field + "\": " + condition + "}";
  return stated(row, file(rule(when, R"({"x": true})"))).contains("x");
}

TEST(StatedRow, ConditionsAskForWordsInAnyCase) {
  EXPECT_TRUE(holds(R"("fp8 current-scaling")"));
  EXPECT_FALSE(holds(R"("fp8")"));
  EXPECT_TRUE(holds(R"({"contains": "fp8"})"));
  EXPECT_TRUE(holds(R"({"contains": ["fp8", "scaling"]})"));
  EXPECT_FALSE(holds(R"({"contains": ["scaling", "fp8"]})")) << "in this order";
  EXPECT_TRUE(holds(R"({"contains_letters": "currentscaling"})"));
  EXPECT_TRUE(holds(R"({"starts_with": "fp8", "contains": "scaling"})"));
  EXPECT_FALSE(holds(R"({"starts_with": "fp8", "not": {"contains": "scaling"}})"));
  EXPECT_TRUE(holds(R"([{"contains": "bf16"}, {"contains": "fp8"}])"));
  EXPECT_FALSE(holds("null"));
}

TEST(StatedRow, ConditionsAskForNumbersAndForNothing) {
  EXPECT_TRUE(holds("2", "parallel.tp"));
  EXPECT_TRUE(holds(R"({"least": 2, "most": 2})", "parallel.tp"));
  EXPECT_FALSE(holds(R"({"least": 3})", "parallel.tp"));
  EXPECT_FALSE(holds(R"({"most": 9})", "parallel.vpp")) << "nothing is no number";
  EXPECT_TRUE(holds("null", "parallel.vpp"));
  EXPECT_TRUE(holds("null", "nothing.at.all"));
  EXPECT_TRUE(holds("[null, 1]", "parallel.vpp"));
}

TEST(StatedRow, TheDocumentsRulesComeFirstAndTheFirstThatHoldsCounts) {
  const std::string words = file(rule(R"({"parallel.tp": 2})", R"({"batch.micro": 7})") + "," +
                                 rule("{\"parallel.tp\": 2}", R"({"batch.micro": 8})"));
  EXPECT_EQ(stated(plain_row(), words)["batch"]["micro"], 7);
  const std::string own =
      file(rule(R"({"parallel.tp": 2})", R"({"batch.micro": 9})"), "github:a/b");
  EXPECT_EQ(stated(plain_row(), words, own)["batch"]["micro"], 7) << "of another document";
  Json row = plain_row();
  set_source(row, "github:a/b@1234 (MIT)");
  EXPECT_EQ(stated(row, words, own)["batch"]["micro"], 9);
  set_source(row, "github:a/b2@1234");
  EXPECT_EQ(stated(row, words, own)["batch"]["micro"], 7) << "of a document with a longer name";
}

TEST(StatedRow, RulesSeeWhatOtherRulesSay) {
  const std::string words = file(rule(R"({"b": 1})", R"({"c": {"of": "b", "plus": 4}})") + "," +
                                 rule(R"({"parallel.tp": 2})", R"({"b": 1})"));
  EXPECT_EQ(stated(plain_row(), words)["c"], 5);
  // The row's own word counts for the field that a rule is for.
  const std::string more =
      file(rule(R"({"parallel.tp": 2})", R"({"parallel.tp": {"of": "parallel.tp", "plus": 1}})"));
  EXPECT_EQ(stated(plain_row(), more)["parallel"]["tp"], 3);
}

TEST(StatedRow, StatementsCarryTheirSource) {
  const std::string words =
      R"({"rules": [{"says": {"stated.family": "bert"}, "source": "page 3", "settled_by_results": true}]})";
  const Json row = stated(plain_row(), words);
  const Json expected = {{"field", "stated.family"},
                         {"value", "bert"},
                         {"source", "page 3"},
                         {"settled_by_results", true}};
  EXPECT_EQ(row["statements"], Json::array({expected}));
  EXPECT_EQ(row["stated"]["family"], "bert");
}

TEST(StatedRow, ARowsOwnStatementsCount) {
  Json row = plain_row();
  row["stated"]["framework"] = "torchtitan";
  EXPECT_EQ(run_of(row).framework->name, "torchtitan");
  EXPECT_EQ(run_of(plain_row()).framework->name, "megatron-lm-2021");
  row["stated"]["framework"] = "ours";
  EXPECT_THROW(run_of(row), InputError);
  row = plain_row();
  row["stated"]["cluster"] = "ours";
  EXPECT_THROW(run_of(row), InputError);
  row = plain_row();
  row["stated"]["framewerk"] = "torchtitan";
  EXPECT_THROW(run_of(row), InputError);
}

TEST(StatedRow, IsReadAgainAsItIs) {
  Json row = plain_row();
  set_source(row, "github:MooreThreads/SimuMax@4dcaae5", "summary.json case llama3_405b_l4");
  const Json once = stated_rows(json_text(Json::array({row})), "rows.json");
  const Json twice = stated_rows(json_text(once), "rows.json");
  EXPECT_EQ(once, twice);
  EXPECT_EQ(once[0]["model"]["vocab"], 50258) << "one more, and not two";
}

TEST(StatedRow, RulesThatNeedEachOtherAreRefused) {
  const std::string words =
      file(rule(R"({"a": null})", R"({"b": 1})") + "," + rule(R"({"b": null})", R"({"a": 1})"));
  EXPECT_THROW(stated(plain_row(), words), InputError);
}

TEST(StatedRow, BadRulesAreRefused) {
  for (const std::string bad :
       {R"({"when": {"a": {"holds": "x"}}, "says": {"b": 1}, "source": "s"})",
        R"({"when": {"a": {"least": "x"}}, "says": {"b": 1}, "source": "s"})",
        R"({"when": {"a": {"contains": 1}}, "says": {"b": 1}, "source": "s"})",
        R"({"when": {"a": {}}, "says": {"b": 1}, "source": "s"})",
        R"({"when": {"a": 1}, "says": {"b": 1}})", R"({"when": {"a": 1}, "source": "s"})",
        R"({"wen": {"a": 1}, "says": {"b": 1}, "source": "s"})",
        R"({"says": {"b": {"of": "a", "times": 2}}, "source": "s"})"}) {
    EXPECT_THROW(parse_rules(file(bad), "words.json"), InputError) << bad;
  }
}

/// Every rule that is built in has a source.
TEST(StatedRow, BuiltInRulesAreRead) {
  std::size_t documents = 0, rules = 0;
  for (const auto* presets : {&document_presets(), &word_presets()}) {
    for (const Preset& preset : *presets) {
      const RuleFile read = parse_rules(preset.text, std::string(preset.name));
      EXPECT_EQ(read.document.empty(), presets == &word_presets()) << preset.name;
      documents += read.document.empty() ? 0 : 1;
      for (const RowRule& rule : read.rules) EXPECT_FALSE(rule.source.empty()) << preset.name;
      rules += read.rules.size();
    }
  }
  EXPECT_GE(documents, 8u);
  EXPECT_GE(rules, 100u);
}

TEST(StatedRow, DocumentsCountInsteadOfWhatARowSays) {
  Json row = plain_row();
  row["model"]["kv_heads"] = 8;
  set_source(row, "github:MooreThreads/SimuMax@4dcaae5", "summary.json case llama3_405b_l4");
  const PublishedRun run = run_of(row);
  EXPECT_EQ(run.kv_heads, 16);
  EXPECT_EQ(run.vocab, 50258);
  EXPECT_EQ(run.framework->loss_memory, LossMemory::own_type);
  EXPECT_EQ(run.handle_workspace, Bytes(8320 << 10));
  set_source(row, "github:MooreThreads/SimuMax@4dcaae5", "summary.json case llama3_70b_l12");
  EXPECT_EQ(run_of(row).kv_heads, 8);
  EXPECT_EQ(run_of(row).framework->loss_memory, LossMemory::own_type);
  set_source(row, "github:somebody/SimuMax", "summary.json case llama3_405b_l4");
  EXPECT_EQ(run_of(row).kv_heads, 8);
  EXPECT_EQ(run_of(row).vocab, 50257);
  EXPECT_NE(run_of(row).framework->loss_memory, LossMemory::own_type);
}

TEST(StatedRow, DocumentsSayWhatAModelHasNot) {
  Json row = plain_row();
  row["recompute"] = "unknown";
  set_source(row, "github:eth-easl/sailor@cf2c8e3", "validation/clariden/OPT-350/N1/plan.json");
  const PublishedRun run = run_of(row);
  EXPECT_EQ(run.dropout, 0);
  EXPECT_EQ(run.tied_embeddings, false);
  EXPECT_EQ(run.recompute, StatedRecompute::none);
}

}  // namespace
}  // namespace plimsoll
