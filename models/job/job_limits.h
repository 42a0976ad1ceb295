// This header has the limits of a job's sizes.
#pragma once

#include <cstdint>

namespace plimsoll {

// Largest values of each size, as in models/presets/schemas/job.json; with the two totals below,
// every byte count derived from a job stays within 63 bits.
inline constexpr std::int64_t kMostLayers = 100'000;
inline constexpr std::int64_t kMostHidden = std::int64_t{1} << 20;
inline constexpr std::int64_t kMostHeads = std::int64_t{1} << 16;
inline constexpr std::int64_t kMostHeadSize = std::int64_t{1} << 16;
inline constexpr std::int64_t kMostExperts = std::int64_t{1} << 16;
inline constexpr std::int64_t kMostDepths = 64;
inline constexpr std::int64_t kMostFfn = std::int64_t{1} << 22;
inline constexpr std::int64_t kMostVocab = std::int64_t{1} << 24;
inline constexpr std::int64_t kMostSequence = std::int64_t{1} << 27;
inline constexpr std::int64_t kMostBatch = std::int64_t{1} << 24;
inline constexpr std::int64_t kMostSeed = std::int64_t{1} << 53;
inline constexpr double kMostParameters = 0x1p50;
inline constexpr double kMostActivations = 0x1p58;
inline constexpr double kLeastCap = 1e-3, kMostCap = 1e6, kMostBase = 1e12;

}  // namespace plimsoll
