// Examples of several lengths: how they fill sequences, what they cost, and what is refused.
#include "models/job/examples.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <vector>

#include "base/error.h"
#include "models/job/causal_flops.h"

namespace plimsoll {
namespace {

Job llama() {
  return read_job(std::filesystem::path(PLIMSOLL_SOURCE_DIR) / "tests/llama-nano.json");
}
Job with_lengths(std::vector<LengthShare> lengths, Packing packing = Packing::packed) {
  Job job = llama();
  job.lengths = std::move(lengths);
  job.packing = packing;
  return job;
}

struct Placed {
  std::int64_t sequence, begin, tokens;
};
std::vector<Placed> placed(const Job& job, std::int64_t step, std::int64_t sequences) {
  std::vector<Placed> all;
  ExampleRows(job).each(step, sequences, [&](std::int64_t at, std::int64_t begin, auto tokens) {
    all.push_back({at, begin, tokens});
  });
  return all;
}

const std::vector<LengthShare> kLengths = {{1, 1}, {5, 2}, {12, 1}, {100, 1}};

TEST(Examples, FillSequencesInOrder) {
  const Job job = with_lengths(kLengths);
  const std::vector<Placed> all = placed(job, 3, 50);
  std::int64_t sequence = 0, end = 0;
  for (const Placed& one : all) {
    if (one.sequence == sequence) {
      EXPECT_EQ(one.begin, end);
    } else {  // it did not fit behind the one before
      EXPECT_EQ(one.sequence, sequence + 1);
      EXPECT_EQ(one.begin, 0);
      EXPECT_GT(end + one.tokens, job.sequence);
    }
    sequence = one.sequence;
    end = one.begin + one.tokens;
    EXPECT_LE(end, job.sequence);  // the longest are cut
  }
  EXPECT_EQ(sequence, 49);
}

// Examples come in one order, however they are packed and however many sequences are asked for.
// Another step has others.
TEST(Examples, DependOnTheirNumberAlone) {
  const std::vector<Placed> packed = placed(with_lengths(kLengths), 3, 50);
  const std::vector<Placed> padded =
      placed(with_lengths(kLengths, Packing::padded), 3, std::int64_t(packed.size()));
  const std::vector<Placed> other =
      placed(with_lengths(kLengths, Packing::padded), 4, std::int64_t(packed.size()));
  ASSERT_EQ(padded.size(), packed.size());
  std::size_t differ = 0;
  for (std::size_t i = 0; i < packed.size(); ++i) {
    EXPECT_EQ(padded[i].tokens, packed[i].tokens);
    EXPECT_EQ(padded[i].sequence, std::int64_t(i));
    differ += other[i].tokens != packed[i].tokens;
  }
  EXPECT_GT(differ, packed.size() / 4);
}

TEST(Examples, HaveTheStatedShares) {
  std::map<std::int64_t, double> counts;
  constexpr std::int64_t kCount = 20'000;
  for (const Placed& one : placed(with_lengths(kLengths, Packing::padded), 0, kCount))
    ++counts[one.tokens];
  EXPECT_EQ(counts.size(), 4u);
  // Within five standard deviations of a binomial distribution.
  const double within = 5 * std::sqrt(0.4 * 0.6 / double(kCount));
  EXPECT_NEAR(counts[1] / kCount, 0.2, within);
  EXPECT_NEAR(counts[5] / kCount, 0.4, within);
  EXPECT_NEAR(counts[12] / kCount, 0.2, within);
  EXPECT_NEAR(counts[32] / kCount, 0.2, within);
}

// Four of 8 tokens in 32, or one: by hand 36 of 528 scores each.
TEST(Examples, HaveTheirShareOfTokensAndScores) {
  const AttentionParams whole{.sequence = 32}, window{.sequence = 32, .window = 3};
  const Job packed = with_lengths({{8, 1}}), padded = with_lengths({{8, 1}}, Packing::padded);
  EXPECT_DOUBLE_EQ(share_of_tokens(packed), 1);
  EXPECT_DOUBLE_EQ(share_of_tokens(padded), 0.25);
  EXPECT_DOUBLE_EQ(share_of_scores(packed, whole), 4 * 36.0 / 528);
  EXPECT_DOUBLE_EQ(share_of_scores(padded, whole), 36.0 / 528);
  EXPECT_DOUBLE_EQ(share_of_scores(packed, window), 4.0 * (1 + 2 + 6 * 3) / (1 + 2 + 30 * 3));
  EXPECT_EQ(tokens_per_step(padded), 16 * 8);
  EXPECT_EQ(tokens_per_step(llama()), 16 * 32);
}

TEST(Examples, LeaveOutFlops) {
  const Job whole = llama(), packed = with_lengths({{8, 1}}),
            padded = with_lengths({{8, 1}}, Packing::padded);
  const double attention = 2 * masked_flops_per_sequence(whole).value();
  const double all = forward_matmul_flops_per_sequence(whole).value();
  EXPECT_NEAR(forward_matmul_flops_per_sequence(packed).value(),
              all - attention * (1 - 4 * 36.0 / 528), 1e-9 * all);
  EXPECT_NEAR(forward_matmul_flops_per_sequence(padded).value(),
              (all - attention) / 4 + attention * 36 / 528, 1e-9 * all);
}

// Two replicas with one sequence each, of 4 or 16 tokens: 10 or 136 scores. The slower one has 136
// in three of four steps; the mean is 73.
TEST(Examples, MakeOneRankTheSlowest) {
  Job job = with_lengths({{4, 1}, {16, 1}}, Packing::padded);
  job.global_batch = 2;
  const SlowestRank two = slowest_rank(job, {.replicas = 2});
  EXPECT_NEAR(two.mean, (0.25 * 10 + 0.75 * 136) / 73, 0.1);
  EXPECT_NEAR(two.deviation, std::sqrt(0.25 * 0.75) * (136 - 10) / 73, 0.15);
  const SlowestRank one = slowest_rank(job, {});
  EXPECT_DOUBLE_EQ(one.mean, 1);
  EXPECT_NEAR(one.deviation, std::sqrt(0.5) * (136 - 10) / 2 / 73, 0.1);
  EXPECT_DOUBLE_EQ(slowest_rank(llama(), {.replicas = 2}).mean, 1);
  job.lengths = {{7, 1}};
  EXPECT_DOUBLE_EQ(slowest_rank(job, {.replicas = 2}).mean, 1);
}

// Replicas that wait in each micro-batch wait longer.
TEST(Examples, MakeRanksWait) {
  Job job = with_lengths({{4, 1}, {16, 1}}, Packing::padded);
  const SlowestRank free = slowest_rank(job, {.replicas = 4});
  const SlowestRank waits = slowest_rank(job, {.replicas = 4, .waits = true});
  EXPECT_GT(free.mean, 1.1);
  EXPECT_GT(waits.mean, 1.1 * free.mean);
  EXPECT_LT(waits.mean, 136.0 / 73);
}

// One example of 16 tokens in 32, on two ranks: rank 0 has tokens 0 to 7 and 24 to 31, rank 1 the
// rest. By hand 36 and 100 scores.
TEST(Examples, AreUnequalOnRanksThatShareASequence) {
  const Job job = with_lengths({{16, 1}}, Packing::padded);
  EXPECT_DOUBLE_EQ(slowest_rank(job, {.parts = 2}).mean, 100 / 68.0);
  const Job whole = with_lengths({{32, 1}});
  EXPECT_DOUBLE_EQ(slowest_rank(whole, {.parts = 2}).mean, 1);
}

double scores_of(std::span<const Placed> examples, std::int64_t begin, std::int64_t end) {
  double scores = 0;
  for (const Placed& one : examples)
    if (one.sequence >= begin && one.sequence < end) scores += double(one.tokens * one.tokens);
  return scores;
}

// A balanced step has the sequences of the step that is not, in another order. Any equal parts of
// it have as many scores but for those of one long sequence; parts that are no halves of halves, of
// two.
TEST(Examples, AreBalanced) {
  for (const Packing packing : {Packing::packed, Packing::padded}) {
    Job job = with_lengths({{2, 3}, {5, 2}, {12, 1}, {31, 1}}, packing);
    constexpr std::int64_t kCount = 96;
    const std::vector<Placed> drawn = placed(job, 3, kCount);
    job.balanced = true;
    const std::vector<Placed> ordered = placed(job, 3, kCount);
    ASSERT_EQ(ordered.size(), drawn.size());
    const auto sequences = [](const std::vector<Placed>& all) {
      std::map<std::int64_t, std::vector<std::pair<std::int64_t, std::int64_t>>> of;
      for (const Placed& one : all) of[one.sequence].push_back({one.begin, one.tokens});
      std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> sorted;
      for (const auto& [at, examples] : of) sorted.push_back(examples);
      std::ranges::sort(sorted);
      return sorted;
    };
    EXPECT_EQ(sequences(ordered), sequences(drawn));
    double all_worst = 0, all_drawn = 0;
    for (const std::int64_t parts : {2, 4, 8, 3}) {
      const std::int64_t each = kCount / parts;
      const double mean = scores_of(ordered, 0, kCount) / double(parts);
      double worst = 0, worst_drawn = 0;
      for (std::int64_t i = 0; i < parts; ++i) {
        const auto off = [&](const std::vector<Placed>& all) {
          return std::abs(scores_of(all, i * each, (i + 1) * each) / mean - 1);
        };
        worst = std::max(worst, off(ordered));
        worst_drawn = std::max(worst_drawn, off(drawn));
      }
      EXPECT_LT(worst * mean, (parts == 3 ? 2 : 1) * 31 * 31) << parts;
      all_worst += worst;
      all_drawn += worst_drawn;
    }
    EXPECT_LT(all_worst, 0.7 * all_drawn);
  }
}

// Each rank that shares sequences has a part of each example if it has chunks of equal size there.
TEST(Examples, AreCutIntoPartsOfEqualScores) {
  Job job = with_lengths({{8, 2}, {16, 1}, {32, 1}});
  job.sequence = 64;
  job.global_batch = 16;
  for (const std::int64_t parts : {2, 4, 8}) {
    job.balanced = false;
    EXPECT_GT(slowest_rank(job, {.parts = parts}).mean, 1.05);
    job.balanced = true;
    const bool cut = parts < 8;
    EXPECT_EQ(ExampleRows(job).cuts_examples(parts), cut);
    const double balanced = slowest_rank(job, {.parts = parts}).mean;
    if (cut) {
      EXPECT_NEAR(balanced, 1, 1e-9);
    } else {
      EXPECT_GT(balanced, 1.05);
    }
  }
  EXPECT_FALSE(ExampleRows(job).cuts_examples(1));
  job.dropout = 0.1;
  EXPECT_FALSE(ExampleRows(job).cuts_examples(2));
}

TEST(Examples, AreUnequalAsFarAsTheyCannotBeBalanced) {
  Job job = with_lengths({{4, 1}, {16, 1}}, Packing::padded);
  job.global_batch = 64;
  const double drawn = slowest_rank(job, {.replicas = 4}).mean;
  const double waits = slowest_rank(job, {.replicas = 4, .waits = true}).mean;
  job.balanced = true;
  const double balanced = slowest_rank(job, {.replicas = 4}).mean;
  EXPECT_LT(balanced - 1, 0.3 * (drawn - 1));
  EXPECT_LT(slowest_rank(job, {.replicas = 4, .waits = true}).mean - 1, 0.4 * (waits - 1));
  job.global_batch = 2;  // there is no other order of two
  EXPECT_GT(slowest_rank(job, {.replicas = 2}).mean, 1.2);
}

TEST(Examples, AreWrittenAndRead) {
  Job job = with_lengths({{5, 2}, {9, 0.5}}, Packing::padded);
  job.balanced = true;
  EXPECT_EQ(parse_job(job_text(job), "job"), job);
}

TEST(Examples, AreCountedInAFile) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "lengths";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "lengths.txt") << "7\n1000\n7\r\n1010\n";
  std::string text = job_text(llama());
  text.insert(text.find('{') + 1, "\"lengths\": \"lengths.txt\",");
  // 1000 and 1010 are within 1/32 of 992 and 1024.
  const Job job = parse_job(text, (folder / "job.json").string());
  EXPECT_EQ(job.lengths, (std::vector<LengthShare>{{7, 2}, {992, 1}, {1024, 1}}));
  std::ofstream(folder / "lengths.txt") << "7\nseven\n";
  try {
    parse_job(text, (folder / "job.json").string());
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("line 2: found \"seven\""), std::string::npos);
  }
}

std::string refusal_of_lengths(const Job& job) {
  try {
    check_job(job, "job");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Examples, AreRefusedWherePaddingWouldCount) {
  EXPECT_EQ(refusal_of_lengths(with_lengths({{5, 1}})), "");
  Job bert = with_lengths({{5, 1}});
  bert.family = Family::bert;
  bert.kv_heads = bert.heads;
  EXPECT_NE(refusal_of_lengths(bert).find("only families gpt and llama"), std::string::npos);
  for (double Experts::*field :
       {&Experts::capacity, &Experts::balance_loss, &Experts::z_loss, &Experts::selection_bias}) {
    Job job = with_lengths({{5, 1}});
    job.experts = Experts{.count = 4, .chosen = 2, .ffn_hidden = 8};
    EXPECT_EQ(refusal_of_lengths(job), "");
    (*job.experts).*field = 0.5;
    EXPECT_NE(refusal_of_lengths(job).find("would count padding"), std::string::npos);
  }
  Job many = with_lengths({{1, 1e6}, {2, 1}});
  many.sequence = 32768;
  EXPECT_NE(refusal_of_lengths(many).find("has 32768 examples on average; at most 16384"),
            std::string::npos);
  EXPECT_NE(refusal_of_lengths(with_lengths({{1, 1}})).find("no example"), std::string::npos);
  EXPECT_NE(refusal_of_lengths(with_lengths({{5, 0}})).find("no example"), std::string::npos);
  EXPECT_NE(refusal_of_lengths(with_lengths({}, Packing::padded)).find("/packing"),
            std::string::npos);
  Job balanced = llama();
  balanced.balanced = true;
  EXPECT_NE(refusal_of_lengths(balanced).find("/balanced"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
