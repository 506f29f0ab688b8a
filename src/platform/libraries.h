// Shared libraries that are opened when they are asked for, and where they lie.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace mezzo::platform {

/// Opens a shared library and returns its handle; nothing, with the reason in `why`, where it
/// cannot be loaded.
void* open_library(const std::string& name, std::string* why = nullptr);

/// The file of the running program; empty if the system does not say.
std::filesystem::path program_path();

/// Files of that name (or with a version behind it) where libraries of other projects usually lie:
/// the loader's own search first, then beside this library, the system's folders, and those of
/// Python packages that bring their own.
std::vector<std::string> library_candidates(const std::string& name, const std::string& package);

/// The address of a symbol of an opened library, or null.
void* find_symbol(void* library, const std::string& name);

}  // namespace mezzo::platform
