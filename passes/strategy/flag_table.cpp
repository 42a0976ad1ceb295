// Reads the tables of flags.
#include "passes/strategy/flag_table.h"

#include <algorithm>

#include "base/json.h"
#include "models/presets/presets.h"

namespace plimsoll {
namespace {

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

std::vector<FlagRow> rows_from(std::vector<JsonObject> objects) {
  std::vector<FlagRow> rows;
  for (JsonObject& object : objects) {
    FlagRow row;
    row.kind = object.has("alias")    ? FlagRow::Kind::alias
               : object.has("absent") ? FlagRow::Kind::absent
                                      : FlagRow::Kind::flag;
    constexpr const char* kKinds[] = {"flag", "alias", "absent"};
    row.words = pieces(object.text(kKinds[std::size_t(row.kind)]), ' ');
    row.when = conditions_from(object);
    if (object.has("shown")) row.shown = object.boolean("shown");
    if (object.has("note")) row.note = object.text("note");
    if (object.has("source")) object.text("source");
    object.finish();
    rows.push_back(std::move(row));
  }
  return rows;
}

FlagTable table_from(const Preset& preset) {
  const std::string file = std::string(preset.name) + ".json";
  const Json json = parse_json(preset.text, file);
  JsonObject object(json, file);
  FlagTable table;
  object.text("source");
  table.frameworks = object.texts("frameworks");
  table.rows = rows_from(object.objects("flags"));
  if (object.has("target")) {
    JsonObject target = object.object("target");
    table.target = {target.text("name"), target.text("version"), target.text("program")};
    target.text("source");
    target.finish();
    table.environment = rows_from(object.objects("environment"));
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

const FlagTable* flag_table_of(std::string_view framework) {
  for (const FlagTable& table : flag_tables()) {
    if (std::ranges::find(table.frameworks, framework) != table.frameworks.end()) return &table;
  }
  return nullptr;
}

const FlagTable* flag_table_for(std::string_view target) {
  for (const FlagTable& table : flag_tables()) {
    if (table.target && table.target->name == target) return &table;
  }
  return nullptr;
}

std::string shell_word(std::string_view text) {
  const auto plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("._-+=/").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, plain)) return std::string(text);
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

}  // namespace plimsoll
