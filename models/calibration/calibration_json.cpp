// Calibration files: written by planner calibrate, so SI numbers with the unit in the key.
#include <array>

#include "base/field_list.h"
#include "models/calibration/calibration.h"
#include "models/calibration/limits.h"

namespace plimsoll {
namespace {

constexpr std::array<std::string_view, kProvenances> kProvenanceWords = {
    "measured", "interpolated", "fitted", "extrapolated", "typical", "datasheet"};
constexpr std::array<std::string_view, 3> kCommunicators = {"local", "mpi", "nccl"};
constexpr std::array<std::string_view, 3> kDirections = {"to_device", "to_host", "on_device"};
/// Timings scatter, so that what is not slowed may seem faster; nothing runs a thousandfold slower.
constexpr double kLeastSlowdown = 0.1, kMostSlowdown = 1000;
constexpr double kMostSamples = 1e9, kMostSize = 0x1p40, kMostBytes = 0x1p53;
// One op: below a picosecond nothing was measured, above an hour nobody waited.
constexpr double kLeastSeconds = 1e-12, kMostSeconds = 3600;

constexpr Allowed kOps(kOpNames, "an op"), kTypes(kDTypeNames, "a data type"),
    kCommunications(kOpNames, "a communication");

void check_communication(auto& fields, const char* key, OpKind kind) {
  fields.check(communicates(kind), key, "a collective or a send is required");
}

void check_date(auto& fields, const std::string& date) {
  fields.check(is_date(date), "date", "an ISO date (2026-11-20) is required");
}

/// A Sample's keys stand beside those of what was measured.
void list_sample(auto& fields, auto& sample, double least = kLeastSeconds) {
  fields.required("median_s", sample.median, {least, kMostSeconds});
  fields.required("spread_s", sample.spread, {0, kMostSeconds});
  fields.required("samples", sample.samples, {double(kLeastSamples), kMostSamples});
  fields.required("unsteady", sample.unsteady);
}

/// Host times, which may be nothing: dispatch is a fit over ops and calls, and may find that one of
/// them costs nothing on top; a runtime may not sleep.
constexpr auto kHostTime = [](auto& fields, auto& sample) { list_sample(fields, sample, 0); };

constexpr auto kMatmul = [](auto& fields, auto& point) {
  fields.required("batch", point.shape.batch, {1, kMostSize});
  fields.required("m", point.shape.m, {1, kMostSize});
  fields.required("n", point.shape.n, {1, kMostSize});
  fields.required("k", point.shape.k, {1, kMostSize});
  fields.required("transpose_a", point.transpose_a);
  fields.required("transpose_b", point.transpose_b);
  fields.required("accumulate", point.accumulate);
  fields.required("bias", point.bias);
  fields.required("dtype", point.dtype, kTypes);
  list_sample(fields, point.time);
};

constexpr auto kOp = [](auto& fields, auto& point) {
  fields.required("kind", point.kind, kOps);
  fields.check(
      row(point.kind).op_class == OpClass::memory_bound, "kind",
      "a memory-bound op is required; there are other lists of matmuls and of communication");
  fields.required("dtype", point.dtype, kTypes);
  fields.required("moved_bytes", point.moved, {1, kMostBytes});
  fields.required("row", point.row, {0, kMostSize});
  list_sample(fields, point.time);
};

constexpr auto kImported = [](auto& fields, auto& from) {
  fields.required("file", from.file);
  fields.required("date", from.date);
  check_date(fields, from.date);
};

constexpr auto kCollective = [](auto& fields, auto& point) {
  fields.required("kind", point.kind, kCommunications);
  check_communication(fields, "kind", point.kind);
  fields.required("ranks", point.ranks, {2, kMostRanksOfPoint});
  fields.defaulted("nodes", point.nodes, {1, double(point.ranks)});
  fields.check(point.ranks % point.nodes == 0, "nodes", "a divisor of ranks ({}) is required",
               point.ranks);
  fields.defaulted("groups_per_node", point.groups_per_node, {1, kMostRanksOfPoint});
  fields.defaulted("communicator", point.communicator, kCommunicators);
  fields.required("payload_bytes", point.payload, {1, kMostBytes});
  fields.optional("dtype", point.dtype, kTypes);
  fields.check(adds_up(point.kind) || point.dtype == DType::f32, "dtype",
               "{} only moves bytes: no other than f32 is known", to_text(point.kind));
  fields.optional("imported", point.imported, kImported);
  list_sample(fields, point.time);
};

constexpr auto kOverlap = [](auto& fields, auto& point) {
  fields.required("compute", point.compute, kOps);
  fields.check(!communicates(point.compute), "compute", "a local op is required");
  fields.required("communication", point.communication, kCommunications);
  check_communication(fields, "communication", point.communication);
  fields.defaulted("communicator", point.communicator, kCommunicators);
  fields.required("nodes", point.nodes, {1, kMostRanksOfPoint});
  fields.required("payload_bytes", point.payload, {1, kMostBytes});
  fields.required("compute_slowdown", point.compute_slowdown, {kLeastSlowdown, kMostSlowdown});
  fields.required("compute_spread", point.compute_spread, {0, kMostSlowdown});
  fields.required("communication_slowdown", point.communication_slowdown,
                  {kLeastSlowdown, kMostSlowdown});
  fields.required("communication_spread", point.communication_spread, {0, kMostSlowdown});
  fields.required("samples", point.samples, {double(kLeastSamples), kMostSamples});
};

constexpr auto kCommunicatorMemory = [](auto& fields, auto& memory) {
  fields.defaulted("communicator", memory.communicator, kCommunicators);
  fields.required("ranks", memory.ranks, {2, kMostRanksOfPoint});
  fields.required("held_bytes", memory.held, {0, kMostBytes});
};

constexpr auto kCopy = [](auto& fields, auto& point) {
  fields.required("direction", point.direction, kDirections);
  fields.required("pinned", point.pinned);
  fields.required("bytes", point.size, {1, kMostBytes});
  list_sample(fields, point.time);
};

/// Dispatch and sleeping: each pair is there, or was not measured (imported collectives alone).
constexpr auto kCalibration = [](auto& fields, auto& calibration) {
  fields.required("device", calibration.device);
  fields.required("backend", calibration.backend);
  fields.defaulted("communicator", calibration.communicator, kCommunicators);
  fields.required("date", calibration.date);
  check_date(fields, calibration.date);
  fields.required("versions", calibration.versions);
  fields.required("busy_cores", calibration.busy_cores, {0, 1 << 20});
  fields.optional("dispatch_op", calibration.dispatch_op, kHostTime);
  if (calibration.dispatch_op != Sample())
    fields.required("dispatch_call", calibration.dispatch_call, kHostTime);
  fields.optional("wake_up", calibration.wake_up, kHostTime);
  if (calibration.wake_up != Sample())
    fields.required("sleeps_after_s", calibration.sleeps_after, {0, kMostSeconds});
  fields.optional("launch", calibration.launch, kHostTime);
  fields.optional("context_memory_bytes", calibration.context_memory, {0, kMostBytes});
  fields.defaulted("communicator_memory", calibration.communicator_memory, kCommunicatorMemory);
  fields.required("matmuls", calibration.matmuls, kMatmul);
  fields.required("ops", calibration.ops, kOp);
  fields.required("collectives", calibration.collectives, kCollective);
  fields.defaulted("overlaps", calibration.overlaps, kOverlap);
  fields.defaulted("copies", calibration.copies, kCopy);
};

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

std::string_view to_text(Provenance provenance) {
  return kProvenanceWords[static_cast<std::size_t>(provenance)];
}

std::string_view to_text(CommunicatorKind kind) { return kCommunicators[std::size_t(kind)]; }
std::string_view to_text(CopyDirection direction) { return kDirections[std::size_t(direction)]; }

Calibration parse_calibration(std::string_view text, const std::string& file) {
  const Json value = parse_json(text, file);
  return read_listed<Calibration>(JsonObject(value, file), kCalibration);
}

std::string calibration_text(const Calibration& calibration) {
  return json_text(listed_json(calibration, kCalibration));
}

}  // namespace plimsoll
