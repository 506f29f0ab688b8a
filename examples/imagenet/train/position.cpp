#include "imagenet/train/position.h"

#include <mezzo/error.h>

#include <cstdlib>

namespace examples::imagenet {
namespace {

std::string exact(double value) {
  constexpr std::size_t kRoom = 40;
  std::string text(kRoom, '\0');
  text.resize(static_cast<std::size_t>(std::snprintf(text.data(), kRoom, "%a", value)));
  return text;
}

}  // namespace

Notes notes_of(const Position& position, const Origin& origin) {
  Notes notes;
  notes.entries = {{"epoch", std::to_string(position.epoch)},
                   {"step", std::to_string(position.step)},
                   {"best", exact(position.best)}};
  for (const auto& [name, value] : origin) notes.entries["origin." + name] = value;
  if (position.sums.defined()) notes.tensors["sums"] = position.sums;
  return notes;
}

Position position_of(const Notes& notes, const Origin& origin, const std::string& file) {
  const auto entry = [&](const std::string& name) {
    const auto found = notes.entries.find(name);
    if (found == notes.entries.end())
      throw mezzo::Error("'" + file + "' does not say where its training was ('" + name + "')");
    return found->second;
  };
  Position position{std::atoll(entry("epoch").c_str()),
                    std::atoll(entry("step").c_str()),
                    std::strtod(entry("best").c_str(), nullptr),
                    {}};
  for (const auto& [name, value] : origin) {
    const std::string then = entry("origin." + name);
    if (then == value || (position.step == 0 && name != "arch")) continue;
    throw mezzo::ConfigError("--resume: '" + file + "' stopped in the middle of an epoch with " +
                             name + " " + then + ", got " + value +
                             "; the rest of the epoch would be other images");
  }
  const auto sums = notes.tensors.find("sums");
  if (sums != notes.tensors.end()) position.sums = sums->second;
  return position;
}

}  // namespace examples::imagenet
