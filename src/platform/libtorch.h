// The LibTorch that an installed copy runs with: run paths know the one beside it, this finds
// others.
#pragma once

#include <filesystem>
#include <string>

namespace mezzo::platform {

/// The folder of the LibTorch that the variable LIBTORCH of the environment names or that python3
/// holds, of the series (2.11) that Mezzo was built with; empty, with the places and what is wrong
/// with each in `looked`, if there is none.
std::filesystem::path find_libtorch(std::string* looked);

/// Opens a library that needs LibTorch. The process's LibTorch is used if it has one, then the one
/// that LIBTORCH names, then the torch of the Python environment that the library lies in, then
/// what the loader finds by itself, then the torch of python3. Null, with the reason in `why`,
/// where the library cannot be loaded, or where the torch of its environment is of another series.
void* open_with_libtorch(const std::string& name, std::string* why);

}  // namespace mezzo::platform
