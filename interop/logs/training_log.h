// Logs of trainers are read into steps: their times, rates and losses, with what memory, timers and
// arguments the log prints. Traces of PyTorch's profiler have kernels and collectives in addition.
//
// models/presets/readers/training-logs.json has the labels of each trainer's lines, the unit of the
// value after each label, and the source that fixes it. A value whose unit is neither printed nor
// fixed there is not read, and a doubt names its line.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "graph/op.h"

namespace plimsoll {

/// The quantities of a step, then those of a memory report. Rates are of the whole run, except
/// those of one device.
enum class LogQuantity : std::uint8_t {
  time,              ///< seconds of one step, as printed
  steps_per_second,  ///< its inverse
  interval,          ///< seconds since the step that was logged before
  elapsed,           ///< seconds since the start, or since another fixed moment
  time_stamp,        ///< of the line, in seconds since 1970
  samples,           ///< global batch
  sequence,          ///< tokens of a sample
  samples_per_second,
  tokens_per_second,
  device_tokens_per_second,
  device_flops,  ///< FLOP/s of one device
  loss,
  skipped,              ///< steps of the interval without an optimizer step
  device_idle,          ///< seconds of the step in which no kernel and no copy runs; of a trace
  longest_idle,         ///< seconds of the longest gap among them
  exposed_collectives,  ///< seconds in which nothing but collectives runs
  kernels,              ///< kernels and copies that begin within the step
  allocated,            ///< bytes, as are the next three
  peak_allocated,
  reserved,
  peak_reserved,
};
inline constexpr std::size_t kStepQuantities = std::size_t(LogQuantity::allocated);
inline constexpr std::size_t kMemoryQuantities = 4;

struct LogStep {
  std::int64_t number = 0;  ///< as printed; counted from 1 where the trainer prints none
  /// From 1; in a trainer_state.json the record, in a trace the event.
  std::int64_t line = 0;
  bool evaluated = false;  ///< an evaluation was printed since the step before
  bool saved = false;      ///< a checkpoint was
  std::array<std::optional<double>, kStepQuantities> values = {};

  std::optional<double> value(LogQuantity quantity) const { return values[std::size_t(quantity)]; }
};

/// LogTimeBasis is where the time of a step comes from.
enum class LogTimeBasis : std::uint8_t {
  printed,
  smoothed,     ///< printed, as a running mean
  elapsed,      ///< differences of a printed clock
  time_stamps,  ///< differences of the lines' time stamps
  throughput,   ///< batch over samples or tokens per second
};

enum class LeftOutReason : std::uint8_t { first, evaluation, checkpoint, skipped, outlier };
inline constexpr std::array<std::string_view, 5> kLeftOutReasons = {
    "first", "evaluation", "checkpoint", "skipped", "outlier"};

struct LeftOutStep {
  std::int64_t number, line;
  LeftOutReason reason;
};

/// A StepTrend is a straight line through the logarithms of steady times, in the order of the log.
struct StepTrend {
  double change = 0;      ///< from the first step to the last
  double half_width = 0;  ///< of its 90 % interval
};

/// SlowSteps are those of a run that take longer than its usual ones, whatever the reason.
struct SlowSteps {
  double share = 0;  ///< of all steps but the first
  double lost = 0;   ///< share of the run's time that they take in addition to medians
  std::optional<std::int64_t> period = {};  ///< in steps, if they come regularly
};

/// SteadyPart is what stays of a run's steps without its first, those that skipped the optimizer,
/// and those outside half to twice the median. If an evaluation or a checkpoint came before such a
/// step, this is the reason.
struct SteadyPart {
  LogTimeBasis basis = LogTimeBasis::printed;
  Seconds median = {}, lower_quartile = {}, upper_quartile = {};
  std::int64_t steps = 0;
  std::vector<LeftOutStep> left_out = {};
  std::optional<StepTrend> trend = {};  ///< absent: fewer than kLeastOfTrend steps
  SlowSteps slow = {};
};
inline constexpr std::size_t kLeastOfTrend = 20;

struct LogMemory {
  std::int64_t line = 0;
  std::optional<std::int64_t> rank = {};
  std::array<std::optional<double>, kMemoryQuantities> bytes = {};
};

/// LogTimer is a timer of the trainer, such as "forward-backward".
struct LogTimer {
  std::string name;
  Seconds median;
  std::int64_t count = 0;  ///< of at most 4096 values
  /// The phase that it times, all micro-batches together: forward, backward (with its
  /// recomputation, without sums of gradients), or the optimizer's step. Absent: something else.
  std::optional<Phase> phase = {};
};

struct LogArgument {
  std::string value;  ///< as the log prints it
  std::int64_t line = 0;
};

/// LogTimes is how long some kernels of one kind took.
struct LogTimes {
  std::int64_t count = 0;
  Seconds total = {}, median = {}, least = {};
};

/// LogKernels is the kernels of one name that one op launched on inputs of one shape.
struct LogKernels {
  std::string kind;  ///< "product", "attention", ... (models/presets/readers/profiler-traces.json)
  std::string kernel;  ///< as recorded
  std::string op;      ///< "aten::mm"; empty: not recorded
  std::string inputs;  ///< "[[4096,8192],[8192,1024]] [c10::BFloat16,c10::BFloat16]", or empty
  LogTimes times = {};
};

/// LogCollective is a collective of one size in groups of one size, as the kernels of NCCL.
struct LogCollective {
  std::string name;                         ///< "allreduce"
  std::string kernel;                       ///< has algorithm and protocol
  std::string type;                         ///< "BFloat16"
  std::int64_t elements = 0, received = 0;  ///< of one rank: those that go in and come out
  std::optional<Bytes> bytes = {};          ///< the larger of both; absent: the type is not known
  std::int64_t group_size = 0;
  std::string ranks;  ///< "[0, 1, 2, 3]"; long lists are cut by PyTorch
  LogTimes times = {};
};

struct TrainingLog {
  std::string trainer;  ///< whose lines they are: "Megatron-LM"
  /// Distinct steps in the order of the file. Of very many, each 2nd, 4th, ... is kept.
  std::vector<LogStep> steps;
  std::int64_t distinct_steps = 0;
  std::int64_t repeats = 0;             ///< further lines of the same steps, of other ranks, say
  std::vector<std::size_t> run_begins;  ///< the first of `steps` of each run in the file
  std::optional<SteadyPart> steady;     ///< of all runs together; absent: no time can be told
  /// Also by a clock, if one is printed: where `steady` is smoothed, this tells more.
  std::optional<SteadyPart> by_clock;
  /// Medians of the steady part; without times, of all steps but the first.
  std::array<std::optional<double>, kStepQuantities> medians = {};
  std::optional<Seconds> mean_step;  ///< whole runs over their steps, as the trainer sums up
  std::vector<LogMemory> memory;
  std::vector<LogTimer> timers;                  ///< in order of name
  std::map<std::string, LogArgument> arguments;  ///< that the log prints, the last of a name
  std::vector<LogKernels> kernels;               ///< of a trace; the longest total comes first
  std::vector<LogCollective> collectives;        ///< the same
  std::vector<std::string> doubts;
};

/// Reads a log or a trace of PyTorch's profiler, also one compressed by gzip, as a stream in
/// bounded memory. Throws InputError where the file cannot be read, or has no step of a known
/// trainer.
TrainingLog read_training_log(const std::filesystem::path& path);
TrainingLog read_training_log(std::istream& stream, const std::string& file);

/// Whether a file begins as a log or a trace does, not as a JSON document of the product.
bool is_training_log(const std::filesystem::path& path);

/// Returns the steady part of some steps, of one run say, by a basis; or nothing where no step has
/// it.
std::optional<SteadyPart> steady_part(std::span<const LogStep> steps, LogTimeBasis basis);

}  // namespace plimsoll
