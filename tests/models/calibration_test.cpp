// Calibrations: exact round trips, and refusal of what was not measured as the format demands.
#include "models/calibration/calibration.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace plimsoll {
namespace {

Calibration example() {
  const Sample sample = {Seconds(1e-5 / 3), Seconds(1e-7 / 7), 7, false};
  return {.device = "a core",
          .backend = "cpu",
          .date = "2026-11-20",
          .versions = {"oneDNN 2.6.3", "g++ 12.2"},
          .busy_cores = 2,
          .dispatch_op = {Seconds(2.5e-7), Seconds(1e-9), 11, true},
          .dispatch_call = sample,
          .wake_up = sample,
          .sleeps_after = Seconds(1e-3),
          .matmuls = {{.shape = {2, 128, 64, 32},
                       .transpose_a = true,
                       .accumulate = true,
                       .dtype = DType::bf16,
                       .time = sample},
                      {.shape = {1, 1, 1, 1}, .transpose_b = true, .bias = true, .time = sample}},
          .ops = {{OpKind::layer_norm, DType::f32, Bytes(4096), 384, sample}},
          .collectives = {{OpKind::all_reduce, 4, Bytes(1 << 20), sample},
                          {OpKind::send, 2, Bytes(64), sample},
                          {OpKind::all_gather, 8, Bytes(1 << 20), sample, 4, 2,
                           CommunicatorKind::nccl, ImportedFrom{"tests.log", "2026-10-01"}}},
          .communicator = CommunicatorKind::mpi,
          .overlaps = {{OpKind::matmul, OpKind::all_reduce, CommunicatorKind::mpi, 2, Bytes(4096),
                        1.25, 1.5, 9, 0.01, 0.02}},
          .communicator_memory = {{CommunicatorKind::nccl, 8, Bytes(1 << 24)}},
          .context_memory = Bytes(1 << 28),
          .launch = sample,
          .copies = {{CopyDirection::to_host, false, Bytes(4096), sample}}};
}

TEST(Calibration, RoundTripsExactly) {
  const Calibration calibration = example();
  EXPECT_EQ(parse_calibration(calibration_text(calibration), "f"), calibration);
  Calibration empty;
  empty.date = "2026-11-20T10:11:12Z";
  empty.dispatch_op = empty.dispatch_call = empty.wake_up = calibration.dispatch_op;
  EXPECT_EQ(parse_calibration(calibration_text(empty), "f"), empty);
}

TEST(Calibration, FilesFromBeforeGroupShapesMeanThreadsOfOneNode) {
  const Calibration old = parse_calibration(R"({
    "device": "a core", "backend": "cpu", "date": "2026-11-20", "versions": [], "busy_cores": 2,
    "dispatch_op": {"median_s": 0, "spread_s": 0, "samples": 7, "unsteady": false},
    "dispatch_call": {"median_s": 0, "spread_s": 0, "samples": 7, "unsteady": false},
    "wake_up": {"median_s": 0, "spread_s": 0, "samples": 7, "unsteady": false},
    "sleeps_after_s": 0, "matmuls": [], "ops": [], "collectives": [
      {"kind": "send", "ranks": 2, "payload_bytes": 64,
       "median_s": 1e-6, "spread_s": 0, "samples": 7, "unsteady": false}]})",
                                            "f");
  EXPECT_EQ(old.communicator, CommunicatorKind::local);
  EXPECT_EQ(old.collectives.at(0).nodes, 1);
  EXPECT_EQ(old.collectives.at(0).groups_per_node, 1);
  EXPECT_EQ(old.collectives.at(0).communicator, CommunicatorKind::local);
  EXPECT_FALSE(old.collectives.at(0).imported);
  EXPECT_TRUE(old.overlaps.empty() && old.copies.empty() && old.communicator_memory.empty());
  EXPECT_FALSE(old.launch || old.context_memory);
}

TEST(Calibration, PointsAreOneLineEachAndKeysCarryUnits) {
  const std::string text = calibration_text(example());
  EXPECT_NE(text.find("\"moved_bytes\": 4096"), text.npos) << text;
  EXPECT_NE(text.find("\"payload_bytes\": 1048576"), text.npos) << text;
  EXPECT_NE(text.find("\"median_s\": 2.5e-07, \"spread_s\": 1e-09, \"samples\": 11, "
                      "\"unsteady\": true"),
            text.npos)
      << text;
}

std::string refusal(const Calibration& calibration) {
  try {
    parse_calibration(calibration_text(calibration), "f");
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(Calibration, Refusals) {
  Calibration few = example();
  few.ops[0].time.samples = 6;
  EXPECT_EQ(refusal(few).rfind("f: at /ops/0/samples: found 6; an integer from 7", 0), 0u)
      << refusal(few);
  Calibration alone = example();
  alone.collectives[0].ranks = 1;
  EXPECT_EQ(refusal(alone).rfind("f: at /collectives/0/ranks: found 1", 0), 0u) << refusal(alone);
  Calibration negative = example();
  negative.matmuls[1].time.median = Seconds(-1);
  EXPECT_EQ(refusal(negative).rfind("f: at /matmuls/1/median_s: found -1.0", 0), 0u)
      << refusal(negative);
  Calibration empty_op = example();
  empty_op.ops[0].moved = Bytes(0);
  EXPECT_EQ(refusal(empty_op).rfind("f: at /ops/0/moved_bytes: found 0; an integer from 1", 0), 0u)
      << refusal(empty_op);
  Calibration instant = example();
  instant.collectives[1].time.median = Seconds(0);
  EXPECT_EQ(refusal(instant).rfind("f: at /collectives/1/median_s: found 0.0", 0), 0u)
      << refusal(instant);
  Calibration endless = example();
  endless.dispatch_call.median = Seconds(1e5);
  EXPECT_EQ(refusal(endless).rfind("f: at /dispatch_call/median_s: found 100000.0", 0), 0u)
      << refusal(endless);
  Calibration free_calls = example();  // dispatch is a fit: calls may cost nothing on top of ops
  free_calls.dispatch_call.median = Seconds(0);
  EXPECT_EQ(refusal(free_calls), "");
  Calibration dreamer = example();
  dreamer.sleeps_after = Seconds(-1);
  EXPECT_EQ(refusal(dreamer).rfind("f: at /sleeps_after_s: found -1.0", 0), 0u) << refusal(dreamer);
  dreamer = example();
  dreamer.wake_up.samples = 3;
  EXPECT_EQ(refusal(dreamer).rfind("f: at /wake_up/samples: found 3", 0), 0u) << refusal(dreamer);
  Calibration misplaced = example();
  misplaced.ops[0].kind = OpKind::all_gather;
  EXPECT_NE(refusal(misplaced).find("/ops/0/kind: found \"all_gather\"; a memory-bound op"),
            std::string::npos);
  misplaced = example();
  misplaced.collectives[1].kind = OpKind::gelu;
  EXPECT_NE(refusal(misplaced).find("/collectives/1/kind: found \"gelu\""), std::string::npos);
  Calibration undated = example();
  undated.date = "yesterday";
  EXPECT_NE(refusal(undated).find("f: at /date: found \"yesterday\"; an ISO date"),
            std::string::npos);
}

TEST(Calibration, RefusesImpossibleShapesAndOverlaps) {
  Calibration shape = example();
  shape.collectives[2].nodes = 3;
  EXPECT_NE(refusal(shape).find("/collectives/2/nodes: found 3; a divisor of ranks (8)"),
            std::string::npos)
      << refusal(shape);
  shape = example();
  shape.collectives[2].groups_per_node = 0;
  EXPECT_NE(refusal(shape).find("/collectives/2/groups_per_node: found 0"), std::string::npos);
  shape = example();
  shape.collectives[2].imported->date = "long ago";
  EXPECT_NE(refusal(shape).find("/collectives/2/imported/date: found \"long ago\"; an ISO date"),
            std::string::npos);
  Calibration overlap = example();
  overlap.overlaps[0].compute_slowdown = 0;
  EXPECT_NE(refusal(overlap).find("/overlaps/0/compute_slowdown: found 0"), std::string::npos);
  overlap = example();
  overlap.overlaps[0].compute = OpKind::send;
  EXPECT_NE(refusal(overlap).find("/overlaps/0/compute: found \"send\"; a local op"),
            std::string::npos);
  overlap = example();
  overlap.overlaps[0].communication = OpKind::gelu;
  EXPECT_NE(refusal(overlap).find("/overlaps/0/communication: found \"gelu\""), std::string::npos);
  Calibration copy = example();
  copy.copies[0].size = Bytes(0);
  EXPECT_NE(refusal(copy).find("/copies/0/bytes: found 0"), std::string::npos);
  std::string text = calibration_text(example());
  text.replace(text.find("\"communicator\": \"mpi\""), 21, "\"communicator\": \"tcp\"");
  EXPECT_THROW(parse_calibration(text, "f"), InputError);
}

TEST(Calibration, UnknownOpsAreRefused) {
  std::string text = calibration_text(example());
  text.replace(text.find("layer_norm"), 10, "layer_morn");
  EXPECT_THROW(parse_calibration(text, "f"), InputError);
}

TEST(Provenance, HasWords) {
  EXPECT_EQ(to_text(Provenance::measured), "measured");
  EXPECT_EQ(to_text(Provenance::interpolated), "interpolated");
  EXPECT_EQ(to_text(Provenance::fitted), "fitted");
  EXPECT_EQ(to_text(Provenance::extrapolated), "extrapolated");
  EXPECT_EQ(to_text(Provenance::typical), "typical");
  EXPECT_EQ(to_text(Provenance::datasheet), "datasheet");
}

}  // namespace
}  // namespace plimsoll
