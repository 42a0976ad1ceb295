// Allocator traces are read, and checked against the state of one allocator.
#include "models/framework/allocator_trace.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <unordered_set>

#include "base/json.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kMostInteger = std::int64_t{1} << 53;

/// One row, whose lists of numbers are checked with the place of each.
class TraceReader {
 public:
  TraceReader(const Json& row, const std::string& file, std::string pointer)
      : row_(row, file, pointer), file_(file), pointer_(std::move(pointer)) {}

  AllocatorTrace read() {
    trace_.id = row_.text("id");
    read_initial(row_.object("initial"));
    const Json& events = list(row_.raw("events"), pointer_ + "/events");
    for (std::size_t i = 0; i < events.size(); ++i) {
      read_event(events[i], pointer_ + "/events/" + std::to_string(i));
    }
    if (segment_) fail(pointer_ + "/events", "the last event takes a segment for no allocation");
    if (row_.has("expected")) check_peak(row_.object("expected"));
    return std::move(trace_);
  }

 private:
  [[noreturn]] void fail(const std::string& place, const std::string& message) const {
    throw InputError(file_, place, message);
  }

  const Json& list(const Json& value, const std::string& place) const {
    if (!value.is_array()) fail(place, "a list is required");
    return value;
  }

  std::int64_t number(const Json& list, std::size_t index, std::int64_t least,
                      const std::string& place) const {
    const Json& value = list[index];
    const bool whole = value.is_number_integer() || value.is_number_unsigned();
    const std::int64_t number = whole ? value.get<std::int64_t>() : -1;
    if (!whole || number < least || number > kMostInteger) {
      fail(place + "/" + std::to_string(index),
           "an integer from " + std::to_string(least) + " to 2^53 is required");
    }
    return number;
  }

  void check_size(const Json& value, std::size_t size, const std::string& what,
                  const std::string& place) const {
    if (list(value, place).size() != size) fail(place, "a list " + what + " is required");
  }

  void read_initial(JsonObject initial) {
    const std::string segments = pointer_ + "/initial/segments";
    for (const Json& one : list(initial.raw("segments"), segments)) {
      const std::string place = segments + "/" + std::to_string(trace_.segments.size());
      check_size(one, 2, "[address, bytes]", place);
      trace_.segments.push_back({number(one, 0, 0, place), Bytes(number(one, 1, 1, place))});
    }
    const std::string blocks = pointer_ + "/initial/live";
    for (const Json& one : list(initial.raw("live"), blocks)) {
      const std::string place = blocks + "/" + std::to_string(trace_.blocks.size());
      check_size(one, 3, "[id, address, bytes]", place);
      TracedBlock block{number(one, 0, 0, place), number(one, 1, 0, place),
                        Bytes(number(one, 2, 1, place))};
      if (!alive_.insert(block.id).second) fail(place, "this id is alive already");
      trace_.blocks.push_back(block);
    }
    std::ranges::sort(trace_.segments, {}, &TracedSegment::address);
    std::ranges::sort(trace_.blocks, {}, &TracedBlock::address);
    check_places(blocks);
    for (const TracedSegment& segment : trace_.segments) {
      segments_[segment.address] = segment.bytes;
      reserved_ += segment.bytes;
    }
    trace_.most_reserved = reserved_;
  }

  /// Segments do not overlap, and each block lies in one, after the block before it.
  void check_places(const std::string& place) const {
    std::int64_t end = 0;
    auto block = trace_.blocks.begin();
    for (const TracedSegment& segment : trace_.segments) {
      if (segment.address < end) fail(pointer_ + "/initial/segments", "two segments overlap");
      end = segment.address + segment.bytes.count();
      std::int64_t free = segment.address;
      for (; block != trace_.blocks.end() && block->address < end; ++block) {
        if (block->address < free || block->address + block->bytes.count() > end)
          fail(place, "block " + std::to_string(block->id) + " is not within its own segment");
        free = block->address + block->bytes.count();
      }
    }
    if (block != trace_.blocks.end())
      fail(place, "block " + std::to_string(block->id) + " is in no segment");
  }

  void read_event(const Json& value, const std::string& place) {
    if (list(value, place).empty() || !value[0].is_string())
      fail(place, "a list that begins with \"a\", \"f\", \"S\" or \"R\" is required");
    const std::string kind = value[0].get<std::string>();
    TraceEvent event;
    if (kind == "a") {
      check_size(value, 4, "[\"a\", id, bytes, address]", place);
      event.id = number(value, 1, 0, place);
      event.bytes = Bytes(number(value, 2, 0, place));
      event.address = number(value, 3, 0, place);
      if (!alive_.insert(event.id).second) fail(place, "this id is alive already");
      segment_ = false;
    } else if (segment_) {
      fail(place, "a segment is taken for the allocation that follows it at once");
    } else if (kind == "f") {
      check_size(value, 2, "[\"f\", id]", place);
      event.kind = TraceEvent::Kind::free;
      event.id = number(value, 1, 0, place);
      if (alive_.erase(event.id) == 0) fail(place, "no block of this id is alive");
    } else if (kind == "S" || kind == "R") {
      check_size(value, 3, "[\"" + kind + "\", bytes, address]", place);
      event.kind =
          kind == "S" ? TraceEvent::Kind::take_segment : TraceEvent::Kind::give_segment_back;
      event.bytes = Bytes(number(value, 1, 1, place));
      event.address = number(value, 2, 0, place);
      segment_ = kind == "S";
      segment_ ? take_segment(event, place) : give_back(event, place);
    } else {
      fail(place, "found \"" + printable(kind) + "\"; known are \"a\", \"f\", \"S\" and \"R\"");
    }
    trace_.events.push_back(event);
  }

  void take_segment(const TraceEvent& event, const std::string& place) {
    const auto after = segments_.lower_bound(event.address);
    const bool hits_next =
        after != segments_.end() && event.address + event.bytes.count() > after->first;
    const auto before = after == segments_.begin() ? segments_.end() : std::prev(after);
    const bool hits_previous =
        before != segments_.end() && before->first + before->second.count() > event.address;
    if (hits_next || hits_previous) fail(place, "this segment overlaps one that is there");
    segments_.emplace(event.address, event.bytes);
    reserved_ += event.bytes;
    trace_.most_reserved = std::max(trace_.most_reserved, reserved_);
  }

  void give_back(const TraceEvent& event, const std::string& place) {
    const auto found = segments_.find(event.address);
    if (found == segments_.end() || found->second != event.bytes)
      fail(place, "there is no such segment");
    segments_.erase(found);
    reserved_ -= event.bytes;
  }

  void check_peak(JsonObject expected) const {
    if (!expected.has("peak_reserved_bytes")) return;
    const Bytes stated(expected.integer("peak_reserved_bytes", 0, kMostInteger));
    if (stated != trace_.most_reserved) {
      expected.fail("peak_reserved_bytes", "the segments of this trace have a peak of " +
                                               std::to_string(trace_.most_reserved.count()));
    }
  }

  JsonObject row_;
  std::string file_, pointer_;
  AllocatorTrace trace_;
  std::unordered_set<std::int64_t> alive_;
  std::map<std::int64_t, Bytes> segments_;  ///< that the allocator has, by address
  Bytes reserved_;
  bool segment_ = false;  ///< the event before took one
};

}  // namespace

bool is_allocator_traces(std::string_view text, const std::string& file) {
  const Json json = parse_json(text, file);
  return json.is_array() && !json.empty() && json.front().is_object() &&
         json.front().contains("events");
}

std::vector<AllocatorTrace> parse_allocator_traces(std::string_view text, const std::string& file) {
  const Json json = parse_json(text, file);
  if (!json.is_array()) throw InputError(file, "", "a list of rows is required");
  std::vector<AllocatorTrace> traces;
  for (std::size_t i = 0; i < json.size(); ++i) {
    traces.push_back(TraceReader(json[i], file, "/" + std::to_string(i)).read());
  }
  return traces;
}

}  // namespace plimsoll
