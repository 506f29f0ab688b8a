// The IDX format of MNIST and its relatives: a header with the shape, then unsigned bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace examples {

struct IdxFile {
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> values;  ///< as many as the shape says, row by row
};

/// Reads a file, compressed with gzip or not. Throws mezzo::Error that names the file when it is
/// missing, damaged, cut off, longer than its header says, or no IDX file of unsigned bytes.
IdxFile read_idx(const std::filesystem::path& file);

}  // namespace examples
