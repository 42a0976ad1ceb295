// Legality of ops beyond arity: shapes, dtypes and parameters of each kind.
#include <algorithm>
#include <numeric>
#include <string>

#include "graph/op_rows.h"

namespace plimsoll {

Verdict any_operands(const Op&, Tensors) { return Verdict::yes(); }

/// Every operand has the same number of elements and dtype.
Verdict elementwise(const Op& op, Tensors tensors) {
  const Tensor& first = out(op, tensors, 0);
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (elements(in(op, tensors, i).shape) != elements(first.shape)) {
      return Verdict::no("input " + std::to_string(i) + " and output 0 differ in size");
    }
    if (in(op, tensors, i).dtype != first.dtype) {
      return Verdict::no("input " + std::to_string(i) + " and output 0 differ in dtype");
    }
  }
  return Verdict::yes();
}

Verdict check_matmul(const Op& op, Tensors tensors) {
  const auto& params = std::get<MatmulParams>(op.params);
  const Shape& a = in(op, tensors, 0).shape;
  const Shape& b = in(op, tensors, 1).shape;
  const Shape& c = out(op, tensors, 0).shape;
  const auto least = std::size_t(params.batch_dims) + 2;
  if (params.batch_dims < 0 || a.size() < least || b.size() < least || c.size() < least) {
    return Verdict::no("operands need batch_dims + 2 dimensions");
  }
  if (params.scaled_by_rows && !is_fp8(compute_dtype(op, tensors)))
    return Verdict::no("rows have scales only in operands of 8 bits");
  for (std::size_t i = 0; i + 2 < least; ++i) {
    if (a[i] != b[i] || a[i] != c[i]) return Verdict::no("batch dimensions differ");
  }
  const auto rows = [&](const Shape& shape) { return shape[least - 2]; };
  const auto columns = [&](const Shape& shape) {
    std::int64_t product = 1;
    for (std::size_t i = least - 1; i < shape.size(); ++i) product *= shape[i];
    return product;
  };
  const std::int64_t m = params.transpose_a ? columns(a) : rows(a);
  const std::int64_t k = params.transpose_a ? rows(a) : columns(a);
  const std::int64_t k_of_b = params.transpose_b ? columns(b) : rows(b);
  const std::int64_t n = params.transpose_b ? rows(b) : columns(b);
  if (k != k_of_b) {
    return Verdict::no("inner dimensions differ: " + std::to_string(k) + " and " +
                       std::to_string(k_of_b));
  }
  if (rows(c) != m || columns(c) != n) return Verdict::no("output is not rows(a) x columns(b)");
  if (op.inputs.size() == 3 && elements(in(op, tensors, 2).shape) != n) {
    return Verdict::no("bias does not have one element per output column");
  }
  return Verdict::yes();
}

Verdict check_cast(const Op& op, Tensors tensors) {
  const Tensor &x = in(op, tensors, 0), &y = out(op, tensors, 0);
  const auto is_number = [](const Tensor& tensor) { return elements(tensor.shape) == 1; };
  if (is_number(x) && is_number(y) && (x.dtype == DType::i32) != (y.dtype == DType::i32))
    return Verdict::yes();  // a flag, for a collective and back
  if (!is_floating(x.dtype) || !is_floating(y.dtype))
    return Verdict::no("casts are between floating types");
  if (x.dtype == y.dtype) return Verdict::no("input and output have the same dtype");
  if (op.kind == OpKind::cast_parameters) {
    return elements(x.shape) <= elements(y.shape)
               ? Verdict::yes()
               : Verdict::no("masters are not a part of the parameters");
  }
  return elements(x.shape) == elements(y.shape) ? Verdict::yes()
                                                : Verdict::no("input and output differ in size");
}

Verdict check_host_copy(const Op& op, Tensors tensors) {
  const Tensor &from = in(op, tensors, 0), &to = out(op, tensors, 0);
  const bool outwards = row(op.kind).op_class == OpClass::to_host;
  const Tensor &device = outwards ? from : to, &host = outwards ? to : from;
  if (from.dtype != to.dtype && (!is_floating(from.dtype) || !is_floating(to.dtype)))
    return Verdict::no("copies are of one type, or between floating types");
  return elements(host.shape) <= elements(device.shape)
             ? Verdict::yes()
             : Verdict::no("the host's part is larger than the device's memory");
}

Verdict check_position(const Op& op, Tensors tensors) {
  const bool backward = op.kind == OpKind::position_add_backward;
  const Shape& x = in(op, tensors, 0).shape;
  const Shape& table = (backward ? out(op, tensors, 0) : in(op, tensors, 1)).shape;
  // Ranks that share sequences have as many rows of each, whichever share of the table that is.
  const bool whole = x.size() == 2 && table.size() == 2 && x[1] == table[1];
  if (!whole || (x[0] % table[0] != 0 && std::gcd(x[0], table[0]) == 1)) {
    return Verdict::no("x is not whole sequences of the table's rows");
  }
  return Verdict::yes();
}

Verdict check_own_part(const Op& op, Tensors tensors) {
  const Tensor &x = in(op, tensors, 0), &y = out(op, tensors, 0);
  if (!y.split || y.split->dim != 0) return Verdict::no("the output is not split by rows");
  Shape whole = y.shape;
  whole[0] *= y.split->degree;
  if (x.shape != whole || x.dtype != y.dtype) return Verdict::no("the output is not rows of x");
  return Verdict::yes();
}

Verdict check_squared_norm(const Op& op, Tensors tensors) {
  const Tensor& sum = out(op, tensors, 0);  // in a Graph, an entry of a list
  if (elements(sum.shape) != 1 && !sum.arena)
    return Verdict::no("the squared norm is not one number");
  return std::get<FlatParams>(op.params).shards >= 1 ? Verdict::yes()
                                                     : Verdict::no("shards are not positive");
}

Verdict check_flat(const Op& op, Tensors tensors) {
  return in(op, tensors, 0).dtype == out(op, tensors, 0).dtype
             ? Verdict::yes()
             : Verdict::no("input and output differ in dtype");
}

Verdict check_update(const Op& op, Tensors tensors) {
  const auto count = [&](std::size_t i) { return elements(in(op, tensors, i).shape); };
  const bool masters = in(op, tensors, 0).role == TensorRole::master_parameter;
  const auto* adam = std::get_if<AdamParams>(&op.params);
  if (adam != nullptr && adam->end > 0 && !in(op, tensors, 2).arena) {  // a part of the moments
    return count(2) == count(3) && count(2) == adam->end - adam->begin
               ? Verdict::yes()
               : Verdict::no("moments are not of the range that is updated");
  }
  if (adam != nullptr && adam->end > 0) {
    const bool fits = adam->begin >= 0 && count(1) <= adam->end - adam->begin &&
                      count(2) == count(3) && count(2) <= count(0);
    return fits ? Verdict::yes() : Verdict::no("gradients are not of the range that is updated");
  }
  if (masters && count(0) != count(2)) return Verdict::no("masters and moments differ in size");
  // A rank has the whole of either or its part, which has the moments' size, or a larger one, of
  // any share, where the host has the rest.
  const auto [part, whole] = std::minmax({count(0), count(1)});
  const std::int64_t parts = (whole + part - 1) / part;
  const bool shared = part == (whole + parts - 1) / parts;
  if (!masters && !shared && count(2) >= part && count(0) != count(2) && count(1) != count(2))
    return Verdict::no("parameters and gradients differ in size");
  // Moments lie between gradients and scalars, before their scales.
  const std::size_t state = op.inputs.size() - (op.kind == OpKind::adamw_8bit ? 4 : 3);
  if (count(2) != count(1 + state) || count(2) > count(1) || count(2) > count(0))
    return Verdict::no("moments are not one part of the parameters");
  if (op.kind == OpKind::lamb_norms && elements(out(op, tensors, 2).shape) % 2 != 0)
    return Verdict::no("norms are not two for every tensor");
  return Verdict::yes();
}

Verdict check_moment_scales(const Op& op, Tensors tensors) {
  const auto count = [&](std::size_t i) { return elements(in(op, tensors, i).shape); };
  const bool part = std::get<AdamParams>(op.params).end > 0 && !in(op, tensors, 2).arena;
  return count(4) == 2 * moment_blocks(count(2)) || (part && count(4) % 2 == 0)
             ? Verdict::yes()
             : Verdict::no("scales are not one for each block of both moments");
}

Verdict check_adafactor(const Op& op, Tensors tensors) {
  const auto& params = std::get<AdafactorParams>(op.params);
  if (params.rows < 1 || params.columns < 1 || params.copies < 1)
    return Verdict::no("rows, columns and copies must be positive");
  const bool sums = op.kind == OpKind::adafactor_sums;
  const std::size_t at = op.kind == OpKind::adafactor ? 2 : 1;
  const auto vector = [&](std::size_t i) {
    return elements((sums ? out(op, tensors, i) : in(op, tensors, at + i)).shape);
  };
  const std::int64_t rows = vector(0), columns = vector(1);
  if (elements(in(op, tensors, 0).shape) != rows * columns)
    return Verdict::no("the tensor is not rows by columns");
  // Rows of a part may be padding.
  return columns == params.columns || (params.columns % columns == 0 && rows == params.rows)
             ? Verdict::yes()
             : Verdict::no("rows or columns are not a part of the whole");
}

Verdict check_lamb(const Op& op, Tensors tensors) {
  const auto count = [&](std::size_t i) { return elements(in(op, tensors, i).shape); };
  if (count(1) != count(2) || count(1) > count(0))
    return Verdict::no("moments are not one part of the parameters");
  if (count(3) % 2 != 0) return Verdict::no("norms are not two for every tensor");
  return Verdict::yes();
}

Verdict check_logits(const Op& op, Tensors tensors) {
  const Shape& logits = in(op, tensors, 0).shape;
  const auto& params = std::get<VocabularyParams>(op.params);
  if (logits.back() * params.split_degree < params.vocabulary) {
    return Verdict::no("local vocabulary rows times split degree do not cover the vocabulary");
  }
  return Verdict::yes();
}

Verdict check_collective(const Op& op, Tensors tensors) {
  const auto& params = std::get<CollectiveParams>(op.params);
  if (params.group.axes.empty()) return Verdict::no("group has no axes");
  if (in(op, tensors, 0).dtype == DType::i32 && op.kind != OpKind::all_gather)
    return Verdict::no("only gathers work on whole numbers");
  if (params.root < 0) return Verdict::no("the root is not in the group");
  if (params.shift == 0) return Verdict::no("a ring is shifted by no rank");
  const bool parts = op.kind == OpKind::reduce_scatter || op.kind == OpKind::all_gather;
  if (!parts) return elementwise(op, tensors);
  const Tensor &x = in(op, tensors, 0), &y = out(op, tensors, 0);
  const bool scatters = op.kind == OpKind::reduce_scatter;
  const std::int64_t whole = elements((scatters ? x : y).shape);
  const std::int64_t part = elements((scatters ? y : x).shape);
  if (x.dtype != y.dtype) return Verdict::no("the part and the whole differ in dtype");
  return whole % part == 0 ? Verdict::yes() : Verdict::no("the whole is not of such parts");
}

Verdict check_tokens(const Op& op, Tensors tensors) {
  const auto& params = std::get<DataParams>(op.params);
  const std::int64_t tokens = elements(out(op, tensors, 0).shape);
  if (params.parts < 1 || params.ranks < 1 || tokens * params.parts % params.sequence != 0 ||
      tokens % params.ranks != 0) {
    return Verdict::no("tokens are not whole sequences");
  }
  return Verdict::yes();
}

Verdict check_rate(const Op& op, Tensors) {
  const double rate = std::get<DropoutParams>(op.params).rate;
  return rate > 0 && rate < 1 ? Verdict::yes() : Verdict::no("the rate is not between 0 and 1");
}

Verdict check_predicted(const Op& op, Tensors tensors) {
  const auto& params = std::get<DataParams>(op.params);
  const Tensor& ids = out(op, tensors, 0);
  if (params.predicted < 1 || params.predicted > params.sequence ||
      elements(ids.shape) % params.predicted != 0) {
    return Verdict::no("there are not as many as predicted positions in whole sequences");
  }
  return Verdict::yes();
}

Verdict check_token_types(const Op& op, Tensors tensors) {
  const bool backward = op.kind == OpKind::token_type_add_backward;
  const Shape& x = in(op, tensors, 0).shape;
  const Shape& table = (backward ? out(op, tensors, 0) : in(op, tensors, 1)).shape;
  const std::int64_t sequence = std::get<DataParams>(op.params).sequence;
  if (sequence < 1 || x[0] % sequence != 0) return Verdict::no("x is not whole sequences");
  return table[0] <= sequence ? Verdict::yes() : Verdict::no("more token types than positions");
}

Verdict check_dropout(const Op& op, Tensors tensors) {
  const Verdict rate = check_rate(op, tensors);
  return rate ? elementwise(op, tensors) : rate;
}

namespace {

bool is_wide(const Tensor& tensor) { return is_floating(tensor.dtype) && !is_fp8(tensor.dtype); }

}  // namespace

Verdict check_absolute_maximum(const Op& op, Tensors tensors) {
  return is_wide(in(op, tensors, 0)) ? Verdict::yes() : Verdict::no("x is not wider than 8 bits");
}

Verdict check_quantize(const Op& op, Tensors tensors) {
  const Tensor& x = in(op, tensors, 0);
  if (!is_wide(x)) return Verdict::no("x is not wider than 8 bits");
  if (op.inputs.size() == 2 && elements(in(op, tensors, 1).shape) != 1)
    return Verdict::no("the maximum is not one number");
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    const Tensor& y = out(op, tensors, i);
    if (!is_fp8(y.dtype)) return Verdict::no("output " + std::to_string(i) + " is not of 8 bits");
    if (y.dtype != out(op, tensors, 0).dtype) return Verdict::no("the outputs differ in dtype");
    if (elements(y.shape) != elements(x.shape))
      return Verdict::no("x and output " + std::to_string(i) + " differ in size");
  }
  return Verdict::yes();
}

Verdict check_packed(const Op& op, Tensors tensors) {
  const std::int64_t count = elements(out(op, tensors, 0).shape);
  return elements(in(op, tensors, 0).shape) ==
                 packed_bytes(count, std::get<PackParams>(op.params).nested)
             ? Verdict::yes()
             : Verdict::no("the bytes are not those of the weight's elements");
}

Verdict check_transpose(const Op& op, Tensors tensors) {
  const DType type = in(op, tensors, 0).dtype;
  return is_fp8(type) && type == out(op, tensors, 0).dtype
             ? Verdict::yes()
             : Verdict::no("input and output are not of one 8-bit type");
}

}  // namespace plimsoll
