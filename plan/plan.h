// A Plan is all that goes from planning to running. It embeds job, framework and strategy whole,
// and names cluster and calibration by digest. Programs are rebuilt and compared by digest. A plan
// holds no date, elapsed time or path: the same inputs give the same bytes.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "graph/timeline.h"
#include "models/calibration/calibration.h"
#include "models/calibration/fitted_calibration.h"
#include "models/cluster/cluster.h"
#include "models/framework/framework.h"
#include "models/job/job.h"
#include "passes/strategy/constraints.h"
#include "passes/strategy/strategy.h"
#include "plan/timeline_detail.h"
#include "plan/training/training.h"
#include "plan/unusual_choices.h"

namespace plimsoll {

inline constexpr std::int64_t kPlanVersion = 4;
/// This is the version of the product: project(VERSION) in CMakeLists.txt.
extern const std::string_view kProductVersion;
/// Up to this many devices a plan's timeline shows every op; beyond, it shows whole calls.
inline constexpr std::int64_t kMostDevicesByOp = 8;
constexpr bool shows_calls(std::int64_t devices) { return devices > kMostDevicesByOp; }

/// The most intervals in the file. A longer timeline is coarsened (plan/timeline_detail.h):
/// intervals shorter than `timeline_resolution` are merged.
inline constexpr std::size_t kMostIntervals = 3'000;
/// The most points of memory curves in the file, over all ranks. A curve has at least kLeastPoints.
inline constexpr std::size_t kMostPoints = 2'000, kLeastPoints = 16;
/// The number of ranks whose intervals a coarsened timeline keeps, from the first to the last.
inline constexpr std::size_t kMostRanksInDetail = 16;

/// The last instant that a plan's timeline may show, 2 h 30 min. Times in files are integers within
/// 2^53, in picoseconds.
inline constexpr Picoseconds kLongestTimeline{std::int64_t{1} << 53};

/// A Breakdown has the seconds of one step of the critical rank (the one that computes longest).
/// They sum to the step time: compute by phase, communication that compute does not hide, and
/// waiting for other stages.
struct Breakdown {
  Seconds forward, recompute, backward, optimizer;
  Seconds
      exposed_communication;  ///< collectives and transfers, with their waits, without the bubble
  Seconds bubble;             ///< waiting for activations or gradients of another stage
  Seconds dispatch;           ///< all other time: the host's time between ops
};

/// A StagePrediction is for one class of ranks: a pipeline stage or, in owner mode, the ranks of a
/// stage that own the same tensors.
struct StagePrediction {
  std::int64_t stage = 0;
  Bytes peak;
  BytesByRole by_role;  ///< at the first peak
  Bytes arena;
  Bytes capacity;                       ///< device memory
  std::optional<std::int64_t> owner{};  ///< owner mode: the sharding coordinate of these ranks
  /// Peaks of the framework's allocator (simulator/memory/allocation_replay.h): the blocks in use,
  /// and the memory it takes from the device. For an arena they are peak and arena.
  Bytes allocated{}, reserved{};
  Bytes host{};  ///< in the host's memory, for each rank
};

/// Returns "stage 1", and in owner mode "stage 1 owner 0".
std::string name_of(const StagePrediction& stage);
/// Returns whether it is the index-th class of a strategy's ranks.
bool is_class(const StagePrediction& stage, const Strategy& strategy, std::size_t index);

/// An OutsideRange is ops of one shape, size and group size beyond what was measured or fitted.
struct OutsideRange {
  std::string what;  ///< "matmul 4096x512x1024 bf16", "all_reduce 3.2 GiB bf16 over 16 ranks"
  double share = 0;  ///< their time over the step time; communications may be hidden
  bool operator==(const OutsideRange&) const = default;
};

/// Whether a plan fits, by the 90 % interval of its memory: `safe` if all of the interval does,
/// `tight` if the allocator's replay fits, but not all of the interval.
enum class MemoryVerdict : std::uint8_t { safe, tight, does_not_fit };
inline constexpr std::array<std::string_view, 3> kMemoryVerdicts = {"safe", "tight",
                                                                    "does_not_fit"};
/// A MemoryInterval is the memory taken of the fullest device (Filling::taken, with the factor that
/// was learned) with its 90 % interval. plan/memory_interval.h computes it.
struct MemoryInterval {
  Bytes taken, low, high;
  double overflow = 0;  ///< the probability that it exceeds the device
  MemoryVerdict verdict = MemoryVerdict::safe;
  std::optional<LearnedMemory> learned = {};
  bool operator==(const MemoryInterval&) const = default;
};

struct Prediction {
  Seconds step_time;
  /// The ends of the 90 % interval (predict/step_interval.h). The interval is asymmetric where only
  /// the rates that kernels reach alone are known, since training runs take longer.
  Seconds step_time_low, step_time_high;
  double tokens_per_second = 0;
  double mfu = 0, hfu = 0;
  FlopsPerSecond peak_flops;  ///< per device; MFU is relative to this peak
  std::string peak_source;
  Breakdown breakdown;
  std::vector<StagePrediction> stages;  ///< one per class of ranks, in order of class_of
  MemoryInterval memory;                ///< of the fullest stage
  Provenance worst = Provenance::datasheet;
  std::array<double, kProvenances> share_by_provenance = {};  ///< shares of the step's op time
  std::vector<OutsideRange> extrapolated;  ///< ops of the critical rank, largest share first
};

/// A StepRatio is the 90 % interval of a plan's step time over that of the chosen plan
/// (predict/plan_difference.h).
struct StepRatio {
  double low = 1, high = 1;
  bool tied = true;  ///< the interval holds 1, so either plan may be the faster one
};
inline std::string_view relation_of(const StepRatio& ratio) {
  return ratio.tied ? "tied" : ratio.high < 1 ? "faster" : "slower";
}

/// An OtherPlan fits and was not chosen, or it is the chosen plan in a list with others.
struct OtherPlan {
  Strategy strategy;
  Seconds step_time;
  StepRatio ratio;
  Bytes peak;   ///< live bytes, largest over stages
  Bytes taken;  ///< memory taken on the device: Filling::taken, largest over stages
  std::vector<Unusual> unusual;  ///< that count against it
};

/// A FastestPlan is the plan of least predicted step time, which is not the recommended one. Its
/// `unusual` has those choices only that the recommended plan does not have. `gain` is less than
/// they require together.
struct FastestPlan : OtherPlan {
  double gain = 0;  ///< the share of the recommended step that it saves, by prediction
};

/// A Trial is a plan to try for some steps (predict/trials.h), after the trials in front of it.
/// `gain` is the share of the first one's step that the best of these is expected to save; if some
/// layouts were run before, of the fastest run's.
struct Trial : OtherPlan {
  double gain = 0;
};

/// By what a runner-up loses: a time term of its step, bytes at equal time, an unusual choice of a
/// plan that is faster than the chosen one, or only its place in the canonical order (`tie`).
enum class LossTerm : std::uint8_t {
  compute,
  recompute,
  optimizer,
  exposed_communication,
  bubble,
  dispatch,
  memory,
  unusual_choice,
  tie
};
inline constexpr std::array<std::string_view, 9> kLossTerms = {
    "compute", "recompute",      "optimizer", "exposed communication", "bubble", "dispatch",
    "memory",  "unusual choice", "tie"};
inline std::string_view to_text(LossTerm term) { return kLossTerms[std::size_t(term)]; }

/// A RunnerUp is a plan that fits and was not chosen, with the term by which it loses most.
struct RunnerUp : OtherPlan {
  LossTerm term = LossTerm::tie;
  Seconds term_time;  ///< how much longer that term is than in the chosen plan (time terms)
  Bytes term_bytes;   ///< LossTerm::memory: the additional bytes at equal time
};

/// A Pruned is how many strategies one rule refuses.
struct Pruned {
  std::string reason;
  std::int64_t count = 0;
};

/// By which bound a strategy needs no evaluation. Those from layers_work on rest on the step of a
/// plan that was found before.
enum class Cut : std::uint8_t {
  lasting_bytes,
  bytes_in_flight,
  longest_step,
  layers_work,
  slowest_stage,
  pipeline,
  no_allocator
};
inline constexpr std::array<std::string_view, 7> kCuts = {
    "memory bound: what lives between steps does not fit",
    "memory bound: with its micro-batches in flight it does not fit",
    "time bound: a step longer than a plan's timeline can show",
    "time bound of the layers' work: neither among the fastest nor on the Pareto front",
    "time bound of the slowest stage: neither among the fastest nor on the Pareto front",
    "time bound of the pipeline: neither among the fastest nor on the Pareto front",
    "time bound of a step whose allocator is not replayed: neither among the fastest nor on the "
    "Pareto front"};
inline bool rests_on_a_plan(Cut cut) { return cut >= Cut::layers_work; }
/// How many strategies each bound cuts, in the order of kCuts.
using CutCounts = std::array<std::int64_t, kCuts.size()>;
inline std::int64_t sum_of(const CutCounts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

/// A plan follows another on the Pareto front where it needs less memory by at least this share.
/// Smaller savings are within the error of predicted memory, and hundreds of plans would differ by
/// them.
inline constexpr double kFrontSaving = 0.05;
inline bool saves_enough(Bytes memory, Bytes before) {
  return double(memory.count()) <= (1 - kFrontSaving) * double(before.count());
}

struct SearchSummary {
  /// The number of candidates; of simulated candidates; and of simulated candidates that did not
  /// fit or whose step is too long.
  std::int64_t space = 0, evaluated = 0, infeasible = 0;
  CutCounts bounded{};  ///< cut by a bound without being evaluated
  /// candidates that are not legal, or have the same Programs as another
  std::vector<Pruned> pruned;
  std::int64_t unexplored = 0;  ///< left when the search ended
  bool proven = false;          ///< nothing is left, so the answer is the best of the space
  /// (step time / least bound of the remaining candidates) - 1. It is 0 when proven, or when no
  /// remaining candidate can be faster.
  double gap = 0;
};
/// Returns how many strategies each bound and each rule leaves out.
std::vector<Pruned> left_out_by(const SearchSummary& search);
/// Returns the share of its step by which a plan that is left may be faster than the chosen one.
inline double possible_gain(const SearchSummary& search) { return 1 - 1 / (1 + search.gap); }

/// A PlanOrigin says in words how a plan was made. Names and texts are those of built-in files, or
/// those that files state of themselves, never a path.
struct PlanOrigin {
  std::string version = std::string(kProductVersion);  ///< version of the program that made it
  /// The command line that makes the plan again. A file that is not built in is named by its own
  /// name: "JOB.json" for the job JOB. Empty: no command made the plan.
  std::string command;
  std::string calibration_name;        ///< name of a built-in calibration; empty: none, or a file
  std::string calibration_provenance;  ///< "calibration fitted on 60 published runs, ..."
  std::string interval_basis;          ///< what step_time_low and step_time_high rest on
  bool operator==(const PlanOrigin&) const = default;
};

/// PlanInputs are what a plan keeps of the files and options that its search was given.
struct PlanInputs {
  PlanOrigin origin;  ///< without interval_basis
  std::string cluster_digest, calibration_digest, calibration_rest_digest;  ///< as in Plan
  std::optional<std::int64_t> stated_vocabulary;                            ///< absent: the job's
  std::optional<TrainingGoal> training;
};

struct Plan {
  PlanOrigin origin;
  Constraints constraints;  ///< of the search
  Job job;
  /// vocabulary before the framework padded it; `job` has the padded one
  std::int64_t stated_vocabulary = 0;
  Framework framework;
  Strategy strategy;
  std::int64_t devices = 0;
  /// devices per node of the cluster; ranks fill nodes in order
  std::int64_t devices_per_node = 1;
  std::string cluster_name, cluster_digest;
  std::string calibration_digest;  ///< empty: no calibration was given
  /// The digest of the calibration that covers what the first one did not measure. It is empty
  /// where there is none, or where one file has both.
  std::string calibration_rest_digest;
  Bytes reserve;  ///< kept free on each device
  /// The communicator for which the step time holds: the one that the calibration measured, else
  /// `local`.
  CommunicatorKind communicator = CommunicatorKind::local;
  DeviceKind device_kind = DeviceKind::gpu;
  bool mixed_devices = false;  ///< the devices are of several kinds, so stages may differ in memory
  bool oversubscribed = false;  ///< more CPU ranks than cores: no timing claim
  Prediction prediction;
  std::optional<Training> training;          ///< if tokens were given
  std::vector<std::string> program_digests;  ///< of the text form, by class
  SearchSummary search;
  std::vector<Unusual> unusual;        ///< of the chosen strategy, that count against it
  std::optional<FastestPlan> fastest;  ///< absent if it is the chosen plan
  std::vector<RunnerUp> runners_up;    ///< by merit(), the best first
  /// By merit(). The chosen plan is the first. Each other one takes enough less of a device than
  /// the one before it.
  std::vector<OtherPlan> pareto;
  std::vector<Trial> trials;  ///< whose gain pays for them; the chosen plan, unless it was run
  Timeline timeline;          ///< predicted steady-state step, one rank per class
  /// Shorter intervals are merged in `timeline`; 0: none are.
  Picoseconds timeline_resolution;
  /// By rank of the timeline, where it is coarsened and the framework runs here, so that runs can
  /// be compared with it. Otherwise it is empty.
  std::vector<RankTimes> rank_times;
};

/// Coarsens the plan's timeline until it fits into the file, and thins its memory curves. It has no
/// effect where both fit already.
void fit_timeline(Plan& plan);
/// Returns the step of a training by the plan.
TrainingStep training_step(const Plan& plan);
/// Returns the number of parameters of the job as it was stated.
std::int64_t parameter_count(const Plan& plan);

/// Reads a plan file. Keys are the field names with their unit (`step_time_s`, `peak_bytes`), with
/// `version` first. parse_plan(plan_text(x)) gives the same text again. Readers throw InputError
/// unless the keys are exactly these and the version is kPlanVersion.
Plan read_plan(const std::filesystem::path& path);
/// Reads a plan for use, without checking it rule by rule. Throws InputError also where the
/// strategy is not legal for job and devices, naming the rule, and where stages or ranks do not
/// match its grid.
Plan read_legal_plan(const std::filesystem::path& path);
Plan parse_plan(std::string_view text, const std::string& file);
/// Checks the rules that read_legal_plan adds. `file` is named in errors.
void check_legal(const Plan& plan, const std::string& file);
std::string plan_text(const Plan& plan);  ///< calls fit_timeline first

}  // namespace plimsoll
