// Entry points: readers of each kind of text, each with its writer where there is one.
#include "tests/fuzz/entry_points.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include "base/command_line.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/units.h"
#include "calibrate/sessions/journal.h"
#include "fitting/op_measurement.h"
#include "interop/hardware/nccl_tests.h"
#include "interop/hardware/topology.h"
#include "interop/imports/imported.h"
#include "interop/logs/training_log.h"
#include "models/calibration/calibration_file.h"
#include "models/cluster/cluster.h"
#include "models/framework/allocator_trace.h"
#include "models/framework/framework_json.h"
#include "models/job/job.h"
#include "passes/strategy/strategy.h"
#include "plan/check.h"
#include "plan/checkpoint.h"
#include "plan/json_layout.h"
#include "plan/measured.h"
#include "plan/plan.h"
#include "planner/explain/why_not.h"
#include "published/goals.h"
#include "published/published_run.h"
#include "runtime/checkpoint/safetensors.h"
#include "tests/fuzz/command_words.h"

namespace plimsoll {
namespace {

constexpr const char* kFile = "input";

/// Reads the text, and requires that what is written of it is read as the same.
template <class Read, class Write>
void read_and_write(std::string_view text, Read read, Write write) {
  const std::string written = write(read(std::string(text), kFile));
  std::string again;
  try {
    again = write(read(written, kFile));
  } catch (const std::exception& error) {
    throw std::logic_error(fmt::format("what was written is refused: {}", error.what()));
  }
  if (again != written) throw std::logic_error("what was written is read as something else");
}

void read_of_job(std::string_view text) { read_and_write(text, parse_job, job_text); }
void read_of_cluster(std::string_view text) { read_and_write(text, parse_cluster, cluster_text); }
void read_of_framework(std::string_view text) { framework_of_text(text, kFile); }
void read_of_calibration(std::string_view text) {
  read_and_write(text, parse_calibration_file, calibration_file_text);
}
void read_of_plan(std::string_view text) {
  read_and_write(text, parse_plan, plan_text);
  check(parse_plan(text, kFile));
}
void read_of_measured(std::string_view text) {
  read_and_write(text, parse_measured, measured_text);
}
void read_of_strategy(std::string_view text) {
  read_and_write(text, strategy_from_json_text, strategy_text);
}
/// A text without "=" is the path of a file.
void read_of_choices(std::string_view text) {
  if (text.find('=') == text.npos) return;
  parse_strategy(text);
  parse_choices(std::string(text));
}
void read_of_nccl_tests(std::string_view text) { parse_nccl_tests(text, kFile, {}); }
void read_of_training_log(std::string_view text) {
  std::istringstream stream{std::string(text)};
  read_training_log(stream, kFile);
}
void read_of_topology(std::string_view text) { parse_topology(text, kFile); }
void read_of_published_runs(std::string_view text) { parse_published_runs(text, kFile); }
void read_of_goals(std::string_view text) { parse_goals(text, kFile); }
void read_of_timed_ops(std::string_view text) {
  if (is_op_measurements(text, kFile)) {
    parse_op_measurements(text, kFile);
  } else {
    parse_collective_measurements(text, kFile);
  }
}
void read_of_allocator_traces(std::string_view text) { parse_allocator_traces(text, kFile); }
void read_of_import(std::string_view text) {
  ImportGiven given;
  given.devices = 8;
  import_text(text, kFile, given);
}
/// One of the four quantities has to take the text; the others refuse it.
void read_of_units(std::string_view text) {
  bool taken = false;
  const auto try_as = [&](auto read) {
    try {
      read(text);
      taken = true;
    } catch (const std::invalid_argument&) {  // callers name the key
    }
  };
  try_as(parse_bytes);
  try_as(parse_seconds);
  try_as(parse_bytes_per_second);
  try_as(parse_flops_per_second);
  if (!taken) throw InputError(kFile, "", "no quantity");
}

void read_of_command_line(std::string_view text) {
  try {
    read_command_line(text);
  } catch (const UsageError& error) {
    throw UsageError(without_controls(error.what()));  // run_program() prints it so
  }
}

/// Returns a record with the digest of its other keys. Where the stated one is wrong, the record is
/// refused whatever else it says.
std::string with_digest(std::string_view text) {
  Json json = parse_json(text, kFile);
  if (!json.is_object() || !json.contains("digest")) return std::string(text);
  json.erase("digest");
  json.erase("$schema");
  json["digest"] = digest(line_text(json));
  return line_text(json);
}
void read_of_checkpoint(std::string_view text) {
  read_and_write(with_digest(text), parse_checkpoint, checkpoint_text);
}

/// A text that begins with { is a header alone. Its length comes before it, and behind it come as
/// many bytes of values as the examples have.
void read_of_safetensors(std::string_view text) {
  constexpr std::size_t kLength = 8, kValues = 40;
  std::string file(text);
  if (text.starts_with('{')) {
    std::string length(kLength, '\0');
    for (std::size_t i = 0; i < kLength; ++i) length[i] = char(text.size() >> (8 * i) & 0xff);
    file = length + file + std::string(kValues, 'v');
  }
  const auto bytes = std::int64_t(file.size());
  const std::int64_t start = safetensors_start(file.substr(0, kLength), bytes, kFile);
  parse_safetensors(file.substr(0, std::size_t(start)), bytes, kFile);
}

void read_of_journal(std::string_view text) {
  const std::string settings = "settings";
  const auto read = [&](std::string_view journal, const std::string& file) {
    return parse_journal(journal, settings, file);
  };
  const auto write = [&](const JournalText& journal) {
    std::string written = journal_begin(settings);
    for (const JournalEntry& entry : journal.finished) written += journal_line(entry);
    return written;
  };
  read_and_write(text, read, write);
}

}  // namespace

std::span<const EntryPoint> entry_points() {
  static const std::vector<EntryPoint> all = {
      {"job",
       read_of_job,
       {"models/presets/jobs", "tests/gpt-nano.json", "tests/expert-nano.json"}},
      {"cluster", read_of_cluster, {"models/presets/clusters"}},
      {"framework", read_of_framework, {"tests/fuzz/examples/framework"}},
      {"calibration", read_of_calibration, {"models/presets/calibrations"}},
      {"plan", read_of_plan, {"tests/fuzz/examples/plan"}},
      {"measured", read_of_measured, {"tests/fuzz/examples/measured"}},
      {"strategy", read_of_strategy, {"tests/fuzz/examples/strategy"}},
      {"choices", read_of_choices, {"tests/fuzz/examples/choices"}},
      {"nccl_tests", read_of_nccl_tests, {"tests/interop/nccl-tests"}},
      {"training_log", read_of_training_log, {"tests/interop/logs"}},
      {"profiler_trace", read_of_training_log, {"tests/interop/traces"}},
      {"topology", read_of_topology, {"tests/interop/topology"}},
      {"published_runs", read_of_published_runs, {"tests/fuzz/examples/published_runs"}},
      {"goals", read_of_goals, {"docs/results/goals.json"}},
      {"timed_ops", read_of_timed_ops, {"tests/fuzz/examples/timed_ops"}},
      {"allocator_traces", read_of_allocator_traces, {"tests/fuzz/examples/allocator_traces"}},
      {"import",
       read_of_import,
       {"tests/fuzz/examples/import", "tests/interop/gpt3-175b.sh",
        "tests/interop/data/deepseek-v3.json"}},
      {"units", read_of_units, {"tests/fuzz/examples/units"}},
      {"command_line", read_of_command_line, {"tests/fuzz/examples/command_line"}},
      {"checkpoint", read_of_checkpoint, {"tests/fuzz/examples/checkpoint"}},
      {"safetensors", read_of_safetensors, {"tests/fuzz/examples/safetensors"}},
      {"journal", read_of_journal, {"tests/fuzz/examples/journal"}},
  };
  return all;
}

const EntryPoint& entry_point(std::string_view name) {
  for (const EntryPoint& one : entry_points()) {
    if (one.name == name) return one;
  }
  throw UsageError(fmt::format("no entry point is called {}", name));
}

std::vector<std::filesystem::path> example_files(const EntryPoint& entry,
                                                 const std::filesystem::path& source) {
  std::vector<std::filesystem::path> files;
  const auto add = [&](const std::filesystem::path& path) {
    if (std::filesystem::is_regular_file(path)) files.push_back(path);
    if (!std::filesystem::is_directory(path)) return;
    std::vector<std::filesystem::path> found;
    for (const auto& one : std::filesystem::directory_iterator(path)) {
      if (one.is_regular_file()) found.push_back(one.path());
    }
    std::sort(found.begin(), found.end());
    files.insert(files.end(), found.begin(), found.end());
  };
  for (const std::string_view example : entry.examples) add(source / example);
  add(source / "tests/fuzz/findings" / entry.name);
  return files;
}

bool takes(const EntryPoint& entry, std::string_view text) {
  std::string refusal;
  try {
    entry.read(text);
    return true;
  } catch (const InputError& error) {
    refusal = error.what();
  } catch (const UsageError& error) {
    refusal = error.what();
  } catch (const InfeasibleError& error) {
    refusal = error.what();
  } catch (const std::exception& error) {
    throw std::logic_error(fmt::format("{}: {}", entry.name, error.what()));
  }
  if (refusal.empty() || without_controls(refusal) != refusal)
    throw std::logic_error(fmt::format("{}: an error's text has controls, or none", entry.name));
  return false;
}

}  // namespace plimsoll
