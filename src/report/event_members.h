// The members of every event and their names in JSON, in the order in which they are written. A new
// kind of event needs a function here and a name in `kKinds` of event_json.cpp.
#pragma once

#include <concepts>
#include <type_traits>

#include "mezzo/events.h"

namespace mezzo::report {

/// E or const E: each_member(e, visit) calls visit(name, member) for each of its members.
template <class T, class E>
concept Is = std::same_as<std::remove_const_t<T>, E>;

/// An error: never NaN, and JSON has no infinity, so that null stands for it.
template <class T>
struct Unbounded {
  explicit Unbounded(T& number) : value(number) {}
  T& value;
};

void each_member(Is<Machine> auto& e, const auto& visit) {
  visit("processor", e.processor);
  visit("instruction_sets", e.instruction_sets);
  visit("cores", e.cores);
  visit("threads", e.threads);
  visit("devices", e.devices);
  visit("versions", e.versions);
  visit("compute", e.compute);
}

void each_member(Is<RunStarted> auto& e, const auto& visit) {
  visit("run", e.run);
  visit("epochs", e.epochs);
  visit("steps_per_epoch", e.steps_per_epoch);
  visit("batch_size", e.batch_size);
  visit("items", e.items);
  visit("machine", e.machine);
}

void each_member(Is<StepTaken> auto& e, const auto& visit) {
  visit("epoch", e.epoch);
  visit("step", e.step);
  visit("loss", e.loss);
  visit("accuracy", e.accuracy);
  visit("items_per_second", e.items_per_second);
  visit("scale", e.scale);
  visit("skipped_steps", e.skipped_steps);
}

void each_member(Is<EpochEnded> auto& e, const auto& visit) {
  visit("epoch", e.epoch);
  visit("loss", e.loss);
  visit("accuracy", e.accuracy);
  visit("test_accuracy", e.test_accuracy);
  visit("seconds", e.seconds);
}

void each_member(Is<RunEnded> auto& e, const auto& visit) {
  visit("test_accuracy", e.test_accuracy);
  visit("seconds_per_step", e.seconds_per_step);
  visit("peak_memory_bytes", e.peak_memory_bytes);
  visit("parameter_bytes", e.parameter_bytes);
  visit("master_bytes", e.master_bytes);
  visit("optimizer_state_bytes", e.optimizer_state_bytes);
  visit("weight_casts_per_step", e.weight_casts_per_step);
  visit("activation_casts_per_step", e.activation_casts_per_step);
  visit("skipped_steps", e.skipped_steps);
  visit("final_scale", e.final_scale);
}

void each_member(Is<Message> auto& e, const auto& visit) {
  visit("text", e.text);
}

void each_member(Is<Magnitudes> auto& e, const auto& visit) {
  visit("type", e.type);
  visit("count", e.count);
  visit("norm", e.norm);
  visit("largest", e.largest);
  visit("smallest", e.smallest);
  visit("zeros", e.zeros);
  visit("subnormals", e.subnormals);
  visit("saturated", e.saturated);
  visit("nans", e.nans);
  visit("first_exponent", e.first_exponent);
  visit("exponents", e.exponents);
}

void each_member(Is<Watched> auto& e, const auto& visit) {
  visit("module", e.module);
  visit("parameter", e.parameter);
  visit("weights", e.weights);
  visit("gradients", e.gradients);
  visit("updates", e.updates);
  visit("update_ratio", e.update_ratio);
}

void each_member(Is<StepWatched> auto& e, const auto& visit) {
  visit("step", e.step);
  visit("scale", e.scale);
  visit("skipped", e.skipped);
  visit("rows", e.rows);
}

void each_member(Is<SkipExplained> auto& e, const auto& visit) {
  visit("step", e.step);
  visit("cause", e.cause);
  visit("name", e.name);
  visit("module", e.module);
  visit("backward", e.backward);
  visit("parameter", e.parameter);
  visit("rank", e.rank);
  visit("fails_in_float", e.fails_in_float);
  visit("scale", e.scale);
  visit("summary", e.summary);
  visit("advice", e.advice);
}

void each_member(Is<AdvisedOperator> auto& e, const auto& visit) {
  visit("type", e.type);
  visit("name", e.name);
  visit("class", e.cast_class);
  visit("reason", e.reason);
}

void each_member(Is<AdvisedCost> auto& e, const auto& visit) {
  visit("type", e.type);
  visit("class", e.cast_class);
  visit("calls", e.calls);
  visit("float_seconds", e.float_seconds);
  visit("low_seconds", e.low_seconds);
  visit("float_bytes", e.float_bytes);
  visit("low_bytes", e.low_bytes);
}

void each_member(Is<PrecisionAdvised> auto& e, const auto& visit) {
  visit("steps", e.steps);
  visit("text", e.text);
  visit("policies", e.policies);
  visit("operators", e.operators);
  visit("costs", e.costs);
  visit("odd_sizes", e.odd_sizes);
}

void each_member(Is<ComparedOperator> auto& e, const auto& visit) {
  visit("name", e.name);
  visit("module", e.module);
  visit("backward", e.backward);
  visit("type", e.type);
  visit("own", Unbounded(e.own));
  visit("accumulated", Unbounded(e.accumulated));
}

void each_member(Is<ComparedCast> auto& e, const auto& visit) {
  visit("name", e.name);
  visit("module", e.module);
  visit("parameter", e.parameter);
  visit("input", e.input);
  visit("type", e.type);
  visit("error", Unbounded(e.error));
  visit("seconds", e.seconds);
}

void each_member(Is<PrecisionCompared> auto& e, const auto& visit) {
  visit("level", e.level);
  visit("scale", e.scale);
  visit("text", e.text);
  visit("operators", e.operators);
  visit("casts", e.casts);
}

}  // namespace mezzo::report
