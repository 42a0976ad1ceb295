// Opens cuBLASLt.
#include "runtime/cuda/library.h"

#include <fmt/format.h>

#include "runtime/cuda/open_library.h"

namespace plimsoll {

namespace {

CublasLt open_cublaslt() {
  // The library is of the major version whose header this was compiled with: its interface is the
  // same.
  const OpenLibrary library(fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR));
  CublasLt functions;
  library.find("cublasLtCreate", functions.create);
  library.find("cublasLtDestroy", functions.destroy);
  library.find("cublasLtMatmulDescCreate", functions.matmul_desc_create);
  library.find("cublasLtMatmulDescDestroy", functions.matmul_desc_destroy);
  library.find("cublasLtMatmulDescSetAttribute", functions.matmul_desc_set);
  library.find("cublasLtMatrixLayoutCreate", functions.layout_create);
  library.find("cublasLtMatrixLayoutDestroy", functions.layout_destroy);
  library.find("cublasLtMatrixLayoutSetAttribute", functions.layout_set);
  library.find("cublasLtMatmulPreferenceCreate", functions.preference_create);
  library.find("cublasLtMatmulPreferenceDestroy", functions.preference_destroy);
  library.find("cublasLtMatmulPreferenceSetAttribute", functions.preference_set);
  library.find("cublasLtMatmulAlgoGetHeuristic", functions.heuristic);
  library.find("cublasLtMatmul", functions.matmul);
  return functions;
}

}  // namespace

const CublasLt& cublaslt() {
  static const CublasLt functions = open_cublaslt();
  return functions;
}

}  // namespace plimsoll
