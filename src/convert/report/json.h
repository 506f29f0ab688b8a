// A small JSON writer and reader for plans and reports.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace mezzo::convert {

/// Writes JSON as text, two spaces of indentation, keys in the order they are given.
class JsonWriter {
 public:
  void open_object();
  void open_array();
  void close();
  JsonWriter& key(std::string_view name);
  void value(std::string_view text);
  void value(const char* text) { value(std::string_view(text)); }
  void value(double number);
  void value(std::int64_t number);
  void value(bool flag);
  /// An array with one object per item; `fields` writes what stands in it.
  template <typename Items, typename Fields>
  void objects(const Items& items, const Fields& fields) {
    open_array();
    for (const auto& item : items) {
      open_object();
      fields(item);
      close();
    }
    close();
  }
  /// An array of texts.
  void texts(const std::vector<std::string>& items);
  /// The whole text; everything must be closed.
  std::string text() const { return text_ + "\n"; }

 private:
  void begin();
  void line();
  std::string text_;
  std::vector<char> open_;
  bool is_first_ = true, after_key_ = false;
};

/// A JSON value that was read.
struct Json {
  using Object = std::map<std::string, Json, std::less<>>;
  using Array = std::vector<Json>;
  std::variant<std::nullptr_t, bool, double, std::string, Array, Object> is = nullptr;

  /// Throws ConfigError on text that is no JSON, or nests deeper than 64.
  static Json parse(std::string_view text);
  /// The member of that name, or null.
  const Json* find(std::string_view name) const;
  /// The text, flag or list under that name; a ConfigError where it is missing or of another kind.
  const std::string& text(std::string_view name) const;
  bool flag(std::string_view name) const;
  const Array& array(std::string_view name) const;
  const Object& object(std::string_view name) const;
};

}  // namespace mezzo::convert
