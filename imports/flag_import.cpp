// Reads flags by a table and checks that the objects that come out state them.
#include "imports/flag_import.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>

#include "base/error.h"

namespace plimsoll {
namespace {

/// Keys of a job that describe its model. A file of settings cannot change these of a given job.
constexpr std::string_view kModelKeys[] = {
    "family", "layers",          "hidden",   "heads",       "kv_heads",   "ffn_hidden",
    "vocab",  "tied_embeddings", "qkv_bias", "rotary_base", "activation", "norm"};

}  // namespace

std::string job_name_of(const std::string& file) {
  std::string name;
  for (const char c : std::filesystem::path(file).stem().string()) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '.' || c == '_' || c == '-';
    name += plain ? c : '_';
  }
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
                  FlagFields known, const std::string& file, const ImportGiven& given) {
  FlagFields of_job;
  if (given.job) {
    of_job = fields_of_job(*given.job);
    for (const std::string_view key : kModelKeys) {
      if (const auto field = of_job.find(key); field != of_job.end()) known.insert(*field);
    }
  }
  FlagReading reading = read_flags(table, flags, std::move(known), file);
  imported.notes.insert(imported.notes.end(), reading.notes.begin(), reading.notes.end());
  imported.unread = reading.unread;
  if (const auto count = value_of(reading.fields, "devices")) {
    std::int64_t value = 0;
    std::from_chars(count->data(), count->data() + count->size(), value);
    imported.devices = value;
  }
  if (!given.job && !value_of(reading.fields, "vocab"))
    throw InputError(file, "", table.without_model);
  FlagFields job_fields = reading.fields;
  job_fields.insert(of_job.begin(), of_job.end());
  imported.job = job_of(job_fields, file);
  imported.framework = framework_of(reading.fields, file);
  const Strategy strategy = strategy_of(reading.fields, file);
  check_flags(table, reading, fields_of(*imported.job, strategy, *imported.framework), file);
  if (imported.devices) {
    imported.strategy = strategy;
  } else {
    imported.notes.push_back("the number of devices is not stated, so there is no strategy");
  }
}

}  // namespace plimsoll
