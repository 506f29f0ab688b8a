// The common part of tests of commands on TorchScript files: a folder with a network in it.
#pragma once

#include <gtest/gtest.h>
#include <torch/script.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "script_modules.h"

namespace mezzo::deploy {

/// Its folder holds net.pt, a saved conv_net().
class CommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_);
    torch::manual_seed(1);
    conv_net().save(path("net.pt"));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("mezzo_command_" + std::to_string(getpid()));
};

}  // namespace mezzo::deploy
