// Cases and references of the ops beside attention where ranks share sequences: parts, groups of
// heads, and the merge of attention over different keys.
#include <cmath>
#include <limits>

#include "tests/runtime/op_families.h"

namespace plimsoll {

namespace {

using Cases = std::vector<OpCase>;

void add_parts(Cases& cases, const OpSizes& z) {
  const Shape qkv = {z.tokens(), 3, z.heads, z.depth};
  const Shape q = {z.tokens(), 1, z.heads, z.depth}, kv = {z.tokens(), 2, z.heads, z.depth};
  cases.push_back(make_case("split_parts", OpKind::split_parts, {}, {normal("qkv", qkv, 1)},
                            {blank("q", q), blank("kv", kv)}));
  cases.push_back(make_case("join_parts", OpKind::join_parts, {},
                            {normal("q", q, 1), normal("kv", kv, 2)}, {blank("qkv", qkv)}));
  const Shape k = {z.tokens(), 1, z.heads, z.depth};
  cases.push_back(make_case("join_parts/keys_values", OpKind::join_parts, {},
                            {normal("k", k, 1), normal("v", k, 2)}, {blank("kv", kv)}));
  const Shape v = {z.tokens(), 1, z.heads, z.depth / 2};
  const Shape beside = {z.tokens(), 1, z.heads, z.depth + z.depth / 2};
  cases.push_back(make_case("split_parts/columns", OpKind::split_parts, {},
                            {normal("kv", beside, 1)}, {blank("k", k), blank("v", v)}));
  cases.push_back(make_case("join_parts/columns", OpKind::join_parts, {},
                            {normal("k", k, 1), normal("v", v, 2)}, {blank("kv", beside)}));
}

void add_groups(Cases& cases, const OpSizes& z) {
  struct Form {
    const char* name;
    Shape plain;
    std::int64_t ranks;
  };
  for (const Form& form : {Form{"/heads", {z.tokens(), 2, 2 * z.heads, z.depth}, 2},
                           Form{"/a_head_each", {z.tokens(), 1, z.heads, z.depth}, z.heads},
                           Form{"/columns", {z.tokens(), 4 * z.depth}, 4}}) {
    Shape grouped = form.plain;
    grouped[0] *= form.ranks;
    grouped[grouped.size() == 4 ? 2 : 1] /= form.ranks;
    const std::string name = form.name;
    cases.push_back(make_case("group_heads" + name, OpKind::group_heads, {},
                              {normal("x", form.plain, 1)}, {blank("y", grouped)}));
    cases.push_back(make_case("ungroup_heads" + name, OpKind::ungroup_heads, {},
                              {normal("x", grouped, 1)}, {blank("y", form.plain)}));
  }
}

/// Some queries see no key of one of the parts, some of neither.
void add_merge(Cases& cases, const OpSizes& z) {
  const Shape y = {z.tokens(), z.hidden()}, sums = {z.batch, z.heads, z.sequence};
  std::vector<Operand> inputs = {normal("y", y, 1), normal("sums", sums, 2, 3),
                                 normal("other_y", y, 3), normal("other_sums", sums, 4, 3)};
  cases.push_back(make_case("merge_attention", OpKind::merge_attention, {}, inputs,
                            {blank("merged", y), blank("merged_sums", sums)}));
  constexpr double kUnseen = -std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < inputs[1].values.size(); ++i) {
    if (i % 3 == 0) inputs[1].values[i] = kUnseen;
    if (i % 4 == 0) inputs[3].values[i] = kUnseen;
  }
  cases.push_back(make_case("merge_attention/unseen", OpKind::merge_attention, {}, inputs,
                            {blank("merged", y), blank("merged_sums", sums)}));
}

/// visit(index in the packed tensor, which part, index in the part). The first part has so many of
/// the parts, or columns of each head.
template <class Visit>
void for_each_part(const Shape& packed, std::size_t of_first, Visit visit) {
  const bool columns = packed[1] == 1;
  const auto width = std::size_t(columns ? 1 : packed[2] * packed[3]);
  const auto parts = std::size_t(columns ? packed[3] : packed[1]);
  for (std::size_t n = 0; n < std::size_t(columns ? packed[0] * packed[2] : packed[0]); ++n) {
    for (std::size_t part = 0; part < parts; ++part) {
      const bool second = part >= of_first;
      const std::size_t row =
          second ? n * (parts - of_first) + part - of_first : n * of_first + part;
      for (std::size_t i = 0; i < width; ++i)
        visit((n * parts + part) * width + i, second, row * width + i);
    }
  }
}

/// The dimension along which parts of such a whole lie.
std::size_t dim_of_parts(const Shape& packed) { return packed[1] == 1 ? 3 : 1; }

void split_parts(const Operands& o) {
  const Shape& packed = o.c.input(0).shape;
  for_each_part(
      packed, o.out_dim(0, dim_of_parts(packed)),
      [&](std::size_t at, bool second, std::size_t i) { o.out(second ? 1 : 0)[i] = o.in(0)[at]; });
}

void join_parts(const Operands& o) {
  const Shape& packed = o.c.output(0).shape;
  for_each_part(
      packed, o.in_dim(0, dim_of_parts(packed)),
      [&](std::size_t at, bool second, std::size_t i) { o.out(0)[at] = o.in(second ? 1 : 0)[i]; });
}

/// Element (rank, row, i) of the grouped tensor is element (row, rank, i) of the plain one.
void exchange_heads(const Operands& o, bool groups) {
  const Shape& plain = groups ? o.c.input(0).shape : o.c.output(0).shape;
  const Shape& grouped = groups ? o.c.output(0).shape : o.c.input(0).shape;
  const auto ranks = std::size_t(grouped[0] / plain[0]);
  const auto rows = std::size_t(plain[0] * (plain.size() == 4 ? plain[1] : 1));
  const std::size_t width = o.in(0).size() / ranks / rows;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t i = 0; i < width; ++i) {
        const std::size_t in_plain = (row * ranks + rank) * width + i;
        const std::size_t in_grouped = (rank * rows + row) * width + i;
        o.out(0)[groups ? in_grouped : in_plain] = o.in(0)[groups ? in_plain : in_grouped];
      }
    }
  }
}

void merge_attention(const Operands& o) {
  const Numbers y = o.in(0), other = o.in(2);  // y is overwritten
  const std::size_t batch = o.in_dim(1, 0), heads = o.in_dim(1, 1), sequence = o.in_dim(1, 2);
  const std::size_t depth = o.in_dim(0, 1) / heads;
  for (std::size_t b = 0; b < batch; ++b) {
    for (std::size_t a = 0; a < heads; ++a) {
      for (std::size_t s = 0; s < sequence; ++s) {
        const std::size_t at = (b * heads + a) * sequence + s;
        const double first = std::exp(o.in(1)[at]), second = std::exp(o.in(3)[at]);
        const double sum = first + second;
        o.out(1)[at] = std::log(sum);
        for (std::size_t d = 0; d < depth; ++d) {
          const std::size_t i = ((b * sequence + s) * heads + a) * depth + d;
          o.out(0)[i] = sum > 0 ? (first * y[i] + second * other[i]) / sum : 0;
        }
      }
    }
  }
}

constexpr OpReference kReferences[] = {
    {OpKind::split_parts, split_parts},
    {OpKind::join_parts, join_parts},
    {OpKind::group_heads, [](const Operands& o) { exchange_heads(o, true); }},
    {OpKind::ungroup_heads, [](const Operands& o) { exchange_heads(o, false); }},
    {OpKind::merge_attention, merge_attention},
};

void add_cases(Cases& cases, const OpSizes& sizes) {
  add_parts(cases, sizes);
  add_groups(cases, sizes);
  add_merge(cases, sizes);
}

}  // namespace

const OpFamily kContextOps = {add_cases, kReferences};

}  // namespace plimsoll
