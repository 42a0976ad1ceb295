// Gives a configuration file to the table that recognizes it.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <span>

#include "base/error.h"
#include "base/file.h"
#include "interop/flags/flag_document.h"
#include "interop/flags/flag_table.h"
#include "interop/imports/flag_import.h"
#include "interop/imports/readers.h"
#include "models/presets/preset_names.h"
#include "models/presets/presets.h"

namespace plimsoll {
namespace {

/// Returns the path of a file that a document names: beside the document, else from where the
/// program runs.
std::filesystem::path path_beside(const std::string& document, const std::string& named) {
  const std::filesystem::path beside = std::filesystem::path(document).parent_path() / named;
  return std::filesystem::is_regular_file(beside) ? beside : std::filesystem::path(named);
}

/// Takes the flag that names another file out of the flags.
std::optional<GivenFlag> take(std::vector<GivenFlag>& flags, const std::string& key) {
  const auto found = std::ranges::find(flags, key, &GivenFlag::option);
  if (found == flags.end()) return std::nullopt;
  GivenFlag flag = std::move(*found);
  flags.erase(found);
  return flag;
}

/// Returns what the document itself states, where the next table states the rest. Names of modules
/// are read by the model.
FlagReading read_first(const FlagTable& table, std::span<const GivenFlag> flags, FlagFields known,
                       const std::string& file, const ImportGiven& given) {
  FlagFields model;
  if (!table.model_key.empty()) {
    known["framework"] = flag_table_for(table.next->target)->frameworks.at(0);
    model = fields_of_given(given);
  }
  known.insert(model.begin(), model.end());
  FlagReading reading = read_flags(table, flags, std::move(known), file);
  for (const auto& [key, value] : model) reading.fields.erase(key);
  return reading;
}

/// Reads what the document states, and the rest by the next table.
void import_in_turn(Imported& imported, const FlagTable& table, std::vector<GivenFlag> flags,
                    const FlagFields& known, const std::string& file, const ImportGiven& given) {
  const FlagTable& next = *flag_table_for(table.next->target);
  const std::optional<GivenFlag> named = take(flags, table.next->file_key);
  if (!named && !table.next->always) {
    FlagTable alone = table;
    alone.next.reset();
    import_flags(imported, alone, std::move(flags), known, file, given);
    return;
  }
  const FlagReading first = read_first(table, flags, known, file, given);
  if (given.job) check_adapters(table, first.fields, file);
  imported.notes.insert(imported.notes.end(), first.notes.begin(), first.notes.end());
  imported.unread = first.unread;
  imported.unknown = first.unknown;
  if (!named) {
    import_flags(imported, next, {}, known, file, given, first.fields);
    return;
  }
  const std::string name = named->words.empty() ? "" : named->words[0].text;
  const std::filesystem::path path = path_beside(file, name);
  if (name.empty() || !std::filesystem::is_regular_file(path)) {
    throw InputError(file, fmt::format("line {}", named->line),
                     fmt::format("{} {}: no such file next to this one or in the current folder",
                                 named->option, printable(name)));
  }
  imported.notes.push_back(fmt::format("{} is read, too", printable(path.string(), 240)));
  import_flags(imported, next, flags_in_document(next, read_file(path), path.string()), known,
               path.string(), given, first.fields);
  for (std::size_t i = first.unknown.size(); i < imported.unknown.size(); ++i)
    imported.unknown[i].option += " of " + printable(name);
}

/// Returns the preset of a model's name on Hugging Face.
std::optional<std::string_view> preset_of_model(const std::string& name) {
  if (!is_model_id(name, job_presets())) return std::nullopt;
  try {
    return preset_meant(name, job_presets());
  } catch (const InputError&) {  // several presets
    return std::nullopt;
  }
}

/// Finds the model that the document names, if no job is given. The document states what is
/// trained, whatever the job does.
void find_model(ImportGiven& given, const FlagTable& table, std::span<const GivenFlag> flags,
                Imported& imported) {
  const auto named = std::ranges::find(flags, table.model_key, &GivenFlag::option);
  if (!given.job && named != flags.end() && !named->words.empty()) {
    const std::string& name = named->words[0].text;
    if (const auto preset = preset_of_model(name)) {
      given.job = parse_job(*find_preset(job_presets(), *preset), std::string(*preset));
      imported.notes.push_back(
          fmt::format("{} {}: the preset {}", table.model_key, printable(name), *preset));
    }
  }
  if (!given.job) return;
  given.job->adapters.reset();
  given.job->frozen.clear();
  given.job->frozen_weights = FrozenWeights::computed;
}

}  // namespace

bool looks_like_framework_document(std::string_view text) {
  return document_table_of(text) != nullptr;
}

Imported read_framework_document(std::string_view text, const std::string& file,
                                 const ImportGiven& stated) {
  if (!stated.family.empty())
    throw UsageError("--family is of a model's config; a framework's file names its own model");
  const FlagTable& table = *document_table_of(text);
  Imported imported;
  imported.kind = fmt::format("{} {}", table.target->name, table.target->version);
  FlagFields known = {{"name", job_name_of(file)}};
  ImportGiven given = stated;
  if (given.devices) known["devices"] = fmt::format("{}", *given.devices);
  std::vector<GivenFlag> flags = flags_in_document(table, text, file);
  if (!table.model_key.empty()) find_model(given, table, flags, imported);
  if (table.next) {
    import_in_turn(imported, table, std::move(flags), known, file, given);
  } else {
    import_flags(imported, table, flags, std::move(known), file, given);
  }
  if (imported.job) set_given(*imported.job, given, file);
  return imported;
}

}  // namespace plimsoll
