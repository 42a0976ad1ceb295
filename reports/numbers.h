// How reports write numbers: grouped digits, percentages, and the distance of two times.
#pragma once

#include <cstdint>
#include <string>

#include "reports/compare.h"

namespace plimsoll {

std::string grouped(std::int64_t number);  ///< "12,345,678"
std::string percent(double share);         ///< "4.2 %", "30 %": one decimal below 10 %
/// "+4.2 %" when the prediction is longer, "-4.2 %" when shorter; "-" when nothing was measured.
std::string signed_error(const TimePair& time);

}  // namespace plimsoll
