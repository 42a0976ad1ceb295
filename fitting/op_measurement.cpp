// Rows of timed kernels are read from a cases file.
#include "fitting/op_measurement.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>

#include "base/json.h"

namespace plimsoll {
namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 24;

/// "b=1, m=4096, k=5120": the parts by name.
std::map<std::string, std::string, std::less<>> parts_of(const std::string& shape) {
  std::map<std::string, std::string, std::less<>> parts;
  for (std::size_t begin = 0; begin < shape.size();) {
    const std::size_t end = std::min(shape.find(", ", begin), shape.size());
    const std::string part = shape.substr(begin, end - begin);
    if (const std::size_t is = part.find('='); is != std::string::npos) {
      parts[part.substr(0, is)] = part.substr(is + 1);
    }
    begin = end + 2;
  }
  return parts;
}

/// A row whose shape is a text; time from the efficiency that it states relative to a peak.
class ShapeText {
 public:
  explicit ShapeText(JsonObject& row) : row_(row), parts_(parts_of(row.text("shape"))) {}

  std::int64_t number(std::string_view key) const {
    const std::string value = text(key);
    std::int64_t number = 0;
    const char* end = value.data() + value.size();
    const auto [at, error] = std::from_chars(value.data(), end, number);
    if (error == std::errc() && at == end && number >= 1 && number <= kMost) return number;
    row_.fail("shape", "a number from 1 to 16777216 is needed for " + std::string(key));
  }
  std::string text(std::string_view key) const {
    const auto found = parts_.find(key);
    return found == parts_.end() ? "" : found->second;
  }
  Seconds time_of(double flops) const {
    return Seconds(flops / (row_.number("peak_tflops", 1e-3, 1e6) * 1e12 *
                            row_.number("efficiency", 1e-6, 10)));
  }

 private:
  JsonObject& row_;
  std::map<std::string, std::string, std::less<>> parts_;
};

double flops_of(const MatmulShape& shape) {
  return 2.0 * double(shape.batch) * double(shape.m) * double(shape.n) * double(shape.k);
}

/// The layout names what is transposed of weights and of activations, in column-major order: "TN"
/// is a linear layer's forward, "NN" its input gradient, "NT" its weight gradient.
bool read_matmul(JsonObject& row, OpMeasurement& op) {
  const ShapeText shape(row);
  op.shape = {shape.number("b"), shape.number("m"), shape.number("n"), shape.number("k")};
  const std::string layout = shape.text("layout");
  op.transpose_a = layout == "NT";
  op.transpose_b = layout == "TN";
  op.output_bytes = shape.text("accumulate") == "True" ? 8 : 2;
  op.time = shape.time_of(flops_of(op.shape));
  return true;
}

/// Backward does two and a half times the products of forward.
bool read_attention(JsonObject& row, OpMeasurement& op) {
  const ShapeText shape(row);
  op.batch = shape.number("batch");
  op.sequence = shape.number("seq_len");
  op.heads = shape.number("head_num");
  op.head_size = shape.number("qk_head_dim");
  if (shape.number("v_head_dim") != op.head_size) return false;
  const double scores = double(op.batch) * double(op.heads) * double(op.sequence * op.sequence);
  const double times = op.kind == OpKind::flash_attention ? 1 : 2.5;
  op.time = shape.time_of(4 * times * scores * double(op.head_size));
  return true;
}

/// DeepBench's, in column-major order: C^T = B^T A^T is what we multiply.
bool read_gemm(JsonObject& row, OpMeasurement& op) {
  if (!row.has("m") || !row.has("tflops") || !row.has("transA") || !row.has("transB")) return false;
  if (!row.text("dtype").starts_with("fp16_in_fp32_acc")) return false;
  op.dtype = DType::f16;
  op.shape = {row.has("batch") ? row.integer("batch", 1, kMost) : 1, row.integer("n", 1, kMost),
              row.integer("m", 1, kMost), row.integer("k", 1, kMost)};
  op.transpose_a = row.text("transB") == "T";
  op.transpose_b = row.text("transA") == "T";
  const double rate = row.number("tflops", 0, 1e6) * 1e12;
  if (rate == 0) return false;
  op.time = Seconds(flops_of(op.shape) / rate);
  return true;
}

bool read_op(JsonObject& row, OpMeasurement& op) {
  op.gpu = row.text("gpu");
  if (row.has("devices")) op.devices = row.texts("devices");
  JsonObject source = row.object("source");
  op.source = source.text("repo_or_doc") + ", " + source.text("path_or_issue");
  const std::string kind = row.text("op");
  if (kind == "matmul") return read_matmul(row, op);
  if (kind == "gemm") return read_gemm(row, op);
  if (kind != "sdp_fwd" && kind != "sdp_bwd") return false;
  op.kind = kind == "sdp_fwd" ? OpKind::flash_attention : OpKind::flash_attention_backward;
  return read_attention(row, op);
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
