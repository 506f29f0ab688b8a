#include "convert/report/json.h"

#include <array>
#include <charconv>
#include <cmath>

#include "core/raise.h"

namespace mezzo::convert {

void JsonWriter::line() {
  text_ += '\n';
  text_.append(open_.size() * 2, ' ');
}

void JsonWriter::begin() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (open_.empty()) return;
  if (!is_first_) text_ += ',';
  line();
  is_first_ = false;
}

void JsonWriter::open_object() {
  begin();
  text_ += '{';
  open_.push_back('}');
  is_first_ = true;
}

void JsonWriter::open_array() {
  begin();
  text_ += '[';
  open_.push_back(']');
  is_first_ = true;
}

void JsonWriter::close() {
  const char end = open_.back();
  open_.pop_back();
  if (!is_first_) line();
  text_ += end;
  is_first_ = false;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  value(name);
  text_ += ": ";
  after_key_ = true;
  return *this;
}

void JsonWriter::value(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  begin();
  text_ += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text_ += '\\';
      text_ += c;
    } else if (byte < 0x20) {
      text_ += "\\u00";
      text_ += kHex[byte >> 4];
      text_ += kHex[byte & 15];
    } else {
      text_ += c;
    }
  }
  text_ += '"';
}

void JsonWriter::texts(const std::vector<std::string>& items) {
  open_array();
  for (const std::string& item : items) value(item);
  close();
}

void JsonWriter::value(double number) {
  begin();
  if (!std::isfinite(number)) {
    text_ += "null";
    return;
  }
  std::array<char, 32> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number);
  text_.append(buffer.data(), end.ptr);
}

void JsonWriter::value(std::int64_t number) {
  begin();
  text_ += std::to_string(number);
}

void JsonWriter::value(bool flag) {
  begin();
  text_ += flag ? "true" : "false";
}

namespace {

constexpr int kDeepest = 64;

class Parser {
 public:
  explicit Parser(std::string_view text) : rest_(text) {}

  Json document() {
    Json json = value(0);
    space();
    if (!rest_.empty()) fail("there is text after the end");
    return json;
  }

 private:
  [[noreturn]] static void fail(std::string_view what) { raise<ConfigError>("json", what); }

  void space() {
    const std::size_t skip = rest_.find_first_not_of(" \t\r\n");
    rest_.remove_prefix(skip == std::string_view::npos ? rest_.size() : skip);
  }

  bool take(char c) {
    space();
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  void expect(char c) {
    if (!take(c)) fail(std::string("expected '") + c + "'");
  }

  bool word(std::string_view text) {
    if (rest_.substr(0, text.size()) != text) return false;
    rest_.remove_prefix(text.size());
    return true;
  }

  Json value(int depth) {
    if (depth > kDeepest) fail("nested too deep");
    space();
    if (rest_.empty()) fail("it ends too early");
    if (rest_[0] == '"') return {string()};
    if (take('{')) return object(depth);
    if (take('[')) return array(depth);
    if (word("true")) return {true};
    if (word("false")) return {false};
    if (word("null")) return {nullptr};
    double number = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
    if (error != std::errc()) fail("expected a value");
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return {number};
  }

  Json object(int depth) {
    Json::Object members;
    if (take('}')) return {std::move(members)};
    do {
      space();
      if (rest_.empty() || rest_[0] != '"') fail("expected a name");
      std::string name = string();
      expect(':');
      members.insert_or_assign(std::move(name), value(depth + 1));
    } while (take(','));
    expect('}');
    return {std::move(members)};
  }

  Json array(int depth) {
    Json::Array items;
    if (take(']')) return {std::move(items)};
    do items.push_back(value(depth + 1));
    while (take(','));
    expect(']');
    return {std::move(items)};
  }

  std::string string() {
    std::string text;
    rest_.remove_prefix(1);
    while (true) {
      if (rest_.empty()) fail("a string does not end");
      const char c = rest_[0];
      rest_.remove_prefix(1);
      if (c == '"') return text;
      if (c == '\\') {
        escape(text);
      } else {
        text += c;
      }
    }
  }

  void escape(std::string& text) {
    if (rest_.empty()) fail("a string does not end");
    const char c = rest_[0];
    rest_.remove_prefix(1);
    switch (c) {
      case 'n':
        text += '\n';
        return;
      case 't':
        text += '\t';
        return;
      case 'r':
        text += '\r';
        return;
      case 'b':
        text += '\b';
        return;
      case 'f':
        text += '\f';
        return;
      case 'u':
        return unicode(text);
      default:
        text += c;
    }
  }

  void unicode(std::string& text) {
    unsigned code = 0;
    if (rest_.size() < 4 ||
        std::from_chars(rest_.data(), rest_.data() + 4, code, 16).ptr != rest_.data() + 4) {
      fail("a damaged \\u escape");
    }
    rest_.remove_prefix(4);
    if (code < 0x80) {
      text += static_cast<char>(code);
    } else if (code < 0x800) {
      text += static_cast<char>(0xC0 | code >> 6);
      text += static_cast<char>(0x80 | (code & 0x3F));
    } else {
      text += static_cast<char>(0xE0 | code >> 12);
      text += static_cast<char>(0x80 | (code >> 6 & 0x3F));
      text += static_cast<char>(0x80 | (code & 0x3F));
    }
  }

  std::string_view rest_;
};

template <typename T>
const T& member(const Json& json, std::string_view name, std::string_view kind) {
  const Json* found = json.find(name);
  const T* value = found == nullptr ? nullptr : std::get_if<T>(&found->is);
  if (value == nullptr) raise<ConfigError>("json", "'", name, "' is missing or no ", kind);
  return *value;
}

}  // namespace

Json Json::parse(std::string_view text) {
  return Parser(text).document();
}

const Json* Json::find(std::string_view name) const {
  const auto* members = std::get_if<Object>(&is);
  if (members == nullptr) return nullptr;
  const auto found = members->find(name);
  return found == members->end() ? nullptr : &found->second;
}

const std::string& Json::text(std::string_view name) const {
  return member<std::string>(*this, name, "text");
}

bool Json::flag(std::string_view name) const {
  return member<bool>(*this, name, "flag");
}

const Json::Array& Json::array(std::string_view name) const {
  return member<Array>(*this, name, "list");
}

const Json::Object& Json::object(std::string_view name) const {
  return member<Object>(*this, name, "object");
}

}  // namespace mezzo::convert
