// Documents of three syntaxes: what is read, what is refused, and that what is written is read
// again.
#include "interop/documents/document.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"

namespace plimsoll {
namespace {

std::string lines_of(const std::vector<Setting>& settings) {
  std::string text;
  for (const Setting& setting : settings) {
    text += setting.key + (setting.list ? " list" : "");
    for (const DocumentWord& word : setting.words)
      text += " " + word.text + (word.unknown.empty() ? "" : " (" + word.unknown + ")");
    text += fmt::format(" @{}\n", setting.line);
  }
  return text;
}

std::string read(const std::string& text, DocumentSyntax syntax) {
  return lines_of(read_document(text, syntax, "file"));
}

/// Returns what refuses the document.
std::string refusal(const std::string& text, DocumentSyntax syntax) {
  try {
    return "read: " + read(text, syntax);
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(Documents, TomlIsReadAsDottedKeys) {
  EXPECT_EQ(read("top = 1\n[training]\nlr = 3e-4\nname = \"a b\"\n[a.b]\nlist = [1, \"x\", true]\n"
                 "none = []\nparts = [[\"e\", \"l.0\"], []]\nday = 2026-01-01\n[[c]]\nd = false\n",
                 DocumentSyntax::toml),
            "top 1 @1\ntraining.lr 0.0003 @3\ntraining.name a b @4\na.b.list list 1 x true @6\n"
            "a.b.none list @7\na.b.parts [[\"e\",\"l.0\"],[]] @8\n"
            "a.b.day a date (dates say nothing of a job) @9\nc.0.d false @11\n");
}

TEST(Documents, YamlIsReadAsItsReadersInPythonDo) {
  EXPECT_EQ(read("model:\n  layers: 1_000\n  fast: yes\n  text: 'no'\n  none: ~\n  empty:\n"
                 "  lr: +1e-4\n  list: [1, off]\n  parts:\n    - [a, b]\n    - [c]\n",
                 DocumentSyntax::yaml),
            "model.layers 1000 @2\nmodel.fast true @3\nmodel.text no @4\nmodel.none null @5\n"
            "model.empty null @7\nmodel.lr 1e-4 @7\nmodel.list list 1 false @8\n"
            "model.parts [[\"a\",\"b\"],[\"c\"]] @10\n");
}

TEST(Documents, JsonIsReadWithTheLimitsOfJson) {
  EXPECT_EQ(read(R"({"a": {"b": 2, "c": [0.9, 0.95]}, "d": null, "e": [{"f": "g"}]})",
                 DocumentSyntax::json),
            "a.b 2 @1\na.c list 0.9 0.95 @1\nd null @1\ne.0.f g @1\n");
  EXPECT_EQ(refusal("[1]", DocumentSyntax::json), "file: an object is required");
}

TEST(Documents, SettingsOfJsonHaveTheirLines) {
  EXPECT_EQ(
      read("{\"a\": {\n  \"b\\\"{,:\": \"\\\\[\\\"}\",\n\n  \"c\": [1,\n 2], \"d\": [[],\n"
           " [true,\n null]]\n},\n\"e\":\n-1.5e3\n, \"f\": {}, \"g\": [{\n\"h\": []}, [\n3]]}",
           DocumentSyntax::json),
      "a.b\"{,: \\[\"} @2\na.c list 1 2 @4\na.d [[],[\"true\",\"null\"]] @5\n"
      "e -1500 @10\ng.0.h list @12\ng.1 list 3 @12\n");
  EXPECT_EQ(refusal("{\"a\": {\"b\": 1},\n\n\"a.b\": 2}", DocumentSyntax::json),
            "file: at line 3: a.b is given twice");
}

/// Editors of Windows begin a file with one.
TEST(Documents, AByteOrderMarkIsNoPartOfTheText) {
  const std::string mark = "\xEF\xBB\xBF";
  EXPECT_EQ(read(mark + "{\"a\": 1, \"b\": {\"c\": 2}}", DocumentSyntax::json),
            "a 1 @1\nb.c 2 @1\n");
  EXPECT_EQ(read(mark + "a: 1\nb: {c: 2}\n", DocumentSyntax::yaml), "a 1 @1\nb.c 2 @2\n");
  EXPECT_EQ(read(mark + "a = 1\nb.c = 2\n", DocumentSyntax::toml), "a 1 @1\nb.c 2 @2\n");
}

TEST(Documents, PlainReferencesStandForTheirKeys) {
  EXPECT_EQ(read("a: {x: 8, y: '${a.x}', z: '${.y}', w: '${..b}'}\nb: [1, 2]\n"
                 "c: '${multiply:2,${a.x}}'\nd: '${oc.env:HOME}'\ne: '${f}'\nf: '${e}'\n"
                 "g: 'n-${a.x}'\nh: '${a.none}'\n",
                 DocumentSyntax::yaml),
            "a.x 8 @1\na.y 8 @1\na.z 8 @1\na.w list 1 2 @1\nb list 1 2 @2\n"
            "c ${multiply:2,${a.x}} (the expression is not evaluated; only ${key} is read) @3\n"
            "d ${oc.env:HOME} (the expression is not evaluated; only ${key} is read) @4\n"
            "e ${f} (the reference leads back to itself) @5\n"
            "f ${e} (the reference leads back to itself) @6\n"
            "g n-${a.x} (the expression is not evaluated; only ${key} is read) @7\n"
            "h ${a.none} (the file does not have the key) @8\n");
}

TEST(Documents, TagsOfCodeAreUnknownValues) {
  EXPECT_EQ(read("a: !!python/object/apply:os.system ['touch x']\nb: !run x\nc: !!str 1\n",
                 DocumentSyntax::yaml),
            "a list touch x @1\n"
            "b x (the tag !run names code, which is not run) @2\nc 1 @3\n");
}

TEST(Documents, AliasesCountAsOftenAsTheyAreUsed) {
  EXPECT_EQ(read("a: &x [1, 2]\nb: *x\n", DocumentSyntax::yaml), "a list 1 2 @1\nb list 1 2 @1\n");
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    bomb += fmt::format("a{0}: &a{0} [", i);
    for (int j = 0; j < 10; ++j) bomb += fmt::format("{}*a{}", j > 0 ? ", " : "", i - 1);
    bomb += "]\n";
  }
  EXPECT_NE(refusal(bomb, DocumentSyntax::yaml)
                .find("at most 100000 values are allowed, aliases counted"),
            std::string::npos)
      << refusal(bomb, DocumentSyntax::yaml).substr(0, 200);
}

TEST(Documents, FaultsAreNamedWithTheirLine) {
  const std::string deep(200, '[');
  const std::pair<std::string, std::string> toml[] = {
      {"a = 1\na = 2\n", "file: at line 2: no TOML:"},
      {"a = \n", "file: at line 1: no TOML:"},
      {"a = " + deep, "file: at line 1: no TOML:"},
      {"[x]\n\"" + std::string(300, 'k') + "\" = 1\n", "file: at line 2:"},
  };
  for (const auto& [text, message] : toml)
    EXPECT_EQ(refusal(text, DocumentSyntax::toml).substr(0, message.size()), message);
  const std::pair<std::string, std::string> yaml[] = {
      {"a: 1\na: 2\n", "file: at line 2: a is given twice"},
      {"a: [1\nb: 2\n", "file: at line 2: no YAML:"},
      {"a: 1\n---\nb: 2\n", "file: one YAML document"},
      {"- a\n", "file: one YAML document"},
      {"x: &x {b: 1}\na:\n  <<: *x\n", "file: at line 3: merge keys (<<) are not read"},
      {"? [a, b]\n: 1\n", "file: at line 1: a key that is a text is required"},
      {"a: " + deep, "file: at line 1: "},
      {std::string(2 << 20, 'a'), "file: a file of up to 1 MiB is required"},
  };
  for (const auto& [text, message] : yaml)
    EXPECT_EQ(refusal(text, DocumentSyntax::yaml).substr(0, message.size()), message);
}

TEST(Documents, WrittenValuesAreReadAgain) {
  Json values = Json::object();
  values["top"] = 3;
  values["a"]["text"] = "yes: \"quoted\" # not a comment";
  values["a"]["number"] = "2";
  values["a"]["on"] = true;
  values["a"]["list"] = Json::array({0.9, "x"});
  values["a"]["parts"] = Json::parse(R"([["e", "l.0"], ["h"]])");
  values["a"]["b"]["rate"] = 2.5e-8;
  const std::string expected =
      "top 3\na.text yes: \"quoted\" # not a comment\na.number 2\n"
      "a.on true\na.list list 0.9 x\na.parts [[\"e\",\"l.0\"],[\"h\"]]\na.b.rate 2.5e-08\n";
  for (const DocumentSyntax syntax :
       {DocumentSyntax::toml, DocumentSyntax::yaml, DocumentSyntax::json}) {
    const std::string text = document_text(values, syntax, {"one", "", "two"});
    std::vector<Setting> settings = read_document(text, syntax, "file");
    std::string all;
    for (Setting& setting : settings) {
      setting.line = 0;
      const std::string line = lines_of({setting});
      all += line.substr(0, line.find(" @")) + "\n";
    }
    EXPECT_EQ(all, expected) << text;
  }
  EXPECT_EQ(document_text({{"a", {{"rate", 1e-8}, {"none", nullptr}}}}, DocumentSyntax::yaml, {}),
            "a:\n  rate: 1.0e-08\n  none: null\n");
  EXPECT_EQ(document_text({{"a", {{"x", 1}, {"none", nullptr}}}}, DocumentSyntax::toml, {"c"}),
            "# c\n\n[a]\nx = 1\n");
}

TEST(Documents, DamagedDocumentsAreReadOrRefused) {
  const std::string sound[] = {
      "[model]\nname = \"llama3\"\n[training]\nlr = 3e-4\nlist = [1, [2, 3]]\nx = {a = 1}\n",
      "model: &m\n  a: 1\n  b: [x, 'y', \"z\"]\nother: *m\ntext: |\n  line\n  - x\nref: ${model.a}\n",
      R"({"a": {"b": [1, 2.5, null, "x"]}, "c": true})"};
  const char* const pieces[] = {"[",  "]",  "{",  "}",    "*m ", "&m ",   "!!",   "- ",
                                ": ", "\n", "\"", "'",    "${",  "\t",    "# ",   "=",
                                "? ", "| ", "%",  "\xff", "\\",  "1e999", "---\n"};
  std::mt19937_64 random(5);
  int read_anyway = 0;
  for (int i = 0; i < 6000; ++i) {
    std::string text = sound[i % 3];
    for (std::size_t changes = 1 + random() % 5; changes > 0; --changes) {
      const std::size_t at = random() % text.size();
      if (random() % 3 == 0) text.erase(at, 1 + random() % 8);
      if (random() % 2 == 0)
        text.insert(std::min(at, text.size()), pieces[random() % std::size(pieces)]);
      if (text.empty()) text = " ";
    }
    try {
      read_document(text, DocumentSyntax(i % 3), "file");
      ++read_anyway;
    } catch (const InputError&) {
      continue;
    } catch (const std::exception& error) {
      FAIL() << error.what() << " at\n" << text;
    }
  }
  EXPECT_GT(read_anyway, 300);
}

}  // namespace
}  // namespace plimsoll
