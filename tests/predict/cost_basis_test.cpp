// Measured costs go before fitted ones, and these before typical ones.
#include "predict/cost_basis.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "models/calibration/calibration_file.h"
#include "models/presets/presets.h"
#include "predict/evaluate.h"
#include "tests/predict/fixtures.h"

namespace plimsoll {
namespace {

const std::string kFit = "dgx-h100-80gb--megatron-lm";

/// All-reduces of 8 GPUs of a node at a tenth of what the preset's links reach.
Calibration imported() {
  Calibration calibration;
  calibration.device = preset_cluster("dgx-h100-80gb").device.name;
  calibration.backend = "cuda";
  calibration.date = "2026-11-20";
  calibration.communicator = CommunicatorKind::nccl;
  for (const std::int64_t bytes : {1 << 20, 1 << 30}) {
    CollectivePoint point;
    point.kind = OpKind::all_reduce;
    point.ranks = 8;
    point.payload = Bytes(bytes);
    point.communicator = CommunicatorKind::nccl;
    point.dtype = DType::bf16;
    point.time = {Seconds(double(bytes) / 4e10), Seconds(double(bytes) / 4e12), 20, false};
    point.imported = ImportedFrom{"run.txt", "2026-11-20"};
    calibration.collectives.push_back(point);
  }
  return calibration;
}

/// The built-in fit with a run of the user's.
FittedCalibration own_fit() {
  FittedCalibration fit = parse_fitted_calibration(*find_preset(calibration_presets(), kFit), kFit);
  fit.sources.push_back("ours, run 1");
  return fit;
}

class CostBasisTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("cost_basis." +
               std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::create_directories(folder_);
    points_ = write("points.json", calibration_text(imported()));
    fit_ = write("fit.json", calibration_file_text({std::nullopt, own_fit()}));
    both_ = write("both.json", calibration_file_text({imported(), own_fit()}));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  static CostBasis basis(const std::vector<std::string>& names,
                         const std::string& framework = "megatron-lm",
                         const std::string& on = "dgx-h100-80gb") {
    return cost_basis(preset_cluster(on), framework_by_name(framework),
                      read_calibration_choice(names), "mine.json");
  }

  std::filesystem::path folder_;
  std::string points_, fit_, both_;
};

TEST_F(CostBasisTest, WhatWasMeasuredStandsOverTheFitOfDeviceAndFramework) {
  const CostBasis fit = basis({}), joined = basis({points_});
  ASSERT_TRUE(joined.measured && joined.fitted);
  EXPECT_EQ(joined.fitted, fit.fitted);
  EXPECT_EQ(joined.cluster, fit.cluster);
  EXPECT_EQ(joined.framework, fit.framework);
  EXPECT_EQ(joined.source.digest, digest(calibration_text(imported())));
  EXPECT_EQ(joined.source.rest_digest, fit.source.digest);
  EXPECT_EQ(joined.source.name, points_ + ", else " + kFit);
  EXPECT_TRUE(joined.source.words.starts_with("collectives imported from run.txt (2026-11-20)"));
  EXPECT_NE(joined.source.words.find("; for the rest " + fit.source.words), std::string::npos)
      << joined.source.words;
}

TEST_F(CostBasisTest, ADocumentThatIsLeftOutLeavesTheFitOfTheOthers) {
  const auto without = [](const std::string& document) {
    CalibrationChoice choice = read_calibration_choice({});
    choice.leave_out_source = true;
    return cost_basis(preset_cluster("dgx-h100-80gb"), framework_by_name("megatron-lm"), choice,
                      "mine.json", document);
  };
  const CostBasis whole = without("");
  EXPECT_EQ(whole.source.name, kFit);
  EXPECT_EQ(without("github:nobody/knows").source.name, kFit);
  for (const std::string document : {"github:NVIDIA/NeMo", "github:NVIDIA/dgxc-benchmarking"}) {
    ASSERT_TRUE(has_runs_of(*whole.fitted, document));
    const CostBasis fold = without(document);
    ASSERT_TRUE(fold.fitted);
    EXPECT_FALSE(has_runs_of(*fold.fitted, document));
    EXPECT_GT(fold.fitted->runs, 0);
    EXPECT_LT(fold.fitted->runs, whole.fitted->runs);
    EXPECT_NE(fold.fitted->values, whole.fitted->values);
    EXPECT_FALSE(fold.fitted->of_same_people);
    EXPECT_TRUE(fold.source.name.starts_with(kFit + "--without--")) << fold.source.name;
    EXPECT_NE(fold.source.words.find("published runs"), std::string::npos) << fold.source.words;
  }
}

/// A document that is known has the fit's own numbers, if its runs count.
TEST_F(CostBasisTest, AFitIsOfTheSamePeopleAsItsDocuments) {
  const auto of = [](const std::string& document) {
    return *cost_basis(preset_cluster("dgx-h100-80gb"), framework_by_name("megatron-lm"),
                       read_calibration_choice({}), "mine.json", document)
                .fitted;
  };
  EXPECT_TRUE(of("github:NVIDIA/NeMo").of_same_people);
  EXPECT_FALSE(of("github:nobody/knows").of_same_people);
  EXPECT_EQ(of("github:nobody/knows").values, of("").values);
  EXPECT_NE(of("github:NVIDIA/NeMo").values, of("").values);
}

TEST_F(CostBasisTest, TheRestCanBeNamedBeforeOrAfter) {
  EXPECT_EQ(basis({points_, kFit}).fitted, basis({points_}).fitted);
  EXPECT_EQ(basis({kFit, points_}).source.words, basis({points_, kFit}).source.words);
  EXPECT_EQ(basis({points_, fit_}).fitted, basis({fit_}).fitted);
  const CostBasis typical = basis({points_, "typical"});
  ASSERT_TRUE(typical.fitted);
  EXPECT_EQ(typical.fitted->runs, 0);
  const CostBasis none = basis({points_, "none"});
  EXPECT_FALSE(none.fitted);
  EXPECT_EQ(none.source.rest_digest, "");
  EXPECT_EQ(none.source.name, points_);
  EXPECT_TRUE(none.source.words.ends_with("; for the rest efficiency of the cluster file"))
      << none.source.words;
  EXPECT_EQ(none.cluster, preset_cluster("dgx-h100-80gb"));
  // No fit for the framework: what is typical.
  EXPECT_EQ(basis({points_}, "deepspeed-zero3-2021").fitted->runs, 0);
}

TEST_F(CostBasisTest, AFitInTheMeasuredFileCountsUnlessAnotherIsNamed) {
  const CostBasis both = basis({both_});
  EXPECT_EQ(both.measured, imported());
  FittedCalibration own = own_fit();
  own.of_same_people = true;  // a file has the user's runs
  EXPECT_EQ(both.fitted, own);
  EXPECT_FALSE(basis({}).fitted->of_same_people);
  EXPECT_NE(basis({}).fitted->values, own.values);  // of other people: drawn towards typical rates
  EXPECT_EQ(both.source.name, both_);
  EXPECT_EQ(both.source.rest_digest, "");  // one file
  EXPECT_EQ(basis({both_, "typical"}).fitted->runs, 0);
  EXPECT_THROW(basis({both_}, "pytorch-fsdp"), InputError);
  EXPECT_GT(basis({both_, "built-in"}, "pytorch-fsdp").fitted->runs, 0);
}

TEST_F(CostBasisTest, TwoOfOneSortAreRefused) {
  EXPECT_THROW(read_calibration_choice({points_, both_}), UsageError);
  EXPECT_THROW(read_calibration_choice({"typical", "none"}), UsageError);
  EXPECT_THROW(read_calibration_choice({kFit, fit_}), UsageError);
  EXPECT_THROW(read_calibration_choice({points_, "nowhere.json"}), InputError);
  EXPECT_THROW(basis({points_}, "megatron-lm", "dgx-a100-80gb"), InputError);
}

TEST_F(CostBasisTest, OnlyWhatWasMeasuredChangesAndTheIntervalGetsNarrower) {
  Job job = parse_job(*find_preset(job_presets(), "gpt3-1.3b"), "gpt3-1.3b");
  job.global_batch = 8;
  job.precision = DType::bf16;
  job.vocab = padded_vocabulary(job.vocab, framework_by_name("megatron-lm"), 8);
  const auto predicted = [&](const CostBasis& with, const char* text, std::int64_t devices) {
    const CostModel costs(with.cluster, with.measured, with.framework, with.fitted);
    return evaluate(Target(job, costs, devices), parse_strategy(text)).prediction;
  };
  const auto share = [](const Prediction& prediction, Provenance label) {
    return prediction.share_by_provenance[std::size_t(label)];
  };
  const CostBasis fit = basis({}), joined = basis({points_});
  const Prediction before = predicted(fit, "mp=8", 8), after = predicted(joined, "mp=8", 8);
  EXPECT_GT(after.breakdown.exposed_communication, 2 * before.breakdown.exposed_communication);
  EXPECT_EQ(share(before, Provenance::typical), 0);
  EXPECT_GT(share(before, Provenance::fitted), 0.3);
  EXPECT_GT(share(after, Provenance::interpolated), 0.3);  // imported points
  EXPECT_EQ(after.breakdown.optimizer, before.breakdown.optimizer);
  EXPECT_LT(after.step_time_high / after.step_time, before.step_time_high / before.step_time);
  EXPECT_GT(after.step_time_low / after.step_time, before.step_time_low / before.step_time);
  // Nothing that was measured is in it.
  const Prediction alone = predicted(fit, "mp=1", 1), same = predicted(joined, "mp=1", 1);
  EXPECT_EQ(same.step_time, alone.step_time);
  EXPECT_EQ(same.step_time_high, alone.step_time_high);
  EXPECT_EQ(same.share_by_provenance, alone.share_by_provenance);
}

TEST_F(CostBasisTest, RunsOfAUsersFitAreNotCalledPublished) {
  EXPECT_NE(basis({kFit}).source.words.find(" published runs on "), std::string::npos);
  EXPECT_FALSE(basis({kFit}).fitted->of_same_people);
  EXPECT_TRUE(basis({fit_}).fitted->of_same_people);
  const std::string own = basis({fit_}).source.words;
  EXPECT_NE(own.find(" runs on "), std::string::npos) << own;
  EXPECT_EQ(own.find("published"), std::string::npos) << own;
}

TEST_F(CostBasisTest, ADeviceWithoutFlashAttentionKeepsScores) {
  for (const char* cluster : {"dgx1-v100-32gb", "g4dn-t4"}) {
    const CostBasis old = basis({}, "megatron-lm", cluster);
    EXPECT_FALSE(old.framework.kernels.attention.flash) << cluster;
    EXPECT_NE(old.source.words.find(old.cluster.device.name + " has no flash attention"),
              std::string::npos)
        << old.source.words;
  }
  const CostBasis plain = basis({}, "megatron-lm-2022", "dgx1-v100-32gb");
  EXPECT_EQ(plain.source.words.find("flash"), std::string::npos) << "it has none on any device";
  const CostBasis newer = basis({}, "megatron-lm", "dgx-a100-80gb");
  EXPECT_TRUE(newer.framework.kernels.attention.flash);
  EXPECT_EQ(newer.source.words.find("flash"), std::string::npos);
}

TEST_F(CostBasisTest, ADeviceDecidesWhetherEightBitsAreTransposed) {
  for (const char* cluster : {"gb200-nvl72", "hgx-b300"})
    EXPECT_TRUE(basis({}, "megatron-lm", cluster).framework.kernels.products.untransposed_fp8)
        << cluster;
  EXPECT_FALSE(
      basis({}, "megatron-lm", "dgx-h100-80gb").framework.kernels.products.untransposed_fp8);
  EXPECT_FALSE(basis({}, "bundled-cuda", "hgx-b300").framework.kernels.products.untransposed_fp8)
      << "no 8 bits";
}

TEST_F(CostBasisTest, ProductsInTf32HaveTheirRateWhereTheDeviceCan) {
  const auto rate = [](const char* cluster, bool tf32) {
    Framework framework = framework_by_name("megatron-lm-2021");
    framework.kernels.products.tf32 = tf32;
    return cost_basis(parse_cluster(*find_preset(cluster_presets(), cluster), cluster), framework,
                      {}, cluster)
        .cluster.device.peak_fp32;
  };
  EXPECT_EQ(rate("dgx-a100-80gb", true), FlopsPerSecond(156e12));
  EXPECT_EQ(rate("dgx-a100-80gb", false), FlopsPerSecond(19.5e12));
  EXPECT_EQ(rate("dgx1-v100-32gb", true), FlopsPerSecond(15.7e12)) << "a V100 has no TF32";
}

}  // namespace
}  // namespace plimsoll
