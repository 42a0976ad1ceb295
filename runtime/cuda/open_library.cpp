// A library is searched for in the usual folders and opened.
#include "runtime/cuda/open_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <utility>
#include <vector>

#include "base/error.h"

namespace plimsoll {

namespace {

std::vector<std::string> candidates(const std::string& name) {
  std::vector<std::string> paths{name};
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* folder = std::getenv(variable)) paths.push_back(folder + ("/lib64/" + name));
  }
  paths.push_back("/usr/local/cuda/lib64/" + name);
  return paths;
}

}  // namespace

OpenLibrary::OpenLibrary(std::string name) : name_(std::move(name)) {
  std::string reasons;
  for (const std::string& path : candidates(name_)) {
    library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ != nullptr) return;
    reasons += fmt::format("\n  {}", dlerror());
  }
  throw EnvironmentError(fmt::format("{} cannot be opened:{}", name_, reasons));
}

void* OpenLibrary::address(const char* symbol) const {
  void* const found = dlsym(library_, symbol);
  if (found == nullptr) throw EnvironmentError(fmt::format("{} has no {}", name_, symbol));
  return found;
}

}  // namespace plimsoll
