#include "amp/safetensors_header.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "core/raise.h"

namespace mezzo::detail {
namespace {

constexpr std::string_view kInSafetensorsHeader = "safetensors";

void write_string(std::string& out, std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

void append_utf8(std::string& out, std::uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | (code >> 6));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | (code >> 12));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (code >> 18));
    out += static_cast<char>(0x80 | ((code >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

/// The JSON that a header needs: objects, strings, and arrays of unsigned integers.
class Reader {
 public:
  Reader(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  template <typename Member>
  void object(const Member& member) {
    expect('{');
    if (accept('}')) return;
    do {
      const std::string key = string();
      expect(':');
      member(key);
    } while (accept(','));
    expect('}');
  }

  std::string string() {
    expect('"');
    std::string out;
    while (at_ < text_.size() && text_[at_] != '"') {
      const char c = text_[at_++];
      if (static_cast<unsigned char>(c) < 0x20) fail("a control character in a string");
      if (c == '\\') {
        escape(out);
      } else {
        out += c;
      }
    }
    if (at_ >= text_.size()) fail("a string without end");
    ++at_;
    return out;
  }

  std::vector<std::uint64_t> numbers() {
    std::vector<std::uint64_t> out;
    expect('[');
    if (accept(']')) return out;
    do {
      skip_space();
      std::uint64_t value = 0;
      const char* begin = text_.data() + at_;
      const auto [stop, failure] = std::from_chars(begin, text_.data() + text_.size(), value);
      if (failure != std::errc()) fail("expected a number");
      at_ += static_cast<std::size_t>(stop - begin);
      out.push_back(value);
    } while (accept(','));
    expect(']');
    return out;
  }

  void end() {
    skip_space();
    if (at_ != text_.size()) fail("text after the header's end");
  }

  [[noreturn]] void fail(const std::string& what) const {
    raise(kInSafetensorsHeader, "'", file_, "': the header is damaged at byte ", at_, ": ", what);
  }

 private:
  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
      ++at_;
    }
  }

  bool accept(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void expect(char c) {
    if (!accept(c)) fail(std::string("expected '") + c + "'");
  }

  std::uint32_t hex4() {
    std::uint32_t code = 0;
    if (at_ + 4 > text_.size()) fail("an escape without end");
    const char* begin = text_.data() + at_;
    const auto [stop, failure] = std::from_chars(begin, begin + 4, code, 16);
    if (failure != std::errc() || stop != begin + 4) fail("a damaged \\u escape");
    at_ += 4;
    return code;
  }

  void escape(std::string& out) {
    if (at_ >= text_.size()) fail("an escape without end");
    const char c = text_[at_++];
    constexpr std::string_view kFrom = "\"\\/bfnrt";
    constexpr std::string_view kTo = "\"\\/\b\f\n\r\t";
    if (const auto place = kFrom.find(c); place != std::string_view::npos) {
      out += kTo[place];
      return;
    }
    if (c != 'u') fail("an unknown escape");
    std::uint32_t code = hex4();
    if (code >= 0xD800 && code < 0xDC00) {
      if (text_.substr(at_, 2) != "\\u") fail("half of a surrogate pair");
      at_ += 2;
      const std::uint32_t low = hex4();
      if (low < 0xDC00 || low > 0xDFFF) fail("half of a surrogate pair");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    append_utf8(out, code);
  }

  std::string_view text_;
  const std::string& file_;
  std::size_t at_ = 0;
};

TensorPlace read_place(Reader& reader, const std::string& name) {
  TensorPlace place{name, {}, {}, 0, 0};
  std::vector<std::uint64_t> offsets;
  bool has_shape = false;
  reader.object([&](const std::string& key) {
    if (key == "dtype") {
      place.dtype = reader.string();
    } else if (key == "shape") {
      for (const std::uint64_t size : reader.numbers())
        place.shape.push_back(static_cast<std::int64_t>(size));
      has_shape = true;
    } else if (key == "data_offsets") {
      offsets = reader.numbers();
    } else {
      reader.fail("'" + name + "' has an unknown field '" + key + "'");
    }
  });
  if (place.dtype.empty() || !has_shape || offsets.size() != 2 || offsets[0] > offsets[1]) {
    reader.fail("'" + name + "' lacks a dtype, a shape or two offsets in order");
  }
  place.begin = offsets[0];
  place.end = offsets[1];
  return place;
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
  if (!header.metadata.empty()) {
    write_string(out, "__metadata__");
    out += ":{";
    for (const auto& [key, value] : header.metadata) {
      if (out.back() != '{') out += ',';
      write_string(out, key);
      out += ':';
      write_string(out, value);
    }
    out += '}';
  }
  for (const TensorPlace& place : header.tensors) {
    if (out.back() != '{' || out.size() > 1) out += ',';
    write_string(out, place.name);
    out += ":{\"dtype\":";
    write_string(out, place.dtype);
    out += ",\"shape\":[";
    for (const std::int64_t size : place.shape) {
      if (out.back() != '[') out += ',';
      out += std::to_string(size);
    }
    out += "],\"data_offsets\":[" + std::to_string(place.begin) + "," + std::to_string(place.end) +
           "]}";
  }
  out += '}';
  while (out.size() % 8 != 0) out += ' ';
  return out;
}

SafetensorsHeader read_header(std::string_view text, std::uint64_t data_size,
                              const std::string& file) {
  SafetensorsHeader header;
  Reader reader(text, file);
  std::set<std::string> names;
  reader.object([&](const std::string& name) {
    if (!names.insert(name).second)
      raise(kInSafetensorsHeader, "'", file, "': there are two tensors named '", name, "'");
    if (name == "__metadata__") {
      reader.object([&](const std::string& key) { header.metadata[key] = reader.string(); });
    } else {
      header.tensors.push_back(read_place(reader, name));
    }
  });
  reader.end();
  check_places(header, data_size, file);
  return header;
}

}  // namespace mezzo::detail
