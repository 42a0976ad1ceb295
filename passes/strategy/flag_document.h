// A flag document is a configuration file whose keys a flag table has.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "passes/strategy/flag_fields.h"
#include "passes/strategy/flag_reader.h"
#include "passes/strategy/flag_table.h"

namespace plimsoll {

/// Returns the table whose documents look like the text, or null where there is none.
const FlagTable* document_table_of(std::string_view text);

/// Returns the settings of a document as flags. A row for "a.name+a.size" reads two keys together,
/// where both are given. Settings that are null are left out unless a row states the null. Throws
/// InputError as read_document() does.
std::vector<GivenFlag> flags_in_document(const FlagTable& table, std::string_view text,
                                         const std::string& file);

/// Writes the document that states the fields, with comments in front where the syntax has them.
std::string document_of(const FlagTable& table, const FlagFields& fields,
                        const std::vector<std::string>& comments);

}  // namespace plimsoll
