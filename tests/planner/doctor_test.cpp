// Doctor: on machines made of files and answers, each trouble gives its line, its health and a fix.
#include "planner/doctor/doctor.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/json.h"

namespace plimsoll {
namespace {

/// A healthy machine of four cores without GPU; tests change what they are about.
class DoctorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "doctorXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    write("proc/self/status", "Name:\tplanner\nCpus_allowed_list:\t0-3\n");
    write("proc/self/cgroup", "0::/job\n");
    write("proc/self/limits",
          "Limit                     Soft Limit           Hard Limit           Units     \n"
          "Max open files            65536                1048576              files     \n"
          "Max locked memory         unlimited            unlimited            bytes     \n");
    write("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu avx2 avx512f\n");
    write("proc/meminfo",
          "MemTotal:       16777216 kB\nMemAvailable:   8388608 kB\nSwapTotal:      0 kB\n"
          "SwapFree:       0 kB\n");
    write("proc/loadavg", "0.10 0.20 0.30 1/100 4242\n");
    write("proc/stat", "cpu  1000 0 1000 8000 0 0 0 0 0 0\n");
    write("proc/sys/kernel/numa_balancing", "0\n");
    write("sys/devices/system/cpu/online", "0-3\n");
    write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
    write("sys/devices/system/cpu/smt/active", "0\n");
    write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    write("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n");
    write("sys/fs/cgroup/job/cpu.max", "max 100000\n");
    std::filesystem::create_directories(root_ / "dev/shm");
    write("bin/planner-run", "");
    write("bin/planner-calibrate", "");
    write("bin/planner-run-mpi", "");
    machine_.root = root_;
    machine_.programs = root_ / "bin";
    machine_.output = root_;
    machine_.run =
        [this](const std::vector<std::string>& command) -> std::optional<DoctorMachine::Output> {
      const auto answer = answers_.find(command[0]);
      if (answer == answers_.end()) return std::nullopt;
      return answer->second;
    };
    machine_.driver = [this] { return driver_; };
    machine_.libraries = [this] { return libraries_; };
    answers_["mpirun"] = {0, "mpirun (Open MPI) 4.1.4\n\nReport bugs\n"};
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::filesystem::path& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  /// One GPU's line of nvidia-smi, with one field changed.
  static std::string gpu(std::size_t field = 99, const std::string& value = "") {
    std::vector<std::string> fields = {"NVIDIA H200", "580.95.05", "143771",  "4",
                                       "Enabled",     "0",         "Enabled", "1980",
                                       "1980",        "700.00",    "700.00",  "0x0000000000000001",
                                       "Disabled",    "Default"};
    if (field < fields.size()) fields[field] = value;
    std::string line;
    for (const std::string& one : fields) line += (line.empty() ? "" : ", ") + one;
    return line + "\n";
  }
  void with_gpus(const std::string& lines, std::int64_t count) {
    answers_["nvidia-smi"] = {0, lines};
    driver_ = {true, "", 13000, count, 0};
    libraries_ = {{"CUDA runtime", "libcudart.so.13", 13000}, {"NCCL", "libnccl.so.2", 22809}};
  }

  Finding find(const std::string& check) const {
    const std::vector<Finding> findings = examine(machine_);
    for (const Finding& finding : findings) {
      EXPECT_EQ(finding.health == Health::ok, finding.fix.empty()) << finding.check;
    }
    const auto found = std::find_if(findings.begin(), findings.end(),
                                    [&](const Finding& finding) { return finding.check == check; });
    if (found != findings.end()) return *found;
    ADD_FAILURE() << "no line " << check << "\n" << findings_text(findings);
    return {};
  }
  void expect(const std::string& check, Health health, const std::string& words) const {
    const Finding finding = find(check);
    EXPECT_EQ(finding.health, health) << check << ": " << finding.found;
    EXPECT_NE((finding.found + finding.fix).find(words), std::string::npos)
        << check << ": " << finding.found << "; " << finding.fix;
  }

  std::filesystem::path root_;
  DoctorMachine machine_;
  std::map<std::string, DoctorMachine::Output> answers_;
  DriverProbe driver_;
  std::vector<LibraryProbe> libraries_;
};

TEST_F(DoctorTest, HealthyMachineWithoutGpu) {
  for (const Finding& finding : examine(machine_)) {
    if (finding.check == "/dev/shm" || finding.check == "output") continue;  // of the real disk
    EXPECT_EQ(finding.health, Health::ok) << finding.check << ": " << finding.found;
  }
  expect("GPUs", Health::ok, "CPU cores");
  expect("cores", Health::ok, "4 online, 4 allowed to this process, no quota");
  expect("memory", Health::ok, "16.0 GiB, 8.00 GiB available");
  expect("vector units", Health::ok, "AVX-512 yes, AVX-512 bf16 no");
  expect("MPI", Health::ok, "mpirun (Open MPI) 4.1.4");
}

TEST_F(DoctorTest, CoresAgainstAffinityAndQuota) {
  write("proc/self/status", "Cpus_allowed_list:\t0,2-3\n");
  expect("cores", Health::warn, "3 allowed");
  write("sys/fs/cgroup/job/cpu.max", "150000 100000\n");
  expect("cores", Health::warn, "a quota of 1.50");
}

TEST_F(DoctorTest, WhatSpoilsMeasurements) {
  write("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n");
  expect("governor", Health::warn, "powersave on 1 cores");
  write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  expect("huge pages", Health::warn, "never");
  write("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n");
  expect("clock", Health::warn, "hpet");
  write("proc/loadavg", "3.50 0.20 0.30 1/100 4242\n");
  expect("other load", Health::warn, "3.50");
  write("proc/stat", "cpu  1000 0 1000 7000 0 0 0 1000 0 0\n");
  expect("stolen time", Health::warn, "10.0 %");
  write("sys/devices/system/cpu/smt/active", "1\n");
  expect("scheduling", Health::warn, "one rank per physical core");
  write("proc/sys/kernel/numa_balancing", "1\n");
  expect("scheduling", Health::warn, "numa_balancing");
  write("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 524288 kB\n");
  expect("memory", Health::warn, "512 MiB available");
}

TEST_F(DoctorTest, Limits) {
  write("proc/self/limits",
        "Max open files            1024                 1048576              files     \n"
        "Max locked memory         8388608              8388608              bytes     \n");
  expect("open files", Health::warn, "ulimit -n");
  expect("locked memory", Health::ok, "8.00 MiB");
  std::filesystem::create_directories(root_ / "dev/infiniband");
  expect("locked memory", Health::fail, "InfiniBand");
  std::filesystem::remove_all(root_ / "dev/shm");
  expect("/dev/shm", Health::fail, "missing");
}

TEST_F(DoctorTest, HealthyGpus) {
  with_gpus(gpu() + gpu(), 2);
  for (const Finding& finding : examine_gpus(machine_)) {
    EXPECT_EQ(finding.health, Health::ok) << finding.check << ": " << finding.found;
  }
  expect("GPUs", Health::ok, "2 x NVIDIA H200, 143771 MiB, driver 580.95.05");
  expect("CUDA driver", Health::ok, "supports CUDA 13.0, 2 devices");
  expect("peer access", Health::ok, "all pairs");
  expect("NCCL", Health::ok, "22809");
  expect("GPU ECC", Health::ok, "on");
}

TEST_F(DoctorTest, TroubledGpus) {
  with_gpus(gpu() + gpu(3, "70000"), 2);
  expect("GPU memory", Health::warn, "GPU 1: 70000 MiB in use");
  with_gpus(gpu(9, "500.00") + gpu(9, "500.00"), 2);
  expect("GPU power", Health::warn, "all 2 GPUs: limit of 500 W, and 700 W are usual");
  with_gpus(gpu(11, "0x0000000000000060"), 1);
  expect("GPU throttling", Health::warn, "hot");
  with_gpus(gpu(5, "2"), 1);
  expect("GPU ECC", Health::fail, "2 uncorrected errors");
  with_gpus(gpu(7, "1000"), 1);
  expect("GPU clocks", Health::warn, "1000 MHz of 1980");
  with_gpus(gpu(6, "Disabled"), 1);
  expect("GPU persistence", Health::warn, "-pm 1");
  with_gpus(gpu(12, "Enabled"), 1);
  expect("GPU partitions", Health::warn, "MIG is on");
  with_gpus(gpu(13, "Prohibited"), 1);
  expect("GPU compute mode", Health::fail, "prohibited");
  with_gpus(gpu() + gpu(0, "NVIDIA A100"), 2);
  expect("GPUs", Health::warn, "others differ");
  with_gpus(gpu(7, "[N/A]") + gpu(5, "[N/A]"), 2);  // fields that a GPU does not have
  expect("GPU clocks", Health::ok, "not limited");
}

TEST_F(DoctorTest, FieldsThatNvidiaSmiDoesNotKnow) {
  with_gpus(gpu(), 1);
  const std::string line = answers_["nvidia-smi"].text;
  answers_.erase("nvidia-smi");
  std::vector<std::string> asked;
  machine_.run =
      [&](const std::vector<std::string>& command) -> std::optional<DoctorMachine::Output> {
    if (command[0] != "nvidia-smi") return std::nullopt;
    asked.push_back(command[1]);
    for (const std::string field : {"clocks_throttle_reasons.active", "mig.mode.current"}) {
      if (command[1].find(field) == std::string::npos) continue;
      return DoctorMachine::Output{2, "Field \"" + field + "\" is not a valid field to query.\n"};
    }
    return DoctorMachine::Output{0, line};
  };
  expect("GPU partitions", Health::ok, "whole");
  ASSERT_EQ(asked.size(), 3u);
  EXPECT_NE(asked[2].find("clocks_event_reasons.active"), std::string::npos) << asked[2];
  EXPECT_EQ(asked[2].find("mig"), std::string::npos) << asked[2];
}

TEST_F(DoctorTest, DriverAndLibraries) {
  with_gpus(gpu() + gpu(), 1);
  expect("CUDA driver", Health::warn, "CUDA_VISIBLE_DEVICES");
  with_gpus(gpu() + gpu(), 2);
  driver_.unreachable_pairs = 2;
  expect("peer access", Health::warn, "2 pairs");
  driver_.version = 12040;
  expect("CUDA runtime", Health::fail, "supports CUDA 12.4");
  driver_.error = "cuInit fails with CUDA error 999";
  expect("CUDA driver", Health::fail, "999");
  driver_ = {};
  expect("CUDA driver", Health::fail, "libcuda.so.1");
  libraries_[1].file.clear();
  expect("NCCL", Health::warn, "not found");
  answers_["nvidia-smi"] = {9, "NVIDIA-SMI has failed because it couldn't talk to the driver\n"};
  expect("GPUs", Health::warn, "NVIDIA-SMI has failed");
  write("dev/nvidia0", "");
  expect("GPUs", Health::fail, "NVIDIA-SMI has failed");
  answers_.erase("nvidia-smi");
  expect("GPUs", Health::fail, "no nvidia-smi");
}

TEST_F(DoctorTest, StaticProgramDoesNotAskTheDriver) {
  with_gpus(gpu() + gpu(), 2);
  machine_.driver = nullptr;
  machine_.libraries = nullptr;
  expect("CUDA driver", Health::warn, "linked statically");
}

TEST_F(DoctorTest, Programs) {
  machine_.is_superuser = true;
  expect("MPI as root", Health::warn, "OMPI_ALLOW_RUN_AS_ROOT=1");
  machine_.environment = {{"OMPI_MCA_hwloc_base_binding_policy", "none"}, {"SLURM_JOB_ID", "7"}};
  expect("MPI binding", Health::warn, "--bind-to core");
  answers_["srun"] = {0, "slurm 22.05.8\n"};
  expect("Slurm", Health::ok, "slurm 22.05.8, in job 7");
  answers_.erase("mpirun");
  expect("MPI", Health::warn, "no mpirun");
  std::filesystem::remove(root_ / "bin/planner-run-mpi");
  expect("MPI", Health::ok, "no mpirun");
  std::filesystem::remove(root_ / "bin/planner-run");
  expect("programs", Health::fail, "planner-run");
  machine_.output = root_ / "nowhere";
  expect("output", Health::fail, "nowhere");
}

TEST_F(DoctorTest, JsonSaysTheSame) {
  std::filesystem::remove_all(root_ / "dev/shm");
  const Json json = parse_json(findings_json(examine(machine_)), "f");
  EXPECT_EQ(json["worst"], "fail");
  EXPECT_EQ(json["findings"].size(), examine(machine_).size());
  EXPECT_EQ(json["findings"][0]["check"], "cores");
  EXPECT_TRUE(json["findings"][0]["fix"].is_null());
}

/// The one that this test runs on: it ends, and every line that is not ok has a fix.
TEST(Doctor, ThisMachine) {
  const std::vector<Finding> findings = examine(this_machine());
  EXPECT_GT(findings.size(), 15u);
  for (const Finding& finding : findings) {
    EXPECT_FALSE(finding.found.empty()) << finding.check;
    EXPECT_EQ(finding.health == Health::ok, finding.fix.empty()) << finding.check;
  }
}

}  // namespace
}  // namespace plimsoll
