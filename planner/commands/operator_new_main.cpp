// operator new of a planner that links mimalloc. Debian builds mimalloc as C, and its operator new
// ends the process where it finds no memory. This one throws, as the standard says; malloc is still
// mimalloc's (docs/adr/0002-libraries.md).
#include <algorithm>
#include <cstdlib>
#include <new>

namespace {

template <class Ask>
void* memory_of(const Ask& ask) {
  for (;;) {
    if (void* const memory = ask()) return memory;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}

}  // namespace

void* operator new(std::size_t size) {
  return memory_of([&] { return std::malloc(std::max<std::size_t>(size, 1)); });
}

void* operator new[](std::size_t size) { return operator new(size); }

void* operator new(std::size_t size, std::align_val_t alignment) {
  const auto to = std::size_t(alignment);
  return memory_of(
      [&] { return std::aligned_alloc(to, std::max<std::size_t>(1, (size + to - 1) / to) * to); });
}

void* operator new[](std::size_t size, std::align_val_t alignment) {
  return operator new(size, alignment);
}
