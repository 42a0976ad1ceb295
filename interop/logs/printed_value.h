// Numbers as logs print them: with commas, quotes, colours, factors and units. Internal to
// interop/logs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "interop/logs/training_log.h"

namespace plimsoll {

/// PrintedUnit is how the number after a label is converted to seconds, FLOP/s, bytes or a count.
/// A unit that is printed goes before the one that the trainer's source fixes.
struct PrintedUnit {
  enum class Kind : std::uint8_t { count, time, clock, flops, bytes } kind = Kind::count;
  std::optional<double> factor = 1;  ///< fixed by the source; absent: it has to be printed
  double base = 1024;                ///< of printed kB, MB, GB; KiB, MiB and GiB always have 1024
};

/// Returns the unit of a word of the table: "ms", "GiB", "printed", "h:mm:ss". A count has "".
PrintedUnit printed_unit(const std::string& word);

struct PrintedValue {
  std::optional<double> value;  ///< absent: its unit is not known
  std::string_view text;        ///< number and unit as printed
};

/// Returns the number after `at`, behind an optional quote, unit in brackets, ':' or '=', or
/// nothing where there is none.
std::optional<PrintedValue> value_after(std::string_view line, std::size_t at, PrintedUnit unit);

/// Returns the whole number that ends at `end`.
std::optional<std::int64_t> integer_before(std::string_view line, std::size_t end);

/// Returns seconds of "1:02", "0:01:03" or "3 days, 17:51:32".
std::optional<double> duration(std::string_view text);

/// Returns the first "2025-09-05 16:09:19,123" in a line's beginning, in seconds since 1970.
std::optional<double> time_stamp(std::string_view line);

/// ProgressBar is " 45%|####    | 45/100 [00:12<00:15,  3.58s/it", as tqdm prints it.
struct ProgressBar {
  std::string_view description = {};
  std::int64_t number = 0, total = 0;
  std::optional<double> elapsed = {}, time = {};
};

/// Returns the bar whose "%|" begins at `at`.
std::optional<ProgressBar> progress_bar(std::string_view line, std::size_t at);

/// Whether a label at `begin` is a word, not the end of a longer one; colours may stand before it.
bool begins_word(std::string_view line, std::size_t begin);

}  // namespace plimsoll
