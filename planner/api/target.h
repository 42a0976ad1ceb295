// Target of a command: the job, cluster, framework and calibration that its arguments name.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/command_line.h"
#include "interop/imports/imported.h"
#include "models/framework/framework.h"
#include "models/job/job.h"
#include "models/presets/presets.h"
#include "passes/strategy/strategy.h"
#include "plan/training/training.h"
#include "planner/space/space.h"
#include "predict/cost_basis.h"
#include "predict/target.h"

namespace plimsoll {

/// The memory that is kept free on each device where nothing else is asked for.
inline constexpr Bytes kDefaultReserve{std::int64_t{1} << 30};

/// Texts that stand for files, by the names that options give. They are for callers that hold a
/// file in memory: a name that is in here is not looked for on the disk.
using GivenTexts = std::map<std::string, std::string>;

/// Returns the given text of that name, else the text of the file or preset.
std::string given_text(const GivenTexts& texts, const std::string& name,
                       const std::vector<Preset>& presets);

/// Job and machine, as every planning command names them.
struct TargetOptions {
  std::string job;   ///< a job file, a preset, or a file that import_file() reads
  std::string from;  ///< script of a framework that states job, strategy and framework
  std::optional<Imported> imported;  ///< what that script says, once it was read
  std::string cluster;               ///< a file or preset, with a count as named_cluster() has it
  std::vector<std::string> calibration;      ///< as read_calibration_choice() takes it
  std::string framework;                     ///< empty: by device kind
  std::int64_t devices = 0;                  ///< 0: all that the cluster file states
  std::optional<std::int64_t> global_batch;  ///< instead of the job's
  std::optional<std::int64_t> sequence;      ///< the same
  std::optional<BytesPerSecond> network;     ///< per device, instead of the cluster file's
  std::optional<std::int64_t> vocab;         ///< if a framework's file does not state it
  bool ignore_unknown = false;               ///< goes on without flags that no table has
  GivenTexts texts;                          ///< of the job, the cluster and the framework
  /// Takes lines that say how a file of another tool was read.
  std::function<void(std::string_view)> note = print_note;
};

/// The files behind TargetOptions, read and checked.
struct LoadedTarget {
  Target target;
  CostSource source;                   ///< how the costs are known
  std::int64_t stated_vocabulary = 0;  ///< of the job before the framework padded it
  std::string cluster_digest;          ///< of the file
};

/// A NamedCluster is a cluster's file or preset, with the devices that are asked for; 0: all.
struct NamedCluster {
  std::string name;
  std::int64_t devices = 0;
};
/// Splits "8xh100" (devices), "2xdgx-h100-80gb" (nodes) and "2x8xh100" (nodes of devices). Throws
/// UsageError without a cluster, and for another --devices than these are.
NamedCluster named_cluster(const TargetOptions& options);
/// Returns the file or preset that a word for a cluster names. Throws UsageError as named_cluster()
/// does; `devices` 0 requires none.
std::string cluster_file(const std::string& word, std::int64_t devices = 0,
                         const GivenTexts& texts = {});

/// Reads the job as its file has it, or as a file of another tool has it
/// (interop/imports/imported.h), whose notes `options.note` takes.
Job read_stated_job(const TargetOptions& options);
/// Reads the script that `from` names, if one is named, and notes what was assumed and what was
/// not read. Throws UsageError unless either a job or a script is named.
void read_from(TargetOptions& options);
/// Reads the framework that is named. Without a name, the kind of device of the cluster file and
/// the job decide; without a cluster it is the bundled runtime.
Framework load_framework(const TargetOptions& options, const Job& job);
/// Reads the target of a question. Throws InfeasibleError where it has more GPUs than its cluster.
LoadedTarget load_target(const TargetOptions& options, Bytes reserve);
/// Reads the cluster and its costs for a job that was read before, by read_stated_job(). A target
/// with more GPUs than its cluster is one of several points, which search() refuses.
LoadedTarget load_point(const TargetOptions& options, Job stated_job, Bytes reserve);
/// Reads a strategy from text or a file. Throws InfeasibleError where the strategy is not legal on
/// so many devices, saying why.
Strategy legal_strategy(const Job& job, const Framework& framework, const std::string& text,
                        std::int64_t devices);
/// Returns the strategy, if it is legal. Throws InfeasibleError as above.
Strategy legal_strategy(const Job& job, const Framework& framework, const Strategy& strategy,
                        std::int64_t devices);
/// Returns the job as its file has it: the vocabulary is not padded.
Job stated_job(const LoadedTarget& loaded);
/// Returns the first line of every result: "GPT on 2 devices of CLUSTER; framework ...; calibration
/// ...".
std::string headline(const LoadedTarget& loaded, bool oversubscribed);
/// Says what each group of the cluster's efficiency parameters rests on. The line is empty where
/// the parameters are not used or a fit on runs took their place.
std::string efficiency_line(const LoadedTarget& loaded);

// The largest values of arguments that questions take, from a command line or from Python.
inline constexpr std::int64_t kMostGlobalBatch = std::int64_t{1} << 24;  ///< sequences per step
inline constexpr std::int64_t kMostSequence = std::int64_t{1} << 27;     ///< tokens
inline constexpr std::int64_t kMostVocabulary = std::int64_t{1} << 24;   ///< tokens
inline constexpr std::int64_t kMostThreads = 1024;
/// Plans of one list. Each is simulated once more, to say where its step goes.
inline constexpr std::int64_t kMostListedPlans = 100;
inline constexpr double kMostDropout = 0.999999;

}  // namespace plimsoll
