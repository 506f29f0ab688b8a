#include "imagenet/data/read_image.h"

#include <functional>

#include "imagenet/data/jpeg.h"
#include "imagenet/data/resize.h"

namespace examples::imagenet {
namespace {

void read(const std::filesystem::path& file, int side, std::uint8_t* into,
          const std::function<Rectangle(int width, int height)>& choose, bool mirrored) {
  const std::string bytes = read_file(file);
  try {
    const Jpeg jpeg({reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()});
    const DecodedPart decoded = jpeg.decode(choose(jpeg.width(), jpeg.height()), side);
    resize(decoded.pixels, decoded.part, side, mirrored, into);
  } catch (const BadImage& error) {
    throw BadImage("'" + file.string() + "': " + error.what());
  }
}

}  // namespace

void read_for_training(const std::filesystem::path& file, const Reading& reading, Random random,
                       std::uint8_t* into) {
  const bool mirrored = random.below(2) == 1;
  const auto choose = [&](int width, int height) {
    return random_crop(width, height, reading.crop, random);
  };
  read(file, reading.side, into, choose, mirrored);
}

void read_for_evaluation(const std::filesystem::path& file, const Reading& reading,
                         std::uint8_t* into) {
  const auto choose = [&](int width, int height) {
    return centre_crop(width, height, reading.centre_share);
  };
  read(file, reading.side, into, choose, false);
}

}  // namespace examples::imagenet
