#include "convert/report/json.h"

#include <algorithm>
#include <set>
#include <utility>

#include "convert/onnx/concat.h"
#include "core/raise.h"

namespace mezzo::convert {
namespace {

constexpr int kDeepest = 64;

// Stops the parser at what it would take: deep nesting, and names that stand twice in an object.
class Watch {
 public:
  bool operator()(int depth, ReadJson::parse_event_t event, const ReadJson& parsed) {
    using Event = ReadJson::parse_event_t;
    const bool opens = event == Event::object_start || event == Event::array_start;
    if (opens && depth >= kDeepest) raise<ConfigError>("json", "nested deeper than 64");
    if (event == Event::object_start) names_.emplace_back();
    if (event == Event::object_end) names_.pop_back();
    if (event == Event::key && !names_.back().insert(parsed.get<std::string>()).second)
      raise<ConfigError>("json", "'", parsed.get<std::string>(), "' stands twice in an object");
    return true;
  }

 private:
  std::vector<std::set<std::string>> names_;  // of the objects that are open
};

// Without the library's own name of the error: "[json.exception.parse_error.101] parse error at".
std::string reason_in(const ReadJson::exception& error) {
  std::string_view text = error.what();
  const std::size_t end = text.find("] ");
  if (end != std::string_view::npos) text.remove_prefix(end + 2);
  return std::string(text);
}

}  // namespace

std::string json_text(const Json& json) {
  return json.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

ReadJson parse_json(std::string_view text) {
  Watch watch;
  try {
    return ReadJson::parse(text, [&](int depth, ReadJson::parse_event_t event, ReadJson& parsed) {
      return watch(depth, event, parsed);
    });
  } catch (const ReadJson::exception& error) {
    raise<ConfigError>("json", reason_in(error));
  }
}

Members::Members(const ReadJson& object, std::string place)
    : object_(object), place_(std::move(place)) {
  if (!object.is_object()) {
    raise<ConfigError>("json", place_.empty() ? "the whole" : place_, " is no object but ",
                       object.type_name());
  }
}

std::string Members::place_of(std::string_view name) const {
  return place_.empty() ? std::string(name) : concat({place_, ".", name});
}

const ReadJson& Members::at(const char* name, ReadJson::value_t type, std::string_view kind) const {
  const auto found = object_.find(name);
  if (found == object_.end()) raise<ConfigError>("json", "'", place_of(name), "' is missing");
  if (found->type() != type) {
    raise<ConfigError>("json", "'", place_of(name), "' is no ", kind, " but ", found->type_name());
  }
  return *found;
}

std::string Members::text(const char* name) const {
  return at(name, ReadJson::value_t::string, "text").get<std::string>();
}

std::string Members::optional_text(const char* name) const {
  return has(name) ? text(name) : std::string();
}

bool Members::flag(const char* name) const {
  return at(name, ReadJson::value_t::boolean, "flag").get<bool>();
}

bool Members::optional_flag(const char* name) const {
  return has(name) && flag(name);
}

std::vector<std::string> Members::optional_texts(const char* name) const {
  if (!has(name)) return {};
  const ReadJson& list = at(name, ReadJson::value_t::array, "list");
  if (!std::ranges::all_of(list, [](const ReadJson& item) { return item.is_string(); }))
    raise<ConfigError>("json", "'", place_of(name), "' is no list of texts");
  return list.get<std::vector<std::string>>();
}

std::map<std::string, std::string> Members::text_map(const char* name) const {
  const ReadJson& object = at(name, ReadJson::value_t::object, "object");
  if (!std::ranges::all_of(object, [](const ReadJson& value) { return value.is_string(); }))
    raise<ConfigError>("json", "'", place_of(name), "' is no object of texts");
  return object.get<std::map<std::string, std::string>>();
}

std::vector<Members> Members::objects(const char* name) const {
  const ReadJson& list = at(name, ReadJson::value_t::array, "list");
  std::vector<Members> items;
  for (std::size_t i = 0; i < list.size(); ++i)
    items.emplace_back(list[i], concat({place_of(name), "[", std::to_string(i), "]"}));
  return items;
}

}  // namespace mezzo::convert
