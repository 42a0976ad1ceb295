// Describe input: what a job, cluster, framework, calibration, plan, strategy or training log
// contains, with figures that follow from it, as groups of lines.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/units.h"
#include "interop/logs/training_log.h"
#include "models/calibration/calibration_file.h"
#include "models/cluster/cluster.h"
#include "models/framework/framework.h"
#include "models/job/job.h"
#include "passes/strategy/strategy.h"
#include "plan/plan.h"

namespace plimsoll {

/// A Fact has a value for programs and words for people.
struct Fact {
  std::string label;  ///< "peak bf16"
  std::string text;   ///< "989 TFLOP/s"
  Json value;
  std::string unit = {};  ///< ends the JSON key: "flops_per_s"; empty: the label alone is the key
};

struct Section {
  std::string title;
  std::string key;  ///< in JSON
  std::vector<Fact> facts = {};
  bool is_list = false;  ///< JSON has the values in a list, without the labels

  /// Adds a fact whose value is its text.
  void add(std::string label, std::string text);
  void add(std::string label, std::string text, Json value, std::string unit = "");
  /// Adds an integer with grouped digits.
  void add_count(std::string label, std::int64_t count);
  void add_bytes(std::string label, Bytes bytes);
  void add_time(std::string label, Seconds time);
};

struct Description {
  std::string kind, name;
  std::vector<Section> sections;
};

/// Returns "KIND NAME", then for each section its title and a line for each fact, or two for a long
/// label. Sections without facts are left out.
std::string description_text(const Description& description);
/// Returns an object with `kind`, `name` and an object, or a list, for each section. Blanks in
/// labels become '_'.
Json description_json(const Description& description);

/// Returns a key of a file in words: "kv heads".
std::string with_blanks(std::string_view key);
/// Returns a value of a file in words: "yes", "8,192", "none, selective"; "none" for an empty list.
std::string value_words(const Json& value);

/// An InputKind is the kind of a file that commands read.
enum class InputKind : std::uint8_t { job, cluster, framework, calibration, plan, strategy, log };
inline constexpr std::string_view kInputKinds[] = {"job",  "cluster",  "framework",   "calibration",
                                                   "plan", "strategy", "training log"};

/// An Input is the text of a file or of a preset, and its kind. A log has no text: it is read as a
/// stream.
struct Input {
  std::string name;  ///< path, or name of the preset
  std::string text;
  InputKind kind = InputKind::job;
};

/// Reads a file, a preset of any kind by its name, or a strategy such as "mp=2,pp=4". Throws
/// InputError for a name that is none of these, with the nearest preset, and for a file of another
/// kind.
Input read_input(const std::string& name_or_path);
/// Returns the kind of a document by its keys. Throws InputError where no key tells.
InputKind kind_of(std::string_view text, const std::string& file);

/// Returns the description of a file that is no plan. Throws InputError as its reader does.
Description describe_input(const Input& input);

/// Has each key of the job's file, how many parameters there are by kind and by block, what a step
/// computes, and the bytes of parameters, gradients and optimizer state on one rank without
/// sharding.
Description describe_job(const Job& job);
/// Says what devices and links reach, from how many FLOPs per byte on compute is what takes time,
/// what was measured or fitted, and the sources of all numbers.
Description describe_cluster(const Cluster& cluster);
/// Says what a framework can run and what not, with sources. `based_on` is empty where it stands
/// for itself.
Description describe_framework(const Framework& framework, const std::string& based_on);
/// Says what was measured, and what a fit rests on and found.
Description describe_calibration(const CalibrationFile& calibration, const std::string& name);
/// Returns what was read of a trainer's log or of a trace, what was left out and why, and the
/// doubts.
Description describe_log(const TrainingLog& log, const std::string& name);
/// Says what each choice of a strategy is for.
Description describe_strategy(const Strategy& strategy, const std::string& name);
/// Says what a plan is for, what it was made with, and its strategy. What it predicts has words and
/// JSON of its own (planner/cli/describe.h, plan/prediction_json.h).
Description describe_plan(const Plan& plan);

}  // namespace plimsoll
