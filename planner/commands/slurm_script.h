// Slurm script: a plan as a job script that trains by it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace plimsoll {

struct ExportOptions {
  std::string plan, data;
  std::string to;              ///< "slurm", or the target of a flag table
  std::string target_version;  ///< empty: the table's
  std::string cluster;         ///< for predictions of what flags cannot state; empty: by digest
  std::vector<std::string> calibration;
  bool allow_lossy = false;
  bool trial = false;    ///< scripts of the plan's trials, not of its training
  std::string measured;  ///< empty: PLAN's name with .measured.json, where the job was submitted
  std::string time;      ///< as Slurm writes it; empty: the partition's
  std::string output;    ///< empty: stdout
  std::int64_t steps = 20;
};

/// Returns the job script, with one task per rank. `program` is planner-run-mpi.
std::string slurm_script(const Plan& plan, const ExportOptions& options,
                         const std::string& program);

}  // namespace plimsoll
