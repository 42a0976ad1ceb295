// Sizes of tensors are computed, and the names of their enumerations listed.
#include "graph/tensor.h"

#include "base/error.h"

namespace plimsoll {

namespace {
constexpr std::array<std::int64_t, 7> kDTypeBytes = {4, 2, 2, 4, 1, 1, 1};
constexpr std::array<std::string_view, kTensorRoles> kRoles = {
    "parameter", "frozen_parameter", "master_parameter",
    "gradient",  "optimizer_state",  "activation",
    "saved",     "workspace",        "communication",
    "scalar"};
constexpr std::array<std::string_view, 4> kInits = {"none", "normal", "zeros", "ones"};
}  // namespace

std::int64_t elements(const Shape& shape) {
  std::int64_t product = 1;
  for (std::int64_t extent : shape) {
    INVARIANT(!__builtin_mul_overflow(product, extent, &product), "tensor too large");
  }
  return product;
}

std::int64_t parameter_elements(const Tensor& parameter) {
  return elements(parameter.packed.empty() ? parameter.shape : parameter.packed);
}

Bytes bytes_of(DType dtype) { return Bytes(kDTypeBytes[std::size_t(dtype)]); }
Bytes bytes_of(const Tensor& tensor) { return bytes_of(tensor.dtype) * elements(tensor.shape); }

std::string_view to_text(DType dtype) { return kDTypeNames[std::size_t(dtype)]; }
std::string_view to_text(TensorRole role) { return kRoles[std::size_t(role)]; }
std::string_view to_text(Init init) { return kInits[std::size_t(init)]; }

}  // namespace plimsoll
