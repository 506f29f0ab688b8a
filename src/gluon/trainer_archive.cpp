// save_states and load_states.
#include <torch/serialize/archive.h>

#include <ostream>

#include "gluon/trainer_state.h"
#include "platform/files.h"

namespace mezzo::gluon::detail {
namespace {

constexpr const char* kSave = "save_states";
constexpr const char* kLoad = "load_states";

c10::IValue saved_number(torch::serialize::InputArchive& archive, const std::string& key) {
  c10::IValue value;
  if (!archive.try_read(key, value)) {
    raise(kLoad, "the file holds no trainer's state: it has no '", key, "'");
  }
  return value;
}

void write_scale(torch::serialize::OutputArchive& archive, const ScaleNumbers& numbers) {
  archive.write("loss_scale", c10::IValue(numbers.scale));
  archive.write("next_loss_scale", c10::IValue(numbers.next));
  archive.write("unskipped", c10::IValue(numbers.unskipped));
  archive.write("stuck", c10::IValue(numbers.stuck));
}

ScaleNumbers read_scale(torch::serialize::InputArchive& archive) {
  ScaleNumbers numbers{saved_number(archive, "loss_scale").toDouble(),
                       saved_number(archive, "next_loss_scale").toDouble(),
                       saved_number(archive, "unskipped").toInt(),
                       saved_number(archive, "stuck").toInt()};
  if (!(numbers.scale > 0) || !(numbers.next > 0)) {
    raise(kLoad, "the file's loss scale is ", numbers.scale, "; expected a number above 0");
  }
  return numbers;
}

}  // namespace

void TrainerState::save(const std::string& path) const {
  torch::serialize::OutputArchive archive, optimizer_archive;
  archive.write("kind", c10::IValue(std::string(own ? "mxnet" : "torch")));
  archive.write("updates", c10::IValue(foreign_updates));
  optimizer().save(optimizer_archive);
  archive.write("optimizer_state", optimizer_archive);
  archive.write("has_scale", c10::IValue(scaler.has_value()));
  if (scaler) write_scale(archive, scaler->numbers());
  try {
    platform::write_atomically(path, [&](std::ostream& out) { archive.save_to(out); });
  } catch (const c10::Error& error) {
    raise(kSave, path, ": ", error.what_without_backtrace());
  }
}

void TrainerState::load(const std::string& path) {
  torch::serialize::InputArchive archive, optimizer_archive;
  try {
    archive.load_from(path);
  } catch (const c10::Error& error) {
    raise(kLoad, path, ": ", error.what_without_backtrace());
  }
  const std::string kind = saved_number(archive, "kind").toStringRef();
  if (kind != (own ? "mxnet" : "torch")) {
    raise(kLoad, path, " has the state of ", own ? "an optimizer of LibTorch" : "a named optimizer",
          "; the trainer is made of ", own ? "a named one" : "one of LibTorch");
  }
  const std::int64_t updates = saved_number(archive, "updates").toInt();
  std::optional<ScaleNumbers> scale;
  if (saved_number(archive, "has_scale").toBool()) scale = read_scale(archive);
  if (!archive.try_read("optimizer_state", optimizer_archive)) {
    raise(kLoad, path, " holds no optimizer's state");
  }
  optimizer().load(optimizer_archive);
  foreign_updates = updates;
  if (scaler && scale) {
    scaler->set_numbers(*scale);
  } else if (scale) {
    loaded_scale = scale;
  }
}

}  // namespace mezzo::gluon::detail
