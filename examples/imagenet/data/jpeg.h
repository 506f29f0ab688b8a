// JPEG decoding by libjpeg-turbo, of no more than is needed: the part that was asked for, at the
// smallest of its sizes 1, 1/2, 1/4 and 1/8 that still has the pixels.
#pragma once

#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>

#include "imagenet/data/crop.h"
#include "imagenet/data/pixels.h"

namespace examples::imagenet {

/// An image that cannot be read, by its own fault; says which file and why.
class BadImage : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A part of an image, possibly scaled down.
struct DecodedPart {
  Pixels pixels;
  Rectangle part;  ///< where in `pixels` the part lies that was asked for
};

/// A JPEG file's bytes, held by the caller while this object lives.
class Jpeg {
 public:
  /// Reads the header. Throws BadImage without the file's name.
  explicit Jpeg(std::span<const unsigned char> bytes);

  int width() const { return width_; }
  int height() const { return height_; }

  /// Decodes the part, at least `side` pixels wide and high where the file has them. The pixels
  /// are those that decoding the whole image at that scale gives. Grey and CMYK become RGB. Throws
  /// BadImage where the data on the way to the part's end is damaged.
  DecodedPart decode(const Rectangle& part, int side) const;

 private:
  std::span<const unsigned char> bytes_;
  int width_ = 0, height_ = 0;
};

/// A file's bytes. Throws BadImage, which names the file, where it cannot be read.
std::string read_file(const std::filesystem::path& file);

}  // namespace examples::imagenet
