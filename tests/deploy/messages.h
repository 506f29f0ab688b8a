// The message of a call that fails.
#pragma once

#include <exception>
#include <string>

namespace mezzo::deploy {

template <typename Run>
std::string message_of(const Run& run) {
  try {
    run();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace mezzo::deploy
