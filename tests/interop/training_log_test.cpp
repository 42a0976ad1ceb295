// Logs of trainers have the numbers that were read by hand, or are refused with a reason.
//
// PLIMSOLL_LOGS names a folder with further excerpts, each with its expected numbers beside it;
// PLIMSOLL_LOG_CHANGES says how many damaged logs are read.
#include "interop/logs/training_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "interop/logs/log_lines.h"
#include "interop/logs/log_table.h"
#include "tests/interop/changed_text.h"

namespace plimsoll {
namespace {

std::vector<std::filesystem::path> expectations() {
  std::vector<std::filesystem::path> folders = {std::filesystem::path(PLIMSOLL_SOURCE_DIR) /
                                                "tests/interop/logs"};
  if (const char* more = std::getenv("PLIMSOLL_LOGS")) folders.emplace_back(more);
  std::vector<std::filesystem::path> paths;
  for (const auto& folder : folders) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      const bool other = entry.path().string().find("nccl-tests") != std::string::npos;
      if (entry.path().extension() == ".json" && !other) paths.push_back(entry.path());
    }
  }
  std::ranges::sort(paths);
  return paths;
}

TrainingLog log_of(const std::string& text) {
  std::istringstream stream(text);
  return read_training_log(stream, "train.log");
}

std::string log_refusal(const std::string& text) {
  try {
    log_of(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

bool has_doubt(const TrainingLog& log, const std::string& piece) {
  return std::ranges::any_of(
      log.doubts, [&](const std::string& doubt) { return doubt.find(piece) != doubt.npos; });
}

double median(const TrainingLog& log) { return log.steady ? log.steady->median.value() : 0; }

double value(const TrainingLog& log, LogQuantity quantity) {
  return log.medians[std::size_t(quantity)].value_or(0);
}

/// Numbers that are told otherwise than by hand: no time is printed there, so that it is told by a
/// clock or the batch, or a sum of the whole run was counted among the steps.
const std::set<std::pair<std::string, std::string>> kOtherwise = {
    {"03-chat-step3-rlhf-e2e", "steps_with_time"},          // the first time is of no step here
    {"06-aurora-fwd-bwd-breakdown", "median_step_time_s"},  // by time stamps
    {"05-ezpz-llama-aurora-dicts", "tokens_per_s"},         // by hand with the run's mean
};

void compare(const std::string& name, const Json& expected, const TrainingLog& log) {
  const auto near = [&](const std::string& key, double read, bool rate = false) {
    if (!expected.contains(key) || expected[key].is_null() || kOtherwise.contains({name, key}))
      return;
    const double hand = expected[key];
    // Rates by hand have the outliers in them.
    EXPECT_NEAR(read, hand, (rate ? 5e-3 : 1e-3) * std::abs(hand)) << name << " " << key;
  };
  std::int64_t timed = 0, outliers = 0;
  for (const LogStep& step : log.steps) timed += step.value(LogQuantity::time).has_value();
  if (log.steady) {
    outliers = std::ranges::count_if(log.steady->left_out, [](const LeftOutStep& out) {
      return out.reason != LeftOutReason::first;
    });
  }
  near("steps_read", double(log.distinct_steps));
  near("first_step", double(log.steps.front().number));
  near("last_step", double(log.steps.back().number));
  near("steps_with_time", double(timed));
  near("median_step_time_s", median(log));
  near("dropped_as_outliers", double(outliers));
  near("tflops", value(log, LogQuantity::device_flops) / 1e12, true);
  near("samples_per_s_median", value(log, LogQuantity::samples_per_second));
  const std::string rate = expected.value("tokens_per_s_is", "");
  const bool total = rate.find("total") != rate.npos || rate.find("global") != rate.npos;
  near("tokens_per_s",
       value(log, total ? LogQuantity::tokens_per_second : LogQuantity::device_tokens_per_second),
       true);
  if (expected.contains("memory_as_printed")) {
    EXPECT_EQ(log.memory.size(), expected["memory_as_printed"]["lines"].get<std::size_t>()) << name;
  }
  if (expected["median_step_time_s"].is_null() &&
      !kOtherwise.contains({name, "median_step_time_s"})) {
    EXPECT_FALSE(log.steady) << name;
    EXPECT_TRUE(has_doubt(log, "no time")) << name;
  }
  const Json arguments = expected.value("arguments", Json::object());
  for (const auto& [key, text] : arguments.items()) {
    const auto found = log.arguments.find(key);
    EXPECT_EQ(found == log.arguments.end() ? "" : found->second.value, text.get<std::string>())
        << name << " " << key;
  }
}

TEST(TrainingLog, ExcerptsHaveTheNumbersReadByHand) {
  const auto paths = expectations();
  ASSERT_GE(paths.size(), 15U);
  for (std::filesystem::path path : paths) {
    const Json expected = read_json(path)["expected"];
    compare(path.stem().string(), expected, read_training_log(path.replace_extension(".log")));
  }
}

const std::string kStep =
    " iteration 2/ 9 | elapsed time per iteration (ms): 1250.0 | lm loss: 2.5E+00 |\n";

TEST(TrainingLog, MemoryIsInTheUnitOfItsTrainer) {
  const auto peak = [](const std::string& text) { return log_of(text).memory.at(0).bytes[1]; };
  EXPECT_EQ(
      peak(kStep +
           "[Rank 3] (after 1 iterations) memory (MB) | allocated: 1.0 | max allocated: 2.0 |"),
      2.0 * 1024 * 1024);
  EXPECT_EQ(peak(kStep + "[Rank 3] memory (GB) | mem-max-allocated-gigabytes: 2.5 | x"), 2.5e9);
  EXPECT_EQ(peak(kStep + "MemAllocated=3.7GB, MaxMemAllocated=0.5GB"), 0.5 * 1024 * 1024 * 1024);
  const TrainingLog two = log_of(kStep +
                                 "[Rank 7] m | allocated: 1.0 | max allocated: 2.0[Rank 6] m "
                                 "| allocated: 3.0 | max allocated: 4.0\n");
  ASSERT_EQ(two.memory.size(), 2U);
  EXPECT_EQ(two.memory[0].rank, 7);
  EXPECT_EQ(two.memory[1].rank, 6);
}

TEST(TrainingLog, UnitsThatNobodyStatesAreNotRead) {
  const TrainingLog log = log_of(
      "iteration 1/9 | consumed samples: 8 | elapsed time per iteration: 3.5 | lm loss: 2.5 |\n"
      "iteration 2/9 | consumed samples: 16 | elapsed time per iteration: 3.4 | lm loss: 2.4 |\n");
  EXPECT_EQ(log.distinct_steps, 2);
  EXPECT_FALSE(log.steady);
  EXPECT_TRUE(has_doubt(log, "line 1: the unit of '3.5'"));
  const TrainingLog stated =
      log_of("iteration 1/9 | consumed samples: 8 | elapsed time per iteration (us): 3500 | x\n");
  EXPECT_NEAR(median(stated), 3.5e-3, 1e-9);
  EXPECT_NEAR(median(log_of("iteration 1/9 | elapsed time per iteration (s): 346.67 |")), 346.67,
              1e-9);
}

TEST(TrainingLog, DisturbedStepsAreLeftOutWithTheirReason) {
  std::string text;
  for (int step = 1; step <= 12; ++step) {
    if (step == 5) text += "validation loss at iteration 4 | lm loss value: 2.0 |\n";
    if (step == 7) text += "saving checkpoint at iteration 6 to ckpt\n";
    const int time = step == 1   ? 9000
                     : step == 5 ? 2300
                     : step == 7 ? 2400
                     : step == 9 ? 2500
                                 : 1000 + step;
    text += " iteration " + std::to_string(step) +
            "/ 99 | elapsed time per iteration (ms): " + std::to_string(time) +
            ".0 | number of skipped iterations: " + (step == 3 ? "1" : "0") + " |\n";
  }
  const TrainingLog log = log_of(text);
  std::vector<std::pair<std::int64_t, LeftOutReason>> out;
  for (const LeftOutStep& step : log.steady->left_out) out.emplace_back(step.number, step.reason);
  EXPECT_EQ(out,
            (std::vector<std::pair<std::int64_t, LeftOutReason>>{{1, LeftOutReason::first},
                                                                 {3, LeftOutReason::skipped},
                                                                 {5, LeftOutReason::evaluation},
                                                                 {7, LeftOutReason::checkpoint},
                                                                 {9, LeftOutReason::outlier}}));
  EXPECT_EQ(log.steady->steps, 7);
  EXPECT_NEAR(median(log), 1.008, 1e-9);
}

TEST(TrainingLog, EvaluationsAreNoSteps) {
  const TrainingLog log = log_of(
      "step: 10 loss: 3.4 memory: 40.5GiB(51.2%) tps: 6,785 tflops: 300.5 mfu: 39.73%\n"
      "validate step: 15 loss: 3.2 memory: 30.5GiB(38.2%) tps: 26,785\n"
      "step: 20 loss: 3.3 memory: 40.5GiB(51.2%) tps: 6,790 tflops: 300.9 mfu: 39.73%\n");
  EXPECT_EQ(log.distinct_steps, 2);
  EXPECT_TRUE(log.steps[1].evaluated);
}

TEST(TrainingLog, RanksRepeatStepsAndRunsBeginAgain) {
  std::string text;
  for (const char* rank : {"0: ", "[rank1]: ", "\x1b[36m"}) {
    text += std::string(rank) + "step: 10 \x1b[32mloss: 3.4 tps: 6,785 mfu: 39.73%\n";
  }
  text +=
      "[36mstep: 20 loss: 3.3 tps: 4.71K mfu: 39%\n0: step:  5 loss: 9.9  tps: 5,000  mfu: 1%\n";
  const TrainingLog log = log_of(text);
  EXPECT_EQ(log.trainer, "torchtitan");
  EXPECT_EQ(log.distinct_steps, 3);
  EXPECT_EQ(log.repeats, 2);
  EXPECT_EQ(log.run_begins, (std::vector<std::size_t>{0, 2}));
  EXPECT_TRUE(has_doubt(log, "2 runs are joined: the numbers of steps go back in line 5"));
  EXPECT_NEAR(*log.steps[1].value(LogQuantity::device_tokens_per_second), 4710, 1e-6);
}

TEST(TrainingLog, ProgressBarsOfEvaluationsAreLeftOut) {
  std::string text = "Map: 100%|##| 900/900 [00:01<00:00, 800.0 examples/s]\n";
  for (int step = 1; step <= 6; ++step) {
    text += "\r  1%|#  | " + std::to_string(step) + "/440 [00:" + std::to_string(10 + 4 * step) +
            "<2:43:37, 4.50s/it]\r      \r{'loss': 2.5, 'learning_rate': 1e-4, 'epoch': 0.0}\n";
    if (step == 3)
      text += "\r 50%|#  | 1/2 [00:07<00:07, 7.0s/it]\r100%|##| 2/2 [00:14<00:00, 7.0s/it]";
  }
  const TrainingLog log = log_of(text);
  EXPECT_EQ(log.distinct_steps, 6);
  EXPECT_EQ(log.steady->basis, LogTimeBasis::smoothed);
  EXPECT_NEAR(median(log), 4.5, 1e-9);
  ASSERT_TRUE(log.by_clock);
  EXPECT_NEAR(log.by_clock->median.value(), 4.0, 1e-9);
  EXPECT_TRUE(has_doubt(log, "2 states of progress bars"));
  EXPECT_TRUE(has_doubt(log, "4.5 s a step as printed, but 4 s by the clock"));
}

TEST(TrainingLog, TablesAndTrainerStates) {
  const TrainingLog csv = log_of(
      "\"Step\",\"run - train_step_timing in s\",\"run - train_step_timing in s__MIN\"\n"
      "\"0\",\"9.5\",\"1\"\n\"1\",\"2.5\",\"1\"\n\"2\",\"2.7\",\"1\"\n");
  EXPECT_EQ(csv.distinct_steps, 3);
  EXPECT_NEAR(median(csv), 2.6, 1e-9);
  const TrainingLog state = log_of(
      R"({"global_step": 20, "log_history": [{"step": 10, "loss": 2.5, "grad_norm": NaN},
          {"step": 20, "loss": 2.25}, {"step": 20, "train_runtime": 50.0, "train_steps_per_second": 0.4}]})");
  EXPECT_EQ(state.distinct_steps, 2);
  EXPECT_FALSE(state.steady);
  EXPECT_EQ(state.mean_step, Seconds(2.5));
  EXPECT_TRUE(has_doubt(state, "only that of the whole run"));
}

TEST(TrainingLog, TimesFollowFromClocksOrThroughput) {
  std::string stamped;
  for (int step = 10; step <= 50; step += 10) {
    stamped += "[2023-04-18 01:47:" + std::to_string(step / 2 + 10) +
               ",500] [INFO] step=" + std::to_string(step) +
               ", skipped=6, lr=[9.6e-06], mom=[(0.9, 0.95)]\n";
  }
  const TrainingLog clock = log_of(stamped);
  EXPECT_EQ(clock.steady->basis, LogTimeBasis::time_stamps);
  EXPECT_NEAR(median(clock), 0.5, 1e-6);
  const TrainingLog rate = log_of(
      "  Total train batch size (w. parallel, distributed & accumulation) = 64\n"
      "epoch=0/micro_step=1/global_step=1, RunningAvgSamplesPerSec=8.0, CurrSamplesPerSec=8.0, x\n"
      "epoch=0/micro_step=2/global_step=2, RunningAvgSamplesPerSec=8.0, CurrSamplesPerSec=16.0, x\n");
  EXPECT_EQ(rate.steady->basis, LogTimeBasis::throughput);
  EXPECT_NEAR(median(rate), 4, 1e-9);
}

TEST(TrainingLog, LinesOfOtherTrainers) {
  const TrainingLog bridge = log_of(
      "Step Time : 125.37s GPU utilization: 20.9MODEL_TFLOP/s/GPU\n"
      "Step Time : 2.26s GPU utilization: 1156.2MODEL_TFLOP/s/GPU\n");
  EXPECT_EQ(bridge.distinct_steps, 2);
  EXPECT_NEAR(median(bridge), 2.26, 1e-9);
  EXPECT_NEAR(value(bridge, LogQuantity::device_flops), 1156.2e12, 1e6);
  const TrainingLog ahead =
      log_of("Step Time : 1.25s GPU utilization: 20.9MODEL_TFLOP/s/GPU\n" + kStep);
  EXPECT_EQ(ahead.trainer, "Megatron-LM");
  EXPECT_NEAR(value(ahead, LogQuantity::device_flops), 20.9e12, 1e6);
  const TrainingLog nemo = log_of(
      "Training epoch 0, iteration 0/249 | lr: 1.9e-06 | global_batch_size: 8 | global_step: 0 | "
      "reduced_train_loss: 1.3 | train_step_timing in s: 7.126\n"
      "Training epoch 0, iteration 1/249 | lr: 3.9e-06 | global_batch_size: 8 | global_step: 1 | "
      "reduced_train_loss: 1.6 | train_step_timing in s: 2.505 | consumed_samples: 16\n");
  EXPECT_EQ(nemo.trainer, "NeMo");
  EXPECT_NEAR(median(nemo), 2.505, 1e-9);
  EXPECT_EQ(value(nemo, LogQuantity::samples), 8);
  const TrainingLog paddle = log_of(
      "[    INFO] - loss: 12.06, learning_rate: 2e-06, global_step: 5, max_memory_allocated: 7.5, "
      "interval_runtime: 9.0, interval_tokens_per_second_per_device: 889.0\n"
      "[    INFO] - loss: 12.05, learning_rate: 3e-06, global_step: 10, max_memory_allocated: 12.5, "
      "interval_runtime: 1.25, interval_tokens_per_second_per_device: 4006.9\n");
  EXPECT_EQ(paddle.trainer, "PaddleNLP");
  EXPECT_NEAR(median(paddle), 0.25, 1e-9);
  EXPECT_EQ(paddle.memory.at(1).bytes[1], 12.5 * 1024 * 1024 * 1024);
}

TEST(TrainingLog, OlderLinesOfTrainers) {
  const TrainingLog nano = log_of(
      "step 0: train loss 4.2874, val loss 4.2823\niter 0: loss 4.2664, time 8190.67ms, mfu -1%\n"
      "iter 10: loss 3.2340, time 32.5ms, mfu 11.51%\n");
  EXPECT_EQ(nano.distinct_steps, 2);
  EXPECT_NEAR(median(nano), 0.0325, 1e-9);
  const TrainingLog deepspeed = log_of(
      "[2022-03-02 21:46:07,210] 0/10, RunningAvgSamplesPerSec=20.5, CurrSamplesPerSec=19.1, x\n"
      "[2022-03-02 21:46:17,210] 0/20, RunningAvgSamplesPerSec=20.5, CurrSamplesPerSec=20.1, x\n");
  EXPECT_EQ(deepspeed.steps.back().number, 20);
  EXPECT_TRUE(has_doubt(deepspeed, "micro-batches"));
  const TrainingLog paddle = log_of(
      "global step 1, epoch: 0, batch: 0, loss: 11.06, speed: 1.62 step/s, ips: 13247 tokens/s\n"
      "global step 2, epoch: 0, batch: 1, loss: 11.05, speed: 4.00 step/s, ips: 38897 tokens/s\n");
  EXPECT_NEAR(median(paddle), 0.25, 1e-9);
}

/// PaddleNLP of 2022 divided the samples of one step by the time of ten.
TEST(TrainingLog, RatesThatContradictTheTimeAreDoubted) {
  std::string text = "  Total train batch size (w. parallel, distributed & accumulation) = 8\n";
  for (int step = 10; step <= 40; step += 10) {
    text += "loss: 3.25806541, global_step: " + std::to_string(step) +
            ", interval_runtime: 2.0, interval_samples_per_second: 4.0\n";
  }
  const TrainingLog log = log_of(text);
  EXPECT_NEAR(median(log), 0.2, 1e-9);
  EXPECT_TRUE(has_doubt(log, "4 samples/s are printed, but the batch over the time is 40"));
}

TEST(TrainingLog, StatesOfBarsThatAreJoinedAreApart) {
  const TrainingLog nemo = log_of(
      "Epoch 0: :   1%|#| 9/99 [01:12<9:01, v_num=0, global_step=8.000, train_step_timing in s=6.50]"
      "Epoch 0: :   1%|#| 10/99 [01:18<9:00, v_num=0, global_step=9.000, train_step_timing in s=6.25]"
      "Validation: 100%|#| 1/1 [00:01<00:00, 1.00s/it]"
      "Epoch 0: :   1%|#| 11/99 [01:24<8:59, global_step=10.00, train_step_timing in s=6.25]\n");
  EXPECT_EQ(nemo.trainer, "NeMo");
  EXPECT_EQ(nemo.distinct_steps, 3);
  EXPECT_NEAR(median(nemo), 6.25, 1e-9);
}

TEST(TrainingLog, ValuesAndMeansThatASlashDivides) {
  const TrainingLog log = log_of(
      "iteration 5/ 9 | elapsed time per iteration (ms): 5890.5/5901.2 | throughput per GPU "
      "(TFLOP/s/GPU): 580.5/578.3 | tokens per GPU (tokens/s/GPU): 1390.5/1387.5 |\n");
  EXPECT_NEAR(median(log), 5.8905, 1e-9);
  EXPECT_NEAR(value(log, LogQuantity::device_flops), 580.5e12, 1e6);
  EXPECT_EQ(value(log, LogQuantity::device_tokens_per_second), 1390.5);
}

TEST(TrainingLog, TimersOfBothLevels) {
  const TrainingLog log = log_of(
      kStep +
      "time (ms) | fwd: 715.40 | bwd: 2402.86 | step: 160.79\ntime (ms) | fwd: 715.60 | bwd: 2400.0\n"
      "(min, max) time across ranks (ms):\n    forward-backward ...........: (3198.27, 3199.53)\n");
  ASSERT_EQ(log.timers.size(), 4U);
  EXPECT_EQ(log.timers[1].name, "forward-backward");
  EXPECT_NEAR(log.timers[1].median.value(), 3.19953, 1e-9);
  EXPECT_NEAR(log.timers[2].median.value(), 0.7155, 1e-9);
  EXPECT_EQ(log.timers[2].count, 2);
}

TEST(TrainingLog, FilesWithoutStepsAreRefused) {
  EXPECT_NE(log_refusal("validation loss at iteration 9 | lm loss value: 2.0\n")
                .find("no line is a step"),
            std::string::npos);
  EXPECT_NE(log_refusal("\x1f\x8b\x08").find("compressed"), std::string::npos);
  EXPECT_NE(log_refusal("").find("train.log"), std::string::npos);
  EXPECT_THROW(read_training_log(std::filesystem::path("/nowhere/x.log")), InputError);
}

TEST(TrainingLog, LongLinesAndManyStepsTakeBoundedMemory) {
  const TrainingLog cut = log_of(std::string(5 << 20, 'x') + "\n" + kStep);
  EXPECT_EQ(cut.steps.at(0).line, 2);
  EXPECT_TRUE(has_doubt(cut, "1 lines are longer than 256 KiB"));
  std::string text;
  for (int step = 1; step <= 70'000; ++step) {
    text += "iteration " + std::to_string(step) + "/ 1 | elapsed time per iteration (ms): 50.0 |\n";
  }
  const TrainingLog many = log_of(text);
  EXPECT_EQ(many.distinct_steps, 70'000);
  EXPECT_LT(many.steps.size(), 66'000U);
  EXPECT_NEAR(median(many), 0.05, 1e-9);
}

/// However often a label stands in a line, twice as many take twice the work.
TEST(TrainingLog, WorkGrowsWithTheLabelsOfALine) {
  const auto work = [](const std::string& label, int times) {
    std::string line;
    for (int i = 0; i < times; ++i) line += label + " 1 step: 2 tps: (3 [";
    LogLines lines;
    lines.read(line, 1);
    return lines.values_sought();
  };
  for (const std::string& label : log_table().labels) {
    EXPECT_LE(work(label, 400), 2 * work(label, 200) + 100) << label;
  }
}

TEST(TrainingLog, DamagedLogsAreReadOrRefused) {
  std::vector<std::string> texts;
  for (std::filesystem::path path : expectations()) {
    texts.push_back(read_file(path.replace_extension(".log")).substr(0, 6'000));
  }
  const std::array<const char*, 12> pieces = {"\r",     "\n",    "\"",  "[36m",
                                              "\x1b",   "1e300", "nan", ": ",
                                              "[Rank ", "%|",    "(",   "{\"log_history\": [{"};
  const char* given = std::getenv("PLIMSOLL_LOG_CHANGES");
  const int count = given == nullptr ? 2'000 : std::atoi(given);
  Random random(55);
  for (int i = 0; i < count; ++i) {
    const std::string text = damaged(random, texts[random() % texts.size()], pieces);
    try {
      const TrainingLog log = log_of(text);
      ASSERT_FALSE(log.steps.empty());
      if (log.steady) {
        ASSERT_GT(log.steady->median.value(), 0) << text;
        ASSERT_LT(log.steady->median.value(), 1e9) << text;
        ASSERT_GE(log.steady->steps, 1);
      }
    } catch (const InputError& error) {
      ASSERT_EQ(error.file(), "train.log");
    }
  }
}

}  // namespace
}  // namespace plimsoll
