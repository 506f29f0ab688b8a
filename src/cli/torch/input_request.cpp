#include "cli/torch/input_text.h"

#include <algorithm>
#include <charconv>

#include "core/raise.h"
#include "core/scalar_type.h"

namespace mezzo::cli {

at::ScalarType type_named(const char* command, const std::string& name) {
  for (const DTypeRow& row : kDTypes) {
    if (name == row.name || name == row.alias || name == row.short_name)
      return scalar_type_of(row.dtype);
  }
  raise<ConfigError>(command, "'", name, "' is no type of an element");
}

InputText read_input(const char* command, const std::string& text) {
  InputText input;
  const std::size_t colon = text.find(':');
  if (colon != std::string::npos) input.type = type_named(command, text.substr(colon + 1));
  const std::string shape = text.substr(0, colon);
  for (std::size_t at = 0; shape != "scalar" && at <= shape.size();) {
    const std::size_t end = std::min(shape.find('x', at), shape.size());
    std::int64_t size = -1;
    const char* const last = shape.data() + end;
    const auto read = std::from_chars(shape.data() + at, last, size);
    if (read.ec != std::errc() || read.ptr != last || size < 0) {
      raise<ConfigError>(command, "--input '", text,
                         "'; expected SHAPE[:DTYPE], such as 1x3x224x224 or 1x128:int64");
    }
    input.sizes.push_back(size);
    at = end + 1;
  }
  return input;
}

}  // namespace mezzo::cli
