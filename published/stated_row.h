// Stated row: a published row with all that is known of its run, and where each fact is from.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "published/row_rules.h"

namespace plimsoll {

/// The row with what the rules say of its fields written over what it says itself. Its list
/// `statements` names each such field, its value, the source of the rule, and whether that was
/// settled by looking at results. A row that has the list already is returned as it is.
///
/// The first rule for a field whose conditions hold says its value, and rules of the row's document
/// come first. Conditions see what rules say of other fields, and the row's own word for the fields
/// that the rule itself is for. A field below "stated" that the row has is never replaced. Fields
/// below "implied" are for conditions of other rules.
///
/// Throws InputError (of `file`, at `pointer`) where the row is no object or names no document, or
/// where rules for two fields need each other.
Json stated_row(const Json& row, const RowRules& rules, const std::string& file,
                const std::string& pointer);

/// Returns what rules say of `field` in a row that says nothing but this: its field `given` is
/// `value`.
Json stated_field(std::string_view given, const Json& value, std::string_view field);

/// A file of rows as stated ones. Throws InputError.
Json stated_rows(std::string_view text, const std::string& file);

}  // namespace plimsoll
