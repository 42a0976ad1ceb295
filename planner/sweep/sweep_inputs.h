// Sweep inputs: reads lists of numbers, amounts of tokens, prices and days from the command line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"

namespace plimsoll {

/// The most values of one list, and the most points of one sweep.
inline constexpr std::size_t kMostListed = 1000, kMostSweepPoints = 10'000;

/// Returns the numbers of lists such as "64,96,128", "64..1024x2" (each twice the one before) and
/// "64..256+64", in rising order without repeats. Throws UsageError naming `flag`, for anything
/// else and for numbers outside `least` to `most`.
std::vector<std::int64_t> parse_numbers(std::string_view flag,
                                        const std::vector<std::string>& lists, std::int64_t least,
                                        std::int64_t most);

/// Returns the bandwidths of lists such as "12.5,100,400", which are in Gbit/s, in rising order
/// without repeats. Throws UsageError.
std::vector<BytesPerSecond> parse_networks(const std::vector<std::string>& lists);

/// Returns the tokens of "15T", "300B", "2.5M", "40k" or "1e12". Throws UsageError.
double parse_tokens(std::string_view text);

/// Returns the time of "30d", "2.5 d", "12h", "90min" or "30 s". Throws UsageError naming `flag`.
Seconds parse_days(std::string_view flag, std::string_view text);

/// The price of one device for an hour, in any currency.
struct Price {
  std::string cluster;  ///< as --cluster names it; empty: of all clusters
  double per_hour = 0;
};
/// Parses "2.5/h" or "CLUSTER=2.5/h". Throws UsageError.
Price parse_price(std::string_view text);

}  // namespace plimsoll
