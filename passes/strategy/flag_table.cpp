// Reads the tables of flags.
#include "passes/strategy/flag_table.h"

#include <algorithm>

#include "base/json.h"
#include "models/presets/presets.h"

namespace plimsoll {
namespace {

constexpr std::string_view kSyntaxes[] = {"toml", "yaml", "json"};

std::vector<std::string> pieces(std::string_view text, char separator) {
  std::vector<std::string> found;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    found.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return found;
}

std::vector<FlagCondition> conditions_from(JsonObject& row) {
  std::vector<FlagCondition> conditions;
  if (!row.has("when")) return conditions;
  for (const std::string& text : pieces(row.text("when"), ',')) {
    const std::size_t equals = text.find('=');
    if (equals == text.npos || equals == 0) row.fail("when", "KEY=VALUE is required");
    const bool differs = text[equals - 1] == '!';
    conditions.push_back(
        {text.substr(0, differs ? equals - 1 : equals), text.substr(equals + 1), differs});
  }
  return conditions;
}

std::string word_of_json(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

FlagRow::Kind kind_of(const JsonObject& row) {
  if (row.has("alias")) return FlagRow::Kind::alias;
  if (row.has("absent")) return FlagRow::Kind::absent;
  return row.has("flag") ? FlagRow::Kind::flag : FlagRow::Kind::fixed;
}

std::vector<FlagRow> rows_from(std::vector<JsonObject> objects, bool of_document) {
  std::vector<FlagRow> rows;
  for (JsonObject& object : objects) {
    FlagRow row;
    row.kind = kind_of(object);
    constexpr const char* kKinds[] = {"flag", "alias", "absent"};
    if (row.kind != FlagRow::Kind::fixed)
      row.words = pieces(object.text(kKinds[std::size_t(row.kind)]), ' ');
    const bool stated = row.kind == FlagRow::Kind::flag || row.kind == FlagRow::Kind::alias;
    if (of_document && stated) {
      row.value = object.raw("value");
      for (const Json& word : row.value.is_array() ? row.value : Json::array({row.value}))
        row.words.push_back(word_of_json(word));
    }
    row.when = conditions_from(object);
    if (object.has("shown")) row.shown = object.boolean("shown");
    if (object.has("note")) row.note = object.text("note");
    if (object.has("source")) object.text("source");
    object.finish();
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<FieldsBeside> beside_from(std::vector<JsonObject> objects) {
  std::vector<FieldsBeside> all;
  for (JsonObject& object : objects) {
    all.push_back({conditions_from(object), object.texts("keys"), object.text("because")});
    object.finish();
  }
  return all;
}

FlagTable table_from(const Preset& preset) {
  const std::string file = std::string(preset.name) + ".json";
  const Json json = parse_json(preset.text, file);
  JsonObject object(json, file);
  FlagTable table;
  object.text("source");
  table.frameworks = object.texts("frameworks");
  if (object.has("syntax")) table.document = DocumentSyntax(object.choice("syntax", kSyntaxes));
  table.rows = rows_from(object.objects("flags"), table.document.has_value());
  if (table.document) {
    for (JsonObject& mark : object.objects("recognized_by")) {
      FileMark& known = table.recognized_by.emplace_back();
      known.all_of = mark.texts("all_of");
      if (mark.has("none_of")) known.none_of = mark.texts("none_of");
      mark.finish();
    }
  }
  if (object.has("target")) {
    JsonObject target = object.object("target");
    table.target.emplace();
    table.target->name = target.text("name");
    table.target->version = target.text("version");
    table.target->program = target.text("program");
    if (target.has("exported")) table.target->exported = target.boolean("exported");
    if (target.has("unstated")) table.target->unstated = target.text("unstated");
    if (target.has("launcher")) table.target->launcher = target.text("launcher");
    target.text("source");
    target.finish();
    table.without_model = object.text("without_model");
    if (object.has("unset")) table.unset = object.text("unset");
    if (object.has("beside")) table.beside = beside_from(object.objects("beside"));
    constexpr std::string_view kDescribed[] = {"cluster"};
    if (object.has("describes")) table.of_cluster = object.choice("describes", kDescribed) == 0;
    if (object.has("next")) {
      JsonObject next = object.object("next");
      table.next = {next.text("target"), next.text("file_key")};
      next.finish();
    }
    table.environment = rows_from(object.objects("environment"), false);
    for (JsonObject& refused : object.objects("refused")) {
      table.refused.push_back({refused.texts("flags"), refused.text("because")});
      refused.finish();
    }
  }
  object.finish();
  return table;
}

}  // namespace

const std::vector<FlagTable>& flag_tables() {
  static const std::vector<FlagTable> tables = [] {
    std::vector<FlagTable> all;
    for (const Preset& preset : flag_presets()) all.push_back(table_from(preset));
    return all;
  }();
  return tables;
}

bool states_model(const FlagTable& table) {
  return std::ranges::any_of(table.rows, [](const FlagRow& row) {
    const bool sizes = std::ranges::find(row.words, "{hidden}") != row.words.end();
    return sizes || std::ranges::any_of(row.when, [](const FlagCondition& condition) {
             return condition.key == "hidden";
           });
  });
}

const FlagTable* flag_table_of(std::string_view framework) {
  for (const FlagTable& table : flag_tables()) {
    const bool takes = std::ranges::find(table.frameworks, framework) != table.frameworks.end();
    const bool shown =
        std::ranges::any_of(table.rows, [](const FlagRow& row) { return row.shown; });
    if (takes && shown) return &table;
  }
  return nullptr;
}

const FlagTable* flag_table_for(std::string_view target) {
  for (const FlagTable& table : flag_tables()) {
    if (table.target && table.target->exported && table.target->name == target) return &table;
  }
  return nullptr;
}

std::vector<std::string> keys_of(const std::string& option) {
  std::vector<std::string> keys(1);
  for (const char c : option) {
    if (c == '+') {
      keys.emplace_back();
    } else {
      keys.back() += c;
    }
  }
  return keys;
}

namespace {

bool is_letter_or_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

}  // namespace

std::string shell_word(std::string_view text) {
  const auto plain = [](char c) {
    return is_letter_or_digit(c) || std::string_view("._-+=/").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, plain)) return std::string(text);
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

std::string as_one_word(std::string_view text) {
  std::string word;
  for (const char c : text)
    word += is_letter_or_digit(c) || c == '.' || c == '_' || c == '-' ? c : '_';
  return word;
}

}  // namespace plimsoll
