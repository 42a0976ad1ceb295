// Rows of timed collectives.
#include "fitting/collective_measurement.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/json.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kMostRanks = std::int64_t{1} << 24;
constexpr double kMostBytes = 0x1p53, kMostMicroseconds = 3.6e9;

constexpr std::array<std::string_view, 4> kCollectives = {"all_reduce", "all_gather",
                                                          "reduce_scatter", "all_to_all"};
constexpr std::array kKinds = {OpKind::all_reduce, OpKind::all_gather, OpKind::reduce_scatter,
                               OpKind::all_to_all};

/// The place of a field in the row's points.
std::optional<std::size_t> place_of(const std::vector<std::string>& fields,
                                    std::string_view field) {
  const auto found = std::ranges::find(fields, field);
  if (found == fields.end()) return std::nullopt;
  return std::size_t(found - fields.begin());
}

double number_at(const JsonObject& row, const Json& point, std::size_t place, double most) {
  const bool there = point.is_array() && place < point.size() && point[place].is_number();
  if (!there) row.fail("points", "each point has the numbers that point_fields names");
  const double value = point[place].get<double>();
  if (value > 0 && value <= most) return value;
  row.fail("points", "sizes and times are above 0 and below 2^53 bytes and an hour");
}

/// False where the row is of something else, or does not say what is needed.
bool read_row(JsonObject row, std::vector<CollectiveMeasurement>& points) {
  const auto kind = std::ranges::find(kCollectives, row.text("collective"));
  if (kind == kCollectives.end() || !row.has("ranks") || !row.has("points")) return false;
  CollectiveMeasurement next;
  next.kind = kKinds[std::size_t(kind - kCollectives.begin())];
  next.gpu = row.object("hardware").text("gpu");
  if (row.has("devices")) next.devices = row.texts("devices");
  JsonObject source = row.object("source");
  next.source = source.text("repo_or_doc") + ", " + source.text("path_or_issue");
  next.ranks = row.integer("ranks", 2, kMostRanks);
  const std::vector<std::string> fields = row.texts("point_fields");
  const auto size = place_of(fields, "size_bytes");
  const auto time = place_of(fields, "time_us_out_of_place");
  if (!size || !time) return false;
  for (const Json& point : row.raw("points")) {
    if (point.is_array() && *time < point.size() && point[*time].is_null()) continue;
    next.payload = Bytes(std::int64_t(number_at(row, point, *size, kMostBytes)));
    next.time = Seconds(1e-6 * number_at(row, point, *time, kMostMicroseconds));
    points.push_back(next);
  }
  return true;
}

}  // namespace

bool is_collective_measurements(std::string_view text, const std::string& file) {
  const Json json = parse_json(text, file);
  return json.is_array() && !json.empty() && json.front().is_object() &&
         json.front().contains("collective");
}

CollectiveMeasurements parse_collective_measurements(std::string_view text,
                                                     const std::string& file) {
  const Json json = parse_json(text, file);
  if (!json.is_array()) throw InputError(file, "", "a list of rows is required");
  CollectiveMeasurements result;
  for (std::size_t i = 0; i < json.size(); ++i) {
    if (!read_row(JsonObject(json[i], file, "/" + std::to_string(i)), result.points))
      ++result.skipped;
  }
  return result;
}

}  // namespace plimsoll
