// Lines of a log are read one after the other into series of steps, memory, timers and arguments.
// Internal to interop/logs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "interop/logs/log_table.h"
#include "interop/logs/step_series.h"

namespace plimsoll {

/// Whether a column of that name has the numbers of steps.
bool is_step_column(std::string_view name);

class LogLines {
 public:
  LogLines();
  /// Reads a line without its end. A line that carriage returns divide comes in its parts.
  void read(std::string_view line, std::int64_t number);
  /// Reads a record of a file of columns, or of a list of JSON objects: names with values.
  void read_record(const std::vector<std::pair<std::string, std::string>>& record,
                   std::int64_t number);
  /// Counts a whole run in the mean step.
  void add_run(double seconds, double steps_per_second);
  void doubt(std::string text);
  /// Returns the log of the trainer with the most to tell. Throws InputError where there is none.
  TrainingLog finish(const std::string& file);
  /// Returns how many values were looked for so far. It grows with the labels of a file.
  std::int64_t values_sought() const { return values_sought_; }

 private:
  void read_part(std::string_view line);
  std::vector<std::size_t> ends_of_bars(std::string_view line) const;
  void open_steps(std::string_view line);
  void open_bar(std::string_view line, std::size_t at);
  void read_fields(std::string_view line);
  void read_memory(std::string_view line);
  bool read_marks(std::string_view line);
  void read_argument(std::string_view line);
  void read_parameters(std::string_view line);
  void read_timers(std::string_view line, std::size_t at);
  bool read_timer_row(std::string_view line);
  void add_timer(std::string_view name, double milliseconds);
  void add_argument(std::string_view name, std::string_view value);
  std::optional<PrintedValue> find_value(std::string_view line, std::size_t at, PrintedUnit unit);
  std::optional<double> value_of(std::string_view line, const LabelHit& hit, PrintedUnit unit);
  double score(std::size_t trainer) const;

  const LogTable& table_;
  std::int64_t number_ = 0;  ///< of the line
  std::vector<LabelHit> hits_;
  std::vector<StepSeries> series_;  ///< by trainer
  std::vector<bool> opened_;        ///< by trainer: this line is one of its steps
  std::vector<bool> has_field_;  ///< by trainer: a value of it other than the loss is in this line
  std::int64_t values_sought_ = 0;
  bool in_dump_ = false, in_timers_ = false;
  bool evaluates_ = false;  ///< the line is an evaluation's
  std::int64_t bar_total_ = 0, bars_left_out_ = 0;
  std::vector<LogMemory> memory_;
  std::map<std::string, std::vector<double>, std::less<>> timers_;  ///< seconds, of the first ones
  std::map<std::string, LogArgument> arguments_;
  double run_seconds_ = 0, run_steps_ = 0;
  std::optional<double> run_time_;
  std::vector<std::string> doubts_;
  std::set<std::size_t> refused_;  ///< labels whose unit is not known
};

}  // namespace plimsoll
