// An Imported is what a file of another tool states of a training job, in this project's types. Its
// summary is what `planner import` prints.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "interop/flags/flag_reader.h"
#include "models/framework/framework.h"
#include "models/job/job.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

struct Imported {
  std::string kind;  ///< "Hugging Face config.json"
  std::optional<Job> job;
  std::optional<Strategy> strategy;
  std::optional<Framework> framework;
  std::optional<std::int64_t> devices;
  std::vector<std::string> notes;   ///< what was assumed, or read in a special way
  std::vector<std::string> unread;  ///< keys that say nothing of any of these
  /// Flags and programs that may change all of these: a result without them may be another run's.
  std::vector<UnknownFlag> unknown;
};

/// ImportGiven has what a user states because the file does not, or instead of what it says.
struct ImportGiven {
  std::optional<std::int64_t> sequence;      ///< tokens
  std::optional<std::int64_t> global_batch;  ///< sequences per step
  std::optional<DType> precision;
  std::optional<double> dropout;
  std::optional<std::int64_t> devices;  ///< where a script leaves them to its launcher
  /// the job that a framework's file is for, where the file does not describe the model
  std::optional<Job> job;
  std::vector<std::string> joined;  ///< products of the job's model that are one: "qkv", "gate_up"
  std::string name;                 ///< of the job; empty: the file's
  std::string family;  ///< name of the preset of models/presets/architectures; empty: the file's
  std::optional<std::int64_t> vocab;  ///< tokens, where a framework's file does not state them
};

/// Reads a file whose kind its content tells. Throws InputError, with the place in the file, where
/// no kind fits or where our types cannot state exactly what the file says.
Imported import_file(const std::filesystem::path& path, const ImportGiven& given = {});
/// Does the same for text of `file`.
Imported import_text(std::string_view text, const std::string& file, const ImportGiven& given = {});
/// Returns whether a file of this kind may have settings of a run alone, for a model that
/// ImportGiven::job has.
bool takes_job(std::string_view text);
/// Returns the products that the model of a config.json computes as one (ImportGiven::joined).
/// There are none for other texts.
std::vector<std::string> joined_products(std::string_view text);
/// Returns the flag with its line: "--conv-gate (line 7)".
std::string text_of(const UnknownFlag& unknown);
/// Throws InputError that names all unknown flags with their lines, if there are any.
void refuse_unknown(const Imported& imported, const std::string& file);
/// Returns whether some kind fits the text. A file of this project's own fits none.
bool is_importable(std::string_view text);

/// Returns lines with the kind, the job, the notes and the keys that were not read. `parameters` is
/// the line on the job's number of parameters, which comes after those on the job.
std::string import_summary(const Imported& imported, const std::string& parameters);
/// Returns the same as JSON (docs/reference/imports.md).
std::string import_summary_json(const Imported& imported);

}  // namespace plimsoll
