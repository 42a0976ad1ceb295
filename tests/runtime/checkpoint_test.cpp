// A training that is saved goes on as if nothing had happened: with the same bits by the same plan,
// and up to rounding by any other plan of its job.
//
// PLIMSOLL_PAIRS=FIRST:COUNT draws other pairs of plans than the fixed ones.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <fstream>

#include "base/error.h"
#include "passes/pipeline.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/writer.h"
#include "tests/draws.h"
#include "tests/passes/random_strategies.h"
#include "tests/runtime/nano.h"
#include "tests/runtime/patience.h"
#include "tests/runtime/saved_training.h"
#include "tests/runtime/thread_processes.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

#ifdef PLIMSOLL_SANITIZED
constexpr std::int64_t kPairs = 3;  // instrumented steps are slow
#else
constexpr std::int64_t kPairs = 12;
#endif
constexpr std::int64_t kSaved = 3, kAll = 6;  // steps

std::vector<Program> programs_of(const Draw& drawn) {
  return lower({drawn.job, drawn.strategy, bundled_framework()});
}

std::vector<double> behind(const std::vector<double>& steps, std::int64_t first) {
  return {steps.begin() + first, steps.end()};
}

/// Trains the steps that are saved, and then all of them at once, in another run.
Measured saved_and_whole(const std::vector<Program>& programs, const Job& job,
                         const fs::path& folder) {
  TrainOptions options = some_steps(kSaved);
  options.save = save_in(folder, job);
  train_nano(programs, options, job);
  return train_nano(programs, some_steps(kAll), job).measured;
}

// ---- the same plan ----

void expect_same_bits(const std::vector<Program>& programs, const Job& job) {
  const ScratchFolder scratch;
  TrainOptions options = some_steps(kSaved);
  options.save = save_in(scratch.path(), job);
  train_nano(programs, options, job);
  const TrainResult whole = train_nano(programs, some_steps(kAll), job);
  const TrainResult resumed = go_on(programs, job, scratch.path(), kAll);
  EXPECT_EQ(resumed.measured.losses, behind(whole.measured.losses, kSaved));
  EXPECT_EQ(resumed.measured.gradient_norms, behind(whole.measured.gradient_norms, kSaved));
  if (job.loss_scale) {
    EXPECT_EQ(resumed.measured.loss_scales, behind(whole.measured.loss_scales, kSaved));
    EXPECT_EQ(resumed.measured.skipped_steps, whole.measured.skipped_steps);
  }
  EXPECT_EQ(resumed.parameters, whole.parameters);
}

class SamePlan : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(
    Nano, SamePlan,
    testing::Values("", "mp=2", "pp=2,virtual_stages=2", "dp=2",
                    "sharding_degree=2,sharding_stage=1", "mp=2,sharding_degree=2,sharding_stage=2",
                    "sharding_degree=4,sharding_stage=3", "cp=2,sharding_stage=1,dp=2",
                    "flatten=none", "pp=2,dp=2,flatten=coalesced",
                    "sharding_degree=2,sharding_stage=1,sharding_owner=greedy"));

TEST_P(SamePlan, GoesOnWithTheSameBits) {
  Strategy strategy = parse_strategy(GetParam().empty() ? "mp=1" : GetParam());
  strategy.micro_batch = 2;
  Job job = nano_job();
  job.dropout = 0.1;
  expect_same_bits(nano_programs(strategy, job), job);
}

TEST(SamePlanOfExperts, GoesOnWithTheSameBits) {
  Job job = read_job(tests_folder() / "expert-nano.json");
  job.experts->score = RouterScore::sigmoid;
  job.experts->selection_bias = 0.001;
  for (const std::string fields :
       {"micro_batch=2", "ep=2,dp=2", "pp=2,ep=2,dp=2", "mp=2,ep=2,sequence_parallel=true"}) {
    SCOPED_TRACE(fields);
    expect_same_bits(nano_programs(parse_strategy(fields), job), job);
  }
}

TEST(SamePlanInHalf, KeepsLossScaleAndSkippedSteps) {
  Job job = nano_job();
  job.precision = DType::f16;
  job.dropout = 0;
  // The first steps overflow, and the last one that is saved is one of them.
  job.loss_scale = LossScale{0x1p40, 2, 0x1p-10, 2};
  const auto programs = nano_programs(parse_strategy("mp=2,micro_batch=4"), job);
  const ScratchFolder scratch;
  const Measured whole = saved_and_whole(programs, job, scratch.path());
  const Measured resumed = go_on(programs, job, scratch.path(), kAll).measured;
  EXPECT_EQ(resumed.loss_scales, behind(whole.loss_scales, kSaved));
  EXPECT_EQ(resumed.losses, behind(whole.losses, kSaved));
  EXPECT_EQ(resumed.skipped_steps, whole.skipped_steps);
  EXPECT_GT(SavedCheckpoint(scratch.path()).record().skipped_steps, 0);
  EXPECT_LT(SavedCheckpoint(scratch.path()).record().loss_scale, 0x1p40);
  EXPECT_GT(std::ranges::count_if(whole.loss_scales, [](double scale) { return scale > 1; }), 0);
}

// ---- other plans ----

std::vector<std::uint64_t> pairs() {
  const Draws draws = wanted_draws({.first = 1, .count = kPairs}, "PLIMSOLL_PAIRS");
  std::vector<std::uint64_t> all;
  for (std::int64_t i = 0; i < draws.count; ++i) all.push_back(std::uint64_t(draws.first + i));
  // Buckets of a layer that do not follow on each other, with parts that mp ranks sum.
  if (!draws.from_outside) all.push_back(1044);
  return all;
}

class PairOfPlans : public testing::TestWithParam<std::uint64_t> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PairOfPlans);
INSTANTIATE_TEST_SUITE_P(Random, PairOfPlans, testing::ValuesIn(pairs()),
                         [](const auto& info) { return "seed" + std::to_string(info.param); });

/// As in random_strategies_test.cpp, where the reasons are: sums are in another order.
double loss_tolerance(const Job& job) { return job.precision == DType::f32 ? 1e-4 : 0x1p-7; }

TEST_P(PairOfPlans, TrainOneModel) {
  const Draw first = draw(GetParam()), second = draw_for(first.job, GetParam() + 1'000'000);
  SCOPED_TRACE(describe(first) + describe(second));
  const auto saving = programs_of(first), loading = programs_of(second);
  const ScratchFolder scratch;
  const Measured whole = saved_and_whole(saving, first.job, scratch.path());
  const Measured same = go_on(saving, first.job, scratch.path(), kAll).measured;
  EXPECT_EQ(same.losses, behind(whole.losses, kSaved));

  const Measured other = go_on(loading, first.job, scratch.path(), kAll).measured;
  ASSERT_EQ(other.losses.size(), std::size_t(kAll - kSaved));
  for (std::size_t i = 0; i < other.losses.size(); ++i) {
    const double wanted = whole.losses[std::size_t(kSaved) + i];
    EXPECT_NEAR(other.losses[i], wanted, loss_tolerance(first.job) * std::abs(wanted)) << i;
  }
  const ScratchFolder copy;
  copy_through(loading, scratch.path(), copy.path());
  EXPECT_EQ(saved_values(copy.path()), saved_values(scratch.path()));
}

// ---- processes, and runs that end early ----

TEST(MeetingOfProcesses, TellsWhatEachSays) {
  const MakeCommunicator unused = [](Processes&, std::span<const Program>,
                                     std::chrono::milliseconds,
                                     RankDevice*) { return std::unique_ptr<Communicator>(); };
  run_as_processes({"a", "b"}, unused, [&](Processes& each) {
    const auto meeting = make_meeting(1, &each, kPatient);
    EXPECT_TRUE(meeting->any(0, each.index() == 1));
    EXPECT_FALSE(meeting->any(0, false));
    const auto all = meeting->gather(0, std::to_string(each.index()));
    EXPECT_EQ(
        all, each.index() == 0 ? std::vector<std::string>({"0", "1"}) : std::vector<std::string>());
    EXPECT_EQ(meeting->broadcast(0, each.index() == 0 ? "said" : ""), "said");
  });
}

TEST(StoppedRun, SavesBehindTheRunningStep) {
  const Job job = nano_job();
  const auto programs = nano_programs(parse_strategy("pp=2,micro_batch=2"), job);
  const ScratchFolder scratch;
  std::atomic<int> asked{0};
  TrainOptions options = some_steps(1000);
  options.save = save_in(scratch.path(), job);
  options.stop = [&] { return ++asked > 7; };  // two ranks ask behind each step
  const TrainResult stopped = train_nano(programs, options, job);
  EXPECT_EQ(stopped.steps, 4);
  EXPECT_EQ(SavedCheckpoint(scratch.path()).record().step, 4);
  const TrainResult whole = train_nano(programs, some_steps(6), job);
  EXPECT_EQ(go_on(programs, job, scratch.path(), 6).measured.losses,
            behind(whole.measured.losses, 4));
}

TEST(SavingRun, KeepsTheLatestAndEveryNth) {
  const Job job = nano_job();
  const auto programs = nano_programs(parse_strategy("mp=1,micro_batch=8"), job);
  const ScratchFolder scratch;
  std::vector<std::string> saved;
  TrainOptions options = some_steps(7);
  options.save = save_in(scratch.path(), job);
  options.save->every = 2;
  options.save->keep = 3;
  options.save->saved = [&](const fs::path& path) { saved.push_back(path.filename().string()); };
  train_nano(programs, options, job);
  EXPECT_EQ(saved, std::vector<std::string>({"step-2", "step-4", "step-6", "step-7"}));
  EXPECT_EQ(CheckpointFolder(scratch.path(), 3).steps(), std::vector<std::int64_t>({4, 6, 7}));
  EXPECT_EQ(find_checkpoint(scratch.path()), scratch.path() / "step-7");
  // A run that begins before them must not mix with them.
  EXPECT_THROW(train_nano(programs, options, job), InputError);
}

TEST(SavingRun, ReplacesACheckpointOfTheSameStep) {
  const Job job = nano_job();
  const auto programs = nano_programs(parse_strategy("mp=1,micro_batch=8"), job);
  const ScratchFolder scratch;
  TrainOptions options = some_steps(2);
  options.save = save_in(scratch.path(), job);
  train_nano(programs, options, job);
  const auto before = saved_values(scratch.path());
  copy_through(programs, scratch.path(), scratch.path());
  EXPECT_EQ(saved_values(scratch.path()), before);
  EXPECT_FALSE(fs::exists(scratch.path() / ".step-2.part"));
}

TEST(SavingRun, EndsWhereItCannotWrite) {
  const Job job = nano_job();
  const auto programs = nano_programs(parse_strategy("mp=2,micro_batch=4"), job);
  const ScratchFolder scratch;
  TrainOptions options = some_steps(3);
  options.save = save_in(scratch.path(), job);
  options.save->every = 1;
  options.save->saved = [&](const fs::path&) { fs::remove_all(scratch.path()); };
  try {
    train_nano(programs, options, job);
    ADD_FAILURE() << "a folder that is gone is written";
  } catch (const EnvironmentError& error) {
    EXPECT_NE(std::string(error.what()).find("no checkpoint behind step 2"), std::string::npos)
        << error.what();
  }
}

TEST(SavingRun, LeavesNoHalfOfACheckpointOnAFullDisk) {
  const Job job = nano_job();
  const auto programs = nano_programs(parse_strategy("mp=2,micro_batch=4"), job);
  const ScratchFolder scratch;
  std::signal(SIGXFSZ, SIG_IGN);  // writes beyond the limit then fail, as they do on a full disk
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  TrainOptions options = some_steps(3);
  options.save = save_in(scratch.path(), job);
  options.save->every = 1;
  options.save->saved = [&](const fs::path&) {
    rlimit small = before;
    small.rlim_cur = 1000;
    setrlimit(RLIMIT_FSIZE, &small);
  };
  EXPECT_THROW(train_nano(programs, options, job), EnvironmentError);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_TRUE(fs::exists(scratch.path() / "step-1" / kRecordName));
  EXPECT_FALSE(fs::exists(scratch.path() / ".step-2.part"));
}

TEST(LockedFolder, IsRefused) {
  const ScratchFolder scratch;
  const CheckpointFolder first(scratch.path(), 2);
  try {
    const CheckpointFolder second(scratch.path(), 2);
    ADD_FAILURE() << "two runs save in one folder";
  } catch (const EnvironmentError& error) {
    EXPECT_NE(std::string(error.what()).find("another run"), std::string::npos);
  }
}

TEST(PlantedLink, IsNotFollowed) {
  const ScratchFolder scratch, elsewhere;
  std::ofstream(elsewhere.path() / "kept") << "kept";
  fs::create_symlink(elsewhere.path() / "lock", scratch.path() / ".lock");
  EXPECT_THROW(CheckpointFolder(scratch.path(), 2), EnvironmentError);
  EXPECT_FALSE(fs::exists(elsewhere.path() / "lock"));
  fs::remove(scratch.path() / ".lock");
  const CheckpointFolder folder(scratch.path(), 2);
  // One that was there before is removed, and one that is made meanwhile is refused.
  fs::create_directory_symlink(elsewhere.path(), folder.unfinished(1));
  EXPECT_THROW(make_folder(folder.unfinished(1)), EnvironmentError);
  folder.begin(1);
  EXPECT_FALSE(fs::is_symlink(folder.unfinished(1)));
  EXPECT_TRUE(fs::is_directory(folder.unfinished(1)));
  EXPECT_TRUE(fs::exists(elsewhere.path() / "kept"));

  // Ranks open the files after they were made, and a link may have taken a place meanwhile.
  const std::vector<WholeTensor> tensors{{"weight", {2, 3}}};
  const std::vector<LaidFile> files = lay_out(tensors, 0);
  make_files(folder.unfinished(1), files);
  const fs::path file = folder.unfinished(1) / files.at(0).name;
  EXPECT_NO_THROW(CheckpointWriter(folder.unfinished(1), files, 1));
  fs::rename(file, elsewhere.path() / files[0].name);
  fs::create_symlink(elsewhere.path() / files[0].name, file);
  EXPECT_THROW(CheckpointWriter(folder.unfinished(1), files, 1), EnvironmentError);
  fs::remove_all(folder.unfinished(1));
  fs::create_directory_symlink(elsewhere.path(), folder.unfinished(1));
  EXPECT_THROW(CheckpointWriter(folder.unfinished(1), files, 1), EnvironmentError);
  EXPECT_THROW(make_files(folder.unfinished(1), files), EnvironmentError);
}

TEST(UntidyFolder, LosesHalvesAndKeepsWhatWasReplaced) {
  const ScratchFolder scratch;
  for (const char* name : {".step-5.part", ".step-3.old", ".step-4.old", "step-4", "step-x"})
    fs::create_directory(scratch.path() / name);
  for (const char* name : {".step-3.old", ".step-4.old", "step-4"})
    std::ofstream(scratch.path() / name / kRecordName) << "{}";
  const CheckpointFolder folder(scratch.path(), 2);
  EXPECT_EQ(folder.steps(), std::vector<std::int64_t>({3, 4}));
  EXPECT_FALSE(fs::exists(scratch.path() / ".step-5.part"));
  EXPECT_FALSE(fs::exists(scratch.path() / ".step-4.old"));
  EXPECT_TRUE(fs::exists(scratch.path() / "step-x"));
}

}  // namespace
}  // namespace plimsoll
