// Construction and binding of oneDNN primitives.
#include "runtime/cpu/onednn.h"

#include <omp.h>

#include "runtime/cpu/kernels.h"

namespace plimsoll {

dnnl::memory::data_type data_type(DType type) {
  using enum dnnl::memory::data_type;
  switch (type) {
    case DType::f32:
      return f32;
    case DType::bf16:
      return bf16;
    case DType::f16:
      return f16;
    case DType::i32:
    case DType::u8:
      return s32;
    case DType::e4m3:  // simulated only
    case DType::e5m2:
      break;
  }
  return undef;
}

dnnl::memory::desc dense(const dnnl::memory::dims& dims, DType type) {
  dnnl::memory::dims strides(dims.size(), 1);
  for (std::size_t i = dims.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * dims[i];
  return dnnl::memory::desc(dims, data_type(type), strides);
}

dnnl::primitive_attr scratchpad_attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

OneThread::OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
OneThread::~OneThread() { omp_set_num_threads(before_); }

Primitive::Primitive(const OneDnn& library, const dnnl::primitive_desc& descriptor,
                     Scratch& scratch)
    : engine_(library.engine), stream_(library.stream), primitive_(descriptor) {
  const dnnl::memory::desc layout = descriptor.scratchpad_desc();
  if (layout.get_size() == 0) return;
  declare(DNNL_ARG_SCRATCHPAD, layout);
  set(DNNL_ARG_SCRATCHPAD, scratch.take(Bytes(std::int64_t(layout.get_size()))));
}

void Primitive::declare(int argument, const dnnl::memory::desc& layout) {
  arguments_.insert_or_assign(argument, dnnl::memory(layout, engine_, nullptr));
}

void Primitive::set(int argument, const void* address) {
  // oneDNN has one handle type for operands it reads and writes.
  arguments_.at(argument).set_data_handle(const_cast<void*>(address));
}

}  // namespace plimsoll
