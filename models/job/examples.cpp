// Lengths of examples are drawn, and what they cost is averaged.
#include "models/job/examples.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>

namespace plimsoll {

namespace {

// Averages are of this number of examples or of sequences, whichever are fewer. A mean of 1,000
// sequences is within some percent of that of all.
constexpr double kExamples = 1 << 14, kSequences = 1024, kLeastSequences = 4;
// Slowest ranks are those of as many sequences over several steps, if these have no more examples.
constexpr double kExamplesOfSteps = 1 << 18, kLeastSteps = 4, kMostSteps = 256;

/// Returns the mean over sequences of a sum over their examples. It is taken from a stream without
/// end, so that it does not depend on the global batch.
template <class Value>
double mean_of_sequences(const Job& job, Value value) {
  const auto sequences =
      std::int64_t(std::clamp(kExamples / examples_per_sequence(job), kLeastSequences, kSequences));
  double sum = 0;
  ExampleRows(job).each(
      0, sequences, [&](std::int64_t, std::int64_t, std::int64_t tokens) { sum += value(tokens); });
  return sum / double(sequences);
}

/// Adds the scores of an example to the ranks that share its sequence, whose parts are those of
/// runtime/sequence_part.h. `cut`: what is cut into them, the sequence or the example.
void add_scores(const AttentionParams& params, std::int64_t begin, std::int64_t tokens,
                std::int64_t cut, std::int64_t parts, double* scores) {
  const auto before = [&](std::int64_t position) {
    return causal_scores(std::clamp<std::int64_t>(position - begin, 0, tokens), params);
  };
  const auto chunk_of = [&](std::int64_t at) { return at * 2 * parts / cut; };
  for (std::int64_t chunk = chunk_of(begin); chunk <= chunk_of(begin + tokens - 1); ++chunk) {
    const std::int64_t rank = chunk < parts ? chunk : 2 * parts - 1 - chunk;
    scores[rank] += before((chunk + 1) * cut / (2 * parts)) - before(chunk * cut / (2 * parts));
  }
}

/// The scores of a step: those of its slowest rank, and of the mean one.
struct StepScores {
  double slowest = 0, mean = 0;
};

/// Returns them for a step in which each replica has `each` micro-batches.
StepScores scores_of_step(const ExampleRows& rows, const AttentionParams& params,
                          const ExampleRanks& ranks, std::int64_t each, std::int64_t step) {
  const std::int64_t parts = ranks.parts, all = each * ranks.replicas;
  std::vector<double> scores(std::size_t(all * parts), 0.0);
  const bool cuts = rows.cuts_examples(parts);
  rows.each(step, all * ranks.micro_batch, [&](std::int64_t i, std::int64_t begin, auto tokens) {
    double* own = &scores[std::size_t(i / ranks.micro_batch * parts)];
    add_scores(params, cuts ? 0 : begin, tokens, cuts ? tokens : rows.sequence(), parts, own);
  });
  std::vector<double> of_replica(std::size_t(ranks.replicas), 0.0);
  std::vector<double> of_micro_batch(std::size_t(each), 0.0);
  StepScores result;
  for (std::int64_t i = 0; i < all; ++i) {
    double longest = 0;
    for (std::int64_t part = 0; part < parts; ++part) {
      const double one = scores[std::size_t(i * parts + part)];
      longest = std::max(longest, one);
      result.mean += one / double(ranks.replicas * parts);
    }
    of_replica[std::size_t(i / each)] += longest;
    double& of_all = of_micro_batch[std::size_t(i % each)];
    of_all = std::max(of_all, longest);
  }
  if (!ranks.waits) result.slowest = *std::ranges::max_element(of_replica);
  for (const double one : of_micro_batch) result.slowest += ranks.waits ? one : 0;
  return result;
}

/// A sequence by the place at which it is drawn.
struct Drawn {
  double scores = 0;
  std::int64_t place = 0;
};

/// Orders sequences, the longest first, so that both halves have about as many scores, and orders
/// each half likewise. Of two that follow each other, the half with fewer scores gets the first, so
/// that halves have their longest sequences at equal places.
void balance(std::span<Drawn> sequences) {
  if (sequences.size() <= 2) return;
  std::vector<Drawn> halves[2];
  double scores[2] = {};
  const auto add = [&](std::size_t half, const Drawn& sequence) {
    halves[half].push_back(sequence);
    scores[half] += sequence.scores;
  };
  for (std::size_t i = 0; i < sequences.size(); i += 2) {
    const bool pair = i + 1 < sequences.size();
    const std::size_t fewer = pair && scores[1] < scores[0] ? 1 : 0;
    add(fewer, sequences[i]);
    if (pair) add(1 - fewer, sequences[i + 1]);
  }
  std::ranges::copy(halves[1], std::ranges::copy(halves[0], sequences.begin()).out);
  balance(sequences.first(halves[0].size()));
  balance(sequences.subspan(halves[0].size()));
}

}  // namespace

ExampleRows::ExampleRows(const Job& job)
    : packing_(job.packing),
      balanced_(job.balanced),
      cuts_(job.balanced && job.dropout == 0 && (!job.adapters || job.adapters->dropout == 0)),
      sequence_(job.sequence),
      seed_(job.seed) {
  double sum = 0, below = 0;
  for (const LengthShare& length : job.lengths) sum += length.share;
  for (const LengthShare& length : job.lengths) {
    below += length.share / sum * 0x1p32;
    lengths_.push_back({below, std::min(length.tokens, sequence_)});
  }
}

std::int64_t ExampleRows::length(std::uint32_t word) const {
  const auto found = std::ranges::upper_bound(lengths_, double(word), {}, &Length::below);
  return found == lengths_.end() ? lengths_.back().tokens : found->tokens;
}

bool ExampleRows::cuts_examples(std::int64_t ranks) const {
  const auto is_cut = [&](std::int64_t tokens) { return tokens % (2 * ranks) == 0; };
  return cuts_ && ranks > 1 && is_cut(sequence_) &&
         std::ranges::all_of(lengths_, is_cut, &Length::tokens);
}

std::vector<ExampleRows::Example> ExampleRows::in_balance(std::int64_t step,
                                                          std::int64_t sequences) const {
  std::vector<Example> examples;
  std::vector<Drawn> drawn(static_cast<std::size_t>(sequences));
  in_order(step, sequences, [&](std::int64_t at, std::int64_t begin, std::int64_t tokens) {
    examples.push_back({at, begin, tokens});
    drawn[std::size_t(at)].scores += causal_scores(tokens, AttentionParams());
  });
  for (std::int64_t i = 0; i < sequences; ++i) drawn[std::size_t(i)].place = i;
  std::ranges::stable_sort(drawn, std::greater(), &Drawn::scores);
  balance(drawn);
  std::vector<std::int64_t> place(drawn.size());
  for (std::size_t i = 0; i < drawn.size(); ++i)
    place[std::size_t(drawn[i].place)] = std::int64_t(i);
  for (Example& example : examples) example.sequence = place[std::size_t(example.sequence)];
  std::ranges::stable_sort(examples, {}, &Example::sequence);
  return examples;
}

double examples_per_sequence(const Job& job) {
  if (job.packing == Packing::padded) return 1;
  double tokens = 0, shares = 0;
  for (const LengthShare& length : job.lengths) {
    tokens += length.share * double(std::min(length.tokens, job.sequence));
    shares += length.share;
  }
  return double(job.sequence) * shares / tokens;
}

double share_of_tokens(const Job& job) {
  if (job.lengths.empty()) return 1;
  const auto tokens = [](std::int64_t of) { return double(of); };
  return std::min(1.0, mean_of_sequences(job, tokens) / double(job.sequence));
}

double share_of_scores(const Job& job, const AttentionParams& params) {
  if (job.lengths.empty()) return 1;
  const auto scores = [&](std::int64_t tokens) { return causal_scores(tokens, params); };
  return std::min(1.0, mean_of_sequences(job, scores) / scores(job.sequence));
}

SlowestRank slowest_rank(const Job& job, const ExampleRanks& ranks) {
  if (job.lengths.empty()) return {};
  const bool windowed = job.window > 0 && job.window < job.sequence && job.window_pattern.empty();
  const AttentionParams params{.sequence = job.sequence,
                               .window = windowed ? job.window : 0,
                               .chunks = windowed && job.window_chunks};
  const auto steps =
      std::int64_t(std::clamp(kSequences / double(job.global_batch), kLeastSteps, kMostSteps));
  // Few micro-batches stand for many, whose sum differs less by the root of their number.
  const double sequences = double(ranks.micro_batch * ranks.replicas);
  const double whole = double(job.global_batch) / sequences;
  const double most = kExamplesOfSteps / (double(steps) * sequences * examples_per_sequence(job));
  const auto each = std::int64_t(std::clamp(most, 1.0, whole));
  const double less = std::sqrt(double(each) / whole);
  const ExampleRows rows(job);
  double slowest = 0, squares = 0, mean = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    const StepScores scores = scores_of_step(rows, params, ranks, each, step);
    slowest += scores.slowest;
    squares += scores.slowest * scores.slowest;
    mean += scores.mean;
  }
  const double longer = std::max(0.0, slowest / mean - 1);
  const double variance = double(steps) * squares - slowest * slowest;
  return {1 + (ranks.waits ? longer : longer * less),
          std::sqrt(std::max(0.0, variance)) / mean * less};
}

}  // namespace plimsoll
