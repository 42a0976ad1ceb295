// oneDNN primitives with their arguments built once; running sets addresses only.
#pragma once

#include <cstddef>
#include <dnnl.hpp>
#include <unordered_map>

#include "base/units.h"
#include "graph/tensor.h"

namespace plimsoll {

class Scratch;

/// The library's handles, one pair per backend.
struct OneDnn {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
};

dnnl::memory::data_type data_type(DType type);
/// A dense row-major tensor.
dnnl::memory::desc dense(const dnnl::memory::dims& dims, DType type = DType::f32);

/// A fresh attribute with user-managed scratch memory. Always a new one: copying a primitive_attr
/// shares its handle, so a post-op set on the copy would appear on the original.
dnnl::primitive_attr scratchpad_attributes();

/// Runs the enclosing scope's oneDNN calls at one thread on this thread, and restores the number:
/// a primitive's scratch size depends on the threads at its creation.
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
  /// Takes its scratch memory from `scratch`, for every run.
  Primitive(const OneDnn& library, const dnnl::primitive_desc& descriptor, Scratch& scratch);

  /// Declares an argument (DNNL_ARG_...); its address is set before each execute.
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
