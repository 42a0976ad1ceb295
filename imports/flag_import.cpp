// Reads flags by a table and checks that the objects that come out state them.
#include "imports/flag_import.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>

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

}  // namespace

std::string job_name_of(const std::string& file) {
  const std::string name = as_one_word(std::filesystem::path(file).stem().string());
  return name.empty() ? "job" : name;
}

void set_given(Job& job, const ImportGiven& given, const std::string& file) {
  job.sequence = given.sequence.value_or(job.sequence);
  job.global_batch = given.global_batch.value_or(job.global_batch);
  job.precision = given.precision.value_or(job.precision);
  job.dropout = given.dropout.value_or(job.dropout);
  if (!given.name.empty()) job.name = given.name;
  check_job(job, file);
}

void import_flags(Imported& imported, const FlagTable& table, const std::vector<GivenFlag>& flags,
                  FlagFields known, const std::string& file, const ImportGiven& given,
                  const FlagFields& stated) {
  known.insert(stated.begin(), stated.end());
  if (given.job) {
    const FlagFields model = fields_of_model(*given.job);
    known.insert(model.begin(), model.end());
  }
  const std::string batch = given.job ? fmt::format("{}", given.job->global_batch) : "";
  FlagReading reading = read_flags(table, flags, std::move(known), file, batch);
  imported.notes.insert(imported.notes.end(), reading.notes.begin(), reading.notes.end());
  imported.unread.insert(imported.unread.end(), reading.unread.begin(), reading.unread.end());
  if (const auto count = value_of(reading.fields, "devices")) {
    std::int64_t value = 0;
    std::from_chars(count->data(), count->data() + count->size(), value);
    imported.devices = value;
  }
  const bool has_model = given.job || value_of(reading.fields, "vocab");
  if (!has_model && states_model(table)) throw InputError(file, "", table.without_model);
  if (reading.fields.contains("framework")) imported.framework = framework_of(reading.fields, file);
  const Strategy strategy = strategy_of(reading.fields, file);
  if (has_model) {
    if (!given.job) add_usual_step(reading.fields, given, imported.notes);
    imported.job =
        given.job ? job_over(*given.job, reading.fields, file) : job_of(reading.fields, file);
    const Framework& framework = imported.framework ? *imported.framework : bundled_framework();
    // Without devices what follows from their number cannot be checked.
    if (imported.devices || states_model(table))
      check_flags(table, reading, fields_of(*imported.job, strategy, framework), stated, file);
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
