#include "report/event_json.h"

#include <limits>

#include "core/raise.h"
#include "report/precision_json.h"
#include "report/watched_json.h"

namespace mezzo::report {

namespace {

template <class... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

Json optional_json(const std::optional<double>& value) {
  return value ? Json(*value) : Json();
}

}  // namespace

Json to_json_object(const Machine& machine) {
  Json object;
  object["processor"] = machine.processor;
  object["instruction_sets"] = machine.instruction_sets;
  object["cores"] = machine.cores;
  object["threads"] = machine.threads;
  object["devices"] = machine.devices;
  object["versions"] = machine.versions;
  object["compute"] = machine.compute;
  return object;
}

Machine machine_from_json(const Json& object) {
  const Fields fields(object);
  Machine machine;
  machine.processor = fields.text("processor");
  machine.instruction_sets = fields.texts("instruction_sets");
  machine.cores = static_cast<int>(fields.integer("cores"));
  machine.threads = static_cast<int>(fields.integer("threads"));
  machine.devices = fields.texts("devices");
  machine.versions = fields.text_map("versions");
  machine.compute = fields.text_map("compute");
  return machine;
}

Json to_json_object(const Event& event) {
  return std::visit(
      Overloaded{[](const RunStarted& e) {
                   return Json{{"event", "run_started"},
                               {"run", e.run},
                               {"epochs", e.epochs},
                               {"steps_per_epoch", e.steps_per_epoch},
                               {"batch_size", e.batch_size},
                               {"items", e.items},
                               {"machine", to_json_object(e.machine)}};
                 },
                 [](const StepTaken& e) {
                   return Json{{"event", "step"},        {"epoch", e.epoch},
                               {"step", e.step},         {"loss", e.loss},
                               {"accuracy", e.accuracy}, {"items_per_second", e.items_per_second},
                               {"scale", e.scale},       {"skipped_steps", e.skipped_steps}};
                 },
                 [](const EpochEnded& e) {
                   return Json{{"event", "epoch_ended"},
                               {"epoch", e.epoch},
                               {"loss", e.loss},
                               {"accuracy", e.accuracy},
                               {"test_accuracy", optional_json(e.test_accuracy)},
                               {"seconds", e.seconds}};
                 },
                 [](const RunEnded& e) {
                   return Json{{"event", "run_ended"},
                               {"test_accuracy", e.test_accuracy},
                               {"seconds_per_step", e.seconds_per_step},
                               {"peak_memory_bytes", e.peak_memory_bytes},
                               {"parameter_bytes", e.parameter_bytes},
                               {"master_bytes", e.master_bytes},
                               {"optimizer_state_bytes", e.optimizer_state_bytes},
                               {"weight_casts_per_step", e.weight_casts_per_step},
                               {"activation_casts_per_step", e.activation_casts_per_step},
                               {"skipped_steps", e.skipped_steps},
                               {"final_scale", e.final_scale}};
                 },
                 [](const Message& e) {
                   return Json{{"event", "message"}, {"text", e.text}};
                 },
                 [](const StepWatched& e) { return watched_json(e); },
                 [](const SkipExplained& e) { return explained_json(e); },
                 [](const PrecisionAdvised& e) { return advised_json(e); },
                 [](const PrecisionCompared& e) { return compared_json(e); }},
      event);
}

Event event_from_json(const Json& object) {
  const Fields f(object);
  const std::string kind = f.text("event");
  if (kind == "run_started") {
    return RunStarted{
        f.text("run"),           f.integer("epochs"), f.integer("steps_per_epoch"),
        f.integer("batch_size"), f.text("items"),     machine_from_json(f.at("machine"))};
  }
  if (kind == "step") {
    return StepTaken{f.integer("epoch"),
                     f.integer("step"),
                     f.number("loss"),
                     f.number("accuracy"),
                     f.number("items_per_second"),
                     f.number("scale"),
                     f.integer("skipped_steps")};
  }
  if (kind == "epoch_ended") {
    return EpochEnded{f.integer("epoch"), f.number("loss"), f.number("accuracy"),
                      f.optional_number("test_accuracy"), f.number("seconds")};
  }
  if (kind == "run_ended") {
    return RunEnded{f.number("test_accuracy"),         f.number("seconds_per_step"),
                    f.integer("peak_memory_bytes"),    f.integer("parameter_bytes"),
                    f.integer("master_bytes"),         f.integer("optimizer_state_bytes"),
                    f.number("weight_casts_per_step"), f.number("activation_casts_per_step"),
                    f.integer("skipped_steps"),        f.number("final_scale")};
  }
  if (kind == "message") return Message{f.text("text")};
  if (kind == "step_watched") return watched_from(f);
  if (kind == "skip_explained") return explained_from(f);
  if (kind == "precision_advised") return advised_from(f);
  if (kind == "precision_compared") return compared_from(f);
  raise<ConfigError>("report", "unknown event '", kind,
                     "'; expected run_started, step, epoch_ended, run_ended, message, "
                     "step_watched, skip_explained, precision_advised or precision_compared");
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
