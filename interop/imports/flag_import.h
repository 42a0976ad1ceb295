// A flag import is what a framework's flags or settings say, as an Imported.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "interop/flags/flag_fields.h"
#include "interop/flags/flag_reader.h"
#include "interop/flags/flag_table.h"
#include "interop/imports/imported.h"

namespace plimsoll {

/// Sets job, strategy, framework and devices of `imported` by the rows of a table, and adds notes.
/// `known` has fields that are known beside the flags, such as "devices", and `stated` those that
/// another file has. Sizes of the model are those of `given.job`, where there is one; flags may
/// repeat them. What flags do not state of the rest of a job is that job's, too. Without a number
/// of devices there is no strategy. Throws InputError.
void import_flags(Imported& imported, const FlagTable& table, std::vector<GivenFlag> flags,
                  FlagFields known, const std::string& file, const ImportGiven& given,
                  const FlagFields& stated = {});

/// Sets in an imported job what the user states instead. Throws InputError.
void set_given(Job& job, const ImportGiven& given, const std::string& file);

/// Returns a job's name from a file's name.
std::string job_name_of(const std::string& file);

}  // namespace plimsoll
