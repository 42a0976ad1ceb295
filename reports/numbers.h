// Reports write numbers in one way: grouped digits, percentages, and the distance of two times.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/cluster/cluster.h"
#include "plan/filling.h"
#include "plan/training/training.h"
#include "reports/compare.h"

namespace plimsoll {

std::string grouped(std::int64_t number);  ///< "12,345,678"
/// Returns a number with three significant digits and its thousands: "173 k", "8.03 B", "12.5". A
/// whole number of them has no decimals: "100 B", "15 T".
std::string short_count(double number);
/// Returns "66.0 of 79.6 GiB" or "800 ms to 1.20 s": the unit stands once where both have it.
std::string joined_amounts(const std::string& first, std::string_view word,
                           const std::string& second);
/// Returns "78.1 of 79.6 GiB": what is taken of the device, as every command writes it.
std::string taken_text(const Filling& filling);
/// Returns "98.1 %": the same as a share, for columns.
std::string filled_text(const Filling& filling);
/// Returns "3 each", or runs of equal counts as "1, 2 x 62, 1".
std::string counts_text(const std::vector<std::int64_t>& counts);
std::string percent(double share);  ///< "4.2 %", "30 %": one decimal below 10 %
/// Returns a number with three significant digits: "0.123", "12.3", "4,560", "984 k", "1.23 M".
std::string short_number(double value);
/// Returns "100 B tokens: 6.7 days (6.3 to 7.2), 2,580 GPU-hours, cost 6,450 (6,090 to 6,900)".
std::string training_text(const Training& training, DeviceKind kind);
/// Returns "+4.2 %" when the prediction is longer, "-4.2 %" when it is shorter, and "-" when
/// nothing was measured.
std::string signed_error(const TimePair& time);

}  // namespace plimsoll
