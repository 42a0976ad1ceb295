// Gives a configuration file to the table that recognizes it.
#include "imports/framework_document.h"

#include <fmt/format.h>

#include "base/error.h"
#include "imports/flag_import.h"
#include "passes/strategy/flag_document.h"
#include "passes/strategy/flag_table.h"

namespace plimsoll {

bool looks_like_framework_document(std::string_view text) {
  return document_table_of(text) != nullptr;
}

Imported read_framework_document(std::string_view text, const std::string& file,
                                 const ImportGiven& given) {
  if (!given.family.empty())
    throw UsageError("--family is of a model's config; a framework's file names its own model");
  const FlagTable& table = *document_table_of(text);
  Imported imported;
  imported.kind = fmt::format("{} {}", table.target->name, table.target->version);
  FlagFields known = {{"name", job_name_of(file)}};
  if (given.devices) known["devices"] = fmt::format("{}", *given.devices);
  import_flags(imported, table, flags_in_document(table, text, file), std::move(known), file,
               given);
  if (imported.job) set_given(*imported.job, given, file);
  return imported;
}

}  // namespace plimsoll
