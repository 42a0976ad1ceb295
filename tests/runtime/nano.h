// gpt-nano under different strategies: the job, the text, runs and what they are compared by.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "graph/program.h"
#include "models/framework/framework.h"
#include "models/job/job.h"
#include "passes/strategy/strategy.h"
#include "runtime/command/train.h"

namespace plimsoll {

/// Where tests/*.json lie: environment PLIMSOLL_SOURCE_DIR (programs that were copied elsewhere),
/// else this source tree.
std::filesystem::path tests_folder();
Job nano_job();
/// 4096 bytes with some structure, the same every time.
const std::vector<std::byte>& nano_text();

/// "mp=2,pp=2" with buckets of 64 KiB, so that nano's gradients fill several, and a micro-batch
/// that gives `micro_batches` per step.
Strategy nano_strategy(const std::string& fields, std::int64_t micro_batches, Recompute recompute);
/// Adapters begin with a factor of zeros, so that the other one has no gradient in the first step.
/// Here neither is zero.
std::vector<Program> nano_programs(const Strategy& strategy, const Job& job = nano_job());
/// Whether two lists hold the same numbers, or numbers that are none, at each place.
bool same_numbers(const std::vector<double>& a, const std::vector<double>& b);
/// So many steps, which are all timed.
TrainOptions steps_of(std::int64_t steps);
/// Where options leave the deadline as it is by default, the run has kPatient.
TrainResult train_nano(const std::vector<Program>& programs, TrainOptions options,
                       const Job& job = nano_job());

/// Each rank's peak, its bytes by role and its arena are those of its program. A run that is
/// checked has a layout of its own.
void expect_predicted_bytes(const std::vector<Program>& programs, const Measured& measured,
                            bool own_layout = false);
/// Elements of the arena that a program's buckets cover.
std::int64_t bucket_elements(const Program& program);

/// The part of an arena that a rank holds, at its place in the whole: from sharding stage 2 on it
/// keeps only the parts that it owns, one after the other.
std::vector<float> at_its_place(const Program& program, const Coordinates& at,
                                const std::vector<float>& arena);

/// Whole tensors put together from what every rank holds of them, by (parameter, layer). With
/// `owned_parts` a rank's arena counts only where it owns it (gradients under sharding). Copies
/// that ranks hold of the same elements must agree to `tolerance` relative to the tensor's largest.
using WholeTensors = std::map<std::pair<std::string, std::int64_t>, std::vector<float>>;
WholeTensors put_together(const std::vector<Program>& programs,
                          const std::vector<std::vector<float>>& by_rank, bool owned_parts,
                          double tolerance);

/// |a - b| / |b| in the L2 norm.
double relative_distance(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace plimsoll
