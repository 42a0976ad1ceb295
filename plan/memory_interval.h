// A memory interval says how far the predicted memory of a rank may be off.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "models/framework/framework.h"
#include "plan/plan.h"

namespace plimsoll {

/// A MemoryKind is the kind of memory that a source counts.
enum class MemoryKind : std::uint8_t {
  allocated,  ///< live bytes in the framework's allocator
  reserved,   ///< what that allocator holds
  device,     ///< memory that the driver shows as used
};
std::string_view to_text(MemoryKind kind);

/// The memory that a rank was predicted to take.
struct PredictedMemory {
  Bytes allocated;  ///< bytes of tensors
  Bytes reserved;   ///< bytes that the allocator takes from the driver for tensors
  Bytes outside;    ///< bytes of the context and of communicators
};

/// Relative half widths of 90 % intervals, from models/presets/spreads/memory.json. Each of the
/// first three but `allocated` is in addition to the ones before.
struct MemorySpread {
  double allocated = 0;  ///< of bytes of tensors
  double kept = 0;       ///< of bytes that an allocator holds
  double device = 0;     ///< of bytes that the driver shows
  double outside = 0;    ///< of context and communicators, where all other memory is known
  /// Standard deviations of logarithms. The first two are of what the peaks of a source have in
  /// common, as `allocated` and `kept`.
  double allocated_of_source = 0, kept_of_source = 0;
  double noise = 0;         ///< of a peak around the others of its source, median over sources
  double noise_spread = 0;  ///< of the logarithm of that noise
};
const MemorySpread& memory_spread();

/// Returns the relative half width of the 90 % interval of one kind of memory. It is 0 for an
/// arena, which holds exactly the Program's memory. Other executors have tensors that nobody
/// counted, allocators that keep more than the blocks in use, and contexts and communicators: three
/// errors that add up as if independent. lab/memory_spreads.py finds how large they are.
double memory_half_width(MemoryKind kind, const Framework& framework,
                         const PredictedMemory& memory);

/// Returns the memory of a stage, without the bytes outside its Program.
PredictedMemory memory_of(const StagePrediction& stage);

/// Returns the interval of the stage with the least room left. `outside` are the bytes outside the
/// Programs, `reserve` the bytes that are kept free. The interval is empty without stages. What was
/// `learned` moves its middle, and takes the place of the spreads of allocated and kept bytes. It
/// makes a plan tight or safe, but never lets one fit whose replay does not.
MemoryInterval memory_interval(std::span<const StagePrediction> stages, const Framework& framework,
                               Bytes outside, Bytes reserve,
                               const std::optional<LearnedMemory>& learned);
/// Returns the interval of a plan's stages.
MemoryInterval memory_interval(const Plan& plan);

/// Returns the least MemoryInterval::overflow of a stage that keeps at least `peak` bytes alive,
/// whatever its allocator keeps. It is 0 if its memory may be safe.
double least_overflow(Bytes peak, Bytes capacity, const Framework& framework, Bytes outside,
                      const std::optional<LearnedMemory>& learned);

/// Returns tight memory as an unusual choice, measured by the odds that the plan does not fit.
Unusual tight_memory(double overflow);

}  // namespace plimsoll
