// Reads YAML by yaml-cpp (docs/adr/0041-files-of-other-tools.md).
#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "interop/documents/settings.h"

namespace plimsoll {
namespace {

std::int64_t line_of(const YAML::Node& node) {
  return node.Mark().is_null() ? 0 : std::int64_t(node.Mark().line) + 1;
}

template <std::size_t N>
bool is_one_of(std::string_view text, const std::string_view (&words)[N]) {
  return std::find(std::begin(words), std::end(words), text) != std::end(words);
}

/// Words of YAML 1.1 (https://yaml.org/type/bool.html, null.html), which PyYAML reads.
constexpr std::string_view kNulls[] = {"", "~", "null", "Null", "NULL"};
constexpr std::string_view kTrues[] = {"true", "True", "TRUE", "yes", "Yes",
                                       "YES",  "on",   "On",   "ON"};
constexpr std::string_view kFalses[] = {"false", "False", "FALSE", "no", "No",
                                        "NO",    "off",   "Off",   "OFF"};

/// Integers may be written as 1_000_000, and numbers with a + in front.
std::string plain_scalar(std::string text) {
  if (is_one_of(text, kNulls)) return "null";
  if (is_one_of(text, kTrues)) return "true";
  if (is_one_of(text, kFalses)) return "false";
  const std::size_t sign = text[0] == '+' || text[0] == '-' ? 1 : 0;
  const bool digits = text.size() > sign && text[sign] != '_' &&
                      std::all_of(text.begin() + std::ptrdiff_t(sign), text.end(),
                                  [](char c) { return (c >= '0' && c <= '9') || c == '_'; });
  if (digits) text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
  const bool number =
      text.size() > 1 && text[0] == '+' && text.find_first_not_of("0123456789.eE+-") == text.npos;
  return number ? text.substr(1) : text;
}

/// Tags of YAML itself say how a scalar is read; others name code, which is not run.
constexpr std::string_view kOwnTags[] = {"",
                                         "?",
                                         "!",
                                         "tag:yaml.org,2002:str",
                                         "tag:yaml.org,2002:int",
                                         "tag:yaml.org,2002:float",
                                         "tag:yaml.org,2002:bool",
                                         "tag:yaml.org,2002:null",
                                         "tag:yaml.org,2002:map",
                                         "tag:yaml.org,2002:seq"};

std::string tag_reason(const YAML::Node& node) {
  if (is_one_of(node.Tag(), kOwnTags)) return "";
  return fmt::format("the tag {} names code, which is not run", printable(node.Tag()));
}

DocumentWord yaml_word(const YAML::Node& node) {
  if (std::string reason = tag_reason(node); !reason.empty())
    return {node.IsScalar() ? printable(node.Scalar()) : "", std::move(reason)};
  if (node.IsNull()) return {"null"};
  if (!node.IsScalar()) return {"", "no scalar"};
  const bool plain = node.Tag().empty() || node.Tag() == "?";
  return text_word(plain ? plain_scalar(node.Scalar()) : node.Scalar());
}

std::string yaml_key(const SettingCollector& collector, const YAML::Node& key) {
  const auto fail = [&](const char* why) {
    throw InputError(collector.file, line_place(line_of(key)), why);
  };
  if (!key.IsScalar() && !key.IsNull()) fail("a key that is a text is required");
  const DocumentWord word = yaml_word(key);
  if (!word.unknown.empty()) fail("a plain key is required");
  if (word.text == "<<") fail("merge keys (<<) are not read: write the values out");
  return key.IsNull() ? "null" : key.Scalar();
}

struct YamlNode {
  const SettingCollector* collector;
  YAML::Node node;

  std::int64_t line() const { return line_of(node); }
  NodeKind kind() const {
    return node.IsMap() ? NodeKind::table : node.IsSequence() ? NodeKind::list : NodeKind::scalar;
  }
  DocumentWord word() const { return yaml_word(node); }
  std::vector<std::pair<std::string, YamlNode>> members() const {
    std::vector<std::pair<std::string, YamlNode>> all;
    for (const auto& member : node)
      all.emplace_back(yaml_key(*collector, member.first), YamlNode{collector, member.second});
    return all;
  }
  std::vector<YamlNode> elements() const {
    std::vector<YamlNode> all;
    for (const auto& element : node) all.push_back({collector, element});
    return all;
  }
};

/// Takes the events of one document and keeps nothing. YAML::LoadAll would not end where yaml-cpp
/// 0.7 stays at a stray comma, and makes one empty document after another of it.
struct IgnoredEvents final : YAML::EventHandler {
  using Mark = YAML::Mark;
  void OnDocumentStart(const Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const Mark&, YAML::anchor_t) override {}
  void OnAlias(const Mark&, YAML::anchor_t) override {}
  void OnScalar(const Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

bool has_second_document(const std::string& text) {
  if (text.find("\n---") == text.npos && text.find("\n...") == text.npos) return false;
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  IgnoredEvents ignored;
  return parser.HandleNextDocument(ignored) && parser.HandleNextDocument(ignored);
}

}  // namespace

std::vector<Setting> read_yaml(std::string_view text, const std::string& file) {
  SettingCollector collector{file};
  try {
    const std::string copy(text);
    const YAML::Node document = YAML::Load(copy);
    if (!document.IsMap() || has_second_document(copy))
      throw InputError(file, "", "one YAML document with keys at its top is required");
    collect(collector, "", YamlNode{&collector, document});
  } catch (const YAML::Exception& error) {
    throw InputError(file, error.mark.is_null() ? "" : line_place(error.mark.line + 1),
                     fmt::format("no YAML: {}", printable(error.msg, 200)));
  }
  return std::move(collector.settings);
}

}  // namespace plimsoll
