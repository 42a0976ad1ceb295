// The labels of trainers' logs, from models/presets/readers/training-logs.json, and the numbers
// behind them. Internal to interop/logs.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

struct LabelHit {
  std::size_t label;  ///< index among the labels
  std::size_t begin, end;
};

/// A LabelScanner finds all labels of a line in one pass over its bytes (Aho and Corasick, 1975).
class LabelScanner {
 public:
  explicit LabelScanner(const std::vector<std::string>& labels);
  /// Puts the labels of the line into `hits`, in order of their ends; the longer first.
  void scan(std::string_view line, std::vector<LabelHit>& hits) const;

 private:
  std::array<std::uint8_t, 256> kinds_ = {};      ///< bytes that no label has are of kind 0
  std::size_t width_ = 1;                         ///< kinds
  std::vector<std::uint16_t> next_;               ///< by state and kind
  std::vector<std::vector<std::uint16_t>> ends_;  ///< labels that end in a state
  std::vector<std::uint8_t> any_;                 ///< whether some label ends in a state
  std::vector<std::size_t> lengths_;
};

/// TrainerLines is how one trainer prints its steps.
struct TrainerLines {
  std::string name;
  std::string doubt;              ///< what its times leave out or smooth; may be empty
  bool counted = false;           ///< its lines have no number
  bool number_before = false;     ///< the number stands before the label
  bool opens_alone = false;       ///< a line with its number alone is a step
  bool table = false;             ///< a file of columns
  std::vector<std::string> bars;  ///< descriptions of its progress bars; empty: it has none
};

/// The use of a label in a line.
enum class LabelUse : std::uint8_t {
  step,        ///< the step's number follows
  field,       ///< a value of the step of this line
  follow,      ///< a value of the last step
  ahead,       ///< a value of the next step
  memory,      ///< a value of a memory report; of a trainer, only in the lines of its steps
  evaluation,  ///< an evaluation
  checkpoint,
  argument,    ///< the value of the argument `name`
  dump_begin,  ///< the lines up to `dump_end` are arguments
  dump_end,
  dots,         ///< NAME .... VALUE is an argument
  item,         ///< NAME: VALUE follows
  parameters,   ///< arguments as JSON
  timers,       ///< NAME: VALUE | ... follow, in milliseconds
  timer_table,  ///< lines of NAME ...: (LEAST, MOST) follow, in milliseconds
  bar,          ///< a progress bar
  run_time,     ///< seconds of a whole run
  run_rate,     ///< steps per second of a whole run
};

struct LabelMeaning {
  LabelUse use = LabelUse::field;
  std::optional<std::size_t> trainer = {};   ///< whose lines they are; absent: anybody's
  std::optional<LogQuantity> quantity = {};  ///< absent: the label marks the trainer's lines
  PrintedUnit unit = {};
  std::string name = {};
};

struct LogTable {
  std::vector<TrainerLines> trainers;
  std::vector<std::string> labels;
  std::vector<std::vector<LabelMeaning>> meanings;  ///< of each label
  std::map<std::string, Phase> phases;              ///< by the name of the timer that times them
  LabelScanner scanner = LabelScanner({});
};

const LogTable& log_table();

}  // namespace plimsoll
