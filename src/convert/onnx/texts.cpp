#include "convert/onnx/texts.h"

#include <cstring>
#include <deque>
#include <mutex>
#include <unordered_map>

namespace mezzo::convert {
namespace {

struct Texts {
  std::mutex mutex;
  std::deque<std::string> all;  // whose elements stay where they are
  std::unordered_map<std::string_view, std::int64_t> codes;
};

Texts& texts() {
  static Texts all;
  return all;
}

}  // namespace

std::int64_t code_of(std::string_view text) {
  Texts& known = texts();
  const std::lock_guard lock(known.mutex);
  const auto found = known.codes.find(text);
  if (found != known.codes.end()) return found->second;
  const auto code = static_cast<std::int64_t>(known.all.size());
  known.codes.emplace(known.all.emplace_back(text), code);
  return code;
}

const std::string& text_of(std::int64_t code) {
  Texts& known = texts();
  const std::lock_guard lock(known.mutex);
  return known.all.at(static_cast<std::size_t>(code));
}

Array array_of(const std::vector<std::string>& texts, std::vector<std::int64_t> dims) {
  Array array{Element::kString, std::move(dims), {}};
  for (const std::string& text : texts) {
    const std::int64_t code = code_of(text);
    array.bytes.append(reinterpret_cast<const char*>(&code), sizeof(code));
  }
  return array;
}

std::vector<std::int64_t> codes_of(const Array& array) {
  std::vector<std::int64_t> codes(array.bytes.size() / sizeof(std::int64_t));
  if (!codes.empty()) std::memcpy(codes.data(), array.bytes.data(), array.bytes.size());
  return codes;
}

std::vector<std::string> texts_of(const Array& array) {
  const std::vector<std::int64_t> codes = codes_of(array);
  std::vector<std::string> all;
  all.reserve(codes.size());
  for (const std::int64_t code : codes) all.push_back(text_of(code));
  return all;
}

}  // namespace mezzo::convert
