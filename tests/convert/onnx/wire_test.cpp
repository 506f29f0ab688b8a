#include "convert/onnx/wire.h"

#include <gmock/gmock.h>

#include "mezzo/error.h"

namespace mezzo::convert {
namespace {

using testing::ElementsAre;

std::string written(const Message& message) {
  StringSink sink;
  message.write(sink);
  EXPECT_EQ(message.size(), sink.text.size());
  return sink.text;
}

// Field 1 as a varint with a needless byte, an unknown group, a fixed32, a nested message.
const std::string kStrange("\x08\x81\x00\x1B\x08\x01\x1C\x25\x01\x02\x03\x04\x2A\x04\x0A\x02hi",
                           18);

TEST(Wire, WritesWhatItReadByteForByte) {
  Message message = Message::parse(kStrange);
  EXPECT_EQ(written(message), kStrange);
  message.find(5)->open();
  EXPECT_TRUE(message.is_clean());
  EXPECT_EQ(written(message), kStrange);
  EXPECT_EQ(written(message.clone()), kStrange);
}

TEST(Wire, KeepsUnknownFieldsAroundAnEdit) {
  Message message = Message::parse(kStrange);
  message.find(5)->open().set(1, std::string_view("there"));
  EXPECT_FALSE(message.is_clean());
  EXPECT_EQ(written(message), kStrange.substr(0, 12) + "\x2A\x07\x0A\x05there");
}

TEST(Wire, ReadsPackedAndUnpackedIntegers) {
  const std::string packed("\x0A\x03\x01\x96\x01\x08\x05", 7);
  EXPECT_THAT(repeated_integers(Message::parse(packed), 1), ElementsAre(1, 150, 5));
}

TEST(Wire, ReadsPackedAndUnpackedFloats) {
  const std::string packed("\x0A\x08\0\0\x80\x3F\0\0\0\xC0\x0D\0\0\0\x3F", 15);
  EXPECT_THAT(repeated_floats(Message::parse(packed), 1), ElementsAre(1, -2, 0.5F));
}

TEST(Wire, RefusesEveryTruncation) {
  for (std::size_t size : {1U, 2U, 4U, 5U, 6U, 8U, 11U, 13U, 15U, 17U}) {
    EXPECT_THROW(Message::parse(std::string_view(kStrange).substr(0, size)), Error) << size;
  }
}

TEST(Wire, RefusesImpossibleFields) {
  EXPECT_THROW(Message::parse(std::string_view("\x00\x00", 2)), Error);  // field number 0
  EXPECT_THROW(Message::parse(std::string_view("\x0E\x00", 2)), Error);  // wire type 6
  EXPECT_THROW(Message::parse(std::string_view("\x0C", 1)), Error);      // an end without a start
  EXPECT_THROW(Message::parse(std::string_view("\x0B\x14", 2)), Error);  // the wrong end
  EXPECT_THROW(Message::parse(std::string(11, '\xFF')), Error);          // a number without end
  EXPECT_THROW(Message::parse(std::string_view("\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F", 10)),
               Error);  // a length beyond everything
}

TEST(Wire, ReadsManyNumbersAndTextsWhereTheyLie) {
  constexpr int kMany = 1000;
  Message made;
  for (int i = 0; i < kMany; ++i) {
    made.add(7, std::uint64_t{0x40000000}).wire = Wire::kFixed32;
    if (i == 500) made.add(2, std::string_view("between"));
  }
  for (int i = 0; i < kMany; ++i) made.add(8, static_cast<std::uint64_t>(i));
  for (int i = 0; i < kMany; ++i) made.add(9, std::string_view("LEAF"));
  for (int i = 0; i < kMany; ++i) made.add(1, std::string_view("x"));  // may be messages
  const std::string bytes = written(made);
  const Message message = Message::parse(bytes);
  EXPECT_EQ(message.fields().size(), 5U + kMany);
  EXPECT_TRUE(message.is_clean());
  EXPECT_EQ(written(message), bytes);
  EXPECT_EQ(written(message.clone()), bytes);
  EXPECT_EQ(repeated_floats(message, 7), std::vector<float>(kMany, 2.0F));
  std::vector<std::int64_t> counted(kMany);
  for (int i = 0; i < kMany; ++i) counted[static_cast<std::size_t>(i)] = i;
  EXPECT_EQ(repeated_integers(message, 8), counted);
  int texts = 0;
  for_each_field(message, 9, [&](const Field& field) { texts += field.bytes == "LEAF" ? 1 : 0; });
  EXPECT_EQ(texts, kMany);
}

}  // namespace
}  // namespace mezzo::convert
