// Allocator traces are replayed, and the results reported.
#include "published/trace_validation.h"

#include <fmt/format.h>

namespace plimsoll {

ValidatedTraces validate_traces(const std::string& name, std::span<const AllocatorTrace> traces) {
  ValidatedTraces validated;
  validated.name = name;
  for (const AllocatorTrace& trace : traces) {
    validated.ids.push_back(trace.id);
    validated.replays.push_back(replay(trace));
  }
  return validated;
}

std::string traces_text(std::span<const ValidatedTraces> files) {
  std::string text;
  for (const ValidatedTraces& file : files) {
    std::size_t exact = 0;
    for (const TraceReplay& one : file.replays) exact += one.exact() ? 1 : 0;
    text += fmt::format("{}: {} allocator traces, {} replayed exactly\n", file.name,
                        file.replays.size(), exact);
    for (std::size_t i = 0; i < file.replays.size(); ++i) {
      const TraceReplay& one = file.replays[i];
      text += fmt::format(
          "  segments {}/{} (and {} others)  addresses {}/{}  given back {}/{}  reserved peak "
          "{}/{} bytes  {}\n",
          one.equal_segments, one.segments, one.other_segments, one.equal_addresses,
          one.allocations, one.simulated_given_back, one.given_back,
          one.simulated_most_reserved.count(), one.most_reserved.count(), file.ids[i]);
      if (one.first_difference >= 0)
        text += fmt::format("    the first difference is at event {}\n", one.first_difference);
    }
  }
  return text;
}

Json traces_json(std::span<const ValidatedTraces> files) {
  Json rows = Json::array();
  for (const ValidatedTraces& file : files) {
    for (std::size_t i = 0; i < file.replays.size(); ++i) {
      const TraceReplay& one = file.replays[i];
      const auto pair = [](std::int64_t predicted, std::int64_t measured) {
        return Json{{"predicted", predicted}, {"measured", measured}};
      };
      Json row;
      row["id"] = file.ids[i];
      row["exact"] = one.exact();
      row["segments"] = one.segments;
      row["equal_segments"] = one.equal_segments;
      row["other_segments"] = one.other_segments;
      row["allocations"] = one.allocations;
      row["equal_addresses"] = one.equal_addresses;
      row["given_back"] = pair(one.simulated_given_back, one.given_back);
      row["reserved_peak_bytes"] =
          pair(one.simulated_most_reserved.count(), one.most_reserved.count());
      row["first_difference"] =
          one.first_difference >= 0 ? Json(one.first_difference) : Json(nullptr);
      rows.push_back(row);
    }
  }
  return rows;
}

}  // namespace plimsoll
