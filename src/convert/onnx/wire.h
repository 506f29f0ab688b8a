// Protocol buffers' wire format, read and written without a schema: a message is a list of fields.
//
// Nothing is lost: fields that nobody knows stay where they are, and what was not changed is
// written with the bytes that were read. Payloads are views into the file; a nested message is
// taken apart when it is opened.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace mezzo::convert {

/// Where bytes go.
class Sink {
 public:
  virtual ~Sink();
  virtual void write(std::string_view bytes) = 0;
};

/// Collects bytes in a string.
class StringSink final : public Sink {
 public:
  void write(std::string_view bytes) override { text.append(bytes); }
  std::string text;
};

/// A payload that is made while it is written, so that it never exists whole: a converted tensor.
class Content {
 public:
  virtual ~Content();
  virtual std::uint64_t size() const = 0;
  virtual void write(Sink&) const = 0;
};

/// kRun is none of the format's: many numbers, or texts of an attribute, of one field behind each
/// other, which stay as they lie in the file; for_each_field() takes them apart.
enum class Wire : std::uint8_t {
  kVarint = 0,
  kFixed64 = 1,
  kBytes = 2,
  kGroup = 3,
  kFixed32 = 5,
  kRun = 7
};

class Message;

/// One occurrence of a field. `raw` are its bytes, tag included, while it is as it was read.
struct Field {
  std::uint32_t number = 0;
  Wire wire = Wire::kVarint;
  std::uint64_t value = 0;           // of kVarint, kFixed32, kFixed64
  std::string_view bytes;            // of kBytes (and the whole of kGroup and kRun)
  std::string_view raw;              // empty: made or edited by us
  std::unique_ptr<Message> message;  // an opened nested message; then `bytes` counts no more
  std::shared_ptr<const Content> content;

  /// The nested message of this field, taken apart at the first call.
  Message& open();
  /// Replaces the payload. The view must live as long as the message.
  void set_bytes(std::string_view text);
  void set_value(std::uint64_t number);
};

/// A message as the list of its fields, in file order.
class Message {
 public:
  Message() = default;
  /// Views into `bytes`, which must outlive the message. Throws Error on damaged input.
  static Message parse(std::string_view bytes);

  const std::vector<Field>& fields() const { return fields_; }
  std::vector<Field>& fields() { return fields_; }

  /// The last field of that number, or null (proto3: the last one counts).
  Field* find(std::uint32_t number);
  const Field* find(std::uint32_t number) const;
  std::string_view text(std::uint32_t number) const;
  std::uint64_t number(std::uint32_t number, std::uint64_t otherwise = 0) const;

  Field& add(std::uint32_t number, std::uint64_t value);
  Field& add(std::uint32_t number, std::string_view text);
  Field& add(std::uint32_t number, std::unique_ptr<Message> message);
  Field& add(std::uint32_t number, std::shared_ptr<const Content> content);
  /// Replaces the value of the field, or adds it.
  void set(std::uint32_t number, std::uint64_t value);
  void set(std::uint32_t number, std::string_view text);
  void remove(std::uint32_t number);
  /// Replaces all fields; for insertions in bulk.
  void replace(std::vector<Field> fields);

  /// Was nothing below this message changed?
  bool is_clean() const;
  std::uint64_t size() const;
  void write(Sink&) const;
  /// A copy that shares payloads but no structure.
  Message clone() const;

 private:
  std::vector<Field> fields_;
  bool changed_ = false;
};

/// Visits every occurrence of a field, in file order, those within runs too.
void for_each_field(const Message&, std::uint32_t number,
                    const std::function<void(const Field&)>& visit);

/// Reads consecutive varints, as packed repeated fields hold them.
class VarintReader {
 public:
  explicit VarintReader(std::string_view bytes) : rest_(bytes) {}
  bool done() const { return rest_.empty(); }
  std::uint64_t next();
  std::string_view take(std::uint64_t size);

 private:
  std::string_view rest_;
};

/// All values of a repeated integer field, packed or not.
std::vector<std::int64_t> repeated_integers(const Message&, std::uint32_t number);

/// As above, for a field of floats.
std::vector<float> repeated_floats(const Message&, std::uint32_t number);

}  // namespace mezzo::convert
