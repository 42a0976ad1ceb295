// Cases and references of the ops that load tokens, and of those that read or add rows of tables.
#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>

#include "models/job/philox.h"
#include "tests/runtime/op_families.h"

namespace plimsoll {

namespace {

using Cases = std::vector<OpCase>;

void add_data_cases(Cases& cases, const OpSizes& z) {
  const std::tuple<std::string, OpKind, DataParams> loads[] = {
      {"load_tokens", OpKind::load_tokens, {}},
      {"load_targets", OpKind::load_targets, {}},
      {"load_targets/ahead", OpKind::load_targets, {.ahead = 2}},
      {"load_targets/depths", OpKind::load_targets, {.depths = 3}},
      {"load_targets/behind_the_text",
       OpKind::load_targets,
       {.ahead = 6 * z.sequence, .depths = 2}},
      // The last part of the tokens, of which each of several ranks has as many.
      {"load_targets/part", OpKind::load_targets, {.parts = z.sequence, .ranks = z.batch}},
  };
  for (auto [name, kind, params] : loads) {
    params.sequence = z.sequence;
    const std::int64_t count = params.depths * z.tokens() / params.parts;
    OpCase c = make_case(name, kind, params, {}, {{"ids", {count}, {}, DType::i32}});
    c.program.grid.degree[std::size_t(Axis::dp)] = 2;
    c.program.grid.degree[std::size_t(Axis::sharding)] = 2;
    c.program.micro_batch = z.batch;
    c.program.micro_batches = 3;
    c.at[std::size_t(Axis::dp)] = 1;
    c.at[std::size_t(Axis::sharding)] = 1;
    c.position = {.step = 7, .micro_batch = 2, .part = params.parts - 1};
    c.global_batch = z.batch * 3 * 4;
    for (std::int64_t i = 0; i < 7 * z.sequence; ++i)
      c.text.push_back(std::byte((i * 37 + i / 11) % 251));
    cases.push_back(std::move(c));
  }
}

void add_embedding_cases(Cases& cases, const OpSizes& z) {
  const std::int64_t n = z.tokens(), h = z.hidden();
  const Operand tokens = token_ids("tokens", n, z.vocabulary, 7);
  for (std::int64_t degree : {1, 2}) {
    for (std::int64_t part = 0; part < degree; ++part) {
      const std::string suffix = degree == 1 ? "" : "/half_" + std::to_string(part);
      const VocabularyParams params{z.vocabulary, degree, 1};
      const Shape table = {(z.vocabulary + degree - 1) / degree, h};
      cases.push_back(make_case("embedding" + suffix, OpKind::embedding, params,
                                {tokens, normal("table", table, 1)}, {blank("x", {n, h})}));
      cases.back().at[std::size_t(Axis::mp)] = part;
      cases.push_back(make_case("embedding_backward" + suffix, OpKind::embedding_backward, params,
                                {normal("dx", {n, h}, 1), tokens}, {normal("dtable", table, 2)}));
      cases.back().at[std::size_t(Axis::mp)] = part;
    }
  }
  cases.push_back(make_case("position_add", OpKind::position_add, {},
                            {normal("x", {n, h}, 1), normal("table", {z.sequence, h}, 2)},
                            {blank("y", {n, h})}));
  cases.push_back(make_case("position_add_backward", OpKind::position_add_backward, {},
                            {normal("dy", {n, h}, 1)}, {normal("dtable", {z.sequence, h}, 2)}));
}

void add_masked(Cases& cases, const OpSizes& z) {
  const std::int64_t predicted = 2;
  const DataParams params{z.sequence, predicted, z.vocabulary, 3};
  for (const OpKind kind :
       {OpKind::load_masked_tokens, OpKind::load_masked_positions, OpKind::load_masked_targets}) {
    const std::int64_t count = kind == OpKind::load_masked_tokens ? z.sequence : predicted;
    OpCase c = make_case(std::string(to_text(kind)), kind, params, {},
                         {{"ids", {z.batch * count}, {}, DType::i32}});
    place_in_batch(c, z);
    for (std::int64_t i = 0; i < 7 * z.sequence; ++i)
      c.text.push_back(std::byte((i * 37 + i / 11) % 251));
    cases.push_back(std::move(c));
  }
  const Shape x = {z.tokens(), z.hidden()}, y = {z.batch * predicted, z.hidden()};
  Operand positions{"positions", {z.batch * predicted}, {}, DType::i32};
  for (std::int64_t i = 0; i < z.batch; ++i) {
    for (std::int64_t at : {std::int64_t{0}, z.sequence - 1}) {
      positions.values.push_back(double(i * z.sequence + at));
    }
  }
  cases.push_back(make_case("gather_rows", OpKind::gather_rows, {}, {normal("x", x, 1), positions},
                            {blank("y", y)}));
  cases.push_back(make_case("gather_rows_backward", OpKind::gather_rows_backward, {},
                            {normal("dy", y, 1), positions}, {blank("dx", x)}));
  const DataParams types{z.sequence};
  const Shape table = {2, z.hidden()};
  cases.push_back(make_case("token_type_add", OpKind::token_type_add, types,
                            {normal("x", x, 1), normal("table", table, 2)}, {blank("y", x)}));
  cases.push_back(make_case("token_type_add_backward", OpKind::token_type_add_backward, types,
                            {normal("dy", x, 1)}, {normal("dtable", table, 2)}));
}

/// `ahead`: of the first token of each position.
void load_ids(const Operands& o, std::int64_t ahead, std::int64_t depths) {
  const OpCase& c = o.c;
  const Program& program = c.program;
  const std::int64_t sequence = o.params<DataParams>().sequence;
  const std::int64_t sharding = program.grid.degree[std::size_t(Axis::sharding)];
  const std::int64_t replica =
      c.at[std::size_t(Axis::dp)] * sharding + c.at[std::size_t(Axis::sharding)];
  Numbers all;
  for (std::int64_t i = 0; i < program.micro_batch; ++i) {
    const std::int64_t first =
        (replica * program.micro_batches + c.position.micro_batch) * program.micro_batch;
    const std::int64_t index = c.position.step * c.global_batch + first + i;
    const std::int64_t start = index * sequence % (std::int64_t(c.text.size()) - sequence - 1);
    for (std::int64_t j = 0; j < sequence * depths; ++j) {
      const std::int64_t at = start + j / depths + ahead + j % depths;
      const std::int64_t last = std::int64_t(c.text.size()) - 1;
      all.push_back(double(c.text[std::size_t(std::min(at, last))]));
    }
  }
  const auto parts = std::size_t(o.params<DataParams>().parts);
  const auto ranks = std::size_t(o.params<DataParams>().ranks);
  const std::size_t of_rank = all.size() / ranks, share = of_rank / parts;
  auto id = o.out(0).begin();
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::size_t begin = rank * of_rank + std::size_t(c.position.part) * share;
    id = std::copy_n(all.begin() + std::ptrdiff_t(begin), share, id);
  }
}

void embedding(const Operands& o) {
  const std::size_t rows = o.in_dim(1, 0), h = o.in_dim(1, 1);
  const std::int64_t first = first_row(o, std::int64_t(rows));
  for (std::size_t i = 0; i < o.in(0).size(); ++i) {
    const std::int64_t row = std::int64_t(o.in(0)[i]) - first;
    for (std::size_t j = 0; j < h; ++j) {
      const bool here = row >= 0 && row < std::int64_t(rows);
      o.out(0)[i * h + j] = here ? o.in(1)[std::size_t(row) * h + j] : 0;
    }
  }
}

void embedding_backward(const Operands& o) {
  const std::size_t rows = o.out_dim(0, 0), h = o.out_dim(0, 1);
  const std::int64_t first = first_row(o, std::int64_t(rows));
  for (std::size_t i = 0; i < o.in(1).size(); ++i) {
    const std::int64_t row = std::int64_t(o.in(1)[i]) - first;
    if (row < 0 || row >= std::int64_t(rows)) continue;
    for (std::size_t j = 0; j < h; ++j) o.out(0)[std::size_t(row) * h + j] += o.in(0)[i * h + j];
  }
}

/// The row of the table that row i of x gets.
std::size_t table_row(const Operands& o, std::size_t i, std::size_t sequence) {
  return i % sequence - example_of(o.c, i / sequence, i % sequence).first;
}

void position_add(const Operands& o) {
  const std::size_t s = o.in_dim(1, 0), h = o.in_dim(1, 1);
  each(o, [&](std::size_t i) { return o.in(0)[i] + o.in(1)[table_row(o, i / h, s) * h + i % h]; });
}

void position_add_backward(const Operands& o) {
  const std::size_t s = o.out_dim(0, 0), h = o.out_dim(0, 1);
  for (std::size_t i = 0; i < o.in(0).size(); ++i)
    o.out(0)[table_row(o, i / h, s) * h + i % h] += o.in(0)[i];
}

/// Gradient of x: rows go back to where they came from.
void gather_rows(const Operands& o, bool backward) {
  const std::size_t h = backward ? o.in_dim(0, 1) : o.out_dim(0, 1);
  if (backward) std::fill(o.out(0).begin(), o.out(0).end(), 0.0);
  for (std::size_t i = 0; i < o.in(1).size(); ++i) {
    for (std::size_t j = 0; j < h; ++j) {
      const std::size_t there = std::size_t(o.in(1)[i]) * h + j;
      if (backward) {
        o.out(0)[there] += o.in(0)[i * h + j];
      } else {
        o.out(0)[i * h + j] = o.in(0)[there];
      }
    }
  }
}

std::size_t type_of(const Operands& o, std::size_t row, std::size_t types) {
  const auto sequence = std::size_t(o.params<DataParams>().sequence);
  return row % sequence * types / sequence;
}

void token_type_add(const Operands& o) {
  const std::size_t h = o.in_dim(0, 1), types = o.in_dim(1, 0);
  for (std::size_t i = 0; i < o.in(0).size(); ++i) {
    o.out(0)[i] = o.in(0)[i] + o.in(1)[type_of(o, i / h, types) * h + i % h];
  }
}

void token_type_add_backward(const Operands& o) {
  const std::size_t h = o.in_dim(0, 1), types = o.out_dim(0, 0);
  for (std::size_t i = 0; i < o.in(0).size(); ++i) {
    o.out(0)[type_of(o, i / h, types) * h + i % h] += o.in(0)[i];
  }
}

/// Selection sampling with a word per position; see runtime/cpu/masked_tokens.cpp.
void load_masked(const Operands& o) {
  const auto& params = o.params<DataParams>();
  const OpCase& c = o.c;
  const PhiloxKey key = philox_key(params.seed, c.position.step, -1);
  std::size_t next = 0;
  for (std::int64_t i = 0; i < c.program.micro_batch; ++i) {
    const std::int64_t sequence = first_sequence(c) + i;
    const std::int64_t start = (c.position.step * c.global_batch + sequence) * params.sequence %
                               (std::int64_t(c.text.size()) - params.sequence - 1);
    std::int64_t chosen = 0;
    for (std::int64_t j = 0; j < params.sequence; ++j) {
      const auto words = philox({std::uint32_t(sequence * params.sequence + j), 0, 0, 0}, key);
      const double token = double(c.text[std::size_t(start + j)]);
      const double u = double(words[0]) / 0x1p32 * double(params.sequence - j);
      const bool predicted = std::floor(u) < double(params.predicted - chosen);
      chosen += predicted;
      if (c.op.kind == OpKind::load_masked_tokens) {
        const double kind = double(words[1]) / 0x1p32;
        double& shown = o.out(0)[next++];
        shown = token;
        if (predicted && kind < 0.8) shown = double(params.vocabulary - 1);
        if (predicted && kind >= 0.8 && kind < 0.9) {
          shown = std::floor(double(words[2]) / 0x1p32 * double(params.vocabulary));
        }
      } else if (predicted) {
        const bool target = c.op.kind == OpKind::load_masked_targets;
        o.out(0)[next++] = target ? token : double(i * params.sequence + j);
      }
    }
  }
}

constexpr OpReference kReferences[] = {
    {OpKind::load_tokens, [](const Operands& o) { load_ids(o, 0, 1); }},
    {OpKind::load_targets,
     [](const Operands& o) {
       load_ids(o, o.params<DataParams>().ahead, o.params<DataParams>().depths);
     }},
    {OpKind::load_masked_tokens, load_masked},
    {OpKind::load_masked_positions, load_masked},
    {OpKind::load_masked_targets, load_masked},
    {OpKind::embedding, embedding},
    {OpKind::embedding_backward, embedding_backward},
    {OpKind::position_add, position_add},
    {OpKind::position_add_backward, position_add_backward},
    {OpKind::token_type_add, token_type_add},
    {OpKind::token_type_add_backward, token_type_add_backward},
    {OpKind::gather_rows, [](const Operands& o) { gather_rows(o, false); }},
    {OpKind::gather_rows_backward, [](const Operands& o) { gather_rows(o, true); }},
};

void add_cases(Cases& cases, const OpSizes& sizes) {
  add_data_cases(cases, sizes);
  add_embedding_cases(cases, sizes);
  add_masked(cases, sizes);
}

}  // namespace

const OpFamily kDataOps = {add_cases, kReferences};

}  // namespace plimsoll
