// Row rules: what is known of published rows beside their own words, as data files state it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "published/row_condition.h"

namespace plimsoll {

/// The value that a rule states for a field: `value` itself, or that of the row's field `of`, and
/// `plus` more.
struct RuleValue {
  Json value;
  std::string of;  ///< path of a field; empty: `value` counts
  std::int64_t plus = 0;
};

/// One statement about the rows for which its conditions hold. A field is named by its path in the
/// row, with dots: "parallel.tp".
struct RowRule {
  using Conditions = std::vector<std::pair<std::string, RowCondition>>;  ///< all have to hold
  std::vector<Conditions> when;  ///< one has to hold; empty: the rule is about every row
  std::vector<std::pair<std::string, RuleValue>> says;
  std::string source;  ///< document or code that says so
  /// Whether its author chose among possible facts by what the predictions of these runs were.
  bool settled_by_results = false;
};

/// The rules of one file of models/presets/documents or models/presets/words.
struct RuleFile {
  std::string name;
  std::string document;  ///< identity of the document whose rows it is about; empty: all rows
  std::vector<RowRule> rules;
};

/// Throws InputError with file and pointer.
RuleFile parse_rules(std::string_view text, const std::string& file);

/// A rule for one field.
struct FieldRule {
  const RowRule* rule = nullptr;
  const RuleValue* value = nullptr;
};

/// Rules by field, in the order in which they are asked.
class RowRules {
 public:
  /// Files of documents come before those about all rows.
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

/// The rules that are built in.
const RowRules& built_in_rules();

}  // namespace plimsoll
