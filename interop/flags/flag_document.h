// A flag document is a configuration file whose keys a flag table has.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "interop/flags/flag_fields.h"
#include "interop/flags/flag_reader.h"
#include "interop/flags/flag_table.h"

namespace plimsoll {

/// Returns the table whose documents look like the text, or null where there is none.
const FlagTable* document_table_of(std::string_view text);

/// Returns the table whose command lines look like the text, or null where there is none.
const FlagTable* command_line_table_of(std::string_view text);

/// Returns the settings of a document as flags. A row for "a.name+a.size" reads two keys together,
/// where both are given. Settings that are null, or the table's `unset`, are left out unless a row
/// has that value. Throws InputError as read_document() does.
std::vector<GivenFlag> flags_in_document(const FlagTable& table, std::string_view text,
                                         const std::string& file);

/// Returns the options of a command line as the flags of a table with `options`. Options that are
/// given replace the values of the configuration that is named. Without a name there are only those
/// that are given. Throws InputError for a name that is not known.
std::vector<GivenFlag> flags_in_options(const FlagTable& table, std::vector<GivenFlag> given,
                                        const std::string& file);

/// Returns the options of a table with `options` that state the fields: a configuration's name
/// where one has the model, and each setting that an option sets. Lists have commas.
std::vector<std::vector<std::string>> options_of(const FlagTable& table, const FlagFields& fields);

/// Writes the document that states the fields and further settings, with comments in front where
/// the syntax has them.
std::string document_of(const FlagTable& table, const FlagFields& fields,
                        const std::vector<std::string>& comments,
                        const std::vector<std::pair<std::string, Json>>& settings = {});

}  // namespace plimsoll
