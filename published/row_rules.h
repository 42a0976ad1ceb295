// Row rules are data files that state facts about published rows beside the rows' own words.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "published/row_condition.h"

namespace plimsoll {

/// A RuleValue is the value that a rule states for a field: `value` itself, or the value of the
/// row's field `of`. `plus` is added to it.
struct RuleValue {
  Json value;
  std::string of;  ///< path of a field; empty: `value` counts
  std::int64_t plus = 0;
};

/// A RowRule is one statement about the rows for which its conditions hold. A field is named by its
/// path in the row, with dots: "parallel.tp".
struct RowRule {
  using Conditions = std::vector<std::pair<std::string, RowCondition>>;  ///< all have to hold
  std::vector<Conditions> when;  ///< one has to hold; empty: the rule is about every row
  std::vector<std::pair<std::string, RuleValue>> says;
  std::string source;  ///< document or code that says so
  /// Whether its author chose among possible facts by looking at predictions of these runs.
  bool settled_by_results = false;
};

/// A RuleFile has the rules of one file of models/presets/documents or models/presets/words.
struct RuleFile {
  std::string name;
  /// identity of the document whose rows the rules are about; empty: all rows
  std::string document;
  std::vector<RowRule> rules;
};

/// Parses a file of rules. Throws InputError with file and pointer.
RuleFile parse_rules(std::string_view text, const std::string& file);

/// A rule for one field.
struct FieldRule {
  const RowRule* rule = nullptr;
  const RuleValue* value = nullptr;
};

/// RowRules has the rules by field, in the order in which they are tried.
class RowRules {
 public:
  /// Files about documents come before files about all rows.
  explicit RowRules(std::vector<RuleFile> files);
  RowRules(const RowRules&) = delete;
  RowRules& operator=(const RowRules&) = delete;

  using ByField = std::map<std::string, std::vector<FieldRule>, std::less<>>;
  const ByField& rules_for(std::string_view document) const;

 private:
  std::vector<RuleFile> files_;
  ByField general_;
  std::map<std::string, ByField, std::less<>> by_document_;
};

/// Returns the rules that are built in.
const RowRules& built_in_rules();

}  // namespace plimsoll
