// The exceptions of Mezzo. A message says where, what happened, what was got, what would work.
#pragma once

#include <stdexcept>
#include <string>

#include "mezzo/export.h"

namespace mezzo {

/// The base of everything that Mezzo throws: a file that cannot be read, a call that came too
/// early, an invalid graph.
class MEZZO_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  Error(const Error&) = default;
  Error& operator=(const Error&) = default;
  ~Error() override;
};

/// The caller asked for something that cannot be: an unknown level, options that contradict each
/// other, a wrong type.
class MEZZO_API ConfigError : public Error {
 public:
  using Error::Error;
  ConfigError(const ConfigError&) = default;
  ConfigError& operator=(const ConfigError&) = default;
  ~ConfigError() override;
};

/// This build, device, LibTorch or graph cannot do what was asked, though another one might.
class MEZZO_API UnsupportedError : public Error {
 public:
  using Error::Error;
  UnsupportedError(const UnsupportedError&) = default;
  UnsupportedError& operator=(const UnsupportedError&) = default;
  ~UnsupportedError() override;
};

}  // namespace mezzo
