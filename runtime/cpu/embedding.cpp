// Token and position embeddings and their gradients: loops over rows.
#include <cstring>

#include "runtime/batch_place.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/storage.h"
#include "runtime/cpu/vectorize.h"
#include "runtime/example_reader.h"

namespace plimsoll {

namespace {

/// This rank's rows of a vocabulary that may be split over mp.
struct TableRows {
  std::int64_t first, rows, columns;
  /// Row of token `id` here, or -1.
  std::int64_t local(std::int32_t id) const {
    const std::int64_t row = id - first;
    return row >= 0 && row < rows ? row : -1;
  }
};

TableRows table_rows(const KernelRequest& request, const Tensor& table) {
  const bool split = request.params<VocabularyParams>().split_degree > 1;
  const std::int64_t part = split ? request.context.at[std::size_t(Axis::mp)] : 0;
  return {part * table.shape[0], table.shape[0], table.shape[1]};
}

}  // namespace

KernelPointer prepare_embedding(const KernelRequest& request) {
  const TableRows rows = table_rows(request, request.input(1));
  const std::int64_t tokens = request.input_elements(0);
  const std::int64_t bytes = rows.columns * element_bytes(request.output(0).dtype);
  return make_kernel([rows, tokens, bytes](Addresses in, Addresses out, const RunPosition&) {
    for (std::int64_t i = 0; i < tokens; ++i) {
      const std::int64_t row = rows.local(ids(in, 0)[i]);
      std::byte* x = out[0] + i * bytes;
      if (row < 0) {
        std::memset(x, 0, std::size_t(bytes));
      } else {
        std::memcpy(x, in[1] + row * bytes, std::size_t(bytes));
      }
    }
  });
}

KernelPointer prepare_embedding_backward(const KernelRequest& request) {
  const TableRows rows = table_rows(request, request.output(0));
  const std::int64_t tokens = request.input_elements(1);
  Scratch scratch(request);
  const Rows dx(request.input(0), {tokens, rows.columns, 1}, scratch),
      gradient(request.output(0), {rows.rows, rows.columns, 1}, scratch);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition&) {
    for (std::int64_t i = 0; i < tokens; ++i) {
      const std::int64_t row = rows.local(ids(in, 1)[i]);
      if (row < 0) continue;
      gradient.add(out[0], row, dx.read(in[0], i, 1), 1);
    }
  });
}

namespace {

/// Position tables: each sequence runs over the rows of the table that its tokens here have, and
/// each example begins with the first row.
struct Positions {
  SequencePart part;
  std::int64_t sequences;
  RowBlocks blocks{};  ///< of one chunk of a sequence
  ExampleReader examples;
  Positions(const KernelRequest& request, const Tensor& x, const Tensor& table)
      : part(own_tokens(request.context, 0)),
        sequences(elements(x.shape) * part.ranks / elements(table.shape)),
        examples(request.context) {
    part.tokens = table.shape[0] / part.ranks;
    blocks = RowBlocks::for_type(x.dtype, part.chunk(), table.shape[1]);
  }
  /// visit(row of x, row of the table, rows)
  template <class Visit>
  void each(const RunPosition& run, Visit visit) {
    examples.read(run);
    const std::int64_t step = examples.reads() ? 1 : blocks.rows;
    for (std::int64_t row = 0; row < sequences * part.tokens; row += step) {
      if (examples.reads()) {
        const std::int64_t of = row / part.tokens;
        const std::int64_t position = examples.position(part, of, row % part.tokens);
        visit(row, position - examples.begin(of, position), step);
        continue;
      }
      const std::int64_t position = part.position(row % part.tokens);
      blocks.each([&](std::int64_t first, std::int64_t count) {
        visit(row + first, position + first, count);
      });
    }
  }
};

}  // namespace

KernelPointer prepare_position_add(const KernelRequest& request) {
  Positions positions(request, request.input(0), request.input(1));
  Scratch scratch(request);
  const Rows x(request.input(0), positions.blocks, scratch),
      table(request.input(1), positions.blocks, scratch),
      y(request.output(0), positions.blocks, scratch);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition& run) mutable {
    positions.each(run, [&](std::int64_t row, std::int64_t position, std::int64_t count) {
      add_rows(x.read(in[0], row, count), table.read(in[1], position, count), y.target(out[0], row),
               count * positions.blocks.columns);
      y.store(out[0], row, count);
    });
  });
}

KernelPointer prepare_position_add_backward(const KernelRequest& request) {
  Positions positions(request, request.input(0), request.output(0));
  Scratch scratch(request);
  const Rows dy(request.input(0), positions.blocks, scratch),
      gradient(request.output(0), positions.blocks, scratch);
  return make_kernel([=](Addresses in, Addresses out, const RunPosition& run) mutable {
    positions.each(run, [&](std::int64_t row, std::int64_t position, std::int64_t count) {
      gradient.add(out[0], position, dy.read(in[0], row, count), count);
    });
  });
}

}  // namespace plimsoll
