// Events of a profiler's trace, one after the other, from JSON. Internal to interop/logs.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/json.h"
#include "interop/logs/block_buffer.h"
#include "interop/logs/training_log.h"

namespace plimsoll {

/// The arguments of an event that are read.
enum class TraceNumber : std::uint8_t {
  external_id,
  correlation,
  device,
  elements,
  received,
  group_size,
  allocated,
  reserved,
  device_type,
};
enum class TraceText : std::uint8_t { collective, type, ranks, dimensions, types };
inline constexpr std::size_t kTraceNumbers = 9, kTraceTexts = 5;

struct TraceEvent {
  std::string phase = {}, category = {}, name = {};
  double start = 0, duration = 0;  ///< microseconds
  /// 0: not stated.
  std::array<double, kTraceNumbers> numbers = {};
  /// Lists as JSON without blanks. Long ones are cut.
  std::array<std::string, kTraceTexts> texts = {};

  double number(TraceNumber which) const { return numbers[std::size_t(which)]; }
  const std::string& text(TraceText which) const { return texts[std::size_t(which)]; }
};

/// TraceEvents has the functions that nlohmann's reader calls (json_sax). It gives each event of
/// `traceEvents` to a function, and keeps the facts that stand before them.
class TraceEvents {
 public:
  using Event = std::function<void(const TraceEvent&)>;
  TraceEvents(std::string file, Event event) : file_(std::move(file)), event_(std::move(event)) {}

  bool null() { return text({}); }
  bool boolean(bool value) { return number(value); }
  bool number_integer(std::int64_t value) { return number(double(value)); }
  bool number_unsigned(std::uint64_t value) { return number(double(value)); }
  bool number_float(double value, const std::string&) { return number(value); }
  bool string(const std::string& value) { return text(value); }
  bool binary(const Json::binary_t&) { return true; }
  bool start_object(std::size_t);
  bool key(const std::string& name);
  bool end_object();
  bool start_array(std::size_t);
  bool end_array();
  /// Throws InputError with the reader's message, which has line and column.
  bool parse_error(std::size_t, const std::string&, const Json::exception& error);

  std::int64_t seen() const { return seen_; }  ///< values and names so far
  const std::map<std::string, std::string>& facts() const { return facts_; }

 private:
  bool number(double value);
  bool text(std::string_view value);
  void open();
  void add(std::string_view value, char separated_from);
  void add_fact(std::string_view value);

  std::string file_;
  Event event_;
  TraceEvent current_;
  std::array<std::string, 5> keys_;  ///< by depth
  int depth_ = 0;
  bool in_events_ = false;
  std::size_t argument_ = 0;  ///< index of the argument that is read
  std::int64_t seen_ = 0;
  std::map<std::string, std::string> facts_;
};

/// Reads a trace of PyTorch's profiler that begins with `begin`: times of steps, kernels and
/// collectives, and the gaps between kernels. Throws InputError, with the line, where it is no
/// JSON, and where it has neither a step nor a kernel.
TrainingLog read_profiler_trace(BlockSource source, std::string begin, const std::string& file);

}  // namespace plimsoll
