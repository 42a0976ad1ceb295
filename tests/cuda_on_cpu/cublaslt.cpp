// Products of the emulation. An algorithm needs all the alignment that was promised when it was
// asked for, and is for that product alone.
#include "cublasLt.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <vector>

#include "runtime/cuda/library.h"
#include "runtime/half.h"

struct EmulatedHandle {};
struct EmulatedMatmul {
  std::int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
};
struct EmulatedLayout {
  cudaDataType_t type;
  std::int64_t rows, columns, leading;
  std::int32_t batch = 1;
  std::int64_t stride = 0;
};
struct EmulatedPreference {
  std::uint64_t workspace = 0;
  std::array<std::uint32_t, 4> alignments{256, 256, 256, 256};
};

namespace {

plimsoll::DType type_of(const EmulatedLayout& layout) {
  if (layout.type == CUDA_R_16BF) return plimsoll::DType::bf16;
  if (layout.type == CUDA_R_16F) return plimsoll::DType::f16;
  return plimsoll::DType::f32;
}

template <class T>
cublasStatus_t set(T& field, const void* value, std::size_t size) {
  if (size != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&field, value, size);
  return CUBLAS_STATUS_SUCCESS;
}

bool aligned(const void* address, std::uint32_t alignment) {
  return reinterpret_cast<std::uintptr_t>(address) % alignment == 0;
}

/// Element (row, column) of a matrix of the batch, as f32.
float element(const EmulatedLayout& layout, const void* base, std::int64_t batch, std::int64_t row,
              std::int64_t column) {
  const plimsoll::DType type = type_of(layout);
  const std::int64_t index = batch * layout.stride + column * layout.leading + row;
  float value = 0;
  plimsoll::to_f32(
      type, static_cast<const std::byte*>(base) + index * plimsoll::element_bytes(type), &value, 1);
  return value;
}

/// Row-major copy of op(matrix), so that the products below run along memory.
std::vector<float> rows_of(const EmulatedLayout& layout, const void* base, std::int64_t batch,
                           bool transposed) {
  const std::int64_t rows = transposed ? layout.columns : layout.rows;
  const std::int64_t columns = transposed ? layout.rows : layout.columns;
  std::vector<float> values;
  values.reserve(std::size_t(rows * columns));
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      values.push_back(transposed ? element(layout, base, batch, j, i)
                                  : element(layout, base, batch, i, j));
    }
  }
  return values;
}

struct Product {
  EmulatedMatmul matmul;
  EmulatedLayout a, b, c;
  float alpha, beta;

  std::int64_t rows() const { return matmul.transpose_a == CUBLAS_OP_T ? a.columns : a.rows; }
  std::int64_t inner() const { return matmul.transpose_a == CUBLAS_OP_T ? a.rows : a.columns; }
  std::int64_t columns() const { return matmul.transpose_b == CUBLAS_OP_T ? b.rows : b.columns; }
  std::int64_t inner_b() const { return matmul.transpose_b == CUBLAS_OP_T ? b.columns : b.rows; }
  bool fits() const {
    return inner() == inner_b() && c.rows == rows() && c.columns == columns() &&
           a.batch == c.batch && b.batch == c.batch;
  }

  /// A number for all that an algorithm is chosen for.
  std::uint64_t name() const {
    std::uint64_t result = 0;
    const auto add = [&](std::int64_t value) {
      result = (result ^ std::uint64_t(value)) * 0x100000001b3;  // FNV-1a, by words
    };
    for (const std::int64_t value :
         {std::int64_t(matmul.transpose_a), std::int64_t(matmul.transpose_b),
          std::int64_t(matmul.epilogue)})
      add(value);
    for (const EmulatedLayout& layout : {a, b, c}) {
      for (const std::int64_t value : {std::int64_t(layout.type), layout.rows, layout.columns,
                                       layout.leading, std::int64_t(layout.batch), layout.stride})
        add(value);
    }
    return result;
  }

  void run(const void* from_a, const void* from_b, const void* from_c, void* to) const {
    const plimsoll::DType type = type_of(c);
    for (std::int64_t batch = 0; batch < c.batch; ++batch) {
      const auto left = rows_of(a, from_a, batch, matmul.transpose_a == CUBLAS_OP_T);
      const auto right = rows_of(b, from_b, batch, matmul.transpose_b != CUBLAS_OP_T);
      for (std::int64_t column = 0; column < columns(); ++column) {
        for (std::int64_t row = 0; row < rows(); ++row) {
          float sum = 0;
          const float* x = left.data() + row * inner();
          const float* y = right.data() + column * inner();
          for (std::int64_t k = 0; k < inner(); ++k) sum += x[k] * y[k];
          float result = alpha * sum;
          if (beta != 0) result += beta * element(c, from_c, batch, row, column);
          if (matmul.epilogue == CUBLASLT_EPILOGUE_BIAS) {
            const EmulatedLayout vector{c.type, c.rows, 1, c.rows};
            result += element(vector, matmul.bias, 0, row, 0);
          }
          const std::int64_t index = batch * c.stride + column * c.leading + row;
          plimsoll::from_f32(type, &result,
                             static_cast<std::byte*>(to) + index * plimsoll::element_bytes(type),
                             1);
        }
      }
    }
  }
};

}  // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new EmulatedHandle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t,
                                        cudaDataType_t scale) {
  if (scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *description = new EmulatedMatmul;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  delete description;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t size) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(description->transpose_a, value, size);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(description->transpose_b, value, size);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set(description->epilogue, value, size);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set(description->bias, value, size);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t leading) {
  if (leading < std::int64_t(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  *layout = new EmulatedLayout{type, std::int64_t(rows), std::int64_t(columns), leading};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, std::size_t size) {
  return attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT ? set(layout->batch, value, size)
                                                         : set(layout->stride, value, size);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new EmulatedPreference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t size) {
  std::uint32_t reduction = 0;
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
    return set(preference->workspace, value, size);
  }
  if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) return set(reduction, value, size);
  const auto operand =
      std::size_t(attribute) - std::size_t(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
  return set(preference->alignments[operand], value, size);
}

// Takes some of the workspace, so that a test sees who else relies on it.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* count) {
  if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  constexpr std::size_t kWanted = 4096;
  cublasLtMatmulHeuristicResult_t& result = results[0];
  std::copy(preference->alignments.begin(), preference->alignments.end(), result.algo.alignments);
  result.algo.product = Product{*description, *a, *b, *c, 0, 0}.name();
  result.algo.workspace = preference->workspace < kWanted ? 0 : kWanted;
  result.workspaceSize = result.algo.workspace;
  result.state = CUBLAS_STATUS_SUCCESS;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, std::size_t workspace_size, cudaStream_t stream) {
  Product product{*description, *a_layout, *b_layout, *c_layout, 0, 0};
  std::memcpy(&product.alpha, alpha, sizeof(float));
  std::memcpy(&product.beta, beta, sizeof(float));
  const bool same = d_layout->type == c_layout->type && d_layout->rows == c_layout->rows &&
                    d_layout->leading == c_layout->leading;
  const std::array<const void*, 4> addresses{a, b, c, d};
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    if (!aligned(addresses[i], algo->alignments[i])) return CUBLAS_STATUS_INVALID_VALUE;
  }
  // The epilogue loads the bias as wide as it stores the result.
  const bool biased = description->epilogue == CUBLASLT_EPILOGUE_BIAS;
  if ((biased && !aligned(description->bias, algo->alignments[3])) ||
      algo->product != product.name()) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (!same || !product.fits() || workspace_size < algo->workspace || !aligned(workspace, 256)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  cuda_on_cpu::enqueue(stream, [=, used = algo->workspace] {
    if (used > 0) std::memset(workspace, 0xFF, used);
    product.run(a, b, c, d);
  });
  return CUBLAS_STATUS_SUCCESS;
}

namespace plimsoll {

const CublasLt& cublaslt() {
  static const CublasLt functions{cublasLtCreate,
                                  cublasLtDestroy,
                                  cublasLtMatmulDescCreate,
                                  cublasLtMatmulDescDestroy,
                                  cublasLtMatmulDescSetAttribute,
                                  cublasLtMatrixLayoutCreate,
                                  cublasLtMatrixLayoutDestroy,
                                  cublasLtMatrixLayoutSetAttribute,
                                  cublasLtMatmulPreferenceCreate,
                                  cublasLtMatmulPreferenceDestroy,
                                  cublasLtMatmulPreferenceSetAttribute,
                                  cublasLtMatmulAlgoGetHeuristic,
                                  cublasLtMatmul};
  return functions;
}

}  // namespace plimsoll
