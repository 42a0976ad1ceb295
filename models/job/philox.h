// Philox 4x32-10 is the counter-based generator behind initial weights, dropout, masked
// positions and the lengths of examples. A value depends only on its place, so every split of a job
// draws the same values.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace plimsoll {

using PhiloxKey = std::array<std::uint32_t, 2>;

/// Returns four random words for a counter and a key, in ten rounds (Salmon et al. 2011, "Parallel
/// random numbers: as easy as 1, 2, 3", section 3.3).
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, PhiloxKey key);

/// Returns the key of everything that one op draws in one step.
PhiloxKey philox_key(std::int64_t seed, std::int64_t step, std::int64_t site);

/// Returns a site for a parameter, from its name: FNV-1a.
std::int64_t philox_site(std::string_view parameter);

/// Sets words[i] to element first + i of the stream. Element e is word e mod 4 of counter {e / 4
/// (64 bits), layer, 0}.
void philox_words(PhiloxKey key, std::int64_t layer, std::int64_t first, std::int64_t count,
                  std::uint32_t* words);

}  // namespace plimsoll
