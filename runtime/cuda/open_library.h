// A library of the vendor's is opened when it is first used. So programs start where it is not
// installed, and report what is missing.
#pragma once

#include <string>

namespace plimsoll {

class OpenLibrary {
 public:
  /// Opens the library by the loader's own search (LD_LIBRARY_PATH, ldconfig), then in CUDA_HOME,
  /// CUDA_PATH and /usr/local/cuda. Throws EnvironmentError with the loader's reasons. It stays
  /// open.
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
