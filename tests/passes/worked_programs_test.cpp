// Worked programs: what strategies of small jobs are lowered to, as tables of counts and a digest
// of each Program's text. Other tests say why a Program is right; whatever changes one shows here.
// PLIMSOLL_UPDATE_GOLDEN=1 rewrites the tables.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.h"
#include "graph/step_flops.h"
#include "graph/text.h"
#include "graph/traffic.h"
#include "passes/pipeline.h"
#include "tests/passes/random_strategies.h"

namespace plimsoll {
namespace {

constexpr const char* kTables = PLIMSOLL_SOURCE_DIR "/tests/golden/programs/";
constexpr std::uint64_t kTableDraws = 200;

constexpr const char* kStrategies[] = {
    "micro_batch=4",
    "dp=4,micro_batch=2",
    "dp=4,micro_batch=1,grad_bucket_bytes=64KiB,overlap_grad_reduce=true",
    "dp=2,micro_batch=2,grad_reduction=per_micro_batch",
    "dp=2,micro_batch=2,gradient_merge=fused",
    "mp=2,dp=2,micro_batch=2",
    "mp=2,dp=2,micro_batch=2,sequence_parallel=true",
    "mp=2,pp=2,micro_batch=1,sequence_parallel=true,recompute=selective",
    "mp=2,pp=2,micro_batch=2,split_boundary=true",
    "pp=4,micro_batch=1",
    "pp=2,dp=2,micro_batch=2,schedule=gpipe",
    "pp=2,micro_batch=1,virtual_stages=2,recompute=full",
    "pp=2,micro_batch=2,recompute=full,recompute_layers=1",
    "pp=2,micro_batch=2,recompute=modules,recompute_modules=norms+mlp",
    "pp=2,micro_batch=2,recompute=per_op",
    "pp=2,micro_batch=1,schedule=zb_h1",
    "pp=2,dp=2,micro_batch=1,schedule=zb_h2",
    "pp=2,micro_batch=1,virtual_stages=2,schedule=zb_v",
    "pp=2,dp=2,micro_batch=1,virtual_stages=2,schedule=dualpipe_v",
    "pp=2,micro_batch=2,layer_split=1+3",
    "sharding_degree=4,sharding_stage=1,micro_batch=2",
    "sharding_degree=4,sharding_stage=1,micro_batch=2,sharding_owner=greedy",
    "pp=2,sharding_degree=2,sharding_stage=2,micro_batch=1,recompute=full",
    "sharding_degree=4,sharding_stage=3,micro_batch=1",
    "dp=2,sharding_degree=2,sharding_stage=3,micro_batch=2,recompute=full",
    "mp=2,sharding_degree=2,sharding_stage=3,micro_batch=2,prefetch_depth=2",
    "cp=2,dp=2,micro_batch=2",
    "cp=2,mp=2,micro_batch=1,context_exchange=all_gather",
    "cp=2,pp=2,micro_batch=1,context_exchange=all_to_all",
    "dp=4,ep=2,micro_batch=2",
    "sharding_degree=4,sharding_stage=1,ep=4,micro_batch=1,recompute=full",
    "mp=2,dp=2,ep=2,etp=2,micro_batch=2,sequence_parallel=true",
    "pp=2,dp=2,ep=2,micro_batch=1,expert_dispatch=all_gather",
    "dp=2,ep=2,micro_batch=1,overlap_expert_exchange=true",
    "pp=2,sharding_degree=2,sharding_stage=1,micro_batch=1,offload_optimizer_percent=50",
    "dp=2,micro_batch=2,fp8=delayed",
    "mp=2,micro_batch=2,fp8=rowwise",
    "sharding_degree=2,sharding_stage=1,micro_batch=2,gradient_type=computed,moment_type=bf16",
    "dp=2,micro_batch=2,flatten=none,cast_placement=every_use",
};

/// Counts over all classes of ranks of what a job and its strategy become.
std::string facts_of(const std::vector<Program>& programs) {
  std::size_t calls = 0;
  std::int64_t peak = 0, arena = 0, sent = 0;
  double products = 0;
  std::string text;
  for (std::size_t c = 0; c < programs.size(); ++c) {
    const Program& program = programs[c];
    calls += program.calls.size();
    peak = std::max(peak, memory_peak(program).peak.count());
    arena = std::max(arena, program.arena_bytes.count());
    for (const Flops flops : step_flops(program)) products += flops.value();
    text += print(program);
  }
  for (std::int64_t rank = 0; rank < programs[0].grid.world_size(); ++rank) {
    const std::size_t c = class_of(programs, programs[0].grid.coordinates(rank));
    for (const Traffic& traffic : step_traffic(programs[c], rank)) sent += traffic.sent.count();
  }
  return fmt::format("classes {} calls {} peak {} arena {} sent {} flops {:.0f} text {}",
                     programs.size(), calls, peak, arena, sent, products,
                     digest(text).substr(0, 12));
}

void expect_table(const std::string& name, const std::string& found) {
  const std::string path = kTables + name;
  if (std::getenv("PLIMSOLL_UPDATE_GOLDEN") != nullptr) write_file_atomically(path, found);
  EXPECT_EQ(found, read_file(path));
}

TEST(WorkedPrograms, OfDrawnStrategiesAreThoseOfTheTable) {
  std::string found = "# By seed: what tests/passes/random_strategies.cpp draws.\n";
  for (std::uint64_t seed = 1; seed <= kTableDraws; ++seed) {
    const Draw drawn = draw(seed);
    const std::vector<Program> programs = lower({drawn.job, drawn.strategy, bundled_framework()});
    found += fmt::format("{} {}\n", seed, facts_of(programs));
  }
  expect_table("drawn.txt", found);
}

/// Each framework has the strategies that it and the job allow. Every other one is in 16 bits.
TEST(WorkedPrograms, OfFrameworksAreThoseOfTheTable) {
  std::string found = "# Strategies of small jobs in each framework that has them.\n";
  for (const Framework& framework : all_frameworks()) {
    for (std::size_t i = 0; i < std::size(kStrategies); ++i) {
      const Strategy strategy = parse_strategy(kStrategies[i]);
      const char* name = strategy.ep > 1 ? "expert-nano" : i % 3 == 0 ? "gpt-nano" : "llama-nano";
      Job job = read_job(fmt::format("{}/tests/{}.json", PLIMSOLL_SOURCE_DIR, name));
      if (i % 2 == 0 || strategy.fp8 != Fp8::none) job.precision = DType::bf16;
      const std::int64_t devices =
          strategy.mp * strategy.pp * strategy.cp * strategy.dp * strategy.sharding_degree;
      if (!legal(job, strategy, devices) || !legal(framework, strategy)) continue;
      found += fmt::format("{} {} {} {}\n", framework.name, name, kStrategies[i],
                           facts_of(lower({job, strategy, framework})));
    }
  }
  expect_table("frameworks.txt", found);
}

}  // namespace
}  // namespace plimsoll
