// Each rank's share of an attention is run by itself, and the shares are compared with the whole.
#include "tests/runtime/attention_parts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "tests/runtime/op_families.h"
#include "tests/runtime/op_reference.h"
#include "tests/runtime/op_runner.h"

namespace plimsoll {
namespace {

using Numbers = std::vector<double>;

/// Rows of a matrix that is as wide as `columns`.
Numbers rows_of(const Numbers& from, std::size_t columns, const std::vector<std::size_t>& rows) {
  Numbers taken;
  for (const std::size_t row : rows) {
    const auto at = from.begin() + std::ptrdiff_t(row * columns);
    taken.insert(taken.end(), at, at + std::ptrdiff_t(columns));
  }
  return taken;
}
void add_rows(const Numbers& rows, std::size_t columns, const std::vector<std::size_t>& to,
              Numbers& sum) {
  for (std::size_t i = 0; i < rows.size(); ++i)
    sum[to[i / columns] * columns + i % columns] += rows[i];
}

double distance(const Numbers& a, const Numbers& b) {
  double largest = 1e-30, difference = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    largest = std::max(largest, std::abs(b[i]));
    difference = std::max(difference, std::isfinite(a[i]) ? std::abs(a[i] - b[i]) : HUGE_VAL);
  }
  return difference / largest;
}

/// The rows of part `part` of `parts` of every row, each of which has so many equal parts.
std::vector<std::size_t> rows_of_part(const std::vector<std::size_t>& rows, std::size_t parts,
                                      std::size_t part) {
  std::vector<std::size_t> found;
  for (const std::size_t row : rows) found.push_back(row * parts + part);
  return found;
}

class Ranks {
 public:
  Ranks(Backend& backend, std::int64_t ranks, const AttentionSizes& sizes, DType type)
      : backend_(backend), ranks_(std::size_t(ranks)), z_(sizes), type_(type) {
    const auto batch = std::size_t(z_.batch), sequence = std::size_t(z_.sequence);
    const std::size_t chunk = sequence / (2 * ranks_);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      std::vector<std::size_t>& rows = rows_.emplace_back();
      for (std::size_t b = 0; b < batch; ++b) {
        for (const std::size_t of : {rank, 2 * ranks_ - 1 - rank}) {
          for (std::size_t i = 0; i < chunk; ++i) rows.push_back(b * sequence + of * chunk + i);
        }
      }
      all_.insert(all_.end(), rows.begin(), rows.end());
    }
    std::vector<OpCase> cases = flash_attention_cases(z_);
    if (type_ != DType::f32) {
      for (OpCase& c : cases) c = *in_type(c, type_);
    }
    for (std::size_t i = 0; i < cases.size(); ++i) {
      expected_.push_back(cases[i].before);
      run_reference(cases[i], expected_.back());
    }
    q_ = cases[0].input_values(0);
    kv_ = cases[0].input_values(1);
    dy_ = cases[1].input_values(0);
    expected_y_ = expected_[0][cases[0].op.outputs[0].index()];
    expected_dq_ = expected_[1][cases[1].op.outputs[0].index()];
    expected_dkv_ = expected_[1][cases[1].op.outputs[1].index()];
    y_.assign(expected_y_.size(), 0);
    dq_.assign(expected_dq_.size(), 0);
    dkv_.assign(expected_dkv_.size(), 0);
  }

  void ring() {
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const Numbers q = rows_of(q_, width(), rows_[rank]),
                    dy = rows_of(dy_, y_width(), rows_[rank]);
      const auto keys = [&](std::size_t round) { return (rank + ranks_ - round) % ranks_; };
      Output merged;
      for (std::size_t round = 0; round < ranks_; ++round) {
        const Output part = forward(rank, params(1, round), q,
                                    rows_of(kv_, pair_width(), rows_[keys(round)]), z_.heads);
        merged = round == 0 ? part : merge(merged, part);
      }
      add_rows(merged.y, y_width(), rows_[rank], y_);
      for (std::size_t round = ranks_; round-- > 0;) {
        const std::vector<std::size_t>& rows = rows_[keys(round)];
        const Gradients part = backward(rank, params(1, round), dy, q,
                                        rows_of(kv_, pair_width(), rows), merged, z_.heads);
        add_rows(part.dq, width(), rows_[rank], dq_);
        add_rows(part.dkv, pair_width(), rows, dkv_);
      }
    }
  }

  void all_gather() {
    const Numbers kv = rows_of(kv_, pair_width(), all_);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const Numbers q = rows_of(q_, width(), rows_[rank]),
                    dy = rows_of(dy_, y_width(), rows_[rank]);
      const AttentionParams all = params(std::int64_t(ranks_), 0);
      const Output output = forward(rank, all, q, kv, z_.heads);
      add_rows(output.y, y_width(), rows_[rank], y_);
      const Gradients part = backward(rank, all, dy, q, kv, output, z_.heads);
      add_rows(part.dq, width(), rows_[rank], dq_);
      add_rows(part.dkv, pair_width(), all_, dkv_);
    }
  }

  void all_to_all() {
    const std::size_t own = width() / ranks_, own_y = y_width() / ranks_;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const std::vector<std::size_t> queries = rows_of_part(all_, ranks_, rank);
      std::vector<std::size_t> keys;  // of the parts of each row: keys, then values; or both
      for (const std::size_t row : all_) {
        for (std::size_t part = 0; part < parts(); ++part)
          keys.push_back((parts() * row + part) * ranks_ + rank);
      }
      const std::size_t own_keys = pair_width() / parts() / ranks_;
      const Numbers q = rows_of(q_, own, queries), dy = rows_of(dy_, own_y, queries);
      const Numbers kv = rows_of(kv_, own_keys, keys);
      const AttentionParams all = params(std::int64_t(ranks_), 0);
      const std::int64_t heads = z_.heads / std::int64_t(ranks_);
      const Output output = forward(rank, all, q, kv, heads);
      add_rows(output.y, own_y, queries, y_);
      const Gradients part = backward(rank, all, dy, q, kv, output, heads);
      add_rows(part.dq, own, queries, dq_);
      add_rows(part.dkv, own_keys, keys, dkv_);
    }
  }

  void expect_whole() const {
    const double within = type_ == DType::f32 ? 1e-5 : type_ == DType::bf16 ? 0x1p-6 : 0x1p-8;
    EXPECT_LE(distance(y_, expected_y_), within) << "y";
    EXPECT_LE(distance(dq_, expected_dq_), within) << "dq";
    EXPECT_LE(distance(dkv_, expected_dkv_), within) << "dkv";
  }

 private:
  struct Output {
    Numbers y, sums;
  };
  struct Gradients {
    Numbers dq, dkv;
  };

  std::size_t width() const { return std::size_t(z_.heads * z_.depth); }
  /// Columns of a head's value.
  std::int64_t value() const { return z_.value_depth > 0 ? z_.value_depth : z_.depth; }
  std::size_t y_width() const { return std::size_t(z_.heads * value()); }
  std::size_t pair_width() const { return std::size_t(z_.key_heads * (z_.depth + value())); }
  std::size_t parts() const { return z_.value_depth > 0 ? 1 : 2; }  // of keys with values

  AttentionParams params(std::int64_t key_ranks, std::size_t round) const {
    AttentionParams made{.scale = 1 / std::sqrt(double(z_.depth))};
    made.sequence = z_.sequence / std::int64_t(ranks_) * key_ranks;
    made.causal = z_.causal;
    made.window = z_.window;
    made.alibi_heads = z_.alibi_heads;
    made.alibi_scale = 0.75;
    made.key_ranks = key_ranks;
    made.round = std::int64_t(round);
    return made;
  }

  Operand operand(const char* name, const Shape& shape, Numbers values, bool f32 = false) const {
    Operand made{name, shape, std::move(values)};
    if (!f32) made.dtype = type_;
    return made;
  }

  /// Runs a case as one rank of cp.
  Values run(std::size_t rank, OpCase c) const {
    if (z_.examples) give_examples(c, z_.batch, z_.sequence);
    c.program.grid.degree[std::size_t(Axis::cp)] = std::int64_t(ranks_);
    c.at[std::size_t(Axis::cp)] = std::int64_t(rank);
    const Verdict verdict = backend_.supports(c.op, c.tensors);
    EXPECT_TRUE(bool(verdict)) << verdict.reason();
    return run_case(backend_, c);
  }

  struct Shapes {
    Shape q, kv, y, sums;
  };
  Shapes shapes(const Numbers& q, const Numbers& kv, std::int64_t heads) const {
    const std::int64_t key_heads = heads * z_.key_heads / z_.heads;
    const std::int64_t tokens = std::int64_t(q.size()) / (heads * z_.depth);
    const std::int64_t keys = std::int64_t(kv.size()) / (key_heads * (z_.depth + value()));
    const bool beside = parts() == 1;
    return {{tokens, 1, heads, z_.depth},
            {keys, std::int64_t(parts()), key_heads, beside ? z_.depth + value() : z_.depth},
            {tokens, heads * value()},
            {z_.batch, heads, tokens / z_.batch}};
  }

  Output forward(std::size_t rank, const AttentionParams& params, const Numbers& q,
                 const Numbers& kv, std::int64_t heads) const {
    const Shapes s = shapes(q, kv, heads);
    const OpCase c = make_case("forward", OpKind::flash_attention, params,
                               {operand("q", s.q, q), operand("kv", s.kv, kv)},
                               {operand("y", s.y, {}), operand("sums", s.sums, {}, true)});
    const Values values = run(rank, c);
    return {values[c.op.outputs[0].index()], values[c.op.outputs[1].index()]};
  }

  Gradients backward(std::size_t rank, const AttentionParams& params, const Numbers& dy,
                     const Numbers& q, const Numbers& kv, const Output& output,
                     std::int64_t heads) const {
    const Shapes s = shapes(q, kv, heads);
    const OpCase c =
        make_case("backward", OpKind::flash_attention_backward, params,
                  {operand("dy", s.y, dy), operand("q", s.q, q), operand("kv", s.kv, kv),
                   operand("y", s.y, output.y), operand("sums", s.sums, output.sums, true)},
                  {operand("dq", s.q, {}), operand("dkv", s.kv, {})});
    const Values values = run(rank, c);
    return {values[c.op.outputs[0].index()], values[c.op.outputs[1].index()]};
  }

  Output merge(const Output& a, const Output& b) const {
    const std::int64_t tokens = std::int64_t(a.y.size() / y_width());
    const Shape y = {tokens, std::int64_t(y_width())};
    const Shape sums = {z_.batch, z_.heads, tokens / z_.batch};
    const OpCase c =
        make_case("merge", OpKind::merge_attention, {},
                  {operand("y", y, a.y), operand("sums", sums, a.sums, true),
                   operand("other_y", y, b.y), operand("other_sums", sums, b.sums, true)},
                  {operand("merged", y, {}), operand("merged_sums", sums, {}, true)});
    const Values values = run(0, c);
    return {values[c.op.outputs[0].index()], values[c.op.outputs[1].index()]};
  }

  Backend& backend_;
  std::size_t ranks_;
  AttentionSizes z_;
  DType type_;
  std::vector<std::vector<std::size_t>> rows_;  ///< of the whole, by rank
  std::vector<std::size_t> all_;                ///< the same, one rank after the other
  std::vector<Values> expected_;
  Numbers q_, kv_, dy_, y_, dq_, dkv_, expected_y_, expected_dq_, expected_dkv_;
};

}  // namespace

void expect_parts_make_the_whole(Backend& backend, ContextExchange exchange, std::int64_t ranks,
                                 const AttentionSizes& sizes, DType type) {
  Ranks all(backend, ranks, sizes, type);
  switch (exchange) {
    case ContextExchange::ring:
      all.ring();
      break;
    case ContextExchange::all_gather:
      all.all_gather();
      break;
    case ContextExchange::all_to_all:
      all.all_to_all();
      break;
  }
  all.expect_whole();
}

}  // namespace plimsoll
