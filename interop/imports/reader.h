// A Reader knows one kind of file. It is internal to interop/imports.
#pragma once

#include <string>
#include <string_view>

#include "interop/imports/imported.h"

namespace plimsoll {

struct Reader {
  std::string_view kind;
  /// Returns whether text is of this kind, sound or not. A fault in it is then `read`'s to name.
  bool (*looks_like)(std::string_view text);
  /// Sets all but `kind`. Throws InputError.
  Imported (*read)(std::string_view text, const std::string& file, const ImportGiven& given);
};

}  // namespace plimsoll
