// Whole files are read up to a limit, and written atomically.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "base/units.h"

namespace plimsoll {

/// Returns the contents of a file. Throws InputError when the file is missing, a directory,
/// unreadable or larger than `limit`.
std::string read_file(const std::filesystem::path& path,
                      Bytes limit = Bytes(std::int64_t{64} << 20));

/// Writes all bytes to a descriptor, however often signals interrupt. Returns the error of a write
/// that failed, else 0.
int write_all(int descriptor, std::string_view bytes);

/// Writes to a temporary file in the same folder, syncs it, renames it over `path` and syncs the
/// folder. Readers see the old bytes or the new ones, never a part. Throws EnvironmentError.
void write_file_atomically(const std::filesystem::path& path, std::string_view contents);

/// Opens a file that is written in place, such as a lock or a journal, and creates it where it is
/// missing. `flags` say whether it is read, too. Throws EnvironmentError where it cannot be opened,
/// is a symbolic link, which someone else may have made, or is no regular file.
Descriptor open_in_place(const std::filesystem::path& path, int flags);

/// Throws EnvironmentError where write_file_atomically would fail before its first byte: the folder
/// is missing, the right is missing, or `path` is a folder. It is called before hours of work. It
/// leaves nothing behind.
void check_writable(const std::filesystem::path& path);

/// Returns whether both paths name the same file, through links. The files need not exist yet.
bool same_file(const std::filesystem::path& a, const std::filesystem::path& b);

/// Returns the SHA-256 of `contents` as 64 lower-case hexadecimal digits.
std::string digest(std::string_view contents);

}  // namespace plimsoll
