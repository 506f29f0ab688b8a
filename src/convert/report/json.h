// Plans and reports as JSON.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace mezzo::convert {

using Json = nlohmann::ordered_json;  // to write: keys in the order in which they are given

/// An array with what `to_json` makes of each item.
template <typename Items, typename ToJson>
Json json_list(const Items& items, const ToJson& to_json) {
  Json list = Json::array();
  for (const auto& item : items) list.push_back(to_json(item));
  return list;
}

/// An object with these members, sorted by name.
template <typename T>
Json json_map(const std::map<std::string, T>& members) {
  Json object = Json::object();
  for (const auto& [name, value] : members) object[name] = value;
  return object;
}

/// Two spaces of indentation, with a line break at the end. Numbers that are not finite become
/// null, and bytes that are no UTF-8 become U+FFFD.
std::string json_text(const Json&);

/// Reads text that anyone may have written. Members are sorted.
using ReadJson = nlohmann::json;

/// Throws ConfigError with line and column on text that is no JSON, that nests deeper than 64,
/// names a member twice, or holds a number beyond the range of double.
ReadJson parse_json(std::string_view text);

/// The members of one object that was read, with ConfigErrors that say which object lacks them.
class Members {
 public:
  /// `place`: "decisions[3]"; empty for the whole document. Holds the object by reference.
  explicit Members(const ReadJson& object, std::string place = "");

  bool has(const char* name) const { return object_.contains(name); }
  std::string text(const char* name) const;
  /// Empty if there is none.
  std::string optional_text(const char* name) const;
  bool flag(const char* name) const;
  /// False if there is none.
  bool optional_flag(const char* name) const;
  /// Empty if there is none.
  std::vector<std::string> optional_texts(const char* name) const;
  std::map<std::string, std::string> text_map(const char* name) const;
  /// The objects of a list; they refer to what this one refers to.
  std::vector<Members> objects(const char* name) const;

 private:
  const ReadJson& at(const char* name, ReadJson::value_t type, std::string_view kind) const;
  std::string place_of(std::string_view name) const;

  const ReadJson& object_;
  std::string place_;
};

}  // namespace mezzo::convert
