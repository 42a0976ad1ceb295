// Started by mpirun: random strategies for as many ranks as there are processes train over MPI to
// the losses, norms, bytes and traffic of threads, bit by bit.
//
// mpi.draws FIRST COUNT: that many draws for this number of ranks, from seed FIRST on.
#include <fmt/format.h>

#include <cstdlib>
#include <string>

#include "base/command_line.h"
#include "base/error.h"
#include "passes/pipeline.h"
#include "runtime/comm/mpi/world.h"
#include "tests/passes/random_strategies.h"
#include "tests/runtime/nano.h"
#include "tests/runtime/patience.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kSteps = 4;

std::string difference(const TrainResult& threads, const TrainResult& processes) {
  const Measured &one = threads.measured, &other = processes.measured;
  if (one.losses != other.losses) return "losses";
  if (one.experts != other.experts) return "what experts got";
  if (!same_numbers(one.gradient_norms, other.gradient_norms)) return "gradient norms";
  if (threads.gradients != processes.gradients) return "gradients of the first step";
  if (threads.parameters != processes.parameters) return "parameters after the last step";
  if (threads.traffic != processes.traffic) return "traffic";
  if (threads.flops != processes.flops) return "FLOPs";
  if (one.timeline.memory.size() != other.timeline.memory.size()) return "ranks";
  for (std::size_t rank = 0; rank < one.timeline.memory.size(); ++rank) {
    const RankMemory &a = one.timeline.memory[rank], &b = other.timeline.memory[rank];
    if (a.peak != b.peak || a.by_role != b.by_role || a.arena != b.arena)
      return fmt::format("bytes of rank {}", rank);
  }
  return "";
}

/// Trains by threads and by processes. Returns whether rank 0 finds no difference.
bool are_equal(MpiWorld& world, const Draw& drawn, const std::string& name) {
  const auto programs = lower({drawn.job, drawn.strategy, bundled_framework()});
  TrainOptions options;
  options.steps = kSteps;
  options.warm_up_steps = 0;
  options.keep_gradients = options.keep_parameters = true;
  TrainResult threads;
  if (world.index() == 0) threads = train_nano(programs, options, drawn.job);
  options.processes = &world;
  const TrainResult processes = train_nano(programs, options, drawn.job);
  if (world.index() != 0) return true;
  const std::string differ = difference(threads, processes);
  print_result(differ.empty() ? fmt::format("equal: {}\n", name)
                              : fmt::format("{} differ: {}\n", differ, describe(drawn)));
  return differ.empty();
}

/// Every rank has two experts, and memory for the rows of even routing. It drops more.
Draw dropping(std::int64_t ranks) {
  Draw drawn;
  drawn.devices = ranks;
  drawn.job = read_job(tests_folder() / "expert-nano.json");
  drawn.job.global_batch = 2 * ranks;
  drawn.job.experts->count = 2 * ranks;
  drawn.job.experts->drop_overflow = true;
  drawn.strategy.dp = drawn.strategy.ep = ranks;
  drawn.strategy.experts.rows_percent = 100;
  return drawn;
}

ExitCode run(MpiWorld& world, std::uint64_t first, std::int64_t count) {
  std::int64_t failed = 0;
  for (std::uint64_t seed = first; count > 0; ++seed) {
    const Draw drawn = draw(seed);
    if (drawn.devices != world.size()) continue;
    --count;
    failed += !are_equal(world, drawn, fmt::format("draw {}", seed));
  }
  failed += !are_equal(world, dropping(world.size()), "rows that are dropped");
  if (failed > 0) throw std::runtime_error(fmt::format("{} draws differ", failed));
  return ExitCode::ok;
}

}  // namespace
}  // namespace plimsoll

int main(int argc, char** argv) {
  using namespace plimsoll;
  MpiWorld world(argc, argv, kPatient);
  const int code = run_program("mpi.draws", [&] {
    if (argc != 3) throw UsageError("FIRST and COUNT are required");
    return run(world, std::strtoull(argv[1], nullptr, 10), std::strtoll(argv[2], nullptr, 10));
  });
  if (code != int(ExitCode::ok)) std::_Exit(code);
}
