// Writes a model and the data file beside it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "convert/onnx/document.h"

namespace mezzo::convert {

/// Bytes that were written, data file included.
struct Stored {
  std::int64_t bytes = 0;
};

/// Writes the document's messages to `out`. If `external` asks for it (the input had external
/// data), where a tensor still is external, and where one file would pass protobuf's limit of 2 GB,
/// tensors of 1 kB and more go to one new file `out`.data, each on a page border; of sparse tensors
/// and training graphs only those that are external already, since few readers look. Both appear
/// whole or not at all. Memory: one chunk at a time.
/// `progress` hears the share of the bytes that are written.
Stored store_model(Document&, const std::filesystem::path& out, bool external = false,
                   const std::function<void(double)>& progress = {});

/// Has any tensor external data?
bool has_external(Document&);

/// Copies an unchanged model, and, to another folder, the files its tensors point to.
Stored copy_model(Document&, const std::filesystem::path& out);

/// Throws ConfigError if `out` is the input or one of the files it points to.
void check_target(Document&, const std::filesystem::path& out);

}  // namespace mezzo::convert
