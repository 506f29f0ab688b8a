#include "mezzo/messages.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace mezzo {
namespace {

TEST(Messages, ReachTheSinkThatWasSetLast) {
  std::vector<std::string> heard;
  const MessageSink before =
      set_message_sink([&](const std::string& text) { heard.push_back(text); });
  send_message("one");
  set_message_sink({});
  send_message("nobody hears this");
  set_message_sink(before);
  EXPECT_EQ(heard, std::vector<std::string>{"one"});
}

TEST(Messages, ASinkMaySendAndReplaceItself) {
  int heard = 0;
  const MessageSink before = set_message_sink([&](const std::string& text) {
    if (++heard == 1) send_message(text + " again");
    set_message_sink({});
  });
  send_message("said");
  send_message("not heard");
  set_message_sink(before);
  EXPECT_EQ(heard, 2);
}

TEST(Messages, GoToStandardErrorAtFirst) {
  testing::internal::CaptureStderr();
  send_message("said");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "said\n");
}

}  // namespace
}  // namespace mezzo
