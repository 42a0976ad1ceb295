// Checkpoints that are read are held against what they say: another job's, and damaged ones, are
// refused with their place.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/saved.h"
#include "tests/runtime/nano.h"
#include "tests/runtime/saved_training.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

#ifdef PLIMSOLL_SANITIZED
constexpr int kDamages = 40;
#else
constexpr int kDamages = 300;
#endif

/// A tiny job, so that its files are small.
Job tiny_job() {
  Job job = nano_job();
  job.layers = 1;
  job.hidden = 8;
  job.heads = job.kv_heads = 2;
  job.ffn_hidden = 8;
  return job;
}

class SavedCheckpoints : public testing::Test {
 protected:
  SavedCheckpoints() : programs_(nano_programs(parse_strategy("mp=1,micro_batch=8"), job_)) {
    TrainOptions options = some_steps(1);
    options.save = save_in(scratch_.path(), job_);
    train_nano(programs_, options, job_);
    folder_ = find_checkpoint(scratch_.path());
  }

  /// Returns why the checkpoint is refused, or nothing.
  std::string refusal(const Job& job) const {
    try {
      const SavedCheckpoint saved(folder_);
      saved.check_job(job);
      saved.check_tensors(programs_);
      saved.check_values();
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }
  void write(const std::string& name, const std::string& contents) const {
    std::ofstream(folder_ / name, std::ios::binary) << contents;
  }

  const Job job_ = tiny_job();
  const std::vector<Program> programs_;
  const ScratchFolder scratch_;
  fs::path folder_;
};

TEST_F(SavedCheckpoints, OfAnotherJobAreRefusedAtItsField) {
  EXPECT_EQ(refusal(job_), "");
  const auto with = [&](auto change) {
    Job job = job_;
    change(job);
    return refusal(job);
  };
  const std::pair<std::string, std::string> cases[] = {
      {with([](Job& job) { job.layers = 2; }), "/job/layers"},
      {with([](Job& job) { job.ffn_hidden = 16; }), "/job/ffn_hidden"},
      {with([](Job& job) { job.global_batch *= 2; }), "/job/global_batch"},
      {with([](Job& job) { job.sequence = 16; }), "/job/sequence"},
      {with([](Job& job) { job.seed = 7; }), "/job/seed"},
      {with([](Job& job) { job.optimizer.kind = OptimizerKind::sgd; }), "/job/optimizer/"},
      {with([](Job& job) { job.precision = DType::bf16; }), "/job/precision"},
  };
  for (const auto& [said, place] : cases)
    EXPECT_NE(said.find("at " + place), std::string::npos) << said << "\nnot at " << place;
}

TEST_F(SavedCheckpoints, MayGoOnWithOtherRates) {
  Job job = job_;
  job.optimizer.learning_rate = 0.5;
  job.dropout = 0.25;
  job.name = "renamed";
  EXPECT_EQ(refusal(job), "");
  EXPECT_EQ(SavedCheckpoint(folder_).check_job(job).size(), 3u);
}

TEST_F(SavedCheckpoints, DamagedAnywhereAreRefusedAtTheirFile) {
  std::mt19937_64 random(1);
  std::vector<std::string> names = file_names(2);
  names.emplace_back(kRecordName);
  for (int damage = 0; damage < kDamages; ++damage) {
    const std::string& name = names[random() % names.size()];
    const std::string whole = read_file(folder_ / name);
    std::string damaged = whole;
    const std::size_t place = random() % whole.size();
    switch (random() % 4) {
      case 0:
        damaged[place] = char(damaged[place] ^ (1 << random() % 8));
        break;
      case 1:
        damaged.resize(place);
        break;
      case 2:
        damaged.insert(place, 1, char(random()));
        break;
      default:
        damaged.erase(place, 1 + random() % 9);
    }
    write(name, damaged);
    const std::string said = refusal(job_);
    // White space around JSON says nothing.
    const bool harmless =
        said.empty() && name == kRecordName && SavedCheckpoint(folder_).record().step == 1;
    EXPECT_TRUE(harmless || said.find(name) != std::string::npos)
        << name << " damaged at " << place << ": " << said;
    write(name, whole);
  }
  EXPECT_EQ(refusal(job_), "");
}

TEST_F(SavedCheckpoints, WithoutAFileAreRefused) {
  for (const std::string name : {"model.safetensors", "exp_avg_sq.safetensors"}) {
    const std::string whole = read_file(folder_ / name);
    fs::remove(folder_ / name);
    EXPECT_NE(refusal(job_).find(name), std::string::npos);
    fs::create_directory(folder_ / name);
    EXPECT_NE(refusal(job_).find(name), std::string::npos);
    fs::remove(folder_ / name);
    write(name, whole);
  }
  EXPECT_THROW(find_checkpoint(scratch_.path() / "none"), InputError);
  fs::remove(folder_ / kRecordName);
  EXPECT_THROW(find_checkpoint(scratch_.path()), InputError);
}

TEST_F(SavedCheckpoints, WithAPipeInPlaceOfAFileAreRefused) {
  fs::remove(folder_ / "model.safetensors");
  ASSERT_EQ(mkfifo((folder_ / "model.safetensors").c_str(), 0600), 0);
  EXPECT_NE(refusal(job_).find("model.safetensors: it is no regular file"), std::string::npos)
      << refusal(job_);
}

TEST_F(SavedCheckpoints, UnderTheNameOfAnotherStepAreRefused) {
  const fs::path renamed = folder_.parent_path() / "step-9", own = folder_.parent_path() / "best";
  fs::rename(folder_, renamed);
  folder_ = renamed;
  EXPECT_NE(refusal(job_).find("/step: found 1; a folder of the name step-9 is of step 9"),
            std::string::npos)
      << refusal(job_);
  folder_ = renamed / "";
  EXPECT_NE(refusal(job_), "") << "with a slash behind it";
  fs::rename(renamed, own);
  folder_ = own;
  EXPECT_EQ(refusal(job_), "");
}

TEST_F(SavedCheckpoints, ValuesOfAnotherStepAreRefused) {
  // A file of another checkpoint of the same job: its header is right, its values are not.
  const ScratchFolder other;
  TrainOptions options = some_steps(2);
  options.save = save_in(other.path(), job_);
  train_nano(programs_, options, job_);
  write("exp_avg.safetensors", read_file(find_checkpoint(other.path()) / "exp_avg.safetensors"));
  EXPECT_NE(refusal(job_).find("exp_avg.safetensors: at /"), std::string::npos) << refusal(job_);
}

TEST(CheckpointRecords, WhereAJobIsWantedAreNamed) {
  CheckpointRecord record;
  record.job = nano_job();
  try {
    parse_job(checkpoint_text(record), "file");
    ADD_FAILURE() << "a checkpoint is read as a job";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("a checkpoint of a training"), std::string::npos);
  }
}

}  // namespace
}  // namespace plimsoll
