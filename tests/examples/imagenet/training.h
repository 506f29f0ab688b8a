// Whole trainings of few steps, in this process.
#pragma once

#include <ATen/Parallel.h>
#include <mezzo/report.h>
#include <mezzo/safetensors.h>

#include <algorithm>
#include <string>
#include <vector>

#include "examples/imagenet/pictures.h"
#include "imagenet/train/settings.h"
#include "imagenet/train/trainer.h"

namespace examples::imagenet {

struct Trained {
  int code = 0;
  mezzo::report::Run run;
  std::uint64_t weights = 0;  ///< a number of the bits of all weights, statistics and averages
};

/// FNV-1a over what a checkpoint holds of networks.
inline std::uint64_t weights_in(const std::filesystem::path& file) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const auto& item : mezzo::load_safetensors(file)) {
    if (!item.key().starts_with("model.") && !item.key().starts_with("average.")) continue;
    const auto* bytes = static_cast<const unsigned char*>(item.value().const_data_ptr());
    for (std::size_t i = 0; i < item.value().nbytes(); ++i)
      hash = (hash ^ bytes[i]) * 0x100000001b3;
  }
  return hash;
}

/// A data set and a place for what trainings write.
class Workshop {
 public:
  explicit Workshop(int kinds = 3, int train = 8, int val = 3) {
    at::set_num_threads(1);
    write_data_set(data(), kinds, train, val);
  }

  std::filesystem::path data() const { return folder_.path() / "data"; }
  std::filesystem::path file(const std::string& name) const { return folder_.path() / name; }

  /// Two epochs of three steps in float, unless the words say otherwise. `name`: of its files.
  Trained train(const std::vector<std::string>& words, const std::string& name = "run",
                bool synthetic = false) const {
    std::vector<std::string> all{"imagenet",
                                 "-a",
                                 "resnet20",
                                 "--image-size",
                                 "16",
                                 "-b",
                                 "8",
                                 "-j",
                                 "1",
                                 "--epochs",
                                 "2",
                                 "-p",
                                 "1",
                                 "--lr",
                                 "1",
                                 "--checkpoint",
                                 file(name + ".safetensors"),
                                 "--log",
                                 file(name + ".jsonl")};
    if (std::ranges::find(words, "--how") == words.end())
      all.insert(all.end(), {"--opt-level", "O0"});
    all.insert(all.end(), words.begin(), words.end());
    if (!synthetic) all.push_back(data());
    std::vector<const char*> pointers;
    for (const std::string& word : all) pointers.push_back(word.c_str());
    const auto settings = read_settings(static_cast<int>(pointers.size()), pointers.data());
    Trained trained;
    trained.code = Trainer(settings.value()).run();
    trained.run = mezzo::report::read(file(name + ".jsonl")).runs.at(0);
    if (std::filesystem::exists(file(name + ".safetensors")))
      trained.weights = weights_in(file(name + ".safetensors"));
    return trained;
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace examples::imagenet
