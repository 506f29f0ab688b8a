#include "amp/safetensors_header.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/raise.h"

namespace mezzo::amp::detail {
namespace {

constexpr std::string_view kInSafetensorsHeader = "safetensors";

using Json = nlohmann::ordered_json;

/// A header as JSON, and the order of its members in the file.
struct Parsed {
  nlohmann::json object;
  std::vector<std::string> names;
};

template <typename... What>
[[noreturn]] void refuse(const std::string& file, const What&... what) {
  raise(kInSafetensorsHeader, "'", file, "': the header is damaged: ", what...);
}

Parsed parse(std::string_view text, const std::string& file) {
  Parsed parsed;
  std::vector<std::set<std::string>> open;  // the names of each object that is not closed yet
  const auto watch = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    using Event = nlohmann::json::parse_event_t;
    if (event == Event::object_start) open.emplace_back();
    if (event == Event::object_end) open.pop_back();
    if (event != Event::key) return true;
    const std::string& name = value.get_ref<const std::string&>();
    if (!open.back().insert(name).second) refuse(file, "there are two of the name '", name, "'");
    if (depth == 1) parsed.names.push_back(name);
    return true;
  };
  try {
    parsed.object = nlohmann::json::parse(text, watch);
  } catch (const nlohmann::json::parse_error& error) {
    refuse(file, "no JSON at byte ", error.byte, ": ", error.what());
  }
  if (!parsed.object.is_object()) refuse(file, "it is no JSON object");
  return parsed;
}

std::vector<std::uint64_t> unsigned_numbers(const nlohmann::json& value) {
  std::vector<std::uint64_t> numbers;
  for (const nlohmann::json& number : value) {
    if (!number.is_number_unsigned()) return {};
    numbers.push_back(number.get<std::uint64_t>());
  }
  return numbers;
}

TensorPlace read_place(const nlohmann::json& entry, const std::string& name,
                       const std::string& file) {
  TensorPlace place{name, {}, {}, 0, 0};
  if (!entry.is_object()) refuse(file, "'", name, "' is no object");
  bool has_shape = false;
  std::vector<std::uint64_t> offsets;
  for (const auto& [key, value] : entry.items()) {
    if (key == "dtype" && value.is_string()) {
      place.dtype = value.get<std::string>();
    } else if (key == "shape" && value.is_array()) {
      const std::vector<std::uint64_t> sizes = unsigned_numbers(value);
      place.shape.assign(sizes.begin(), sizes.end());
      has_shape = sizes.size() == value.size();
    } else if (key == "data_offsets" && value.is_array()) {
      offsets = unsigned_numbers(value);
    } else {
      refuse(file, "'", name, "' has a field '", key, "' that is unknown or of a wrong type");
    }
  }
  if (place.dtype.empty() || !has_shape || offsets.size() != 2 || offsets[0] > offsets[1]) {
    refuse(file, "'", name, "' lacks a dtype, a shape or two offsets in order");
  }
  place.begin = offsets[0];
  place.end = offsets[1];
  return place;
}

std::map<std::string, std::string> read_metadata(const nlohmann::json& object,
                                                 const std::string& file) {
  std::map<std::string, std::string> metadata;
  for (const auto& [key, value] : object.items()) {
    if (!value.is_string()) refuse(file, "the metadata '", key, "' is no text");
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

void check_places(const SafetensorsHeader& header, std::uint64_t data_size,
                  const std::string& file) {
  std::vector<const TensorPlace*> by_place;
  for (const TensorPlace& place : header.tensors) by_place.push_back(&place);
  std::ranges::sort(by_place, {},
                    [](const TensorPlace* place) { return std::pair(place->begin, place->end); });
  std::uint64_t end = 0;
  for (const TensorPlace* place : by_place) {
    if (place->begin < end) {
      raise(kInSafetensorsHeader, "'", file, "': '", place->name,
            "' overlaps another tensor at byte ", place->begin);
    }
    if (place->begin > end) {
      raise(kInSafetensorsHeader, "'", file, "': there is a hole before '", place->name,
            "' at byte ", end);
    }
    end = place->end;
  }
  if (end != data_size) {
    raise(kInSafetensorsHeader, "'", file, "': the tensors need ", end, " bytes, the file has ",
          data_size, "; it is ", end > data_size ? "truncated" : "longer than its header says");
  }
}

}  // namespace

std::string write_header(const SafetensorsHeader& header) {
  std::string out = "{";
  const auto add = [&out](const std::string& name, const Json& value) {
    try {
      const std::string key = Json(name).dump();
      const std::string text = value.dump();
      if (out.size() > 1) out += ',';
      out.append(key).append(":").append(text);
    } catch (const Json::type_error&) {
      raise(kInSafetensorsHeader, "'", name, "' holds text that is not UTF-8, which JSON needs");
    }
  };
  if (!header.metadata.empty()) add("__metadata__", header.metadata);
  for (const TensorPlace& place : header.tensors) {
    add(place.name, {{"dtype", place.dtype},
                     {"shape", place.shape},
                     {"data_offsets", {place.begin, place.end}}});
  }
  out += '}';
  out.resize((out.size() + 7) / 8 * 8, ' ');
  return out;
}

SafetensorsHeader read_header(std::string_view text, std::uint64_t data_size,
                              const std::string& file) {
  const Parsed parsed = parse(text, file);
  SafetensorsHeader header;
  for (const std::string& name : parsed.names) {
    const nlohmann::json& member = parsed.object.at(name);
    if (name == "__metadata__") {
      header.metadata = read_metadata(member, file);
    } else {
      header.tensors.push_back(read_place(member, name, file));
    }
  }
  check_places(header, data_size, file);
  return header;
}

}  // namespace mezzo::amp::detail
