// Calibration files: written by planner calibrate, so SI numbers with the unit in the key.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/file.h"
#include "base/json.h"
#include "models/calibration/calibration.h"
#include "models/calibration/limits.h"

namespace plimsoll {
namespace {

constexpr std::array<std::string_view, kProvenances> kProvenanceWords = {
    "measured", "interpolated", "fitted", "extrapolated", "typical", "datasheet"};
constexpr std::array<std::string_view, 3> kCommunicators = {"local", "mpi", "nccl"};
constexpr std::array<std::string_view, 3> kDirections = {"to_device", "to_host", "on_device"};
constexpr const char* kDateRequired = "an ISO date (2026-11-20) is required";
/// Timings scatter, so that what is not slowed may seem faster; nothing runs a thousandfold slower.
constexpr double kLeastSlowdown = 0.1, kMostSlowdown = 1000;
constexpr std::int64_t kMostSamples = 1'000'000'000;
constexpr std::int64_t kMostSize = std::int64_t{1} << 40;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 53;
// One op: below a picosecond nothing was measured, above an hour nobody waited.
constexpr double kLeastSeconds = 1e-12, kMostSeconds = 3600;

}  // namespace

bool is_date(std::string_view text) {
  constexpr std::string_view kForm = "0000-00-00";
  if (text.size() < kForm.size()) return false;
  for (std::size_t i = 0; i < kForm.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (kForm[i] == '0' ? !digit : text[i] != '-') return false;
  }
  return text.size() == kForm.size() || text[kForm.size()] == 'T';
}

/// An enumerator with a text form of its own (graph/).
template <class From>
auto word(JsonObject& object, const char* key, From from, const char* what) {
  const std::string text = object.text(key);
  const auto value = from(text);
  if (!value) object.fail(key, fmt::format("the name of {} is required", what));
  return *value;
}

/// A Sample's keys stand beside those of what was measured.
Sample sample_from(JsonObject& object, double least = kLeastSeconds) {
  Sample sample;
  sample.median = Seconds(object.number("median_s", least, kMostSeconds));
  sample.spread = Seconds(object.number("spread_s", 0, kMostSeconds));
  sample.samples = object.integer("samples", kLeastSamples, kMostSamples);
  sample.unsteady = object.boolean("unsteady");
  object.finish();
  return sample;
}

void add_sample(Json& object, const Sample& sample) {
  object["median_s"] = sample.median.value();
  object["spread_s"] = sample.spread.value();
  object["samples"] = sample.samples;
  object["unsteady"] = sample.unsteady;
}

MatmulPoint matmul_from(JsonObject& object) {
  MatmulPoint point;
  point.shape.batch = object.integer("batch", 1, kMostSize);
  point.shape.m = object.integer("m", 1, kMostSize);
  point.shape.n = object.integer("n", 1, kMostSize);
  point.shape.k = object.integer("k", 1, kMostSize);
  point.transpose_a = object.boolean("transpose_a");
  point.transpose_b = object.boolean("transpose_b");
  point.accumulate = object.boolean("accumulate");
  point.bias = object.boolean("bias");
  point.dtype = word(object, "dtype", dtype_from, "a data type (f32, bf16, f16)");
  point.time = sample_from(object);
  return point;
}

Json matmul_json(const MatmulPoint& point) {
  Json object = {{"batch", point.shape.batch},
                 {"m", point.shape.m},
                 {"n", point.shape.n},
                 {"k", point.shape.k},
                 {"transpose_a", point.transpose_a},
                 {"transpose_b", point.transpose_b},
                 {"accumulate", point.accumulate},
                 {"bias", point.bias},
                 {"dtype", to_text(point.dtype)}};
  add_sample(object, point.time);
  return object;
}

OpPoint op_from(JsonObject& object) {
  OpPoint point;
  point.kind = word(object, "kind", op_kind_from, "an op");
  if (row(point.kind).op_class != OpClass::memory_bound) {
    object.fail("kind",
                "a memory-bound op is required; matmuls and communication have lists of "
                "their own");
  }
  point.dtype = word(object, "dtype", dtype_from, "a data type (f32, bf16, f16, i32)");
  point.moved = Bytes(object.integer("moved_bytes", 1, kMostBytes));
  point.row = object.integer("row", 0, kMostSize);
  point.time = sample_from(object);
  return point;
}

Json op_json(const OpPoint& point) {
  Json object = {{"kind", to_text(point.kind)},
                 {"dtype", to_text(point.dtype)},
                 {"moved_bytes", point.moved.count()},
                 {"row", point.row}};
  add_sample(object, point.time);
  return object;
}

/// Absent keys of files from before they existed: what they meant then.
std::int64_t integer_or(JsonObject& object, const char* key, std::int64_t otherwise,
                        std::int64_t most) {
  return object.has(key) ? object.integer(key, 1, most) : otherwise;
}
CommunicatorKind communicator_or(JsonObject& object, CommunicatorKind otherwise) {
  if (!object.has("communicator")) return otherwise;
  return CommunicatorKind(object.choice("communicator", kCommunicators));
}

OpKind communication_from(JsonObject& object, const char* key) {
  const OpKind kind = word(object, key, op_kind_from, "a communication");
  const OpClass op_class = row(kind).op_class;
  if (op_class != OpClass::collective && op_class != OpClass::point_to_point) {
    object.fail(key, "a collective or a send is required");
  }
  return kind;
}

CollectivePoint collective_from(JsonObject& object) {
  CollectivePoint point;
  point.kind = communication_from(object, "kind");
  point.ranks = object.integer("ranks", 2, kMostRanksOfPoint);
  point.payload = Bytes(object.integer("payload_bytes", 1, kMostBytes));
  point.nodes = integer_or(object, "nodes", 1, point.ranks);
  if (point.ranks % point.nodes != 0) {
    object.fail("nodes", fmt::format("a divisor of ranks ({}) is required", point.ranks));
  }
  point.groups_per_node = integer_or(object, "groups_per_node", 1, kMostRanksOfPoint);
  point.communicator = communicator_or(object, CommunicatorKind::local);
  if (object.has("dtype")) {
    point.dtype = word(object, "dtype", dtype_from, "a data type (f32, bf16, f16, i32)");
    if (!adds_up(point.kind) && point.dtype != DType::f32) {
      object.fail("dtype", fmt::format("{} only moves bytes: no other than f32 is known",
                                       to_text(point.kind)));
    }
  }
  if (object.has("imported")) {
    JsonObject from = object.object("imported");
    point.imported = ImportedFrom{from.text("file"), from.text("date")};
    if (!is_date(point.imported->date)) from.fail("date", kDateRequired);
    from.finish();
  }
  point.time = sample_from(object);
  return point;
}

Json collective_json(const CollectivePoint& point) {
  Json object = {{"kind", to_text(point.kind)},
                 {"ranks", point.ranks},
                 {"nodes", point.nodes},
                 {"groups_per_node", point.groups_per_node},
                 {"communicator", to_text(point.communicator)},
                 {"payload_bytes", point.payload.count()}};
  if (point.dtype != DType::f32) object["dtype"] = to_text(point.dtype);
  if (point.imported) {
    object["imported"] = {{"file", point.imported->file}, {"date", point.imported->date}};
  }
  add_sample(object, point.time);
  return object;
}

OverlapPoint overlap_from(JsonObject& object) {
  OverlapPoint point;
  point.compute = word(object, "compute", op_kind_from, "an op");
  const OpClass op_class = row(point.compute).op_class;
  if (op_class == OpClass::collective || op_class == OpClass::point_to_point) {
    object.fail("compute", "a local op is required");
  }
  point.communication = communication_from(object, "communication");
  point.communicator = communicator_or(object, CommunicatorKind::mpi);
  point.nodes = object.integer("nodes", 1, kMostRanksOfPoint);
  point.payload = Bytes(object.integer("payload_bytes", 1, kMostBytes));
  point.compute_slowdown = object.number("compute_slowdown", kLeastSlowdown, kMostSlowdown);
  point.compute_spread = object.number("compute_spread", 0, kMostSlowdown);
  point.communication_slowdown =
      object.number("communication_slowdown", kLeastSlowdown, kMostSlowdown);
  point.communication_spread = object.number("communication_spread", 0, kMostSlowdown);
  point.samples = object.integer("samples", kLeastSamples, kMostSamples);
  object.finish();
  return point;
}

Json overlap_json(const OverlapPoint& point) {
  return {{"compute", to_text(point.compute)},
          {"communication", to_text(point.communication)},
          {"communicator", to_text(point.communicator)},
          {"nodes", point.nodes},
          {"payload_bytes", point.payload.count()},
          {"compute_slowdown", point.compute_slowdown},
          {"compute_spread", point.compute_spread},
          {"communication_slowdown", point.communication_slowdown},
          {"communication_spread", point.communication_spread},
          {"samples", point.samples}};
}

CommunicatorMemory communicator_memory_from(JsonObject& object) {
  CommunicatorMemory memory;
  memory.communicator = communicator_or(object, CommunicatorKind::mpi);
  memory.ranks = object.integer("ranks", 2, kMostRanksOfPoint);
  memory.held = Bytes(object.integer("held_bytes", 0, kMostBytes));
  object.finish();
  return memory;
}

Json communicator_memory_json(const CommunicatorMemory& memory) {
  return {{"communicator", to_text(memory.communicator)},
          {"ranks", memory.ranks},
          {"held_bytes", memory.held.count()}};
}

CopyPoint copy_from(JsonObject& object) {
  CopyPoint point;
  point.direction = CopyDirection(object.choice("direction", kDirections));
  point.pinned = object.boolean("pinned");
  point.size = Bytes(object.integer("bytes", 1, kMostBytes));
  point.time = sample_from(object);
  return point;
}

Json copy_json(const CopyPoint& point) {
  Json object = {{"direction", to_text(point.direction)},
                 {"pinned", point.pinned},
                 {"bytes", point.size.count()}};
  add_sample(object, point.time);
  return object;
}

template <class Point, class From>
std::vector<Point> points_from(JsonObject& object, const char* key, From from) {
  std::vector<Point> points;
  for (JsonObject& element : object.objects(key)) points.push_back(from(element));
  return points;
}

/// Files from before the key existed have none.
template <class Point, class From>
std::vector<Point> points_if_any(JsonObject& object, const char* key, From from) {
  return object.has(key) ? points_from<Point>(object, key, from) : std::vector<Point>();
}

template <class Point, class To>
Json points_json(const std::vector<Point>& points, To to) {
  Json array = Json::array();
  for (const Point& point : points) array.push_back(to(point));
  return array;
}

/// Host times, which may be nothing: dispatch is a fit over ops and calls, and may find that one of
/// them costs nothing on top; a runtime may not sleep.
Sample host_time_from(JsonObject object) { return sample_from(object, 0); }

/// Dispatch and sleeping: each pair is there, or was not measured (imported collectives alone).
void read_host_times(JsonObject& object, Calibration& calibration) {
  if (object.has("dispatch_op") || object.has("dispatch_call")) {
    calibration.dispatch_op = host_time_from(object.object("dispatch_op"));
    calibration.dispatch_call = host_time_from(object.object("dispatch_call"));
  }
  if (object.has("wake_up") || object.has("sleeps_after_s")) {
    calibration.wake_up = host_time_from(object.object("wake_up"));
    calibration.sleeps_after = Seconds(object.number("sleeps_after_s", 0, kMostSeconds));
  }
}

Json host_time_json(const Sample& sample) {
  Json object = Json::object();
  add_sample(object, sample);
  return object;
}

std::string_view to_text(Provenance provenance) {
  return kProvenanceWords[static_cast<std::size_t>(provenance)];
}

std::string_view to_text(CommunicatorKind kind) { return kCommunicators[std::size_t(kind)]; }
std::optional<CommunicatorKind> communicator_from(std::string_view text) {
  const auto found = std::find(kCommunicators.begin(), kCommunicators.end(), text);
  if (found == kCommunicators.end()) return std::nullopt;
  return CommunicatorKind(found - kCommunicators.begin());
}
std::string_view to_text(CopyDirection direction) { return kDirections[std::size_t(direction)]; }

Calibration parse_calibration(std::string_view text, const std::string& file) {
  const Json value = parse_json(text, file);
  JsonObject object(value, file);
  Calibration calibration;
  calibration.device = object.text("device");
  calibration.backend = object.text("backend");
  calibration.date = object.text("date");
  if (!is_date(calibration.date)) object.fail("date", kDateRequired);
  calibration.versions = object.texts("versions");
  calibration.busy_cores = object.integer("busy_cores", 0, std::int64_t{1} << 20);
  read_host_times(object, calibration);
  calibration.matmuls = points_from<MatmulPoint>(object, "matmuls", matmul_from);
  calibration.ops = points_from<OpPoint>(object, "ops", op_from);
  calibration.collectives = points_from<CollectivePoint>(object, "collectives", collective_from);
  calibration.communicator = communicator_or(object, CommunicatorKind::local);
  calibration.overlaps = points_if_any<OverlapPoint>(object, "overlaps", overlap_from);
  calibration.communicator_memory =
      points_if_any<CommunicatorMemory>(object, "communicator_memory", communicator_memory_from);
  if (object.has("context_memory_bytes")) {
    calibration.context_memory = Bytes(object.integer("context_memory_bytes", 0, kMostBytes));
  }
  if (object.has("launch")) calibration.launch = host_time_from(object.object("launch"));
  calibration.copies = points_if_any<CopyPoint>(object, "copies", copy_from);
  object.finish();
  return calibration;
}

Calibration read_calibration(const std::filesystem::path& path) {
  return parse_calibration(read_file(path), path.string());
}

std::string calibration_text(const Calibration& calibration) {
  Json object = {{"device", calibration.device},
                 {"backend", calibration.backend},
                 {"communicator", to_text(calibration.communicator)},
                 {"date", calibration.date},
                 {"versions", calibration.versions},
                 {"busy_cores", calibration.busy_cores}};
  if (calibration.dispatch_op.samples > 0) {
    object["dispatch_op"] = host_time_json(calibration.dispatch_op);
    object["dispatch_call"] = host_time_json(calibration.dispatch_call);
  }
  if (calibration.wake_up.samples > 0) {
    object["wake_up"] = host_time_json(calibration.wake_up);
    object["sleeps_after_s"] = calibration.sleeps_after.value();
  }
  if (calibration.launch) object["launch"] = host_time_json(*calibration.launch);
  if (calibration.context_memory) {
    object["context_memory_bytes"] = calibration.context_memory->count();
  }
  object["communicator_memory"] =
      points_json(calibration.communicator_memory, communicator_memory_json);
  object["matmuls"] = points_json(calibration.matmuls, matmul_json);
  object["ops"] = points_json(calibration.ops, op_json);
  object["collectives"] = points_json(calibration.collectives, collective_json);
  object["overlaps"] = points_json(calibration.overlaps, overlap_json);
  object["copies"] = points_json(calibration.copies, copy_json);
  return json_text(object);
}

}  // namespace plimsoll
