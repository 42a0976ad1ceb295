// Cuts long texts between characters.
#include "base/shortened.h"

namespace plimsoll {

std::string shortened(std::string text, std::size_t most) {
  if (text.size() <= most) return text;
  const auto continues = [&] { return (static_cast<unsigned char>(text[most]) & 0xc0u) == 0x80u; };
  while (most > 0 && continues()) --most;
  text.resize(most);
  return text;
}

}  // namespace plimsoll
