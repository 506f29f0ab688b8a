#include "cli/input_shape.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "core/nearest.h"
#include "core/raise.h"

namespace mezzo::cli {
namespace {

[[noreturn]] void fail(const char* command, const std::string& text, const std::string& hint = "") {
  raise<ConfigError>(command, "--input '", text,
                     "'; expected SHAPE[:DTYPE] or NAME=SHAPE[:DTYPE], such as 1x3x224x224, "
                     "data=1,3,224,224 or 1x128:int64",
                     hint);
}

// "1x3" and "1,3", one separator in one text; "5," is a list of one, as Python prints it.
std::optional<std::vector<std::int64_t>> sizes_of(std::string_view text) {
  std::vector<std::int64_t> sizes;
  if (text == "scalar") return sizes;
  const char between = text.find(',') == std::string_view::npos ? 'x' : ',';
  if (text.size() > 1 && text.ends_with(',')) text.remove_suffix(1);
  for (;;) {
    const std::string_view part = text.substr(0, text.find(between));
    std::int64_t size = 0;
    const auto [end, failure] = std::from_chars(part.data(), part.data() + part.size(), size);
    if (failure != std::errc() || end != part.data() + part.size() || size < 0) return std::nullopt;
    sizes.push_back(size);
    if (part.size() == text.size()) return sizes;
    text.remove_prefix(part.size() + 1);
  }
}

}  // namespace

InputShape read_input_shape(const char* command, const std::string& text) {
  InputShape shape{.text = text};
  std::string rest = text;
  const std::size_t equals = rest.rfind('=');
  if (equals != std::string::npos) {
    shape.name = rest.substr(0, equals);
    rest = rest.substr(equals + 1);
    if (shape.name.empty()) fail(command, text);
  }
  const std::size_t colon = rest.find(':');
  if (colon != std::string::npos) {
    const std::string name = rest.substr(colon + 1);
    shape.dtype = parse_dtype(name);
    if (!shape.dtype) {
      std::vector<std::string_view> names;
      names.reserve(kDTypes.size());
      for (const DTypeRow& row : kDTypes) names.push_back(row.name);
      fail(command, text, "; '" + name + "' is no type of an element" + did_you_mean(name, names));
    }
    rest.resize(colon);
  }
  auto sizes = sizes_of(rest);
  if (!sizes) fail(command, text);
  shape.sizes = std::move(*sizes);
  return shape;
}

nlohmann::ordered_json input_requests(const char* command, const std::vector<std::string>& texts) {
  auto requests = nlohmann::ordered_json::array();
  for (const std::string& text : texts) {
    const InputShape shape = read_input_shape(command, text);
    requests.push_back({{"text", text},
                        {"name", shape.name},
                        {"sizes", shape.sizes},
                        {"dtype", name_of(shape.dtype.value_or(DType::kFloat32))}});
  }
  return requests;
}

}  // namespace mezzo::cli
