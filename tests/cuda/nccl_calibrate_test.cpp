// A cluster's GPUs are calibrated over NCCL: the same schedule, checks and journal as processes on
// CPUs, on emulated devices whose data really moves. Times mean nothing here.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "calibrate/measure/comm_operands.h"
#include "calibrate/sessions/calibrate.h"
#include "calibrate/sessions/device_calibration.h"
#include "runtime/cuda/backend.h"
#include "tests/cuda/four_gpus.h"
#include "tests/runtime/thread_processes.h"

namespace plimsoll {
namespace {

using Hosts = std::vector<std::string>;

CalibrationRequest quick_request() {
  CalibrationRequest request;
  request.backend = "cuda";
  request.size = SweepSize::quick;
  request.budget = Seconds(0.001);  // what is measured whatever the clock says
  return request;
}

/// A GPU for each process, whichever host it is said to be on.
MachineCalibration calibrate_gpus(const Hosts& hosts, const CalibrationRequest& request) {
  MachineCalibration result;
  run_as_processes(hosts, over_nccl, [&](Processes& processes) {
    const auto backend = make_cuda_backend(processes.index());
    backend->enter_thread();
    const DeviceOfRank device{*backend, cuda_device_facts(processes.index())};
    MachineCalibration own = calibrate_processes(request, processes, &device);
    if (processes.index() == 0) result = std::move(own);
  });
  return result;
}

class NcclCalibration : public FourGpus {};

TEST_F(NcclCalibration, MeasuresEveryGroupShapeOverlapAndDevice) {
  const MachineCalibration machine = calibrate_gpus({"a", "a", "b", "b"}, quick_request());
  const Calibration& calibration = machine.calibration;
  EXPECT_EQ(calibration.communicator, CommunicatorKind::nccl);
  EXPECT_EQ(calibration.device, cuda_device_facts(0).name);
  using Shape = std::tuple<OpKind, std::int64_t, std::int64_t, std::int64_t>;
  std::set<Shape> shapes, wanted;
  for (const CollectivePoint& point : calibration.collectives) {
    EXPECT_EQ(point.communicator, CommunicatorKind::nccl);
    EXPECT_GE(point.time.samples, 7);
    EXPECT_GT(point.time.median, Seconds(0));
    shapes.emplace(point.kind, point.ranks, point.nodes, point.groups_per_node);
  }
  for (OpKind kind : {OpKind::all_reduce, OpKind::reduce_scatter, OpKind::all_gather}) {
    wanted.insert({{kind, 2, 1, 1}, {kind, 2, 2, 1}, {kind, 2, 2, 2}, {kind, 4, 2, 1}});
  }
  wanted.insert({{OpKind::send, 2, 1, 1}, {OpKind::send, 2, 2, 1}, {OpKind::send, 2, 2, 2}});
  EXPECT_EQ(shapes, wanted);
  std::set<OpKind> beside_matmul;
  for (const OverlapPoint& point : calibration.overlaps) {
    EXPECT_EQ(point.communicator, CommunicatorKind::nccl);
    EXPECT_GE(point.samples, 7);
    if (point.compute == OpKind::matmul) beside_matmul.insert(point.communication);
  }
  EXPECT_EQ(beside_matmul.size(), 4u);

  ASSERT_EQ(calibration.communicator_memory.size(), 2u);  // of 2 and of 4 ranks
  for (const CommunicatorMemory& memory : calibration.communicator_memory) {
    EXPECT_EQ(memory.communicator, CommunicatorKind::nccl);
    EXPECT_GE(memory.held, Bytes(1 << 20));  // the emulation's
    EXPECT_LT(memory.held, Bytes(8 << 20));  // of the four ranks, which share its memory
  }
  EXPECT_TRUE(calibration.context_memory.has_value());
  EXPECT_TRUE(calibration.launch.has_value());
  EXPECT_EQ(calibration.copies.size(), 3u);
  EXPECT_FALSE(calibration.matmuls.empty());
  EXPECT_FALSE(calibration.ops.empty());
  EXPECT_TRUE(std::ranges::any_of(calibration.versions,
                                  [](const auto& text) { return text.starts_with("NCCL "); }));
  EXPECT_EQ(parse_calibration(calibration_text(calibration), "calibration.json"), calibration);

  const Cluster& cluster = machine.cluster;
  EXPECT_EQ(cluster.nodes, 2);
  EXPECT_EQ(cluster.devices_per_node, 2);
  EXPECT_EQ(cluster.device.kind, DeviceKind::gpu);
  ASSERT_EQ(cluster.levels.size(), 2u);
  EXPECT_TRUE(cluster.efficiency->attention_forward.fitted.has_value());
  EXPECT_NE(cluster.source.find("over nccl, 4 processes on 2 hosts"), std::string::npos);
  EXPECT_EQ(parse_cluster(cluster_text(cluster), "cluster.json"), cluster);
  EXPECT_NE(calibration_summary(machine).find("all_reduce of 4 over 2 nodes"), std::string::npos);
}

TEST_F(NcclCalibration, GoesOnFromItsJournal) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / "plimsoll_nccl_calibrate_test";
  std::filesystem::create_directories(folder);
  CalibrationRequest request = quick_request();
  request.journal = folder / "gpus.json.journal";
  const Calibration first = calibrate_gpus({"a", "a"}, request).calibration;
  const std::string text = read_file(request.journal);
  EXPECT_NE(text.substr(0, text.find('\n')).find("NCCL "), std::string::npos);  // with its version
  request.resume = true;
  const MachineCalibration again = calibrate_gpus({"a", "a"}, request);
  EXPECT_GT(again.restored, 10u);
  EXPECT_EQ(again.calibration.launch, first.launch);
  EXPECT_EQ(again.calibration.copies, first.copies);
  EXPECT_EQ(again.calibration.communicator_memory, first.communicator_memory);
  std::filesystem::remove_all(folder);
}

std::string refusal(const Hosts& hosts, const std::vector<DeviceFacts>& facts) {
  std::string said;
  try {
    run_as_processes(hosts, over_nccl, [&](Processes& processes) {
      check_devices(processes, facts[std::size_t(processes.index())], std::chrono::minutes(1));
    });
  } catch (const UsageError& error) {
    said = error.what();
  }
  return said;
}

TEST(CheckDevices, EveryProcessNeedsOneOfItsOwnAndAllOfOneKind) {
  const DeviceFacts first{"H200", "0000:01:00.0", Bytes(1), 1, 90};
  DeviceFacts second = first, other = first;
  second.bus = "0000:02:00.0";
  other.name = "A100";
  EXPECT_EQ(refusal({"a", "a", "b"}, {first, second, first}), "");
  EXPECT_NE(refusal({"a", "a"}, {first, first}).find("processes 0 and 1 on a would share"),
            std::string::npos);
  EXPECT_NE(refusal({"a", "b"}, {first, other}).find("process 1 on b a device A100"),
            std::string::npos);
}

TEST(CommOperandsOfDevices, AreWrittenThereAndWhatDidNotArriveIsSeen) {
  const auto backend = make_cuda_backend(0);
  backend->enter_thread();
  RankDevice& device = *backend->device();
  CommOperands operands(Bytes(96), Bytes(1 << 12), &device);
  const auto data = operands.produce(5, 0);
  EXPECT_TRUE(operands.has_arrived(OpKind::send, 1, 2, data));
  EXPECT_FALSE(operands.has_arrived(OpKind::all_reduce, 1, 2, data));
  device.fill(reinterpret_cast<std::byte*>(data.data()) + 92, 0, Bytes(4));
  EXPECT_FALSE(operands.has_arrived(OpKind::send, 1, 2, data));
}

}  // namespace
}  // namespace plimsoll
