// The labels of trainers' logs, from models/presets/readers/training-logs.json. Internal to
// interop/logs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "interop/logs/label_scanner.h"
#include "interop/logs/printed_value.h"
#include "interop/logs/training_log.h"

namespace plimsoll {

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
  LabelScanner scanner = LabelScanner({});
};

const LogTable& log_table();

}  // namespace plimsoll
