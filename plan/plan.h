// Plan: the only thing that crosses from planning to running. Embeds job, framework and strategy
// whole, cluster and calibration by digest; Programs are rebuilt and compared by digest. Holds no
// date, elapsed time or path: the same inputs give the same bytes.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "graph/timeline.h"
#include "models/calibration/calibration.h"
#include "models/cluster/cluster.h"
#include "models/framework/framework.h"
#include "models/job/job.h"
#include "passes/strategy/strategy.h"
#include "plan/timeline_detail.h"

namespace plimsoll {

inline constexpr std::int64_t kPlanVersion = 2;
/// The version of this product.
inline constexpr std::string_view kProductVersion = "0.1.0";
/// A plan's timeline shows every op up to this many devices, whole calls beyond.
inline constexpr std::int64_t kMostDevicesByOp = 8;
constexpr bool shows_calls(std::int64_t devices) { return devices > kMostDevicesByOp; }

/// Intervals in the file. A longer timeline is drawn together (plan/timeline_detail.h), and
/// `timeline_resolution` says what is shorter than it shows.
inline constexpr std::size_t kMostIntervals = 3'000;
/// Points of memory curves in the file, over all ranks; a curve has at least kLeastPoints.
inline constexpr std::size_t kMostPoints = 2'000, kLeastPoints = 16;
/// Ranks whose intervals a timeline that is drawn together keeps, from the first to the last.
inline constexpr std::size_t kMostRanksInDetail = 16;

/// The last instant a plan's timeline may show, 2 h 30 min: times in files are integers within
/// 2^53, in picoseconds.
inline constexpr Picoseconds kLongestTimeline{std::int64_t{1} << 53};

/// Seconds of one step of the critical rank (the one that computes longest), summing to the step
/// time: compute by phase, communication that compute does not hide, and waiting for other stages.
struct Breakdown {
  Seconds forward, recompute, backward, optimizer;
  Seconds
      exposed_communication;  ///< transfers and waits of collectives and transfers, bubble excluded
  Seconds bubble;             ///< waiting for activations or gradients of another stage
  Seconds dispatch;           ///< the rest: host time between ops
};

/// The prediction for one class of ranks: a pipeline stage, in owner mode the ranks of it that own
/// the same tensors.
struct StagePrediction {
  std::int64_t stage = 0;
  Bytes peak;
  BytesByRole by_role;  ///< at the first peak
  Bytes arena;
  Bytes capacity;                       ///< device memory
  std::optional<std::int64_t> owner{};  ///< owner mode: their sharding coordinate
  /// Peaks of the framework's allocator (simulator/memory/allocation_replay.h): blocks handed out,
  /// and what it takes of the device. Of an arena: peak and arena.
  Bytes allocated{}, reserved{};
};

/// "stage 1", in owner mode "stage 1 owner 0".
std::string name_of(const StagePrediction& stage);
/// Whether it is the index-th class of a strategy's ranks.
bool is_class(const StagePrediction& stage, const Strategy& strategy, std::size_t index);

/// Ops of one shape, size and group size beyond what was measured or fitted.
struct OutsideRange {
  std::string what;  ///< "matmul 4096x512x1024 bf16", "all_reduce 3.2 GiB bf16 over 16 ranks"
  double share = 0;  ///< their time over the step time; communications may be hidden
  bool operator==(const OutsideRange&) const = default;
};

struct Prediction {
  Seconds step_time;
  /// Ends of the 90 % interval (predict/step_interval.h). Not the same on both sides where nothing
  /// but what kernels reach alone is known: training runs take longer.
  Seconds step_time_low, step_time_high;
  double tokens_per_second = 0;
  double mfu = 0, hfu = 0;
  FlopsPerSecond peak_flops;  ///< per device, the peak MFU is relative to
  std::string peak_source;
  Breakdown breakdown;
  std::vector<StagePrediction> stages;  ///< one per class of ranks, in order of class_of
  Provenance worst = Provenance::datasheet;
  std::array<double, kProvenances> share_by_provenance = {};  ///< of the step's op time
  std::vector<OutsideRange> extrapolated;  ///< of the critical rank, largest share first
};

/// The 90 % interval of a plan's step time over the chosen plan's (predict/plan_difference.h).
struct StepRatio {
  double low = 1, high = 1;
  bool tied = true;  ///< it holds 1: as far as is known either plan may be the faster
};

/// A plan that fits and lost, and the term by which it loses most.
struct RunnerUp {
  Strategy strategy;
  Seconds step_time;
  StepRatio ratio;
  Bytes peak;   ///< live bytes, largest over stages
  Bytes taken;  ///< of the device: Filling::taken, largest over stages
  /// "compute", "recompute", "optimizer", "exposed communication", "bubble", "dispatch", "memory",
  /// or "tie" where only the canonical order decides.
  std::string term;
  Seconds term_time;  ///< how much more of that term than the chosen plan (time terms)
  Bytes term_bytes;   ///< term "memory": more at equal time, by this much
};

struct Pruned {
  std::string reason;
  std::int64_t count = 0;
};

/// A plan follows another on the Pareto front where it needs at least this share less memory. Less
/// is within what the prediction of memory is worth, and hundreds of plans would differ by it.
inline constexpr double kFrontSaving = 0.05;
inline bool saves_enough(Bytes memory, Bytes before) {
  return double(memory.count()) <= (1 - kFrontSaving) * double(before.count());
}

/// A plan that fits: the best one, or one whose taken bytes save enough against the one before it.
struct ParetoPlan {
  Strategy strategy;
  Seconds step_time;
  StepRatio ratio;
  Bytes peak;   ///< live bytes, largest over stages
  Bytes taken;  ///< of the device: Filling::taken, largest over stages
};

struct SearchSummary {
  std::string method;  ///< "branch and bound", or "brute force"
  /// Candidates, and how many of them were simulated, and did not fit or take too long when they
  /// were.
  std::int64_t space = 0, evaluated = 0, infeasible = 0;
  std::int64_t bounded = 0;        ///< cut by a bound without being evaluated
  std::vector<Pruned> bounded_by;  ///< which bound cut how many
  std::vector<Pruned> pruned;      ///< not legal, or the same Programs as another
  std::int64_t unexplored = 0;     ///< left when the search ended
  bool proven = false;             ///< nothing is left: the answer is the best of the space
  /// (step time / least bound of what is left) - 1; 0 when proven or nothing left can be faster.
  double gap = 0;
};

/// How a plan was made, in words. Names and texts are those of built-in files, or those that files
/// state of themselves; never a path.
struct PlanOrigin {
  std::string version = std::string(kProductVersion);  ///< of the program that made it
  /// The command line that makes it again. A file that is not built in is called by its own name:
  /// "JOB.json" where the job is JOB. Empty: it was not made by a command.
  std::string command;
  std::string calibration_name;        ///< of one that is built in; empty: none, or a file
  std::string calibration_provenance;  ///< "calibration fitted on 60 published runs, ..."
  std::string interval_basis;          ///< what step_time_low and _high rest on
  bool operator==(const PlanOrigin&) const = default;
};

struct Plan {
  PlanOrigin origin;
  Job job;
  std::int64_t stated_vocabulary = 0;  ///< before the framework padded it, which `job` is
  Framework framework;
  Strategy strategy;
  std::int64_t devices = 0;
  std::int64_t devices_per_node = 1;  ///< of the cluster; ranks fill nodes in order
  std::string cluster_name, cluster_digest;
  std::string calibration_digest;  ///< empty: none was given
  /// The digest of the calibration that answers for what the first one did not measure; empty where
  /// there is none, or where both are in one file.
  std::string calibration_rest_digest;
  Bytes reserve;  ///< kept free on each device
  /// The communicator that the step time holds for: with a calibration the one that it measured,
  /// else `local`.
  CommunicatorKind communicator = CommunicatorKind::local;
  DeviceKind device_kind = DeviceKind::gpu;
  bool mixed_devices = false;   ///< they are of several kinds, so stages may differ in memory
  bool oversubscribed = false;  ///< more CPU ranks than cores: no timing claim
  Prediction prediction;
  std::vector<std::string> program_digests;  ///< of the text form, by class
  SearchSummary search;
  /// Plans that are tied with the chosen one come first, the simplest of them first
  /// (simplicity_of(), then step time). The others follow by step time.
  std::vector<RunnerUp> runners_up;
  std::vector<ParetoPlan> pareto;  ///< by step time; the chosen plan is the first
  Timeline timeline;               ///< predicted steady-state step, one rank per class
  /// Intervals that are shorter are drawn together in `timeline`; 0: none are.
  Picoseconds timeline_resolution;
  /// By rank of the timeline, where it is drawn together and the framework runs here, so that runs
  /// can be compared with it; else empty.
  std::vector<RankTimes> rank_times;
};

/// Draws its timeline together until it fits into the file, and thins its memory curves. No effect
/// where they fit, or do already.
void fit_timeline(Plan& plan);
/// The number of parameters of the job as it was stated.
std::int64_t parameter_count(const Plan& plan);

/// The plan file: keys are the field names with their unit (`step_time_s`, `peak_bytes`), `version`
/// first. parse_plan(plan_text(x)) has the same text again. Readers throw InputError for anything
/// else than exactly these keys, and for a version other than kPlanVersion.
Plan read_plan(const std::filesystem::path& path);
/// A plan that is used, not checked rule by rule: throws InputError also where the strategy is not
/// legal for job and devices, with the rule, and where stages or ranks are not those of its grid.
Plan read_legal_plan(const std::filesystem::path& path);
Plan parse_plan(std::string_view text, const std::string& file);
/// Checks the rules that read_legal_plan adds; `file` is named in errors.
void check_legal(const Plan& plan, const std::string& file);
std::string plan_text(const Plan& plan);  ///< with fit_timeline

}  // namespace plimsoll
