// Events as JSON: one object each, told apart by "event".
#pragma once

#include <nlohmann/json.hpp>

#include "mezzo/events.h"

namespace mezzo::report {

using Json = nlohmann::ordered_json;  // keys in the order in which they are written

Json to_json_object(const Machine&);
Json to_json_object(const Event&);

/// On one line, or with `indent` spaces a level. Bytes that are no UTF-8 become U+FFFD.
std::string to_text(const Json&, int indent = -1);

/// Reads the output of to_json_object(). Throws ConfigError if a field is missing or of another
/// type, naming it, or where the kind of event is unknown.
Machine machine_from_json(const Json&);
Event event_from_json(const Json&);

/// Reads members of one object; a number that JSON cannot hold (a NaN loss) was written as null.
class Fields {
 public:
  explicit Fields(const Json& object);
  std::string text(const char* name) const;
  double number(const char* name) const;
  std::int64_t integer(const char* name) const;
  std::optional<double> optional_number(const char* name) const;
  bool truth(const char* name) const;
  std::vector<std::int64_t> integers(const char* name) const;
  std::vector<std::string> texts(const char* name) const;
  std::map<std::string, std::string> text_map(const char* name) const;
  const Json& at(const char* name) const;
  bool has(const char* name) const;

 private:
  const Json& object_;
};

/// The members of RunEnded in an object that holds others too. Throws as event_from_json().
RunEnded figures_from(const Fields&);

}  // namespace mezzo::report
