#include "report/event_json.h"

#include <array>
#include <limits>

#include "core/raise.h"
#include "report/event_members.h"

namespace mezzo::report {

namespace {

/// "event" in JSON, in the order of the variant.
constexpr std::array<std::string_view, std::variant_size_v<Event>> kKinds{
    "run_started",  "step",           "epoch_ended",       "run_ended",         "message",
    "step_watched", "skip_explained", "precision_advised", "precision_compared"};
static_assert(!kKinds.back().empty());

struct AnyVisit {
  void operator()(const char*, const auto&) const {}
};
template <class T>
concept HasMembers = requires(T& e) {
  each_member(e, AnyVisit{});
};

template <class T>
constexpr bool kIsArray = false;
template <class T>
constexpr bool kIsArray<std::vector<T>> = true;

Json json_of(const std::optional<double>& value) {
  return value ? Json(*value) : Json();
}

Json json_of(const Unbounded<const double>& error) {
  return error.value;
}

template <class T>
Json json_of(const T& value) {
  if constexpr (kIsArray<T>) {
    Json array = Json::array();
    for (const auto& each : value) array.push_back(json_of(each));
    return array;
  } else if constexpr (HasMembers<const T>) {
    Json object;
    each_member(value,
                [&](const char* name, const auto& member) { object[name] = json_of(member); });
    return object;
  } else {
    return value;
  }
}

/// Reads the members of E in an object.
template <class E>
E read(const Fields& fields);

struct Reader {
  const Fields& f;

  void operator()(const char* name, std::string& value) const { value = f.text(name); }
  void operator()(const char* name, bool& value) const { value = f.truth(name); }
  void operator()(const char* name, std::int64_t& value) const { value = f.integer(name); }
  void operator()(const char* name, int& value) const { value = static_cast<int>(f.integer(name)); }
  void operator()(const char* name, double& value) const { value = f.number(name); }
  void operator()(const char* name, const Unbounded<double>& error) const {
    error.value = f.optional_number(name).value_or(std::numeric_limits<double>::infinity());
  }
  void operator()(const char* name, std::optional<double>& value) const {
    value = f.optional_number(name);
  }
  void operator()(const char* name, std::vector<std::int64_t>& value) const {
    value = f.integers(name);
  }
  void operator()(const char* name, std::vector<std::string>& value) const {
    value = f.texts(name);
  }
  void operator()(const char* name, std::map<std::string, std::string>& value) const {
    value = f.text_map(name);
  }
  template <HasMembers E>
  void operator()(const char* name, E& value) const {
    value = read<E>(Fields(f.at(name)));
  }
  template <HasMembers E>
  void operator()(const char* name, std::vector<E>& value) const {
    const Json& array = f.at(name);
    if (!array.is_array())
      raise<ConfigError>("report", "field '", name, "' must be an array of objects");
    for (const Json& object : array) value.push_back(read<E>(Fields(object)));
  }
};

template <class E>
E read(const Fields& fields) {
  E read;
  each_member(read, Reader{fields});
  return read;
}

template <std::size_t I = 0>
Event read_event(const std::string& kind, const Fields& fields) {
  if constexpr (I < kKinds.size()) {
    if (kind != kKinds[I]) return read_event<I + 1>(kind, fields);
    return read<std::variant_alternative_t<I, Event>>(fields);
  }
  std::string known(kKinds[0]);
  for (std::size_t i = 1; i < kKinds.size(); ++i)
    known.append(i + 1 < kKinds.size() ? ", " : " or ").append(kKinds[i]);
  raise<ConfigError>("report", "unknown event '", kind, "'; expected ", known);
}

}  // namespace

Json to_json_object(const Machine& machine) {
  return json_of(machine);
}

Machine machine_from_json(const Json& object) {
  return read<Machine>(Fields(object));
}

Json to_json_object(const Event& event) {
  Json object{{"event", kKinds[event.index()]}};
  std::visit([&](const auto& e) { object.update(json_of(e)); }, event);
  return object;
}

Event event_from_json(const Json& object) {
  const Fields fields(object);
  return read_event(fields.text("event"), fields);
}

RunEnded figures_from(const Fields& fields) {
  return read<RunEnded>(fields);
}

std::string to_text(const Json& object, int indent) {
  return object.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

Fields::Fields(const Json& object) : object_(object) {
  if (!object.is_object())
    raise<ConfigError>("report", "expected a JSON object, got ", object.type_name());
}

bool Fields::has(const char* name) const {
  return object_.contains(name);
}

const Json& Fields::at(const char* name) const {
  const auto found = object_.find(name);
  if (found == object_.end()) raise<ConfigError>("report", "no field '", name, "'");
  return *found;
}

std::string Fields::text(const char* name) const {
  const Json& value = at(name);
  if (!value.is_string()) raise<ConfigError>("report", "field '", name, "' must be a text");
  return value.get<std::string>();
}

double Fields::number(const char* name) const {
  return optional_number(name).value_or(std::numeric_limits<double>::quiet_NaN());
}

std::int64_t Fields::integer(const char* name) const {
  const Json& value = at(name);
  if (!value.is_number_integer()) {
    raise<ConfigError>("report", "field '", name, "' must be a whole number");
  }
  return value.get<std::int64_t>();
}

std::optional<double> Fields::optional_number(const char* name) const {
  const Json& value = at(name);
  if (value.is_null()) return std::nullopt;
  if (!value.is_number()) raise<ConfigError>("report", "field '", name, "' must be a number");
  return value.get<double>();
}

bool Fields::truth(const char* name) const {
  const Json& value = at(name);
  if (!value.is_boolean()) raise<ConfigError>("report", "field '", name, "' must be true or false");
  return value.get<bool>();
}

std::vector<std::int64_t> Fields::integers(const char* name) const {
  const Json& value = at(name);
  std::vector<std::int64_t> all;
  bool right = value.is_array();
  for (const Json& element : value) {
    right = right && element.is_number_integer();
    if (right) all.push_back(element.get<std::int64_t>());
  }
  if (!right) raise<ConfigError>("report", "field '", name, "' must be an array of whole numbers");
  return all;
}

std::vector<std::string> Fields::texts(const char* name) const {
  const Json& value = at(name);
  std::vector<std::string> all;
  bool right = value.is_array();
  for (const Json& element : value) {
    right = right && element.is_string();
    if (right) all.push_back(element.get<std::string>());
  }
  if (!right) raise<ConfigError>("report", "field '", name, "' must be an array of texts");
  return all;
}

std::map<std::string, std::string> Fields::text_map(const char* name) const {
  const Json& value = at(name);
  std::map<std::string, std::string> all;
  bool right = value.is_object();
  for (const auto& [key, element] : value.items()) {
    right = right && element.is_string();
    if (right) all.emplace(key, element.get<std::string>());
  }
  if (!right) raise<ConfigError>("report", "field '", name, "' must be an object of texts");
  return all;
}

}  // namespace mezzo::report
