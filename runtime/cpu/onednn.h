// oneDNN primitives are built once with their arguments; a run only sets addresses.
#pragma once

#include <cstddef>
#include <dnnl.hpp>
#include <unordered_map>

#include "base/units.h"
#include "graph/tensor.h"

namespace plimsoll {

class Scratch;

/// The library's handles, one pair for each backend.
struct OneDnn {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
};

dnnl::memory::data_type data_type(DType type);
/// Returns the layout of a dense row-major tensor.
dnnl::memory::desc dense(const dnnl::memory::dims& dims, DType type = DType::f32);

/// Returns a new attribute with user-managed scratch memory. A copy of a primitive_attr shares its
/// handle, so a post-op set on the copy would appear on the original.
dnnl::primitive_attr scratchpad_attributes();

/// Runs the enclosing scope's oneDNN calls with one thread on this thread, and restores the number.
/// The size of a primitive's scratch memory depends on the number of threads at its creation.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

class Primitive {
 public:
  /// Takes the primitive's scratch memory from `scratch`, for every run.
  Primitive(const OneDnn& library, const dnnl::primitive_desc& descriptor, Scratch& scratch);

  /// Declares an argument (DNNL_ARG_...). Its address is set before each execute.
  void declare(int argument, const dnnl::memory::desc& layout);
  void set(int argument, const void* address);
  void execute() { primitive_.execute(stream_, arguments_); }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::primitive primitive_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

}  // namespace plimsoll
