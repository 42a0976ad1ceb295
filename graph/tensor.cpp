// Sizes of tensors are computed, and the names of their enumerations listed.
#include "graph/tensor.h"

#include "base/error.h"
#include "graph/names.h"

namespace plimsoll {

namespace {
constexpr std::array<std::string_view, 7> kDTypes = {"f32", "bf16", "f16", "i32",
                                                     "u8",  "e4m3", "e5m2"};
constexpr std::array<std::int64_t, 7> kDTypeBytes = {4, 2, 2, 4, 1, 1, 1};
constexpr std::array<std::string_view, kTensorRoles> kRoles = {
    "parameter", "master_parameter", "gradient",      "optimizer_state", "activation",
    "saved",     "workspace",        "communication", "scalar"};
constexpr std::array<std::string_view, 4> kInits = {"none", "normal", "zeros", "ones"};
}  // namespace

std::int64_t elements(const Shape& shape) {
  std::int64_t product = 1;
  for (std::int64_t extent : shape) {
    INVARIANT(!__builtin_mul_overflow(product, extent, &product), "tensor too large");
  }
  return product;
}

Bytes bytes_of(DType dtype) { return Bytes(kDTypeBytes[std::size_t(dtype)]); }
Bytes bytes_of(const Tensor& tensor) { return bytes_of(tensor.dtype) * elements(tensor.shape); }

std::string_view to_text(DType dtype) { return kDTypes[std::size_t(dtype)]; }
std::string_view to_text(TensorRole role) { return kRoles[std::size_t(role)]; }
std::string_view to_text(Init init) { return kInits[std::size_t(init)]; }
std::optional<DType> dtype_from(std::string_view text) {
  return enumerator_from<DType>(kDTypes, text);
}
std::optional<TensorRole> tensor_role_from(std::string_view text) {
  return enumerator_from<TensorRole>(kRoles, text);
}
std::optional<Init> init_from(std::string_view text) { return enumerator_from<Init>(kInits, text); }

}  // namespace plimsoll
