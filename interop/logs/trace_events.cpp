// Only what an event needs is kept, however deep or long the rest of the JSON is.
#include "interop/logs/trace_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace plimsoll {
namespace {

constexpr int kDeepest = 64;
constexpr std::size_t kLongest = 2'000;  // of a text that is kept
constexpr std::size_t kMostFacts = 100;
// Depths: of the whole, of an event in its list, and of the event's arguments.
constexpr int kWhole = 1, kEvent = 3, kArguments = 4;

// pytorch/kineto libkineto/src/output_json.cpp; the second spelling is of releases before 2022.
constexpr std::pair<std::string_view, TraceNumber> kNumbers[] = {
    {"External id", TraceNumber::external_id}, {"external id", TraceNumber::external_id},
    {"correlation", TraceNumber::correlation}, {"device", TraceNumber::device},
    {"In msg nelems", TraceNumber::elements},  {"Out msg nelems", TraceNumber::received},
    {"Group size", TraceNumber::group_size},   {"Total Allocated", TraceNumber::allocated},
    {"Total Reserved", TraceNumber::reserved}, {"Device Type", TraceNumber::device_type}};
constexpr std::pair<std::string_view, TraceText> kTexts[] = {
    {"Collective name", TraceText::collective}, {"dtype", TraceText::type},
    {"Process Group Ranks", TraceText::ranks},  {"Input Dims", TraceText::dimensions},
    {"Input dims", TraceText::dimensions},      {"Input type", TraceText::types}};
constexpr std::size_t kNothing = kTraceNumbers + kTraceTexts;

std::size_t argument_of(std::string_view name) {
  for (const auto& [known, number] : kNumbers) {
    if (known == name) return std::size_t(number);
  }
  for (const auto& [known, text] : kTexts) {
    if (known == name) return kTraceNumbers + std::size_t(text);
  }
  return kNothing;
}

bool is_text(std::size_t argument) { return argument >= kTraceNumbers && argument < kNothing; }

}  // namespace

void TraceEvents::open() {
  ++seen_;
  if (++depth_ > kDeepest) throw InputError(file_, "", "it has more than 64 levels");
}

bool TraceEvents::start_object(std::size_t) {
  open();
  if (in_events_ && depth_ == kEvent) {
    for (std::string* text : {&current_.phase, &current_.category, &current_.name}) text->clear();
    for (std::string& text : current_.texts) text.clear();
    current_.start = current_.duration = 0;
    current_.numbers = {};
  }
  argument_ = kNothing;
  return true;
}

bool TraceEvents::key(const std::string& name) {
  ++seen_;
  if (std::size_t(depth_) < keys_.size()) keys_[std::size_t(depth_)].assign(name, 0, kLongest);
  const bool argument = in_events_ && depth_ == kArguments && keys_[kEvent] == "args";
  if (depth_ <= kArguments) argument_ = argument ? argument_of(name) : kNothing;
  return true;
}

bool TraceEvents::end_object() {
  if (in_events_ && depth_ == kEvent) event_(current_);
  --depth_;
  return true;
}

bool TraceEvents::start_array(std::size_t) {
  if (is_text(argument_)) add("[", ',');
  open();
  if (depth_ == kWhole + 1 && keys_[kWhole] == "traceEvents") in_events_ = true;
  return true;
}

bool TraceEvents::end_array() {
  --depth_;
  if (depth_ == kWhole) in_events_ = false;
  if (is_text(argument_)) add("]", '\0');
  return true;
}

/// Adds a part of a list to the argument's text, behind a comma where one is due.
void TraceEvents::add(std::string_view value, char separator) {
  std::string& text = current_.texts[argument_ - kTraceNumbers];
  if (text.size() > kLongest) return;
  if (separator != '\0' && !text.empty() && text.back() != '[') text += separator;
  text += value.substr(0, kLongest);
  if (text.size() > kLongest) text.replace(kLongest, text.npos, " ...");
}

/// Keeps a device's name and what the whole run is: `distributedInfo` has rank and world_size.
void TraceEvents::add_fact(std::string_view value) {
  if (facts_.size() >= kMostFacts) return;
  value = value.substr(0, kLongest);
  if (depth_ == 2 && keys_[kWhole] == "distributedInfo") facts_.emplace(keys_[2], value);
  if (depth_ == 3 && keys_[kWhole] == "deviceProperties" && keys_[3] == "name") {
    facts_.emplace("device_name", value);
  }
}

bool TraceEvents::number(double value) {
  ++seen_;
  if (in_events_ && depth_ == kEvent) {
    if (keys_[kEvent] == "ts") current_.start = value;
    if (keys_[kEvent] == "dur") current_.duration = value;
  } else if (argument_ < kTraceNumbers && depth_ == kArguments) {
    current_.numbers[argument_] = value;
  } else if (is_text(argument_)) {
    add(fmt::format("{}", value), ',');
  } else if (!in_events_) {
    add_fact(fmt::format("{}", value));
  }
  return true;
}

bool TraceEvents::text(std::string_view value) {
  ++seen_;
  if (in_events_ && depth_ == kEvent) {
    const std::string& key = keys_[kEvent];
    if (key == "ph") current_.phase.assign(value, 0, kLongest);
    if (key == "cat") current_.category.assign(value, 0, kLongest);
    if (key == "name") current_.name.assign(value, 0, kLongest);
  } else if (is_text(argument_)) {
    add(value, ',');
  } else if (argument_ < kTraceNumbers && depth_ == kArguments) {
    double number = 0;
    if (std::from_chars(value.data(), value.data() + value.size(), number).ec == std::errc()) {
      current_.numbers[argument_] = number;
    }
  } else if (!in_events_) {
    add_fact(value);
  }
  return true;
}

bool TraceEvents::parse_error(std::size_t, const std::string&, const Json::exception& error) {
  std::string_view message = error.what();
  message.remove_prefix(std::min(message.find("] ") + 2, message.size()));
  throw InputError(file_, "", printable(message, 300));
}

}  // namespace plimsoll
