// Rules applied to one row.
#include "published/stated_row.h"

#include <algorithm>
#include <optional>

#include "models/calibration/fitted_calibration.h"

namespace plimsoll {
namespace {

constexpr std::string_view kStated = "stated.", kStatements = "statements";
const Json kNothing = nullptr;

const Json& field_of(const Json& row, std::string_view path) {
  const Json* value = &row;
  while (true) {
    const std::size_t dot = std::min(path.find('.'), path.size());
    const auto member = value->is_object() ? value->find(path.substr(0, dot)) : value->end();
    if (!value->is_object() || member == value->end()) return kNothing;
    value = &*member;
    if (dot == path.size()) return *value;
    path.remove_prefix(dot + 1);
  }
}

void set_field(Json& row, std::string_view path, const Json& value) {
  Json* into = &row;
  for (std::size_t dot = 0; (dot = path.find('.')) != path.npos; path.remove_prefix(dot + 1)) {
    into = &(*into)[std::string(path.substr(0, dot))];
    if (!into->is_object()) *into = Json::object();
  }
  (*into)[std::string(path)] = value;
}

/// The fields of one row, as rules say them.
class Statement {
 public:
  Statement(const Json& row, const RowRules::ByField& rules, std::string file, std::string pointer)
      : row_(row), rules_(rules), file_(std::move(file)), pointer_(std::move(pointer)) {}

  struct Field {
    Json value;
    const RowRule* rule = nullptr;  ///< absent: the row's own value
  };

  const Field& field(std::string_view path) {
    const auto known = fields_.find(path);
    if (known != fields_.end()) return known->second;
    check_no_circle(path);
    open_.emplace_back(path);
    Field found{field_of(row_, path)};
    const bool own = path.starts_with(kStated) && !found.value.is_null();
    const auto rules = rules_.find(path);
    if (!own && rules != rules_.end()) {
      const auto first = std::ranges::find_if(
          rules->second, [&](const FieldRule& rule) { return holds(*rule.rule); });
      if (first != rules->second.end()) found = {value_of(*first->value), first->rule};
    }
    open_.pop_back();
    return fields_.emplace(path, std::move(found)).first->second;
  }

  Json stated() {
    Json result = row_, statements = Json::array();
    for (const auto& [path, unused] : rules_) {
      const Field& found = field(path);
      if (found.rule == nullptr) continue;
      set_field(result, path, found.value);
      statements.push_back({{"field", path},
                            {"value", found.value},
                            {"source", found.rule->source},
                            {"settled_by_results", found.rule->settled_by_results}});
    }
    result[std::string(kStatements)] = std::move(statements);
    return result;
  }

 private:
  /// The row's own word for the field whose rules are being asked, else what rules say.
  const Json& seen(std::string_view path) {
    if (!open_.empty() && open_.back() == path) return field_of(row_, path);
    return field(path).value;
  }

  bool holds(const RowRule& rule) {
    const auto all = [&](const RowRule::Conditions& conditions) {
      return std::ranges::all_of(conditions, [&](const auto& condition) {
        return condition.second.holds(seen(condition.first));
      });
    };
    return rule.when.empty() || std::ranges::any_of(rule.when, all);
  }

  Json value_of(const RuleValue& said) {
    if (said.of.empty()) return said.value;
    const Json& other = seen(said.of);
    if (!other.is_number_integer()) return other;
    return other.get<std::int64_t>() + said.plus;
  }

  void check_no_circle(std::string_view path) const {
    if (std::ranges::find(open_, path) == open_.end()) return;
    throw InputError(
        file_, pointer_,
        "rules for " + open_.back() + " and " + std::string(path) + " need each other");
  }

  const Json& row_;
  const RowRules::ByField& rules_;
  std::string file_, pointer_;
  std::map<std::string, Field, std::less<>> fields_;
  std::vector<std::string> open_;
};

}  // namespace

Json stated_row(const Json& row, const RowRules& rules, const std::string& file,
                const std::string& pointer) {
  JsonObject object(row, file, pointer);
  if (object.has(kStatements)) return row;
  const std::string document = document_of(object.object("source").text("repo_or_doc"));
  return Statement(row, rules.rules_for(document), file, pointer).stated();
}

Json stated_field(std::string_view given, const Json& value, std::string_view field) {
  Json row = Json::object();
  set_field(row, given, value);
  return Statement(row, built_in_rules().rules_for(""), "rules", "").field(field).value;
}

Json stated_rows(std::string_view text, const std::string& file) {
  const Json document = parse_json(text, file);
  if (!document.is_array())
    throw InputError(file, "", "expected an array of rows, each one published run");
  Json rows = Json::array();
  for (std::size_t i = 0; i < document.size(); ++i)
    rows.push_back(stated_row(document[i], built_in_rules(), file, "/" + std::to_string(i)));
  return rows;
}

}  // namespace plimsoll
