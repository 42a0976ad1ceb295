// Reading and writing whole files: bounded reads, atomic writes.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/units.h"

namespace plimsoll {

/// The whole file. Throws InputError (missing, a directory, unreadable, larger than `limit`).
std::string read_file(const std::filesystem::path& path,
                      Bytes limit = Bytes(std::int64_t{64} << 20));

/// Writes to a temporary file in the same folder, syncs it, renames it over `path` and syncs the
/// folder: readers see the old bytes or the new ones, never a part. Throws EnvironmentError.
void write_file_atomically(const std::filesystem::path& path, std::string_view contents);

/// Throws EnvironmentError where write_file_atomically would before its first byte (no such folder,
/// no right, a folder in its place): before hours of work, not after. Leaves nothing behind.
void check_writable(const std::filesystem::path& path);

/// Whether both name the same file, through links; files that are not there yet included.
bool same_file(const std::filesystem::path& a, const std::filesystem::path& b);

/// SHA-256 of `contents`, 64 lower-case hexadecimal digits.
std::string digest(std::string_view contents);

}  // namespace plimsoll
