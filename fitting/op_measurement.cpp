// Rows of timed kernels are read from a cases file.
#include "fitting/op_measurement.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/field_list.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 24;
constexpr Allowed kSize(1, kMost);

constexpr std::array<std::string_view, 3> kOps = {"matmul", "flash_attention",
                                                  "flash_attention_backward"};
constexpr std::array kOpKindsOf = {OpKind::matmul, OpKind::flash_attention,
                                   OpKind::flash_attention_backward};

constexpr auto kTimed = [](auto& fields, auto& op) {
  fields.required("gpu", op.gpu);
  fields.optional("devices", op.devices);
  fields.required("dtype", op.dtype, kDTypeNames);
  fields.required("time_s", op.time, {1e-12, 3600});
};

constexpr auto kMatmul = [](auto& fields, auto& op) {
  fields.required("batch", op.shape.batch, kSize);
  fields.required("m", op.shape.m, kSize);
  fields.required("n", op.shape.n, kSize);
  fields.required("k", op.shape.k, kSize);
  fields.required("transpose_a", op.transpose_a);
  fields.required("transpose_b", op.transpose_b);
  fields.required("output_bytes", op.output_bytes, {1, 8});
};

constexpr auto kAttention = [](auto& fields, auto& op) {
  fields.required("batch", op.batch, kSize);
  fields.required("sequence", op.sequence, kSize);
  fields.required("heads", op.heads, kSize);
  fields.required("head_size", op.head_size, kSize);
};

std::string source_of(JsonObject& row) {
  JsonObject source = row.object("source");
  return source.text("repo_or_doc") + ", " + source.text("path_or_issue");
}

/// Returns false for a stated row of another op, or without a time.
bool read_op(JsonObject& row, OpMeasurement& op) {
  op.source = source_of(row);
  const auto kind = std::ranges::find(kOps, row.text("op"));
  if (!row.has("time_s") && !row.has("statements")) {
    row.fail("time_s",
             "seconds are required; lab/fit of Plimsoll's sources states and reads raw rows");
  }
  if (!row.has("time_s") || kind == kOps.end()) return false;
  op.kind = kOpKindsOf[std::size_t(kind - kOps.begin())];
  read_listed(row, op, kTimed);
  op.kind == OpKind::matmul ? read_listed(row, op, kMatmul) : read_listed(row, op, kAttention);
  return true;
}

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
  next.source = source_of(row);
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

bool is_op_measurements(std::string_view text, const std::string& file) {
  const Json json = parse_json(text, file);
  return json.is_array() && !json.empty() && json.front().is_object() &&
         json.front().contains("op");
}

OpMeasurements parse_op_measurements(std::string_view text, const std::string& file) {
  const Json json = parse_json(text, file);
  if (!json.is_array()) throw InputError(file, "", "a list of rows is required");
  OpMeasurements result;
  for (std::size_t i = 0; i < json.size(); ++i) {
    JsonObject row(json[i], file, "/" + std::to_string(i));
    OpMeasurement op;
    if (read_op(row, op)) {
      result.ops.push_back(std::move(op));
    } else {
      ++result.skipped;
    }
  }
  return result;
}

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
