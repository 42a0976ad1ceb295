// Jobs and strategies drawn at random over every switch that `legal` accepts for the bundled
// runtime.
#pragma once

#include <cstdint>
#include <string>

#include "models/job/job.h"
#include "passes/strategy/strategy.h"

namespace plimsoll {

struct Draw {
  std::uint64_t seed = 0;
  Job job;
  Strategy strategy;
  std::int64_t devices = 1;
};

/// Draws 1 to kFixedDraws are the test suite's: every value of every switch occurs in them
/// (random_coverage_test.cpp).
inline constexpr std::uint64_t kFixedDraws = 300;

/// A tiny job and a legal strategy for it on 1 to 8 ranks: the same for a seed, on every machine.
/// Whoever makes a switch legal adds a row to kSwitches in random_strategies.cpp.
Draw draw(std::uint64_t seed);

/// Another strategy for a job that was drawn, on as many ranks as it draws.
Draw draw_for(const Job& job, std::uint64_t seed);

/// The job on one rank, whole batch at once, every switch at its simplest.
Strategy serial(const Job& job);
/// Returns that strategy with the draw's types of parameters and moments.
Strategy serial(const Draw& draw);

std::string describe(const Draw& draw);  ///< enough to find it again

}  // namespace plimsoll
