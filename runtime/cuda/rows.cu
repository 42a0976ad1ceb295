// Rows that are looked up, or to which a row of a table is added: embedding, gather, bias,
// positions, token types.
#include "runtime/batch_place.h"
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/storage.h"

namespace plimsoll {

namespace {

/// y[to(row)] = x[from(row)], or zeros where from(row) is -1. `words`: of one row.
template <class Word, class From, class To>
__global__ void copy_rows(std::int64_t rows, std::int64_t words, From from, To to, const Word* x,
                          Word* y) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const std::int64_t source = from(row), target = to(row);
    for (std::int64_t i = threadIdx.x; i < words; i += blockDim.x)
      y[target * words + i] = source < 0 ? Word{} : x[source * words + i];
  }
}

struct Identity {
  __device__ std::int64_t operator()(std::int64_t row) const { return row; }
};
struct Indexed {
  const std::int32_t* ids;
  __device__ std::int64_t operator()(std::int64_t row) const { return ids[row]; }
};
/// Rows [first, first + count) of a vocabulary that may be split over mp.
struct TableRow {
  const std::int32_t* ids;
  std::int64_t first, count;
  __device__ std::int64_t operator()(std::int64_t row) const {
    const std::int64_t local = ids[row] - first;
    return local >= 0 && local < count ? local : -1;
  }
};

template <class From, class To>
void launch_copy(const CudaDevice& device, std::int64_t rows, std::int64_t row_bytes, From from,
                 To to, const std::byte* x, std::byte* y) {
  const auto start = [&](auto word) {
    using Word = decltype(word);
    const std::int64_t words = row_bytes / std::int64_t(sizeof(Word));
    const int threads = int(std::clamp<std::int64_t>((words + 31) / 32 * 32, 32, kThreads));
    launch(device.stream, blocks_for(device, rows * threads, threads), threads, 0,
           copy_rows<Word, From, To>, rows, words, from, to, reinterpret_cast<const Word*>(x),
           reinterpret_cast<Word*>(y));
  };
  with_word(aligned({x, y}, row_bytes), start);
}

// A row of x gets a row of the table added.
struct SameRow {
  __device__ std::int64_t operator()(std::int64_t) const { return 0; }
};
struct PositionRow {
  SequencePart part;
  ExampleTable examples;  ///< each begins with the first row
  __device__ std::int64_t operator()(std::int64_t row) const {
    const std::int64_t of = row / part.tokens;
    const std::int64_t position = examples.position(part, of, row % part.tokens);
    return examples.reads() ? position - examples.begin(of, position) : position;
  }
};
struct TypeRow {
  std::int64_t sequence, types;
  __device__ std::int64_t operator()(std::int64_t row) const {
    return row % sequence * types / sequence;
  }
};

/// y = x + table[of(row)]. A thread keeps its columns; blockIdx.y walks over the rows.
template <int kCount, class T, class Of>
__global__ void add_table(std::int64_t rows, std::int64_t columns, Of of, const T* x,
                          const T* table, T* y) {
  const std::int64_t column = global_thread() * kCount;
  if (column >= columns) return;
#pragma unroll 4
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    float values[kCount], more[kCount];
    load(x + row * columns + column, values);
    load(table + of(row) * columns + column, more);
#pragma unroll
    for (int j = 0; j < kCount; ++j) values[j] += more[j];
    store(y + row * columns + column, values);
  }
}

template <class Of>
CudaKernelPointer prepare_add_table(const CudaRequest& request, std::int64_t columns, Of of) {
  const CudaDevice& device = request.device;
  const std::int64_t rows = request.input_elements(0) / columns;
  return make_typed_kernel(request.output(0).dtype, [=, &device](auto zero, auto in, auto out) {
    using T = decltype(zero);
    const T *x = input_at<T>(in, 0), *table = input_at<T>(in, 1);
    T* y = output_at<T>(out, 0);
    const bool wide = aligned({x, table, y}, columns * std::int64_t(sizeof(T)));
    const std::int64_t packs = wide ? columns / kPack<T> : columns;
    const int threads = int(std::clamp<std::int64_t>((packs + 31) / 32 * 32, 32, kThreads));
    const auto across = unsigned((packs + threads - 1) / threads);
    const unsigned all = blocks_for(device, rows * across * threads, threads);
    const unsigned down = std::clamp(all / across, 1u, 65535u);
    launch(device.stream, dim3(across, down), threads, 0,
           wide ? add_table<kPack<T>, T, Of> : add_table<1, T, Of>, rows, columns, of, x, table, y);
  });
}

}  // namespace

CudaKernelPointer prepare_embedding(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const Shape& table = request.input(1).shape;
  const bool split = request.params<VocabularyParams>().split_degree > 1;
  const std::int64_t part = split ? request.context.at[std::size_t(Axis::mp)] : 0;
  const std::int64_t tokens = request.input_elements(0), rows = table[0];
  const std::int64_t bytes = table[1] * bytes_of(request.output(0).dtype).count();
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    const TableRow from{input_at<std::int32_t>(in, 0), part * rows, rows};
    launch_copy(device, tokens, bytes, from, Identity{}, in[1], out[0]);
  });
}

CudaKernelPointer prepare_gather_rows(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const Tensor& y = request.output(0);
  const std::int64_t rows = y.shape[0], bytes = y.shape[1] * bytes_of(y.dtype).count();
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    launch_copy(device, rows, bytes, Indexed{input_at<std::int32_t>(in, 1)}, Identity{}, in[0],
                out[0]);
  });
}

// Positions differ, so nothing is added up.
CudaKernelPointer prepare_gather_rows_backward(const CudaRequest& request) {
  const CudaDevice& device = request.device;
  const Tensor& dy = request.input(0);
  const std::int64_t rows = dy.shape[0], bytes = dy.shape[1] * bytes_of(dy.dtype).count();
  const auto all = std::size_t(bytes_of(request.output(0)).count());
  return make_cuda_kernel([=, &device](DeviceAddresses in, DeviceAddresses out) {
    check(cudaMemsetAsync(out[0], 0, all, device.stream), "gather_rows_backward");
    launch_copy(device, rows, bytes, Identity{}, Indexed{input_at<std::int32_t>(in, 1)}, in[0],
                out[0]);
  });
}

CudaKernelPointer prepare_bias_add(const CudaRequest& request) {
  return prepare_add_table(request, request.input_elements(1), SameRow{});
}

CudaKernelPointer prepare_position_add(const CudaRequest& request) {
  const Shape& table = request.input(1).shape;
  SequencePart part = own_tokens(request.context, table[0]);
  part.tokens = table[0] / part.ranks;
  return prepare_add_table(request, table[1], PositionRow{part, request.device.examples});
}

CudaKernelPointer prepare_token_type_add(const CudaRequest& request) {
  const Shape& table = request.input(1).shape;
  const std::int64_t sequence = request.params<DataParams>().sequence;
  return prepare_add_table(request, table[1], TypeRow{sequence, table[0]});
}

}  // namespace plimsoll
