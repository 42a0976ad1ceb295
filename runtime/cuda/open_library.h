// A library of the vendor's, opened when first used: programs start, and say what is missing, where
// it is not installed.
#pragma once

#include <string>

namespace plimsoll {

class OpenLibrary {
 public:
  /// The loader's own search first (LD_LIBRARY_PATH, ldconfig), then CUDA_HOME, CUDA_PATH and
  /// /usr/local/cuda. Throws EnvironmentError with the loader's reasons. Stays open.
  explicit OpenLibrary(std::string name);

  template <class Function>
  void find(const char* symbol, Function& function) const {
    function = reinterpret_cast<Function>(address(symbol));
  }

 private:
  void* address(const char* symbol) const;

  std::string name_;
  void* library_ = nullptr;
};

}  // namespace plimsoll
