// Events in order of rank, one on each line.
#include "reports/trace.h"

#include <fmt/format.h>

#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "base/json.h"

namespace plimsoll {
namespace {

std::string microseconds(Picoseconds time) {
  constexpr std::int64_t kPerMicrosecond = 1'000'000;
  const std::int64_t count = time.count();
  const std::int64_t whole = count / kPerMicrosecond, rest = count % kPerMicrosecond;
  return fmt::format("{}{}.{:06}", count < 0 ? "-" : "", whole < 0 ? -whole : whole,
                     rest < 0 ? -rest : rest);
}

class Events {
 public:
  void add(const std::string& event) {
    text_ += text_.empty() ? "" : ",\n";
    text_ += event;
  }
  void name(const char* what, std::int64_t rank, std::optional<std::size_t> stream,
            std::string_view name) {
    add(fmt::format(R"({{"ph": "M", "name": "{}", "pid": {}, "tid": {}, "args": {{"name": {}}}}})",
                    what, rank, stream.value_or(0), Json(name).dump()));
  }
  std::string text() && {
    return "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n" + text_ + "\n]}\n";
  }

 private:
  std::string text_;
};

std::string event_of(const Interval& interval) {
  Json arguments = {{"phase", std::string(to_text(interval.phase))}, {"routine", interval.routine}};
  if (interval.layer) arguments["layer"] = *interval.layer;
  if (interval.micro_batch) arguments["micro_batch"] = *interval.micro_batch;
  std::string wait;
  if (interval.posted < interval.begin) {
    wait = fmt::format(R"(, "wait_us": {})", microseconds(interval.begin - interval.posted));
  }
  std::string shown = arguments.dump();
  shown.insert(shown.size() - 1, wait);
  const std::string name = interval.kind ? std::string(to_text(*interval.kind)) : interval.routine;
  return fmt::format(
      R"({{"ph": "X", "name": {}, "cat": {}, "pid": {}, "tid": {}, "ts": {}, "dur": {}, "args": {}}})",
      Json(name).dump(), Json(to_text(interval.phase)).dump(), interval.rank,
      std::size_t(interval.stream), microseconds(interval.begin),
      microseconds(interval.end - interval.begin), shown);
}

/// A class that occurs anywhere is said everywhere: viewers keep the last value they saw.
void add_memory(const RankMemory& memory, Events& events) {
  std::array<bool, kTensorRoles> occurs = {};
  for (const MemoryPoint& point : memory.curve) {
    for (std::size_t role = 0; role < kTensorRoles; ++role) {
      occurs[role] = occurs[role] || point.by_role[role] != Bytes();
    }
  }
  for (const MemoryPoint& point : memory.curve) {
    Json classes = Json::object();
    for (std::size_t role = 0; role < kTensorRoles; ++role) {
      if (!occurs[role]) continue;
      classes[std::string(to_text(TensorRole(role)))] = point.by_role[role].count();
    }
    events.add(
        fmt::format(R"({{"ph": "C", "name": "live bytes", "pid": {}, "ts": {}, "args": {}}})",
                    memory.rank, microseconds(point.time), classes.dump()));
  }
}

}  // namespace

std::string chrome_trace(const Timeline& timeline) {
  Events events;
  std::map<std::int64_t, std::array<bool, kStreams>> used_by;
  for (const Interval& interval : timeline.intervals) {
    used_by[interval.rank][std::size_t(interval.stream)] = true;
  }
  for (const RankMemory& memory : timeline.memory) {
    events.name("process_name", memory.rank, std::nullopt, fmt::format("rank {}", memory.rank));
    const std::array<bool, kStreams>& used = used_by[memory.rank];
    for (std::size_t stream = 0; stream < kStreams; ++stream) {
      if (!used[stream]) continue;
      events.name("thread_name", memory.rank, stream, to_text(Stream(stream)));
    }
  }
  for (const Interval& interval : timeline.intervals) events.add(event_of(interval));
  for (const RankMemory& memory : timeline.memory) add_memory(memory, events);
  return std::move(events).text();
}

}  // namespace plimsoll
