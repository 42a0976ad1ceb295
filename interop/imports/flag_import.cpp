// Reads flags by a table and checks that the objects that come out state them.
#include "interop/imports/flag_import.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <filesystem>
#include <set>

#include "base/error.h"

namespace plimsoll {
namespace {

/// Sets what a model's file leaves to the run and no job states.
void add_usual_step(FlagFields& fields, const ImportGiven& given, std::vector<std::string>& notes) {
  const auto assume = [&](const char* key, const char* flag, const char* value, bool known) {
    if (fields.contains(key)) return;
    fields[key] = value;
    if (!known) notes.push_back(fmt::format("{} {} is assumed; {} states it", key, value, flag));
  };
  assume("global_batch", "--global-batch", "256", given.global_batch.has_value());
  assume("precision", "--precision", "bf16", given.precision.has_value());
}

/// Returns what a file without a model says of the step.
std::string step_words(const FlagFields& fields) {
  std::string words;
  for (const char* key : {"global_batch", "precision"}) {
    if (const auto field = fields.find(key); field != fields.end())
      words += fmt::format("{}{} {}", words.empty() ? "; it states " : ", ", key, field->second);
  }
  return words;
}

/// Whether a row names a model by words alone, such as torchtitan's flavors.
bool names_model(const FlagRow& row) {
  return row.kind == FlagRow::Kind::flag &&
         std::ranges::any_of(
             row.when, [](const FlagCondition& condition) { return condition.key == "hidden"; });
}

/// Takes out a name of a model that no row has: it is JOB's. Returns the option that names models,
/// if the flags that are left do not have it.
std::string take_unknown_model(const FlagTable& table, std::vector<GivenFlag>& flags,
                               std::vector<std::string>& notes) {
  const auto of_model = std::ranges::find_if(table.rows, names_model);
  if (of_model == table.rows.end()) return "";
  const std::string option = of_model->words[0];
  const auto flag = std::ranges::find(flags, option, &GivenFlag::option);
  if (flag == flags.end()) return option;
  std::vector<std::string> words = {option};
  for (const GivenWord& word : flag->words) words.push_back(word.text);
  if (std::ranges::any_of(
          table.rows, [&](const FlagRow& row) { return names_model(row) && row.words == words; }))
    return "";
  notes.push_back(fmt::format("{}: this model is not known; it is JOB's",
                              printable(fmt::format("{}", fmt::join(words, " ")))));
  flags.erase(flag);
  return option;
}

/// Says which variables may hold the flags that are missing.
std::string unread_words(const Imported& imported) {
  std::string words;
  for (const UnknownFlag& unknown : imported.unknown) {
    if (!unknown.why.empty()) words += fmt::format("; {} are not read", text_of(unknown));
  }
  return words.empty() ? "" : words + ". Write these flags into the command";
}

/// Refuses flags that leave out a size of the model, by the option that states it.
void check_sizes(const FlagTable& table, const FlagFields& fields, const Imported& imported,
                 const std::string& file) {
  for (const char* key : {"layers", "hidden", "heads", "ffn_hidden", "sequence"}) {
    if (fields.contains(key)) continue;
    const std::string value = fmt::format("{{{}}}", key);
    const auto row = std::ranges::find_if(table.rows, [&](const FlagRow& one) {
      return one.kind == FlagRow::Kind::flag &&
             std::ranges::find(one.words, value) != one.words.end();
    });
    if (row == table.rows.end()) continue;
    throw InputError(file, "",
                     fmt::format("{} is required{}", row->words[0], unread_words(imported)));
  }
}

/// Returns the job of the fields. An error names the flag that states the value.
Job job_by_flags(const FlagReading& reading, const ImportGiven& given, const std::string& file) {
  try {
    return given.job ? job_over(*given.job, reading.fields, file) : job_of(reading.fields, file);
  } catch (const InputError& error) {
    std::string key = error.pointer().substr(std::min<std::size_t>(1, error.pointer().size()));
    std::ranges::replace(key, '/', '.');
    const auto by = reading.stated_by.find(key);
    if (by == reading.stated_by.end() || by->second == kByFramework) throw;
    const std::string place = fmt::format("{}: at {}: ", error.file(), error.pointer());
    throw InputError(
        file, "",
        fmt::format("{}: {}", by->second, std::string_view(error.what()).substr(place.size())));
  }
}

/// Returns the flags without which the strategy would be legal, each with its line.
std::string causes_of(const FlagReading& reading, const Job& job, const Framework& framework,
                      const Strategy& strategy, std::int64_t devices) {
  std::set<std::string> flags;
  const Strategy usual;
  for (const std::string_view key : strategy_keys()) {
    const auto by = reading.stated_by.find(key);
    if (by == reading.stated_by.end() || by->second.starts_with("no ") ||
        by->second == kByFramework)
      continue;
    Strategy without = strategy;
    set_field(without, key, field_text(usual, key));
    if (legal(job, without, devices) && legal(framework, job, without)) flags.insert(by->second);
  }
  return flags.empty() ? "" : fmt::format(" ({})", fmt::join(flags, ", "));
}

/// Refuses a strategy that commands would refuse, while its file is at hand.
void check_legal(const FlagReading& reading, const Job& job, const Framework& framework,
                 const Strategy& strategy, std::int64_t devices, const std::string& file) {
  Verdict verdict = legal(job, strategy, devices);
  if (verdict) verdict = legal(framework, job, strategy);
  if (verdict) return;
  throw InputError(
      file, "",
      fmt::format("{} cannot run as {}: {}{}", job.name, strategy_summary(strategy),
                  verdict.reason(), causes_of(reading, job, framework, strategy, devices)));
}

}  // namespace

std::string job_name_of(const std::string& file) {
  const std::string name = as_one_word(std::filesystem::path(file).stem().string());
  return name.empty() ? "job" : name;
}

FlagFields fields_of_given(const ImportGiven& given) {
  if (!given.job) return {};
  FlagFields fields = fields_of_model(*given.job);
  fields["has_lengths"] = given.job->lengths.empty() ? "false" : "true";
  fields["has_adapters"] = given.job->adapters ? "true" : "false";
  if (!given.joined.empty()) fields["joined"] = fmt::format("{}", fmt::join(given.joined, "+"));
  return fields;
}

void check_adapters(const FlagTable& table, const FlagFields& fields, const std::string& file) {
  const auto stated = fields.lower_bound("adapters.");
  if (stated == fields.end() || !stated->first.starts_with("adapters.")) return;
  for (const std::string key : {"adapters.rank", "adapters.targets"}) {
    if (fields.contains(key)) continue;
    const auto row = std::ranges::find_if(table.rows, [&](const FlagRow& one) {
      return one.words.size() == 2 && one.words[1].starts_with("{" + key);
    });
    if (row != table.rows.end())
      throw InputError(file, "", fmt::format("{} is required", row->words[0]));
  }
}

void set_given(Job& job, const ImportGiven& given, const std::string& file) {
  job.sequence = given.sequence.value_or(job.sequence);
  job.global_batch = given.global_batch.value_or(job.global_batch);
  job.precision = given.precision.value_or(job.precision);
  job.dropout = given.dropout.value_or(job.dropout);
  if (!given.name.empty()) job.name = given.name;
  check_job(job, file);
}

void import_flags(Imported& imported, const FlagTable& table, std::vector<GivenFlag> flags,
                  FlagFields known, const std::string& file, const ImportGiven& given,
                  const FlagFields& stated) {
  known.insert(stated.begin(), stated.end());
  std::string model_option;
  if (given.job) model_option = take_unknown_model(table, flags, imported.notes);
  if (given.job) {
    const FlagFields model = fields_of_given(given);
    known.insert(model.begin(), model.end());
    known["job.precision"] = fields_of_job(*given.job).at("precision");
  }
  if (given.vocab && states_model(table)) known.emplace("vocab", fmt::format("{}", *given.vocab));
  const std::string batch = given.job ? fmt::format("{}", given.job->global_batch) : "";
  FlagReading reading = read_flags(table, flags, std::move(known), file, batch);
  if (!model_option.empty()) reading.read.emplace(model_option, nullptr);
  if (given.job) check_adapters(table, reading.fields, file);
  imported.notes.insert(imported.notes.end(), reading.notes.begin(), reading.notes.end());
  imported.unread.insert(imported.unread.end(), reading.unread.begin(), reading.unread.end());
  imported.unknown.insert(imported.unknown.end(), reading.unknown.begin(), reading.unknown.end());
  if (const auto count = value_of(reading.fields, "devices")) {
    std::int64_t value = 0;
    std::from_chars(count->data(), count->data() + count->size(), value);
    imported.devices = value;
  }
  const bool has_model = given.job || value_of(reading.fields, "vocab");
  if (!has_model && states_model(table))
    throw InputError(file, "", table.without_model + unread_words(imported));
  if (reading.fields.contains("framework")) imported.framework = framework_of(reading.fields, file);
  const Strategy strategy = strategy_of(reading.fields, file);
  if (has_model) {
    if (!given.job) check_sizes(table, reading.fields, imported, file);
    if (!given.job) add_usual_step(reading.fields, given, imported.notes);
    imported.job = job_by_flags(reading, given, file);
    const Framework& framework = imported.framework ? *imported.framework : bundled_framework();
    // Without devices what follows from their number cannot be checked.
    if (imported.devices || states_model(table))
      check_flags(table, reading, fields_of(*imported.job, strategy, framework), stated, file);
    if (imported.devices && imported.framework)
      check_legal(reading, *imported.job, framework, strategy, *imported.devices, file);
  } else {
    imported.notes.push_back(table.without_model + step_words(reading.fields));
  }
  if (!imported.framework) return;  // a file of a model alone
  if (imported.devices) {
    imported.strategy = strategy;
  } else {
    imported.notes.push_back("the number of devices is not stated, so there is no strategy");
  }
}

}  // namespace plimsoll
