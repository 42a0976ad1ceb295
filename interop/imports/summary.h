// A summary says what was imported, for a terminal or as JSON.
#pragma once

#include <string>

#include "interop/imports/imported.h"

namespace plimsoll {

/// Returns lines with the kind, the job, the notes and the keys that were not read. `parameters` is
/// the line on the job's number of parameters, which comes after those on the job.
std::string import_summary(const Imported& imported, const std::string& parameters);
/// Returns the same as JSON (docs/reference/imports.md).
std::string import_summary_json(const Imported& imported);

}  // namespace plimsoll
