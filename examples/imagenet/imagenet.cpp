// Trains a network to say what is on photographs: a folder DIR with train/CLASS/*.jpg and
// val/CLASS/*.jpg, such as ImageNet's.
//
//   imagenet -a resnet50 --workers 4 --b 224 --opt-level O1 DIR
//   mezzo launch --nproc-per-node 2 -- imagenet -a resnet50 --b 224 --opt-level O2 DIR
//   imagenet -a resnet50 --resume checkpoint.safetensors DIR       after any stop, to the bit
//
// train/trainer.cpp is the loop, train/recipe.cpp has the lines of mixed precision, data/ reads
// images, models/ has the networks.
#include "imagenet/train/settings.h"
#include "imagenet/train/trainer.h"
#include "support/command_line.h"
#include "support/ranks.h"

namespace {

int run(int argc, char** argv) {
  const auto settings = examples::imagenet::read_settings(argc, argv);
  if (!settings) return 0;
  const examples::Ranks ranks;
  examples::imagenet::Trainer trainer(*settings);
  const int code = trainer.run();
  if (code == 0) ranks.expect_equal(trainer.weights());
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_program("imagenet", run, argc, argv);
}
