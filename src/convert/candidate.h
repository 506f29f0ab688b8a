// A model as a set of decisions would make it, for judges.
#pragma once

#include <filesystem>

#include "convert/apply.h"
#include "convert/decide.h"

namespace mezzo::convert {

/// Decides about `original`, raised to `opset` (0: as it is), and writes what comes of it to
/// `path`, with a data file beside it where the original has external data.
void write_candidate(const std::filesystem::path& original, int opset, const ConvertPolicy&,
                     const Evidence&, Storage, const std::filesystem::path& path);

/// How the options have a result stored.
Storage storage_of(const Options&);

}  // namespace mezzo::convert
