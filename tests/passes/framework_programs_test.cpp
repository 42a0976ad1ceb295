// Programs of frameworks: a framework chooses kernels, their order and where buffers lie, never
// what a model multiplies.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "graph/op_table.h"
#include "passes/pipeline.h"
#include "tests/passes/random_strategies.h"

namespace plimsoll {
namespace {

/// The FLOPs of linear layers in one step of all ranks, in forward and in backward.
struct Products {
  double forward = 0, backward = 0;
};

Products products_of(const std::vector<Program>& programs) {
  Products sum;
  const Grid& grid = programs[0].grid;
  for (std::int64_t rank = 0; rank < grid.world_size(); ++rank) {
    const Program& program = programs[class_of(programs, grid.coordinates(rank))];
    for (const Call& call : program.calls) {
      const Routine& routine = program.at(call.routine);
      for (const Op& op : routine.ops) {
        // Attention is one kernel in some frameworks, and products of batches in others.
        const auto* const product = std::get_if<MatmulParams>(&op.params);
        const bool linear = product ? product->batch_dims == 0 : row(op.kind).of_experts;
        if (!linear || op.phase == Phase::recompute || op.phase == Phase::optimizer) continue;
        (op.phase == Phase::forward ? sum.forward : sum.backward) +=
            flops(op, routine.tensors).value();
      }
    }
  }
  return sum;
}

TEST(FrameworkPrograms, MultiplyWhatTheBundledRuntimeDoes) {
  std::int64_t checked = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Draw drawn = draw(seed);
    drawn.job.vocab = 1024;  // no framework pads it
    const Products expected = products_of(lower({drawn.job, drawn.strategy, bundled_framework()}));
    // Each product of forward has two in backward: of its input and of its weight, if it is
    // trained.
    if (!has_frozen(drawn.job)) {
      EXPECT_NEAR(expected.backward / expected.forward, 2, 1e-9) << describe(drawn);
    }
    for (const Framework& framework : all_frameworks()) {
      if (!legal(framework, drawn.strategy) || !legal(framework, drawn.job, drawn.strategy)) {
        continue;
      }
      const std::vector<Program> programs = lower({drawn.job, drawn.strategy, framework});
      const Products found = products_of(programs);
      const std::string who = framework.name + ": " + describe(drawn);
      EXPECT_NEAR(found.forward / expected.forward, 1, 1e-9) << who;
      EXPECT_NEAR(found.backward / expected.backward, 1, 1e-9) << who;
      ++checked;
    }
  }
  EXPECT_GT(checked, 100);
}

}  // namespace
}  // namespace plimsoll
