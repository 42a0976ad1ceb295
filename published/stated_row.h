// A stated row is a published row with all known facts about its run, and the source of each fact.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "published/row_rules.h"

namespace plimsoll {

/// Returns the row with the values that rules state for its fields. Its list `statements` names
/// each such field, its value, the source of the rule, and whether the rule was settled by looking
/// at results. A row that already has the list is returned unchanged.
///
/// The first rule for a field whose conditions hold states its value, and rules of the row's
/// document come first. Conditions see the values that rules state for other fields, and the row's
/// own value of the fields that the rule itself states. A field below "stated" that the row has is
/// never replaced. Fields below "implied" are only for conditions of other rules.
///
/// Throws InputError (of `file`, at `pointer`) where the row is no object or names no document, or
/// where rules for two fields need each other.
Json stated_row(const Json& row, const RowRules& rules, const std::string& file,
                const std::string& pointer);

/// Returns the value that rules state for `field` in a row whose only field is `given`, with
/// `value`.
Json stated_field(std::string_view given, const Json& value, std::string_view field);

/// Returns a file of rows as stated rows. Throws InputError.
Json stated_rows(std::string_view text, const std::string& file);

}  // namespace plimsoll
