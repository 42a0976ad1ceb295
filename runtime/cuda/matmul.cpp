// Products by cuBLASLt. Its matrices are column-major: a row-major matrix is its transpose there,
// so c = a b of rows is c^T = b^T a^T of columns, and the operands change places.
// https://docs.nvidia.com/cuda/cublas/#cublasltmatmul
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/error.h"
#include "graph/op_table.h"
#include "runtime/cuda/kernels.h"
#include "runtime/cuda/library.h"
#include "runtime/cuda/movement.h"

namespace plimsoll {

namespace {

void check(cublasStatus_t status, std::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw EnvironmentError(fmt::format("cuBLASLt: {}: status {}", what, int(status)));
}

cudaDataType_t data_type(DType type) {
  if (type == DType::bf16) return CUDA_R_16BF;
  if (type == DType::f16) return CUDA_R_16F;
  INVARIANT(type == DType::f32, "products are of floating values");
  return CUDA_R_32F;
}

/// The library's handle of the calling thread, which is its rank's.
cublasLtHandle_t handle() {
  struct Owner {
    cublasLtHandle_t handle = nullptr;
    Owner() { check(cublaslt().create(&handle), "a handle"); }
    ~Owner() { static_cast<void>(cublaslt().destroy(handle)); }
    Owner(const Owner&) = delete;
    Owner& operator=(const Owner&) = delete;
  };
  thread_local const Owner owner;
  return owner.handle;
}

/// A batch of dense row-major matrices as they are stored, rows x columns.
class Layout {
 public:
  Layout(DType type, std::int64_t batch, std::int64_t rows, std::int64_t columns) {
    check(cublaslt().layout_create(&layout_, data_type(type), std::uint64_t(columns),
                                   std::uint64_t(rows), columns),
          "a layout");
    if (batch == 1) return;
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, std::int32_t(batch));
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, std::int64_t{rows * columns});
  }
  ~Layout() { static_cast<void>(cublaslt().layout_destroy(layout_)); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  template <class T>
  void set(cublasLtMatrixLayoutAttribute_t attribute, T value) {
    check(cublaslt().layout_set(layout_, attribute, &value, sizeof(value)), "a layout");
  }
  cublasLtMatrixLayout_t layout_ = nullptr;
};

/// The type of the computation. f32 products stay f32 (CUBLAS_COMPUTE_32F, never TF32); those of
/// 16-bit values are summed in f32 by tensor cores.
class Description {
 public:
  Description(const MatmulParams& params, bool adds_bias) {
    check(cublaslt().matmul_desc_create(&description_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
          "a description");
    // The operands have changed places.
    set(CUBLASLT_MATMUL_DESC_TRANSA, std::int32_t(params.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N));
    set(CUBLASLT_MATMUL_DESC_TRANSB, std::int32_t(params.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N));
    if (adds_bias) set(CUBLASLT_MATMUL_DESC_EPILOGUE, std::uint32_t(CUBLASLT_EPILOGUE_BIAS));
  }
  ~Description() { static_cast<void>(cublaslt().matmul_desc_destroy(description_)); }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;
  cublasLtMatmulDesc_t get() const { return description_; }

  /// As long as the result's columns here (its rows there), and of its type.
  void set_bias(const void* bias) { set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias); }

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    check(cublaslt().matmul_desc_set(description_, attribute, &value, sizeof(value)),
          "a description");
  }
  cublasLtMatmulDesc_t description_ = nullptr;
};

class Preference {
 public:
  Preference() { check(cublaslt().preference_create(&preference_), "a preference"); }
  ~Preference() { static_cast<void>(cublaslt().preference_destroy(preference_)); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  cublasLtMatmulPreference_t get() const { return preference_; }
  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
    check(cublaslt().preference_set(preference_, attribute, &value, sizeof(value)), "a preference");
  }

 private:
  cublasLtMatmulPreference_t preference_ = nullptr;
};

/// The largest power of two up to 256, the most the library asks for, that divides an address.
std::uint32_t alignment_of(const void* address) {
  constexpr std::uintptr_t kMostAlignment = 256;
  const auto value = reinterpret_cast<std::uintptr_t>(address) | kMostAlignment;
  return std::uint32_t(value & (~value + 1));
}

/// The part of the workspace that starts where the library wants it to.
std::span<std::byte> aligned_workspace(std::span<std::byte> workspace) {
  constexpr std::uintptr_t kAlignment = 256;
  const auto begin = reinterpret_cast<std::uintptr_t>(workspace.data());
  const std::uintptr_t skip = (kAlignment - begin % kAlignment) % kAlignment;
  return skip < workspace.size() ? workspace.subspan(skip) : std::span<std::byte>();
}

class MatmulKernel final : public Kernel {
 public:
  explicit MatmulKernel(const CudaRequest& request)
      : device_(request.device),
        workspace_(aligned_workspace(request.device.workspace)),
        shape_(matmul_shape(request.op, request.tensors)),
        params_(request.params<MatmulParams>()),
        result_(request.output(0).dtype),
        bias_(request.op.inputs.size() == 3 ? std::optional(request.input(2).dtype) : std::nullopt),
        fuses_bias_(bias_ == result_),
        description_(params_, fuses_bias_),
        a_(request.input(0).dtype, shape_.batch, params_.transpose_a ? shape_.k : shape_.m,
           params_.transpose_a ? shape_.m : shape_.k),
        b_(request.input(1).dtype, shape_.batch, params_.transpose_b ? shape_.n : shape_.k,
           params_.transpose_b ? shape_.k : shape_.n),
        c_(result_, shape_.batch, shape_.m, shape_.n) {}

  void run(DeviceAddresses in, DeviceAddresses out, const RunPosition&) override {
    if (fuses_bias_) description_.set_bias(in[2]);
    const auto scale = float(params_.scale), keep = params_.accumulate ? 1.0f : 0.0f;
    const cublasLtMatmulAlgo_t& algorithm = algorithm_for(in, out);
    check(cublaslt().matmul(handle(), description_.get(), &scale, in[1], b_.get(), in[0], a_.get(),
                            &keep, out[0], c_.get(), out[0], c_.get(), &algorithm,
                            workspace_.data(), workspace_.size(), device_.stream),
          name());
    // Where the types differ the library has no such epilogue.
    if (bias_ && !fuses_bias_) {
      add_to_rows(device_, result_, out[0], shape_.batch * shape_.m, shape_.n, *bias_, in[2]);
    }
  }

  Flops flops() const override {
    return Flops(2.0 * double(shape_.batch * shape_.m) * double(shape_.n) * double(shape_.k));
  }

 private:
  /// The types of a, b, c and the bias.
  using Alignments = std::array<std::uint32_t, 4>;
  struct ChosenAlgorithm {
    Alignments alignments;
    cublasLtMatmulAlgo_t algorithm;
  };

  std::string name() const {
    return fmt::format("a product of {} x ({} x {}) ({} x {})", shape_.batch, shape_.m, shape_.k,
                       shape_.k, shape_.n);
  }

  /// Flat arenas align tensors to their elements only, so calls of one kernel may differ in what
  /// they allow; each case is asked for once, in the first step.
  const cublasLtMatmulAlgo_t& algorithm_for(DeviceAddresses in, DeviceAddresses out) {
    const Alignments alignments{alignment_of(in[0]), alignment_of(in[1]), alignment_of(out[0]),
                                fuses_bias_ ? alignment_of(in[2]) : 0};
    for (const ChosenAlgorithm& choice : chosen_algorithms_) {
      if (choice.alignments == alignments) return choice.algorithm;
    }
    chosen_algorithms_.push_back({alignments, choose(alignments)});
    return chosen_algorithms_.back().algorithm;
  }

  cublasLtMatmulAlgo_t choose(const Alignments& alignments) const {
    Preference preference;
    preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t(workspace_.size()));
    // Parts of a product that is split along k are added in f32 and rounded once.
    preference.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                   std::uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignments[1]);
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignments[0]);
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignments[2]);
    // The epilogue loads the bias as wide as it stores the result.
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
                   fuses_bias_ ? std::min(alignments[2], alignments[3]) : alignments[2]);
    std::array<cublasLtMatmulHeuristicResult_t, 8> found = {};
    int count = 0;
    check(cublaslt().heuristic(handle(), description_.get(), b_.get(), a_.get(), c_.get(), c_.get(),
                               preference.get(), int(found.size()), found.data(), &count),
          name());
    const auto usable = [&](const cublasLtMatmulHeuristicResult_t& result) {
      return result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= workspace_.size();
    };
    const auto* const end = found.data() + count;
    const auto* const best = std::find_if(
        static_cast<const cublasLtMatmulHeuristicResult_t*>(found.data()), end, usable);
    if (best == end) {
      throw EnvironmentError(fmt::format(
          "cuBLASLt has no algorithm for {} in {} bytes of workspace", name(), workspace_.size()));
    }
    return best->algo;
  }

  const CudaDevice& device_;
  std::span<std::byte> workspace_;
  MatmulShape shape_;
  MatmulParams params_;
  DType result_;
  std::optional<DType> bias_;
  bool fuses_bias_;
  Description description_;
  Layout a_, b_, c_;
  std::vector<ChosenAlgorithm> chosen_algorithms_;
};

}  // namespace

CudaKernelPointer prepare_matmul(const CudaRequest& request) {
  return std::make_unique<MatmulKernel>(request);
}

}  // namespace plimsoll
