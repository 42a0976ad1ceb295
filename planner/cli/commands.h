// Commands: what each `planner COMMAND` does, given its parsed arguments. Results go to stdout,
// messages and progress to stderr; failures are the exceptions of base/error.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "models/calibration/calibration.h"
#include "models/calibration/fitted_calibration.h"
#include "models/calibration/nccl_tests.h"
#include "models/cluster/cluster.h"
#include "models/framework/framework.h"
#include "models/job/job.h"
#include "plan/plan.h"
#include "planner/space/space.h"
#include "simulator/costs/cost_model.h"

namespace plimsoll {

/// Job and machine, as every planning command names them.
struct TargetOptions {
  std::string job;  ///< file
  std::string cluster;
  std::vector<std::string> calibration;      ///< as read_calibration_choice() takes it
  std::string framework;                     ///< empty: by device kind
  std::int64_t devices = 0;                  ///< 0: all that the cluster file states
  std::optional<std::int64_t> global_batch;  ///< instead of the job's
};

/// The files behind TargetOptions, read and checked.
struct Target {
  Job job;
  Cluster cluster;
  std::optional<Calibration> calibration;
  /// For what that has no points for; `cluster` and `framework` hold its numbers already.
  std::optional<FittedCalibration> fitted;
  Framework framework;
  std::int64_t devices = 0;            ///< TargetOptions', else all of the cluster
  std::int64_t stated_vocabulary = 0;  ///< of the job before it was padded
  /// CostBasis::words, name and efficiency_words.
  std::string calibration_words, calibration_name, efficiency_words;
  std::string cluster_digest;  ///< of the file
  /// CostBasis::digest and rest_digest.
  std::string calibration_digest, calibration_rest_digest;
};

/// Its vocabulary padded as the framework does (padded_vocabulary, of one mp rank).
Job load_job(const TargetOptions& options, const Framework& framework);
/// By name, else by the kind of device of the cluster file, else the bundled one.
Framework load_framework(const TargetOptions& options);
Target load_target(const TargetOptions& options);
/// Text or file. Throws InfeasibleError where it is not legal on so many devices, saying why.
Strategy legal_strategy(const Job& job, const Framework& framework, const std::string& text,
                        std::int64_t devices);
CostModel cost_model(const Target& target);
/// The job as its file has it: its vocabulary is not padded.
Job stated_job(const Target& target);
/// "GPT on 2 devices of CLUSTER; framework ...; calibration ...": the first line of every result.
std::string headline(const Target& target, std::int64_t devices, bool oversubscribed);
/// Says what each group of the cluster's efficiency parameters rests on. It is empty where they are
/// not used or a fit on runs took their place.
std::string efficiency_line(const Target& target);
/// "key=value" pairs. Throws UsageError for text without '=', or a key given twice.
Fixed parse_fixed(const std::vector<std::string>& pairs);
/// "1 GiB". Throws UsageError.
Bytes parse_reserve(const std::string& text);
/// "30 s". Throws UsageError for what is no time, not above zero or more than eleven days.
Seconds parse_time_limit(const std::string& text);

struct PlanOptions {
  TargetOptions target;
  std::vector<std::string> fix;
  std::string reserve = "1 GiB";
  std::string output;        ///< file; empty: none is written
  std::string time_limit;    ///< empty: none
  std::int64_t threads = 0;  ///< 0: all cores
  bool json = false;
};
/// Says in words how the plan of a target was made.
PlanOrigin origin_of(const Target& target, const PlanOptions& options);
/// Exit 5 where the time limit passed first, with the best plan so far or with none.
ExitCode run_plan(const PlanOptions& options);

struct SpaceOptions {
  TargetOptions target;  ///< without cluster: no bounds, and the framework is the bundled one
  std::vector<std::string> fix;
  std::string reserve = "1 GiB";
  bool list = false;  ///< every legal strategy
  bool json = false;
};
ExitCode run_space(const SpaceOptions& options);

struct SimulateOptions {
  TargetOptions target;
  std::string strategy;
  std::string reserve = "1 GiB";
  std::string trace;  ///< file; empty: none is written
  bool unfolded = false, json = false;
};
ExitCode run_simulate(const SimulateOptions& options);

struct ValidateOptions {
  std::vector<std::string> cases;        ///< files of published runs
  std::string goals;                     ///< file of bounds; empty: none
  std::vector<std::string> calibration;  ///< as read_calibration_choice() takes it
  bool leave_out_sources = false;        ///< CalibrationChoice::leave_out_source
  std::string inputs;  ///< folder for the job and the cluster of each run; empty: none are written
  std::string stated;  ///< folder for files of stated runs; empty: none are written
  bool json = false;
};
/// outside_tolerance where a goal is missed.
ExitCode run_validate(const ValidateOptions& options);

struct FitCommandOptions {
  std::vector<std::string> cases;  ///< files of published runs
  std::string cluster, framework;  ///< names of presets
  std::string output;              ///< file; empty: none is written
  bool json = false;
};
ExitCode run_fit(const FitCommandOptions& options);

struct PassesOptions {
  TargetOptions target;  ///< without calibration; without cluster the framework is the bundled one
  std::string strategy;
  std::string before, after;         ///< a stage; both empty: an overview of all
  std::optional<std::int64_t> rank;  ///< of the Programs, that of its class; absent: all
  bool list = false;                 ///< names only; needs neither job nor strategy
};
ExitCode run_passes(const PassesOptions& options);

struct CheckOptions {
  std::string plan;
  bool json = false;
};
ExitCode run_check(const CheckOptions& options);

struct CompareOptions {
  std::string plan, measured;
  double tolerance = 0.30;
  bool json = false;
  /// Corrects the calibration that the plan was made with, and writes it to `output` where given.
  bool refit = false;
  std::string cluster, output;
  std::vector<std::string> calibration;
};
ExitCode run_compare(const CompareOptions& options);

struct ReportOptions {
  std::string plan, measured, output;
  double tolerance = 0.30;
  bool json = false;
};
ExitCode run_report(const ReportOptions& options);

struct ExportOptions {
  std::string plan, data;
  std::string measured;  ///< empty: PLAN's name with .measured.json, where the job was submitted
  std::string time;      ///< as Slurm writes it; empty: the partition's
  std::string output;    ///< empty: stdout
  std::int64_t steps = 20;
};
/// The job script that trains by the plan: one task per rank, `program` being planner-run-mpi.
std::string slurm_script(const Plan& plan, const ExportOptions& options,
                         const std::string& program);
ExitCode run_export(const ExportOptions& options);

struct ImportNcclOptions {
  std::vector<std::string> files;  ///< text or JSON of nccl-tests
  std::string cluster;             ///< whose devices were measured
  /// The calibration that the points join: measured, fitted or both. Empty: a new one holds them
  /// alone.
  std::string calibration;
  std::string output;  ///< calibration file; empty: none is written
  NcclGiven given;
  bool json = false;
};
ExitCode run_import_nccl(const ImportNcclOptions& options);

struct ImportTopologyOptions {
  std::string file;    ///< nvidia-smi topo -m, or NCCL's dump
  std::string device;  ///< cluster file that has the device
  std::string name;    ///< of the cluster; empty: of the file
  std::string date;
  std::optional<std::int64_t> nodes;
  std::string nic_bandwidth, nvlink_bandwidth, pcie_bandwidth, socket_bandwidth;  ///< "25 GB/s"
  std::string output;  ///< cluster file; empty: stdout
};
ExitCode run_import_topology(const ImportTopologyOptions& options);

struct DoctorOptions {
  bool json = false;
};
/// Exit 6 where something does not work here.
ExitCode run_doctor(const DoctorOptions& options);

/// Replaces this process by `program`, found beside the running executable, with `arguments` passed
/// on. Returns only by throwing EnvironmentError.
[[noreturn]] void exec_beside(const std::string& program,
                              const std::vector<std::string>& arguments);

}  // namespace plimsoll
