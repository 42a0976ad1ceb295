// Philox 4x32-10, the counter-based generator behind initial weights, dropout and masked positions:
// a value depends on its place only, so every split of a job draws the same ones.
#pragma once

#include <array>
#include <cstdint>

namespace plimsoll {

using PhiloxKey = std::array<std::uint32_t, 2>;

/// Four random words per (counter, key). Salmon et al. 2011, "Parallel random numbers: as easy as
/// 1, 2, 3", section 3.3; ten rounds.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, PhiloxKey key);

/// The key of everything that one op draws in one step.
PhiloxKey philox_key(std::int64_t seed, std::int64_t step, std::int64_t site);

/// words[i] of the stream's element first + i: element e is word e mod 4 of counter
/// {e / 4 (64 bits), layer, 0}.
void philox_words(PhiloxKey key, std::int64_t layer, std::int64_t first, std::int64_t count,
                  std::uint32_t* words);

}  // namespace plimsoll
