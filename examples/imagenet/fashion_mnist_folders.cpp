// Writes Fashion-MNIST as folders of JPEG files, which imagenet trains on:
//
//   fashion_mnist_folders --out clothes
//   imagenet -a resnet20 --image-size 28 --b 128 clothes
#include <mezzo/error.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "imagenet/data/write_jpeg.h"
#include "support/command_line.h"
#include "support/idx.h"

namespace {

namespace fs = std::filesystem;

// In the order of the labels.
constexpr const char* kKinds[] = {"0_t-shirt", "1_trouser", "2_pullover", "3_dress", "4_coat",
                                  "5_sandal",  "6_shirt",   "7_sneaker",  "8_bag",   "9_boot"};

/// The first `count` images (0: all) of a part of the data set.
void write_part(const fs::path& data, const std::string& part, const fs::path& out, int count) {
  const examples::IdxFile pixels = examples::read_idx(data / (part + "-images-idx3-ubyte.gz"));
  const examples::IdxFile labels = examples::read_idx(data / (part + "-labels-idx1-ubyte.gz"));
  if (pixels.shape.size() != 3 || labels.shape.size() != 1 || pixels.shape[0] != labels.shape[0])
    throw mezzo::Error("'" + data.string() + "' does not hold Fashion-MNIST");
  const auto size = static_cast<std::size_t>(pixels.shape[1] * pixels.shape[2]);
  const auto all = static_cast<std::size_t>(pixels.shape[0]);
  const std::size_t wanted = count > 0 ? std::min(all, static_cast<std::size_t>(count)) : all;
  for (const char* kind : kKinds) fs::create_directories(out / kind);
  for (std::size_t i = 0; i < wanted; ++i) {
    std::string name = std::to_string(i);
    name.insert(0, 6 - std::min<std::size_t>(name.size(), 6), '0');
    examples::imagenet::write_jpeg(
        out / kKinds[labels.values[i] % std::size(kKinds)] / (name + ".jpg"),
        {.width = static_cast<int>(pixels.shape[2]),
         .height = static_cast<int>(pixels.shape[1]),
         .channels = 1},
        {pixels.values.data() + i * size, size});
  }
  std::cout << "wrote " << wanted << " images to " << out.string() << std::endl;
}

int run(int argc, char** argv) {
  std::string data = "/usr/share/datasets/fashion-mnist", out = "fashion_mnist_folders";
  int train = 0, test = 0;
  examples::CommandLine line("fashion_mnist_folders",
                             "Writes Fashion-MNIST as folders of JPEG files.");
  line.option("data", data, "folder of the data set")
      .option("out", out, "folder that gets train/ and val/")
      .option("train", train, "training images; 0: all 60,000")
      .option("test", test, "test images; 0: all 10,000");
  if (!line.parse(argc, argv)) return 0;
  line.require("train", train, 0, 60000);
  line.require("test", test, 0, 10000);
  write_part(data, "train", fs::path(out) / "train", train);
  write_part(data, "t10k", fs::path(out) / "val", test);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_program("fashion_mnist_folders", run, argc, argv);
}
