// A Framework describes how an executor runs ops: the passes lower for it, and the cost model
// charges for it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "models/framework/capabilities.h"
#include "models/framework/framework_host.h"
#include "models/framework/framework_kernels.h"
#include "models/framework/framework_memory.h"
#include "models/framework/framework_parallelism.h"

namespace plimsoll {

/// The source of each group of fields in files: a document, code or a measurement.
struct FrameworkSources {
  std::string kernels, parallelism;
  std::string dispatch, waits;  ///< of the host; waits is empty if it never waits
  std::string memory;           ///< of the workspace, the context and communicators
  std::string allocator;        ///< and of what it allocates in addition to the Program's tensors
  bool operator==(const FrameworkSources&) const = default;
};

/// RunsOn names the devices on which planner-run executes Programs lowered for a framework.
enum class RunsOn : std::uint8_t { nothing, cpu_cores, gpus };

/// FrameworkFacts are facts about a framework other than how it runs ops. Plan files leave them
/// out, since they follow from the framework's name.
struct FrameworkFacts {
  /// The framework whose fits also hold for this one, since both are equal in all that fits change.
  /// Empty: only its own fits hold.
  Sourced<std::string> calibrated_as;
  /// Whether rates typical of training predict its steps better than the rates that kernels reach
  /// alone.
  Sourced<bool> typical_rates{true};
  RunsOn runs_on = RunsOn::nothing;
  bool operator==(const FrameworkFacts&) const = default;
};

struct Framework {
  std::string name;
  Capabilities can;  ///< the strategies that the framework can run
  FrameworkKernels kernels;
  FrameworkParallelism parallelism;
  FrameworkHost host;
  FrameworkMemory memory;
  FrameworkSources sources;
  FrameworkFacts facts;
  bool operator==(const Framework&) const = default;
};

/// Returns the rows of the vocabulary over mp ranks, padded as the framework does it.
std::int64_t padded_vocabulary(std::int64_t rows, const Framework& framework, std::int64_t mp);
/// Returns whether two frameworks lower to the same Programs: they differ at most in host times and
/// in memory that no tensor shows, which calibrations state.
bool lowers_alike(Framework a, const Framework& b);

/// Returns whether planner-run can execute Programs that are lowered for the framework.
bool runs_here(const Framework& framework);
/// Returns the name of the framework whose fitted calibrations hold for this one.
std::string calibrated_as(const Framework& framework);

// The built-in frameworks are in models/presets/frameworks.

/// Returns the bundled runtime (planner-run) on CPU cores. Its Programs run on every backend.
const Framework& bundled_framework();
/// Returns the bundled runtime with the kernels of its cuda backend.
const Framework& bundled_cuda_framework();
/// Returns the framework of that name, or null where there is none.
const Framework* find_framework(std::string_view name);
/// Returns the framework of that name. Throws UsageError naming the known ones.
const Framework& framework_by_name(std::string_view name);
/// Returns the facts of the built-in framework of that name, or the defaults where there is none.
FrameworkFacts facts_of(std::string_view name);
/// Returns all built-in frameworks, ordered by name.
const std::vector<Framework>& all_frameworks();
std::string known_frameworks();  ///< their names, with commas between

/// Returns the built-in framework of that name, or the framework that the file at that path
/// describes, which has a name of its own. Throws UsageError and InputError.
Framework read_framework(const std::string& name_or_path);

}  // namespace plimsoll
