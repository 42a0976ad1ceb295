// Row rules: read from their files, and found by document and field.
#include "published/row_rules.h"

#include "models/presets/presets.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kMostAdded = std::int64_t{1} << 24;

RowRule::Conditions conditions_from(JsonObject object) {
  RowRule::Conditions conditions;
  for (const std::string& field : object.keys())
    conditions.emplace_back(field, RowCondition(object, field));
  return conditions;
}

RuleValue value_from(JsonObject& says, const std::string& field) {
  RuleValue value;
  if (says.raw(field).is_object()) {
    JsonObject computed = says.object(field);
    value.of = computed.text("of");
    if (computed.has("plus")) value.plus = computed.integer("plus", 0, kMostAdded);
    computed.finish();
  } else {
    value.value = says.raw(field);
  }
  return value;
}

RowRule rule_from(JsonObject object) {
  RowRule rule;
  if (object.has("when") && object.raw("when").is_array()) {
    for (const JsonObject& conditions : object.objects("when"))
      rule.when.push_back(conditions_from(conditions));
  } else if (object.has("when")) {
    rule.when.push_back(conditions_from(object.object("when")));
  }
  JsonObject says = object.object("says");
  for (const std::string& field : says.keys())
    rule.says.emplace_back(field, value_from(says, field));
  rule.source = object.text("source");
  if (object.has("settled_by_results"))
    rule.settled_by_results = object.boolean("settled_by_results");
  object.finish();
  return rule;
}

void add(const RuleFile& file, RowRules::ByField& to) {
  for (const RowRule& rule : file.rules) {
    for (const auto& [field, value] : rule.says) to[field].push_back({&rule, &value});
  }
}

std::vector<RuleFile> read_built_in() {
  std::vector<RuleFile> files;
  for (const auto* presets : {&document_presets(), &word_presets()}) {
    for (const Preset& preset : *presets)
      files.push_back(parse_rules(preset.text, std::string(preset.name) + ".json"));
  }
  return files;
}

}  // namespace

RuleFile parse_rules(std::string_view text, const std::string& file) {
  const Json json = parse_json(text, file);
  JsonObject object(json, file);
  RuleFile rules;
  rules.name = file;
  if (object.has("document")) rules.document = object.text("document");
  for (const JsonObject& rule : object.objects("rules")) rules.rules.push_back(rule_from(rule));
  object.finish();
  return rules;
}

RowRules::RowRules(std::vector<RuleFile> files) : files_(std::move(files)) {
  for (const RuleFile& file : files_)
    add(file, file.document.empty() ? general_ : by_document_[file.document]);
  for (auto& [document, fields] : by_document_) {
    for (const auto& [field, rules] : general_)
      fields[field].insert(fields[field].end(), rules.begin(), rules.end());
  }
}

const RowRules::ByField& RowRules::rules_for(std::string_view document) const {
  const auto found = by_document_.find(document);
  return found == by_document_.end() ? general_ : found->second;
}

const RowRules& built_in_rules() {
  static const RowRules rules(read_built_in());
  return rules;
}

}  // namespace plimsoll
