#include "convert/engine/strings.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <regex>
#include <utility>

#include "convert/engine/letters.h"
#include "convert/onnx/texts.h"
#include "core/raise.h"

namespace mezzo::convert {
namespace {

using Strings = std::vector<std::string>;
using Arrays = std::vector<Array>;
using Dims = std::vector<std::int64_t>;

/// These move their operands' elements, or compare them with each other.
constexpr std::array kMoving = {"Compress", "Concat",          "Equal",     "Expand",
                                "Flatten",  "Gather",          "GatherND",  "GatherElements",
                                "Reshape",  "ScatterElements", "ScatterND", "Shape",
                                "Size",     "Slice",           "Split",     "Squeeze",
                                "Tile",     "Transpose",       "Unsqueeze", "Where"};

bool is_text(const Array* array) {
  return array != nullptr && array->element == Element::kString;
}

const AttributeValue* attribute_of(const OperatorCall& call, std::string_view name) {
  const auto found = call.attributes.find(name);
  return found == call.attributes.end() ? nullptr : &found->second;
}

std::string text_of(const OperatorCall& call, std::string_view name) {
  const AttributeValue* const given = attribute_of(call, name);
  return given == nullptr ? std::string() : given->text;
}

std::int64_t integer_of(const OperatorCall& call, std::string_view name, std::int64_t otherwise) {
  const AttributeValue* const given = attribute_of(call, name);
  return given == nullptr ? otherwise : given->integer;
}

template <typename T>
Array array_with(Element element, Dims dims, const std::vector<T>& values) {
  return {element, std::move(dims),
          std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T))};
}

Arrays normalize(const OperatorCall& call) {
  const Array& given = *call.inputs.at(0);
  const bool is_row = given.dims.size() == 2;
  if (given.dims.empty() || given.dims.size() > 2 || (is_row && given.dims[0] != 1))
    raise("evaluate", "strings of the shape [C] or [1, C] are normalized");
  const bool is_case_sensitive = integer_of(call, "is_case_sensitive", 0) != 0;
  const auto folded = [&](const std::string& word) {
    return is_case_sensitive ? word : lower_case(word);
  };
  const AttributeValue* const named = attribute_of(call, "stopwords");
  Strings stops = named == nullptr ? Strings() : named->texts;
  for (std::string& stop : stops) stop = folded(stop);
  Strings words = texts_of(given);
  std::erase_if(words, [&](const std::string& word) {
    return std::ranges::find(stops, folded(word)) != stops.end();
  });
  const std::string change = text_of(call, "case_change_action");
  for (std::string& word : words) {
    if (change == "LOWER") word = lower_case(word);
    if (change == "UPPER") word = upper_case(word);
  }
  if (words.empty()) words.emplace_back();
  const auto count = static_cast<std::int64_t>(words.size());
  return {array_of(words, is_row ? Dims{1, count} : Dims{count})};
}

/// Both operands of an operator that repeats them along dimensions of size one.
class Broadcast {
 public:
  Broadcast(const Dims& a, const Dims& b)
      : dims_(std::max(a.size(), b.size()), 1), steps_{dims_, dims_} {
    std::array<std::int64_t, 2> inner{1, 1};
    for (std::size_t d = dims_.size(); d-- > 0;) {
      for (std::size_t side = 0; side < 2; ++side) {
        const Dims& own = side == 0 ? a : b;
        const std::size_t missing = dims_.size() - own.size();
        const std::int64_t size = d < missing ? 1 : own[d - missing];
        steps_[side][d] = size == 1 ? 0 : inner[side];
        inner[side] *= size;
        if (size == 1) continue;
        if (dims_[d] != 1 && dims_[d] != size) raise("evaluate", "shapes do not fit each other");
        dims_[d] = size;
      }
    }
  }

  const Dims& dims() const { return dims_; }
  /// The place of an element of the result in one of the operands.
  std::size_t place(std::size_t side, std::int64_t of) const {
    std::int64_t place = 0;
    for (std::size_t d = dims_.size(); d-- > 0;) {
      place += of % dims_[d] * steps_[side][d];
      of /= dims_[d];
    }
    return static_cast<std::size_t>(place);
  }

 private:
  Dims dims_;
  std::array<Dims, 2> steps_;
};

Arrays concat_each(const OperatorCall& call) {
  const Broadcast broadcast(call.inputs.at(0)->dims, call.inputs.at(1)->dims);
  const Strings left = texts_of(*call.inputs[0]), right = texts_of(*call.inputs[1]);
  Array joined{Element::kString, broadcast.dims(), {}};
  Strings texts;
  texts.reserve(joined.count());
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(joined.count()); ++i)
    texts.push_back(left.at(broadcast.place(0, i)) + right.at(broadcast.place(1, i)));
  return {array_of(texts, std::move(joined.dims))};
}

/// The pieces between delimiters; without one, between runs of white space. At most `most` cuts are
/// made if that is not negative.
Strings pieces_of(std::string_view text, std::string_view delimiter, std::int64_t most) {
  constexpr std::string_view kSpace = " \t\n\r\f\v";
  Strings pieces;
  const bool by_space = delimiter.empty();
  while (true) {
    if (by_space) {
      text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
      if (text.empty()) return pieces;
    }
    const std::size_t end = by_space ? text.find_first_of(kSpace) : text.find(delimiter);
    const bool is_last = most >= 0 && static_cast<std::int64_t>(pieces.size()) == most;
    if (end == std::string_view::npos || is_last) {
      if (by_space) text = text.substr(0, text.find_last_not_of(kSpace) + 1);
      pieces.emplace_back(text);
      return pieces;
    }
    pieces.emplace_back(text.substr(0, end));
    text.remove_prefix(end + (by_space ? 1 : delimiter.size()));
  }
}

Arrays split_each(const OperatorCall& call) {
  const Array& given = *call.inputs.at(0);
  const std::string delimiter = text_of(call, "delimiter");
  std::vector<Strings> all;
  std::size_t widest = 0;
  for (const std::string& text : texts_of(given)) {
    all.push_back(pieces_of(text, delimiter, integer_of(call, "maxsplit", -1)));
    widest = std::max(widest, all.back().size());
  }
  Strings pieces;
  std::vector<std::int64_t> counts;
  for (Strings& each : all) {
    counts.push_back(static_cast<std::int64_t>(each.size()));
    each.resize(widest);
    pieces.insert(pieces.end(), each.begin(), each.end());
  }
  Dims dims = given.dims;
  dims.push_back(static_cast<std::int64_t>(widest));
  return {array_of(pieces, std::move(dims)), array_with(Element::kInt64, given.dims, counts)};
}

Arrays match_each(const OperatorCall& call) {
  std::regex pattern;
  try {
    pattern = text_of(call, "pattern");
  } catch (const std::regex_error& error) {
    raise<UnsupportedError>("evaluate", "the pattern '", text_of(call, "pattern"),
                            "' is not understood: ", error.what());
  }
  const Strings texts = texts_of(*call.inputs.at(0));
  std::vector<char> matches;
  matches.reserve(texts.size());
  for (const std::string& text : texts) matches.push_back(std::regex_match(text, pattern) ? 1 : 0);
  return {array_with(Element::kBool, call.inputs[0]->dims, matches)};
}

/// Floats have as few digits as tell them from their neighbours.
Strings texts_of_numbers(const Array& array) {
  Strings texts;
  if (array.element == Element::kInt64) {
    const std::vector<std::int64_t> values = codes_of(array);
    texts.reserve(values.size());
    for (const std::int64_t value : values) texts.push_back(std::to_string(value));
    return texts;
  }
  const bool is_float = array.element == Element::kFloat;
  for (const double value : array.values()) {
    std::array<char, 32> text{};
    char* const end = text.data() + text.size();
    const char* const stop = is_float
                                 ? std::to_chars(text.data(), end, static_cast<float>(value)).ptr
                                 : std::to_chars(text.data(), end, value).ptr;
    texts.push_back(std::isnan(value) ? "NaN"
                    : std::isfinite(value)
                        ? std::string(static_cast<const char*>(text.data()), stop)
                    : value < 0 ? "-INF"
                                : "INF");
  }
  return texts;
}

/// The numbers that strings spell, as doubles or integers of 64 bits.
Array numbers_of(const Array& array, bool is_real) {
  Array numbers{is_real ? Element::kDouble : Element::kInt64, array.dims, {}};
  for (const std::string& text : texts_of(array)) {
    char* end = nullptr;
    std::array<char, 8> bytes{};
    const double real = is_real ? std::strtod(text.c_str(), &end) : 0;
    const std::int64_t whole = is_real ? 0 : std::strtoll(text.c_str(), &end, 10);
    if (end == text.c_str() || *end != '\0') raise("evaluate", "'", text, "' is no number");
    if (is_real) {
      std::memcpy(bytes.data(), &real, bytes.size());
    } else {
      std::memcpy(bytes.data(), &whole, bytes.size());
    }
    numbers.bytes.append(bytes.data(), bytes.size());
  }
  return numbers;
}

bool is_real(Element element) {
  return element == Element::kFloat || element == Element::kDouble ||
         element == Element::kFloat16 || element == Element::kBFloat16;
}

std::string cast(const OperatorLibrary& library, const OperatorCall& call, Arrays* results) {
  const Array& given = *call.inputs.at(0);
  const auto to = call.op == "CastLike" ? call.inputs.at(1)->element
                                        : static_cast<Element>(integer_of(call, "to", 0));
  if (to == Element::kString) {
    results->push_back(is_text(&given) ? given : array_of(texts_of_numbers(given), given.dims));
    return {};
  }
  const Array numbers = numbers_of(given, is_real(to));
  const bool is_low = to == Element::kFloat16 || to == Element::kBFloat16;
  OperatorCall own;
  own.op = "Cast";
  own.opset = call.opset;
  own.inputs = {&numbers};
  own.outputs = {is_low ? Element::kFloat : to};
  own.attributes["to"].integer = static_cast<std::int64_t>(own.outputs[0]);
  return library.run(own, results);
}

Array as_codes(const Array& array) {
  return {Element::kInt64, array.dims, array.bytes};
}

/// The same call on codes. Strings of attributes become numbers, as those of operands did.
std::string on_codes(const OperatorLibrary& library, const OperatorCall& call, Arrays* results) {
  OperatorCall own = call;
  Arrays codes;
  codes.reserve(call.inputs.size());
  for (const Array*& each : own.inputs) {
    if (is_text(each)) each = &codes.emplace_back(as_codes(*each));
  }
  for (Element& each : own.outputs) {
    if (each == Element::kString) each = Element::kInt64;
  }
  if (const AttributeValue* const pool = attribute_of(call, "pool_strings")) {
    std::vector<std::int64_t>& numbers = own.attributes["pool_int64s"].integers;
    for (const std::string& text : pool->texts) numbers.push_back(code_of(text));
  }
  std::string why = library.run(own, results);
  for (std::size_t i = 0; i < results->size() && i < call.outputs.size(); ++i) {
    if (call.outputs[i] == Element::kString) (*results)[i].element = Element::kString;
  }
  return why;
}

using Run = Arrays (*)(const OperatorCall&);

constexpr std::array<std::pair<std::string_view, Run>, 6> kOperators{
    {{"StringNormalizer", normalize},
     {"StringConcat", concat_each},
     {"StringSplit", split_each},
     {"RegexFullMatch", match_each},
     {"LabelEncoder", encoded_labels},
     {"CategoryMapper", mapped_categories}}};

}  // namespace

bool concerns_strings(std::string_view domain, const OperatorCall& call) {
  if (domain == "ai.onnx.ml") return call.op == "LabelEncoder" || call.op == "CategoryMapper";
  return domain.empty() &&
         (std::ranges::any_of(call.inputs, is_text) ||
          std::ranges::find(call.outputs, Element::kString) != call.outputs.end() ||
          (call.op == "Cast" && integer_of(call, "to", 0) == 8));
}

std::string run_on_strings(const OperatorLibrary& library, const OperatorCall& call,
                           Arrays* results) {
  if (call.op == "Cast" || call.op == "CastLike") return cast(library, call, results);
  const auto own = std::ranges::find(kOperators, call.op, &std::pair<std::string_view, Run>::first);
  if (own != kOperators.end()) {
    *results = own->second(call);
    return {};
  }
  const bool moves = std::ranges::find(kMoving, call.op) != kMoving.end();
  if (!moves && call.op != "TfIdfVectorizer") return "it has strings, which are not computed with";
  return on_codes(library, call, results);
}

}  // namespace mezzo::convert
