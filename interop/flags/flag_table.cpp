// Reads the tables of flags.
#include "interop/flags/flag_table.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "interop/flags/flag_values.h"
#include "models/presets/presets.h"

namespace plimsoll {
namespace {

constexpr std::string_view kSyntaxes[] = {"toml", "yaml", "json"};

/// Returns the conditions between commas; those within a list's brackets are the list's.
std::vector<std::string> condition_texts(const std::string& text) {
  std::vector<std::string> texts(1);
  int depth = 0;
  for (const char c : text) {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c == ',' && depth == 0) {
      texts.emplace_back();
    } else {
      texts.back() += c;
    }
  }
  return texts;
}

/// Returns the conditions of a key; an absent key and an empty text have none.
std::vector<FlagCondition> conditions_from(JsonObject& row, const char* key) {
  std::vector<FlagCondition> conditions;
  const std::string all = row.has(key) ? row.text(key) : "";
  if (all.empty()) return conditions;
  for (const std::string& text : condition_texts(all)) {
    const std::size_t equals = text.find('=');
    if (equals == text.npos || equals == 0) row.fail(key, "KEY=VALUE is required");
    const bool differs = text[equals - 1] == '!';
    conditions.push_back(
        {text.substr(0, differs ? equals - 1 : equals), text.substr(equals + 1), differs});
  }
  return conditions;
}

std::string word_of_json(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

FlagRow implied_row(JsonObject& object) {
  FlagRow row{.kind = FlagRow::Kind::implied, .when = conditions_from(object, "implies")};
  if (object.has("without")) row.words = split(object.text("without"), ' ');
  return row;
}

FlagRow stated_row(JsonObject& object, bool of_document) {
  const bool alias = object.has("alias");
  FlagRow row{.kind = alias ? FlagRow::Kind::alias : FlagRow::Kind::flag,
              .when = conditions_from(object, "when"),
              .words = split(object.text(alias ? "alias" : "flag"), ' ')};
  if (of_document) {
    row.value = object.raw("value");
    for (const Json& word : row.value.is_array() ? row.value : Json::array({row.value}))
      row.words.push_back(word_of_json(word));
  }
  if (object.has("shown")) row.shown = object.boolean("shown");
  return row;
}

std::vector<FlagRow> rows_from(std::vector<JsonObject> objects, bool of_document) {
  std::vector<FlagRow> rows;
  for (JsonObject& object : objects) {
    const bool stated = object.has("flag") || object.has("alias");
    FlagRow& row =
        rows.emplace_back(stated ? stated_row(object, of_document) : implied_row(object));
    if (object.has("note")) row.note = object.text("note");
    if (object.has("source")) object.text("source");
    if (stated && object.has("default")) {
      FlagRow without{.kind = FlagRow::Kind::implied,
                      .when = conditions_from(object, "default"),
                      .words = {row.words[0]}};
      rows.push_back(std::move(without));
    }
    object.finish();
  }
  return rows;
}

std::vector<FlagException> exceptions_from(std::vector<JsonObject> objects) {
  std::vector<FlagException> all;
  for (JsonObject& object : objects) {
    all.push_back({conditions_from(object, "when"), object.texts("names"), object.text("because")});
    object.finish();
  }
  return all;
}

std::vector<std::vector<std::string>> options_from(const std::string& text) {
  std::vector<std::vector<std::string>> options;
  for (std::string& word : split(text, ' ')) {
    if (word.starts_with("--")) options.emplace_back();
    if (!options.empty()) options.back().push_back(std::move(word));
  }
  return options;
}

SettingOptions setting_options_from(JsonObject object) {
  SettingOptions options;
  options.rows_of = object.text("rows_of");
  options.chosen_by = object.texts("chosen_by");
  options.only_by_name = object.texts("only_by_name");
  options.switches = object.texts("switches");
  JsonObject variables = object.object("variables");
  for (const std::string& name : variables.keys())
    options.variables.emplace_back(name, variables.text(name));
  for (JsonObject& named : object.objects("named")) {
    NamedConfiguration& known = options.named.emplace_back();
    known.options = options_from(named.text("options"));
    JsonObject settings = named.object("settings");
    for (const std::string& key : settings.keys()) {
      const Json& value = settings.raw(key);
      std::vector<std::string> words;
      for (const Json& word : value.is_array() ? value : Json::array({value}))
        words.push_back(word_of_json(word));
      known.settings.emplace_back(key, std::move(words));
    }
    named.text("source");
    named.finish();
  }
  object.finish();
  return options;
}

/// Adds the rows of the table that states the settings in a document. Its own come first.
void add_rows(FlagTable& table, const FlagTable& document) {
  table.document = document.document;
  table.rows.insert(table.rows.end(), document.rows.begin(), document.rows.end());
  table.refused.insert(table.refused.end(), document.refused.begin(), document.refused.end());
  table.harmless.insert(table.harmless.end(), document.harmless.begin(), document.harmless.end());
  table.beside.insert(table.beside.end(), document.beside.begin(), document.beside.end());
}

FlagTable table_from(const Preset& preset) {
  const std::string file = std::string(preset.name) + ".json";
  const Json json = parse_json(preset.text, file);
  JsonObject object(json, file);
  FlagTable table;
  object.text("source");
  table.frameworks = object.texts("frameworks");
  if (object.has("syntax")) table.document = DocumentSyntax(object.choice("syntax", kSyntaxes));
  if (object.has("setting_options"))
    table.options = setting_options_from(object.object("setting_options"));
  const bool has_settings = table.document || table.options;
  table.rows = rows_from(object.objects("flags"), has_settings);
  if (has_settings) {
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
    if (target.has("by_version")) table.target->by_version = target.boolean("by_version");
    if (target.has("trial")) {
      for (const auto& [key, value] : target.raw("trial").items())
        table.target->trial.emplace_back(key, value);
    }
    target.text("source");
    target.finish();
    table.without_model = object.text("without_model");
    if (object.has("model_key")) table.model_key = object.text("model_key");
    if (object.has("unset")) table.unset = object.text("unset");
    if (object.has("beside")) table.beside = exceptions_from(object.objects("beside"));
    if (object.has("next")) {
      JsonObject next = object.object("next");
      table.next = {next.text("target"), next.text("file_key")};
      if (next.has("always")) table.next->always = next.boolean("always");
      next.finish();
    }
    if (object.has("environment"))
      table.environment = rows_from(object.objects("environment"), false);
    if (object.has("harmless")) table.harmless = object.texts("harmless");
    if (object.has("refused")) table.refused = exceptions_from(object.objects("refused"));
  }
  object.finish();
  return table;
}

}  // namespace

const std::vector<FlagTable>& flag_tables() {
  static const std::vector<FlagTable> tables = [] {
    std::vector<FlagTable> all;
    const auto& presets = flag_presets();
    for (const Preset& preset : presets) all.push_back(table_from(preset));
    for (FlagTable& table : all) {
      if (!table.options) continue;
      const auto of = std::ranges::find(presets, table.options->rows_of, &Preset::name);
      INVARIANT(of != presets.end(), "rows_of names a table of models/presets/flags");
      add_rows(table, all[std::size_t(of - presets.begin())]);
    }
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
    if (takes && shown && !table.options) return &table;
  }
  return nullptr;
}

const FlagTable* flag_table_for(std::string_view target, std::string_view version) {
  for (const FlagTable& table : flag_tables()) {
    if (!table.target || !table.target->exported || table.target->name != target) continue;
    if (version.empty() ? !table.target->by_version : table.target->version == version)
      return &table;
  }
  return nullptr;
}

std::vector<std::string> versions_for(std::string_view target) {
  std::vector<std::string> versions;
  for (const FlagTable& table : flag_tables()) {
    if (table.target && table.target->exported && table.target->name == target)
      versions.push_back(table.target->version);
  }
  std::ranges::sort(versions);
  return versions;
}

bool matches(std::string_view pattern, std::string_view name) {
  if (!pattern.ends_with('*')) return pattern == name;
  return name.starts_with(pattern.substr(0, pattern.size() - 1));
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
