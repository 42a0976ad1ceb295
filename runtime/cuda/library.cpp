// Opens cuBLASLt.
#include "runtime/cuda/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"

namespace plimsoll {

namespace {

/// The loader's own search first (LD_LIBRARY_PATH, ldconfig), then where toolkits are installed.
std::vector<std::string> candidates(const std::string& name) {
  std::vector<std::string> paths{name};
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* folder = std::getenv(variable)) paths.push_back(folder + ("/lib64/" + name));
  }
  paths.push_back("/usr/local/cuda/lib64/" + name);
  return paths;
}

void* open_library(const std::string& name) {
  std::string reasons;
  for (const std::string& path : candidates(name)) {
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    reasons += fmt::format("\n  {}", dlerror());
  }
  throw EnvironmentError(fmt::format("{} cannot be opened:{}", name, reasons));
}

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) throw EnvironmentError(fmt::format("cuBLASLt has no {}", name));
}

CublasLt open_cublaslt() {
  // Of the major version whose header this was compiled with: its interface is the same.
  void* const library = open_library(fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR));
  CublasLt functions;
  find(library, "cublasLtCreate", functions.create);
  find(library, "cublasLtDestroy", functions.destroy);
  find(library, "cublasLtMatmulDescCreate", functions.matmul_desc_create);
  find(library, "cublasLtMatmulDescDestroy", functions.matmul_desc_destroy);
  find(library, "cublasLtMatmulDescSetAttribute", functions.matmul_desc_set);
  find(library, "cublasLtMatrixLayoutCreate", functions.layout_create);
  find(library, "cublasLtMatrixLayoutDestroy", functions.layout_destroy);
  find(library, "cublasLtMatrixLayoutSetAttribute", functions.layout_set);
  find(library, "cublasLtMatmulPreferenceCreate", functions.preference_create);
  find(library, "cublasLtMatmulPreferenceDestroy", functions.preference_destroy);
  find(library, "cublasLtMatmulPreferenceSetAttribute", functions.preference_set);
  find(library, "cublasLtMatmulAlgoGetHeuristic", functions.heuristic);
  find(library, "cublasLtMatmul", functions.matmul);
  return functions;
}

}  // namespace

const CublasLt& cublaslt() {
  static const CublasLt functions = open_cublaslt();
  return functions;
}

}  // namespace plimsoll
