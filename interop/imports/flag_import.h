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

/// Returns what is known of the given job's model, if there is one.
FlagFields fields_of_given(const ImportGiven& given);

/// Refuses fields that state adapters without their rank or their targets, by the option of the
/// table that states these.
void check_adapters(const FlagTable& table, const FlagFields& fields, const std::string& file);

/// Sets in an imported job what the user states instead. Throws InputError.
void set_given(Job& job, const ImportGiven& given, const std::string& file);

/// Returns a job's name from a file's name.
std::string job_name_of(const std::string& file);

}  // namespace plimsoll
