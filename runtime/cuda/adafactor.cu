// The update of Adafactor (Shazeer & Stern 2018, arXiv 1804.04235, algorithm 4): sums over rows and
// columns, the norm of directions, and the update by it.
#include "runtime/adafactor.h"
#include "runtime/cuda/reduce.h"
#include "runtime/cuda/update.h"

namespace plimsoll {

namespace {

/// The operands that kernels of one tensor share. Blocks take its rows in turn.
struct Factored {
  FactoredPart part;
  Stored gradients;
  const float* scalars = nullptr;
  float *rows = nullptr, *columns = nullptr;  ///< their means

  __device__ float factor() const { return part.clipped ? 1 : scalar(scalars, Scalar::clip); }
  __device__ bool skips() const { return scalar(scalars, Scalar::found) != 0; }

  /// Returns the mean of all squares. All threads of a block call it.
  __device__ double mean() const {
    const float* const means = part.whole_columns ? columns : rows;
    const std::int64_t count = part.whole_columns ? part.columns : part.rows;
    double sum = 0;
    for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += double(means[i]);
    return block_sum(sum) * part.mean_share;
  }

  /// Calls work(element, g factor / sqrt(C)) for the elements of a row.
  template <class Work>
  __device__ void for_each_element(std::int64_t row, float factor, Work work) const {
    for (std::int64_t i = threadIdx.x; i < part.columns; i += blockDim.x) {
      const std::int64_t at = row * part.columns + i;
      work(at, factor * load_any(gradients.type, gradients.at, at) / sqrtf(columns[i]));
    }
  }
  __device__ float factor_of(std::int64_t row, double mean) const {
    return float(factor() / sqrt(rows[row] / mean));
  }
};

__global__ void add_row_squares(Factored f, float* sums) {
  const float factor = f.factor();
  for (std::int64_t row = blockIdx.x; row < f.part.rows; row += gridDim.x) {
    double sum = 0;
    for (std::int64_t i = threadIdx.x; i < f.part.columns; i += blockDim.x) {
      const double g =
          factor * load_any(f.gradients.type, f.gradients.at, row * f.part.columns + i);
      sum += g * g + kLeastSquare;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) sums[row] = float(sum);
  }
}

constexpr int kSquareLanes = 32;  // columns of a block, of as many rows at once

__global__ void add_column_squares(Factored f, float* sums) {
  const int lane = int(threadIdx.x) % kSquareLanes, member = int(threadIdx.x) / kSquareLanes;
  const std::int64_t column = std::int64_t(blockIdx.x) * kSquareLanes + lane;
  const float factor = f.factor();
  double sum = 0;
  for (std::int64_t row = member; row < f.part.rows && column < f.part.columns;
       row += kSquareLanes) {
    const double g =
        factor * load_any(f.gradients.type, f.gradients.at, row * f.part.columns + column);
    sum += g * g + kLeastSquare;
  }
  __shared__ double of_members[kSquareLanes][kSquareLanes + 1];
  of_members[member][lane] = sum;
  __syncthreads();
  sum = warp_sum(of_members[lane][member]);  // of column `member`
  const std::int64_t summed = std::int64_t(blockIdx.x) * kSquareLanes + member;
  if (lane == 0 && summed < f.part.columns) sums[summed] = float(sum);
}

/// Moves the means of rows, and behind them those of columns.
__global__ void move_means(Factored f, const float* row_sums, const float* column_sums) {
  const double added = f.skips() ? 0 : new_share(scalar(f.scalars, Scalar::step));
  for (std::int64_t i = global_thread(); added > 0 && i < f.part.rows + f.part.columns;
       i += global_threads()) {
    const std::int64_t column = i - f.part.rows;
    float& mean = column < 0 ? f.rows[i] : f.columns[column];
    const double now =
        column < 0 ? f.part.row_share * row_sums[i] : f.part.column_share * column_sums[column];
    mean = float((1 - added) * mean + added * now);
  }
}

/// partial[block] = the sum of squares of its directions g / sqrt(R C / mean).
__global__ void square_directions(Factored f, double* partial) {
  const double mean = f.mean();
  double sum = 0;
  for (std::int64_t row = blockIdx.x; row < f.part.rows && !f.skips(); row += gridDim.x) {
    f.for_each_element(row, f.factor_of(row, mean), [&](std::int64_t, float direction) {
      sum += double(direction) * double(direction);
    });
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void add_norm(FactoredPart part, unsigned blocks, const double* partial, float* norm) {
  double sum = 0;
  for (unsigned i = threadIdx.x; i < blocks; i += blockDim.x) sum += partial[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *norm = float(sum * part.norm_share);
}

struct FactoredRule {
  double rate, decay;
  RateSchedule rates;
};

/// Moves parameters, or masters that are then written as parameters.
__global__ void move_along(Factored f, FactoredRule rule, const float* norm, Stored p,
                           Stored cast) {
  const double mean = f.mean(), rate = learning_rate(rule, f.scalars);
  const double length = sqrt(double(*norm) * f.part.square_share);
  const auto keep = float(1 - rate * rule.decay), step = float(rate / (length > 1 ? length : 1));
  const bool skips = f.skips();
  for (std::int64_t row = blockIdx.x; row < f.part.rows; row += gridDim.x) {
    f.for_each_element(row, f.factor_of(row, mean), [&](std::int64_t i, float direction) {
      const float before = load_any(p.type, p.at, i);
      const float after = skips ? before : keep * before - step * direction;
      store_any(p.type, p.at, i, after);
      if (cast.at != nullptr) store_any(cast.type, cast.at, i, after);
    });
  }
}

/// Returns what the kernels of an op share, without addresses.
Factored factored(const CudaRequest& request, std::size_t gradient, std::int64_t rows,
                  std::int64_t columns) {
  return {FactoredPart(request.params<AdafactorParams>(), rows, columns),
          {nullptr, request.input(gradient).dtype}};
}

/// In place, unless a caller keeps two copies: then the whole tensor is copied first.
void copy_first(const CudaDevice& device, const std::byte* from, std::byte* to, Bytes bytes) {
  if (from == to) return;
  check(cudaMemcpyAsync(to, from, std::size_t(bytes.count()), cudaMemcpyDeviceToDevice,
                        device.stream),
        "adafactor");
}

}  // namespace

CudaKernelPointer prepare_adafactor_sums(const CudaRequest& request) {
  const std::int64_t rows = request.output_elements(0), columns = request.output_elements(1);
  const CudaDevice* const device = &request.device;
  return make_cuda_kernel(
      [=, f = factored(request, 0, rows, columns)](DeviceAddresses in, DeviceAddresses out) {
        Factored now = f;
        now.gradients.at = in[0];
        now.scalars = input_at<float>(in, 1);
        launch(device->stream, blocks_for(*device, rows * kThreads), kThreads, 0, add_row_squares,
               now, output_at<float>(out, 0));
        launch(device->stream, unsigned((columns + kSquareLanes - 1) / kSquareLanes),
               kSquareLanes * kSquareLanes, 0, add_column_squares, now, output_at<float>(out, 1));
      });
}

CudaKernelPointer prepare_adafactor_norm(const CudaRequest& request) {
  const std::int64_t rows = request.input_elements(3), columns = request.input_elements(4);
  const CudaDevice* const device = &request.device;
  const unsigned blocks = blocks_for(*device, rows * kThreads);
  double* const partial = DeviceScratch(request).take_values<double>(blocks);
  return make_cuda_kernel(
      [=, f = factored(request, 0, rows, columns)](DeviceAddresses in, DeviceAddresses out) {
        copy_first(*device, in[3], out[0], rows * bytes_of(DType::f32));
        copy_first(*device, in[4], out[1], columns * bytes_of(DType::f32));
        Factored now = f;
        now.gradients.at = in[0];
        now.scalars = input_at<float>(in, 5);
        now.rows = output_at<float>(out, 0);
        now.columns = output_at<float>(out, 1);
        launch(device->stream, blocks_for(*device, rows + columns), kThreads, 0, move_means, now,
               input_at<float>(in, 1), input_at<float>(in, 2));
        launch(device->stream, blocks, kThreads, 0, square_directions, now, partial);
        launch(device->stream, 1, kThreads, 0, add_norm, now.part, blocks, partial,
               output_at<float>(out, 2));
      });
}

CudaKernelPointer prepare_adafactor(const CudaRequest& request) {
  const auto& params = request.params<AdafactorParams>();
  const std::int64_t rows = request.input_elements(2), columns = request.input_elements(3);
  const FactoredRule rule{params.learning_rate, params.weight_decay, request.context.rates};
  const CudaDevice* const device = &request.device;
  const Tensor parameters = request.output(0);
  const bool casts = updates_parameters(request.op);
  const DType cast_type = casts ? request.output(1).dtype : DType::f32;
  return make_cuda_kernel(
      [=, f = factored(request, 1, rows, columns)](DeviceAddresses in, DeviceAddresses out) {
        copy_first(*device, in[0], out[0], bytes_of(parameters));
        Factored now = f;
        now.gradients.at = in[1];
        now.scalars = input_at<float>(in, 5);
        now.rows = output_at<float>(in, 2);
        now.columns = output_at<float>(in, 3);
        launch(device->stream, blocks_for(*device, rows * kThreads), kThreads, 0, move_along, now,
               rule, input_at<float>(in, 4), Stored{out[0], parameters.dtype},
               Stored{casts ? out[1] : nullptr, cast_type});
      });
}

}  // namespace plimsoll
